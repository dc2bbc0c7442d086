"""Turns: while a trial is timed, no other one runs on its cores or GPUs."""

from __future__ import annotations

import json
import os
import re
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

from tradewind import disturbance
from tradewind.dashboard.feed import Feed
from tradewind.dashboard.views import live_view
from tradewind.errors import Mistake
from tradewind.journal import Journal, decode, encode, new_owner
from tradewind.occupancy import Turn, check_lock_folder
from tradewind.pack import Place
from tradewind.rerun import set_aside_again
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
        print(turn.ahead() is None, flush=True)
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
            assert Turn([thing], alone=False).ahead() is None
    finally:
        signal.signal(signal.SIGALRM, before)
    with timed:
        assert Turn([thing], alone=False).ahead() is not None


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


# What a wait says, by the front door.

CORES = [f"core-{number}" for number in sorted(os.sched_getaffinity(0))]


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of this test alone."""
    monkeypatch.setenv("TRADEWIND_LOCKS", str(tmp_path / "locks"))


def lines(run: Path, kind: str) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in (run / "journal").glob("*.jsonl")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    return [line for line in found if line["kind"] == kind]


@pytest.mark.parametrize("engine", ["processes", "serial"])
def test_terminal_status_page_and_record_say_who_waits_for_whom_since_when(
    command: Cli, write_study: WriteStudy, tmp_path: Path, locks: None, engine: str
) -> None:
    write_study({"name": "s", "workload": "work:trial", "space": {"n": [1]}}, MODULE)
    words = [str(TRADEWIND), "run", "study.json", "--out", "run", "--engine", engine, "--workers", "1"]
    with Turn(CORES, alone=True, run="/elsewhere/timed"):
        began = time.time()
        job = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert job.stderr is not None
        for line in job.stderr:
            if "waits for" in line:
                break
        whom = f"a timed trial of /elsewhere/timed (process {os.getpid()}) on the same cores or GPUs"
        assert line.rstrip().endswith(f"worker 0 waits for {whom}")
        while not lines(tmp_path / "run", "waiting"):
            time.sleep(0.01)
        (running,) = json.loads(command("status", "run", "--json").stdout)["in_progress"]
        assert running["waiting"]["for"]["run"] == "/elsewhere/timed"
        assert began <= running["waiting"]["since"] <= time.time()
        assert re.search(rf"waits for \d.* now for {re.escape(whom)}", command("status", "run").stdout)
        feed = Feed(tmp_path / "run", "run")
        feed.poll()
        (seen,) = live_view(feed, 0)["running"]
        assert seen["waiting"] == {"since": running["waiting"]["since"], "for": whom}
    assert job.wait(30) == 0
    job.stderr.close()
    (record,) = Results.load(tmp_path / "run").records()
    assert record["finished"] - began > record["waited_s"] > 0.0
    assert lines(tmp_path / "run", "waiting")[-1]["for"] == {}
    assert "waited " in command("show", "run", "0").stdout


def test_no_wait_starts_at_once(command: Cli, write_study: WriteStudy, tmp_path: Path, locks: None) -> None:
    write_study({"name": "s", "workload": "work:trial", "space": {"n": [1]}}, MODULE)
    with Turn(CORES, alone=True, run="/elsewhere/timed"):
        assert command("run", "study.json", "--out", "run", "--engine", "serial", "--no-wait").returncode == 0
    (record,) = Results.load(tmp_path / "run").records()
    assert record["waited_s"] == 0.0
    assert "disturbed" not in record, "only times are measured so"


# What disturbs a timed trial.

TIMED = """
import time

def trial(config):
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        sum(range(1000))
    return 1.0
