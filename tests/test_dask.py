"""Other people's executors as engines: Dask by the command line, and any concurrent.futures executor."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from conftest import Cli, WriteStudy
from test_engines import ACCOUNT, by_case, executions

import tradewind
from tradewind.engine import TRAINER, Ended
from tradewind.engine.executor import Pooled
from tradewind.errors import Mistake
from tradewind.folder import RunFolder
from tradewind.journal import new_owner
from tradewind.pack import Pack
from tradewind.schedule.trials import Trials
from tradewind.study import Study

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="no Dask; install it with: pip install distributed"
)

ANOTHER_HOST = os.geteuid() == 0 and shutil.which("unshare") is not None and shutil.which("hostname") is not None

MODULE = (
    ACCOUNT
    + """
def trial(config, trial):
    note(config["case"], os.getpid(), os.getppid(), os.environ.get("OMP_NUM_THREADS"))
    print("said by", config["case"])
    if config["case"] == "raises":
        raise RuntimeError("on purpose")
    if config["case"] == "dies":
        os._exit(7)
    time.sleep(0.05)
    return len(config["case"])
"""
)
CASES = ["a", "bb", "ccc", "raises", "dddd", "eeeee"]
STUDY = {"name": "elsewhere", "workload": "work.py:trial", "space": {"case": CASES}}


def assert_all_ended(run: Path, host: str) -> None:
    records = by_case(run)
    assert {case: record["state"] for case, record in records.items()} == {
        case: "failed" if case == "raises" else "done" for case in CASES
    }
    assert {case: record["scores"].get("score") for case, record in records.items() if case != "raises"} == {
        case: float(len(case)) for case in CASES if case != "raises"
    }
    assert records["raises"]["error"]["what"] == "RuntimeError: on purpose"
    assert 'raise RuntimeError("on purpose")' in records["raises"]["error"]["traceback"]
    for case, record in records.items():
        log = record["log"]
        text = (RunFolder(run).logs / log["file"]).read_bytes()[log["from"] : log["to"]].decode()
        assert text.startswith(f"said by {case}\n")
        assert 0 < record["finished"] - record["started"] < 10
        assert record["host"] == host
        facts = json.loads((RunFolder(run).machines / f"{record['machine']}.json").read_text())
        assert facts["host"] == host


@needs_dask
def test_a_run_on_a_cluster_of_its_own_ends_with_it(cli: Cli, write_study: WriteStudy, tmp_path: Path) -> None:
    write_study(STUDY, MODULE)
    answer = cli("run", "study.json", "--out", "run", "--engine", "dask", "--workers", 2)
    assert (answer.returncode, answer.stdout.splitlines()[0]) == (1, "5 done, 1 failed"), answer.stderr
    assert "Traceback" not in answer.stderr
    assert_all_ended(tmp_path / "run", os.uname().nodename)
    ran = [line.split() for line in executions(tmp_path)]
    assert sorted(case for case, *_ in ran) == sorted(CASES)
    assert not any(Path(f"/proc/{pid}").exists() for _, pid, _, _ in ran)
    again = cli("run", "study.json", "--out", "run", "--engine", "dask", "--workers", 2)
    assert again.returncode == 1
    assert len(executions(tmp_path)) == len(CASES)


FORKS = """
import os

def trial(config):
    if config["n"] % 2 and os.fork() == 0:
        return -1.0
    return config["n"]
