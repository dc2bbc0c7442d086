"""Engines: one contract for `serial` and `processes`, then what only processes of their own can promise."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import tradewind
from tradewind.machine import cores

ENGINES = ("serial", "processes")
TRADEWIND = Path(sys.executable).parent / "tradewind"
MARK = "TRADEWIND_TEST_MARK"
TIMEOUT_S = 1.5

Record = dict[str, Any]
Write = Callable[..., Path]
Cli = Callable[..., subprocess.CompletedProcess[str]]

# Every module of these tests keeps account of its executions in a file beside it.
ACCOUNT = """
import os, pathlib, sys, time

def note(*words):
    text = " ".join(map(str, words)) + "\\n"
    handle = os.open(pathlib.Path(__file__).parent / "executions", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(handle, text.encode())
    os.close(handle)
"""


@dataclass
class Finished:
    """A run that has ended: how it ended, and the record of every case."""

    folder: Path
    run: Path
    code: int
    stderr: str
    records: dict[str, Record]
    seconds: float
    mark: str

    def executions(self) -> list[str]:
        """What the trials noted, in order."""
        return executions(self.folder)


def executions(folder: Path) -> list[str]:
    path = folder / "executions"
    return path.read_text().splitlines() if path.exists() else []


def by_case(run: Path) -> dict[str, Record]:
    return {record["config"]["case"]: record for record in tradewind.Results.load(run).records()}


def run_cases(folder: Path, study: dict[str, Any], module: str, *options: object) -> Finished:
    """Run a study over `case` by the command line, with something at its standard input."""
    (folder / "work.py").write_text(ACCOUNT + module)
    (folder / "study.json").write_text(json.dumps(study))
    mark, began = uuid.uuid4().hex, time.monotonic()
    command = [str(TRADEWIND), "run", "study.json", "--out", "run", *map(str, options)]
    with open(folder / "stderr", "wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    assert process.stdin is not None
    try:
        process.stdin.write(b"for the user alone\n")
        process.stdin.flush()  # and not closed: whoever reads to its end would wait
        code = process.wait(timeout=40)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
    seconds = time.monotonic() - began
    stderr = (folder / "stderr").read_text(errors="replace")
    return Finished(folder, folder / "run", code, stderr, by_case(folder / "run"), seconds, mark)


def living(mark: str) -> list[psutil.Process]:
    """The processes that have inherited a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def none_left(mark: str, within_s: float = 2.0) -> bool:
    """Whether all processes with a mark end in time."""
    deadline = time.monotonic() + within_s
    while found := living(mark):
        if time.monotonic() > deadline:
            for process in found:
                process.kill()
            return False
        time.sleep(0.05)
    return True


# The contract of every engine.

CONTRACT = """
def trial(config, trial):
    case = config["case"]
    note(case, trial.attempt)
    return globals()[case](trial)

def returns(trial):
    return 0.5

def names(trial):
    return {"auc": 0.75, "brier": 0.125}

def prints(trial):
    print("a line of mine")
    print("a line to stderr", file=sys.stderr)

def raises(trial):
    print("before the fall")
    return {}["no such key"]

def quits(trial):
    sys.exit(3)

def answers_nonsense(trial):
    return "a string"

def sleeps(trial):
    time.sleep(30)

def sleeps_on(trial):
    try:
        time.sleep(4)
    except Exception:
        pass
    return 1.0

def descends(trial, down=1.0):
    for epoch in range(1, 100):
        trial.report(epoch, validation_loss=1.0 / epoch**down)
        if trial.should_stop():
            break
    return epoch

def stands_still(trial):
    return descends(trial, 0.0)

def explodes(trial):
    trial.report(1, validation_loss=1.0)
    assert not trial.should_stop()
    trial.report(2, validation_loss=float("inf"))
    assert trial.should_stop()

def returns_last(trial):
    return 0.25
"""
CASES = [
    "returns",
    "names",
    "prints",
    "raises",
    "quits",
    "answers_nonsense",
    "sleeps",
    "sleeps_on",
    "descends",
    "stands_still",
    "explodes",
    "returns_last",
]


@pytest.fixture(scope="module", params=ENGINES)
def contract(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run of all cases with each engine."""
    study = {
        "name": "contract",
        "workload": "work:trial",
        "space": {"case": CASES},
        "stop": {"timeout_s": TIMEOUT_S, "max_epochs": 6, "target": {"validation_loss": 0.25}},
    }
    return run_cases(tmp_path_factory.mktemp(request.param), study, CONTRACT, "--engine", request.param)


def test_every_trial_runs_once_and_leaves_one_record(contract: Finished) -> None:
    assert sorted(contract.executions()) == sorted(f"{case} 1" for case in CASES)
    assert sorted(contract.records) == sorted(CASES)
    assert [contract.records[case]["trial"] for case in CASES] == list(range(len(CASES)))


def test_a_run_with_failures_goes_to_its_end_and_exits_with_1(contract: Finished) -> None:
    assert contract.code == 1
    assert {case for case in CASES if contract.records[case]["state"] == "failed"} == {
        "raises",
        "quits",
        "answers_nonsense",
        "sleeps",
        "sleeps_on",
    }
    assert contract.records["returns_last"]["scores"] == {"score": 0.25}


def test_a_number_is_the_score_and_a_dict_is_taken_by_name(contract: Finished) -> None:
    assert contract.records["returns"]["scores"] == {"score": 0.5}
    assert contract.records["names"]["scores"] == {"auc": 0.75, "brier": 0.125}
    assert contract.records["prints"]["scores"] == {}
    assert contract.records["returns"]["state"] == "done"
    assert contract.records["returns"]["error"] == {}


def test_a_trial_that_raises_leaves_its_error_and_traceback(contract: Finished) -> None:
    record = contract.records["raises"]
    assert record["reason"] == record["error"]["what"] == "KeyError: 'no such key'"
    assert 'return {}["no such key"]' in record["error"]["traceback"]
    assert "work.py" in record["error"]["traceback"]


def test_a_trial_that_exits_has_failed(contract: Finished) -> None:
    assert contract.records["quits"]["state"] == "failed"
    assert "3" in contract.records["quits"]["error"]["what"]


def test_an_answer_that_is_no_number_has_failed(contract: Finished) -> None:
    assert "'a string'; allowed: a number or a dict" in contract.records["answers_nonsense"]["error"]["what"]


@pytest.mark.parametrize("case", ["sleeps", "sleeps_on"])
def test_a_timeout_is_a_failure_that_names_it(contract: Finished, case: str) -> None:
    record = contract.records[case]
    assert record["state"] == "failed"
    assert record["error"]["what"] == f"timeout: ran longer than {TIMEOUT_S} s"
    assert record["finished"] - record["started"] < TIMEOUT_S + 1.5


def test_output_is_in_the_log_and_show_prints_it(contract: Finished, cli: Cli) -> None:
    shown = cli("show", contract.run, CASES.index("prints")).stdout
    assert "a line of mine" in shown
    assert "a line to stderr" in shown
    assert "before the fall" not in shown
    shown = cli("show", contract.run, CASES.index("raises")).stdout
    assert "before the fall" in shown
    assert "KeyError: 'no such key'" in shown


def test_a_trial_that_reaches_its_target_is_done_and_knows_when(contract: Finished) -> None:
    record = contract.records["descends"]
    assert (record["state"], record["reason"]) == ("done", "target reached")
    assert record["scores"] == {"score": 4.0}
    assert record["last"] == {"validation_loss": 0.25}
    assert record["epochs_run"] == 4
    curve = tradewind.Results.load(contract.run).curve(record["key"])
    assert [(row["epoch"], row["validation_loss"]) for row in curve] == [(k, 1.0 / k) for k in (1, 2, 3, 4)]
    assert record["times"]["time_to_target_s"] == curve[3]["elapsed_s"]
    assert 0 < curve[0]["elapsed_s"] <= curve[3]["elapsed_s"] <= record["times"]["wall_s"]


def test_a_trial_that_misses_its_target_stops_after_max_epochs(contract: Finished) -> None:
    record = contract.records["stands_still"]
    assert (record["state"], record["epochs_run"]) == ("stopped", 6)
    assert "max_epochs 6" in record["reason"]
    assert "time_to_target_s" not in record["times"]


def test_a_loss_that_is_not_finite_stops_a_trial(contract: Finished) -> None:
    record = contract.records["explodes"]
    assert (record["state"], record["reason"]) == ("stopped", "loss not finite in epoch 2")


def test_records_say_where_and_when(contract: Finished) -> None:
    for record in contract.records.values():
        assert record["host"] == os.uname().nodename
        assert record["purpose"] == "tune"
        assert record["code"].startswith(f"{tradewind.__version__}+")
        assert 0 <= record["finished"] - record["started"] < 10


def test_no_process_outlives_a_run(contract: Finished) -> None:
    assert none_left(contract.mark)


RETRIES = """
def trial(config, trial):
    note(config["case"], trial.attempt)
    memory = trial.folder / "tries"
    tries = len(memory.read_text()) if memory.exists() else 0
    memory.write_text("x" * (tries + 1))
    if tries < config["case"]:
        raise RuntimeError(f"try {tries + 1}")
    return tries
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failed_trial_is_tried_again_within_its_retries(engine: str, tmp_path: Path, write_study: Write) -> None:
    study = {"name": "retries", "workload": "work.py:trial", "space": {"case": [0, 1, 2, 5]}, "retries": 2}
    results = tradewind.run(write_study(study, ACCOUNT + RETRIES), tmp_path / "run", engine=engine, workers=1)
    records = by_case(tmp_path / "run")
    assert {case: (r["state"], r["attempt"]) for case, r in records.items()} == {
        0: ("done", 1),
        1: ("done", 2),
        2: ("done", 3),
        5: ("failed", 3),
    }
    assert records[2]["scores"] == {"score": 2.0}
    assert records[5]["error"]["what"] == "RuntimeError: try 3"
    assert sorted(executions(tmp_path)) == ["0 1", "1 1", "1 2", "2 1", "2 2", "2 3", "5 1", "5 2", "5 3"]
    assert results.counts() == {"done": 3, "pruned": 0, "stopped": 0, "failed": 1}


MENDED = """
def trial(config):
    note(config["case"])
    if config["case"] == "breaks" and not (pathlib.Path(__file__).parent / "mended").exists():
        raise RuntimeError("not yet")
    return 1.0
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_failed_trials_run_again_only_when_asked(engine: str, tmp_path: Path, write_study: Write) -> None:
    study = {"name": "again", "workload": "work.py:trial", "space": {"case": ["works", "breaks"]}}
    path = write_study(study, ACCOUNT + MENDED)
    once = {"works", "breaks"}
    for retry_failed, expected in ((False, sorted(once)), (False, sorted(once)), (True, ["breaks", *sorted(once)])):
        results = tradewind.run(path, tmp_path / "run", engine=engine, workers=1, retry_failed=retry_failed)
        assert sorted(executions(tmp_path)) == expected
        assert results.counts() == {"done": 1, "pruned": 0, "stopped": 0, "failed": 1}
    assert by_case(tmp_path / "run")["breaks"]["attempt"] == 2
    (tmp_path / "mended").touch()
    results = tradewind.run(path, tmp_path / "run", engine=engine, workers=1, retry_failed=True)
    assert results.counts() == {"done": 2, "pruned": 0, "stopped": 0, "failed": 0}
    assert by_case(tmp_path / "run")["breaks"]["attempt"] == 3
    assert executions(tmp_path).count("works") == 1


def test_two_jobs_that_both_retry_what_fails_again_both_end(tmp_path: Path, write_study: Write) -> None:
    study = {"name": "again", "workload": "work.py:trial", "space": {"case": ["breaks"], "n": list(range(6))}}
    path = write_study(study, ACCOUNT + MENDED.replace("return 1.0", "").replace("note", "time.sleep(0.2); note"))
    tradewind.run(path, tmp_path / "run", engine="serial")
    command = [str(TRADEWIND), "run", str(path), "--out", str(tmp_path / "run"), "--retry-failed", "--quiet"]
    jobs = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    try:
        for job in jobs:
            _, errors = job.communicate(timeout=12)
            assert job.returncode == 1
            assert [line.partition(b"; ")[0] for line in errors.splitlines()] == [
                b"tradewind: 6 of 6 trials failed: RuntimeError: not yet"
            ]
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    assert executions(tmp_path).count("breaks") == 12


# Commands.

PROGRAM = """
import json, os, signal, sys
case, value, scores = sys.argv[1:]
print("started", case)
if case == "prints":
    print(json.dumps({"score": 0.25}))
    print("  " + json.dumps({"score": 0.75, "length": len(value)}))
    print("all is well")
elif case == "writes":
    print(json.dumps({"score": 0.25}))
    with open(scores, "w") as file:
        json.dump({"score": 0.5, "auc": 0.875}, file)
elif case == "exits":
    print("no luck", file=sys.stderr)
    sys.exit(4)
elif case == "dies":
    os.kill(os.getpid(), signal.SIGTERM)
elif case == "garbles":
    print("{not json")
elif case == "reads":
    print(json.dumps({"length": len(sys.stdin.read())}))
"""
VALUE = "two words; $(touch pwned) 'quoted' {brace} *"
COMMAND_CASES = ["prints", "writes", "exits", "dies", "says_nothing", "garbles", "reads"]


@pytest.fixture(scope="module", params=ENGINES)
def commands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run of a command over all its cases."""
    folder = tmp_path_factory.mktemp(f"commands-{request.param}")
    (folder / "train.py").write_text(PROGRAM)
    study = {
        "name": "commands",
        "command": "{python} -S train.py {case} {value} {scores}",
        "space": {"case": COMMAND_CASES},
        "fixed": {"python": sys.executable, "value": VALUE},
    }
    return run_cases(folder, study, "", "--engine", request.param)


def test_the_scores_of_a_command_are_its_last_json_line_or_its_file(commands: Finished) -> None:
    assert commands.records["prints"]["scores"]["score"] == 0.75
    assert commands.records["writes"]["scores"] == {"score": 0.5, "auc": 0.875}
    assert commands.code == 1


def test_a_value_reaches_a_command_as_it_is_and_no_shell_sees_it(commands: Finished) -> None:
    assert commands.records["prints"]["scores"]["length"] == len(VALUE)
    assert not list(commands.folder.rglob("pwned"))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("exits", "exit code 4"),
        ("dies", "signal 15"),
        ("says_nothing", "left no scores"),
        ("garbles", "is not JSON"),
    ],
)
def test_a_command_that_leaves_no_result_has_failed(commands: Finished, case: str, words: str) -> None:
    assert commands.records[case]["state"] == "failed"
    assert words in commands.records[case]["error"]["what"]


