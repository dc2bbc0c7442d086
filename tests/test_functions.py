"""Functions and commands as workloads: what they are given, and what becomes of what they report."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, WriteStudy

import tradewind
from tradewind.errors import StudyError
from tradewind.run import Quiet

ENGINES = ("serial", "processes")
Run = Callable[..., tradewind.Results]


@pytest.fixture
def run(tmp_path: Path, write_study: WriteStudy) -> Run:
    """Runs a study of a module `work.py`."""

    def call(module: str, engine: str = "serial", **study: Any) -> tradewind.Results:
        content = {"name": "function", "workload": "work.py:f", "space": {"x": [1, 2]}, **study}
        return tradewind.run(write_study(content, module), tmp_path / "run", engine=engine, workers=2)

    return call


@pytest.mark.parametrize(
    ("parameters", "gets"),
    [
        ("config", ""),
        ("config, debug=False", ""),
        ("config, *, verbose=True", ""),
        ("config, *rest", ""),
        ("config, trial", "trial"),
        ("config, t", "t"),
        ("config, trial=None", "trial"),
        ("config, debug=False, trial=None", "trial"),
        ("config, *, trial", "trial"),
        ("config, handle, verbose=2", "handle"),
    ],
)
def test_only_a_parameter_called_trial_or_a_second_one_that_must_be_given_gets_the_trial(
    parameters: str, gets: str, run: Run
) -> None:
    module = f"""
def f({parameters}):
    given = locals()
    got = [name for name, value in given.items() if hasattr(value, "should_stop")]
    assert got == {[gets] if gets else []}, got
    return float(given.get("debug", False))
"""
    assert run(module).items("score") == [0.0, 0.0]


@pytest.mark.parametrize("parameters", ["", "config, one, two", "config, *, device"])
def test_a_function_that_can_not_be_called_with_a_config_is_refused(parameters: str, run: Run) -> None:
    with pytest.raises(StudyError, match=r"allowed: a function f\(config\) or f\(config, trial\)"):
        run(f"def f({parameters}):\n    return 0\n")


@pytest.mark.parametrize("name", ["trial", "repeat", "folder", "scores", "config"])
@pytest.mark.parametrize("place", ["space", "fixed"])
def test_a_hyperparameter_of_a_command_with_the_name_of_a_placeholder_is_refused(
    name: str, place: str, command: Cli, write_study: WriteStudy
) -> None:
    study: dict[str, Any] = {"name": "taken", "command": f"echo {{{name}}}", "space": {"x": [1]}, "fixed": {}}
    study[place][name] = [7] if place == "space" else 7
    answer = command("check", write_study(study))
    assert answer.returncode == 2
    assert answer.stderr == (
        f"tradewind: {place}.{name}: in a command {{{name}}} is Tradewind's own; give it another name\n"
    )


LAYERS = """
def f(config, trial):
    config["layers"].append(config["x"])
    config["options"]["deep"].append(1)
    return {"length": len(config["layers"]), "depth": len(config["options"]["deep"])}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_every_trial_has_lists_and_dicts_of_its_own(engine: str, run: Run) -> None:
    fixed = {"layers": [64, 32], "options": {"deep": [0]}}
    results = run(LAYERS, engine, space={"x": list(range(40))}, fixed=fixed)
    assert (set(results.items("length")), set(results.items("depth"))) == ({3.0}, {2.0})
    for record in results.records():
        assert record["config"] == {"x": record["trial"], **fixed}


REPORTS = """
import numpy

def f(config, trial):
    for epoch in numpy.arange(1, 4):
        trial.report(epoch, loss=numpy.float32(1 / epoch))
    return numpy.float64(0.5)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_numpy_numbers_are_numbers(engine: str, run: Run, command: Cli, tmp_path: Path) -> None:
    results = run(REPORTS, engine)
    assert [record["epochs_run"] for record in results.records()] == [3, 3]
    curve = results.curve(results.keys()[0])
    assert [row["epoch"] for row in curve] == [1, 2, 3]
    assert [row["loss"] for row in curve] == pytest.approx([1, 1 / 2, 1 / 3])
    shown = command("show", tmp_path / "run", 0)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "0.3333" in shown.stdout


def test_an_epoch_that_is_no_whole_number_fails_its_trial(run: Run) -> None:
    record = run("def f(config, trial):\n    trial.report(0.5, loss=1)\n").record(0)
    assert record["error"]["what"] == "TradewindError: trial.report: epoch 0.5; allowed: a whole number"


NETWORK = """
import numpy as np
from torch import nn
from tradewind import Data, Split

