"""The schedule `synchronous`: every rank derives its own share from one plan and its number.

Nothing is handed out after the start. A rank that is started again goes on with the share it had; one that
finds another process at work on its share waits, and takes over only if that process is gone.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from tradewind.claims import Claims
from tradewind.errors import Mistake
from tradewind.journal import Record
from tradewind.pack import Trial
from tradewind.schedule.balance import Array, deal
from tradewind.schedule.dispatch import LOOK_AGAIN_S, History
from tradewind.schedule.plan import Plan, class_of, networks_of, open_positions, shares_networks
from tradewind.schedule.trials import Trials, with_attempt


class Synchronous:
    """Which trial next: those of this rank's share, longest expected first; to time, in a random order."""

    def __init__(
        self, trials: Trials, plan: Plan, rank: int, claims: Claims, history: History, retry_failed: bool,
        watches: bool = False,
    ) -> None:  # fmt: skip
        self._trials, self._claims, self._history, self._plan, self._rank = trials, claims, history, plan, rank
        self._tries, self._again, self._watches = trials.study.retries + 1, retry_failed, watches
        self._share = share(trials, plan, rank)
        self._at = 0
        self._queue: deque[Trial] = deque()  # failed, to be tried again
        self._mine = False
        self._next_look = 0.0
        self.elsewhere: list[Record] = []  # finished by other ranks, for the display

    def next(self) -> Trial | None:
        """A trial to run now, or None where there is none at the moment."""
        if time.monotonic() >= self._next_look and (self._watches or not (self._mine or self.over)):
            self._next_look = time.monotonic() + LOOK_AGAIN_S
            self._look()
        if self._queue:
            return self._queue.popleft()
        return self._advance() if self._mine else None

    @property
    def over(self) -> bool:
        """Whether nothing of the share is left; what is in flight is not counted."""
        return self._at == len(self._share) and not self._queue

    @property
    def waiting_for_others(self) -> int:
        """How many trials of this share are in the hands of another process that has the same rank."""
        return 0 if self._mine else len(self._share) - self._at

    def tell(self, trial: Trial, record: Record) -> None:
        """A trial of ours has ended; one that failed is queued again while it has tries left."""
        self._history.add(record)
        if record["state"] == "failed" and trial.attempt < self._tries:
            self._queue.appendleft(with_attempt(trial, trial.attempt + 1))

    def left_to_others(self) -> int:
        """How many trials of the plan have no result yet: asked at the end, those of other ranks and failed ones."""
        self.elsewhere += self._history.refresh()
        return max(0, self._plan.left + len(self._plan.finished) - self._history.count_final())

    def take_back(self, trial: Trial) -> None:
        """A trial of ours was lost through no fault of its own: it is next."""
        self._queue.appendleft(trial)

    def _look(self) -> None:
        self._mine = self._mine or self._claims.take(self._rank) is not None
        self.elsewhere += self._history.refresh()
        if not self._mine and self._advance() is not None:  # what that process has finished is behind us
            self._at -= 1

    def _advance(self) -> Trial | None:
        """The next trial of the share that is left."""
        while self._at < len(self._share):
            trial = self._trials[int(self._share[self._at])]
            self._at += 1
            if left := self._history.left([trial], self._tries, self._again):
                return left[0]
        return None


def share(trials: Trials, plan: Plan, rank: int) -> Array:
    """The positions of one rank, in the order in which it runs them: those of all ranks are every one, once.

    Trials that share a network are dealt as one.
    """
    if not 0 <= rank < plan.of:
        raise Mistake(f"--rank {rank} --of {plan.of}: allowed: ranks from 0 to {plan.of - 1}")
    positions = open_positions(trials, plan.finished)
    if not shares_networks(trials) or (plan.classes and "epochs" in plan.classes.names):
        return _dealt(positions, trials, plan, rank)
    networks, which = np.unique(networks_of(positions, trials), return_inverse=True)
    mine = _dealt(networks, trials, plan, rank)
    turn = np.full(len(networks), -1)  # none: it is another rank's
    turn[np.searchsorted(networks, mine)] = np.arange(len(mine))
    order = np.argsort(turn[which], kind="stable")
    return np.asarray(positions[order[turn[which[order]] >= 0]])


def _dealt(positions: Array, trials: Trials, plan: Plan, rank: int) -> Array:
    """Of these positions, those of one rank, in their order."""
    costs = np.array(plan.classes.costs if plan.classes else (1,), dtype=np.int64)
    number = class_of(positions, trials, plan.classes) if plan.classes else np.zeros(len(positions), np.int64)
    counts = np.bincount(number, minlength=len(costs))
    dealt = deal(costs, counts, plan.of)
    start = dealt[:, :rank].sum(axis=1)
    stop = start + dealt[:, rank]
    # which trials of a class a rank gets is chance, so that what the costs do not know is spread as well
    mixed = scattered(positions, plan.name)
    order = np.lexsort((mixed, number))
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    mine = order[(place >= start[number[order]]) & (place < stop[number[order]])]
    if trials.study.purpose == "time":
        return np.asarray(positions[mine[np.lexsort((mixed[mine], positions[mine] % trials.study.repeats))]])
    return np.asarray(positions[mine[np.lexsort((positions[mine], -costs[number[mine]]))]])


def scattered(positions: Array, key: str) -> Array:
    """A number for every position that looks random and is the same everywhere."""
    start = np.uint64(int.from_bytes(key.encode()[-8:], "big"))
    mixed = (positions.astype(np.uint64) ^ start) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
