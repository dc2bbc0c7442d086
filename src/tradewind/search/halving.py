"""Successive halving without waiting (ASHA), and Hyperband: brackets of it that begin at different rungs.

A config trains to its first rung and is paused; whenever it is among the best 1/eta of those that reached the
rung it goes on to the next, from where it stopped. Nothing is trained twice. Where none has come to its end by the
time that nothing else is left to train, the best one goes on to its end: a search never ends without an answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tradewind.errors import StudyError
from tradewind.pack import Config
from tradewind.search import Direction, Proposal, Search, Told
from tradewind.search.budget import Budget
from tradewind.search.ranking import Objectives, ranked


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs in epochs and the bracket of every trial; a bracket is the number of rungs that it skips."""

    rungs: tuple[int, ...]
    brackets: tuple[int, ...]  # of trials 0, 1, 2 …, over and over
    eta: int
    most: int  # epochs

    def bracket(self, number: int) -> int:
        """The bracket of a trial."""
        return self.brackets[number % len(self.brackets)]

    def finishing(self, configs: int) -> int:
        """How many of so many configs are trained to their end at least, if none fails."""
        left = len(self.rungs)
        return max(1, sum(n // int(self.eta ** (left - bracket)) for bracket, n in self._sizes(configs).items()))

    def epochs(self, configs: int, reached: Mapping[int, Sequence[int]]) -> int:
        """How many epochs so many configs train in all; `reached`: those of every bracket that are known."""
        total = finished = top = 0
        for bracket, reaching in self._sizes(configs).items():
            before = 0
            for stage in (*self.rungs[bracket:], self.most):
                if before:  # of those that were there, one in eta goes on, or more have gone already
                    reaching = max(reaching // self.eta, sum(epoch >= stage for epoch in reached.get(bracket, ())))
                total += reaching * (stage - before)
                before, top = stage, max(top, stage if reaching else 0)
            finished += reaching
        return total if finished else total + self.most - top

    def _sizes(self, configs: int) -> Counter[int]:
        """How many of so many configs each bracket has."""
        whole, rest = divmod(configs, len(self.brackets))
        counts = Counter({bracket: n * whole for bracket, n in Counter(self.brackets).items()})
        return counts + Counter(self.brackets[:rest])

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
        return Ladder(tuple(rungs), (0,), eta, most_epochs)
    # a bracket that trains its configs longer from the start gets fewer of them: all cost about the same
    top = len(rungs)
    shares = [-(-(top + 1) * eta ** (top - skipped) // (top - skipped + 1)) for skipped in range(top + 1)]
    return Ladder(tuple(rungs), _dealt(shares), eta, most_epochs)


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
    answered: bool = False  # it has ended, not early, with a result


class Halved:
    """Any search with halving on top; its budget is kept so that the best config is trained to its end."""

    def __init__(
        self, search: Search, steps: Ladder, directions: Sequence[Direction], default_epochs: int | None,
        budget: Budget, configs: int | None = None,
    ) -> None:  # fmt: skip
        self._configs = configs or 0  # that are wanted, where that is known
        self._search, self._ladder, self._directions = search, steps, directions
        self._default_epochs, self._budget = default_epochs, budget
        self._runs: dict[int, _Run] = {}
        self._fresh: Proposal | None = None  # asked for, and too much for the budget as it stands

    def ask(self, n: int) -> list[Proposal]:
        """Promotions first, from the top rung down; then configs that are new; at last the best, to its end."""
        found: list[Proposal] = []
        while len(found) < n and (proposal := self._next()):
            run = self._runs.setdefault(proposal.number, _Run(proposal.values, proposal.until))
            run.state, run.until = "pending", proposal.until
            found.append(proposal)
        return found

    def tell(self, told: Told) -> None:
        """Take note of a rung reached, an end, or a start; a start after a pause is a promotion."""
        run = self._runs.get(told.number)
        if self._fresh and self._fresh.number == told.number:
            self._fresh = None  # another job has it
        if told.state == "started":
            if run is None or run.state == "pending":
                if run is None or run.epoch == 0:
                    self._begun(told.number, told.values)
                    self._search.tell(told)
            elif run.state == "paused":
                run.until, run.state = self._after(told.number), "pending"
            return
        if run is None:
            run = self._begun(told.number, told.values)
        epoch = told.epoch or run.until or 0
        if run.state == "ended" or (told.state == "paused" and epoch <= run.epoch):
            return
        run.state, run.epoch = "paused" if told.state == "paused" else "ended", max(epoch, run.epoch)
        run.answered = told.state in ("done", "stopped") and bool(told.objectives)
        reached = [rung for rung in self._ladder.rungs[self._ladder.bracket(told.number) :] if rung <= epoch]
        for rung in (*reached, run.until):  # what ends before a rung is compared there too
            if rung is not None:
                run.results.setdefault(rung, told.objectives)
        self._budget.tell(told)
        self._search.tell(told)

    @property
    def pending(self) -> list[Proposal]:
        """What was asked for or started and not yet told of, by number."""
        runs = sorted(self._runs.items())
        return [Proposal(number, run.values, run.until) for number, run in runs if run.state == "pending"]

    @property
    def over(self) -> bool:
        """Whether nothing is new, pending, to be promoted or to be trained to its end."""
        if self._waiting or self._last() is not None:
            return False
        due = self._promotion() or self._fresh
        closed = self._search.over if due is None else not self._affordable(due)
        return closed or bool(self._budget.spent)

    @property
    def epochs(self) -> int:
        """How many epochs all repeats will have trained, by what is known."""
        reached: dict[int, list[int]] = {}
        for number, run in self._runs.items():
            epoch = self._target(run) if run.state == "pending" else run.epoch
            reached.setdefault(self._ladder.bracket(number), []).append(epoch)
        return self._budget.at_most(self._ladder.epochs(max(self._configs, len(self._runs)), reached))

    @property
    def why(self) -> str:
        """Why it is over before as many configs as were wanted were tried, or nothing."""
        if self._promotion() or self._fresh:
            return self._budget.spent or "search.epochs: what is left is less than the next config takes"
        return self._budget.spent or self._search.why

    def _next(self) -> Proposal | None:
        if not self._budget.spent:
            due = self._promotion()
            if due is None:
                due = self._fresh = self._fresh or self._new()
            if due and self._affordable(due):
                self._fresh = None if due is self._fresh else self._fresh
                return due
        return self._last()

    def _new(self) -> Proposal | None:
        for fresh in self._search.ask(1):
            until = self._ladder.after(fresh.number, 0, self._epochs(fresh.values))
            return Proposal(fresh.number, fresh.values, until)
        return None

    def _begun(self, number: int, values: Config) -> _Run:
        run = self._runs[number] = _Run(values, self._ladder.after(number, 0, self._epochs(values)))
        return run

    def _after(self, number: int) -> int | None:
        run = self._runs[number]
        return self._ladder.after(number, run.epoch, self._epochs(run.values))

    def _promotion(self) -> Proposal | None:
        """Of the best paused config among the best 1/eta of its rung, on the highest rung that has one."""
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
                        return Proposal(number, run.values, self._after(number))
        return None

    def _last(self) -> Proposal | None:
        """Of the best config, to its end, where none has got there: most epochs first, then the result."""
        if self._waiting or any(run.answered for run in self._runs.values()):
            return None
        paused = [(number, run) for number, run in self._runs.items() if run.state == "paused"]
        results = {number: found for number, run in paused if (found := run.results[max(run.results)])}
        most = max((self._runs[number].epoch for number in results), default=0)
        best = next((n for n in ranked(results, self._directions) if self._runs[n].epoch == most), None)
        return None if best is None else Proposal(best, self._runs[best].values)

    def _affordable(self, proposal: Proposal) -> bool:
        """Whether the budget lets one config come to its end beside it."""
        pending = sum(self._target(run) - run.epoch for run in self._runs.values() if run.state == "pending")
        left = self._budget.left(pending)
        if left == math.inf:
            return True
        run = self._runs.get(proposal.number)
        most = self._epochs(proposal.values)
        until = proposal.until or most
        to_go = [most - until]
        for other in self._runs.values():
            if other.answered:
                to_go.append(0)
            elif other.state != "ended" and other is not run:
                reached = self._target(other) if other.state == "pending" else other.epoch
                to_go.append(self._epochs(other.values) - reached)
        return self._budget.cost(until - (run.epoch if run else 0) + min(to_go)) <= left

    @property
    def _waiting(self) -> bool:
        return any(run.state == "pending" for run in self._runs.values())

    def _target(self, run: _Run) -> int:
        return run.until or self._epochs(run.values)

    def _epochs(self, values: Config) -> int:
        epochs = values.get("epochs", self._default_epochs)
        if not isinstance(epochs, int) or epochs < 1:
            raise StudyError(f"search.halving: needs the number of epochs, found {epochs!r}; set `epochs` in `fixed`")
        return epochs
