"""The schedule `dispatch` of a search that learns: asked as workers get free, told as results come.

Several jobs may search in one folder at once. Each has the search to itself and tells it what the others do; a
number is claimed before it is handed out, and one whose job is gone is taken over.
"""

from __future__ import annotations

import time

from tradewind.claims import Claims
from tradewind.journal import Journal, Record
from tradewind.pack import Trial
from tradewind.schedule.dispatch import LOOK_AGAIN_S
from tradewind.schedule.ledger import Ledger, Stage
from tradewind.schedule.searching import Searching, batch_size, claim_of
from tradewind.schedule.trials import Trials
from tradewind.search import Proposal, Told


class Adaptive(Searching):
    """Which trial next: what the search proposes, with all that is pending taken into account."""

    def __init__(
        self, trials: Trials, claims: Claims, ledger: Ledger, journal: Journal, workers: int, retry_failed: bool
    ) -> None:
        super().__init__(trials, claims, ledger, journal)
        self._batch = batch_size(trials, workers)
        self._room = self._batch * workers
        self._stages: dict[int, list[int | None]] = {}  # of every number: where it is to train to, not yet told of
        self._seen: set[Stage] = set()  # all that were asked for
        self._held: dict[int, Proposal] = {}  # in the hands of another job, or of one that is gone
        self._dry = False  # it has nothing to propose, although nothing is pending
        self.read()
        self.elsewhere.clear()
        self._look()  # what jobs that are gone have left comes first
        if retry_failed:
            for trial in ledger.failed():
                self._mine.add(trial.key)
                self._queue.append(trial)

    def next(self) -> Trial | None:
        """A trial to hand out now, or None where there is none at the moment."""
        if time.monotonic() >= self._next_look:
            self._look()
        room = self._room - len(self._mine)
        while not self._queue and room >= self._batch and self._ask(-(-room // self._trials.study.repeats)):
            pass  # all of them are in the hands of others
        return self._queue.popleft() if self._queue else None

    @property
    def settled(self) -> bool:
        """Whether nothing more is asked, and nothing is in anybody's hands."""
        return (self.search.over or self._dry) and not (self._queue or self._mine or self._held)

    @property
    def waiting_for_others(self) -> int:
        """How many trials other jobs have in hand."""
        return len(self._held) * self._trials.study.repeats

    def note(self, key: str) -> None:
        """There is news of a trial: tell the search of the numbers that it settles."""
        for number in self.ledger.numbers.get(key, []):
            self._settle(number)

    def in_other_hands(self, number: int, key: str) -> bool:
        """Whether another number of the same config is under way, whose result will serve this one."""
        return any(self._stages.get(other) for other in self.ledger.numbers[key] if other < number)

    def _ask(self, n: int) -> bool:
        """Take what the search proposes; False where that is nothing."""
        proposals = self.search.ask(n)
        self._dry = not (proposals or self._mine or self._held)
        for proposal in proposals:
            self._stages.setdefault(proposal.number, []).append(proposal.until)
            self._seen.add((proposal.number, proposal.until))
            generation = self._claims.take(claim_of(proposal.number, proposal.until))
            if generation is None:
                self._held[proposal.number] = proposal
                continue
            if generation:  # a job that is gone had it, and may have said so since
                self.read()
            if self._stages[proposal.number]:
                self._held.pop(proposal.number, None)
                self._take(proposal)
        return bool(proposals)

    def _take(self, proposal: Proposal) -> None:
        known = self.ledger.values.get(proposal.number, proposal.values)
        if known != proposal.values:
            self.search.tell(Told(proposal.number, known, "started"))
        self._enter(Proposal(proposal.number, known, proposal.until))
        self._enqueue(proposal)
        self._settle(proposal.number)

    def _look(self) -> None:
        """See what others have done, and take over what those who are gone have left."""
        self._next_look = time.monotonic() + LOOK_AGAIN_S
        self.read()
        for number, proposal in list(self._held.items()):
            if self._claims.take(claim_of(number, proposal.until)) is not None:
                self.read()  # it may have been settled at the last moment
                if number in self._held:
                    del self._held[number]
                    self._take(proposal)

    def read(self) -> None:
        """See what other jobs have done, and tell the search."""
        for line in self.ledger.lines():
            if line["kind"] == "asked":
                self._begun(line)
            else:
                self.note(line["key"])
                if line["kind"] == "finished":
                    self.elsewhere.append(line)

    def _begun(self, line: Record) -> None:
        """Another job has begun a number, or goes on with it."""
        number, until = line["number"], line["until"]
        stages = self._stages.setdefault(number, [])
        if (number, until) not in self._seen:
            self._seen.add((number, until))
            stages.append(until)
        if stages[:1] == [until]:
            self._started(number)
        self._settle(number)

    def _started(self, number: int) -> None:
        values, until = self.ledger.values[number], self._stages[number][0]
        self.search.tell(Told(number, values, "started"))
        self._held[number] = Proposal(number, values, until)

    def _settle(self, number: int) -> None:
        """Tell what a number has reached, stage by stage in their order, however the journals were read."""
        stages = self._stages.get(number, [])
        while stages and number in self.ledger.values and (told := self.ledger.result(number, stages[0])):
            del stages[0]
            self._held.pop(number, None)
            self.search.tell(told)
            if stages:
                self._started(number)
