"""Trials that misbehave: each ends as a correct record or a failed one with its cause, the others are untouched."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest
import torch
from conftest import TRADEWIND, Cli, WriteStudy

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


@pytest.mark.parametrize(
    ("engine", "trials"), [("processes", 24), ("serial", 4)]
)  # few: children that go on fork too
def test_every_trial_has_its_own_score_where_some_fork(
    engine: str, trials: int, cli: Cli, tmp_path: Path, write_study: WriteStudy
) -> None:
    study = {"name": "odd", "workload": "work.py:trial", "space": {"case": list(range(trials))}}
    write_study(study, FORKS)
    ran = cli("run", "study.json", "--out", "run", "--engine", engine, "--quiet", timeout=30)
    assert (ran.returncode, ran.stdout) == (0, "")
    records = list(tradewind.Results.load(tmp_path / "run").records())
    assert [(r["state"], r["scores"], r["last"]) for r in records] == [
        ("done", {"score": float(case)}, {}) for case in range(trials)
    ]


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


# A trial's leftovers do not reach the next one in its worker.

LEAVES = """
import gc, json, os, pathlib, random, signal, sys, threading, time, warnings
import numpy

def state():
    os.umask(mask := os.umask(0))
    torch = sys.modules.get("torch")
    return {
        "cwd": os.getcwd(), "umask": mask, "environment": [os.environ.get("LEFT"), os.environ.get("HOME")],
        "path": list(sys.path), "filters": str(warnings.filters), "term": str(signal.getsignal(signal.SIGTERM)),
        "alarm": str(signal.getsignal(signal.SIGALRM)), "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))), "err": numpy.geterr(),
        "streams": [bool(sys.stdin), bool(sys.stdout), bool(sys.stderr)], "gc": gc.isenabled(),
        "depth": sys.getrecursionlimit(),
        "torch": torch and [str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.get_num_threads()],
        "device": torch and str(torch.get_default_device()),
    }

def spoil():
    import torch
    torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False); torch.set_num_threads(3)
    torch.set_default_device("meta")
    os.chdir("/"); os.umask(0o077); os.environ["LEFT"] = "over"; os.environ.pop("HOME", None)
    sys.path.insert(0, "/nowhere"); warnings.simplefilter("error")
    signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGALRM, lambda *_: None); signal.alarm(100)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}); numpy.seterr(all="raise")
    gc.disable(); sys.setrecursionlimit(900)
    sys.stdin = sys.stdout = sys.stderr = None

def trial(config):
    with open(pathlib.Path(__file__).parent / "states", "a") as file:
        print(os.getpid(), json.dumps(state()), file=file)
    spoil()
    return 1.0
"""


@pytest.mark.parametrize("engine", ["processes", "serial"])
def test_what_a_trial_has_changed_is_as_it_was_for_the_next_one(
    engine: str, ran: Callable[..., dict[Any, Record]], tmp_path: Path
) -> None:
    before = os.getcwd(), dict(os.environ), signal.getsignal(signal.SIGALRM), sys.stdout
    records = ran(LEAVES, [1, 2, 3], engine)
    assert {case: record["error"] for case, record in records.items()} == {1: {}, 2: {}, 3: {}}
    assert (os.getcwd(), dict(os.environ), signal.getsignal(signal.SIGALRM), sys.stdout) == before
    by_worker: dict[str, list[dict[str, Any]]] = {}
    for line in (tmp_path / "states").read_text().splitlines():
        pid, _, found = line.partition(" ")
        by_worker.setdefault(pid, []).append(json.loads(found))
    assert sum(map(len, by_worker.values())) == 3
    for first, *others in by_worker.values():
        assert (first["environment"][0], first["timer"], first["streams"]) == (None, 0.0, [True, True, True])
        for other in others:
            assert (other["torch"][:2], other["device"]) == (["torch.float32", True], "cpu")
            assert other["torch"][2] != 3
            assert {**other, "torch": None, "device": None} == {**first, "torch": None, "device": None}


# A worker is replaced only where something of a trial lives on in it, and that ends with the trial.

LIVES_ON = """
import multiprocessing, os, socket, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()  # of an import
pools = []

def note(pid):
    with open(HERE / "pids", "a") as file:
        print(pid, file=file)

def sleeps_on():
    time.sleep(100)

def plain(): pass
def child(): note(subprocess.Popen(["env", "-i", "sleep", "100"]).pid)
def daemon():
    words = f"setsid sleep 100 > /dev/null 2>&1 & echo $! >> {HERE}/pids"
    subprocess.run(["env", "-i", "sh", "-c", words], check=True)
def forked():
    if (pid := os.fork()) == 0:
        time.sleep(100)
    note(pid)
def process():
    worker = multiprocessing.Process(target=sleeps_on, daemon=True)
    worker.start()
    note(worker.pid)
