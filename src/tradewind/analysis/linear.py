"""Hyperparameters as columns of a linear model, and what each adds to all the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.columns import Array
from tradewind.pack import Value
from tradewind.ranking import combined

MOST_LEVELS = 16
PER_LEVEL = 3  # trials that a level of a number needs to count as a level of its own
EVEN = 1e-9  # below this share of itself, what is left of a column beside the others is rounding
POSITIONS = (0.1, 0.5, 0.9)  # quantiles between which a continuous hyperparameter is compared
WIDE = 30.0  # positive numbers that differ by more may be meant by their logarithm


@dataclass(frozen=True)
class Factor:
    """One hyperparameter (or several that always change together) as columns.

    `places` are the columns at the values that are compared, `labels` these values; `levels` says that each value
    has a column of its own, otherwise the columns are a straight line or a parabola.
    """

    names: tuple[str, ...]
    columns: Array
    places: Array
    labels: list[Value]
    levels: bool


def factor(names: tuple[str, ...], codes: Array, labels: list[Value], degree: int) -> Factor | None:
    """The columns of a hyperparameter; None where there are about as many texts as trials."""
    rows = len(codes)
    numeric = all(type(x) in (int, float) for x in labels)
    few = len(labels) <= MOST_LEVELS and (rows >= PER_LEVEL * len(labels) or len(labels) == 2)
    if few or (len(labels) <= max(2, rows // 2) and not any(type(x) in (int, float) for x in labels)):
        shares = np.bincount(codes, minlength=len(labels)) / rows
        places = np.eye(len(labels))[:, 1:] - shares[1:]
        return Factor(names, places[codes], places, labels, True)
    if numeric:
        return _curve(names, codes, labels, degree)
    known = np.array([type(x) in (int, float) for x in labels])
    if np.sum(known) < 3 or np.sum(~known) > 1:
        return None
    return _with_gaps(names, codes, labels, known)


def as_factors(
    coded: Mapping[tuple[str, ...], tuple[Array, list[Value]]], rows: int
) -> tuple[list[Factor], dict[str, str]]:
    """All hyperparameters as factors, in curves as simple as few trials ask for; those left out and why."""
    for degree in (2, 1):
        found = {names: factor(names, *column, degree) for names, column in coded.items()}
        columns = sum(f.columns.shape[1] for f in found.values() if f)
        if rows >= 3 * (columns + 1):
            break
    untested = {
        name: "nearly every trial has its own value" for names, f in found.items() if f is None for name in names
    }
    return [f for f in found.values() if f], untested


def same(one: tuple[Array, list[Value]], other: tuple[Array, list[Value]]) -> bool:
    """Whether two names always change together; values that occur once each do so only in the same order."""
    (codes, labels), (others, others_labels) = one, other
    if len(labels) != len(others_labels):
        return False
    if 2 * len(labels) > len(codes) and len(labels) > 2:
        return bool(np.array_equal(codes, others) or np.array_equal(codes, len(labels) - 1 - others))
    return len(combined([(codes, len(labels)), (others, len(labels))], len(codes))[1]) == len(labels)


def _scaled(labels: Sequence[Value]) -> Array:
    """Numbers between 0 and 1 about their median: by their logarithm where that spreads them more evenly."""
    x = np.array(labels, dtype=float)
    scales = [x, np.log(x)] if x.min() > 0 and x.max() / x.min() > WIDE else [x]
    unit = [(scale - scale.min()) / (np.ptp(scale) or 1.0) for scale in scales]
    evenest = min(unit, key=lambda scale: abs(float(np.mean(scale)) - 0.5))
    return np.asarray(evenest - np.median(evenest))


def _curve(names: tuple[str, ...], codes: Array, labels: list[Value], degree: int) -> Factor:
    x = _scaled(labels)[codes]
    order = np.sort(codes)
    chosen = sorted({int(order[int(q * (len(order) - 1))]) for q in POSITIONS})
    powers = np.column_stack([x**k for k in range(1, degree + 1)])
    middle = powers.mean(axis=0)
    at = _scaled(labels)[chosen]
    places = np.column_stack([at**k for k in range(1, degree + 1)]) - middle
    return Factor(names, powers - middle, places, [labels[k] for k in chosen], False)


def _with_gaps(names: tuple[str, ...], codes: Array, labels: list[Value], known: Array) -> Factor:
    """A number that only some trials have: whether it is there, and a straight line where it is."""
    has = known[codes]
    numbers = [label for label, k in zip(labels, known, strict=True) if k]
    position = (np.cumsum(known) - 1)[codes]
    line = np.where(has, _scaled(numbers)[np.where(has, position, 0)], 0.0)
    line = line - np.where(has, line[has].mean(), 0.0)
    columns = np.column_stack([has - has.mean(), line])
    order = np.sort(codes[has])
    low, high = order[0], order[-1]
    places = np.stack([columns[np.flatnonzero(codes == code)[0]] for code in (low, high)])
    return Factor(names, columns, places, [labels[low], labels[high]], False)


@dataclass(frozen=True)
class Part:
    """What one factor adds to all others: its coefficients, their covariance up to the noise, its sum of squares."""

    coefficients: Array
    covariance: Array
    squares: float
    rank: int


class Model:
    """Least squares of centred values on factors.

    All columns are turned once so that only as many rows are left as there are columns, and one for the rest.
    """

    def __init__(self, y: Array, factors: Sequence[Factor], blocks: Sequence[Factor] = ()) -> None:
        self.y = y - y.mean()
        self.factors = list(factors)
        columns = [f.columns - f.columns.mean(axis=0) for f in (*blocks, *factors)]
        self._turn, small = np.linalg.qr(np.column_stack([np.zeros((len(y), 0)), *columns]))
        ends = np.cumsum([f.columns.shape[1] for f in (*blocks, *factors)])[:-1]
        parts = np.split(small, ends, axis=1)
        self._blocks, self._columns = parts[: len(blocks)], parts[len(blocks) : len(blocks) + len(factors)]
        self._along = self._turn.T @ self.y
        fitted, rank = _project(self._beside([]), self._along)
        self.residuals = self.y - self._turn @ fitted
        self.dof = len(y) - 1 - rank
        self.squares = float(self.residuals @ self.residuals)

    def _beside(self, left_out: Sequence[int]) -> Array:
        kept = [columns for k, columns in enumerate(self._columns) if k not in left_out]
        return np.column_stack([np.zeros((len(self._along), 0)), *self._blocks, *kept])

    def part(self, which: Sequence[int]) -> Part:
        """What some factors add to the rest."""
        own = np.column_stack([self._columns[k] for k in which])
        return _part(own, own - _project(self._beside(which), own)[0], self._along)

    def further(self, columns: Array) -> Part:
        """What further columns add to all factors."""
        own = columns - columns.mean(axis=0)
        return _part(own, own - self._turn @ _project(self._beside([]), self._turn.T @ own)[0], self.y)


def _part(own: Array, left: Array, y: Array) -> Part:
    """The least squares of y on what is left of columns beside others."""
    size = np.linalg.norm(own, axis=0)
    left = np.where(np.linalg.norm(left, axis=0) <= EVEN * np.maximum(size, 1e-300), 0.0, left)
    u, s, v = np.linalg.svd(left, full_matrices=False)
    kept = s > 1e-7 * max(float(size.max(initial=0.0)), 1e-300)
    inverse = v[kept].T / s[kept]
    along = u[:, kept].T @ y
    return Part(inverse @ along, inverse @ inverse.T, float(along @ along), int(kept.sum()))


def _project(columns: Array, y: Array) -> tuple[Array, int]:
    """The part of y in the space of columns, and the dimension of that space."""
    if not columns.shape[1]:
        return np.zeros_like(y), 0
    size = np.linalg.norm(columns, axis=0)
    columns = columns[:, size > 0] / size[size > 0]
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    u = u[:, s > 1e-7]
    return u @ (u.T @ y), u.shape[1]


def closeness(a: Factor, b: Factor) -> float:
    """The largest squared correlation between anything that two factors can say."""
    bases = [np.linalg.svd(f.columns - f.columns.mean(axis=0), full_matrices=False) for f in (a, b)]
    (u, s, _), (w, t, _) = bases
    both = u[:, s > 1e-7 * s.max(initial=0.0)].T @ w[:, t > 1e-7 * t.max(initial=0.0)]
    return float(np.linalg.norm(both, 2) ** 2) if both.size else 0.0
