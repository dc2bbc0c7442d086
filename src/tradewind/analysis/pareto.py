"""Time against score: the configs that nothing beats in both, and those that noise can't tell from the best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tradewind.analysis.groups import Cells, Summary, cells, numbers, summary, t_quantile, varied
from tradewind.analysis.once import once
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.measures import lower_is_better
from tradewind.pack import Value
from tradewind.results import Results

CONFIDENCE = 0.95
FEWEST = 5  # differences or degrees of freedom that make a spread
NORMAL_MAD = 0.67449  # the median of |x| of a standard normal x


@dataclass(frozen=True)
class Point:
    """A config with its mean time and mean score over `n` repeats."""

    config: dict[str, Value]
    time: float
    score: float
    n: int


@dataclass(frozen=True)
class Noise:
    """How much a score varies by chance, from how many differences, and where that is known from."""

    sigma: float
    dof: int
    source: str  # repeats, neighbours or rounding

    def margin(self, n: Array | int, m: Array | int) -> Array:
        """How far two equally good configs with n and m repeats may lie apart."""
        return np.asarray(t_quantile(CONFIDENCE, self.dof) * self.sigma * np.sqrt(1 / n + 1 / m))


@dataclass(frozen=True)
class Field:
    """All configs with their scores and, where there are any, times; `sign` makes higher better."""

    configs: Cells
    score_name: str
    score: Summary
    time_name: str | None
    time: Summary | None
    sign: float

    def point(self, cell: int) -> Point:
        """One config as plain values."""
        seconds = float(self.time.mean[cell]) if self.time else float("nan")
        return Point(self.configs.labels(cell), seconds, float(self.score.mean[cell]), int(self.score.n[cell]))

    def quality(self) -> Array:
        """The mean scores, higher better, NaN where there is none."""
        return np.asarray(self.sign * self.score.mean)

    def best(self) -> int:
        """The config with the best mean score."""
        return int(np.nanargmax(self.quality()))


@once
def field_of(results: Results, time: str | None, score: str | None = None) -> Field:
    """Every config of a run, means over its repeats."""
    metric, lower = results.objective()
    name = score or metric
    if not name:
        raise Mistake(f"{results.folder.path}: no score to compare configs by")
    configs = cells(results, varied(results))
    measured = summary(numbers(results, name), configs)
    if not np.any(measured.n):
        raise Mistake(f"{results.folder.path}: no trial that is done has a value of {name}")
    seconds = numbers(results, time) if time else None
    times = None if seconds is None else summary(np.where(seconds > 0, seconds, np.nan), configs)
    down = lower if name == metric else lower_is_better(name)
    return Field(configs, name, measured, time, times, -1.0 if down else 1.0)


def front(field: Field) -> list[int]:
    """The cells on the Pareto front, from the quickest to the best."""
    assert field.time is not None
    seconds, quality = field.time.mean, field.quality()
    known = np.flatnonzero(~np.isnan(seconds) & ~np.isnan(quality))
    order = known[np.lexsort((-quality[known], seconds[known]))]
    before = np.maximum.accumulate(np.concatenate([[-np.inf], quality[order]]))[:-1]
    return [int(cell) for cell in order[quality[order] > before]]


def noise(field: Field) -> Noise:
    """How much a score varies by chance.

    From repeats where there are any. Else from neighbours: how far a config lies from the middle of the next
    ones on either side along one hyperparameter, all others equal; robustly, because a few steps are real.
    Else from the digits that were written down. Only the better half of the configs counts as long as that is
    enough, because poor ones scatter more and are not what is chosen between.
    """
    quality, some = field.quality(), field.score
    good = quality >= np.nanmedian(quality)
    for kept in (good, ~np.isnan(quality)):
        repeated = kept & (some.n > 1)
        dof = int(np.sum(some.n[repeated] - 1))
        if dof >= FEWEST or (dof and kept is not good):
            pooled = np.sum(some.std[repeated] ** 2 * (some.n[repeated] - 1)) / dof
            return Noise(float(np.sqrt(pooled)), dof, "repeats")
    for kept in (good, ~np.isnan(quality)):
        found = _beside(field, np.where(kept, quality, np.nan))
        if len(found) >= FEWEST:
            # Neighbouring differences share values, and a median of them is a third as precise as a variance.
            return Noise(float(np.median(np.abs(found))) / NORMAL_MAD, max(1, len(found) // 3), "neighbours")
    return Noise(_step(quality[~np.isnan(quality)]) / np.sqrt(12), 1_000, "rounding")


def _beside(field: Field, quality: Array) -> Array:
    """Each config less the middle of its two neighbours along each numeric axis, as one value's deviation."""
    configs, found = field.configs, []
    # A line is known by a sum of random 64-bit weights: no two of a billion are likely to agree by chance.
    weights = np.random.default_rng(0).integers(2**63, size=len(configs.names), dtype=np.uint64)
    whole = (configs.codes.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
    for axis, labels in enumerate(configs.levels):
        if len(labels) < 3 or not all(type(label) in (int, float) for label in labels):
            continue
        line = whole - configs.codes[:, axis].astype(np.uint64) * weights[axis]
        order = np.lexsort((configs.codes[:, axis], line))
        place, line, ordered = configs.codes[order, axis], line[order], quality[order]
        middle = (line[2:] == line[:-2]) & (place[2:] - place[:-2] == 2)
        found.append((ordered[1:-1] - (ordered[2:] + ordered[:-2]) / 2)[middle] / np.sqrt(1.5))
    joined = np.concatenate([np.empty(0), *found])
    return np.asarray(joined[~np.isnan(joined)])


def _step(values: Array) -> float:
    """One unit of the last decimal that the values are written with."""
    decimals = next((d for d in range(16) if np.all(np.abs(np.round(values, d) - values) < 1e-12)), 16)
    return float(10.0**-decimals)


def plateau(field: Field, chance: Noise) -> Array:
    """The cells whose score noise can't tell from the best."""
    best, quality = field.best(), field.quality()
    with np.errstate(invalid="ignore", divide="ignore"):
        near = quality[best] - quality <= chance.margin(field.score.n[best], field.score.n)
    near[best] = True
    return np.flatnonzero(near & ~np.isnan(quality))


def knee(field: Field, chance: Noise) -> int | None:
    """The quickest config of the plateau: what reaches soonest a score that can't be told from the best."""
    cells_ = plateau(field, chance)
    if field.time is None or np.all(np.isnan(field.time.mean[cells_])):
        return None
    return int(cells_[np.nanargmin(field.time.mean[cells_])])
