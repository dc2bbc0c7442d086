"""Time against score: the configs that nothing beats in both, and those that noise can't tell from the best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tradewind.analysis.groups import Cells, Summary, cells, numbers, summary, t_quantile, varied
from tradewind.analysis.linear import Model, factor
from tradewind.analysis.multiple import best_quantile
from tradewind.analysis.once import once
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.pack import Value
from tradewind.results import Results

CONFIDENCE = 0.95
FEWEST = 5  # differences or degrees of freedom that make a spread
NORMAL_MAD = 0.67449  # the median of |x| of a standard normal x
FEWEST_LEFT = 3  # degrees of freedom of what the hyperparameters leave
MOST_FITTED = 2_000
TYPICAL_TIME, BELIEVED = (
    0.08,
    3,
)  # the noise of a time that is believed beforehand, and how many repeats that is worth


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
    source: str  # repeats, neighbours, names or none

    def behind(self, n: Array | int, m: Array | int, others: int, confidence: float = CONFIDENCE) -> Array:
        """How far behind the best of so many others (n and m repeats) a config that is as good may come out."""
        if self.source == "none":
            return np.asarray(np.inf * np.sqrt(1 / n + 1 / m))
        return np.asarray(best_quantile(confidence, others, self.dof) * self.sigma * np.sqrt(1 / n + 1 / m))


@dataclass(frozen=True)
class Pace:
    """How much the logarithm of a time varies by chance: as much as is believed of any, and as repeats tell."""

    sigma: float
    dof: int

    def margin(self, n: Array | int, m: Array | int, confidence: float = CONFIDENCE) -> Array:
        """How far two equal times may lie apart."""
        return np.asarray(t_quantile(confidence, self.dof) * self.sigma * np.sqrt(1 / n + 1 / m))


@dataclass(frozen=True)
class Field:
    """All configs with their scores and, where there are any, times; `sign` makes higher better."""

    configs: Cells
    score_name: str
    score: Summary
    time_name: str | None
    time: Summary | None
    sign: float
    order: list[int]  # of the cells, as `best` ranks them: those whose repeats are all there come first
    pace: Pace | None = None

    @property
    def known(self) -> Array:
        """The cells that have a score."""
        return np.flatnonzero(self.score.n > 0)

    def slower(self, a: int, b: int) -> bool:
        """Whether config a takes longer than b beyond what times vary by chance."""
        assert self.time is not None
        assert self.pace is not None
        ratio = np.log(self.time.mean[a] / self.time.mean[b])
        return bool(ratio > self.pace.margin(int(self.time.n[a]), int(self.time.n[b])))

    def point(self, cell: int) -> Point:
        """One config as plain values."""
        seconds = float(self.time.mean[cell]) if self.time else float("nan")
        return Point(self.configs.labels(cell), seconds, float(self.score.mean[cell]), int(self.score.n[cell]))

    def quality(self) -> Array:
        """The mean scores, higher better, NaN where there is none."""
        return np.asarray(self.sign * self.score.mean)

    def best(self) -> int:
        """The config with the best mean score, the same as everywhere."""
        return self.order[0]


@once
def field_of(results: Results, time: str | None, score: str | None = None) -> Field:
    """Every config of a run, means over its repeats."""
    name = score or results.objective()[0]
    if not name:
        raise Mistake(f"{results.folder.path}: no score to compare configs by")
    ranking = results.ranking(name)
    configs = cells(results, [*varied(results), *results.apart()])
    of_config = np.zeros(len(ranking.n), dtype=np.int64)
    of_config[ranking.ids] = configs.ids
    seconds = numbers(results, time) if time else None
    times = None if seconds is None else summary(np.where(seconds > 0, seconds, np.nan), configs)
    sign = -1.0 if results.lower_is_better(name) else 1.0
    order = of_config[ranking.order].tolist()
    pace = None if seconds is None else pace_of(seconds, configs)
    return Field(configs, name, summary(numbers(results, name), configs), time, times, sign, order, pace)


def pace_of(seconds: Array, configs: Cells) -> Pace:
    """The noise of times, from repeats and from what is believed beforehand."""
    with np.errstate(divide="ignore", invalid="ignore"):
        some = summary(np.log(np.where(seconds > 0, seconds, np.nan)), configs)
    repeated = some.n > 1
    dof = int(np.sum(some.n[repeated] - 1))
    squares = float(np.sum(some.std[repeated] ** 2 * (some.n[repeated] - 1)))
    return Pace(float(np.sqrt((squares + TYPICAL_TIME**2 * BELIEVED) / (dof + BELIEVED))), dof + BELIEVED)


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
    Else from what the sum of what each hyperparameter does leaves. Only the better half of the configs counts as
    long as that is enough, because poor ones scatter more and are not what is chosen between.
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
        # Neighbouring differences share values, and a median of them is a third as precise as a variance.
        if len(found) >= 3 * FEWEST:
            return Noise(float(np.median(np.abs(found))) / NORMAL_MAD, len(found) // 3, "neighbours")
    return _left_by_names(field)


def _left_by_names(field: Field) -> Noise:
    cells_ = field.known
    cells_ = cells_[np.linspace(0, len(cells_) - 1, min(len(cells_), MOST_FITTED)).round().astype(int)]
    for degree in (2, 1):
        factors = []
        for axis, (name, labels) in enumerate(zip(field.configs.names, field.configs.levels, strict=True)):
            used, codes = np.unique(field.configs.codes[cells_, axis], return_inverse=True)
            factors.append(factor((name,), codes.reshape(-1), [labels[k] for k in used], degree))
        model = Model(field.quality()[cells_], [f for f in factors if f and f.columns.shape[1]])
        if model.dof >= FEWEST_LEFT and None not in factors:
            return Noise(float(np.sqrt(model.squares / model.dof)), model.dof, "names")
    return Noise(float("nan"), 0, "none")


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


def plateau(field: Field, chance: Noise, confidence: float = CONFIDENCE) -> Array:
    """The cells that may be the best (Hsu's comparisons with the best): the best is among them so often."""
    best, quality, known = field.best(), field.quality(), field.known
    gap = quality[best] - quality[known]
    near = gap <= chance.behind(field.score.n[best], field.score.n[known], len(known) - 1, confidence)
    return np.asarray(known[near | (known == best)])


def knee(field: Field, chance: Noise) -> int | None:
    """The quickest config of the plateau; of those that take as long as far as can be told, the best."""
    if field.time is None or chance.source == "none":
        return None
    near = plateau(field, chance)
    near = near[~np.isnan(field.time.mean[near])]
    if not len(near):
        return None
    quickest = int(near[np.argmin(field.time.mean[near])])
    close = [int(cell) for cell in near if not field.slower(int(cell), quickest)]
    return max(close, key=lambda cell: field.quality()[cell])
