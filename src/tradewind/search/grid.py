"""Grid: every trial once. In natural order to tune; in a random order, repeat by repeat, to time."""

from __future__ import annotations

from collections.abc import Iterator

from tradewind.pack import Purpose
from tradewind.search.permutation import Permutation
from tradewind.space import Space


class Grid:
    """The order in which the positions of a study are tried: a sequence of places 0..len-1.

    Under `time` every repeat is a pass over all configs in a new random order, so that a machine that
    grows slower over the hours slows all configs alike.
    """

    def __init__(self, space: Space, repeats: int, purpose: Purpose, seed: int) -> None:
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
