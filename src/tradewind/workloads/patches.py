"""Storm patches from files in NCAR's layout: netCDF patches, each with a CSV of its storm steps.

`RUN_model_patches.nc` holds variables (p, row, col) and the forecast hour of every patch; `track_step_RUN.csv`,
where there is one, holds a row per patch and must agree. Labels come from a field of the next hour.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import DataError, nearest
from tradewind.workloads.cache import cached
from tradewind.workloads.label_rules import RULES

Array = np.ndarray[Any, Any]
RUN_DATE = re.compile(r"(\d{8}-\d{4})")
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Patches:
    """All patches of a folder: inputs (n, rows, columns, channels), what each label rule gives, valid hours."""

    inputs: Array
    values: Array  # (n, rules)
    hours: Array  # since 1970

    def labels(self, rule: str, threshold: float) -> Array:
        """1 where a storm counts as rotating: above the threshold, or from it on for the mean, as published."""
        found = self.values[:, RULES.index(rule)]
        return (found >= threshold if rule == "masked mean" else found > threshold).astype(np.float32)


def load_patches(folder: Path, channels: Sequence[str], label: str) -> Patches:
    """The patches of every file below a folder; read once, then mapped from the cache."""
    files = sorted(folder.rglob("*_model_patches.nc"))
    if not files:
        raise DataError(f"{folder}: holds no *_model_patches.nc; see the layout in the documentation")
    steps = {_run(path): path for path in sorted(folder.rglob("track_step_*.csv"))}
    sources = [*files, *steps.values()]
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    digest = hashlib.blake2b(repr((facts, list(channels), label)).encode(), digest_size=8).hexdigest()

    def make() -> tuple[Array, ...]:
        pieces = [read_file(path, channels, label, steps.get(_run(path))) for path in files]
        return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))

    return Patches(*cached(f"patches-{digest}", ("inputs", "values", "hours"), make))


def read_file(path: Path, channels: Sequence[str], label: str, steps: Path | None) -> tuple[Array, Array, Array]:
    """Inputs, label values and valid hours of one file."""
    import netCDF4

    try:
        with netCDF4.Dataset(path) as file:
            fields = [_field(path, file, name) for name in (*channels, label)]
            mask = _field(path, file, "masks") > 0
            hours = _hours(path, file)
    except (OSError, RuntimeError) as error:  # the library's words for a file that is cut short
        raise DataError(f"{path}: can't be read, it may be truncated: {error}") from None
    if steps is not None:
        _agree(path, steps, hours)
    *inputs, future = fields
    if not mask.any(axis=(1, 2)).all():
        empty = int(np.flatnonzero(~mask.any(axis=(1, 2)))[0])
        raise DataError(f"{path}: masks: patch {empty} has no cell inside the storm")
    inside = np.where(mask, future, -np.inf).max(axis=(1, 2))
    mean = (future * mask).sum(axis=(1, 2)) / mask.sum(axis=(1, 2))
    values = np.stack([inside, mean, future.max(axis=(1, 2))], axis=1)
    return np.stack(inputs, axis=3).astype(np.float32, copy=False), values.astype(np.float64), hours


def _field(path: Path, file: Any, name: str) -> Array:
    if name not in file.variables:
        raise DataError(f"{path}: no variable {name!r}; {nearest(name, file.variables)}")
    read = file.variables[name][:]
    if isinstance(read, np.ma.MaskedArray):
        read = read.filled(np.nan) if read.dtype.kind == "f" else read.data
    found = np.asarray(read)
    if found.ndim != 3 or found.shape[1] != found.shape[2]:
        raise DataError(f"{path}: {name}: found shape {found.shape}; allowed: (patches, side, side)")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(found))[0])
        raise DataError(
            f"{path}: {name}: {int((~np.isfinite(found)).sum())} values are missing, the first at {place}"
        )
    return found


def _hours(path: Path, file: Any) -> Array:
    if "time" not in file.variables:
        raise DataError(f"{path}: no variable 'time'; {nearest('time', file.variables)}")
    units = str(getattr(file.variables["time"], "units", ""))
    match = re.fullmatch(r"hours since (\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)", units)
    if not match:
        raise DataError(f"{path}: time: found units {units!r}; allowed: 'hours since YYYY-MM-DD HH:MM:SS'")
    start = (datetime.fromisoformat(f"{match[1]} {match[2]}") - EPOCH) / timedelta(hours=1)
    return np.asarray(file.variables["time"][:], dtype=np.float64) + start


def _agree(path: Path, steps: Path, hours: Array) -> None:
    """Row k of the CSV is patch k: as many rows, and the same valid times."""
    with open(steps, newline="") as file:
        names, *rows = csv.reader(file) if steps.stat().st_size else [[]]
    rows = [row for row in rows if row]
    if len(rows) != len(hours):
        raise DataError(f"{steps}: {len(rows)} rows, but {path.name} holds {len(hours)} patches")
    for number, (row, hour) in enumerate(zip(rows, hours, strict=True)):
        try:
            valid = datetime.fromisoformat(row[names.index("Valid_Date")].removesuffix("+00:00"))
        except (IndexError, ValueError):
            raise DataError(f"{steps}: row {number}: Valid_Date is missing or no date") from None
        if abs((valid - EPOCH) / timedelta(hours=1) - hour) > 0.01:
            there = EPOCH + timedelta(hours=float(hour))
            raise DataError(f"{steps}: row {number}: Valid_Date {valid}, but {path.name} says {there} for this patch")


def _run(path: Path) -> str:
    match = RUN_DATE.search(path.name)
    if not match:
        raise DataError(f"{path}: no run date such as 20110427-0000 in its name")
    return match[1]
