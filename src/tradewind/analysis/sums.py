"""Few measurements as a sum of non-negative parts, as draws: which parts, how much of each, and how noisy.

Which parts there are, few rows can't tell, so all small sums are fitted and weighed by how well they explain the
rows; where the sums disagree, the draws lie apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tradewind.columns import Array

DRAWS = 600
MOST_PARTS = 6
MOST_ROWS = 400  # beyond these, rows add memory and seconds but hardly knowledge: an even sample serves
ITS_ROWS = 2.0  # what is believed of noise before any row is worth so many rows
SHARED_NOISE = 0.2  # the part of the noise that all rows of one place have in common
OUTLYING = 2.0  # standard deviations beyond which a row loses weight


@dataclass(frozen=True)
class Draws:
    """Possible factors of the parts, one row per draw, with the noise of one more measurement in each."""

    factors: Array
    noise: Array

    def at(self, parts: Array) -> Array:
        """The sum in every draw, without noise."""
        return np.asarray(self.factors @ parts)


def draw_sums(parts: Array, values: Array, places: Array, typical_noise: float, chances: Array) -> Draws:
    """Fit values > 0 in relative error as sums of `parts` (a column each), robustly.

    `places` numbers rows that err together; `chances` is what is believed of each part beforehand.
    """
    kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_ROWS)).round().astype(int))
    parts, values = parts[kept], values[kept]
    places = np.unique(places[kept], return_inverse=True)[1].reshape(-1)
    scale = np.where(parts.max(axis=0) > 0, parts.max(axis=0), 1.0)
    beliefs = _beliefs(parts / scale, chances)
    sums = _Sums(parts / scale / values[:, None], beliefs, _independent(places), typical_noise)
    weights = np.ones(len(values))
    for _ in range(3):
        fitted, spread = sums.average(weights)
        weights = np.minimum(1.0, OUTLYING * spread / np.maximum(np.abs(1 - fitted), 1e-12))
    random = np.random.default_rng(0)  # the same measurements always give the same answer
    spreads = spread * np.sqrt((sums.rows + ITS_ROWS) / random.chisquare(sums.rows + ITS_ROWS, DRAWS))
    together = random.standard_normal((places.max() + 1, DRAWS))[places]
    alone = random.standard_normal((len(values), DRAWS))
    noise = math.sqrt(SHARED_NOISE) * together + math.sqrt(1 - SHARED_NOISE) * alone
    factors = sums.draw(fitted[:, None] + spreads * noise, weights, random)
    return Draws(factors / scale, spreads * random.standard_normal(DRAWS))


def _independent(places: Array) -> float:
    """How many independent rows these are worth, since those of one place err together."""
    each = len(places) / (places.max() + 1)
    return float(len(places) / (1 + (each - 1) * SHARED_NOISE))


def _beliefs(parts: Array, chances: Array) -> Array:
    """The logarithm of each part's chance; parts that these rows can't tell apart share one."""
    length = np.linalg.norm(parts, axis=0)
    unit = parts / np.where(length > 0, length, 1.0)
    return np.asarray(np.log(chances / np.maximum(1, np.sum(unit.T @ unit > 1 - 1e-9, axis=0))))


@dataclass
class _Sums:
    """All small sums of parts; `shares` is what each part is of each measured value."""

    shares: Array
    beliefs: Array
    rows: float
    typical_noise: float

    def solve(self, targets: Array, weights: Array) -> tuple[Array, Array]:
        """The factors of each sum for each target, and the logarithm of its weight; none below zero."""
        weighted = self.shares * weights[:, None]
        gram, right = weighted.T @ self.shares, weighted.T @ targets
        whole = np.sum(weights[:, None] * targets**2, axis=0)
        used, size = np.flatnonzero(self.shares.max(axis=0) > 0), np.sqrt(np.diag(gram))
        factors, logs = [], []
        for many in range(1, min(MOST_PARTS, len(self.shares), len(used)) + 1):
            chosen = np.array(list(combinations(used, many)))
            part = gram[chosen[:, :, None], chosen[:, None, :]]
            unit = part / (size[chosen][:, :, None] * size[chosen][:, None, :])
            told_apart = np.linalg.eigvalsh(unit)[:, 0] > 1e-9
            part, chosen = part[told_apart], chosen[told_apart]
            found = np.linalg.solve(part, right[chosen])
            left = np.maximum(whole - np.sum(found * right[chosen], axis=1), 0) / weights.sum()
            full = np.zeros((len(chosen), self.shares.shape[1], targets.shape[1]))
            full[np.arange(len(chosen))[:, None], chosen] = found
            log = self._log_weight(left, many) + self.beliefs[chosen].sum(axis=1)[:, None]
            factors.append(full)
            logs.append(np.where(np.all(found >= 0, axis=1), log, -np.inf))
        return np.concatenate(factors), np.concatenate(logs)

    def _log_weight(self, variance: Array, many: int) -> Array:
        """Schwarz's weight (BIC), with the noise that is believed beforehand."""
        rows = self.rows + ITS_ROWS
        believed = (variance * self.rows + self.typical_noise**2 * ITS_ROWS) / rows
        return np.asarray(-rows / 2 * np.log(believed) - many * math.log(rows) / 2)

    def average(self, weights: Array) -> tuple[Array, float]:
        """The weighted mean of all sums as shares of the measured values, and the spread around it."""
        factors, logs = self.solve(np.ones((len(self.shares), 1)), weights)
        chances = np.exp(logs - logs.max())[:, 0]
        fitted = self.shares @ (chances @ factors[:, :, 0] / chances.sum())
        many = float(chances @ np.sum(factors[:, :, 0] > 0, axis=1) / chances.sum())
        missed = float(weights @ (1 - fitted) ** 2) / float(weights.sum()) * self.rows
        free = max(self.rows - many, 0.0) + ITS_ROWS
        return fitted, math.sqrt((missed + self.typical_noise**2 * ITS_ROWS) / free)

    def draw(self, targets: Array, weights: Array, random: np.random.Generator) -> Array:
        """For each target the factors of one sum, taken as often as its weight says."""
        factors, logs = self.solve(targets, weights)
        taken = np.argmax(logs + random.gumbel(size=logs.shape), axis=0)
        return np.maximum(factors[taken, :, np.arange(targets.shape[1])], 0)
