"""What figures show, as plain values: lines with spread, heat maps, training curves, the Pareto front."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.analysis.groups import numbers
from tradewind.analysis.pareto import field_of
from tradewind.analysis.pareto import front as pareto_front
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.journal import decode
from tradewind.measures import is_time
from tradewind.pack import Value
from tradewind.quantities import label_text, value_text
from tradewind.results import Results
from tradewind.table import Table

MOST_LINES = 40
MOST_POINTS = 1500
MOST_NAMES = 12  # of a config in a label
NOT_SCORES = ("epoch", "elapsed_s", "learning_rate")
KEY = re.compile(rb'"key":"([0-9a-f]{32})"')


@dataclass(frozen=True)
class Line:
    """One measure along one hyperparameter: median, least and greatest of n trials at every point."""

    label: str
    x: list[Value]
    median: list[float]
    low: list[float]
    high: list[float]
    n: list[int]


@dataclass(frozen=True)
class CurveBand:
    """How one config learns: median, least and greatest over its n repeats, by epoch and by second."""

    label: str
    metric: str
    best: bool
    epochs: list[int]
    seconds: list[float]
    median: list[float]
    low: list[float]
    high: list[float]
    n: list[int]


@dataclass(frozen=True)
class Front:
    """Every config as (time, score), means over repeats; those on the front come first, fastest first."""

    time: str
    score: str
    labels: list[str]
    times: list[float]
    scores: list[float]
    n: list[int]
    on_front: int
    configs: int  # of which at most MOST_POINTS are here


def series(results: Results, x: str, y: str, color: str | None = None) -> list[Line]:
    """One line per value of `color`: y along x over the trials that are done."""
    other = color or "state"  # what is done has this one state
    parts = [results.table(x, other, value=y, stat=stat, exact=True) for stat in ("median", "min", "max", "n")]
    labels = parts[0].column_labels
    if len(labels) > MOST_LINES:
        raise Mistake(f"{len(labels)} values of {color} are too many lines: at most {MOST_LINES}; choose another")
    lines = []
    for k, label in enumerate(labels):
        medians, lows, highs, counts = ([row[k] for row in part.blocks[0].cells] for part in parts)
        kept = [i for i, count in enumerate(counts) if count]
        median, low, high = ([float(values[i] or 0) for i in kept] for values in (medians, lows, highs))
        places = [parts[0].row_labels[i] for i in kept]
        if kept:
            name = value_text(label) if color else ""
            lines.append(Line(name, places, median, low, high, [int(counts[i] or 0) for i in kept]))
    return lines


def heat(results: Results, rows: str, columns: str, value: str) -> Table:
    """The medians of one measure over two hyperparameters."""
    return results.table(rows, columns, value=value)


def lumped_text(results: Results, shown: list[str]) -> str:
    """What the points of a figure over these hyperparameters lump together, which no n can say."""
    names = results.lumped([results.named(name) for name in shown], results.decisive())
    return f"Each point is over {', '.join(names)}. " if names else ""


def caption(results: Results, names: list[str], n: list[int]) -> str:
    """What must stand beside these measures: n, where and how a time was taken, what was left out."""
    done = results.decisive()
    spread = "–".join(f"{k:,}" for k in sorted({min(n), max(n)})) if n else "0"
    parts = ["single trials (n = 1)" if n and max(n) == 1 else f"n = {spread}"]
    if any(is_time(name) for name in names):
        for name in ("purpose", "machine"):
            found = set(results.column(name)[done].tolist()) if name in results.names() else {"unknown"}
            parts.append(f"{name} {', '.join(sorted(label_text(item) for item in found))}")
    parts += results.left_out()
    for name in [name for name in dict.fromkeys(names) if name in results.names()]:
        column = results.column(name)[done]
        absent = int(np.isnan(column).sum()) if column.dtype.kind == "f" else 0
        parts += [f"{absent:,} without {name} left out"] if absent else []
    return " · ".join(parts)


def described(labels: dict[str, Value]) -> str:
    """A config as text."""
    return " ".join(f"{name}={value_text(value)}" for name, value in list(labels.items())[:MOST_NAMES])


def front(results: Results, time: str, score: str) -> Front:
    """Which configs no other beats in both time and score; of the others an even sample."""
    field = field_of(results, time, score)
    times = field.time.mean if field.time else np.full(len(field.configs), np.nan)
    known = np.flatnonzero(~np.isnan(times) & ~np.isnan(field.score.mean))
    best = np.array(pareto_front(field), dtype=int)
    rest, on_front = known[~np.isin(known, best)], best[_even(len(best), MOST_POINTS // 2)]
    shown = np.concatenate([on_front, rest[_even(len(rest), MOST_POINTS - len(on_front))]]).astype(int)
    labels = [described(field.configs.labels(int(cell))) for cell in shown]
    return Front(
        time, score, labels, times[shown].tolist(), field.score.mean[shown].tolist(),
        field.score.n[shown].tolist(), len(on_front), len(known),
    )  # fmt: skip


def _even(many: int, limit: int) -> Array:
    return np.unique(np.linspace(0, many - 1, min(many, max(limit, 0))).round().astype(int))


def curves(results: Results, limit: int = 12) -> list[CurveBand]:
    """The curves of the best config and an even spread of the others, best first."""
    metric, _ = results.objective()
    if not any(_curve_files(results)) or results.direction(metric) is None:
        return []
    try:
        field = field_of(results, None)
    except Mistake:
        return []  # no trial has a score
    found, values = field.configs, numbers(results, metric)
    ranked = np.array(field.order, dtype=int)
    chosen = ranked[_even(len(ranked), limit)]
    members = [np.flatnonzero((found.ids == cell) & ~np.isnan(values)) for cell in chosen]
    keys = results.keys()
    wanted = _curves_of(results, {keys[row] for some in members for row in some})
    names = [described(found.labels(int(cell))) for cell in chosen]
    bands: list[CurveBand] = []
    for name, some in zip(names, members, strict=True):
        band = _band(name, metric, [wanted[keys[row]] for row in some if keys[row] in wanted], not bands)
        bands += [band] if band else []
    return bands


def _curve_files(results: Results) -> list[Path]:
    return [path for path in reversed(results.folder.files(results.folder.curves, "jsonl")) if path.stat().st_size]


def _curves_of(results: Results, keys: set[str]) -> dict[str, list[dict[str, Any]]]:
    # Results.curve reads every file for one key; many keys want one pass, and only their lines parsed.
    found: dict[str, list[dict[str, Any]]] = {}
    for path in _curve_files(results):
        here: dict[str, list[dict[str, Any]]] = {}
        with open(path, "rb") as file:
            for line in file:
                match = KEY.search(line, 0, 200)
                key = match[1].decode() if match else ""
                if key in keys and key not in here and (content := decode(line)):
                    here[key] = content["curve"]
        found = here | found
    return found


def _band(label: str, metric: str, repeats: list[list[dict[str, Any]]], best: bool) -> CurveBand | None:
    rows = [row for curve in repeats for row in curve if row.get("epoch") is not None]
    names = Counter(name for row in rows for name in row if name not in NOT_SCORES and row[name] is not None)
    order = (metric, f"validation_{metric}", "validation_loss", *names)
    name = next((name for name in order if name in names), None)
    points: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if name and isinstance(row.get(name), int | float) and np.isfinite(row[name]):
            points.setdefault(int(row["epoch"]), []).append(row)
    if not name or not points:
        return None
    epochs = sorted(points)
    values = [[float(row[name]) for row in points[epoch]] for epoch in epochs]
    seconds = [float(np.median([row.get("elapsed_s") or 0.0 for row in points[epoch]])) for epoch in epochs]
    medians = [float(np.median(some)) for some in values]
    lows, highs = [min(some) for some in values], [max(some) for some in values]
    return CurveBand(label, name, best, epochs, seconds, medians, lows, highs, [len(some) for some in values])
