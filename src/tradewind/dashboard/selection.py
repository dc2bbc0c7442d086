"""Some trials of a run: those that a condition holds for, or that were picked."""

from __future__ import annotations

import copy
from collections.abc import Collection

import numpy as np

from tradewind.analysis.groups import levels
from tradewind.columns import Array
from tradewind.errors import Mistake, nearest
from tradewind.ranking import combined
from tradewind.results import Results
from tradewind.where import Condition


def only(results: Results, kept: Array) -> Results:
    """The same results with some of the trials alone."""
    found = copy.copy(results)
    found._counted = results._counted[kept]
    return found


def selected(results: Results, where: str, trials: Collection[int] = ()) -> Results:
    """The trials for which a condition holds, in the language of a study's `where`; of these, those picked."""
    if not len(results):
        return results
    if where.strip():
        results = only(results, holds(results, where))
    if trials:
        results = only(results, np.isin(results.column("trial"), list(trials)))
    return results


def holds(results: Results, where: str) -> Array:
    """Row by row whether a condition holds; a trial that lacks one of the values is not meant.

    It is worked out once for each combination of values that occurs, mostly a few hundred.
    """
    condition = Condition(where)
    known = {name: results.named(name) for name in condition.names}
    for name, column in known.items():
        if column not in results.names():
            raise Mistake(f"where {where!r}: there is no {name!r}; {nearest(name, results.names())}")
    coded = {name: levels(results, column) for name, column in known.items()}
    ids, first = combined([(codes, len(labels)) for codes, labels in coded.values()], len(results))
    columns = {name: [labels[k] for k in codes[first].tolist()] for name, (codes, labels) in coded.items()}
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] or [{}]
    answers = [all(value is not None for value in some.values()) and condition(some) for some in values]
    return np.array(answers, dtype=bool)[ids]
