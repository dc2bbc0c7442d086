"""The cost model: what trials will take, by the law alone or corrected by those that have finished.

What the law leaves of the logarithm of seconds is a Gaussian process. It is a sum of effects of single
hyperparameters and of pairs, so that a million configs are read from small tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tradewind.pack import Config, Value
from tradewind.results import Results
from tradewind.schedule.law import ROLES, Law, is_number, size
from tradewind.schedule.regression import LEVEL, TOGETHER, Axis, Fit, Process, informative

Array = np.ndarray[Any, Any]

LEARNED_FROM = 96  # finished trials, at most: from 128 on, small matrices wake all threads of a BLAS, to no use
A_PRIORI_SPREAD = 0.3  # of the logarithm of a time around the bare law
LAWS = [Law(2.0**step, start) for step in range(3, 13) for start in (0.0, 0.1, 0.3, 1.0, 3.0)]
MOST_CATEGORIES, MOST_NUMBERS = 100, 20_000  # values of a dimension whose effect can be learned
LOOKED_AT = 1000  # values of a dimension, to see what it can change


@dataclass(frozen=True)
class Finished:
    """Trials that have ended: what they were and what they took."""

    configs: Sequence[Config]
    seconds: Sequence[float]

    @classmethod
    def of(cls, results: Results, names: Sequence[str]) -> Finished:
        """What a run tells: not more of it than can be learned from."""
        if not len(results):
            return cls((), ())
        seconds = _seconds(results)
        rows = np.flatnonzero((results.column("state") == "done") & (seconds > 0))
        rows = rows[_chosen(len(rows))]
        columns: dict[str, list[Value]] = {}
        config = set(results.names("config"))
        for name in names:
            if (column := results.named(f"config.{name}")) in config:
                columns[name] = results.column(column)[rows].tolist()
        configs = [{name: column[k] for name, column in columns.items()} for k in range(len(rows))]
        return cls(configs, seconds[rows].tolist())


def _seconds(results: Results) -> Array:
    """How long each trial kept its worker; what was imported tells its wall time alone."""
    found = results.column("finished") - results.column("started")
    known = results.names("times")
    if "wall_s" in known:
        found = np.fmax(found, results.column("wall_s").astype(float))
    if "share_s" in known and "packed_with" in results.names("record"):
        shared = np.nan_to_num(results.column("packed_with").astype(float)) > 0
        found = np.where(shared, results.column("share_s").astype(float), found)
    return np.asarray(np.nan_to_num(found))


def _chosen(count: int) -> Array:
    """Which of so many trials to learn from: all, or some at random, the same each time."""
    if count <= LEARNED_FROM:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, LEARNED_FROM, replace=False))


class Costs:
    """Predicts seconds, or relative costs before any trial has finished.

    Configs come as digits: in every row the places of a config's values in their dimensions.
    """

    def __init__(
        self,
        dimensions: Mapping[str, Sequence[Value]],
        constants: Mapping[str, Value],
        finished: Finished | None = None,
    ) -> None:
        self._dimensions = dimensions
        fixed = {name: size(name, value) for name, value in constants.items() if name in ROLES.keys() - dimensions}
        self._scales = {name: _scale(name, dimensions.get(name, [constants.get(name)])) for name in ROLES}
        self._constants = {name: value / self._scales[name] for name, value in fixed.items()}
        self._axes = [
            (column, Axis.of(name, values))
            for column, (name, values) in enumerate(dimensions.items())
            if 1 < len(values) <= (MOST_NUMBERS if all(map(is_number, values[:LOOKED_AT])) else MOST_CATEGORIES)
        ]
        self._law, self._level = Law(), 0.0
        self._fit: Fit | None = None
        self._tables: dict[int, Array] = {}
        self._pair_tables: dict[tuple[int, int], Array] = {}
        if finished is not None and len(finished.seconds):
            self._learn(finished)

    @property
    def learned(self) -> bool:
        """Whether costs are seconds; otherwise they are relative."""
        return self._fit is not None

    @property
    def spread(self) -> float:
        """How far times are from what was foretold, as the standard deviation of their logarithm."""
        if self._fit is None or len(self._fit.errors) < 4:
            return A_PRIORI_SPREAD
        return float(np.clip(1.4826 * np.median(np.abs(self._fit.errors)), 0.01, A_PRIORI_SPREAD))

    def of(self, digits: Array) -> Array:
        """The costs of configs."""
        sizes: dict[str, Array | float] = dict(self._constants)
        for column, (name, values) in enumerate(self._dimensions.items()):
            if name in ROLES:
                sizes[name] = _sizes_of(name, values, digits[:, column]) / self._scales[name]
        found = np.broadcast_to(self._law.cost(sizes), len(digits)).astype(float)
        if self._fit is None:
            return found
        more = np.full(len(digits), self._level)
        for column, table in self._tables.items():
            more += table[digits[:, column]]
        for (a, b), table in self._pair_tables.items():
            more += table[digits[:, a], digits[:, b]]
        return np.asarray(found * np.exp(more))

    def effects(self) -> dict[str, float]:
        """By how much, in logarithm, each dimension alone can change the cost."""
        middle = np.array([len(values) // 2 for values in self._dimensions.values()], dtype=np.int64)
        found = {}
        for column, (name, values) in enumerate(self._dimensions.items()):
            looked_at = np.linspace(0, len(values) - 1, min(len(values), LOOKED_AT)).astype(np.int64)
            digits = np.repeat(middle[None], len(looked_at), axis=0)
            digits[:, column] = looked_at
            found[name] = float(np.ptp(np.log(self.of(digits))))
        return found

    def probes(self, digits: Array, count: int) -> list[int]:
        """Which of these configs to run first to learn most; the choice needs no times.

        Each is the one that is least sure given those before it, and dear ones count for more, since an
        error there costs more.
        """
        here = [axis.encode(axis.values)[digits[:, column]] for column, axis in self._axes]
        cost = self.of(digits)
        return informative([axis for _, axis in self._axes], here, cost / cost.mean(), count)

    def _learn(self, finished: Finished) -> None:
        chosen = _chosen(len(finished.seconds))
        configs = [finished.configs[k] for k in chosen]
        logs = np.log(np.maximum(np.asarray(finished.seconds, dtype=float)[chosen], 1e-6))
        axes = [axis for _, axis in self._axes]
        there = [axis.encode([config.get(axis.name) for config in configs]) for axis in axes]
        process = Process(axes, there, len(chosen))
        laws = LAWS if len(chosen) > 2 else [Law()]
        rests = [logs - np.log(law.cost(self._sizes(configs))) for law in laws]
        levels = [float(np.median(rest)) for rest in rests]
        best = max(range(len(laws)), key=lambda k: process.usual(rests[k] - levels[k]))
        self._law = laws[best]
        self._fit = process.fit(rests[best] - levels[best])
        self._level = levels[best] + LEVEL**2 * float(self._fit.weights.sum())
        self._tabulate(there, self._fit)

    def _sizes(self, configs: Sequence[Config]) -> dict[str, Array | float]:
        found: dict[str, Array | float] = {}
        for name in (name for name in {**self._constants, **self._dimensions} if name in ROLES):
            if all(name in config for config in configs):
                found[name] = np.array([size(name, config[name]) for config in configs]) / self._scales[name]
            elif name in self._constants:
                found[name] = self._constants[name]
        return found

    def _tabulate(self, there: Sequence[Array], fit: Fit) -> None:
        """The mean of the process as tables over values and pairs of values."""
        grams = []
        for (column, axis), observed, reach in zip(self._axes, there, fit.chosen.reaches, strict=True):
            here = axis.encode(axis.values)
            self._tables[column] = reach**2 * axis.kernel(here, observed) @ fit.weights
            grams.append(reach**2 * here @ observed.T)
        paired = [k for k, (_, axis) in enumerate(self._axes) if axis.paired]
        for j, k in combinations(paired, 2):
            table = TOGETHER**2 * (grams[j] * fit.weights) @ grams[k].T
            self._pair_tables[self._axes[j][0], self._axes[k][0]] = table


def _scale(name: str, values: Sequence[Value]) -> float:
    """What the cost of a sample is counted in: a step is compared with a usual sample of this very study."""
    if ROLES[name] not in ("size", "pace"):
        return 1.0
    sizes = [size(name, value) for value in values[:LOOKED_AT]]
    return float(np.exp(np.mean(np.log(sizes))))


def _sizes_of(name: str, values: Sequence[Value], digits: Array) -> Array:
    if len(values) <= LOOKED_AT:
        return np.array([size(name, value) for value in values])[digits]
    used, inverse = np.unique(digits, return_inverse=True)
    return np.array([size(name, values[digit]) for digit in used])[inverse]
