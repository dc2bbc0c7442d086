"""Values drawn from a range: a table shows them in bins, or it would have a row for every trial."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from tradewind.columns import Array
from tradewind.quantities import value_text
from tradewind.table import Coded

BINS = 5  # each with as many trials
MOST_LEVELS = 12  # values of a range that are shown one by one
MOST_COUNTED = 20_000  # values: to count those of a million trials takes longer than a table


def drawn(study: Mapping[str, Any]) -> list[str]:
    """The dimensions of a study that are ranges without steps."""
    space = study.get("space", {})
    return [n for n, v in space.items() if isinstance(v, dict) and "low" in v and not v.get("steps")]


def in_bins(columns: Mapping[str, Array | Coded], ranges: Set[str] | None) -> dict[str, Array | Coded]:
    """The columns of hyperparameters, those of ranges in bins; None: not known which are, as of imported results."""
    found = dict(columns)
    for name, column in columns.items():
        if isinstance(column, Coded) or column.dtype.kind != "f" or (ranges is not None and name not in ranges):
            continue
        some = column[:MOST_COUNTED]
        levels = np.unique(some[np.isfinite(some)])
        if len(levels) > MOST_LEVELS and (ranges is not None or np.any(levels % 1)):
            found[name] = binned(column)
    return found


def bins_of(columns: Mapping[str, Array | Coded]) -> list[str]:
    """What must be said of the columns that are in bins."""
    return [f"{n} in {len(c.values)} bins" for n, c in columns.items() if isinstance(c, Coded) and c.ordered]


def binned(values: Array) -> Coded:
    """Numbers of a range as bins that hold about as many each."""
    known = np.isfinite(values)
    edges = np.unique(np.quantile(values[known], np.arange(1, BINS) / BINS)) if known.any() else np.empty(0)
    codes = np.where(known, np.searchsorted(edges, values, side="right"), -1)
    used, packed = np.unique(codes[known], return_inverse=True)
    codes[known] = packed
    spans = [(float(values[codes == k].min()), float(values[codes == k].max())) for k in range(len(used))]
    names = [value_text(low) if low == high else f"{value_text(low)} – {value_text(high)}" for low, high in spans]
    return Coded(codes, names, ordered=True)


def distinct(column: Array | Coded) -> int:
    """How many values a column takes, nothing aside; 0: several, and too many to count."""
    if isinstance(column, Coded):
        return max(1, int(np.count_nonzero(np.bincount(column.codes[column.codes >= 0], minlength=1))))
    values = column[~np.isnan(column)] if column.dtype.kind == "f" else column
    if not len(values) or not np.any(values != values[0]):
        return 1
    return len(np.unique(values)) if len(values) <= MOST_COUNTED else 0
