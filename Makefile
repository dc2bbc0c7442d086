# make demo and make test work from a clean clone with Python 3.11+ and nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check bench setup clean

demo: setup
	@$(BIN)/tradewind run quick
	@echo; $(BIN)/tradewind table runs/quick --rows batch_size --columns data_multiplier --by augment --value train_s
	@echo; $(BIN)/tradewind table runs/quick --rows batch_size --columns data_multiplier --by augment --value auc
	@echo; echo "best configuration:"; $(BIN)/tradewind best runs/quick
	@echo; echo "run folder: runs/quick (again: make demo goes on with it; tradewind run quick --fresh starts anew)"

test: setup
	$(BIN)/python -m pytest -q -m "not slow and not gpu"

check: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

bench: setup
	$(BIN)/tradewind bench overhead

setup: $(READY)

# Installed once; again only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Tradewind needs Python 3.11 or newer"'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
