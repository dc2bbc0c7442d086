"""Plans: what all jobs on a run folder must see alike, each fixed by whoever comes first and never changed.

An order says how `dispatch` goes through an edition. A plan says what `synchronous` deals to so many ranks:
what trials cost and which were finished when it was made. All else every rank derives from it.
"""

from __future__ import annotations

import io
import json
import os
import random
import secrets
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.claims import owner_gone
from tradewind.errors import Mistake, RunError, StudyError
from tradewind.folder import RunFolder
from tradewind.pack import BY_LENGTH, FINAL
from tradewind.results import Results
from tradewind.schedule.costs import Costs, Finished
from tradewind.schedule.law import ROLES
from tradewind.schedule.trials import Trials
from tradewind.search.grid import Classes, strides
from tradewind.space import Space

Array = np.ndarray[Any, Any]

MOST_CLASSES = 20_000
SLIGHT = 0.02  # dimensions that change a cost by less, in logarithm, make no classes
UNIT = 1_000_000  # the mean cost of a class
LOOKED_AT = 2_000  # configs among which probes are chosen
ENOUGH = 3  # finished trials that tell more than those of an earlier run
MOST_DEALT = 20_000_000  # a plan deals every single trial; dispatch has no such limit


def costs_of(trials: Trials, results: Results | None, earlier: Results | None = None) -> Costs:
    """The cost model of a study: by its law, or by what has finished here or, while that is little, before."""
    names = [name for name in trials.defaults if name in ROLES or name in trials.space.dimensions]
    found = [Finished.of(each, names) for each in (results, earlier) if each is not None]
    enough = next((each for each in found if len(each.seconds) >= ENOUGH), None)
    best = enough or max(found, key=lambda each: len(each.seconds), default=None)
    return Costs(trials.space.dimensions, trials.defaults, best)