def test_what_a_command_prints_is_in_its_log(commands: Finished, cli: Cli) -> None:
    shown = cli("show", commands.run, COMMAND_CASES.index("exits")).stdout
    assert "started exits" in shown
    assert "no luck" in shown


def test_a_command_gets_nothing_from_the_users_standard_input(commands: Finished) -> None:
    assert commands.records["reads"]["scores"] == {"length": 0.0}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_command_that_can_not_be_started_is_a_failed_record(
    engine: str, tmp_path: Path, write_study: Write
) -> None:
    study = {"name": "none", "command": "no-such-program {case}", "space": {"case": [1, 2]}}
    tradewind.run(write_study(study), tmp_path / "run", engine=engine, workers=1)
    what = "TradewindError: the command can't be started: no-such-program: No such file or directory"
    assert [record["error"]["what"] for record in by_case(tmp_path / "run").values()] == [what, what]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_command_that_overruns_is_ended_before_the_next_trial(
    engine: str, tmp_path: Path, write_study: Write
) -> None:
    program = tmp_path / "train.py"
    program.write_text("import sys, time; time.sleep(6 if sys.argv[1] == 'slow' else 0); print('{}')")
    command = f"{sys.executable} -S {program} {{case}}"
    study = {"name": "slow", "command": command, "space": {"case": ["slow", "fast"]}, "stop": {"timeout_s": 1}}
    began = time.monotonic()
    tradewind.run(write_study(study), tmp_path / "run", engine=engine, workers=1)
    assert time.monotonic() - began < 5
    assert by_case(tmp_path / "run")["slow"]["error"]["what"] == "timeout: ran longer than 1 s"
    assert by_case(tmp_path / "run")["fast"]["state"] == "done"
    assert [p for p in psutil.process_iter(["cmdline"]) if str(program) in (p.info["cmdline"] or [])] == []