"""


@needs_dask
def test_a_child_that_a_trial_forks_does_not_answer_for_its_worker(
    cli: Cli, write_study: WriteStudy, tmp_path: Path
) -> None:
    study = {"name": "forks", "workload": "work.py:trial", "space": {"n": list(range(8))}}
    write_study(study, FORKS)
    answer = cli("run", "study.json", "--out", "run", "--engine", "dask", "--workers", 2, "--quiet")
    assert answer.returncode == 0, answer.stderr
    records = tradewind.Results.load(tmp_path / "run").records()
    assert [(r["state"], r["scores"]) for r in records] == [("done", {"score": float(n)}) for n in range(8)]


def elsewhere() -> list[str]:
    """What starts a program on a host of another name, where that can be."""
    return ["unshare", "--uts", "sh", "-c", 'hostname far-away; exec "$@"', "sh"] if ANOTHER_HOST else []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A scheduler and a worker as a site would run them, with two threads as is the default on two cores."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    folder = tmp_path / "site"
    folder.mkdir()
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"],
        ["worker", address, "--nworkers", "1", "--nthreads", "2", "--no-dashboard", "--local-directory", str(folder)],
    ]
    with open(folder / "log", "wb") as log:
        started = [
            subprocess.Popen(
                [*host, str(BIN / "dask"), *words], cwd=folder, stdout=log, stderr=log, start_new_session=True
            )
            for host, words in zip(([], elsewhere()), commands, strict=True)
        ]
    try:
        deadline = time.monotonic() + 40
        while "Registered to" not in (folder / "log").read_text(errors="replace"):
            assert time.monotonic() < deadline, (folder / "log").read_text(errors="replace")
            time.sleep(0.1)
        yield address
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@needs_dask
def test_a_cluster_that_is_there_is_used_and_left_running(
    cli: Cli, write_study: WriteStudy, tmp_path: Path, cluster: str
) -> None:
    write_study(STUDY, MODULE)
    environment = {"DASK_SCHEDULER_ADDRESS": cluster}
    answer = cli("run", "study.json", "--out", "run", "--engine", "dask", env=environment)
    assert answer.returncode == 1, answer.stderr
    host = "far-away" if ANOTHER_HOST else os.uname().nodename
    assert_all_ended(tmp_path / "run", host)
    workers = {line.split()[1] for line in executions(tmp_path)}
    assert len(workers) == 1
    assert Path(f"/proc/{workers.pop()}").exists()
    write_study({**STUDY, "name": "second"}, MODULE)
    answer = cli("run", "study.json", "--out", "second", "--engine", "dask", env=environment)
    assert answer.returncode == 1, answer.stderr
    assert_all_ended(tmp_path / "second", host)
    assert sorted(line.split()[0] for line in executions(tmp_path)) == sorted(CASES * 2)


@needs_dask
def test_a_scheduler_that_is_not_there_is_one_line(cli: Cli, write_study: WriteStudy) -> None:
    write_study(STUDY, MODULE)
    environment = {"DASK_SCHEDULER_ADDRESS": "tcp://127.0.0.1:1", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}
    answer = cli("run", "study.json", "--engine", "dask", env=environment)
    assert answer.returncode == 2, answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert "tcp://127.0.0.1:1" in answer.stderr


@needs_dask
def test_a_trial_that_kills_its_dask_worker_has_failed_and_the_others_end(
    cli: Cli, write_study: WriteStudy, tmp_path: Path
) -> None:
    write_study({**STUDY, "space": {"case": ["a", "dies", "bb"]}}, MODULE)
    answer = cli("run", "study.json", "--out", "run", "--engine", "dask", "--workers", 1)
    records = by_case(tmp_path / "run")
    assert {case: record["state"] for case, record in records.items()} == {
        "a": "done",
        "dies": "failed",
        "bb": "done",
    }
    assert answer.returncode == 1
    assert records["dies"]["started"] > time.time() - 120, "a record says when it ran"
    assert sorted(line.split()[0] for line in executions(tmp_path)) == ["a", "bb", "dies"], "a try is one try"


@needs_dask
def test_what_dask_can_not_do_it_says(command: Cli, write_study: WriteStudy) -> None:
    write_study({**STUDY, "stop": {"timeout_s": 5}}, MODULE)
    answer = command("run", "study.json", "--engine", "dask", "--workers", 1)
    assert (answer.returncode, answer.stderr) == (
        2,
        "tradewind: stop.timeout_s: this engine can't end a trial by force; take --engine processes or mpi, "
        "or leave the timeout out\n",
    )
    answer = command("run", "study.json", "--engine", "dask", "--schedule", "synchronous", "--rank", 0, "--of", 2)
    assert (answer.returncode, answer.stderr) == (
        2,
        "tradewind: --engine dask hands work out by nature; --schedule synchronous needs mpi or processes\n",
    )


# Any executor.


@pytest.fixture(params=["processes", "thread", "threads"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    pool: Executor = (
        ThreadPoolExecutor(1 if request.param == "thread" else 2)
        if request.param != "processes"
        else ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    )
    with pool:
        yield pool


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module of a trial is forgotten, so that the next test has its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name == "work" or name.endswith(".work")]:
        del sys.modules[name]


def pooled(executor: Executor, workers: int, study: Path, run: Path) -> tuple[Pooled, Trials, RunFolder]:
    folder = RunFolder.create(run)
    trials = Trials(Study.load(study))
    task = trials.task(str(folder.path.resolve()), 1)
    return Pooled(executor, workers, TRAINER, task, folder.logs, new_owner()), trials, folder


@pytest.mark.usefixtures("importable")
def test_any_executor_serves_single_trials(executor: Executor, write_study: WriteStudy, tmp_path: Path) -> None:
    count = executor._max_workers  # type: ignore[attr-defined]
    engine, trials, folder = pooled(executor, count, write_study(STUDY, MODULE), tmp_path / "run")
    left = [trials[position] for position in range(6)]
    ended: list[Ended] = []
    deadline = time.monotonic() + 60
    while len(ended) < 6:
        assert time.monotonic() < deadline
        while left and engine.free():
            assert engine.submit(Pack((left.pop(0),))) in range(count)
        assert engine.free() >= 0
        ended += [event for event in engine.poll(1.0) if isinstance(event, Ended)]
    assert engine.free() == count
    assert engine.poll(0.0) == []
    found = {event.pack.trials[0].config["case"]: event for event in ended}
    assert {case: event.outcomes[0].state for case, event in found.items()} == {
        case: "failed" if case == "raises" else "done" for case in CASES
    }
    assert found["ccc"].outcomes[0].scores == {"score": 3.0}
    for case, event in found.items():
        text = (folder.logs / event.log["file"]).read_bytes()[event.log["from"] : event.log["to"]].decode()
        assert text.startswith(f"said by {case}\n")
    engine.close()


def test_an_executor_gives_a_trial_one_worker_and_no_timeout(write_study: WriteStudy, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        engine, trials, _ = pooled(executor, 1, write_study(STUDY, MODULE), tmp_path / "run")
        with pytest.raises(Mistake, match="a trial on 2 devices: this engine gives a trial one worker"):
            engine.submit(Pack((trials[0],)), slots=2)
        limited = write_study({**STUDY, "stop": {"timeout_s": 3}}, MODULE)
        with pytest.raises(Mistake, match=r"stop\.timeout_s: this engine can't end a trial by force"):
            pooled(executor, 1, limited, tmp_path / "run")


def test_a_worker_process_that_dies_costs_no_more_than_what_ran(write_study: WriteStudy, tmp_path: Path) -> None:
    study = write_study({**STUDY, "space": {"case": ["dies"]}}, MODULE)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        engine, trials, _ = pooled(executor, 1, study, tmp_path / "run")
        engine.submit(Pack((trials[0],)))
        events = engine.poll(60.0)
        assert len(events) == 1
        assert isinstance(events[0], Ended)
        assert events[0].outcomes[0].state == "failed"
        assert events[0].outcomes[0].reason.startswith("BrokenProcessPool")
        engine.close()