def classes_of(trials: Trials, costs: Costs, apart: str = "") -> tuple[Classes | None, float]:
    """The classes of cost of a study, by those dimensions that matter most, and what 1 of their costs is worth.

    None where nothing matters: then the cost of any trial. The dimension `apart` is left out.
    """
    dimensions = trials.space.dimensions
    effects = {name: effect for name, effect in costs.effects().items() if effect > SLIGHT and name != apart}
    names: list[str] = []
    count, grouped = 1, ""
    for name in sorted(effects, key=lambda name: -effects[name]):
        size = len(dimensions[name])
        if count * size <= MOST_CLASSES:
            names.append(name)
            count *= size
        elif not grouped and MOST_CLASSES // count > 1:
            grouped = name
            break
    names = [name for name in dimensions if name in names] + [grouped] * bool(grouped)
    last = len(dimensions[names[-1]]) if names else 1
    groups = MOST_CLASSES // count if grouped else last
    edges = [last * k // groups for k in range(groups + 1)]
    found = costs.of(_digits(dimensions, names, np.array([(a + b) // 2 for a, b in pairwise(edges)])))
    whole = np.maximum(1, np.rint(found / found.mean() * UNIT)).astype(np.int64)
    if not np.ptp(whole):
        return None, float(found[0])
    return Classes(tuple(names), tuple(edges[:-1]), tuple(whole.tolist())), float(found.mean() / UNIT)


def _digits(dimensions: dict[str, tuple[Any, ...]], names: Sequence[str], last: Array) -> Array:
    """One row per class, as the digits of a config in the middle of it."""
    sizes = [*(len(dimensions[name]) for name in names[:-1]), len(last)]  # of no names at all: one class
    each = np.unravel_index(np.arange(int(np.prod(sizes))), sizes)
    digits = np.empty((len(each[0]), len(dimensions)), dtype=np.int64)
    for column, (name, values) in enumerate(dimensions.items()):
        place = names.index(name) if name in names else None
        digits[:, column] = len(values) // 2 if place is None else each[place]
        if name in names[-1:]:
            digits[:, column] = last[each[-1]]
    return digits


def class_of(positions: Array, trials: Trials, classes: Classes) -> Array:
    """The class of every position."""
    index = positions // trials.study.repeats
    digits: dict[str, Array] = {}
    for name, values in reversed(trials.space.dimensions.items()):
        index, digits[name] = np.divmod(index, len(values))
    return class_of_digits(digits, trials, classes)


def class_of_digits(digits: Mapping[str, Array], trials: Trials, classes: Classes) -> Array:
    """The class of configs, given by the places of their values in every dimension."""
    *names, last = classes.names
    found = np.zeros(len(digits[last]), dtype=np.int64)
    for name in names:
        found = found * len(trials.space.dimensions[name]) + digits[name]
    group = np.searchsorted(np.array(classes.cuts), digits[last], side="right") - 1
    return np.asarray(found * len(classes.cuts) + group)


def probes_of(trials: Trials, count: int) -> list[int]:
    """The positions to run first so that the cost model learns most; repeats teach nothing new."""
    space, repeats = trials.space, trials.study.repeats
    indexes = list(islice(space.indices(), LOOKED_AT + 1))
    if len(indexes) > LOOKED_AT:  # the first of many are all alike
        chance = random.Random(0)
        drawn = sorted({chance.randrange(space.size) for _ in range(LOOKED_AT)})
        indexes = [index for index in drawn if space.accepts(space[index])] or indexes
    digits = np.empty((len(indexes), len(space.dimensions)), dtype=np.int64)
    for row, index in enumerate(indexes):
        for column, values in reversed(list(enumerate(space.dimensions.values()))):
            index, digits[row, column] = divmod(index, len(values))
    return [indexes[k] * repeats for k in Costs(space.dimensions, trials.defaults).probes(digits, count)]


def fixed_order(trials: Trials, results: Results, earlier: Results | None = None) -> Classes | None:
    """The classes of cost in which all jobs on this edition go through it, from dear to cheap; None: as it stands."""
    if trials.study.purpose == "time" or trials.index is not trials.space:
        return None
    path = results.folder.order(trials.study.digest())
    if not path.exists():
        classes = order_of(trials, costs_of(trials, results, earlier))
        _write_once(path, _packed(classes, {}, np.empty(0, np.int64)))
    return _unpacked(path)[0]


def order_of(trials: Trials, costs: Costs) -> Classes | None:
    """The classes in which to go through a study to tune; trials that share a network are of one, and neighbours."""
    if not shares_networks(trials):
        return classes_of(trials, costs)[0]
    others = [name for name in trials.space.dimensions if name != "epochs"]
    return classes_of(trials, costs, "epochs")[0] or (Classes((others[0],), (0,), (UNIT,)) if others else None)


def shares_networks(trials: Trials) -> bool:
    """Whether all trials that differ only in their epochs are read off one network on its way."""
    dimensions = trials.space.dimensions
    if not trials.known or trials.study.purpose == "time" or trials.index is not trials.space:
        return False
    devices, schedules = (dimensions.get(name, (trials.defaults[name],)) for name in ("devices", "schedule"))
    return "epochs" in dimensions and set(devices) == {1} and not set(BY_LENGTH) & set(schedules)


def networks_of(positions: Array, trials: Trials) -> Array:
    """For every position the first one of its network: that of the same config with the first number of epochs."""
    stride = strides(trials.space)["epochs"] * trials.study.repeats
    epochs = positions // stride % len(trials.space.dimensions["epochs"])
    return np.asarray(positions - epochs * stride)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is dealt to so many ranks."""

    name: str  # for claims: a share of one plan is not that of another
    of: int
    classes: Classes | None
    finished: Array  # positions, sorted
    left: int  # trials that were to be done

    @classmethod
    def fixed(
        cls, trials: Trials, results: Results, of: int, whole_job: bool = False, earlier: Results | None = None
    ) -> Plan:
        """The plan for so many ranks; the first to ask makes it, with all that has finished by then.

        A rank that is started again, alone or late, must find the plan of the others, so a newer one is made
        only for a whole job: by its rank 0, before the others ask, and only once no rank of the old one lives.
        """
        if of < 1:
            raise Mistake(f"--of {of}: allowed: 1 or more")
        folder, edition = results.folder, trials.study.digest()
        made = list(takewhile(Path.exists, (folder.plan(edition, of, k) for k in range(1_000_000))))
        newest = cls._read(made[-1], of) if made else None
        if newest and not (whole_job and not _lives(folder, newest)):
            return newest
        finished = finished_positions(trials, results)
        if newest and len(finished) == len(newest.finished):
            return newest
        left = len(open_positions(trials, finished))
        shared = "epochs" if shares_networks(trials) else ""
        classes, _ = classes_of(trials, costs_of(trials, results, earlier), shared)
        if not isinstance(trials.index, Space):
            classes = None  # positions say nothing of costs
        path = folder.plan(edition, of, len(made))
        _write_once(path, _packed(classes, {"left": left}, finished))
        return cls._read(path, of)

    @classmethod
    def _read(cls, path: Path, of: int) -> Plan:
        classes, facts, finished = _unpacked(path)
        return cls(path.stem, of, classes, finished, facts["left"])


def _lives(folder: RunFolder, plan: Plan) -> bool:
    claims = folder.claims / plan.name
    return claims.is_dir() and not all(map(owner_gone, claims.iterdir()))


def finished_positions(trials: Trials, results: Results) -> Array:
    """Where the trials stand that need not run again."""
    if not len(results):
        return np.empty(0, np.int64)
    states = results.column("state")
    found = [
        position
        for position, state, key in zip(results.items("trial"), states, results.keys(), strict=True)
        # a record of other data has a key of its own, and its place is still open
        if state in FINAL and 0 <= position < trials.size and trials[position].key == key
    ]
    return np.unique(np.array(found, dtype=np.int64))


def open_positions(trials: Trials, finished: Array) -> Array:
    """Every position that the conditions accept and that is not finished, in order."""
    index, repeats = trials.index, trials.study.repeats
    count, _ = trials.count()
    if count > MOST_DEALT or trials.size >= 2**62:
        raise StudyError(
            f"--schedule synchronous: found {count:,} trials; allowed: up to {MOST_DEALT:,}, "
            "since each is dealt by itself; take --schedule dispatch"
        )
    if trials.study.search.method == "grid":
        indexes = np.fromiter(index.indices(), np.int64) if trials.study.where else np.arange(index.size)
        positions = (indexes[:, None] * repeats + np.arange(repeats)).ravel()
    else:
        order = trials.order()
        positions = np.sort(np.fromiter(order.positions(0, order.size), np.int64))
    return np.asarray(positions[~np.isin(positions, finished, assume_unique=True)] if len(finished) else positions)


def generation_size(trials: Trials, folder: RunFolder, of: int, size: int) -> int:
    """How many members the generations of a search have with so many ranks: as whoever came first has said."""
    path = folder.plan(trials.study.digest(), of, 0)
    if not path.exists():
        _write_once(path, _packed(None, {"left": trials.count()[0], "size": size}, np.empty(0, np.int64)))
    return int(_unpacked(path)[1]["size"])


def _packed(classes: Classes | None, facts: dict[str, Any], finished: Array) -> bytes:
    facts = {**facts, "names": classes.names if classes else ()}
    costs, cuts = (np.array(part, np.int64) for part in ((classes.costs, classes.cuts) if classes else ((), ())))
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    np.savez_compressed(buffer, allow_pickle=False, facts=text, costs=costs, cuts=cuts, finished=finished)
    return buffer.getvalue()


def _unpacked(path: Path) -> tuple[Classes | None, dict[str, Any], Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            facts = json.loads(file["facts"].tobytes())
            costs, cuts = tuple(file["costs"].tolist()), tuple(file["cuts"].tolist())
            classes = Classes(tuple(facts["names"]), cuts, costs) if facts["names"] else None
            return classes, facts, file["finished"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise RunError(f"{path}: can't be read; remove it while no job runs on this folder") from None


def _write_once(path: Path, content: bytes) -> None:
    """Write a file whole unless another process was first; whoever reads it sees what the first has written."""
    path.parent.mkdir(exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)
    except FileExistsError:
        pass
    finally:
        aside.unlink(missing_ok=True)
