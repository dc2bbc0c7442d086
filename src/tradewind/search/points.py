"""The searched space as a tree of axes: lists, ranges, and choices that bring their own hyperparameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tradewind.errors import StudyError, nearest
from tradewind.pack import Config, Value
from tradewind.space import Space
from tradewind.study import Range
from tradewind.where import Condition

Pick = int | float  # which value of a list, or the number itself of a range
Specs = Mapping[str, Sequence[Value] | Range]


@dataclass(frozen=True, eq=False)
class Axis:
    """One hyperparameter: the values of a list, each with the axes that it brings, or a range of numbers."""

    name: str
    path: str  # unique among all axes: two choices may bring the same name
    column: int  # which number of the unit cube is its own
    values: tuple[Value, ...] = ()
    branches: tuple[tuple[Axis, ...], ...] = ()
    range: Range | None = None

    def branch(self, pick: Pick) -> tuple[Axis, ...]:
        """The axes that a pick brings."""
        return self.branches[int(pick)] if self.branches else ()

    def value(self, pick: Pick) -> Value:
        """What a pick stands for."""
        if self.range is not None:
            return int(pick) if self.range.whole else float(pick)
        value = self.values[int(pick)]
        # a workload that changes a list in its config must not change the space
        return copy.deepcopy(value) if isinstance(value, list | dict) else value

    def pick(self, unit: float) -> Pick:
        """The pick at a number in [0, 1); a log range is even in the logarithm, whole numbers in their halves."""
        if self.range is None:
            return int(unit * len(self.values))
        low, high, half = self.range.low, self.range.high, 0.5 if self.range.whole else 0.0
        if self.range.log:
            ends = math.log(low - half), math.log(high + half)
            found = math.exp(ends[0] + unit * (ends[1] - ends[0]))
        else:
            found = low - half + unit * (high - low + 2 * half)
        return min(max(round(found) if half else found, low), high)

    def pick_of(self, config: Mapping[str, Value]) -> Pick:
        """The pick that gives a config's value; a ValueError if none does."""
        if self.range is None:
            return self._digits.index(config)
        value = config.get(self.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.name!r}: {value!r} is not a number")
        return value

    @property
    def even(self) -> bool:
        """Whether it has finitely many picks that are all as likely."""
        return self.range is None or (self.range.whole and not self.range.log)

    @cached_property
    def combinations(self) -> int | None:
        """How many values it has, with all that they bring; None: a continuum."""
        if self.range is not None:
            return int(self.range.high - self.range.low) + 1 if self.range.whole else None
        parts = [combinations(branch) for branch in self.branches] if self.branches else [1] * len(self.values)
        return None if None in parts else sum(part for part in parts if part is not None)

    @cached_property
    def _digits(self) -> Space:
        return Space({self.name: self.values})