def thread(): threading.Thread(target=sleeps_on, daemon=True).start()
def timer(): threading.Timer(100, print).start()
def closes(): os.close(1)
def joins():
    worker = threading.Thread(target=print); worker.start(); worker.join()
    subprocess.run(["true"], check=True)
def thread_pool():
    pools.append(ThreadPoolExecutor(1)); pools[-1].submit(print).result()
def process_pool():
    pools.append(ProcessPoolExecutor(1)); pools[-1].submit(print).result()

def trial(config):
    with open(HERE / "workers", "a") as file:
        print(os.getpid(), config["case"], file=file)
    globals()[config["case"]]()
    return 1.0
"""
KEPT = ["joins", "thread_pool", "process_pool", "plain"]
REPLACED = ["child", "daemon", "forked", "process", "thread", "timer", "closes"]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_worker_is_replaced_where_something_of_its_trial_lives_on_and_that_is_ended(
    tmp_path: Path, write_study: WriteStudy
) -> None:
    cases = [*KEPT, *REPLACED, "plain"]
    study = {"name": "odd", "workload": "work.py:trial", "space": {"n": list(range(len(cases)))}, "repeats": 1}
    module = LIVES_ON.replace('config["case"]', f'{cases}[config["n"]]')
    results = tradewind.run(write_study(study, module), tmp_path / "run", engine="processes", workers=1)
    assert results.counts()["done"] == len(cases)
    workers = [line.split()[0] for line in (tmp_path / "workers").read_text().splitlines()]
    assert len(set(workers[: len(KEPT) + 1])) == 1
    assert len(set(workers[len(KEPT) :])) == len(REPLACED) + 1
    left = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(left) == 4
    assert not any(map(alive, left))


def test_what_a_trial_left_behind_is_ended_with_it_though_its_worker_is_killed(
    ran: Callable[..., dict[Any, Record]], tmp_path: Path
) -> None:
    died = '    if config["case"] == "daemon":\n        os.kill(os.getpid(), 9)\n    return 1.0'
    module = LIVES_ON.replace("    return 1.0", died)
    records = ran(module, ["daemon", "plain"])
    assert records["daemon"]["error"]["signal"] == "SIGKILL"
    assert records["plain"]["state"] == "done"
    assert not alive(int((tmp_path / "pids").read_text()))


# Every trial draws the same numbers, whatever ran before it.

DRAWS = """
import random

def trial(config):
    import numpy, torch
    return {"python": random.random(), "numpy": numpy.random.random(), "torch": torch.rand(1).item()}
"""


@pytest.mark.parametrize("engine", ["processes", "serial"])
def test_a_function_draws_the_same_numbers_for_the_same_seed(
    engine: str, tmp_path: Path, write_study: WriteStudy
) -> None:
    study = {"name": "draws", "workload": "work.py:trial", "space": {"case": [1, 2]}, "repeats": 2, "seed": 5}
    random.seed(11)
    state = random.getstate()
    results = tradewind.run(write_study(study, DRAWS), tmp_path / "run", engine=engine, workers=1)
    assert random.getstate() == state or engine == "processes"
    for record in results.records():
        seed = 5 + record["repeat"]
        assert record["scores"] == {
            "python": random.Random(seed).random(),
            "numpy": numpy.random.RandomState(seed).random_sample(),
            "torch": torch.rand(1, generator=torch.Generator().manual_seed(seed)).item(),
        }


def test_libraries_are_not_loaded_to_be_seeded(ran: Callable[..., dict[Any, Record]]) -> None:
    module = "import sys\n\ndef trial(config):\n    return len({'numpy', 'torch'} & set(sys.modules))\n"
    assert ran(module, [1, 2])[2]["scores"] == {"score": 0.0}


# The suite: everything that has gone wrong somewhere, by the command line.

ODD = """
import json, os, signal, sys, threading, time

def plain(): return 0.25
def forks_and_returns():
    os.fork()
    return 0.25
def forks_and_exits():
    if os.fork() == 0:
        sys.exit("the child")
    return 0.25
def closes_all(): os.closerange(0, 4096)
def closes_all_and_stays():
    os.closerange(0, 4096)
    time.sleep(100)
def closes_output():
    os.closerange(0, 3)
    return 0.25
def takes_its_number():
    os.closerange(3, 4096)
    for number in range(8):
        open(__file__)
    return 0.25
def no_stdout():
    sys.stdout = sys.stderr = None
    return 0.25
def shuts_stdout():
    sys.stdout.close()
    sys.stderr.close()
    return 0.25
def leaves(): os._exit(0)
def alarm():
    signal.alarm(1)
    time.sleep(100)
def late_alarm():
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return 0.25
def raises_by_alarm():
    def ring(*_):
        raise RuntimeError("rang")
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    time.sleep(100)
def endless_threads():
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(1000,)).start()
    return 0.25