class Net:
    metric = "error"
    defaults = {}

    def data(self, config):
        inputs = np.arange(12, dtype=np.float32).reshape(4, 3)
        self.inputs = inputs.shape[1]
        split = Split(inputs, inputs[:, :1])
        return Data(split, split, split)

    def model(self, config):
        return nn.Linear(self.inputs, 1)

    def loss(self, outputs, targets, config):
        return ((outputs - targets) ** 2).mean()

    def scores(self, outputs, targets):
        return {"error": (outputs - targets).abs().mean().item()}
"""


def test_a_model_that_needs_what_data_left_is_made_again_from_its_weights(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where its code is
    space = {"learning_rate": [1e-3, 2e-3]}
    results = run(NETWORK, workload="work.py:Net", space=space, fixed={"epochs": 1, "batch_size": 2})
    assert [record["error"] for record in results.records()] == [{}, {}]
    model = results.best().model()
    assert (model.in_features, math.isfinite(results.best().value)) == (3, True)


HELPED = """
from helper import answer
import parts.deep

def f(config):
    import late
    return {"early": answer(), "late": late.ANSWER, "deep": parts.deep.ANSWER}
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workload", ["work:f", "work.py:f"])
def test_studies_in_one_process_import_their_own_helpers(
    workload: str, engine: str, tmp_path: Path, write_study: WriteStudy
) -> None:
    study = {"name": "same", "workload": workload, "space": {"x": [1]}}
    for round, number in enumerate((3, 4, 3)):
        folder = tmp_path / str(number)
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        (folder / "helper.py").write_text(f"def answer():\n    return {number}\n")
        (folder / "late.py").write_text(f"ANSWER = {number}\n")
        (folder / "parts" / "__init__.py").write_text("")
        (folder / "parts" / "deep.py").write_text(f"ANSWER = {number}\n")
        results = tradewind.run(write_study(study, HELPED, folder), folder / f"run{round}", engine=engine)
        assert results.record(0)["scores"] == dict.fromkeys(("early", "late", "deep"), float(number))


def test_a_helper_that_only_another_study_has_is_not_found(tmp_path: Path, write_study: WriteStudy) -> None:
    study = {"name": "same", "workload": "work:f", "space": {"x": [1]}}
    for number in (3, 4):
        folder = tmp_path / str(number)
        path = write_study(study, "def f(config):\n    import other_helper\n    return 1\n", folder)
        (tmp_path / "3" / "other_helper.py").write_text("")
        record = tradewind.run(path, folder / "run", engine="serial").record(0)
        assert record["state"] == ("done" if number == 3 else "failed")


class PressesCtrlC(Quiet):
    """Interrupts its process at the second trial, as a key would."""

    def started(self, worker: int, trial: Any) -> None:
        """A trial begins."""
        if trial.trial == 1:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_python_is_no_exception_that_a_loop_swallows(tmp_path: Path, write_study: WriteStudy) -> None:
    study = {"name": "stop", "workload": "work.py:f", "space": {"x": [1, 2, 3]}}
    path = write_study(study, "def f(config):\n    return 1\n")

    def again_and_again() -> None:
        while True:
            with suppress(Exception):
                tradewind.run(path, tmp_path / "run", engine="serial", watch=PressesCtrlC())

    with pytest.raises(KeyboardInterrupt, match="stopped by SIGINT"):
        again_and_again()
    assert tradewind.Results.load(tmp_path / "run").counts()["done"] == 1
    assert tradewind.run(path, tmp_path / "run", engine="serial").counts()["done"] == 3


def test_in_python_what_is_there_is_returned_when_the_time_is_up(
    tmp_path: Path, write_study: WriteStudy, command: Cli
) -> None:
    module = "import time\n\ndef f(config):\n    time.sleep(0.05)\n    return config['x']\n"
    path = write_study({"name": "long", "workload": "work.py:f", "space": {"x": list(range(1000))}}, module)
    results = tradewind.run(path, tmp_path / "run", engine="serial", max_time_s=0.3)
    assert 1 <= results.counts()["done"] < 1000
    assert results.record(0)["scores"] == {"score": 0.0}
    answer = command("run", path, "--out", tmp_path / "run", "--engine", "serial", "--max-time", "0.2s", "--quiet")
    assert (answer.returncode, answer.stdout) == (130, "")
    assert answer.stderr.startswith("tradewind: time is up; nothing recorded is lost, go on with: tradewind run ")
    assert len(tradewind.Results.load(tmp_path / "run")) > len(results)


