"""Which hyperparameters change a value beyond chance, each beside all others, corrected for how many were asked.

Every hyperparameter is a factor of one linear model (levels, or a curve where it is continuous). What a factor adds
to all others is tested against the noise: what the model leaves, or that of repeats where a full factorial leaves
more. The chances of all factors are corrected together (Holm), so that in pure noise a name is given in at most
`NAMED` of studies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.special import fdtrc, ndtri

from tradewind.analysis.groups import SEEDS, labels_of, levels, numbers
from tradewind.analysis.linear import Factor, Model, Part, as_factors, closeness, factor, same
from tradewind.analysis.multiple import any_contrast, any_pair, contrast_quantile, holm, pair_quantile
from tradewind.analysis.once import once
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.pack import Value
from tradewind.ranking import combined
from tradewind.results import Results

NAMED = 0.04  # in at most so many studies of pure noise is any name given
MOST_ROWS = 20_000  # an even sample of these is enough
FEWEST = 2  # degrees of freedom that a test needs
REPEATED = 6  # degrees of freedom between repeats that are enough to be the noise
MISFIT = 0.05  # the chance of what the names leave below which only repeats are the noise
TOGETHER = 0.75  # a squared correlation from which two names may be impossible to separate
WILD = 7.0  # residuals farther out, in robust standard deviations, are compared by rank
PAIRS_NEED = 4


@dataclass(frozen=True)
class Cause:
    """A name (or names that can't be separated, or a pair that acts together) that changes a value beyond chance.

    From one value of it to another the measured value changes by `difference`, with an interval that holds for the
    choice of these two as well; in logarithms for times. None where that can't be said.
    """

    names: tuple[str, ...]
    chance: float  # that so much is seen by chance alone, corrected
    share: float  # of the variance, beyond what noise gives
    start: Value = None
    end: Value = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    together: bool = False  # an interaction


@dataclass(frozen=True)
class Causes:
    """What was asked of a value, and what of it stands out."""

    value: str
    n: int
    asked: list[str]
    named: list[Cause]
    untested: dict[str, str]  # and why
    inseparable: list[tuple[str, ...]]
    dof: int
    repeats: bool  # some config ran more than once


@dataclass(frozen=True)
class _Asked:
    """One value over some factors, with the noise to compare with."""

    y: Array
    model: Model
    variance: float
    dof: int
    ranked: bool
    repeated: bool


@once
def causes(results: Results, value: str, share: float = 1.0) -> Causes:
    """What changes a value beyond chance; `share` is how much of the permitted error this question has."""
    y, rows = _values(results, value)
    coded = _names(results, rows)
    names = list(coded)
    blocks = [f for name in names if name in labels_of(results) for f in [factor((name,), *coded[name], 1)] if f]
    asked = [name for name in names if name not in labels_of(results)]
    factors, untested = as_factors(_groups({name: coded[name] for name in asked}), len(y))
    empty = Causes(value, len(y), asked, [], untested, [], 0, False)
    if not factors or not np.any(y != y[0]):
        return empty
    found = _asked(y, factors, blocks, [coded[name] for name in names])
    if found.dof < FEWEST or found.variance <= 1e-24 * float(found.model.y @ found.model.y):
        exact = found.dof >= FEWEST
        return replace(empty, named=_exact(found) if exact else [], dof=found.dof)
    named, inseparable = _named(found, share)
    grouped = {name for names in inseparable for name in names}
    for k, one in enumerate(found.model.factors):
        if not found.model.part([k]).rank and not grouped & set(one.names):
            untested |= dict.fromkeys(one.names, "it never changed while all others stayed")
    return Causes(value, len(y), asked, named, untested, inseparable, found.dof, found.repeated)


def _values(results: Results, value: str) -> tuple[Array, Array]:
    """The values of some trials (logarithms of times) and their rows."""
    measured = numbers(results, value)
    rows = np.flatnonzero(~np.isnan(measured) & (not results.is_time(value) or measured > 0))
    if not len(rows):
        raise Mistake(f"{results.folder.path}: no trial that is done has a value of {value}")
    if len(rows) > MOST_ROWS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_ROWS).round().astype(int)]
    return np.log(measured[rows]) if results.is_time(value) else measured[rows], rows


Coded = dict[str, tuple[Array, list[Value]]]


def _names(results: Results, rows: Array) -> Coded:
    """The hyperparameters that vary in these rows, as codes into the values that occur."""
    coded: Coded = {}
    for name in results.names("config"):
        if name in SEEDS:
            continue
        codes, labels = levels(results, name)
        used = np.bincount(codes[rows], minlength=len(labels)) > 0
        if used.sum() > 1:
            coded[name] = (np.cumsum(used) - 1)[codes[rows]], [x for x, u in zip(labels, used, strict=True) if u]
    return coded


def _groups(coded: Coded) -> dict[tuple[str, ...], tuple[Array, list[Value]]]:
    """Names that always change together are one."""
    groups: list[list[str]] = []
    for name, column in coded.items():
        alike = next((g for g in groups if same(coded[g[0]], column)), None)
        if alike:
            alike.append(name)
        else:
            groups.append([name])
    return {tuple(group): coded[group[0]] for group in groups}


def _asked(y: Array, factors: list[Factor], blocks: list[Factor], coded: list[tuple[Array, list[Value]]]) -> _Asked:
    """The model and its noise: that between repeats where all configs of a grid were repeated."""
    model = Model(y, factors, blocks)
    scale = 1.4826 * float(np.median(np.abs(model.residuals)))
    ranked = model.dof >= 12 and scale > 0 and float(np.abs(model.residuals).max()) > WILD * scale
    if ranked:
        y = _normal_scores(y)
        model = Model(y, factors, blocks)
    dof, squares = model.dof, model.squares
    ids, first = combined([(codes, len(labels)) for codes, labels in coded], len(y))
    between = len(y) - len(first)
    grid = np.prod([float(len(labels)) for _, labels in coded]) == len(first)
    if grid and between >= REPEATED and dof > between:
        means = np.bincount(ids, y) / np.bincount(ids)
        within = float(np.sum((y - means[ids]) ** 2))
        misfit = (squares - within) / (dof - between) / (within / between) if within > 0 else np.inf
        if fdtrc(dof - between, between, misfit) < MISFIT:
            dof, squares = between, within
    return _Asked(y, model, squares / dof if dof > 0 else 0.0, dof, ranked, between > 0)


def _normal_scores(y: Array) -> Array:
    """Each value's place in the order, as a normal variable would have it."""
    order = np.argsort(np.argsort(y, kind="stable"), kind="stable").astype(float)
    _, same = np.unique(y, return_inverse=True)
    order = (np.bincount(same, order) / np.bincount(same))[same]
    return np.asarray(ndtri((order + 0.5) / len(y)))


def _named(found: _Asked, share: float) -> tuple[list[Cause], list[tuple[str, ...]]]:
    """The factors that stand out, and groups of those that do only together; then pairs of names that interact."""
    factors = found.model.factors
    parts = [found.model.part([k]) for k in range(len(factors))]
    groups = _inseparable(factors, parts)
    joint = [_joint(found, group) for group in groups]
    chances = [_chance(found, f, part)[0] for f, part in zip(factors, parts, strict=True)]
    corrected = [min(1.0, p / share) for p in holm([*chances, *(cause.chance for cause in joint)])]
    stand_out = {k for k in range(len(factors)) if corrected[k] < NAMED}
    # of what was selected by its size, so wide an interval holds the truth as often as it says
    error = NAMED * share * len(stand_out) / len(corrected)
    named = [replace(_cause(found, factors[k], parts[k], error), chance=corrected[k]) for k in stand_out]
    named.sort(key=lambda cause: -abs(cause.difference or 0.0))
    for group, cause, p in zip(groups, joint, corrected[len(factors) :], strict=True):
        if p < NAMED and not stand_out & set(group):
            named.append(replace(cause, chance=p))
    named += _interactions(found, stand_out)
    return named, [
        tuple(n for k in group for n in factors[k].names) for group in groups if not stand_out & set(group)
    ]


def _inseparable(factors: Sequence[Factor], parts: Sequence[Part]) -> list[list[int]]:
    """Groups of factors that changed together so much that what one does may be what another does."""
    groups = [{k} for k in range(len(factors))]
    for a, b in combinations(range(len(factors)), 2):
        lost = not parts[a].rank and not parts[b].rank
        if lost or closeness(factors[a], factors[b]) > TOGETHER:
            both = [g for g in groups if a in g or b in g]
            groups = [g for g in groups if g not in both] + [set().union(*both)]
    return [sorted(group) for group in groups if len(group) > 1]


def _joint(found: _Asked, group: Sequence[int]) -> Cause:
    part = found.model.part(group)
    chance = 1.0
    if part.rank:
        chance = float(fdtrc(part.rank, found.dof, part.squares / part.rank / found.variance))
    names = tuple(name for k in group for name in found.model.factors[k].names)
    return Cause(names, chance, _share(found, part))


def _share(found: _Asked, part: Part) -> float:
    total = float(found.model.y @ found.model.y)
    return max(0.0, part.squares - part.rank * found.variance) / total


def _chance(found: _Asked, one: Factor, part: Part) -> tuple[float, tuple[int, int]]:
    """How likely the clearest difference between two values of a factor is by chance, and which two."""
    size = one.columns.shape[1]
    if not part.rank:
        return 1.0, (0, 0)
    if part.rank < size:
        return float(fdtrc(part.rank, found.dof, part.squares / part.rank / found.variance)), (0, 0)
    at, covariance = one.places @ part.coefficients, one.places @ part.covariance @ one.places.T
    spread = np.diag(covariance)[:, None] + np.diag(covariance)[None, :] - 2 * covariance
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(at[:, None] - at[None, :]) / np.sqrt(found.variance * spread)
    t = np.where(spread > 1e-12 * spread.max(), t, 0.0)
    low, high = (int(k) for k in np.unravel_index(int(np.argmax(t)), t.shape))
    clearest = float(t[low, high])
    if one.levels:
        return any_pair(clearest, len(one.places), found.dof), (low, high)
    return any_contrast(clearest, size, found.dof), (low, high)


def _cause(found: _Asked, one: Factor, part: Part, error: float) -> Cause:
    chance, (a, b) = _chance(found, one, part)
    share = _share(found, part)
    if a == b:
        return Cause(one.names, chance, share)
    contrast = one.places[b] - one.places[a]
    difference = float(contrast @ part.coefficients)
    if one.levels:
        t = pair_quantile(1 - error, len(one.places), found.dof)
    else:
        t = contrast_quantile(1 - error, one.columns.shape[1], found.dof)
    margin = t * float(np.sqrt(found.variance * (contrast @ part.covariance @ contrast)))
    low, high = (None, None) if found.ranked else (difference - margin, difference + margin)
    return Cause(one.names, chance, share, one.labels[a], one.labels[b], difference, low, high)


def _interactions(found: _Asked, stand_out: set[int]) -> list[Cause]:
    """Pairs of names of which one stands out: whether the effect of one depends on the other."""
    factors, tested = found.model.factors, []
    for a, b in combinations(range(len(factors)), 2):
        if not {a, b} & stand_out or not (factors[a].levels and factors[b].levels):
            continue
        products = (factors[a].columns[:, :, None] * factors[b].columns[:, None, :]).reshape(len(found.y), -1)
        part = found.model.further(products)
        own = found.dof == found.model.dof  # the model's own residuals hold the pair as well
        dof = found.dof - part.rank * own
        if not part.rank or dof < PAIRS_NEED:
            continue
        squares = found.variance * found.dof - part.squares * own
        if squares > 0:
            chance = float(fdtrc(part.rank, dof, part.squares / part.rank / (squares / dof)))
            names = (*factors[a].names[:1], *factors[b].names[:1])
            tested.append(Cause(names, chance, _share(found, part), together=True))
    corrected = holm([cause.chance for cause in tested])
    return [replace(c, chance=p) for c, p in zip(tested, corrected, strict=True) if p < NAMED / 2]


def _exact(found: _Asked) -> list[Cause]:
    """Without any noise, what changes the value at all."""
    parts = [found.model.part([k]) for k in range(len(found.model.factors))]
    total = float(found.model.y @ found.model.y)
    named = []
    for one, part in zip(found.model.factors, parts, strict=True):
        if part.rank == one.columns.shape[1] and part.squares > 1e-9 * total:
            at = one.places @ part.coefficients
            a, b = int(np.argmin(at)), int(np.argmax(at))
            gap = float(at[b] - at[a])
            named.append(Cause(one.names, 0.0, part.squares / total, one.labels[a], one.labels[b], gap, gap, gap))
    return sorted(named, key=lambda cause: -abs(cause.difference or 0.0))
