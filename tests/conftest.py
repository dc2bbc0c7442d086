"""What the tests share: a cache of their own, the command line as users call it, studies as files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data cache and locks of this session, inherited by every process that a test starts."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("TRADEWIND_CACHE", "TRADEWIND_LOCKS"):
            environment.setenv(name, str(tmp_path_factory.mktemp(name)))
        yield Path(os.environ["TRADEWIND_CACHE"])


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
    os.sched_setaffinity(0, {min(cores)})
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
