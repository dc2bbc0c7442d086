"""A small Gaussian process over hyperparameters: an effect of each, straight with room to bend, and of pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tradewind.pack import Value
from tradewind.schedule.law import is_number

Array = np.ndarray[Any, Any]

REACHES = (0.01, 0.05, 0.2, 0.5, 1.0, 2.0)  # how large the effect of a hyperparameter may be
USUAL_REACH, USUAL_NOISE = 0.2, 0.03
NOISES = (0.01, 0.03, 0.1, 0.3)
BEND, BEND_LENGTH = 0.4, 0.7
TOGETHER = 0.5  # effects of pairs beside those of their parts
LEVEL = 3.0
OUTLYING, ANYWHERE = 5.0, 3.0  # so many times the usual error is one of its own, and may be as large as this
SWEEPS, MOST_SIFTED = 2, 3
RARE_REACH = 0.7
SMALLEST = 1e-300
MOST_PAIRED = 1000  # values of a hyperparameter that has effects together with others


@dataclass(frozen=True, eq=False)
class Axis:
    """A hyperparameter as coordinates: one number from -1 to 1 where it is one, else one per value."""

    name: str
    values: tuple[Value, ...]
    numeric: bool
    log: bool

    @classmethod
    def of(cls, name: str, values: Sequence[Value]) -> Axis:
        """The axis of a dimension with more than one value."""
        numeric = all(map(is_number, values))
        return cls(name, tuple(values), numeric, numeric and min(values) > 0)

    @property
    def paired(self) -> bool:
        """Whether it has effects together with others; not if that would take large tables."""
        return len(self.values) <= MOST_PAIRED

    def encode(self, values: Sequence[Value]) -> Array:
        """Coordinates of values, which need not be those of the dimension."""
        if self.numeric:
            low, high = self._scaled(min(self.values)), self._scaled(max(self.values))
            middle, half = (low + high) / 2, (high - low) / 2 or 1.0
            return np.array([(self._scaled(value) - middle) / half for value in values]).reshape(-1, 1)
        place = {_mark(value): number for number, value in enumerate(self.values)}
        found = np.zeros((len(values), len(place)))
        for row, value in enumerate(values):
            if (number := place.get(_mark(value))) is not None:
                found[row, number] = 1.0
        return found

    def _scaled(self, value: Value) -> float:
        number = float(value) if is_number(value) else float(self.values[0])
        return math.log(max(number, SMALLEST)) if self.log else number

    def kernel(self, here: Array, there: Array) -> Array:
        """How alike the effects at two sets of coordinates are."""
        found: Array = here @ there.T
        if self.numeric:
            found = found + BEND**2 * np.exp(-0.5 * ((here - there.T) / BEND_LENGTH) ** 2)
        return found


@dataclass(frozen=True)
class Choice:
    """How far the effect of every axis may reach, and how far single observations lie beside all effects."""

    reaches: tuple[float, ...]
    noise: float


@dataclass(frozen=True, eq=False)
class Fit:
    """A process with everything chosen."""

    chosen: Choice
    weights: Array  # of the observations
    errors: Array  # of every observation, foretold from all others


class Process:
    """The process as seen from some observations, at these coordinates on every axis."""

    def __init__(self, axes: Sequence[Axis], coordinates: Sequence[Array], count: int) -> None:
        self._count, self._axes = count, axes
        self._alone = [axis.kernel(here, here) for axis, here in zip(axes, coordinates, strict=True)]
        self._paired = [(k, coordinates[k] @ coordinates[k].T) for k, axis in enumerate(axes) if axis.paired]

    def matrix(self, reaches: Sequence[float]) -> Array:
        """The covariance of the observations but for their noise."""
        found = np.full((self._count, self._count), LEVEL**2)
        for kernel, reach in zip(self._alone, reaches, strict=True):
            found += reach**2 * kernel
        scaled = [reaches[k] ** 2 * gram for k, gram in self._paired]
        if len(scaled) > 1:  # the products of all pairs, in one pass: (sum)² = squares + twice the pairs
            found += TOGETHER**2 / 2 * (sum(scaled) ** 2 - sum(part**2 for part in scaled))
        return found

    def evidence(self, y: Array, chosen: Choice, outlying: Array) -> float:
        """How likely the observations are, in logarithm; some of them may be held for outliers."""
        bordered = np.empty((self._count + 1, self._count + 1))  # one factorization gives L and L⁻¹y
        bordered[:-1, :-1] = self._noisy(chosen, outlying)
        bordered[-1, :-1] = y
        bordered[-1, -1] = 1.0 + 1.01 * float(y @ y) / chosen.noise**2
        factor = np.linalg.cholesky(bordered)
        scaled, diagonal = factor[-1, :-1], np.diag(factor)[:-1]
        # small effects are more usual than large ones, and few observations prove neither
        return float(-0.5 * scaled @ scaled - np.log(diagonal).sum() - sum(chosen.reaches) / RARE_REACH)

    def usual(self, y: Array) -> float:
        """The evidence with nothing chosen yet."""
        return self.evidence(y, self._usual(), np.zeros(self._count, bool))

    def fit(self, y: Array) -> Fit:
        """The process that makes the observations likeliest; gross outliers are set aside."""
        outlying = np.zeros(self._count, bool)
        best = self._fitted(y, self._climbed(y, self._usual(), outlying), outlying)
        for _ in range(MOST_SIFTED):
            usual = max(1.4826 * float(np.median(np.abs(best.errors[~outlying]))), NOISES[0])
            worst = np.abs(best.errors) > OUTLYING * usual
            if self._count < 6 or not np.any(worst & ~outlying) or np.sum(worst | outlying) > self._count // 6:
                break
            outlying |= worst
            best = self._fitted(y, self._climbed(y, self._usual(), outlying), outlying)
        return best

    def _usual(self) -> Choice:
        return Choice((USUAL_REACH,) * len(self._axes), USUAL_NOISE)

    def _noisy(self, chosen: Choice, outlying: Array) -> Array:
        covariance = self.matrix(chosen.reaches)
        covariance[np.diag_indices(self._count)] += np.where(outlying, ANYWHERE, chosen.noise) ** 2
        return covariance

    def _fitted(self, y: Array, chosen: Choice, outlying: Array) -> Fit:
        inverse = np.linalg.inv(self._noisy(chosen, outlying))
        weights = inverse @ y
        return Fit(chosen, weights, weights / np.diag(inverse))

    def _climbed(self, y: Array, best: Choice, outlying: Array) -> Choice:
        """The choice with the most evidence, found one by one."""
        most = self.evidence(y, best, outlying)
        for _ in range(SWEEPS):
            noises = [replace(best, noise=noise) for noise in NOISES]
            best, most = self._better(y, noises, outlying, (best, most))
            for k in range(len(self._axes)):
                tried = [replace(best, reaches=(*best.reaches[:k], r, *best.reaches[k + 1 :])) for r in REACHES]
                best, most = self._better(y, tried, outlying, (best, most))
        return best

    def _better(
        self, y: Array, tried: Sequence[Choice], outlying: Array, best: tuple[Choice, float]
    ) -> tuple[Choice, float]:
        found = [(one, self.evidence(y, one, outlying)) for one in tried]
        return max([best, *found], key=lambda each: each[1])


def informative(axes: Sequence[Axis], here: Sequence[Array], worth: Array, count: int) -> list[int]:
    """Which points to observe to learn most: each the least sure, times its worth, given those before it."""
    paired = [k for k, axis in enumerate(axes) if axis.paired]
    lengths = [USUAL_REACH**2 * np.sum(part**2, axis=1) for part in here]
    together = sum((lengths[k] for k in paired), np.zeros(len(worth))) ** 2 - sum(lengths[k] ** 2 for k in paired)
    bends = sum((USUAL_REACH * BEND) ** 2 for axis in axes if axis.numeric)
    unsure = LEVEL**2 + bends + sum(lengths, np.zeros(len(worth))) + TOGETHER**2 / 2 * together
    chosen: list[int] = []
    factor: list[Array] = []  # of the covariance, pivot by pivot
    for _ in range(min(count, len(worth))):
        score = unsure * worth
        score[chosen] = -1.0
        best = int(np.argmax(score))
        row = np.full(len(worth), LEVEL**2) + _alike(axes, [part[best : best + 1] for part in here], here)
        for before in factor:
            row = row - before[best] * before
        factor.append(row / math.sqrt(unsure[best] + USUAL_NOISE**2))
        unsure = np.maximum(unsure - factor[-1] ** 2, 0.0)
        chosen.append(best)
    return chosen


def _alike(axes: Sequence[Axis], one: Sequence[Array], others: Sequence[Array]) -> Array:
    """The covariance of one point with others but for their level, all reaches being the usual one."""
    found: Array = np.zeros(len(others[0]) if axes else 1)
    for axis, here, there in zip(axes, one, others, strict=True):
        found = found + USUAL_REACH**2 * axis.kernel(here, there)[0]
    grams = [USUAL_REACH**2 * (one[k] @ others[k].T)[0] for k, axis in enumerate(axes) if axis.paired]
    return found + TOGETHER**2 / 2 * (sum(grams) ** 2 - sum(gram**2 for gram in grams)) if grams else found


def _mark(value: Value) -> str:
    """What stands for a value; in a column of numbers 3 has become 3.0 and none has become NaN."""
    if is_number(value):
        return json.dumps(float(value))
    return "null" if isinstance(value, float) else json.dumps(value)
