"""What a run says of its own accord when something went wrong, from Python and with --quiet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, WriteStudy

from tradewind import Study, run
from tradewind.errors import RunError

MODULE = """
def broken(config):
    return {"accuracy": config["data"]}

def odd(config):
    if config["x"] % 2:
        raise ValueError("odd")
    return {"accuracy": config["x"]}

def forgets(config):
    config["x"] + 1
"""


def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Study:
    """Four trials of a function of this module."""
    (tmp_path / "troubled.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Study(name=name, workload=f"troubled:{name}", space={"x": [1, 2, 3, 4]})


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return capfd.readouterr().err.splitlines()


def test_a_run_from_python_says_how_many_trials_failed_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    results = run(study(tmp_path, monkeypatch, "broken"), tmp_path / "run", engine="serial")
    lines = [line for line in said(capfd) if line.startswith("broken: ")]
    assert lines == ["broken: 4 of 4 trials failed: KeyError: 'data'; results.record(0)['error'] has its traceback"]
    with pytest.raises(
        RunError, match="no trial has a value of any score yet: all 4 that ended failed, KeyError: 'data'"
    ):
        results.best()


def test_failed_trials_of_an_earlier_run_are_kept_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    odd = study(tmp_path, monkeypatch, "odd")
    run(odd, tmp_path / "run", engine="serial")
    assert not [line for line in said(capfd) if "earlier run" in line]
    run(odd, tmp_path / "run", engine="serial")
    lines = [line for line in said(capfd) if line.startswith("odd: ")]
    assert lines[0].startswith("odd: 2 of 4 trials failed: ValueError: odd; ")
    assert (
        lines[1] == "odd: 2 failed trials are kept as they ended in an earlier run; retry_failed=True runs them again"
    )


def test_a_function_that_forgot_its_return_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(study(tmp_path, monkeypatch, "forgets"), tmp_path / "run", engine="serial")
    assert any("4 of 4 trials are done, and none has a score: a function returns" in line for line in said(capfd))


def test_a_quiet_run_whose_trials_fail_prints_one_line(cli: Cli, write_study: WriteStudy) -> None:
    content: dict[str, Any] = {"name": "odd", "workload": "work:odd", "space": {"x": [1, 2, 3, 4]}}
    done = cli("run", write_study(content, MODULE), "--out", "run", "--quiet", "--engine", "serial")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "tradewind: 2 of 4 trials failed: ValueError: odd; tradewind show run 0 tells why"
    ]
