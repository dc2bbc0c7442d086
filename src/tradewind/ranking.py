"""Which config is best: the one with the best mean over its repeats. The only definition of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import Any

import numpy as np

from tradewind.column_names import measured
from tradewind.columns import Array, Column, Columns

SEEDS = ("config.seed", "config.data_seed")
APART = ("precision", "code")  # two precisions, or two versions of the code, are never repeats of one another
SAMPLE = 10_000

# The metrics, and whether lower is better; of a function that names none by the scores it has returned
Goals = Callable[[Sequence[str]], list[tuple[str, bool]]]


@dataclass(frozen=True)
class Ranking:
    """The configs of a run by their mean, which is better when higher; each row says which config it is of."""

    ids: Array  # of each row
    values: Array  # of each row, NaN where it takes no part
    n: Array  # of each config, as all below
    mean: Array
    spread: Array  # the standard deviation over repeats, NaN for one
    order: Array  # best first; those without a value are left out
    planned: int  # repeats

    def best_row(self, config: int) -> int:
        """The row of its best repeat, of equal ones the first."""
        return int(np.nanargmax(np.where(self.ids == config, self.values, np.nan)))

    def provisional(self, config: int) -> bool:
        """Whether fewer of its repeats are done than were planned."""
        return bool(self.n[config] < self.planned)


def rank(values: Array, ids: Array, planned: int) -> Ranking:
    """Configs by their means, those whose repeats are all there first; of equal ones the one that comes first."""
    size, known = int(ids.max(initial=-1)) + 1, ~np.isnan(values)
    n, first = np.bincount(ids[known], minlength=size), np.full(size, len(ids))
    np.minimum.at(first, ids, np.arange(len(ids)))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(ids[known], values[known], size) / n
        squares = np.bincount(ids[known], (values[known] - mean[ids[known]]) ** 2, size)
        spread = np.where(n > 1, np.sqrt(squares / (n - 1)), np.nan)
    order = np.lexsort((first, -mean, n < planned))
    return Ranking(ids, values, n, mean, spread, order[n[order] > 0], planned)


def front(rankings: Sequence[Ranking]) -> list[int]:
    """The configs that no other beats in all of several measures, by the first of them; only complete ones if any."""
    able = [config for config in rankings[0].order if all(one.n[config] for one in rankings)]
    able = [config for config in able if not rankings[0].provisional(config)] or able
    means = np.array([[one.mean[config] for one in rankings] for config in able]).reshape(len(able), -1)
    return [int(c) for k, c in enumerate(able) if not any(_beats(other, means[k]) for other in means)]


def _beats(a: Array | tuple[float, ...], b: Array | tuple[float, ...]) -> bool:
    return all(x >= y for x, y in zip(a, b, strict=True)) and any(x > y for x, y in zip(a, b, strict=True))


def repeats_of(columns: Columns, rows: Array) -> Array:
    """For each row the number of its config: what is equal in all its values, in precision and in code."""
    names = [name for name, group in columns.groups.items() if group == "config" and name not in SEEDS]
    names += [name for name in APART if name in columns.groups]
    coded = [_codes(columns.column(name), rows) for name in names]
    return combined([one for one in coded if one[1] > 1], len(rows))[0]


def _codes(column: Column, rows: Array) -> tuple[Array, int]:
    """A column as codes from 0, and how many there may be."""
    values = column.values[rows]
    if column.categories is not None:
        return values.astype(np.int64) + 1, len(column.categories) + 1
    if not len(values) or np.all(values == values[0]):
        return np.zeros(len(values), np.int64), 1
    some = np.unique(values[:SAMPLE])  # mostly all there are: a fifth of the time of sorting everything
    codes = np.minimum(np.searchsorted(some, values), len(some) - 1)
    if not np.array_equal(some[codes], values):
        some, codes = np.unique(values, return_inverse=True)
    return codes, len(some)


def combined(columns: Sequence[tuple[Array, int]], rows: int) -> tuple[Array, Array]:
    """Which rows agree in all columns (codes, how many there are), numbered without gaps, and a row of each."""
    ids, size = np.zeros(rows, dtype=np.int64), 1
    for codes, count in columns:
        if size * count > 2**62:
            ids = np.unique(ids, return_inverse=True)[1]
            size = int(ids.max()) + 1
        ids, size = ids * count + codes, size * count
    return _dense(ids, size)


def _dense(ids: Array, size: int) -> tuple[Array, Array]:
    """The same numbers without gaps, and a row of each."""
    if size > 4 * len(ids) + 1000:
        _, first, dense = np.unique(ids, return_index=True, return_inverse=True)
        return dense, first
    used = np.bincount(ids, minlength=size) > 0
    dense = (np.cumsum(used) - 1)[ids]
    first = np.empty(int(used.sum()), dtype=np.int64)
    first[dense] = np.arange(len(ids))
    return dense, first


@dataclass
class Repeats:
    """What the repeats of one config have reached, by their keys: higher is better."""

    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    trials: dict[str, int] = field(default_factory=dict)

    def means(self) -> tuple[float, ...]:
        """The mean over the repeats, of each measure."""
        return tuple(map(fmean, zip(*self.values.values(), strict=True)))

    def best(self) -> str:
        """The key of the best repeat, of equal ones the first."""
        return max(self.values, key=lambda key: (self.values[key][0], -self.trials[key]))

    def beats(self, other: Repeats) -> bool:
        """Whether its mean is better; in all measures where there are several."""
        a, b = self.means(), other.means()
        return _beats(a, b) or (len(a) == 1 and a == b and min(self.trials.values()) < min(other.trials.values()))


class Standing:
    """The same, trial by trial while a run goes on: the configs that lead, and those that may still do so."""

    def __init__(self, planned: int, keep: int, goals: Goals) -> None:
        self.planned, self._keep = planned, keep  # repeats, and how many of the best configs
        self._find_goals, self.goals = goals, goals([])
        self._open: dict[Any, Repeats] = {}  # fewer repeats than planned
        self._whole: list[Repeats] = []

    def add(self, record: Mapping[str, Any]) -> list[str]:
        """A trial has ended; the keys of those that can be the best repeat of a best config no more."""
        if not self.goals and record["state"] == "done":
            self.goals = self._find_goals(list(record["scores"]))
        found = [(measured(record, name), lower) for name, lower in self.goals]
        values = [0.0 - value if lower else value for value, lower in found if value is not None and isfinite(value)]
        if record["state"] != "done" or not found or len(values) < len(found):
            return [record["key"]]
        return self.put(record["key"], record["trial"], [record.get(one) for one in APART], values)

    def put(self, key: str, trial: int, apart: Sequence[Any], values: Sequence[float]) -> list[str]:
        """The same with its values, higher better, from wherever they are known."""
        name = (trial // self.planned, *map(str, apart))
        config = self._open.setdefault(name, Repeats())
        before = config.best() if config.values else key
        config.values[key], config.trials[key] = tuple(values), trial
        beaten = [one for one in {before, key} if one != config.best()]
        if len(config.values) < self.planned:
            return beaten
        self._whole.append(self._open.pop(name))
        lost = [one for one in self._whole if sum(other.beats(one) for other in self._whole) >= self._keep]
        self._whole = [one for one in self._whole if one not in lost]
        return beaten + [one.best() for one in lost]

    def best(self) -> Repeats | None:
        """The config that leads; None where nothing is done."""
        known = self._whole or self._open.values()
        return max(known, key=lambda one: (one.means()[0], -min(one.trials.values())), default=None)

    def kept(self) -> set[str]:
        """The keys of all that may be the best repeat of a best config."""
        return {one.best() for one in (*self._whole, *self._open.values())}
