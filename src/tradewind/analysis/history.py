"""The history of a search: what every trial reached, in the order in which they ended, and the best so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tradewind.results import Results


@dataclass(frozen=True)
class History:
    """Trials in the order in which they ended; `best` is the best done one so far, None before the first."""

    metric: str
    lower: bool
    trials: list[int]
    values: list[float]
    pruned: list[bool]
    best: list[float | None]


def history(results: Results) -> History | None:
    """The history of the objective; None where fewer than two trials have a value of it, or no direction is known.

    A trial that was pruned stands with its last value, and is never the best so far while one is done.
    """
    metric, lower = results.objective()
    if lower is None or not len(results) or metric not in results.names():
        return None
    values = results.column(metric)
    states = results.column("state")
    known = np.isin(states, ("done", "pruned"))
    if values.dtype.kind != "f" or int(np.sum(known := known & np.isfinite(values))) < 2:
        return None
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(results.column("finished")[rows], kind="stable")]
    pruned = (states[rows] == "pruned").tolist()
    best: list[float | None] = []
    for value, early in zip(values[rows].tolist(), pruned, strict=True):
        last = best[-1] if best else None
        better = last is None or (value < last if lower else value > last)
        best.append(value if better and not early else last)
    trials = results.column("trial")[rows].astype(int).tolist()
    return History(metric, lower, trials, values[rows].tolist(), pruned, best)
