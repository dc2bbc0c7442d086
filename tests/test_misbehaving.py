"""Trials that misbehave: each ends as a correct record or a failed one with its cause, the others are untouched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WriteStudy

import tradewind

Record = dict[str, Any]


@pytest.fixture
def ran(tmp_path: Path, write_study: WriteStudy) -> Callable[..., dict[Any, Record]]:
    """Runs `trial` of a module over some cases; the records by case."""

    def call(module: str, cases: list[Any], engine: str = "processes", **study: Any) -> dict[Any, Record]:
        content = {"name": "odd", "workload": "work.py:trial", "space": {"case": cases}, **study}
        path = write_study(content, module)
        results = tradewind.run(path, tmp_path / "run", engine=engine, workers=None if engine == "serial" else 2)
        return {record["config"]["case"]: record for record in results.records()}

    return call


# A child that a trial forks never speaks for its worker.

FORKS = """
import os, sys, time

def trial(config, trial):
    case = config["case"]
    if case % 4 == 1 and os.fork() == 0:
        return -1.0
    if case % 4 == 2 and os.fork() == 0:
        trial.report(1, loss=-1.0)
        return -1.0
    if case % 4 == 3 and os.fork() == 0:
        sys.exit(5)
    time.sleep(0.002)
    return case
"""


@pytest.mark.parametrize("engine", ["processes", "serial"])
def test_every_trial_has_its_own_score_where_some_fork(engine: str, ran: Callable[..., dict[Any, Record]]) -> None:
    records = ran(FORKS, list(range(40)), engine)
    assert {case: (r["state"], r["scores"]) for case, r in records.items()} == {
        case: ("done", {"score": float(case)}) for case in range(40)
    }
    assert all(record["last"] == {} for record in records.values())


RAISES_IN_CHILD = """
import os

def trial(config):
    if os.fork() == 0:
        raise ValueError("the child")
    os.wait()
    return 1.0
"""


def test_the_exception_of_a_forked_child_is_in_the_log_and_fails_nothing(
    ran: Callable[..., dict[Any, Record]], tmp_path: Path
) -> None:
    record = ran(RAISES_IN_CHILD, [1])[1]
    assert (record["state"], record["scores"]) == ("done", {"score": 1.0})
    log = (tmp_path / "run" / "logs" / record["log"]["file"]).read_text()
    assert "ValueError: the child" in log


ANSWERS = """
import gc, os
from multiprocessing.connection import Connection
from tradewind.pack import Outcome

def trial(config):
    case = config["case"]
    if case in ("another", "nothing", "garbage"):
        mine = next(one for one in gc.get_objects() if isinstance(one, Connection))
        if case == "another":
            mine.send(("ended", [Outcome("no such key", "done", scores={"score": 7.0})], 0.0, 0.0, 0, 0))
        elif case == "nothing":
            mine.send(("ended", [], 0.0, 0.0, 0, 0))
        else:
            os.write(mine.fileno(), b"this is no message at all")
    return 1.0
"""


def test_an_answer_for_another_key_is_not_accepted(ran: Callable[..., dict[Any, Record]]) -> None:
    wrong = ["another", "nothing", "garbage"]
    records = ran(ANSWERS, ["a", *wrong, "b", "c"])
    assert {case: record["state"] for case, record in records.items()} == {
        **dict.fromkeys("abc", "done"), **dict.fromkeys(wrong, "failed")
    }  # fmt: skip
    for case in wrong:
        assert records[case]["error"]["what"].startswith("the worker's answer is not that of this trial")
    assert all(records[case]["scores"] == {"score": 1.0} for case in "abc")
