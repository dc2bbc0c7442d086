"""An order as a search that is asked and told, so that halving can stand on grid, random and Sobol too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tradewind.pack import Config
from tradewind.search import Indexed, Order, Proposal, Told

STRETCH = 256  # places looked at together


class InOrder:
    """Proposal k is what stands k-th in the order; results do not matter."""

    def __init__(self, index: Indexed, order: Order) -> None:
        self._index = index
        stretches = (order.positions(k, min(k + STRETCH, order.size)) for k in range(0, order.size, STRETCH))
        self._left: Iterator[tuple[int, int]] = enumerate(chain.from_iterable(stretches))
        self._next = next(self._left, None)
        self._passed: dict[int, int] = {}  # numbers that another job's were ahead of, with their positions
        self._pending: dict[int, Config] = {}
        self._ended: set[int] = set()

    def ask(self, n: int) -> list[Proposal]:
        """The next n, as long as there are some."""
        found: list[Proposal] = []
        while len(found) < n and not self.over:
            number = min(self._passed) if self._passed else self._next[0] if self._next else 0
            found.append(Proposal(number, self._index[self._position(number)]))
            self._pending[number] = found[-1].values
        return found

    def tell(self, told: Told) -> None:
        """Take note of what has begun elsewhere, and of ends."""
        if told.number in self._ended:
            return
        self._position(told.number)
        self._pending[told.number] = told.values
        if told.state != "started":
            del self._pending[told.number]
            self._ended.add(told.number)

    @property
    def pending(self) -> list[Proposal]:
        """What was asked for or started and not yet told of, by number."""
        return [Proposal(number, self._pending[number]) for number in sorted(self._pending)]

    @property
    def over(self) -> bool:
        """Whether the order has come to its end."""
        return self._next is None and not self._passed

    @property
    def epochs(self) -> int | None:
        """None: it prunes nothing."""
        return None

    @property
    def why(self) -> str:
        """Why it is over: there are no more."""
        asked = len(self._pending) + len(self._ended)
        return f"the space has no more than {asked} configs"

    def _position(self, number: int) -> int:
        """The position of a number, which is asked no more."""
        while self._next is not None and self._next[0] <= number:
            self._passed[self._next[0]] = self._next[1]
            self._next = next(self._left, None)
        return self._passed.pop(number, 0)