class Points:
    """All configs that a search may propose.

    `constants` are the values of all other names. A condition that names a hyperparameter which is not
    active in a config does not apply to it.
    """

    def __init__(self, space: Specs, where: Sequence[str] = (), constants: Mapping[str, Value] | None = None) -> None:
        self.where, self.constants = tuple(where), dict(constants or {})
        self.axes: list[Axis] = []  # all of them, those of choices too: a column of the unit cube each
        self.roots = self._grown(space, "")
        self.combinations = combinations(self.roots)
        self.even = all(axis.even for axis in self.axes)
        self.conditional = len(self.axes) > len(self.roots)
        self._brought = {axis.name for axis in self.axes} - {axis.name for axis in self.roots}
        self._conditions = [Condition(text) for text in self.where]
        known = {**self.constants, **{axis.name: None for axis in self.axes}}
        for condition in self._conditions:
            for name in sorted(condition.names - known.keys()):
                raise StudyError(f"where {condition.text!r}: there is no {name!r}; {nearest(name, known)}")

    def accepts(self, config: Mapping[str, Value]) -> bool:
        """Whether all conditions hold that apply."""
        scope = {**self.constants, **config}
        inactive = self._brought - config.keys()
        return all(condition(scope) for condition in self._conditions if not condition.names & inactive)

    def config(self, pick: Callable[[Axis], Pick]) -> Config:
        """The config of the picks; inactive axes are not asked."""
        return _filled({}, self.roots, pick)

    def at(self, cube: Sequence[float]) -> Config:
        """The config at a point of the unit cube, which has a column per axis."""
        return self.config(lambda axis: axis.pick(cube[axis.column]))

    def picks(self, config: Mapping[str, Value]) -> dict[str, Pick]:
        """The picks by path that give a config: its identity; a ValueError if none do."""
        return {axis.path: axis.pick_of(config) for axis in self.active(config)}

    def active(self, config: Mapping[str, Value]) -> list[Axis]:
        """The axes that a config has a value of; a ValueError where it chooses what is not there."""
        axes = list(self.roots)
        for axis in axes:
            axes.extend(axis.branch(axis.pick_of(config)) if axis.branches else ())
        return axes

    def space(self) -> Space:
        """The same as a plain space; only where all is listed and nothing conditional."""
        return Space({axis.name: axis.values for axis in self.roots}, self.where, self.constants)

    def most_epochs(self) -> int | None:
        """The most epochs that a config may have, where that is known."""
        found = [axis.range.high if axis.range else max(axis.values) for axis in self.axes if axis.name == "epochs"]
        most = max(found) if found else self.constants.get("epochs")
        return most if isinstance(most, int) else None

    def _grown(self, space: Specs, place: str) -> tuple[Axis, ...]:
        found: dict[str, set[str]] = {}
        axes = [self._axis(name, spec, place) for name, spec in space.items()]
        for axis in axes:
            found[axis.name] = {axis.name, *_names(axis)}
            for other in list(found)[:-1]:
                if twice := found[other] & found[axis.name]:
                    raise StudyError(f"space.{axis.path}: {min(twice)!r} also comes with {other!r}; leave it in one")
        return tuple(axes)

    def _axis(self, name: str, spec: Sequence[Value] | Range | Mapping[str, Value], place: str) -> Axis:
        column, path = len(self.axes), f"{place}{name}"
        if isinstance(spec, Mapping):
            spec = Range(**spec)
        self.axes.append(Axis(name, path, column))  # its place; what it brings comes after it
        if isinstance(spec, Range) and not spec.steps:
            axis = Axis(name, path, column, range=spec)
        else:
            items = spec.values() if isinstance(spec, Range) else list(spec)
            brought = [item["space"] if is_choice(item) else {} for item in items]
            branches = [self._grown(space, f"{path}[{digit}].") for digit, space in enumerate(brought)]
            values = tuple(item["value"] if is_choice(item) else item for item in items)
            Space({path: values})  # none twice, not empty
            axis = Axis(name, path, column, values, tuple(branches) if any(brought) else ())
        self.axes[column] = axis
        return axis


class Listing:
    """Points by index, the first axis being the most significant: a grid with choices that bring their own."""

    def __init__(self, points: Points) -> None:
        if points.combinations is None:
            name = next(axis.path for axis in points.axes if axis.combinations is None)
            raise StudyError(f'space.{name}: a range without steps is continuous; a grid needs "steps": N')
        self._points, self.size, self.where = points, points.combinations, points.where

    def __getitem__(self, index: int) -> Config:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return _nth({}, self._points.roots, index)

    def accepts(self, config: Mapping[str, Value]) -> bool:
        """Whether all conditions hold that apply."""
        return self._points.accepts(config)

    def indices(self, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """The accepted indexes from start to stop, in order."""
        found = range(self.size)[start:stop]
        return (index for index in found if self.accepts(self[index])) if self._points.where else iter(found)


def is_choice(item: Value) -> bool:
    """Whether a value of a list is a choice that brings its own hyperparameters."""
    return isinstance(item, dict) and item.keys() == {"value", "space"}


def combinations(axes: Sequence[Axis]) -> int | None:
    """How many combinations some axes have; None: a continuum."""
    parts = [axis.combinations for axis in axes]
    return None if None in parts else math.prod(part for part in parts if part is not None)


def _filled(config: Config, axes: Sequence[Axis], pick: Callable[[Axis], Pick]) -> Config:
    for axis in axes:
        picked = pick(axis)
        config[axis.name] = axis.value(picked)
        _filled(config, axis.branch(picked), pick)
    return config


def _nth(config: Config, axes: Sequence[Axis], index: int) -> Config:
    left = combinations(axes) or 1
    for axis in axes:
        left //= axis.combinations or 1
        part, index = divmod(index, left)
        if not axis.branches:
            config[axis.name] = axis.value(part if axis.range is None else part + axis.range.low)
            continue
        digit, sizes = 0, [combinations(branch) or 1 for branch in axis.branches]
        while part >= sizes[digit]:
            part, digit = part - sizes[digit], digit + 1
        config[axis.name] = axis.value(digit)
        _nth(config, axis.branches[digit], part)
    return config


def _names(axis: Axis) -> set[str]:
    return {name for branch in axis.branches for brought in branch for name in {brought.name, *_names(brought)}}
