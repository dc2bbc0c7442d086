"""Grid: every trial once. To tune, in natural order or from dear to cheap; to time, in a random order."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tradewind.pack import Purpose, Value
from tradewind.search import Indexed
from tradewind.search.permutation import Permutation
from tradewind.space import Space


class Grid:
    """The order in which the positions of a study are tried: a sequence of places 0..len-1.

    Under `time` every repeat is a pass over all configs in a new random order, so that a machine that
    grows slower over the hours slows all configs alike.
    """

    def __init__(self, space: Indexed, repeats: int, purpose: Purpose, seed: int) -> None:
        self._space, self._repeats = space, repeats
        self._passes = (
            [Permutation(space.size, f"{seed}/{repeat}") for repeat in range(repeats)] if purpose == "time" else []
        )

    @property
    def size(self) -> int:
        """How many places there are, conditions not yet applied."""
        return self._space.size * self._repeats

    def positions(self, start: int, stop: int) -> Iterator[int]:
        """The positions at places start..stop-1 that the conditions accept."""
        if self._passes:
            for place in range(start, stop):
                repeat, k = divmod(place, self._space.size)
                index = self._passes[repeat][k]
                if self._space.accepts(self._space[index]):
                    yield index * self._repeats + repeat
            return
        for index in self._space.indices(start // self._repeats, -(-stop // self._repeats)):
            for repeat in range(self._repeats):
                if start <= index * self._repeats + repeat < stop:
                    yield index * self._repeats + repeat


@dataclass(frozen=True)
class Classes:
    """Trials that are taken to cost the same: one class for all that agree in the values of some dimensions.

    Of the last of these, neighbouring values may form a group. Classes count as indexes do, the first
    dimension being the most significant.
    """

    names: tuple[str, ...]
    cuts: tuple[int, ...]  # where each group of the last dimension's values begins
    costs: tuple[int, ...]  # of a trial of every class: whole numbers, so that all hosts reckon alike


class FromDear:
    """The order of places in which classes of cost come from dear to cheap; within one, the natural order, but for
    epochs, which come last: trials that share a network are neighbours unless their epochs make classes.

    It walks a space in which the dimensions of the classes come first, so that a class is a stretch of
    indexes and what the conditions reject is skipped as ever.
    """

    def __init__(self, space: Space, constants: Mapping[str, Value], repeats: int, classes: Classes) -> None:
        rest = sorted((name for name in space.dimensions if name not in classes.names), key=lambda n: n == "epochs")
        names = [*classes.names, *rest]
        self._repeats = repeats
        self._space = Space({name: space.dimensions[name] for name in names}, space.where, constants)
        here, natural = strides(self._space), strides(space)
        self._strides = [(here[name], natural[name]) for name in names]
        last = len(space.dimensions[classes.names[-1]])
        width = here[classes.names[-1]]
        groups = list(pairwise((*classes.cuts, last)))
        starts = [
            (outer * last + start) * width
            for outer in range(len(classes.costs) // len(groups))
            for start, _ in groups
        ]
        sizes = [(stop - start) * width for start, stop in groups]
        order = sorted(range(len(classes.costs)), key=lambda k: -classes.costs[k])  # stable
        self._starts = [starts[k] for k in order]
        self._places = list(accumulate((sizes[k % len(groups)] * repeats for k in order), initial=0))

    @property
    def size(self) -> int:
        """How many places there are, conditions not yet applied."""
        return self._space.size * self._repeats

    def positions(self, start: int, stop: int) -> Iterator[int]:
        """The positions at places start..stop-1 that the conditions accept."""
        number = bisect_right(self._places, start) - 1
        while start < stop:
            end = min(stop, self._places[number + 1])
            yield from self._stretch(self._starts[number], start - self._places[number], end - self._places[number])
            start, number = end, number + 1

    def _stretch(self, base: int, start: int, stop: int) -> Iterator[int]:
        for index in self._space.indices(base + start // self._repeats, base - (-stop // self._repeats)):
            natural = self._natural(index) * self._repeats
            first = (index - base) * self._repeats
            yield from range(natural + max(0, start - first), natural + min(self._repeats, stop - first))

    def _natural(self, index: int) -> int:
        found = 0
        for here, natural in self._strides:
            digit, index = divmod(index, here)
            found += digit * natural
        return found


def strides(space: Space) -> dict[str, int]:
    """How far apart indexes are that differ by one value of a dimension."""
    sizes = [len(values) for values in space.dimensions.values()]
    return {name: math.prod(sizes[k + 1 :]) for k, name in enumerate(space.dimensions)}
