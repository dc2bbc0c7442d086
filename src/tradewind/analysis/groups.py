"""Results grouped by any hyperparameters: mean, median, spread, n, and how sure the mean is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tradewind.analysis.once import once
from tradewind.columns import Array
from tradewind.errors import Mistake, RunError
from tradewind.pack import Value
from tradewind.ranking import combined
from tradewind.results import OF_A_PACK, Results
from tradewind.table import Coded, codes_of, numbers_of

SEEDS = ("seed", "data_seed", "config.seed", "config.data_seed")
SAMPLE = 10_000
LABELS = (
    "machine",
    "host",
    "hardware",
    "gpu",
    "cpu",
    "device",
    "accelerator",
    "cluster",
    "model",
    "network",
    "architecture",
)


@dataclass(frozen=True)
class Group:
    """The trials with the same labels; `n` are done with a value, the others are counted beside."""

    labels: dict[str, Value]
    n: int
    mean: float | None
    median: float | None
    std: float | None
    low: float | None
    high: float | None
    minimum: float | None
    maximum: float | None
    pruned: int
    stopped: int
    failed: int
    missing: int  # done, but without this value


@dataclass(frozen=True)
class Cells:
    """Which rows have the same labels: `ids` per row, `codes` into `levels` per cell."""

    names: list[str]
    levels: list[list[Value]]
    codes: Array
    ids: Array

    def __len__(self) -> int:
        return len(self.codes)

    def labels(self, cell: int) -> dict[str, Value]:
        """The labels of one cell."""
        codes = self.codes[cell].tolist()
        return {name: self.levels[k][codes[k]] for k, name in enumerate(self.names)}


@dataclass(frozen=True)
class Summary:
    """The statistics of every cell, NaN where it has no value."""

    n: Array
    mean: Array
    median: Array
    std: Array
    minimum: Array
    maximum: Array

    def margin(self, confidence: float) -> Array:
        """Half the width of the confidence interval of each mean, by Student's t; NaN below two values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            t = {int(n): t_quantile(confidence, int(n) - 1) for n in np.unique(self.n) if n > 1}
            return np.asarray(np.vectorize(t.get, otypes=[float])(self.n, np.nan) * self.std / np.sqrt(self.n))


def group(results: Results, by: Sequence[str], value: str, confidence: float = 0.95) -> list[Group]:
    """One value over all trials with the same `by`, with the confidence interval of its mean."""
    if not 0 < confidence < 1:
        raise Mistake(f"confidence {confidence}: allowed is more than 0 and less than 1")
    found, values = cells(results, by), numbers(results, value)
    some, state = summary(values, found), results.column("state")
    margin = some.margin(confidence)
    left = [
        np.bincount(found.ids[rows], minlength=len(found)).tolist()
        for rows in (state == "pruned", state == "stopped", state == "failed", (state == "done") & np.isnan(values))
    ]
    columns = [some.mean, some.median, some.std, some.mean - margin, some.mean + margin, some.minimum, some.maximum]
    plain = [[None if x != x else x for x in column.tolist()] for column in columns]
    each = zip(some.n.tolist(), *plain, *left, strict=True)
    return [Group(found.labels(k), *rest) for k, rest in enumerate(each)]


def counted(results: Results) -> dict[str, int]:
    """What an analysis stands on: done, pruned, stopped and failed trials, duplicates and damaged lines."""
    return {**results.counts(), "duplicates": results.duplicates, "skipped_lines": results.skipped_lines}


def config_name(results: Results, name: str) -> str | None:
    """The column of a hyperparameter, with its group in front where a field of the record has its name."""
    found = results.named(f"config.{name}")
    return found if found in results.names("config") else None


@once
def labels_of(results: Results) -> frozenset[str]:
    """The hyperparameters that only name something, such as hardware: their effect is taken out, never weighed.

    Only imports have them: of a study's own space everything was chosen.
    """
    if results.folder.edition():
        return frozenset()
    told = {*results.folder.imported().get("labels", ()), *LABELS}
    return frozenset(name for name in results.names("config") if name.removeprefix("config.") in told)


def for_this_split(results: Results) -> str:
    """What repeats of one config had in common where only their weights were drawn anew: "this split", or nothing."""
    names = results.names()
    if not len(results) or not {"seed", "data_seed"} <= set(names):
        return ""
    seeds, splits = (np.unique(results.column(name).astype(float)).size for name in ("seed", "data_seed"))
    return "this split" if seeds > 1 and splits == 1 else ""


