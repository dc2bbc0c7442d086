"""Which hyperparameters matter: main effects, interactions, and their shares of the variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np

from tradewind.analysis.groups import SEEDS, combined, counted, levels, numbers
from tradewind.analysis.once import once
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.pack import Value
from tradewind.results import Results

MOST_LEVELS, BINS = 16, 8
BALANCED = "full factorial: classical sums of squares, the shares add up to 1"
UNBALANCED = (
    "not a full factorial: least squares; the share of a name is what it adds to all other names, that of a pair "
    "what its cells explain of what the names leave, so the shares need not add up to 1"
)


@dataclass(frozen=True)
class Main:
    """One hyperparameter alone: what each of its levels adds to the grand mean, and its share of the variance."""

    name: str
    levels: list[Value]
    effects: list[float]
    counts: list[int]
    share: float


@dataclass(frozen=True)
class Pair:
    """What two hyperparameters do together beyond the sum of what each does."""

    names: tuple[str, str]
    share: float


@dataclass(frozen=True)
class Effects:
    """The variance of one value by its sources; `residual` is between repeats of one config."""

    value: str
    n: int
    mean: float
    main: list[Main]
    pairs: list[Pair]
    higher: float  # three and more together; with one trial per config also noise
    residual: float
    repeated: bool
    method: str
    importance: list[tuple[str, float]]  # main and half of each pair, the largest first
    aliases: dict[str, str]  # names that always change with another one, which stands for both
    binned: list[str]
    counts: dict[str, int]


@dataclass(frozen=True)
class Factor:
    """A hyperparameter as codes into its levels."""

    name: str
    codes: Array
    levels: list[Value]

    def __len__(self) -> int:
        return len(self.levels)


@once
def effects(results: Results, value: str, names: tuple[str, ...] | None = None) -> Effects:
    """What each hyperparameter and each pair of them does to a value, over all trials that are done."""
    measured = numbers(results, value)
    kept = ~np.isnan(measured)
    if not np.any(kept):
        raise Mistake(f"{results.folder.path}: no trial that is done has a value of {value}")
    wanted = names or [name for name in results.names("config") if name not in SEEDS]
    factors, aliases = _apart([factor for name in wanted if len(factor := _factor(results, name, kept)) > 1])
    mean, binned = float(np.mean(measured[kept])), []
    y = measured[kept] - mean
    balanced = _balanced(factors, len(y))
    if not balanced:
        binned = [f.name for f in factors if _continuous(f)]
        factors = [_in_bins(f) if _continuous(f) else f for f in factors]
    main, pairs, mains_share = _classical(y, factors) if balanced else _least_squares(y, factors)
    within, repeated = _within(y, factors)
    residual = _share(within, y)
    rest = 1 - mains_share - sum(pair.share for pair in pairs) - residual
    higher = max(0.0, rest) if np.any(y) and abs(rest) > 1e-12 else 0.0
    weight = {one.name: one.share + sum(p.share for p in pairs if one.name in p.names) / 2 for one in main}
    return Effects(
        value, len(y), mean, main, pairs, higher, residual, repeated, BALANCED if balanced else UNBALANCED,
        sorted(weight.items(), key=lambda item: -item[1]), aliases, binned, counted(results),
    )  # fmt: skip


def _factor(results: Results, name: str, kept: Array) -> Factor:
    codes, labels = levels(results, name)
    used = np.bincount(codes[kept], minlength=len(labels)) > 0
    return Factor(name, (np.cumsum(used) - 1)[codes[kept]], [x for x, u in zip(labels, used, strict=True) if u])


def _apart(factors: list[Factor]) -> tuple[list[Factor], dict[str, str]]:
    """Without those that say the same as an earlier one."""
    left: list[Factor] = []
    aliases: dict[str, str] = {}
    for factor in factors:
        same = next((f.name for f in left if len(f) == len(factor) and _cells([f, factor])[1] == len(f)), None)
        if same:
            aliases[factor.name] = same
        else:
            left.append(factor)
    return left, aliases


def _cells(factors: Sequence[Factor]) -> tuple[Array, int]:
    """Which rows agree in all factors, numbered without gaps, and how many cells there are."""
    ids, first = combined([(factor.codes, len(factor)) for factor in factors], len(factors[0].codes))
    return ids, len(first)


def _balanced(factors: list[Factor], rows: int) -> bool:
    if prod(map(len, factors)) > rows:
        return False
    if not factors:
        return True
    ids, size = _cells(factors)
    count = np.bincount(ids)
    return size == prod(map(len, factors)) and bool(np.all(count == count[0]))


def _continuous(factor: Factor) -> bool:
    return len(factor) > MOST_LEVELS and all(type(x) in (int, float) for x in factor.levels)


def _in_bins(factor: Factor) -> Factor:
    """Eight bins with about equally many trials; each stands under its lowest value."""
    below = np.cumsum(np.bincount(factor.codes)) - np.bincount(factor.codes)
    bins = np.unique(below * BINS // len(factor.codes), return_inverse=True)[1]
    first = np.unique(bins, return_index=True)[1]
    return Factor(factor.name, bins[factor.codes], [factor.levels[k] for k in first])


def _share(squares: float, y: Array) -> float:
    total = float(y @ y)
    return squares / total if total > 0 else 0.0


def _between(y: Array, ids: Array) -> float:
    """The sum of squares between the means of groups."""
    sums, count = np.bincount(ids, y), np.bincount(ids)
    some = count > 0
    return float(np.sum(sums[some] ** 2 / count[some]))


def _within(y: Array, factors: list[Factor]) -> tuple[float, bool]:
    ids, size = _cells(factors) if factors else (np.zeros(len(y), dtype=np.int64), 1)
    if size == len(y):
        return 0.0, False
    return float(np.sum((y - (np.bincount(ids, y) / np.bincount(ids))[ids]) ** 2)), True


def _classical(y: Array, factors: list[Factor]) -> tuple[list[Main], list[Pair], float]:
    main = []
    for f in factors:
        count = np.bincount(f.codes)
        means = np.bincount(f.codes, y) / count
        share = _share(float(np.sum(count * means**2)), y)
        main.append(Main(f.name, f.levels, means.tolist(), count.tolist(), share))
    pairs = []
    for (a, f), (b, g) in combinations(zip(main, factors, strict=True), 2):
        joint = _share(_between(y, f.codes * len(g) + g.codes), y) - a.share - b.share
        pairs.append(Pair((a.name, b.name), joint if joint > 1e-14 else 0.0))
    return main, pairs, sum(one.share for one in main)


def _least_squares(y: Array, factors: list[Factor]) -> tuple[list[Main], list[Pair], float]:
    """All names at once; the normal equations need only the counts of each pair of levels."""
    counts = [np.bincount(f.codes) for f in factors]
    square = [
        [np.bincount(f.codes * len(g) + g.codes, minlength=len(f) * len(g)).reshape(len(f), len(g)) for g in factors]
        for f in factors
    ]
    sums = [np.bincount(f.codes, y) for f in factors]
    solved, explained = _solve(square, sums, list(range(len(factors))))
    main, left = [], y.copy()
    for k, f in enumerate(factors):
        effect = solved[k] - np.sum(solved[k] * counts[k]) / len(y)
        left -= effect[f.codes]
        alone = explained - _solve(square, sums, [j for j in range(len(factors)) if j != k])[1]
        main.append(Main(f.name, f.levels, effect.tolist(), counts[k].tolist(), max(0.0, _share(alone, y))))
    left = left if left @ left > 1e-20 * (y @ y) else np.zeros_like(left)
    pairs = [
        Pair((f.name, g.name), _share(_between(left, f.codes * len(g) + g.codes), y))
        for f, g in combinations(factors, 2)
    ]
    return main, pairs, _share(explained, y)


def _solve(square: list[list[Array]], sums: list[Array], which: list[int]) -> tuple[list[Array], float]:
    """The coefficients of some factors and the sum of squares that they explain."""
    if not which:
        return [], 0.0
    right = np.concatenate([sums[k] for k in which])
    found = np.linalg.lstsq(np.block([[square[j][k] for k in which] for j in which]).astype(float), right, None)[0]
    return np.split(found, np.cumsum([len(sums[k]) for k in which])[:-1]), float(found @ right)