"""


@pytest.fixture
def burning() -> Iterator[Callable[[int], None]]:
    """Starts so many processes that each keep a core busy."""
    started: list[subprocess.Popen[bytes]] = []

    def burn(count: int) -> None:
        started.extend(subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count))

    yield burn
    for process in started:
        process.kill()
        process.wait()


def test_a_timed_trial_beside_which_others_take_all_cores_is_disturbed_and_decides_nothing(
    command: Cli, write_study: WriteStudy, tmp_path: Path, locks: None, burning: Callable[[int], None]
) -> None:
    write_study({"name": "s", "workload": "work:trial", "space": {"n": [1]}, "purpose": "time"}, TIMED)
    burning(2 * len(CORES))
    assert command("run", "study.json", "--out", "run", "--workers", "1", "--quiet").returncode == 0
    (record,) = Results.load(tmp_path / "run").records()
    assert 0.2 < record["disturbed"] <= 1.0
    assert "its times decide nothing" in command("show", "run", "0").stdout
    table = Results.load(tmp_path / "run").table("n", "repeat", value="wall_s")
    assert (table.note.endswith("1 disturbed left out"), sum(len(block.cells) for block in table.blocks)) == (True, 0)
    assert sum(
        len(block.cells) for block in Results.load(tmp_path / "run").table("n", "repeat", value="score").blocks
    )


def test_load_that_idle_cores_carry_does_not_count() -> None:
    watch = disturbance.Disturbance(Place(), os.getpid())
    cores = len(CORES)
    before = disturbance.Counts(0.0, 0.0, 0.0, 0.0, {})

    def share(busy_s: float, ours_s: float, waits_s: float) -> float | None:
        after = disturbance.Counts(100.0, busy_s, 100.0 * cores, ours_s, {1: waits_s})
        return watch._cpu_share(before, after)

    everything = 100.0 * cores
    assert share(everything, ours_s=100.0, waits_s=0.0) == 0.0, "one thread, and all other cores are busy"
    assert share(everything, ours_s=50.0, waits_s=50.0) == pytest.approx(0.5, abs=0.01), "it had to share"
    assert share(everything, ours_s=everything, waits_s=500.0) == 0.0, "its own threads"
    assert share(everything, ours_s=0.0, waits_s=0.0) == pytest.approx(1.0, abs=0.01), "no core was left"


def test_what_others_do_is_null_where_it_can_not_be_measured() -> None:
    watch = disturbance.Disturbance(Place(), os.getpid())
    before, cores = disturbance.Counts(0.0, 0.0, 0.0, 0.0, {}), len(CORES)
    whole_host = disturbance.Counts(10.0, 30.0, 640.0 * cores, 5.0, {})
    assert watch._cpu_share(before, whole_host) is None, "the counts are those of other cores than ours"
    assert watch._cpu_share(before, disturbance.Counts(0.1, 0.1, 0.1 * cores, 0.1, {})) is None, "too short"
    assert watch._cpu_share(before, None) is None


PMON = """#!/bin/sh
echo "# gpu         pid   type     sm    mem    enc    dec    command"
echo "# Idx           #    C/G      %      %      %      %    name"
echo "    0     {ours}     C     60     10      -      -    python"
echo "    0     1     C     {sm}     10      -      -    python"
"""


@pytest.mark.parametrize(("sm", "expected"), [("30", 0.3), ("-", 0.0)])
def test_foreign_processes_on_its_gpu_disturb_a_timed_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sm: str, expected: float
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(PMON.format(ours=os.getpid(), sm=sm))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    watch = disturbance.Disturbance(Place(gpus=("GPU-1",), cores=(0,)), os.getpid())
    assert watch._foreign_on_gpus() == expected
    smi.write_text("#!/bin/sh\nexit 1\n")
    assert watch._foreign_on_gpus() is None


# Again.

COUNTED = """
import pathlib