def late_reports(trial):
    def report():
        for epoch in range(1, 10**6):
            trial.report(epoch, loss=-1.0)
    threading.Thread(target=report, daemon=True).start()
    return 0.25
def nan(): return float("nan")
def infinite(): return {"score": 0.25, "other": float("inf")}
def huge(): return 10**400
def huge_text(): return "x" * 10**7
def many_scores(): return {"score": 0.25, **{f"s{k}": k for k in range(5000)}}
def much_output():
    for _ in range(64):
        os.write(1, b"x" * 2**20)
    return 0.25
def moves():
    os.chdir("/")
    return 0.25
def removes_folder():
    import shutil
    shutil.rmtree(trial_folder)
    return 0.25

def trial(config, trial):
    global trial_folder
    trial_folder = trial.folder
    kind = globals()[config["case"].rstrip("0123456789")]
    time.sleep(0.05)
    return kind(trial) if kind is late_reports else kind()
"""
DONE = [
    "forks_and_returns", "forks_and_exits", "closes_output", "no_stdout", "shuts_stdout", "late_alarm",
    "endless_threads", "late_reports", "infinite", "many_scores", "much_output", "moves", "removes_folder",
]  # fmt: skip
CLOSED = "the trial closed descriptors that it had not opened, the worker's socket among them"
FAILED = {
    "closes_all": CLOSED,
    "closes_all_and_stays": CLOSED,
    "takes_its_number": CLOSED,
    "leaves": "the worker ended with exit code 0",
    "alarm": "the worker died of SIGALRM",
    "raises_by_alarm": "RuntimeError: rang",
    "huge": "TradewindError: the function returned 1000",
    "huge_text": "TradewindError: the function returned 'xxx",
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str], dict[str, Record]]:
    """One run of all cases, each followed by a plain one, on two workers."""
    folder = tmp_path_factory.mktemp("odd")
    odd = [*DONE, "nan", *FAILED]
    cases = [case for k, one in enumerate(odd) for case in (f"plain{k}", one)]
    (folder / "work.py").write_text(ODD)
    study = {"name": "odd", "workload": "work:trial", "space": {"case": cases}}
    (folder / "study.json").write_text(json.dumps(study))
    command = [str(TRADEWIND), "run", "study.json", "--out", "run", "--workers", "2", "--quiet"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    records = tradewind.Results.load(folder / "run").records()
    return folder, ended, {record["config"]["case"]: record for record in records}


def test_the_trials_beside_those_that_misbehave_are_done(odd: Any) -> None:
    _, ended, records = odd
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    plain = {case: record for case, record in records.items() if case.startswith("plain")}
    assert len(plain) == len(DONE) + 1 + len(FAILED)
    assert {(r["state"], r["attempt"], r["scores"]["score"]) for r in plain.values()} == {("done", 1, 0.25)}
    assert all(record["last"] == {} for record in plain.values())


@pytest.mark.parametrize("case", DONE)
def test_a_trial_that_misbehaves_and_returns_has_its_score(case: str, odd: Any) -> None:
    record = odd[2][case]
    assert (record["state"], record["error"], record["scores"]["score"]) == ("done", {}, 0.25)


@pytest.mark.parametrize("case", FAILED)
def test_a_trial_that_ends_badly_has_failed_with_its_cause(case: str, odd: Any) -> None:
    record = odd[2][case]
    assert (record["state"], record["error"]["what"][: len(FAILED[case])]) == ("failed", FAILED[case])
    assert record["scores"] == {}


def test_a_score_that_is_not_a_number_is_kept_as_none_and_never_best(odd: Any) -> None:
    folder, _, records = odd
    assert (records["nan"]["state"], records["nan"]["scores"]) == ("done", {"score": None})
    assert records["infinite"]["scores"]["other"] is None
    assert tradewind.Results.load(folder / "run").best().value == 0.25


RESETS = """
import statistics, sys, time
for name in sys.argv[1:]:
    __import__(name)
from tradewind.engine.isolation import Isolation
from tradewind.engine.leftovers import Leftovers
isolation, leftovers, took = Isolation(), Leftovers([0, 1, 2]), []
for _ in range(500):
    began = time.thread_time()
    isolation.seed(5), isolation.restore(), leftovers.found()
    took.append(time.thread_time() - began)
print(statistics.median(took))
"""


@pytest.mark.parametrize(("libraries", "most_s"), [([], 1e-4), (["numpy.random", "torch"], 2.5e-4)])
def test_seeding_and_resetting_take_their_share_of_the_overhead_at_most(libraries: list[str], most_s: float) -> None:
    ran = subprocess.run([sys.executable, "-c", RESETS, *libraries], capture_output=True, text=True, check=True)
    assert 0 < float(ran.stdout) < most_s
