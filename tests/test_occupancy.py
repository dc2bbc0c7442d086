"""Turns: while a trial is timed, no other one runs on its cores or GPUs."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, WriteStudy
from test_engines import TRADEWIND, executions

from tradewind.errors import Mistake
from tradewind.occupancy import Turn, check_lock_folder
from tradewind.results import Results

HOLDER = """
import os, sys, time
from tradewind.occupancy import Turn, check_lock_folder
turn = Turn(sys.argv[2:], sys.argv[1] == "time")
for line in sys.stdin:
    if line == "enter\\n":
        turn.__enter__()
    elif line == "leave\\n":
        turn.__exit__()
    elif line == "ask\\n":
        print(turn.at_once(), flush=True)
        continue
    elif line == "fork\\n":
        if not (child := os.fork()):
            time.sleep(600)
        print(child, flush=True)
        continue
    print(line, end="", flush=True)
"""

Holder = subprocess.Popen[str]
Start = Callable[..., Holder]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that enter and leave a turn as told; their locks are those of this test alone."""
    started: list[Holder] = []

    def begin(purpose: str, *things: str) -> Holder:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", HOLDER, purpose, *(things or ("core-0", "core-1"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "TRADEWIND_LOCKS": str(tmp_path / "locks")},
            )
        )
        os.set_blocking(started[-1].stdout.fileno(), False)  # type: ignore[union-attr]
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def tell(holder: Holder, word: str) -> None:
    assert holder.stdin is not None
    holder.stdin.write(f"{word}\n")
    holder.stdin.flush()


def answer(holder: Holder, within_s: float) -> str:
    """What it answers; nothing while it waits."""
    assert holder.stdout is not None
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if line := holder.stdout.readline():
            return line.strip()
        time.sleep(0.005)
    return ""


def does(holder: Holder, word: str) -> None:
    """Tell it, and wait until it has done so."""
    tell(holder, word)
    assert answer(holder, 10.0) == word


def waits(holder: Holder) -> bool:
    return answer(holder, 0.3) == ""


@pytest.mark.parametrize("second", ["tune", "time"])
def test_who_times_is_alone(start: Start, second: str) -> None:
    first, other = start("time"), start(second)
    does(first, "enter")
    tell(other, "ask")
    assert answer(other, 10.0) == "False"
    tell(other, "enter")
    assert waits(other)
    does(first, "leave")
    assert answer(other, 10.0) == "enter"


def test_who_times_waits_for_those_that_tune(start: Start) -> None:
    tuned, timed = start("tune"), start("time")
    does(tuned, "enter")
    tell(timed, "enter")
    assert waits(timed)
    does(tuned, "leave")
    assert answer(timed, 10.0) == "enter"


def test_those_that_tune_share(start: Start) -> None:
    first, second = start("tune"), start("tune")
    does(first, "enter")
    tell(second, "ask")
    assert answer(second, 10.0) == "True"
    does(second, "enter")


def test_other_cores_and_gpus_are_not_waited_for(start: Start) -> None:
    first, second, both = start("time", "GPU-a"), start("time", "GPU-b"), start("time", "GPU-b", "GPU-a")
    does(first, "enter")
    does(second, "enter")
    tell(both, "enter")
    does(first, "leave")
    assert waits(both)
    does(second, "leave")
    assert answer(both, 10.0) == "enter"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_holder_frees_its_turn(start: Start, number: int) -> None:
    first, second = start("time"), start("time")
    does(first, "enter")
    tell(second, "enter")
    assert waits(second)
    first.send_signal(number)
    assert answer(second, 10.0) == "enter"


def test_a_stream_of_tuned_trials_does_not_starve_a_timed_one(start: Start) -> None:
    tuned, timed = [start("tune") for _ in range(3)], start("time")
    for one in tuned[:2]:
        does(one, "enter")
    tell(timed, "enter")
    assert waits(timed)
    tell(tuned[2], "enter")
    assert waits(tuned[2])  # it came later
    does(tuned[0], "leave")
    tell(tuned[0], "enter")
    assert waits(tuned[0])
    does(tuned[1], "leave")
    assert answer(timed, 10.0) == "enter"
    assert waits(tuned[0])
    does(timed, "leave")
    assert {answer(one, 10.0) for one in (tuned[0], tuned[2])} == {"enter"}


# By the front door.

MODULE = """
import os, pathlib, time

def trial(config, trial):
    handle = os.open(pathlib.Path(__file__).parent / "executions", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(handle, f"{trial.number}\\n".encode())
    os.close(handle)
    time.sleep(0.05)
    return trial.number
"""