def trial(config, trial):
    path = pathlib.Path(__file__).parent / f"ran-{config['n']}"
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return {"score": len(path.read_text())}
"""
SEARCH = {"method": "tpe", "trials": 5, "metric": "score", "direction": "maximize"}


@pytest.mark.parametrize("search", [{}, {"search": SEARCH}], ids=["grid", "tpe"])
def test_rerun_sets_records_aside_by_a_line_and_the_first_finished_after_it_counts(
    command: Cli, write_study: WriteStudy, tmp_path: Path, search: dict[str, Any]
) -> None:
    write_study({"name": "s", "workload": "work:trial", "space": {"n": [0, 1, 2, 3, 4]}, **search}, COUNTED)
    words = ["run", "study.json", "--out", "run", "--engine", "serial", "--quiet"]
    assert command(*words).returncode == 0
    before = {record["trial"]: record for record in Results.load(tmp_path / "run").records()}
    chosen = sorted(before)[1:3]
    assert command(*words, "--rerun", ",".join(map(str, chosen))).returncode == 0
    results = Results.load(tmp_path / "run")
    after = {record["trial"]: record for record in results.records()}
    assert before.keys() == after.keys()
    assert [trial for trial in sorted(after) if after[trial]["finished"] > before[trial]["finished"]] == chosen
    assert (results.duplicates, results.counts()["done"]) == (0, len(before))
    (line,) = lines(tmp_path / "run", "set_aside")
    assert {tuple(one) for one in line["records"]} == {(before[n]["key"], before[n]["finished"]) for n in chosen}
    old = {record["finished"] for record in lines(tmp_path / "run", "finished")}
    assert old == {record["finished"] for some in (before, after) for record in some.values()}, "old ones are kept"
    assert command(*words).returncode == 0
    assert len(lines(tmp_path / "run", "finished")) == len(before) + 2, "nothing runs a third time"


def test_a_rerun_that_was_interrupted_goes_on_without_being_asked_again(
    command: Cli, write_study: WriteStudy, tmp_path: Path
) -> None:
    write_study({"name": "s", "workload": "work:trial", "space": {"n": [0, 1, 2]}}, COUNTED)
    words = ["run", "study.json", "--out", "run", "--engine", "serial", "--quiet"]
    command(*words)
    journal = Journal(Results.load(tmp_path / "run").folder, new_owner())
    set_aside_again(journal, "0,2")
    journal.close()
    assert json.loads(command("status", "run", "--json").stdout)["done"] == 1
    assert command(*words).returncode == 0
    assert [record["scores"]["score"] for record in Results.load(tmp_path / "run").records()] == [2, 1, 2]


def test_rerun_disturbed_runs_again_what_decides_nothing(
    command: Cli, write_study: WriteStudy, tmp_path: Path
) -> None:
    study = {"name": "s", "workload": "work:trial", "space": {"n": [0, 1, 2]}, "purpose": "time"}
    write_study(study, COUNTED)
    words = ["run", "study.json", "--out", "run", "--engine", "serial", "--quiet"]
    command(*words)
    path = next((tmp_path / "run" / "journal").glob("*.jsonl"))
    found = [line for text in path.read_bytes().splitlines() if (line := decode(text))]
    shares = {0: 0.3, 1: 0.01, 2: None}
    for line in found:
        if line["kind"] == "finished":
            line["disturbed"] = shares[line["trial"]]
    strip = ("crc", "v", "kind")
    path.write_bytes(b"".join(encode(x["kind"], {k: v for k, v in x.items() if k not in strip}) for x in found))
    assert command(*words, "--rerun", "disturbed").returncode == 0
    records = list(Results.load(tmp_path / "run").records())
    assert [record["scores"]["score"] for record in records] == [2, 1, 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--rerun", "distrubed"],
            "--rerun distrubed: allowed: disturbed, changed, or numbers of trials such",
        ),
        (["--rerun", "7"], "trial 7 has no result to set aside"),
        (["--rerun", "1", "--fresh"], "--rerun 1: allowed: with --schedule dispatch, on a run that has results"),
    ],
)
def test_a_rerun_that_can_not_be_is_refused(
    command: Cli, write_study: WriteStudy, words: list[str], said: str
) -> None:
    write_study({"name": "s", "workload": "work:trial", "space": {"n": [0, 1, 2]}}, COUNTED)
    command("run", "study.json", "--out", "run", "--engine", "serial", "--quiet")
    answer = command("run", "study.json", "--out", "run", "--engine", "serial", "--quiet", *words)
    assert answer.returncode == 2
    assert said in answer.stderr