# The time of a trial that was killed and goes on from a checkpoint of its own.

RESUMES = """
import json, os, pathlib, signal, sys, time

EPOCH_S = 0.05

def train(x, folder, report):
    kept = folder / "epoch"
    first = int(kept.read_text()) if kept.exists() else 0
    for epoch in range(first + 1, 9):
        time.sleep(EPOCH_S)
        report(epoch)
        if x == 1 and not first and epoch == 5:
            kill()
        kept.write_text(str(epoch))
    return {"first": first}

def kill():
    os.kill(os.getppid() if __name__ == "__main__" else os.getpid(), signal.SIGKILL)
    time.sleep(10)

def f(config, trial):
    return train(config["x"], trial.folder, lambda epoch: trial.report(epoch, loss=1 / epoch))

if __name__ == "__main__":
    print(json.dumps(train(int(sys.argv[1]), pathlib.Path(sys.argv[2]), print)))
"""


@pytest.mark.parametrize("kind", ["function", "command"])
def test_the_parts_of_a_killed_trial_add_up_and_what_was_lost_is_said(
    kind: str, tmp_path: Path, write_study: WriteStudy, cli: Cli, command: Cli
) -> None:
    what = (
        {"workload": "work:f"} if kind == "function" else {"command": f"{sys.executable} -S work.py {{x}} {{folder}}"}
    )
    write_study({"name": "cut", "purpose": "time", "space": {"x": [0, 1]}, **what}, RESUMES)
    assert cli("run", "study.json", "--out", "run", "--engine", "serial", "--quiet").returncode == -signal.SIGKILL
    assert cli("run", "study.json", "--out", "run", "--engine", "serial", "--quiet").returncode == 0
    results = tradewind.Results.load(tmp_path / "run")
    whole, cut = results.record(0), results.record(1)
    assert ("interruptions" in whole, "lost_s" in whole["times"], whole["scores"]["first"]) == (False, False, 0.0)
    assert (cut["interruptions"], cut["attempt"], cut["scores"]["first"]) == (1, 1, 4.0)
    for record in (whole, cut):
        assert 0.95 * 8 * 0.05 <= record["times"]["wall_s"] < 8 * 0.05 + 1.0
        assert record["times"]["train_s"] == record["times"]["wall_s"]
    if kind == "function":  # its report was the last that was heard of it
        assert 0.04 <= cut["times"]["lost_s"] < 1.0  # file times are 4 ms coarse
        assert [row["epoch"] for row in results.curve(cut["key"])] == [5, 6, 7, 8]
        assert results.curve(cut["key"])[-1]["elapsed_s"] >= 0.95 * 8 * 0.05
    shown = command("show", "run", 1).stdout
    assert "cut off  1 time; its times are sums of parts, without at least" in shown
    table = command("table", "run", "--rows", "x", "--columns", "state", "--value", "wall_s").stdout
    assert "1 interrupted left out" in table
    assert not list((tmp_path / "run" / "trials").glob("*.json"))


def test_a_trial_that_left_nothing_in_its_folder_begins_anew_and_its_time_is_whole(
    tmp_path: Path, write_study: WriteStudy, cli: Cli
) -> None:
    died = "(folder.parent / 'died')"
    module = RESUMES.replace("kept.write_text(str(epoch))", "pass").replace("not first", f"not {died}.exists()")
    module = module.replace("            kill()", f"            {died}.touch()\n            kill()")
    write_study({"name": "anew", "workload": "work:f", "space": {"x": [1]}}, module)
    assert cli("run", "study.json", "--out", "run", "--engine", "serial", "--quiet").returncode == -signal.SIGKILL
    assert cli("run", "study.json", "--out", "run", "--engine", "serial", "--quiet").returncode == 0
    record = tradewind.Results.load(tmp_path / "run").record(0)
    assert ("interruptions" in record, record["epochs_run"]) == (False, 8)
    assert 0.95 * 8 * 0.05 <= record["times"]["wall_s"] < 8 * 0.05 + 1.0
