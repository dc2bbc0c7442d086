"""What the tests share: a cache of their own, the command line as users call it, studies as files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tradewind.cli
import tradewind.machine

pytest_plugins = ["system", "slurm_cluster"]

TRADEWIND = Path(sys.executable).parent / "tradewind"

Cli = Callable[..., subprocess.CompletedProcess[str]]
WriteStudy = Callable[..., Path]


KINDS = ("process", "cluster", "browser", "kernels", "bench", "slow", "gpu")


class Took:
    """`with Took() as took:` and then `took.s`: what computing takes on a machine that does nothing else.

    The time by the clock or, where other processes have the cores, the time of the cores: of this process and of
    those that it has waited for.
    """

    def __enter__(self) -> Took:
        self._clock, self._cores = time.monotonic(), sum(os.times()[:4])
        return self

    def __exit__(self, *_: object) -> None:
        self.s = min(time.monotonic() - self._clock, sum(os.times()[:4]) - self._cores)


NEEDS = {"chromium": "browser", "slurm": "cluster", "slurm_mpi": "cluster", "cli": "process"}  # fixture: marker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a test needs says what it is; one that needs nothing is a unit test."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in NEEDS:
                item.add_marker(NEEDS[fixture])
        if not any(item.get_closest_marker(kind) for kind in KINDS):
            item.add_marker("unit")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked gpu are skipped where there is none."""
    if item.get_closest_marker("gpu") and not tradewind.machine.gpus():
        pytest.skip("no CUDA device")


@pytest.fixture
def cuda() -> Any:
    """The GPU of a test that is marked so, as torch's device."""
    import torch

    return torch.device("cuda")


@pytest.fixture(autouse=True, scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks and temporary files of this test process alone, and a data cache that all test processes share.

    Every process that a test starts inherits them. Runs in different test processes would otherwise wait for each
    other's timed trials.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    short = tempfile.mkdtemp(prefix="tw-")  # sockets lie in it, whose paths may have 108 characters
    before = dict(os.environ)
    os.environ |= {"TRADEWIND_CACHE": str(shared / "cache"), "TRADEWIND_LOCKS": f"{short}/locks", "TMPDIR": short}
    tempfile.tempdir = None  # or Python goes on with the folder that it has found before
    yield
    os.environ.clear()
    os.environ |= before
    tempfile.tempdir = None
    shutil.rmtree(short, ignore_errors=True)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One of torch's threads: sums in parallel depend on their number, which a trainer sets for its process, and two
    beside another busy process wait for each other.
    """
    with tradewind.machine.one_thread():
        yield


@pytest.fixture(scope="module")
def one_core() -> Iterator[None]:
    """For all tests of a module: two threads beside another busy process wait for each other."""
    cores = os.sched_getaffinity(0)
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))  # each test process its own core
    os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
    with tradewind.machine.one_thread():
        yield
    os.sched_setaffinity(0, cores)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """`cli("run", study, "--quiet")`: the installed command, in this test's folder, without a terminal."""

    def call(
        *arguments: object, cwd: Path = tmp_path, env: dict[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(TRADEWIND), *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    return call


@pytest.fixture
def write_study(tmp_path: Path) -> WriteStudy:
    """Writes a study as JSON, and a module `work.py` beside it if given; returns the study's path."""

    def write(content: dict[str, Any], module: str = "", folder: Path = tmp_path, file: str = "study.json") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        if module:
            (folder / "work.py").write_text(module)
        path = folder / file
        path.write_text(json.dumps(content))
        return path

    return write


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """As `cli`, but inside this process: half a second less for each call."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [str(TRADEWIND), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            tradewind.cli.main()
        return subprocess.CompletedProcess(words, ended.value.code or 0, *capsys.readouterr())

    yield call
    for name in set(sys.modules) - before:  # the next test has a module of the same name
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path.parent)):
            del sys.modules[name]
