"""The lazy space: every combination of hyperparameter values, by index, never written out."""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from tradewind.errors import StudyError, nearest
from tradewind.pack import Config, Value
from tradewind.where import Condition, Test, joined

COUNTED = 200_000  # steps that count() may take, about 0.2 s
TRIED = 20_000  # steps into a part that is larger than that: it may be sparse
SAMPLED = 2_000  # points of a part that is not

_Dimensions = dict[str, tuple[Value, ...]]
_Level = tuple[str, tuple[Value, ...], int, Test]  # name, values, stride, conditions
_NESTED = (list, tuple, dict)
_REJECTED = range(0)


class SpaceView:
    """A slice of a space: index and `len` count all of its combinations, iteration and `in` obey `where`."""

    def __init__(self, space: Space, indexes: range) -> None:
        self._space, self._indexes = space, indexes

    def __len__(self) -> int:
        return len(self._indexes)  # beyond sys.maxsize Python itself raises OverflowError

    def __bool__(self) -> bool:
        return bool(self._indexes)

    @overload
    def __getitem__(self, key: int) -> Config: ...
    @overload
    def __getitem__(self, key: slice) -> SpaceView: ...
    def __getitem__(self, key: int | slice) -> Config | SpaceView:
        if isinstance(key, slice):
            return SpaceView(self._space, self._indexes[key])
        return self._space._tree.config(self._indexes[key])

    def __iter__(self) -> Iterator[Config]:
        left = self._indexes
        while left:
            index = left[0]
            width = self._space._tree.rejected(index)
            if not width:
                yield self._space._tree.config(index)
                width = 1
            ahead = width - index % width if left.step > 0 else index % width + 1
            left = left[-(-ahead // abs(left.step)) :]

    def __reversed__(self) -> Iterator[Config]:
        return iter(self[::-1])

    def __contains__(self, config: object) -> bool:
        if not isinstance(config, Mapping):
            return False
        try:
            return self._space.index(config) in self._indexes and self._space.accepts(config)
        except ValueError:
            return False


class Space(SpaceView):
    """All combinations of the dimensions' values; the first dimension is the most significant.

    Index, slice, `len` and `size` are those of the unfiltered space; iteration, `in`, `count` obey `where`.
    So it is no collections.abc.Sequence, and `list(space)` makes room for `len`: take `list(iter(space))`.
    """

    def __init__(
        self,
        dimensions: Mapping[str, Sequence[Value]],
        where: Sequence[str] = (),
        constants: Mapping[str, Value] | None = None,
    ) -> None:
        if isinstance(where, str):
            raise StudyError(f"where must be a list of conditions, found the text {where!r}")
        self.dimensions = {name: _values(name, values) for name, values in dimensions.items()}
        self.where = tuple(where)
        self._digits = {name: _digits(name, values) for name, values in self.dimensions.items()}
        self._conditions = [Condition(text) for text in self.where]
        known = {**(constants or {}), **self.dimensions}
        for condition in self._conditions:
            for name in sorted(condition.names - known.keys()):
                raise StudyError(f"where {condition.text!r}: there is no {name!r}; {nearest(name, known)}")
        used = {name for condition in self._conditions for name in condition.names}
        self._constants = {name: known[name] for name in used - self.dimensions.keys()}
        self._tree = _Tree(self.dimensions, self._conditions, self._constants)
        self.size = self._tree.size
        super().__init__(self, range(self.size))

    def __iter__(self) -> Iterator[Config]:
        return map(self._tree.config, self.indices())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Space):
            return NotImplemented
        # In lists, because the order of the dimensions counts
        return [*self._digits.items(), self.where] == [*other._digits.items(), other.where]

    def __hash__(self) -> int:
        return hash((tuple(self.dimensions), self.where))

    def __repr__(self) -> str:
        sizes = " × ".join(f"{name} ({len(values)})" for name, values in self.dimensions.items())
        return f"Space({sizes}{', where ' if self.where else ''}{' and '.join(self.where)})"

    def index(self, config: Mapping[str, Value]) -> int:
        """The index of a config; further names in it are ignored, a foreign value is a ValueError."""
        index = 0
        for name, digits in self._digits.items():
            try:
                index = index * len(digits) + digits[_mark(config[name])]
            except (KeyError, TypeError):
                found = repr(config[name]) if name in config else "nothing"
                raise ValueError(f"{name!r}: {found} is not a value of this space") from None
        return index

    def accepts(self, config: Mapping[str, Value]) -> bool:
        """Whether all conditions hold; the values need not be those of the space."""
        return self._tree.accepts({**self._constants, **config})

    def indices(self, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """The accepted indexes from start to stop, in order; what is rejected is skipped, not walked."""
        wanted = self._indexes[start:stop]
        return itertools.chain.from_iterable(self._tree.runs(wanted.start, wanted.stop))

    def count(self) -> tuple[int, bool]:
        """How many combinations are accepted, and whether that is exact or an estimate."""
        parts = sorted(self._parts(), key=lambda part: part.size)
        total = self._tree.open * self.size // math.prod(part.size for part in parts)
        exact, left, chance = True, COUNTED, random.Random(0)
        for part in parts:
            runs = part.runs(0, part.size)
            steps = min(left, part.size if part.size <= COUNTED else TRIED)
            left -= steps
            found = sum(map(len, itertools.islice(runs, steps)))
            if next(runs, None) is not None:
                hits = sum(not part.rejected(chance.randrange(part.size)) for _ in range(SAMPLED))
                found, exact = (part.size * hits + SAMPLED // 2) // SAMPLED, False
            total *= found
        return total, exact

    def _parts(self) -> Iterator[_Tree]:
        """The dimensions that conditions join, each group as a tree of its own."""
        groups: list[set[str]] = []
        for condition in self._conditions:
            names = set(condition.names & self.dimensions.keys())
            apart = [group for group in groups if not group & names]
            groups = [*apart, names.union(*(group for group in groups if group & names))]
        for group in filter(None, groups):
            dimensions = {name: values for name, values in self.dimensions.items() if name in group}
            conditions = [condition for condition in self._conditions if condition.names & group]
            yield _Tree(dimensions, conditions, self._constants)


class _Tree:
    """Dimensions as the levels of a tree; a condition is tested where its last dimension is fixed."""

    def __init__(self, dimensions: _Dimensions, conditions: list[Condition], constants: Config) -> None:
        self.size = stride = math.prod(map(len, dimensions.values()))
        depth = {name: number for number, name in enumerate(dimensions, 1)}
        tests: list[list[Condition]] = [[] for _ in range(len(dimensions) + 1)]
        for condition in conditions:
            tests[max((depth.get(name, 0) for name in condition.names), default=0)].append(condition)
        # The root has one value and the conditions on constants alone
        self._levels: list[_Level] = [("", (None,), stride, _all(tests[0]))]
        for (name, values), here in zip(dimensions.items(), tests[1:], strict=True):
            stride //= len(values)
            self._levels.append((name, values, stride, _all(here)))
        last = max((number for number, here in enumerate(tests) if here), default=0)
        self._tested = self._levels[: last + 1]
        self._constants = constants
        self._nested = any(isinstance(v, _NESTED) for values in dimensions.values() for v in values)
        self.open = _all(tests[0])(constants)
        self.accepts = _all([condition for here in tests for condition in here])

    def config(self, index: int) -> Config:
        """The point at an index."""
        config = {}
        for name, values, stride, _ in self._levels[1:]:
            digit, index = divmod(index, stride)
            config[name] = values[digit]
        # A workload that changes a list in its config must not change the space
        return copy.deepcopy(config) if self._nested else config

    def rejected(self, index: int) -> int:
        """How many points the first false condition rejects together with this one; 0 if none is false."""
        scope = {**self._constants, **self.config(index)}
        return next((stride for _, _, stride, holds in self._tested if not holds(scope)), 0)

    def runs(self, start: int, stop: int) -> Iterator[range]:
        """The accepted indexes from start to stop as ranges; an empty one for each rejected sub-tree."""
        return _walk(self._tested, dict(self._constants), start, stop) if start < stop else iter(())


def _walk(levels: list[_Level], scope: Config, start: int, stop: int) -> Iterator[range]:
    (name, values, stride, holds), *lower = levels
    ends = range(start - start % stride + stride, stop + stride, stride)
    for value, end in zip(values[start // stride % len(values) :], ends, strict=False):
        scope[name] = value
        if not holds(scope):
            yield _REJECTED
        elif lower:
            yield from _walk(lower, scope, start, min(end, stop))
        else:
            yield range(start, min(end, stop))
        start = end


def _all(conditions: Sequence[Condition]) -> Test:
    """The conditions as one test, in their order: an earlier one may guard a later one."""
    tests = tuple(condition.__call__ for condition in conditions)  # Python calls it faster than the object
    return tests[0] if len(tests) == 1 else joined(tests, decisive=False)


def _values(name: str, values: object) -> tuple[Value, ...]:
    """A dimension's values, safe from later changes to the caller's lists."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise StudyError(f"space {name!r}: needs a list of values, found {values!r}")
    return tuple(copy.deepcopy(value) if isinstance(value, _NESTED) else value for value in values)


def _digits(name: str, values: tuple[Value, ...]) -> dict[Hashable, int]:
    """Where each value of a dimension stands."""
    digits: dict[Hashable, int] = {}
    for digit, value in enumerate(values):
        if digits.setdefault(_mark(value), digit) != digit:
            raise StudyError(f"space {name!r}: {value!r} is given twice")
    if not digits:
        raise StudyError(f"space {name!r}: the list of values is empty")
    return digits


def _mark(value: Value) -> Hashable:
    """What stands for a value in a dict: 1 and 1.0 are the same, 1 and true are not, lists can be hashed."""
    if isinstance(value, bool):
        return ("truth", value)
    if not isinstance(value, _NESTED):
        return value  # type: ignore[no-any-return]
    parts = sorted(value.items()) if isinstance(value, dict) else value
    return (parts is value, *map(_mark, parts))


def names_of(space: Mapping[str, Any]) -> list[str]:
    """All names that a study's space gives values to, those that a choice brings among them."""
    found = list(space)
    for spec in space.values():
        for item in spec if isinstance(spec, list) else ():
            if isinstance(item, dict) and item.keys() == {"value", "space"}:
                found += names_of(item["space"])
    return found
