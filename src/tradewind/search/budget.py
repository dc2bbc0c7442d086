"""When a search has had enough: epochs in all, a target, or trials without improvement."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.search import Direction, Proposal, Search, Told
from tradewind.search.ranking import Objectives, costs, dominates


class Budget:
    """Counts what is told; `spent` says why the search ends. How many configs there are is the search's own."""

    def __init__(
        self, directions: Sequence[Direction], epochs: int | None = None, target: float | None = None,
        patience: int | None = None,
    ) -> None:  # fmt: skip
        self._directions = tuple(directions)
        self._epochs, self._patience = epochs, patience
        self.limits = any(limit is not None for limit in (epochs, target, patience))
        self._target = target if target is None else costs((target,), directions[:1])[0]
        self._trained: dict[int, int] = {}  # epochs of every number
        self._results: set[int] = set()  # numbers that have had a result
        self._best: list[Objectives] = []  # costs that no other dominates
        self._since = 0  # results since the last improvement

    def tell(self, told: Told) -> None:
        """Take note of a result; a start costs nothing yet."""
        if told.state == "started":
            return
        self._trained[told.number] = max(told.epoch or 0, self._trained.get(told.number, 0))
        cost = costs(told.objectives, self._directions) if told.objectives else ()
        if cost and not any(best == cost or dominates(best, cost) for best in self._best):
            self._best = [best for best in self._best if not dominates(cost, best)] + [cost]
            self._since = 0
        elif told.number not in self._results:
            self._since += 1
        self._results.add(told.number)

    @property
    def spent(self) -> str:
        """Why no more is tried, or nothing."""
        epochs = sum(self._trained.values())
        if self._epochs is not None and epochs >= self._epochs:
            return f"{epochs} epochs were trained"
        if self._target is not None and any(best[0] <= self._target for best in self._best):
            return "the target is reached"
        if self._patience is not None and self._since >= self._patience:
            return f"{self._since} trials brought no improvement"
        return ""


class Limited:
    """A search that ends when its budget is spent; what is pending by then is still told."""

    def __init__(self, search: Search, budget: Budget) -> None:
        self._search, self._budget = search, budget

    def ask(self, n: int) -> list[Proposal]:
        """Up to n proposals; none once the budget is spent."""
        return [] if self._budget.spent else self._search.ask(n)

    def tell(self, told: Told) -> None:
        """Take note."""
        self._budget.tell(told)
        self._search.tell(told)

    @property
    def pending(self) -> list[Proposal]:
        """What was asked for or started and not yet told of, by number."""
        return self._search.pending

    @property
    def over(self) -> bool:
        """Whether nothing will be asked any more."""
        return bool(self._budget.spent) or self._search.over
