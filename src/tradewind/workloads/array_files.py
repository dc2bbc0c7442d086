"""Arrays of .npz files that others have made: read without pickle, or refused in one line."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import DataError

Array = np.ndarray[Any, Any]


def read_arrays(path: Path, names: Sequence[str], more: Sequence[str] = ()) -> dict[str, Array]:
    """The arrays of these names, and those of `more` that are there."""
    try:
        with path.open("rb") as handle:  # opened here: of a torn file numpy would leave its own open
            file = np.load(handle, allow_pickle=False)
            there = file.files if isinstance(file, np.lib.npyio.NpzFile) else []
            found = {name: file[name] for name in (*names, *more) if name in there}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: can't be read as an array file: {error}") from None
    for name in names:
        if name not in found:
            raise DataError(f"{path}: holds no {name!r}; wanted: {', '.join(names)}")
    return found


def are_counts(*arrays: Array) -> bool:
    """Whether these are rows of whole numbers from 0."""
    return all(array.ndim == 1 and array.dtype.kind in "iu" and not (array < 0).any() for array in arrays)