def overlaps(records: list[dict[str, Any]]) -> int:
    spans = sorted((record["started"], record["finished"]) for record in records)
    return sum(start < end for (_, end), (start, _) in pairwise(spans))


def test_two_jobs_that_time_on_one_folder_never_run_trials_at_once(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(MODULE)
    study = {"name": "timed", "workload": "work.py:trial", "space": {"n": list(range(30))}, "purpose": "time"}
    (tmp_path / "study.json").write_text(json.dumps(study))
    command = [str(TRADEWIND), "run", "study.json", "--out", "run", "--quiet"]
    environment = {**os.environ, "TRADEWIND_LOCKS": str(tmp_path / "locks")}
    both = [subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    try:
        for job in both:
            _, errors = job.communicate(timeout=60)
            assert (job.returncode, errors) == (0, b"")
    finally:
        for job in both:
            job.kill()
            job.communicate()
    records = list(Results.load(tmp_path / "run").records())
    assert sorted(map(int, executions(tmp_path))) == list(range(30))
    assert sorted(record["trial"] for record in records) == list(range(30))
    assert len({record["log"]["file"] for record in records}) == 2, "both jobs had a part"
    assert overlaps(records) == 0


def test_a_signal_while_waiting_leaves_no_gate_closed() -> None:
    thing = f"signal-{os.getpid()}"
    tuned, timed = Turn([thing], alone=False), Turn([thing], alone=True)

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with tuned:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt), timed:
                raise AssertionError("another one computes")
            assert Turn([thing], alone=False).at_once()
    finally:
        signal.signal(signal.SIGALRM, before)
    with timed:
        assert not Turn([thing], alone=False).at_once()


# The folder of the locks belongs to one user.


def test_a_link_planted_in_place_of_the_lock_folder_is_refused_and_its_target_untouched(
    command: Cli, write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mine"
    target.mkdir(0o700)
    (tmp_path / "locks").symlink_to(target)
    monkeypatch.setenv("TRADEWIND_LOCKS", str(tmp_path / "locks"))
    ended = command("run", write_study({"name": "s", "workload": "work:trial", "space": {"n": [1]}}, MODULE))
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "locks: can't be used for locks: it is a symbolic link; allowed: a folder of your own" in ended.stderr
    assert not list(target.iterdir())
    assert not (tmp_path / "runs").exists(), "refused before any work"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o750])
def test_a_lock_folder_that_others_can_enter_is_refused_and_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("TRADEWIND_LOCKS", str(folder))
    with pytest.raises(Mistake, match=f"its mode {mode:04o} lets others in"), Turn(["core-0"], alone=True):
        raise AssertionError
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_lock_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "locks"
    folder.mkdir(0o700)
    os.chown(folder, 12345, -1)
    monkeypatch.setenv("TRADEWIND_LOCKS", str(folder))
    with pytest.raises(Mistake, match="it belongs to user 12345"):
        check_lock_folder()


def test_locks_lie_in_a_private_folder_of_the_users_whatever_tmpdir_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRADEWIND_LOCKS")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Turn(["a thing of this test alone"], alone=True):
        folder = Path(f"/tmp/tradewind-{os.getuid()}")
        found = [path for path in folder.iterdir() if path.name.endswith(f".{os.getpid()}")]
        assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, *found)] == [0o700, 0o600]
    assert not list(tmp_path.iterdir())
    assert not found[0].exists()


def test_a_lock_does_not_outlive_its_process_in_a_child_that_this_has_forked(start: Start) -> None:
    first, second = start("time"), start("time")
    does(first, "enter")
    tell(first, "fork")
    child = int(answer(first, 10.0))
    try:
        tell(second, "enter")
        assert waits(second)
        first.kill()
        assert answer(second, 10.0) == "enter"
    finally:
        os.kill(child, signal.SIGKILL)


def test_who_waits_goes_before_who_comes_back(start: Start) -> None:
    timed, others = start("time"), [start("tune"), start("time"), start("tune")]
    does(timed, "enter")
    for one in others:
        tell(one, "enter")
        assert waits(one)
    does(timed, "leave")
    tell(timed, "enter")
    assert answer(others[0], 10.0) == "enter"
    assert waits(timed)
    assert waits(others[1])
    does(others[0], "leave")
    assert answer(others[1], 10.0) == "enter"
    assert waits(others[2])
    does(others[1], "leave")
    assert answer(others[2], 10.0) == "enter"
    assert waits(timed)
    does(others[2], "leave")
    assert answer(timed, 10.0) == "enter"
