"""A run folder from somebody else is data: nothing outside it is opened, nothing in it is run or makes a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, WriteStudy
from test_results import record, rows, write_run

from tradewind import Results
from tradewind.errors import TradewindError
from tradewind.folder import RunFolder
from tradewind.journal import encode

SECRET = "what only its owner may read"
READING = ("status", "best", "advise", "report", "show", "table", "query", "export", "status --json", "best --json")
MORE = {
    "show": [0], "table": ["--rows", "batch_size", "--columns", "repeat", "--value", "auc"],
    "query": ["select count(*) as n from results"], "export": ["--to", "f.json"],
}  # fmt: skip


def read_all(command: Cli, path: Path) -> str:
    """What all commands that only read say of a run; none may end in a traceback."""
    said = ""
    for name in READING:
        first, *options = name.split()
        answer = command(first, path, *MORE.get(first, []), *options)
        assert answer.returncode in (0, 2), (name, answer.stderr)
        assert "Traceback" not in answer.stderr, name
        assert answer.returncode == 0 or answer.stderr.count("\n") == 1, name
        said += answer.stdout + answer.stderr
    return said + "".join(path.read_text() for path in path.glob("report.html"))


@pytest.mark.parametrize("place", ["absolute", "above", "link", "folder"])
def test_a_log_outside_the_run_folder_is_never_shown(command: Cli, tmp_path: Path, place: str) -> None:
    outside = tmp_path / "secret"
    outside.write_text(SECRET)
    name = {"absolute": str(outside), "above": "../../secret", "link": "link.log", "folder": "."}[place]
    path = write_run(tmp_path / "run", a=[record(0, log={"file": name, "from": 0, "to": 28})])
    (path / "logs" / "link.log").symlink_to(outside)
    assert SECRET not in read_all(command, path)


@pytest.mark.parametrize(
    "part", ["journal", "curves", "machines", "logs", "models", "cache", "study.json", "edition.json"]
)
def test_a_run_folder_with_links_is_refused_in_a_line(command: Cli, tmp_path: Path, part: str) -> None:
    path = write_run(tmp_path / "run", a=[record(0)])
    elsewhere = tmp_path / "elsewhere"
    (elsewhere.write_text('{"name": "x"}') if "." in part else elsewhere.mkdir())
    if (path / part).exists():
        for inner in (path / part).iterdir():
            inner.unlink()
        (path / part).rmdir()
    (path / part).symlink_to(elsewhere)
    answer = command("status", path)
    assert answer.returncode == 2
    assert f"{part}: is a symbolic link" in answer.stderr
    read_all(command, path)


def test_journals_that_are_links_or_folders_are_skipped_and_counted(command: Cli, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", a=[record(7)])
    path = write_run(tmp_path / "run", a=[record(0)])
    (path / "journal" / "b.jsonl").mkdir()
    (path / "journal" / "c.jsonl").symlink_to(tmp_path / "nowhere")
    (path / "journal" / "d.jsonl").symlink_to(other / "journal" / "a.jsonl")
    results = Results.load(path)
    assert (results.items("trial"), results.skipped_lines) == ([0], 3)
    assert "3 damaged journal lines skipped" in read_all(command, path)


ODD: dict[str, Any] = {
    "a list as config": {"config": [1, 2]},
    "words as config": {"config": ["a", "b"]},
    "no config": {"config": None},
    "a number without end": {"config": {"batch_size": 10**400}},
    "a number without end in a list": {"config": {"batch_size": [10**5000]}},
    "a score without end": {"scores": {"auc": 10**400}},
    "text in times": {"times": {"wall_s": "long"}},
    "text in epochs": {"times": {"epoch_s": ["long", 1.0]}},
    "text in scores": {"scores": {"auc": "good"}},
    "a list in last": {"last": {"auc": [1]}},
    "an empty score name": {"scores": {"": 1.0}},
    "an empty hyperparameter": {"config": {"": 1.0}},
    "text as finished": {"finished": "late"},
    "a state of its own": {"state": "fine"},
    "a trial before the first": {"trial": -1},
    "a number as reason": {"reason": 7},
    "a list as error": {"error": ["no"], "state": "failed"},
    "a text as log": {"log": "x.log"},
    "true as a score": {"scores": {"auc": True}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_an_odd_record_is_skipped_and_counted(command: Cli, tmp_path: Path, odd: dict[str, Any]) -> None:
    path = write_run(tmp_path / "run", a=[record(0), record(1, **odd), record(2)])
    results = Results.load(path)
    assert (results.items("trial"), results.skipped_lines) == ([0, 2], 1)
    assert "1 damaged journal lines skipped" in read_all(command, path)


LACKING = ("config", "scores", "started", "finished", "repeat", "attempt")


def test_a_record_that_lacks_what_all_have_is_skipped_and_counted(command: Cli, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=[record(0)])
    lacking = [{k: v for k, v in record(5).items() if k != name} for name in LACKING]
    with open(RunFolder(path).journal("a"), "ab") as file:
        file.writelines(encode("finished", one) for one in lacking)
    assert (len(Results.load(path)), Results.load(path).skipped_lines) == (1, 6)
    read_all(command, path)


def test_a_record_of_another_study_is_skipped_and_counted(command: Cli, write_study: WriteStudy) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": [1, 2]}}
    command("run", write_study(study, "def f(config):\n    return 1.0\n"), "--out", "run", "--engine", "serial")
    other = {**study, "space": {"x": [1, 2, 3]}, "seed": 5}
    command("run", write_study(other), "--out", "other", "--engine", "serial")
    for journal in Path("other/journal").iterdir():
        (Path("run/journal") / journal.name).write_bytes(journal.read_bytes())
    status = json.loads(command("status", "run", "--json").stdout)
    assert (status["done"], status["trials"], status["skipped_lines"]) == (2, 2, 3)
    assert len(Results.load("run")) == 2


@pytest.mark.parametrize("change", [
    lambda meta, parts: meta | {"journals": ["../../secret"]},
    lambda meta, parts: meta | {"ends": {"a.jsonl": 10**9}},
    lambda meta, parts: meta | {"ends": []},
    lambda meta, parts: meta | {"stored": {}},
    lambda meta, parts: meta | {"groups": {"scores.auc": "config"}},
    lambda meta, parts: parts.update(places=parts["places"][:5]) or meta,
    lambda meta, parts: parts.update(places=parts["places"] * 0 + 10**12) or meta,
    lambda meta, parts: parts.update(keys=parts["keys"].astype(float)) or meta,
    lambda meta, parts: parts.update(c4=parts["c4"][:3]) or meta,
    lambda meta, parts: parts.update({k: part + 9 for k, part in parts.items() if part.dtype == np.int32}) or meta,
])  # fmt: skip
def test_a_damaged_cache_is_thrown_away_and_made_anew(
    command: Cli, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    path = write_run(tmp_path / "run", a=map(record, range(2500)))
    fresh = rows(Results.load(path))
    cache = RunFolder(path).cache / "results.npz"
    parts = dict(np.load(cache))
    meta = change(json.loads(parts.pop("meta").tobytes()), parts)
    np.savez(cache, meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8), **parts)
    damaged = cache.read_bytes()
    results = Results.load(path)
    assert rows(results) == fresh
    assert results.record(3)["trial"] == 3
    assert rows(Results.load(path)) == fresh
    assert cache.read_bytes() != damaged
    assert SECRET not in read_all(command, path)


def test_escape_sequences_never_reach_the_terminal(command: Cli, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    error = {"what": evil, "traceback": f"a\n{evil}", "stderr": evil}
    config = {f"x{evil}": evil, "batch_size": 1}
    log = {"file": "l.log", "from": 0, "to": 40}
    about = {"config": config, "scores": {"auc": 1.0, f"s{evil}": 2.0}, "machine": evil, "log": log, "code": evil}
    failed = record(1, state="failed", reason=evil, error=error, **about)
    path = write_run(tmp_path / "run", a=[record(0, **about), failed])
    (path / "logs" / "l.log").write_text(f"before {evil} after")
    said = read_all(command, path) + command("show", path, 1).stdout
    said += command("table", path, "--rows", f"x{evil}", "--columns", "state", "--value", "auc").stdout
    said += command("query", path, "select * from results").stdout
    assert "before" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_the_report_has_a_content_security_policy(command: Cli, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=map(record, range(8)))
    assert command("report", path).returncode == 0
    text = (path / "report.html").read_text()
    head = text[: text.index("</head>")]
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'; ' in head
    assert "<script" not in text


def evil_run(tmp_path: Path) -> Path:
    """A run folder whose study names code that lies in it."""
    path = write_run(tmp_path / "theirs", a=[record(0)])
    (path / "evil.py").write_text("open('/dev/null')\nfrom pathlib import Path\nPath('ran').write_text('it did')\n"
                                  "class W: ...\ndef f(config): return 1\n")  # fmt: skip
    study = {"name": "s", "workload": "evil:f", "space": {"batch_size": [32, 64]}}
    (path / "study.json").write_text(json.dumps(study))
    edition = {"edition": "abc", "folder": str(path), "file": "", "metrics": ["auc"], "directions": {}}
    (path / "edition.json").write_text(json.dumps(edition))
    return path


def test_no_command_that_only_reads_runs_code_of_a_run_folder(command: Cli, tmp_path: Path) -> None:
    path = evil_run(tmp_path)
    read_all(command, path)
    command("export", path, "--to", "f.db")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("reference", ["evil:W", "{path}/evil.py:W", "../theirs/evil.py:W"])
def test_a_network_is_made_again_only_by_code_from_where_the_caller_stands(
    command: Cli, tmp_path: Path, reference: str
) -> None:
    path = evil_run(tmp_path)
    study = json.loads((path / "study.json").read_text())
    study["workload"] = reference.format(path=path)
    (path / "study.json").write_text(json.dumps(study))
    (path / "models" / f"{record(0)['key']}.safetensors").write_bytes(b"")
    (tmp_path / "mine").mkdir()
    os.chdir(tmp_path / "mine")
    with pytest.raises(TradewindError, match="change to the folder that holds it"):
        Results.load(path).best().model()
    assert not list(tmp_path.rglob("ran"))


def test_a_study_file_in_a_run_folder_adds_no_import_path(command: Cli, tmp_path: Path) -> None:
    path = evil_run(tmp_path)
    answer = command("run", path / "study.json", "--out", "mine", "--engine", "serial")
    assert answer.returncode == 2
    assert "evil" in answer.stderr
    assert not list(tmp_path.rglob("ran"))


def test_a_journal_of_a_newer_tradewind_is_refused_in_a_line(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_run(tmp_path / "run", a=[record(0)])
    monkeypatch.setattr("tradewind.journal.VERSION", 2)
    write_run(tmp_path / "run", b=[record(1)])
    monkeypatch.setattr("tradewind.journal.VERSION", 1)
    answer = command("status", path)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "a journal line of version 2; this Tradewind reads version 1" in answer.stderr
