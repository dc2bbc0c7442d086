from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TRADEWIND, Cli, WriteStudy

from tradewind import Results
from tradewind.cli.failure import exit_code, one_line
from tradewind.journal import encode

WORK = """
def f(config):
    return {"score": config["x"]}

def noisy(config):
    print("x" * 30_000, flush=True)
    return {"score": config["x"]}

def curved(config, trial):
    for epoch in range(40):
        trial.report(epoch, loss=1 / (epoch + 1), accuracy=0.123456789)
    return {"score": config["x"]}

def odd_text(config):
    raise ValueError("not text: \\udcff")

five = 5
"""
STUDY: dict[str, Any] = {"name": "s", "workload": "work:f", "space": {"x": [1, 2, 3]}}
STORM: dict[str, Any] = {"name": "s", "workload": "storm", "space": {"batch_size": [64]}}
COMMAND: dict[str, Any] = {"name": "s", "command": "echo {x}", "space": {"x": [1]}}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, the modules around it, and `run`, where it has ended."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "work.py").write_text(WORK)
    (folder / "broken.py").write_text("import os\n\nimport there_is_no_such_module\n")
    (folder / "syntax.py").write_text("def f(config:\n")
    (folder / "wordy.py").write_text("raise ImportError('first line\\nsecond line')\n")
    (folder / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "rows.csv").write_text("x,loss\n1,2\n")
    (folder / "study.json").write_text(json.dumps(STUDY))
    subprocess.run([TRADEWIND, "run", "study.json", "--out", "run", "--quiet"], cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture
def finished(original: Path, tmp_path: Path) -> Path:
    """A copy of the original for one test."""
    return Path(shutil.copytree(original, tmp_path / "finished"))


@pytest.fixture
def call(command: Cli, finished: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in the folder `finished`."""
    monkeypatch.chdir(finished)
    return command


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; what Python compiles on its own does not count."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def assert_refused(answer: subprocess.CompletedProcess[str], *said: str) -> None:
    assert answer.returncode == 2, answer.stderr
    assert answer.stdout == ""
    assert answer.stderr.startswith("tradewind: ")
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert "Traceback" not in answer.stderr
    for words in said:
        assert words in answer.stderr


STUDIES = [
    ({**STUDY, "reapeats": 3}, "reapeats: unknown key; did you mean 'repeats'? allowed: command, data, "),
    ({**STUDY, "stop": {"max_epoch": 3}}, "stop.max_epoch: unknown key; did you mean 'max_epochs'? allowed: "),
    ({"workload": "work:f"}, "name: is missing"),
    ({**STUDY, "name": ""}, "name: found ''"),
    ({**STORM, "space": {"batchsize": [1]}}, "space.batchsize: storm does not know 'batchsize'; did you mean 'batc"),
    ({**STORM, "fixed": {"lerning_rate": 1}}, "fixed.lerning_rate: storm does not know 'lerning_rate'; did you mea"),
    ({**STUDY, "space": {"x": []}}, "space.x: found an empty list; allowed: at least one value"),
    ({**STUDY, "space": {"x": {"low": 2, "high": 1, "steps": 2}}}, "space.x: low 2 is above high 1"),
    ({**STUDY, "space": {"x": {"low": 0, "high": 1, "log": True, "steps": 2}}}, "space.x: a log range needs low"),
    ({**STUDY, "space": {"x": {"low": 0, "high": 1, "stpes": 2}}}, "space.x: stpes: unknown key; did you mean 'step"),
    ({**STUDY, "space": {"x": {"low": 0.0, "high": 1.0}}}, 'space.x: a range without steps is continuous; a gri'),
    ({**STUDY, "space": {"x": {"low": 1, "high": 3, "steps": 9}}}, "space.x: 9 steps from 1 to 3 give equal values"),
    ({**STUDY, "space": {"x": 5}}, "space.x: found 5; allowed: a list of values, or a range"),
    ({**STUDY, "space": {"x": [1, 1]}}, "'x': 1 is given twice"),
    ({**STUDY, "space": {"x": [float("nan")]}}, "found NaN; allowed: finite numbers"),
    ({**STUDY, "fixed": {"y": float("-inf")}}, "found -Infinity; allowed: finite numbers"),
    ({**STORM, "fixed": {"epochs": -3}}, "fixed.epochs: found -3; allowed: whole numbers from 1"),
    ({**STORM, "space": {"epochs": [1, 0]}}, "space.epochs: found 0; allowed: whole numbers from 1"),
    ({**STORM, "fixed": {"epochs": "5"}}, "fixed.epochs: found '5', a str; allowed: whole numbers from 1"),
    ({**STORM, "fixed": {"epochs": 1.5}}, "fixed.epochs: found 1.5, a float; allowed: whole numbers from 1"),
    ({**STORM, "fixed": {"optimizer": "adma"}}, "fixed.optimizer: found 'adma'; allowed: 'sgd', 'adam', 'adamw'"),
    ({**STORM, "data": {"trian": 5}}, "data.trian: not known to Storm; did you mean 'train'?"),
    ({**STORM, "data": {"train": -5}}, "train: found -5; allowed: whole numbers from 1"),
    ({**STUDY, "repeats": "three"}, "repeats: found 'three'; "),
    ({**STUDY, "repeats": "3"}, "repeats: found '3'; "),
    ({**STUDY, "repeats": True}, "repeats: found True; "),
    ({**STUDY, "repeats": 0}, "repeats: found 0; "),
    ({**STUDY, "space": [1]}, "space: found [1]; "),
    ({**STUDY, "where": "x < 1"}, "where: found 'x < 1'; "),
    ({**STUDY, "where": ["z < 1"]}, "'z < 1': there is no 'z'; allowed: x"),
    ({**STUDY, "where": ["__import__('os').system('touch pwned')"]}, "allowed: names without a leading _, num"),
    ({**STUDY, "where": ["().__class__.__base__.__subclasses__()"]}, "allowed: names without a leading _, numbers, "),
    ({**STUDY, "where": ["open('pwned', 'w')"]}, "allowed: names without a leading _, numbers, "),
    (
        {**STUDY, "workload": "strom"},
        "workload 'strom': did you mean 'storm'? allowed: digits, images, nodules, storm, or \"module:name\"",
    ),
    ({**STUDY, "workload": "nowhere:f"}, "importing nowhere raised ModuleNotFoundError: No module named 'nowhere'"),
    ({**STUDY, "workload": "nowhere.py:f"}, "nowhere.py:f': no such file: "),
    ({**STUDY, "workload": "work:ff"}, "work has no 'ff'; did you mean 'f'? allowed: curved, f, noisy, odd_text"),
    ({**STUDY, "workload": "work:five"}, "workload 'work:five' is a int; allowed: a class or a function"),
    ({**STUDY, "workload": "broken:f"}, "No module named 'there_is_no_such_module' ("),
    ({**STUDY, "workload": "broken:f"}, "broken.py:3)"),
    ({**STUDY, "workload": "syntax:f"}, "syntax.py, line 1)"),
    ({**STUDY, "workload": "wordy:f"}, "ImportError: first line"),
    ({**STUDY, "workload": "leaves:f"}, "importing leaves raised SystemExit"),
    ({**STUDY, "workload": ""}, "found neither of workload and command; allowed: one of them"),
    ({**STUDY, "command": "echo {x}"}, "found both of workload and command; allowed: one of them"),
    ({**COMMAND, "command": "echo {x} {y}"}, "command: {y} is not in the study; allowed: config, data_seed, "),
    ({**COMMAND, "command": "echo {x"}, "command: "),
    ({**COMMAND, "command": "echo"}, "space.x: the command does not use it; put {x} or {config} into it"),
    ({**COMMAND, "command": "echo 'open {x}"}, "command: "),
    ({**STUDY, "fixed": {"x": 1}}, "'x' stands in both space and fixed; leave it in one"),
    ({**STUDY, "space": {"x": ["\ud800"]}}, "bad.json: "),
    ([STUDY], "bad.json: found [{'name': 's'"),
    (None, "bad.json: found None; allowed: a JSON object with name"),
]  # fmt: skip


@pytest.mark.parametrize(("study", "said"), STUDIES, ids=[said for _, said in STUDIES])
def test_a_study_with_a_fault_is_refused_in_one_line_and_nothing_recorded_is_touched(
    call: Cli, finished: Path, study: Any, said: str
) -> None:
    (finished / "bad.json").write_text(json.dumps(study))
    before = tree(finished)
    assert_refused(call("run", "bad.json", "--out", "run"), said)
    after = tree(finished)
    assert after == before


def test_more_steps_than_memory_holds_are_refused_at_once(finished: Path) -> None:
    study = {**STUDY, "space": {"x": {"low": 0.0, "high": 1.0, "steps": 10**12}}}
    (finished / "bad.json").write_text(json.dumps(study))
    limited = ["bash", "-c", 'ulimit -v 2000000; exec "$@"', "bash", str(TRADEWIND), "check", "bad.json"]
    answer = subprocess.run(limited, cwd=finished, capture_output=True, text=True, timeout=60, check=False)
    assert_refused(answer, "bad.json: space.x: ", "steps")


FILES = [
    (b'{"name": "s",\n "workload": "work:f", "spa', "bad.json:2:", "not JSON: "),
    (b"", "bad.json:1:1: ", "not JSON: "),
    (b"[" * 100_000, "bad.json: ", "nested too deeply"),
    (b'{"space":' * 100_000, "bad.json: ", "nested too deeply"),
    (b'{"name": "s", "workload": "work:f", "fixed": {"y": ' + b"[" * 900 + b"]" * 900 + b"}}", "bad.json: ", "deep"),
    (b'{"name": "\xff\xfe"}', "bad.json: ", "not a text file in UTF-8"),
    (random.Random(0).randbytes(3000), "bad.json: ", "not a text file in UTF-8"),
    (b'{"name": "s", "name": "t"}', "bad.json: ", "key 'name' stands twice"),
    (b'{"name": "s", "workload": "work:f", "space": {"x": [1e999]}}', "bad.json: ", "finite"),
    (b'{"name": "s", "workload": "work:f", "space": {"x": [' + b"1" * 5000 + b"]}}", "bad.json: ", "1111"),
]


@pytest.mark.parametrize("content", FILES, ids=range(len(FILES)))
def test_a_damaged_study_file_is_refused_with_its_name_and_place(
    call: Cli, finished: Path, content: tuple[bytes, str, str]
) -> None:
    text, *said = content
    (finished / "bad.json").write_bytes(text)
    before = tree(finished / "run")
    assert_refused(call("run", "bad.json", "--out", "run"), *said)
    assert tree(finished / "run") == before


CALLS: list[tuple[list[str], str]] = [
    (["run", "none.json"], "none.json: no such file; `tradewind studies` lists the bundled ones"),
    (["run", "."], ".: can't be read: Is a directory"),
    (["run", "n" * 5000], "n: "),
    (["check", "none.json"], "none.json: no such file"),
    (["run", "study.json", "--out", "run", "--engine", "proceses"], "--engine proceses: did you mean 'process"),
    (["run", "study.json", "--out", "run", "--schedule", "dispach"], "--schedule dispach: "),
    (["run", "study.json", "--out", "run", "--workers", "0"], "--workers 0: allowed: 1 or more"),
    (["run", "study.json", "--out", "run", "--workers", "0", "--engine", "serial"], "--workers 0: allowed: 1 or"),
    (["run", "study.json", "--out", "run", "--max-time", "soon"], "--max-time soon: allowed: a number with s, m, h"),
    (["run", "study.json", "--out", "run", "--max-time", "0s"], "--max-time 0s: allowed: "),
    (["run", "study.json", "--out", "run", "--set", "fixed.y=NaN"], "finite numbers"),
    (["run", "study.json", "--out", "run", "--set", "fixed.y=" + "[" * 100_000], "--set"),
    (["run", "study.json", "--out", "."], ".: holds other files and is no run folder; choose another --out"),
    (["run", "study.json", "--out", "work.py"], "work.py: "),
    (["run", "study.json", "--out", "." * 300], "." * 300),
    (["run", "study.json", "--set", "name=" + "é" * 150], "é: "),
    (["run", "study.json", "--set", "name=.."], "name"),
    (["status", "nowhere"], "nowhere: no such run folder"),
    (["status", "."], ".: not a run folder: it has no run.json"),
    (["status", "work.py"], "work.py: no such run folder"),
    (["table", ".", "--rows", "x", "--columns", "x"], ".: not a run folder"),
    (["show", ".", "0"], ".: not a run folder"),
    (["best", "."], ".: not a run folder"),
    (["export", ".", "--to", "x.csv"], ".: not a run folder"),
    (["show", "run", "3"], "run: trial 3 has no result"),
    (["show", "run", "--", "-1"], "run: trial -1 has no result"),
    (["table", "run", "--rows", "xx", "--columns", "repeat"], "no column 'xx'"),
    (["table", "run", "--rows", "x", "--columns", "repeat", "--by", "yy"], "no column 'yy'"),
    (["table", "run", "--rows", "x", "--columns", "repeat", "--value", "scroe"], "no column 'scroe'; did you mean "),
    (["table", "run", "--rows", "x", "--columns", "x", "--stat", "medain"], "'medain': did you mean 'median'? allow"),
    (["table", "run", "--rows", "x", "--columns", "x", "--format", "txt"], "unknown table format 'txt': did you "),
    (["table", "run", "--rows", "x", "--columns", "x", "--value", "state"], "'state' can't be the value of a table"),
    (["export", "run", "--to", "x.xlsx"], "--to x.xlsx: found '.xlsx'; allowed: .csv, .parquet, .json"),
    (["export", "run", "--to", "none/x.csv"], "--to none/x.csv: can't be written: No such file or directory"),
    (["export", "run", "--to", "none/x.parquet"], "--to none/x.parquet: can't be written: "),
    (["best", "run", "--save", "x.pt"], "--save x.pt: found '.pt'; allowed: .safetensors"),
    (["best", "run", "--save", "x.safetensors"], "trial 2 left no weights; only networks do"),
    (["import", "study.json", "--out", "imported"], "study.json: no rows at the top"),
    (["import", "none.json", "--out", "imported"], "none.json: No such file or directory"),
    (["import", "rows.csv", "--out", "run"], "run: exists already; import into a new folder"),
    (["import", "rows.csv", "--out", "work.py"], "work.py: "),
    (["import", "rows.csv", "--out", "imported", "--rename", "x"], "--rename x: write it as A=B"),
    (["studies", "quik"], "no bundled study 'quik'; did you mean 'quick'?"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), CALLS, ids=[" ".join(words)[:60] for words, _ in CALLS])
def test_a_command_that_can_not_be_is_refused_in_one_line_and_nothing_recorded_is_touched(
    call: Cli, finished: Path, words: list[str], said: str
) -> None:
    before = tree(finished)
    assert_refused(call(*words), said)
    after = tree(finished)
    assert after == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "bad.json", "--out", "run"], "repeat: unknown key; did you mean 'repeats'?"),
        (["status", "."], ".: not a run folder"),
        (["run", "study.json", "--out", "run", "--workers", "0"], "--workers 0: allowed: 1 or more"),
    ],
)
def test_a_mistake_is_one_line_of_a_process_that_ends_with_2(
    cli: Cli, finished: Path, words: list[str], said: str
) -> None:
    (finished / "bad.json").write_text(json.dumps({**STUDY, "repeat": 3}))
    assert_refused(cli(*words, cwd=finished), said)


@pytest.mark.parametrize(
    "words", [["show", "run", "first"], ["run", "study.json", "--workers", "two"], ["tabel"], []]
)
def test_a_call_that_the_command_line_does_not_know_is_a_usage_error(call: Cli, words: list[str]) -> None:
    answer = call(*words)
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert "Usage: " in answer.stderr + answer.stdout


@pytest.mark.parametrize("options", [["--workers", "0"], ["--engine", "none"], ["--max-time", "soon"]])
def test_a_refused_option_leaves_no_folder_behind(call: Cli, finished: Path, options: list[str]) -> None:
    assert call("run", "study.json", "--out", "never", *options).returncode == 2
    assert not (finished / "never").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("run.json", "{"),
        ("run.json", "[]"),
        ("run.json", '{"format": 99}'),
        ("study.json", "{"),
        ("edition.json", ""),
    ],
)
def test_a_run_folder_that_was_damaged_says_which_file(call: Cli, finished: Path, file: str, content: str) -> None:
    (finished / "run" / file).write_text(content)
    assert_refused(call("status", "run"), "run")


def test_an_error_of_the_file_system_is_no_mistake_of_the_users_unless_it_is(call: Cli, finished: Path) -> None:
    shutil.rmtree(finished / "run" / "owners")
    answer = call("run", "study.json", "--out", "run", "--set", "space.x=[1,2,3,4]", "--quiet")
    assert answer.returncode == 3
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("tradewind: internal error: FileNotFoundError: ")
    assert "Please report it with the study and what the same command prints with --traceback" in answer.stderr
    (finished / "run" / "owners").mkdir()
    assert call("run", "study.json", "--out", "run", "--set", "space.x=[1,2,3,4]", "--quiet").returncode == 0


@pytest.mark.parametrize("way", ["before", "after", "environment"])
def test_traceback_shows_what_one_line_hides(
    call: Cli, finished: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    words = ["run", "none.json"]
    if way == "environment":
        monkeypatch.setenv("TRADEWIND_TRACEBACK", "1")
    else:
        words.insert(0 if way == "before" else 2, "--traceback")
    answer = call(*words)
    assert answer.returncode == 2
    assert answer.stderr.startswith("Traceback (most recent call last):")
    assert answer.stderr.splitlines()[-1].startswith("tradewind: none.json: no such file; ")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "rows.csv"), 2, "rows.csv: No such file"),
        (FileNotFoundError(errno.ENOENT, "No such file", "run/plans/x"), 3, "internal error: FileNotFoundError: "),
        (PermissionError(errno.EACCES, "Permission denied", "run/plans/x"), 2, "run/plans/x: Permission denied"),
        (PermissionError(errno.EPERM, "Operation not permitted"), 3, "internal error: PermissionError: "),
        (OSError(errno.ENOSPC, "No space left on device", "run/x"), 3, "run/x: No space left on device; nothing rec"),
        (OSError(errno.EMFILE, "Too many open files", "rows.csv"), 3, "internal error: OSError: "),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset"), 3, "internal error: ConnectionResetError: "),
        (KeyError("loss"), 3, "internal error: KeyError: 'loss'"),
    ],
)
def test_errors_that_are_the_users_end_with_2_and_all_others_with_3(error: Exception, code: int, said: str) -> None:
    assert exit_code(error, ["import", "rows.csv", "--out=run"]) == code
    assert one_line(error, code).startswith(said)


def test_a_run_folder_that_is_deleted_under_a_run_ends_it_in_one_line_with_3(
    call: Cli, write_study: WriteStudy, finished: Path
) -> None:
    delete = "import shutil\n\ndef f(config):\n    shutil.rmtree('deleted')\n    return 1.0\n"
    write_study({**STUDY, "workload": "delete:f"}, folder=finished)
    (finished / "delete.py").write_text(delete)
    answer = call("run", "study.json", "--out", "deleted", "--workers", "1", "--quiet")
    assert answer.returncode == 3
    assert answer.stderr == (
        "tradewind: deleted: the run folder was deleted or moved while the run went on; the same command starts anew "
        "there\n"
    )


def test_the_error_of_a_trial_may_hold_any_text(cli: Cli, write_study: WriteStudy) -> None:
    write_study({**STUDY, "workload": "work:odd_text"}, WORK)
    answer = cli("run", "study.json", "--out", "run", "--quiet")
    assert answer.returncode == 1
    assert (
        answer.stderr == "tradewind: 3 of 3 trials failed: ValueError: not text: ?; tradewind show run 0 tells why\n"
    )
    results = Results.load(write_study(STUDY).parent / "run")
    assert results.counts() == {"done": 0, "pruned": 0, "stopped": 0, "failed": 3}
    assert "ValueError: not text: " in cli("show", "run", 0).stdout


GARBAGE = [
    random.Random(1).randbytes(5000).replace(b"\n", b" ") + b"\n",
    b"\n",
    b"plain words\n",
    b'{"x": 1}\n',
    b"[]\n",
    b"\0" * 4096 + b"\n",
    encode("finished", {"key": "0" * 32, "state": "done"}).replace(b"done", b"dome"),
    encode("finished", {"key": "0" * 32, "state": "done"}).replace(b'"kind":"finished"', b'"kind":"finishes"'),
    encode("finished", {"hello": "no record"}),
    b'{"crc":"00000000","v":1,"kind":"finished","key":"' + b"0" * 32 + b'"}\n',
]


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
def test_a_garbage_line_in_a_journal_is_skipped_and_reported(finished: Path, line: bytes) -> None:
    before = list(Results.load(finished / "run").records())
    (journal,) = (finished / "run" / "journal").iterdir()
    lines = journal.read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    journal.write_bytes(b"".join([line, *lines[:middle], line, *lines[middle:], line]))
    results = Results.load(finished / "run")
    assert list(results.records()) == before
    assert results.counts()["done"] == 3
    assert results.skipped_lines == 3


def test_a_run_with_damaged_journals_goes_on_and_status_reports_them(cli: Cli, call: Cli, finished: Path) -> None:
    (journal,) = (finished / "run" / "journal").iterdir()
    torn = GARBAGE[0] + journal.read_bytes()[:-100]  # the last record of the three is cut
    journal.write_bytes(torn)
    (finished / "run" / "journal" / "zzz.jsonl").write_bytes(b"".join(GARBAGE[1:7]) + b'{"crc":"0')
    found = json.loads(call("status", "run", "--json").stdout)
    assert (found["done"], found["left"], found["skipped_lines"]) == (2, 1, 1 + 1 + 6 + 1)
    assert "9 damaged journal lines skipped" in call("status", "run").stdout
    answer = cli("run", "study.json", "--out", "run", "--set", "space.x=[1,2,3,4]", cwd=finished)
    assert answer.returncode == 0
    assert "9 damaged journal lines skipped" in answer.stderr
    results = Results.load(finished / "run")
    assert sorted(results.items("x")) == [1, 2, 3, 4]
    assert results.duplicates == 0
    assert journal.read_bytes() == torn


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Any]:
    """Mounts a file system of so many kB; called again, it is made larger."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def mount(size_kb: int) -> Path:
        nonlocal mounted
        options = f"{'remount,' if mounted else ''}size={size_kb}k"
        answer = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            pytest.skip(f"NOT TESTED: a full disk; mounting one needs root: {answer.stderr.strip()}")
        mounted = True
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.skipif(not shutil.which("mount"), reason="NOT TESTED: a full disk; there is no mount here")
@pytest.mark.parametrize(
    ("function", "engine", "size_kb"),
    [
        ("f", "processes", 0),
        ("f", "processes", 20),
        ("f", "processes", 48),
        ("curved", "processes", 120),
        ("noisy", "processes", 100),
        ("noisy", "serial", 100),
    ],
)
def test_a_full_disk_ends_the_run_clearly_and_after_making_room_the_same_command_completes_it(
    cli: Cli, write_study: WriteStudy, small_disk: Any, function: str, engine: str, size_kb: int
) -> None:
    disk = small_disk(size_kb or 4)
    if not size_kb:
        (disk / "filler").write_bytes(b"x" * 4096)
    values = list(range(80))
    write_study({"name": "s", "workload": f"work:{function}", "space": {"x": values}}, WORK)
    command = ["run", "study.json", "--out", disk / "run", "--engine", engine, "--quiet"]
    answer = cli(*command)
    assert answer.returncode == 3, "room can be made: resumable"
    message = answer.stderr.splitlines()[-1]
    assert message.startswith("tradewind: ")
    assert "No space left on device" in message
    assert "Traceback" not in answer.stderr
    recorded = {}
    if (disk / "run" / "run.json").exists():
        recorded = {record["key"]: record for record in Results.load(disk / "run").records()}
    small_disk(64_000)
    answer = cli(*command)
    assert (answer.returncode, answer.stderr) == (0, "")
    results = Results.load(disk / "run")
    assert sorted(results.items("x")) == values
    assert results.counts() == {"done": 80, "pruned": 0, "stopped": 0, "failed": 0}
    after = {record["key"]: record for record in results.records()}
    assert recorded.items() <= after.items()
    assert os.listdir(disk / "run" / "models") == []
