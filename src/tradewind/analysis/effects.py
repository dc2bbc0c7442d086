"""Which hyperparameters matter: main effects, interactions, and their shares of the variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

import numpy as np

from tradewind.analysis.groups import SEEDS, counted, levels, numbers
from tradewind.analysis.linear import Model, as_factors, same
from tradewind.analysis.once import once
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.pack import Value
from tradewind.ranking import combined
from tradewind.results import Results

MOST_ROWS = 20_000  # of what is no full factorial; an even sample of these is enough
BALANCED = "full factorial: classical sums of squares, the shares add up to 1"
UNBALANCED = (
    "not a full factorial: least squares; the share of a name is what it adds to all others beyond what noise gives; "
    "what names do together is not told apart from noise"
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
    higher: float  # three and more together; with one trial per config also noise; unless balanced, all the rest
    residual: float
    repeated: bool
    method: str
    importance: list[tuple[str, float]]  # main and half of each pair, the largest first
    aliases: dict[str, str]  # names that always change with another one, which stands for both
    curves: list[str]  # continuous names, taken as a straight line or a parabola
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
    mean, curves = float(np.mean(measured[kept])), list[str]()
    y = measured[kept] - mean
    balanced = _balanced(factors, len(y))
    pairs = list[Pair]()
    within, repeated = _within(y, factors)
    if balanced:
        main, pairs, mains_share = _classical(y, factors)
    else:
        main, curves, mains_share = _least_squares(y, factors)
    residual = _share(within, y)
    rest = 1 - mains_share - sum(pair.share for pair in pairs) - residual
    higher = max(0.0, rest) if np.any(y) and abs(rest) > 1e-12 else 0.0
    weight = {one.name: one.share + sum(p.share for p in pairs if one.name in p.names) / 2 for one in main}
    return Effects(
        value, len(y), mean, main, pairs, higher, residual, repeated, BALANCED if balanced else UNBALANCED,
        sorted(weight.items(), key=lambda item: -item[1]), aliases, curves, counted(results),
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
        alike = (f.name for f in left if same((f.codes, f.levels), (factor.codes, factor.levels)))
        if name := next(alike, None):
            aliases[factor.name] = name
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


def _least_squares(y: Array, factors: list[Factor]) -> tuple[list[Main], list[str], float]:
    """All names at once in one linear model; shares are made smaller together where they add up to more than 1."""
    rows = np.linspace(0, len(y) - 1, min(len(y), MOST_ROWS)).round().astype(int)
    coded: dict[tuple[str, ...], tuple[Array, list[Value]]] = {(f.name,): (f.codes[rows], f.levels) for f in factors}
    found, _ = as_factors(coded, len(rows))
    model = Model(y[rows], found)
    variance = model.squares / model.dof if model.dof > 0 else 0.0
    main, total = [], float(model.y @ model.y)
    for k, one in enumerate(found):
        part = model.part([k])
        share = max(0.0, part.squares - part.rank * variance) / total if total > 0 else 0.0
        at = one.places @ part.coefficients if part.rank else np.zeros(len(one.places))
        counts = np.bincount(coded[one.names[:1]][0]).tolist() if one.levels else [len(rows)] * len(at)
        main.append(Main(one.names[0], one.labels, at.tolist(), counts, share))
    every = sum(one.share for one in main)
    main = [replace(one, share=one.share / max(1.0, every)) for one in main]
    explained = 1 - variance * (len(rows) - 1) / total if total > 0 else 0.0
    return main, [one.names[0] for one in found if not one.levels], max(0.0, explained)
