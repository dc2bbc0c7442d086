"""Which records of a run count, and where their trials stand in the study."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tradewind.columns import Array, Columns
from tradewind.disturbance import MOST
from tradewind.folder import RunFolder
from tradewind.jsonfile import read_json


def positions(folder: RunFolder, columns: Columns) -> Array:
    """Where each trial stands in the newest edition of the study; an extension moves what was done before."""
    if not len(columns):
        return np.empty(0)
    trials = columns.column("trial").values.copy()
    edition = folder.edition()
    if "edition" not in columns.groups or not edition:
        return trials
    editions = columns.column("edition")
    if editions.categories == [edition["edition"]] and np.all(editions.values == 0):
        return trials
    from tradewind.study import Study  # a tenth of the time of a table, and seldom needed

    moved = editions.decoded() != edition["edition"]
    study = Study.of_edition(edition)
    if not study.search.plain_grid:  # its space is the same, and perhaps it has more repeats
        trials[moved] = _numbers(folder, editions.decoded(), trials)[moved] * study.repeats
        trials[moved] += columns.column("repeat").values[moved]
        return trials
    index = np.zeros(len(columns))
    for name, values in study.dimensions().items():
        digits = {_mark(value): digit for digit, value in enumerate(values)}
        coded = columns.column(f"config.{name}").coded()
        # the last one is that of null, which has no code
        place = np.array([digits.get(_mark(x), np.nan) for x in [*(coded.categories or []), None]])
        index = index * len(values) + place[coded.values]
    found = moved & ~np.isnan(index)
    trials[found] = index[found] * study.repeats + columns.column("repeat").values[found]
    return trials


def _numbers(folder: RunFolder, editions: Array, trials: Array) -> Array:
    """The number of the config of each trial, by the repeats that its own edition of the study had."""
    repeats = {}
    for name in {each for each in editions.tolist() if isinstance(each, str) and each.isalnum()}:
        path = folder.editions / f"{name}.json"
        repeats[name] = int(read_json(path).get("repeats", 1)) if path.exists() else 1
    return np.asarray(trials // np.array([repeats.get(each, 1) for each in editions.tolist()]))


def _mark(value: Any) -> Any:
    """What stands for a value: 1 is 1.0, true is neither."""
    return value if type(value) in (int, float) else json.dumps(value)


def counted(columns: Columns, trials: Array, strange: Array) -> tuple[Array, int]:
    """The rows that count, in order of trial, and how many count no more.

    The first final record of a key counts; where none is final, the last failed one. What was set aside is neither.
    """
    aside = columns.set_aside() | strange
    rows, duplicates = np.flatnonzero(~aside), 0
    distinct, inverse = np.unique(columns.keys[:, 0], return_inverse=True)
    if len(distinct) < len(columns):
        when = np.argsort(columns.column("finished").values, kind="stable")
        when = when[~aside[when]]
        state = columns.column("state")
        failed = np.array([c == "failed" for c in state.categories or []] + [False])[state.values]
        order = np.concatenate([when[~failed[when]], when[failed[when]][::-1]])
        chosen = np.full(len(distinct), -1)
        chosen[inverse[order[::-1]]] = order[::-1]  # the last write wins, so the first in order does
        rows = np.sort(chosen[chosen >= 0])
        duplicates = int(np.sum(~failed & ~aside) - np.sum(~failed[rows]))
    return rows[np.argsort(trials[rows], kind="stable")], duplicates


def disturbed(columns: Columns) -> Array:
    """Which trials were disturbed so much while they were timed that their times decide nothing."""
    if "disturbed" not in columns.groups:
        return np.zeros(len(columns), dtype=bool)
    return np.asarray(np.nan_to_num(columns.column("disturbed").decoded().astype(float)) > MOST)


def interrupted(columns: Columns) -> Array:
    """Which functions and commands went on after they had been cut off: their times are sums, with gaps."""
    if "interruptions" not in columns.groups:
        return np.zeros(len(columns), dtype=bool)
    return np.asarray(np.nan_to_num(columns.column("interruptions").decoded().astype(float)) > 0)