def varied(results: Results) -> list[str]:
    """The hyperparameters with at least two values, seeds aside."""
    names = [name for name in results.names("config") if name not in SEEDS]
    return [name for name in names if len(results) and _differs(_column(results, name))]


def level_counts(results: Results) -> dict[str, int]:
    """How many values each hyperparameter takes in the trials that are done, of those that take several."""
    if not len(results):
        return {}
    done = results.decisive()
    coded = {name: levels(results, name)[0][done] for name in varied(results)}
    counts = {name: int(np.sum(np.bincount(codes, minlength=1) > 0)) for name, codes in coded.items()}
    return {name: count for name, count in counts.items() if count > 1}


@once
def levels(results: Results, name: str) -> tuple[Array, list[Value]]:
    """A column as codes into its values in order."""
    column = _column(results, name)
    if not isinstance(column, Coded) and column.dtype.kind == "f" and len(column) > SAMPLE:
        some = np.unique(column[:SAMPLE])  # mostly these are all there are: a fifth of the time of sorting everything
        codes = np.minimum(np.searchsorted(some, column), len(some) - 1)
        if np.array_equal(some[codes], column):
            return codes, codes_of(some)[1]
    return codes_of(column)


def _column(results: Results, name: str) -> Array | Coded:
    return results.coded(name, np.ones(len(results), dtype=bool))


def _differs(column: Array | Coded) -> bool:
    if not isinstance(column, Coded) and column.dtype.kind != "f":
        return len(codes_of(column)[1]) > 1
    values = column.codes if isinstance(column, Coded) else column
    return bool(np.any(values != values[0])) and not bool(np.all(np.isnan(values)))


def numbers(results: Results, name: str) -> Array:
    """The finite values of a measure in the trials that answers rest on; NaN elsewhere."""
    name = results.measure(name)
    if results.is_time(name) and name not in OF_A_PACK:
        results.refuse_packed(name)
    values = numbers_of(name, _column(results, name))
    counts = results.decisive(longest=True) & np.isfinite(values)
    if results.is_time(name):
        counts &= ~results.disturbed()
    return np.where(counts, values, np.nan)


def cells(results: Results, by: Sequence[str]) -> Cells:
    """Every combination of the values of `by` that occurs, in order."""
    if not len(results):
        raise RunError(f"{results.folder.path}: no trial has ended yet; `tradewind status` tells how far it is")
    coded = [levels(results, name) for name in by]
    ids, first = combined([(codes, len(labels)) for codes, labels in coded], len(results))
    codes = np.column_stack([np.zeros((len(first), 0), np.int64), *(codes[first] for codes, _ in coded)])
    return Cells(list(by), [labels for _, labels in coded], codes, ids)


def summary(values: Array, found: Cells) -> Summary:
    """The statistics of the values that are not NaN, cell by cell."""
    size, kept = len(found), ~np.isnan(values)
    values, ids = values[kept], found.ids[kept]
    order = np.argsort(values)
    # Two sorts, the second a radix sort where the codes are short: several times as fast as one by both.
    order = order[np.argsort(ids[order].astype(np.min_scalar_type(size)), kind="stable")]
    ordered, n = values[order], np.bincount(ids, minlength=size)
    start, some = np.cumsum(n) - n, n > 0
    median, low, high = (np.full(size, np.nan) for _ in range(3))
    low[some], high[some] = ordered[start[some]], ordered[(start + n - 1)[some]]
    median[some] = (ordered[(start + (n - 1) // 2)[some]] + ordered[(start + n // 2)[some]]) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(ids, values, size) / n
        squares = np.bincount(ids, (values - mean[ids]) ** 2, size)
        std = np.where(n > 1, np.sqrt(squares / (n - 1)), np.nan)
    return Summary(n, mean, median, std, low, high)


@lru_cache(maxsize=4096)
def t_quantile(confidence: float, dof: int) -> float:
    """The t that a Student variable stays within, on both sides, with this probability."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    if dof > 100:  # Cornish-Fisher (Abramowitz & Stegun 26.7.5): ten digits here
        terms = (
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
            (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
        )
        return float(z + sum(term / dof ** (k + 1) for k, term in enumerate(terms)))
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, dof) < confidence else (low, middle)
    return math.sqrt(dof) * math.tan(low)


def _t_within(angle: float, dof: int) -> float:
    """How likely a Student variable is within √dof·tan(angle) of 0: the finite series for whole dof."""
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = dof % 2
    term = math.cos(angle) if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(2 + odd, dof, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
