"""What a study will be: how many trials, over which values, and how long they may take."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tradewind import machine
from tradewind.analysis.status import typical_s
from tradewind.crew import choose_workers
from tradewind.errors import RunError
from tradewind.folder import default_path
from tradewind.pack import FINAL
from tradewind.results import Results
from tradewind.schedule.balance import Makespans, makespans
from tradewind.schedule.plan import Array, class_of, class_of_digits, classes_of, costs_of, open_positions
from tradewind.schedule.trials import Trials
from tradewind.search.grid import Classes

LISTED = 200_000  # positions that are looked at one by one
SAMPLED = 4_000  # of more, under conditions


def expectation(trials: Trials, workers: int | None) -> dict[str, Any]:
    """Counts and, where trials of this study have run before, the expected time of the rest."""
    study = trials.study
    count, exact = trials.count()
    many = choose_workers(trials, workers)
    found: dict[str, Any] = {
        "name": study.name, "workload": study.workload or study.command, "purpose": study.purpose,
        "combinations": trials.space.size, "repeats": study.repeats, "trials": count, "exact": exact,
        "space": {name: len(values) for name, values in trials.space.dimensions.items()},
        "workers": many, "machine": machine.name(), "expected_s": None, "done": 0,
    }  # fmt: skip
    try:
        results = Results.load(default_path(study.name))
    except RunError:
        return {**found, **schedules(trials, None, workers or many)}
    found["done"] = results.counts()["done"]
    if found["done"]:
        found["expected_s"] = round(typical_s(results) * max(0, count - len(results)) / many, 1)
    return {**found, **schedules(trials, results, workers or many)}


def schedules(trials: Trials, results: Results | None, workers: int) -> dict[str, Any]:
    """What is left of the work and how long both schedules take with so many workers.

    In seconds once trials have finished, and always as multiples of the mean trial; efficiency is the work
    over all that the workers could have done until the end.
    """
    model = costs_of(trials, results)
    classes, unit = classes_of(trials, model)
    counts = class_counts(trials, classes, results)
    costs = np.array(classes.costs if classes else (1.0,), dtype=float) * unit
    work, left = float(costs @ counts), float(counts.sum())
    ends = makespans(costs, counts, workers, model.spread)
    mean = work / left if left else 1.0
    longest = float(costs[counts > 0].max(initial=0.0))
    return {
        "schedule_workers": workers,
        "makespan": _each(ends, 1 / mean),
        "makespan_s": _each(ends, 1.0) if model.learned else None,
        "efficiency": {
            name: round(work / (workers * end), 3) if end else 1.0 for name, end in vars(ends).items()
        },
        "work_s": round(work, 2) if model.learned else None,
        "longest_s": round(longest, 2) if model.learned else None,
        "longest": round(longest / mean, 2),
        "classes": len(costs),
    }  # fmt: skip


def _each(ends: Makespans, factor: float) -> dict[str, float]:
    return {name: round(end * factor, 2) for name, end in vars(ends).items()}


def class_counts(trials: Trials, classes: Classes | None, results: Results | None) -> Array:
    """How many trials of each class are left: counted, or of many the class's share."""
    finished = _finished(results)
    if trials.size <= LISTED:
        positions = open_positions(trials, finished)
        if not classes:
            return np.array([len(positions)])
        return np.bincount(class_of(positions, trials, classes), minlength=len(classes.costs))
    left = float(max(0, trials.count()[0] - len(finished)))
    if not classes:
        return np.array([left])
    shares = _sampled(trials, classes) if trials.space.where else np.zeros(0)
    if not shares.sum():
        last = len(trials.space.dimensions[classes.names[-1]])
        groups = [stop - start for start, stop in pairwise((*classes.cuts, last))]
        shares = np.tile(groups, len(classes.costs) // len(groups))
    return np.asarray(shares / shares.sum() * left)


def _sampled(trials: Trials, classes: Classes) -> Array:
    """How many of some configs at random belong to each class and are accepted."""
    chance = np.random.default_rng(0)
    space = trials.space
    digits = {name: chance.integers(len(values), size=SAMPLED) for name, values in space.dimensions.items()}
    columns = [[values[digit] for digit in digits[name]] for name, values in space.dimensions.items()]
    accepted = [space.accepts(dict(zip(digits, row, strict=True))) for row in zip(*columns, strict=True)]
    return np.bincount(class_of_digits(digits, trials, classes)[accepted], minlength=len(classes.costs))


def _finished(results: Results | None) -> Array:
    if results is None or not len(results):
        return np.empty(0, np.int64)
    return np.unique(results.column("trial")[np.isin(results.column("state").astype(str), FINAL)]).astype(np.int64)
