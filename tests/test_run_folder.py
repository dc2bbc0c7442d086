"""What lies in a run folder: who is at work there, what is needed no more, how much room it takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, WriteStudy

from tradewind import Results
from tradewind.claims import Claims
from tradewind.folder import RunFolder
from tradewind.workloads.cache import cached

WORK = "def f(config):\n    return {'score': float(config['x'])}\n"
STUDY: dict[str, Any] = {"name": "s", "workload": "work:f", "space": {"x": [1, 2, 3]}}
RUN = ["run", "study.json", "--out", "run", "--engine", "serial", "--quiet"]


@pytest.fixture
def folder(command: Cli, write_study: WriteStudy, tmp_path: Path) -> RunFolder:
    """A run that has ended."""
    write_study(STUDY, WORK)
    assert command(*RUN).returncode == 0
    return RunFolder.open(tmp_path / "run")


def test_fresh_is_refused_while_a_job_is_at_work_in_the_folder(command: Cli, folder: RunFolder) -> None:
    job = Claims(folder, "edition", "another-job")
    answer = command(*RUN, "--fresh")
    assert answer.returncode == 2
    assert "run: --fresh: process " in answer.stderr
    assert "is at work there; wait for its end, end it, or choose another --out" in answer.stderr
    assert len(Results.load(folder.path)) == 3, "it is where it was"
    job.leave()
    assert command(*RUN, "--fresh").returncode == 0
    assert list(folder.path.parent.glob("run.before-*"))


def test_clean_removes_what_is_needed_no_more_and_no_record(command: Cli, folder: RunFolder) -> None:
    results = Results.load(folder.path)
    best = results.best().record["key"]
    other = min(set(results.keys()) - {best})
    kept = [folder.checkpoint("0" * 32), folder.model(best)]
    unneeded = [folder.checkpoint(other), folder.model(other), folder.cache / "results.npz"]
    for path in (*kept, *unneeded):
        path.write_bytes(b"x" * 500_000)
    before = folder.journals.iterdir().__next__().read_bytes()
    said = command("clean", "run", "--dry-run").stdout
    assert said.startswith("run: 1.5 MB would be removed\n")
    assert all(path.exists() for path in (*kept, *unneeded))
    assert command("clean", "run").stdout.startswith("run: 1.5 MB removed\n")
    assert [path.exists() for path in (*kept, *unneeded)] == [True, True, False, False, False]
    assert next(folder.journals.iterdir()).read_bytes() == before
    assert Results.load(folder.path).counts()["done"] == 3


def test_clean_is_refused_while_a_job_is_at_work(command: Cli, folder: RunFolder) -> None:
    Claims(folder, "edition", "another-job")
    answer = command("clean", "run")
    assert answer.returncode == 2
    assert "is at work there; clean it after its end" in answer.stderr


def test_clean_cache_tells_its_size_first_and_keeps_what_is_no_data(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRADEWIND_CACHE", str(cache))
    cached("storms-7", ["inputs"], lambda: (__import__("numpy").zeros(250_000),))
    (cache / "profiles").mkdir()
    (cache / "profiles" / "cpu.json").write_text("{}")
    store = cache / "augmented-1-abc"
    (store / "owners").mkdir(parents=True)
    (store / "samples.f32").write_bytes(b"x" * 1_000_000)
    first, second, *_ = command("clean", "--cache", "--dry-run").stdout.splitlines()
    assert (first, second) == (f"{cache} holds 3 MB", f"{cache}: 3 MB would be removed")
    assert command("clean", "--cache").returncode == 0
    assert [path.name for path in cache.iterdir()] == ["profiles"]
    assert command("clean").returncode == 2


def test_status_shows_the_size_of_the_run_folder(command: Cli, folder: RunFolder) -> None:
    (folder.checkpoints / "large").write_bytes(b"x" * 2_000_000)
    found = json.loads(command("status", "run", "--json").stdout)
    assert 2_000_000 < found["bytes"] < 2_100_000
    assert found["free_bytes"] > 0
    assert "  size     2" in command("status", "run").stdout


@pytest.fixture
def nearly_full(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB of which a twentieth is left."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: a disk that is nearly full; mounting one needs root")
    (place / "filler").write_bytes(b"x" * 3_980_000)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_run_warns_before_its_disk_is_full(command: Cli, write_study: WriteStudy, nearly_full: Path) -> None:
    write_study(STUDY, WORK)
    answer = command(*RUN[:3], str(nearly_full / "run"), *RUN[4:])
    assert answer.returncode == 0
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"tradewind: {nearly_full / 'run'}: ")
    assert " kB are left on its disk; make room, for example by tradewind clean RUN" in line


def test_a_run_folders_copy_of_a_study_imports_from_where_the_caller_says(
    cli: Cli, command: Cli, folder: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = str(folder.study_file)
    words = ["run", copy, "--out", str(folder.path), "--quiet", "--engine", "serial"]
    (folder.path / "work.py").write_text("raise SystemExit('code of a run folder was run')\n")
    refused = cli(*words, cwd=tmp_path / "elsewhere")
    assert refused.returncode == 2
    assert "No module named 'work'" in refused.stderr
    assert cli(*words, cwd=tmp_path / "elsewhere", env={"TRADEWIND_CODE": str(tmp_path)}).returncode == 0
    assert command(*words).returncode == 0, "or from where the caller stands"
    assert folder.edition()["file"] == "study.json"
