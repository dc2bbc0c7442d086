"""A problem: an estimator, its data and its folds, and how they reach the workers that fit it.

Within this process it is held in memory. Workers read it from a file that only this user can read, in a folder that
this process makes for itself, names to them in their environment, and removes. Nothing that is unpickled, and
nothing that says what to unpickle, comes from a run folder.
"""

from __future__ import annotations

import atexit
import io
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import WorkloadError
from tradewind.estimators.candidates import Candidates, Params, content_hash

FOLDER = "TRADEWIND_PROBLEMS"  # names the folder to the workers
MAPPED_BYTES = 1 << 20  # larger arrays are not copied into each worker

_held: dict[str, Problem] = {}
_own: list[tuple[int, Path]] = []  # a fork needs its own


@dataclass(frozen=True)
class Problem:
    """What every trial of a search shares."""

    estimator: Any
    X: Any
    y: Any
    splits: list[tuple[Any, Any]]
    scorer: Any = None
    candidates: Candidates = field(default_factory=lambda: Candidates({}))
    chosen: Mapping[str, Params] = field(default_factory=dict)  # of networks, which are told which of them they are
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    score_params: Mapping[str, Any] = field(default_factory=dict)
    return_train_score: bool = False
    error_score: Any = "raise"
    verbose: int = 0
    before: Any = None  # the steps of a pipeline whose last one is the estimator,
    prefix: str = ""  # and what its parameters begin with there

    def digests(self) -> dict[str, str]:
        """Part by part the same for the same problem, also in another process."""
        parts: dict[str, Any] = {
            "estimator": (type(self.estimator).__qualname__, self.estimator.get_params()),
            "data": (self.X, self.y),
            "folds": self.splits,
            "scoring": (self.scorer, self.score_params, self.error_score, self.return_train_score),
            "fit parameters": self.fit_params,
        }
        return {name: content_hash(part) for name, part in parts.items()}


@contextmanager
def held(problem: Problem, name: str, elsewhere: bool) -> Iterator[None]:
    """Within, workloads of this name know the problem; those of other processes too if `elsewhere`."""
    _held[name] = problem
    files: list[Path] = []
    try:
        if elsewhere:
            _write(problem, _folder() / name, files)
        yield
    finally:
        _held.pop(name, None)
        for path in files:
            path.unlink(missing_ok=True)


def known(name: str) -> Problem:
    """The problem of this name."""
    if name not in _held and FOLDER in os.environ:
        with suppress(FileNotFoundError):
            _held[name] = _read(Path(os.environ[FOLDER]) / name)
    if name not in _held:
        raise WorkloadError(
            f"{name}: its estimator and data were with the program that ran the search; call its fit again with the "
            "same `out` to go on"
        )
    return _held[name]


def _folder() -> Path:
    if not _own or _own[-1][0] != os.getpid():
        _own.append((os.getpid(), Path(tempfile.mkdtemp(prefix="tradewind-"))))  # for this user alone
        atexit.register(shutil.rmtree, _own[-1][1], ignore_errors=True)
    os.environ[FOLDER] = str(_own[-1][1])
    return _own[-1][1]


def _write(problem: Problem, path: Path, files: list[Path]) -> None:
    # can send what a notebook or a script defines
    from cloudpickle import CloudPickler  # type: ignore[import-untyped]

    class Pickler(CloudPickler):  # type: ignore[misc]
        def persistent_id(self, thing: Any) -> str | None:
            if type(thing) is not np.ndarray or thing.dtype.hasobject or thing.nbytes < MAPPED_BYTES:
                return None
            array = path.with_name(f"{path.name}.{len(files)}.npy")
            files.append(array)
            with _private(array) as file:
                np.save(file, thing, allow_pickle=False)
            return array.name

    content = io.BytesIO()
    pickle.dump(sys.path, content)
    Pickler(content).dump(problem)
    files.append(path)
    with _private(path) as file:
        file.write(content.getvalue())


def _private(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, folder: Path) -> None:
        super().__init__(file)
        self._folder = folder

    def persistent_load(self, name: Any) -> Any:
        return np.load(self._folder / name, mmap_mode="r", allow_pickle=False)


def _read(path: Path) -> Problem:
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise WorkloadError(f"{path}: others than this user may have written it; it is not read")
        sys.path += [place for place in pickle.load(file) if place not in sys.path]  # where the user's modules are
        problem: Problem = _Unpickler(file, path.parent).load()
        return problem


def named_scores(found: dict[str, Any]) -> dict[str, float]:
    """The scores of a fold by name, as a record has them."""
    named: dict[str, float] = {}
    for part in ("test", "train"):
        scores = found.get(f"{part}_scores")
        if scores is not None:
            several = scores if isinstance(scores, dict) else {"score": scores}
            named |= {f"{part}_{name}": float(value) for name, value in several.items()}
    return named
