"""The schedule `synchronous` of a search that learns: generations.

Every rank computes the same next generation from the complete one before, told in the order of its trials, and
takes every so manieth member. Nobody hands anything out. Members of a rank that has died are claimed by others.
"""

from __future__ import annotations

import time
from itertools import count, takewhile
from pathlib import Path

from tradewind.claims import LEASE_S, Claims, owner_gone
from tradewind.errors import Mistake
from tradewind.journal import Journal
from tradewind.pack import Share, Trial
from tradewind.schedule.ledger import Ledger, Stage
from tradewind.schedule.searching import RANK, Searching, claim_of
from tradewind.schedule.trials import Trials
from tradewind.search import Proposal, Told

LOOK_AGAIN_S = 0.05  # how often a few others are looked at: all wait for the slowest, and then for this


class Generations(Searching):
    """Which trial next: this rank's members of the generation, then those of ranks that are gone."""

    def __init__(
        self, trials: Trials, claims: Claims, ledger: Ledger, journal: Journal, share: Share, size: int
    ) -> None:
        super().__init__(trials, claims, ledger, journal)
        if not 0 <= share.rank < share.of:
            raise Mistake(f"--rank {share.rank} --of {share.of}: allowed: ranks from 0 to {share.of - 1}")
        self._share, self._size = share, size
        self._names = journal.folder.claims / trials.study.digest()
        self._members: list[Proposal] = []
        self._taken: set[Stage] = set()
        self._ours = self._ended = False
        self._since = time.monotonic()  # that this generation is there
        for _ in ledger.lines():
            pass

    def next(self) -> Trial | None:
        """A trial to run now, or None where there is none at the moment."""
        if not self._queue:
            if time.monotonic() >= self._next_look:
                self._look()
            self._advance()
        return self._queue.popleft() if self._queue else None

    @property
    def settled(self) -> bool:
        """Whether the last generation is complete."""
        return self._ended and not self._queue

    @property
    def waiting_for_others(self) -> int:
        """How many trials of this rank are in the hands of another process that has the same rank."""
        return 0 if self._ours else sum(self._rank_of(k) == self._share.rank for k in range(len(self._members)))

    def in_other_hands(self, number: int, key: str) -> bool:
        """Whether another member has the same config, whose result will serve this one."""
        members = {member.number for member in self._members}
        return any(other in members for other in self.ledger.numbers[key] if other < number)

    def _advance(self) -> None:
        """Go on to the next generation as soon as this one is complete; there may be many in the journals."""
        while not self._queue and not self._ended:
            told = [self.ledger.result(member.number, member.until) for member in self._members]
            if None in told:
                return
            for result in sorted((each for each in told if each), key=lambda each: each.number):
                self.search.tell(result)
            self._members = [] if self.search.over else self.search.ask(self._size)
            self._ended = not self._members
            self._since = time.monotonic()
            self._take_members()

    def _known(self, proposal: Proposal) -> Proposal:
        """As a journal has it: what is trained counts, begun by `dispatch`, or rounded otherwise on another host."""
        values = self.ledger.values.get(proposal.number, proposal.values)
        if values != proposal.values:
            self.search.tell(Told(proposal.number, values, "started"))
        return Proposal(proposal.number, values, proposal.until)

    def _look(self) -> None:
        self._next_look = time.monotonic() + LOOK_AGAIN_S * max(1, self._share.of / 10)  # all of them look at all
        self._ours = self._ours or self._claims.take(claim_of(self._share.rank, RANK)) is not None
        self.read()
        self._take_members()

    def read(self) -> None:
        """See what other ranks have done."""
        self.elsewhere += [line for line in self.ledger.lines() if line["kind"] == "finished"]

    def _take_members(self) -> None:
        free: dict[int, bool] = {}  # ranks whose members this process may take
        for place, proposal in enumerate(self._members):
            member = self._members[place] = self._known(proposal)
            self.ledger.know(member.number, member.values)
            stage, rank = (member.number, member.until), self._rank_of(place)
            if stage in self._taken or self.ledger.result(*stage) is not None:
                continue
            if rank not in free:
                free[rank] = self._ours if rank == self._share.rank else self._gone(rank)
            if free[rank]:
                generation = self._claims.take(claim_of(*stage))
                if generation:  # a process that is gone had it, and may have ended it
                    self.read()
                if generation is not None:
                    self._taken.add(stage)
                    self._enter(member)
                    self._enqueue(member)

    def _rank_of(self, place: int) -> int:
        return place % self._share.of

    def _gone(self, rank: int) -> bool:
        """Whether the process that was a rank has ended; one that never came is waited for, for a lease."""
        names = (Path(self._names / f"{claim_of(rank, RANK)}.{k}") for k in count())
        claims = list(takewhile(Path.exists, names))
        return owner_gone(claims[-1]) if claims else time.monotonic() - self._since > LEASE_S
