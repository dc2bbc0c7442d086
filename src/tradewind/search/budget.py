"""When a search has had enough: epochs in all, a target, or trials without improvement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tradewind.pack import Config
from tradewind.search import Direction, Proposal, Search, Told
from tradewind.search.ranking import Objectives, costs, dominates


class Budget:
    """Counts what is told; `spent` says why the search ends. How many configs there are is the search's own."""

    def __init__(
        self, directions: Sequence[Direction], epochs: int | None = None, target: float | None = None,
        patience: int | None = None, repeats: int = 1,
    ) -> None:  # fmt: skip
        self._directions = tuple(directions)
        self._epochs, self._patience, self._repeats = epochs, patience, repeats
        self.limits = any(limit is not None for limit in (epochs, target, patience))
        self._target = target if target is None else costs((target,), directions[:1])[0]
        self._trained: dict[int, int] = {}  # epochs of every number, all repeats together
        self._results: set[int] = set()  # numbers that have had a result
        self._best: list[Objectives] = []  # costs that no other dominates
        self._since = 0  # results since the last improvement

    def tell(self, told: Told) -> None:
        """Take note of a result; a start costs nothing yet."""
        if told.state == "started":
            return
        trained = (told.epoch or 0) * self._repeats if told.trained is None else told.trained
        self._trained[told.number] = max(trained, self._trained.get(told.number, 0))
        cost = costs(told.objectives, self._directions) if told.objectives else ()
        if cost and not any(best == cost or dominates(best, cost) for best in self._best):
            self._best = [best for best in self._best if not dominates(cost, best)] + [cost]
            self._since = 0
        elif told.number not in self._results:
            self._since += 1
        self._results.add(told.number)

    def left(self, pending: int) -> float:
        """The epochs that are left once every config has trained so many more that it was handed out for."""
        if self._epochs is None:
            return math.inf
        return self._epochs - sum(self._trained.values()) - pending * self._repeats

    def at_most(self, epochs: int) -> int:
        """So many epochs of one repeat each for all repeats, or what the budget allows."""
        return min(epochs * self._repeats, self._epochs or epochs * self._repeats)

    def cost(self, epochs: int) -> int:
        """What a config takes of the budget to train so many epochs."""
        return epochs * self._repeats

    @property
    def spent(self) -> str:
        """Why no more is tried, or nothing."""
        if self.left(0) <= 0:
            return f"search.epochs: {sum(self._trained.values())} of {self._epochs} epochs were trained"
        if self._target is not None and any(best[0] <= self._target for best in self._best):
            return "search.target is reached"
        if self._patience is not None and self._since >= self._patience:
            return f"search.patience: {self._since} trials brought no improvement"
        return ""


class Limited:
    """A search that ends when its budget is spent; what is pending by then is still told."""

    def __init__(self, search: Search, budget: Budget, default_epochs: object = None) -> None:
        self._search, self._budget, self._default_epochs = search, budget, default_epochs
        self._pending: dict[int, int] = {}  # epochs of what was handed out

    def ask(self, n: int) -> list[Proposal]:
        """Up to n proposals; none once the budget is spent, or will be by those that are pending."""
        found: list[Proposal] = []
        while len(found) < n and self._open and (fresh := self._search.ask(1)):
            found += fresh
            self._pending[fresh[0].number] = self._epochs(fresh[0].values)
        return found

    def tell(self, told: Told) -> None:
        """Take note."""
        if told.state == "started":
            self._pending[told.number] = self._epochs(told.values)
        else:
            self._pending.pop(told.number, None)
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

    @property
    def epochs(self) -> int | None:
        """None: it prunes nothing."""
        return None

    @property
    def why(self) -> str:
        """Why it is over."""
        return self._budget.spent or self._search.why

    @property
    def _open(self) -> bool:
        return not self._budget.spent and self._budget.left(sum(self._pending.values())) > 0

    def _epochs(self, values: Config) -> int:
        """How many epochs a config trains; 0: it tells when it has trained them."""
        epochs = values.get("epochs", self._default_epochs)
        return epochs if isinstance(epochs, int) else 0
