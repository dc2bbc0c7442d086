"""What a study will be: how many trials, over which values, how they pack, and how long they may take."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from statistics import median
from typing import Any

import numpy as np

from tradewind import machine
from tradewind.analysis.status import typical_s
from tradewind.analysis.tried import tried
from tradewind.crew import choose_workers
from tradewind.errors import RunError
from tradewind.folder import default_path
from tradewind.pack import FINAL, Pack, Trial, network_of
from tradewind.results import Results
from tradewind.schedule.balance import Makespans, makespans
from tradewind.schedule.packing import LOOK_AHEAD, Packing
from tradewind.schedule.plan import Array, class_of, class_of_digits, classes_of, costs_of, open_positions, order_of
from tradewind.schedule.trials import Trials
from tradewind.search.grid import Classes, FromDear
from tradewind.study import Range

LISTED = 200_000  # positions that are looked at one by one
SAMPLED = 4_000  # of more, under conditions; and of finished trials
PLACES = 100_000  # at most, in which open trials are looked for


def expectation(trials: Trials, workers: int | None) -> dict[str, Any]:
    """Counts and, where trials of this study have run before, the expected time of the rest."""
    study = trials.study
    count, exact = trials.count()
    many = choose_workers(trials, workers)
    found: dict[str, Any] = {
        "name": study.name, "workload": study.workload or study.command, "purpose": study.purpose,
        "combinations": trials.points.combinations, "repeats": study.repeats, "trials": count, "exact": exact,
        "space": {name: _extent(study.space[name], values) for name, values in trials.space.dimensions.items()},
        "whole": {axis.name: axis.combinations for axis in trials.points.roots if axis.range and axis.range.whole},
        "search": study.search.model_dump(exclude_defaults=True),
        "finishing": trials.finishing(), "workers": many, "machine": machine.name(), "expected_s": None, "done": 0,
    }  # fmt: skip
    try:
        results = Results.load(default_path(study.name))
    except RunError:
        return {**found, **schedules(trials, None, workers or many), "packs": packs(trials, None, workers or many)}
    found["done"] = results.counts()["done"]
    if found["done"]:
        found["expected_s"] = round(typical_s(results) * max(0, count - len(results)) / many, 1)
    more = {"packs": packs(trials, results, workers or many)}
    return {**found, **schedules(trials, results, workers or many), **more}


def _extent(spec: Any, values: Sequence[Any]) -> int | list[float]:
    """How many values there are, or from where to where."""
    return [spec.low, spec.high] if isinstance(spec, Range) and spec.steps is None else len(values)


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
    if trials.size <= LISTED and trials.index is trials.space and not trials.searching:
        positions = open_positions(trials, finished)
        if not classes:
            return np.array([len(positions)])
        return np.bincount(class_of(positions, trials, classes), minlength=len(classes.costs))
    left = float(max(0, trials.count()[0] - len(finished)))
    if not classes:
        return np.array([left if left > LISTED else int(left)])
    shares = _sampled(trials, classes) if trials.space.where else np.zeros(0)
    if not shares.sum():
        last = len(trials.space.dimensions[classes.names[-1]])
        groups = [stop - start for start, stop in pairwise((*classes.cuts, last))]
        shares = np.tile(groups, len(classes.costs) // len(groups))
    many = np.asarray(shares / shares.sum() * left)
    return many if left > LISTED else np.diff(np.round(np.cumsum(many)).astype(np.int64), prepend=0)


def _sampled(trials: Trials, classes: Classes) -> Array:
    """How many of some configs at random belong to each class and are accepted."""
    chance = np.random.default_rng(0)
    space = trials.space
    digits = {name: chance.integers(len(values), size=SAMPLED) for name, values in space.dimensions.items()}
    columns = [[values[digit] for digit in digits[name]] for name, values in space.dimensions.items()]
    accepted = [space.accepts(dict(zip(digits, row, strict=True))) for row in zip(*columns, strict=True)]
    return np.bincount(class_of_digits(digits, trials, classes)[accepted], minlength=len(classes.costs))


def packs(trials: Trials, results: Results | None, workers: int) -> dict[str, Any]:
    """How the trials that come next are packed, which epochs they share, and what packs have saved before."""
    found: dict[str, Any] = {
        "looked_at": 0, "packs": 0, "networks": 0, "sizes": {}, "epochs_asked": 0, "epochs_trained": 0,
        "together": [], "apart": {}, "faster": None, "faster_n": 0, "why_not": _why_not(trials),
        "tried": {},
    }  # fmt: skip
    if found["why_not"]:
        return found | {"tried": tried(trials, [], workers)}
    formed = _formed(trials, results, workers)
    networks = [network for pack in formed for network in networks_of(pack.trials)]
    varied = {name: len(values) for name, values in trials.space.dimensions.items() if len(values) > 1}
    stacks = [name for name in varied if trials.known[name].stacks or name == "epochs"]
    apart = {name: count for name, count in varied.items() if name not in stacks}
    sizes = Counter(len(pack.trials) for pack in formed)
    found |= {
        "looked_at": sum(len(pack.trials) for pack in formed), "packs": len(formed), "networks": len(networks),
        "sizes": {str(size): sizes[size] for size in sorted(sizes, reverse=True)},
        "epochs_asked": sum(int(trial.config["epochs"]) for pack in formed for trial in pack.trials),
        "epochs_trained": sum(max(int(trial.config["epochs"]) for trial in network) for network in networks),
        "together": stacks, "apart": apart, "tried": tried(trials, formed, workers),
    }  # fmt: skip
    if results is not None:
        found["faster"], found["faster_n"] = _faster(results, list(apart))
    return found


def networks_of(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Trials of a pack by the network that serves them: those that differ only in their epochs share one."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(network_of(trial), []).append(trial)
    return list(found.values())


def _why_not(trials: Trials) -> str:
    if not trials.known:
        return "functions and commands run one by one"
    if trials.study.purpose == "time":
        return "to time, every network trains alone"
    return "formed as the search asks for trials" if trials.searching else ""


def _formed(trials: Trials, results: Results | None, workers: int) -> list[Pack]:
    """The packs of the first LOOK_AHEAD open trials, as a run forms them."""
    done = results.final_keys() if results is not None else set()
    coming = islice((trial for trial in _coming(trials, results) if trial.key not in done), LOOK_AHEAD)
    packing = Packing(trials, workers)
    return list(iter(lambda: packing.next(lambda: next(coming, None)), None))


def _coming(trials: Trials, results: Results | None) -> Iterator[Trial]:
    """In the order in which a run hands them out."""
    classes = order_of(trials, costs_of(trials, results)) if trials.index is trials.space else None
    if classes:
        order: Any = FromDear(trials.space, trials.defaults, trials.study.repeats, classes)
    else:
        order = trials.order()
    return (trials[position] for position in order.positions(0, min(order.size, PLACES)))


def _faster(results: Results, apart: Sequence[str]) -> tuple[float | None, int]:
    """How many times as long an epoch of a trial took alone as in packs, in this run, on this machine.

    Trials are compared with those that agree in all that keeps trials apart; None where there are none.
    """
    found: dict[tuple[str, bool], list[float]] = {}
    for record in islice(results.records(), SAMPLED):
        epochs, packed = record.get("epochs_run"), bool(record.get("packed_with"))
        seconds = record["times"].get("share_s" if packed else "wall_s")
        if record["state"] == "done" and epochs and seconds and record.get("machine") == machine.name():
            group = json.dumps([record["config"].get(name) for name in apart])
            found.setdefault((group, packed), []).append(seconds / epochs)
    both = [group for group, packed in found if packed and (group, False) in found]
    if not both:
        return None, 0
    ratios = [median(found[group, False]) / median(found[group, True]) for group in both]
    return round(median(ratios), 2), sum(len(found[group, packed]) for group in both for packed in (False, True))


def _finished(results: Results | None) -> Array:
    if results is None or not len(results):
        return np.empty(0, np.int64)
    return np.unique(results.column("trial")[np.isin(results.column("state").astype(str), FINAL)]).astype(np.int64)