# What only processes of their own can promise: whatever a trial does, it is one failed record.

DEATHS = """
import ctypes, itertools, resource, signal

def trial(config, trial):
    case = config["case"]
    note(case, os.getpid())
    print("last words of", case)
    kind = case.rstrip("0123456789")
    return globals()[kind]()

def lives():
    return os.getpid()

def segfault():
    ctypes.string_at(0)

def illegal():
    os.kill(os.getpid(), signal.SIGILL)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def realtime():
    os.kill(os.getpid(), signal.SIGRTMIN + 6)

def leaves():
    os._exit(3)

def hungry():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**31, hard))
    try:
        return len(bytearray(2**33))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

def spins():
    sum(itertools.repeat(1))  # never comes back to the interpreter

def deaf():
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(30)

def forks():
    if os.fork() == 0:
        time.sleep(8)  # with the worker's pipe still open
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)

def listens():
    return len(sys.stdin.read())

def looks():
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    return {name: int(os.environ[name]) for name in names}
"""
SIGNALS = {"segfault": "SIGSEGV", "illegal": "SIGILL", "killed": "SIGKILL", "forks": "SIGKILL"}
DEADLY = ["segfault", "illegal", "killed", "forks", "realtime", "leaves", "hungry", "spins", "deaf"]
HARMLESS = ["listens", "looks", *(f"lives{k}" for k in range(8))]


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Every way to die, each followed by a harmless trial, on two workers."""
    order = [case for pair in itertools.zip_longest(HARMLESS, DEADLY) for case in pair if case]
    study = {
        "name": "deaths",
        "workload": "work:trial",
        "space": {"case": order},
        "stop": {"timeout_s": TIMEOUT_S},
    }
    return run_cases(tmp_path_factory.mktemp("deaths"), study, DEATHS, "--engine", "processes", "--workers", 2)


def test_the_other_trials_are_done_whatever_one_does(deaths: Finished) -> None:
    assert deaths.code == 1
    assert {case: record["state"] for case, record in deaths.records.items()} == {
        **dict.fromkeys(HARMLESS, "done"),
        **dict.fromkeys(DEADLY, "failed"),
    }
    assert len(deaths.executions()) == len(DEADLY) + len(HARMLESS)


@pytest.mark.parametrize("case", SIGNALS)
def test_a_signal_is_named_in_the_failed_record_with_the_last_output(deaths: Finished, case: str) -> None:
    error = deaths.records[case]["error"]
    assert error["signal"] == SIGNALS[case]
    assert SIGNALS[case] in error["what"]
    assert f"last words of {case}" in error["stderr"]


def test_a_crash_leaves_what_the_fault_handler_printed(deaths: Finished) -> None:
    stderr = deaths.records["segfault"]["error"]["stderr"]
    assert "Fatal Python error: Segmentation fault" in stderr
    assert "in segfault" in stderr


def test_a_signal_without_a_name_is_a_failure_like_any(deaths: Finished) -> None:
    assert str(signal.SIGRTMIN + 6) in deaths.records["realtime"]["error"]["what"]


def test_a_worker_that_exits_is_a_failure_with_its_code(deaths: Finished) -> None:
    assert "exit code 3" in deaths.records["leaves"]["error"]["what"]
    assert "last words of leaves" in deaths.records["leaves"]["error"]["stderr"]


def test_a_trial_out_of_memory_is_a_failure_with_its_traceback(deaths: Finished) -> None:
    error = deaths.records["hungry"]["error"]
    assert error["what"].startswith("MemoryError")
    assert "bytearray(2**33)" in error["traceback"]


@pytest.mark.parametrize("case", ["spins", "deaf"])
def test_a_trial_that_no_exception_can_end_is_killed_at_its_timeout(deaths: Finished, case: str) -> None:
    record = deaths.records[case]
    assert record["error"]["what"] == f"timeout: ran longer than {TIMEOUT_S} s"
    assert "signal" not in record["error"]
    assert record["finished"] - record["started"] < TIMEOUT_S + 1.5


def test_a_dead_worker_is_replaced_and_a_living_one_kept(deaths: Finished) -> None:
    pids = dict(line.split() for line in deaths.executions())
    fatal = [pids[case] for case in DEADLY if case != "hungry"]
    assert len(set(fatal)) == len(fatal)
    assert len(set(pids.values())) in {len(fatal), len(fatal) + 1, len(fatal) + 2}
    assert len(list((deaths.run / "logs").iterdir())) == len(set(pids.values()))


def test_a_child_that_holds_the_pipe_open_does_not_hold_up_the_run(deaths: Finished) -> None:
    assert deaths.records["forks"]["finished"] - deaths.records["forks"]["started"] < 2
    assert deaths.seconds < 20


def test_workers_leave_the_users_standard_input_alone(deaths: Finished) -> None:
    assert deaths.records["listens"]["scores"] == {"score": 0.0}


def test_workers_share_the_cores_and_keep_freed_memory(deaths: Finished) -> None:
    seen = deaths.records["looks"]["scores"]
    assert seen["OMP_NUM_THREADS"] == seen["MKL_NUM_THREADS"] == max(1, cores() // 2)
    assert seen["MALLOC_MMAP_THRESHOLD_"] == seen["MALLOC_TRIM_THRESHOLD_"] == 4294967296


def test_no_child_of_a_dead_worker_outlives_the_run(deaths: Finished) -> None:
    assert none_left(deaths.mark)


def test_what_a_worker_imports_does_not_count_against_a_timeout(tmp_path: Path, write_study: Write) -> None:
    module = "import time\ntime.sleep(1.2)  # as torch does\n\ndef trial(config):\n    return config['case']\n"
    study = {"name": "import", "workload": "work.py:trial", "space": {"case": [1, 2]}, "stop": {"timeout_s": 1}}
    results = tradewind.run(write_study(study, module), tmp_path / "run", engine="processes", workers=1)
    assert results.counts() == {"done": 2, "pruned": 0, "stopped": 0, "failed": 0}
    assert all(record["finished"] - record["started"] < 1 for record in results.records())


@pytest.mark.parametrize("engine", ENGINES)
def test_studies_in_two_folders_may_call_their_modules_the_same(
    engine: str, tmp_path: Path, write_study: Write
) -> None:
    study = {"name": "same", "workload": "work:trial", "space": {"case": [1]}}
    for answer in (3, 4):
        folder = tmp_path / str(answer)
        path = write_study(study, f"def trial(config):\n    return {answer}\n", folder)
        assert tradewind.run(path, folder / "run", engine=engine).items("score") == [answer]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_needs_no_locale(engine: str, tmp_path: Path, write_study: Write, cli: Cli) -> None:
    study = {"name": "plain", "workload": "work:trial", "space": {"case": [1]}}
    path = write_study(study, "def trial(config):\n    print('plain words')\n    return 1\n")
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ran = cli("run", path, "--out", "run", "--engine", engine, "--quiet", env=ascii_only)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "plain words" in cli("show", tmp_path / "run", 0).stdout


# Stopping and going on.

SLOW = """
def trial(config):
    note(config["case"])
    try:
        time.sleep(0.1)
    except Exception:
        pass  # as careless users do: Ctrl-C must end the run all the same
    return 1.0
