"""Arrays that are made once on a machine and read by all."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import DataError

Arrays = tuple[np.ndarray[Any, Any], ...]

_made: list[float] = []  # seconds of each time


def cache_folder() -> Path:
    """Where data are kept from run to run."""
    return Path(os.environ.get("TRADEWIND_CACHE") or Path.home() / ".cache" / "tradewind")


def making_s() -> float:
    """What this process has spent so far on making what is then there for all: no part of loading it."""
    return sum(_made)


def cached(name: str, parts: Sequence[str], make: Callable[[], Arrays]) -> Arrays:
    """The arrays stored under a name that stands for their content, mapped; made if absent or unreadable."""
    folder = cache_folder()
    paths = [folder / f"{name}.{part}.npy" for part in parts]
    try:
        return _mapped(paths)
    except (OSError, ValueError, EOFError):
        pass  # absent, torn or cut short: all the same, made anew
    began = time.perf_counter()
    arrays = make()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, array in zip(paths, arrays, strict=True):
            _store(array, path)
        _made.append(time.perf_counter() - began)
        return _mapped(paths)
    except OSError as error:
        raise DataError(f"{folder}: data can't be kept there ({error}); set TRADEWIND_CACHE") from error


def _mapped(paths: Sequence[Path]) -> Arrays:
    # copy on write: torch warns of read-only arrays, and no page is ever written
    return tuple(np.load(path, mmap_mode="c") for path in paths)


def _store(array: np.ndarray[Any, Any], path: Path) -> None:
    """Write aside and rename: readers see a whole file or none, and any of several writers may be last."""
    aside = path.with_suffix(f".{uuid.uuid4().hex}")
    try:
        with aside.open("xb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
