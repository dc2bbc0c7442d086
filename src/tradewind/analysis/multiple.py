"""Comparisons of many: Tukey's range, Hsu's comparisons with the best, Holm's correction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy.special import fdtrc, gammaincinv, gammaln, ndtr, stdtr

from tradewind.columns import Array

TAIL = 1e-10  # of the distribution of a standard deviation, beyond which nothing is added up
NORMAL = np.linspace(-8.5, 8.5, 103)
DENSITY = np.exp(-(NORMAL**2) / 2) / np.sqrt(2 * np.pi) * (NORMAL[1] - NORMAL[0])


@lru_cache(maxsize=1024)
def _spreads(dof: int) -> tuple[Array, Array]:
    """Estimated standard deviations, where the true one is 1, and their weights: equal steps of the logarithm."""
    half = dof / 2
    low, high = (np.sqrt(gammaincinv(half, p) / half) for p in (TAIL, 1 - TAIL))
    logs = np.linspace(np.log(low), np.log(high), 96)
    s = np.exp(logs)
    density = np.exp(half * np.log(half) - gammaln(half) + 2 * half * logs - half * s**2) * 2 * (logs[1] - logs[0])
    return s, density / density.sum()


def two_sided(t: float, dof: int) -> float:
    """The probability that a Student variable lies as far from 0 as t."""
    return float(2 * stdtr(dof, -abs(t)))


def any_contrast(t: float, columns: int, dof: int) -> float:
    """Scheffé: the probability that the largest t of any contrast of so many coefficients is as large."""
    return float(fdtrc(columns, dof, t * t / columns))


def any_pair(t: float, groups: int, dof: int) -> float:
    """Tukey and Kramer: the probability that the largest t among all pairs of equal groups is as large."""
    if groups == 2:
        return two_sided(t, dof)
    s, weights = _spreads(dof)
    width = np.sqrt(2) * t * s[:, None]
    inside = groups * ((ndtr(NORMAL) - ndtr(NORMAL - width)) ** (groups - 1)) @ DENSITY
    return float(np.clip(weights @ (1 - inside), 0, 1))


def _beyond_best(t: float, others: int, dof: int) -> float:
    """The probability that any of so many equal groups lies t standard errors above the one they are compared to."""
    s, weights = _spreads(dof)
    below = (ndtr(NORMAL + np.sqrt(2) * t * s[:, None]) ** others) @ DENSITY
    return float(weights @ (1 - below))


@lru_cache(maxsize=4096)
def best_quantile(confidence: float, others: int, dof: int) -> float:
    """Hsu's multiple comparisons with the best: how many standard errors of a difference the best may lie behind."""
    return _inverse(lambda t: _beyond_best(t, others, dof), confidence) if others else 0.0


@lru_cache(maxsize=4096)
def pair_quantile(confidence: float, groups: int, dof: int) -> float:
    """The t that no pair of equal groups exceeds with this probability."""
    return _inverse(lambda t: any_pair(t, groups, dof), confidence)


@lru_cache(maxsize=4096)
def contrast_quantile(confidence: float, columns: int, dof: int) -> float:
    """The t that no contrast of so many coefficients exceeds with this probability."""
    return _inverse(lambda t: any_contrast(t, columns, dof), confidence)


def _inverse(chance: Callable[[float], float], confidence: float) -> float:
    """Where a falling chance is 1 - confidence."""
    low, high = 0.0, 2.0
    while chance(high) > 1 - confidence:
        high *= 2
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle) < 1 - confidence else (middle, high)
    return high


def holm(chances: Sequence[float]) -> list[float]:
    """The chances corrected for how many were asked."""
    adjusted, highest = [1.0] * len(chances), 0.0
    for rank, k in enumerate(sorted(range(len(chances)), key=lambda k: chances[k])):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[k]))
        adjusted[k] = highest
    return adjusted