"""
STUDY = {"name": "stop", "workload": "work:trial", "space": {"case": list(range(12))}}


@pytest.fixture
def stoppable(tmp_path: Path, write_study: Write) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts a run of short trials and waits for the fourth; a mark that all its processes carry."""
    started: list[subprocess.Popen[str]] = []
    write_study(STUDY, ACCOUNT + SLOW)

    def start(*options: str) -> tuple[subprocess.Popen[str], str]:
        mark = uuid.uuid4().hex
        process = subprocess.Popen(
            [str(TRADEWIND), "run", "study.json", "--out", "a run", *options],
            cwd=tmp_path,
            env={**os.environ, MARK: mark},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, mark

    yield start  # type: ignore[misc]
    for process in started:
        process.kill()
        process.communicate()


def wait_for(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 20
    while len(executions(folder)) < count:
        assert time.monotonic() < deadline, "the run did not get under way"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("engine", "stop"),
    [
        ("serial", "Ctrl-C"),
        ("processes", "Ctrl-C"),
        ("processes", "SIGTERM"),
        ("processes", "SIGTERM to all"),
    ],
)
def test_a_stopped_run_exits_with_130_and_says_how_to_go_on(
    engine: str, stop: str, tmp_path: Path, stoppable: Any, cli: Cli
) -> None:
    process, mark = stoppable("--engine", engine)
    wait_for(tmp_path, 4)
    time.sleep(0.05)
    if stop == "SIGTERM":
        process.terminate()
    else:  # as a terminal and a batch system do
        os.killpg(process.pid, signal.SIGINT if stop == "Ctrl-C" else signal.SIGTERM)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130, errors
    assert none_left(mark)
    assert "Traceback" not in errors
    before = tradewind.Results.load(tmp_path / "a run").counts()
    assert before["failed"] == 0
    assert 2 <= before["done"] < 12
    words = shlex.split(errors.strip().splitlines()[-1].rpartition("go on with: ")[2])
    assert words == ["tradewind", "run", "study.json", "--out", "a run", "--engine", engine]
    assert cli(*words[1:], "--quiet").returncode == 0
    assert tradewind.Results.load(tmp_path / "a run").counts() == {"done": 12, "pruned": 0, "stopped": 0, "failed": 0}
    assert len(executions(tmp_path)) <= 12 + (1 if engine == "serial" else cores())


def test_a_run_stops_when_its_time_is_up_and_goes_on(tmp_path: Path, stoppable: Any, cli: Cli) -> None:
    process, mark = stoppable("--engine", "processes", "--workers", "1", "--max-time", "0.8s")
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "time is up" in errors
    assert none_left(mark)
    done = tradewind.Results.load(tmp_path / "a run").counts()
    assert done["failed"] == 0
    assert done["done"] < 12
    assert cli("run", "study.json", "--out", "a run", "--quiet").returncode == 0
    assert tradewind.Results.load(tmp_path / "a run").counts() == {"done": 12, "pruned": 0, "stopped": 0, "failed": 0}


# Purpose time.

TIMED = """
def trial(config):
    note(config["case"])
    time.sleep(0.01)
"""


def test_to_time_one_trial_runs_at_a_time_and_every_repeat_is_a_shuffled_pass(
    tmp_path: Path, write_study: Write
) -> None:
    study = {"name": "timed", "workload": "work.py:trial", "purpose": "time", "repeats": 3}
    path = write_study({**study, "space": {"case": list(range(8))}}, ACCOUNT + TIMED)
    results = tradewind.run(path, tmp_path / "run", engine="processes", workers=4)
    records = sorted(results.records(), key=lambda record: record["started"])
    assert [record["repeat"] for record in records] == [0] * 8 + [1] * 8 + [2] * 8
    passes = [[record["config"]["case"] for record in records[8 * k : 8 * k + 8]] for k in range(3)]
    assert all(sorted(order) == list(range(8)) for order in passes)
    assert len({tuple(order) for order in [*passes, range(8)]}) == 4
    assert all(one["finished"] <= other["started"] for one, other in itertools.pairwise(records))
    assert len({record["log"]["file"] for record in records}) == 1
    assert {record["purpose"] for record in records} == {"time"}
    assert [record["data_seed"] for record in records] == [record["repeat"] for record in records]
