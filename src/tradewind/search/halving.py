"""Successive halving without waiting (ASHA), and Hyperband: brackets of it that begin at different rungs.

A config trains to its first rung and is paused; whenever it is among the best 1/eta of those that reached the
rung it goes on to the next, from where it stopped. Nothing is trained twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.errors import StudyError
from tradewind.pack import Config
from tradewind.search import Direction, Proposal, Search, Told
from tradewind.search.ranking import Objectives, ranked


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs in epochs and the bracket of every trial; a bracket is the number of rungs that it skips."""

    rungs: tuple[int, ...]
    brackets: tuple[int, ...]  # of trials 0, 1, 2 …, over and over
    eta: int

    def bracket(self, number: int) -> int:
        """The bracket of a trial."""
        return self.brackets[number % len(self.brackets)]

    def after(self, number: int, epoch: int, most: int) -> int | None:
        """The epoch of the next rung after some epochs; None: there is none before the last epoch."""
        left = [rung for rung in self.rungs[self.bracket(number) :] if epoch < rung < most]
        return left[0] if left else None


def ladder(min_epochs: int, most_epochs: int, eta: int, hyperband: bool) -> Ladder:
    """The rungs min_epochs · eta^k below the most epochs; with Hyperband as many brackets as halving can have."""
    rungs: list[int] = []
    while (rung := min_epochs * eta ** len(rungs)) < most_epochs:
        rungs.append(rung)
    if not hyperband:
        return Ladder(tuple(rungs), (0,), eta)
    # a bracket that trains its configs longer from the start gets fewer of them: all cost about the same
    top = len(rungs)
    shares = [-(-(top + 1) * eta ** (top - skipped) // (top - skipped + 1)) for skipped in range(top + 1)]
    return Ladder(tuple(rungs), _dealt(shares), eta)


def _dealt(shares: Sequence[int]) -> tuple[int, ...]:
    """Each bracket as often as its share says, evenly mixed: any number of trials has all kinds."""
    credit, dealt = [0] * len(shares), []
    for _ in range(sum(shares)):
        credit = [had + share for had, share in zip(credit, shares, strict=True)]
        dealt.append(max(range(len(shares)), key=lambda k: (credit[k], -k)))
        credit[dealt[-1]] -= sum(shares)
    return tuple(dealt)


@dataclass(slots=True)
class _Run:
    """One config on the ladder."""

    values: Config
    until: int | None  # where it is trained to, or was when it paused
    state: str = "pending"  # then paused, then pending again …, then ended
    epoch: int = 0
    results: dict[int, Objectives] = field(default_factory=dict)  # by rung, in epochs


class Halved:
    """Any search with halving on top."""

    def __init__(
        self, search: Search, steps: Ladder, directions: Sequence[Direction], default_epochs: int | None
    ) -> None:
        self._search, self._ladder, self._directions = search, steps, directions
        self._default_epochs = default_epochs
        self._runs: dict[int, _Run] = {}

    def ask(self, n: int) -> list[Proposal]:
        """Promotions first, from the top rung down; then configs that are new."""
        found: list[Proposal] = []
        while len(found) < n:
            if (number := self._promotable()) is not None:
                found.append(self._promoted(number))
            elif fresh := self._search.ask(1):
                run = self._begun(fresh[0].number, fresh[0].values)
                found.append(Proposal(fresh[0].number, run.values, run.until))
            else:
                break
        return found

    def tell(self, told: Told) -> None:
        """Take note of a rung reached, an end, or a start; a start after a pause is a promotion."""
        run = self._runs.get(told.number)
        if told.state == "started":
            if run is None or run.state == "pending":
                if run is None or run.epoch == 0:
                    self._begun(told.number, told.values)
                    self._search.tell(told)
            elif run.state == "paused":
                self._promoted(told.number)
            return
        if run is None:
            run = self._begun(told.number, told.values)
        epoch = told.epoch or run.until or 0
        if run.state == "ended" or (told.state == "paused" and epoch <= run.epoch):
            return
        run.state, run.epoch = "paused" if told.state == "paused" else "ended", max(epoch, run.epoch)
        reached = [rung for rung in self._ladder.rungs[self._ladder.bracket(told.number) :] if rung <= epoch]
        for rung in (*reached, run.until):  # what ends before a rung is compared there too
            if rung is not None:
                run.results.setdefault(rung, told.objectives)
        self._search.tell(told)

    @property
    def pending(self) -> list[Proposal]:
        """What was asked for or started and not yet told of, by number."""
        runs = sorted(self._runs.items())
        return [Proposal(number, run.values, run.until) for number, run in runs if run.state == "pending"]

    @property
    def over(self) -> bool:
        """Whether nothing is new, pending or to be promoted."""
        waiting = any(run.state == "pending" for run in self._runs.values())
        return self._search.over and not waiting and self._promotable() is None

    def _begun(self, number: int, values: Config) -> _Run:
        run = self._runs[number] = _Run(values, self._ladder.after(number, 0, self._epochs(values)))
        return run

    def _promoted(self, number: int) -> Proposal:
        run = self._runs[number]
        run.until = self._ladder.after(number, run.epoch, self._epochs(run.values))
        run.state = "pending"
        return Proposal(number, run.values, run.until)

    def _promotable(self) -> int | None:
        """The best paused config among the best 1/eta of its rung, on the highest rung that has one."""
        for rung in reversed(self._ladder.rungs):
            for bracket in sorted(set(self._ladder.brackets)):
                results = {
                    number: run.results[rung]
                    for number, run in self._runs.items()
                    if rung in run.results and self._ladder.bracket(number) == bracket
                }
                best = ranked(results, self._directions)[: len(results) // self._ladder.eta]
                for number in best:
                    run = self._runs[number]
                    if run.state == "paused" and max(run.results) == rung and run.results[rung]:
                        return number
        return None

    def _epochs(self, values: Config) -> int:
        epochs = values.get("epochs", self._default_epochs)
        if not isinstance(epochs, int) or epochs < 1:
            raise StudyError(f"search.halving: needs the number of epochs, found {epochs!r}; set `epochs` in `fixed`")
        return epochs
