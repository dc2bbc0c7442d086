"""Random search: trial k is a function of k and the seed alone, so that ranks draw apart without talking."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tradewind.errors import StudyError
from tradewind.pack import Config, Purpose
from tradewind.search import Indexed
from tradewind.search.permutation import Permutation
from tradewind.search.points import Listing, Points

DRAWS = 1 << 30  # of a sequence without an end; what Sobol's has
MISSES = 50_000  # draws in a row that are rejected or known, before a search gives up

Cube = Callable[[int], Sequence[float]]


class Draws:
    """Points by number, as a sequence in the unit cube gives them."""

    def __init__(self, points: Points, cube: Cube) -> None:
        self._points, self._cube = points, cube
        self.size, self.where = DRAWS, points.where
        self.most = points.combinations  # that can differ from each other; None: a continuum

    def __getitem__(self, index: int) -> Config:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return self._points.at(self._cube(index))

    def accepts(self, config: Config) -> bool:
        """Whether all conditions hold that apply."""
        return self._points.accepts(config)

    def indices(self, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """The accepted numbers from start to stop, in order."""
        found = range(self.size)[start:stop]
        return (index for index in found if self.accepts(self[index])) if self.where else iter(found)

    def mark(self, config: Config) -> tuple[object, ...]:
        """What two equal configs have in common."""
        return tuple(self._points.picks(config).items())


def hashed(columns: int, seed: int) -> Cube:
    """Independent numbers: a column of point k is a hash of the seed, k and the column."""
    blocks = [struct.pack(">q", block) for block in range(-(-columns // 8))]
    start = hashlib.blake2b(f"{seed}/points".encode())

    def cube(k: int) -> Sequence[float]:
        numbers: list[float] = []
        for block in blocks:
            hasher = start.copy()
            hasher.update(k.to_bytes(16, "big") + block)
            numbers += [word * 2.0**-53 for word in (w >> 11 for w in struct.unpack(">8Q", hasher.digest()))]
        return numbers

    return cube


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many configs are drawn, how often each is trained, and in which manner."""

    trials: int
    repeats: int
    purpose: Purpose
    seed: int


class Sample:
    """The order of a random search: draws that the conditions accept, none twice, until there are enough.

    Its size is known once enough draws are found, which without conditions costs nothing. Under `time`
    every repeat is a pass over all draws in a new order, as for a grid.
    """

    def __init__(self, index: Indexed, wanted: Wanted) -> None:
        self._index, self._repeats = index, wanted.repeats
        most = index.most if isinstance(index, Draws) else index.size
        self._permutation = None if isinstance(index, Draws) else Permutation(index.size, f"{wanted.seed}/draws")
        self._known: set[int] = set()  # draws that repeat an earlier one; only lists are drawn without looking
        self._draws = min(wanted.trials, index.size)
        if index.where or (isinstance(index, Draws) and most is not None):
            self._draws = self._span(wanted.trials, most)
        passes = range(wanted.repeats) if wanted.purpose == "time" else ()
        self._passes = [Permutation(self._draws, f"{wanted.seed}/{repeat}") for repeat in passes]

    @property
    def size(self) -> int:
        """How many places there are, conditions not yet applied."""
        return self._draws * self._repeats

    def positions(self, start: int, stop: int) -> Iterator[int]:
        """The positions at places start..stop-1 that the conditions accept."""
        for place in range(start, min(stop, self.size)):
            if self._passes:
                repeat, k = divmod(place, self._draws)
                draw = self._passes[repeat][k]
            else:
                draw, repeat = divmod(place, self._repeats)
            if draw in self._known:
                continue
            index = self._permutation[draw] if self._permutation else draw
            if not self._index.where or self._index.accepts(self._index[index]):
                yield index * self._repeats + repeat

    def _span(self, trials: int, most: int | None) -> int:
        """How many draws hold as many configs as are wanted, or all that there are."""
        found, last, seen = 0, -1, set[object]()
        patience = min(MISSES, 1000 + 100 * (most or MISSES))  # chance has missed none of few by then
        for draw in range(self._index.size):
            config = self._index[self._permutation[draw] if self._permutation else draw]
            fresh = self._index.accepts(config)
            if fresh and isinstance(self._index, Draws) and most is not None:
                mark = self._index.mark(config)
                fresh = mark not in seen
                if not fresh:
                    self._known.add(draw)
                seen.add(mark)
            if fresh:
                found, last = found + 1, draw
            if found == min(trials, most or trials):
                break
            if draw - last > patience:
                self._give_up(found, trials, most)
                break
        return last + 1

    def _give_up(self, found: int, trials: int, most: int | None) -> None:
        if found == 0 or most is None or most > MISSES:
            raise StudyError(
                f"where: {MISSES} draws in a row gave nothing new that the conditions accept, "
                f"after {found} of {trials} trials; narrow the space, or ask for fewer trials"
            )


def unknown(points: Points, seed: int, known: Callable[[Config], bool]) -> Config | None:
    """A config drawn at random that the conditions accept and that is not known; None: there is none left."""
    cube, most = hashed(len(points.axes), seed), points.combinations
    for k in range(MISSES):
        config = points.at(cube(k))
        if points.accepts(config) and not known(config):
            return config
        if most is not None and k > 20 * most:  # the rest is quicker found in its order
            break
    if most is None or most > MISSES:
        raise StudyError(f"where: {MISSES} draws in a row gave nothing new that the conditions accept; widen them")
    listing = Listing(points)
    return next((config for config in map(listing.__getitem__, listing.indices()) if not known(config)), None)
