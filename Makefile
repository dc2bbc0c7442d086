# make demo and make test work from a clean clone with Python 3.11+ and nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TRITON := .venv/triton

SYSTEM := cluster or browser or kernels or bench

.PHONY: demo test test-system check bench setup clean

demo: setup
	@$(BIN)/tradewind run quick
	@echo; $(BIN)/tradewind table runs/quick --rows batch_size --columns data_multiplier --by augment --value train_s
	@echo; $(BIN)/tradewind table runs/quick --rows batch_size --columns data_multiplier --by augment --value auc
	@echo; echo "best configuration:"; $(BIN)/tradewind best runs/quick
	@echo; echo "run folder: runs/quick (again: make demo goes on with it; tradewind run quick --fresh starts anew)"

# Most tests wait for processes of their own, so a third test process pays on two cores.
test: setup
	$(BIN)/python -m pytest -q -n 3 --dist worksteal --durations 20 -m "not ($(SYSTEM) or slow or gpu)"

# MPI, Slurm, browser, kernels and bench: a file's tests share what they start.
test-system: setup $(TRITON)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --durations 20 -m "($(SYSTEM)) and not (slow or gpu)"
	PYTHONPATH=$(TRITON) TRITON_INTERPRET=1 $(BIN)/python -m pytest -q -n 2 -m kernels tests/test_kernels.py

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

# 1 GB, and only for its interpreter: no part of what torch finds elsewhere.
$(TRITON): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(TRITON) triton==3.9.0
	@touch $(TRITON)

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
