"""The schedule `dispatch`: one process hands out trials as its workers get free.

Several jobs may do so on one folder at once: each claims blocks of places, takes over those of jobs that
are gone, and ends when every trial has ended, whoever ran it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from tradewind.claims import Claims
from tradewind.journal import Reading, Record, owner_of
from tradewind.pack import FINAL, Trial
from tradewind.results import Results
from tradewind.schedule.trials import Trials, with_attempt
from tradewind.search.grid import Classes, FromDear

BLOCKS = 1024  # about how many claims a large study makes
LARGEST_BLOCK = 16_384
LOOK_AGAIN_S = 0.3  # how often blocks that others hold are looked at


class History:
    """Which trials have ended, by any job: what was read at the start and what others have added since."""

    def __init__(self, results: Results, owner: str) -> None:
        self._folder, self._owner = results.folder, owner
        self._final = results.final_keys()
        self._failures = results.attempts()
        self._before = dict(self._failures)
        self._readings = {name: Reading(self._folder.journals / name, end) for name, end in results.ends().items()}

    def add(self, record: Record) -> None:
        """Take a finished record into account."""
        key = record["key"]
        if record["state"] in FINAL:
            self._final.add(key)
        else:
            self._failures[key] = self._failures.get(key, 0) + 1

    def refresh(self) -> list[Record]:
        """Read what other jobs have finished since; their records."""
        found = []
        for path in self._folder.files(self._folder.journals, "jsonl"):
            if owner_of(path) != self._owner:
                reading = self._readings.setdefault(path.name, Reading(path))
                found += [line for _, line in reading.lines(finished_only=True) if line["kind"] == "finished"]
        for record in found:
            self.add(record)
        return found

    def final(self, key: str) -> bool:
        """Whether a trial has its result."""
        return key in self._final

    def failed_anew(self, key: str) -> bool:
        """Whether a trial has failed since this job began."""
        return self.failures(key) > self._before.get(key, 0)

    def failures(self, key: str) -> int:
        """How often a trial has failed."""
        return self._failures.get(key, 0)

    def count_final(self) -> int:
        """How many trials have their result."""
        return len(self._final)

    def left(self, trials: Iterable[Trial], tries: int, again: bool) -> list[Trial]:
        """Those trials that are still to be run; what failed in earlier jobs counts as a try unless `again`."""
        found = []
        for trial in trials:
            failures = self.failures(trial.key)
            if not self.final(trial.key) and (failures < tries or (again and not self.failed_anew(trial.key))):
                found.append(with_attempt(trial, failures + 1) if failures else trial)
        return found


class Dispatch:
    """Which trial next: what is left of the grid, block by block, then what others leave behind.

    With classes of cost, the longest expected first. Claims count places, so all jobs on a folder must be
    given the same classes.
    """

    def __init__(
        self, trials: Trials, claims: Claims, history: History, retry_failed: bool, classes: Classes | None = None
    ) -> None:
        study = trials.study
        self._trials, self._claims, self._history = trials, claims, history
        self._order = (
            FromDear(trials.space, trials.defaults, study.repeats, classes)
            if classes and study.purpose != "time"
            else trials.order()
        )
        self._tries = study.retries + 1
        self._again = retry_failed
        self._block_size = max(1, min(self._order.size // BLOCKS, LARGEST_BLOCK))
        self._blocks = iter(range(-(-self._order.size // self._block_size)))
        self._queue: deque[Trial] = deque()
        self._held: dict[int, list[Trial]] = {}  # blocks of other jobs: what is left of them
        self._next_look = 0.0
        self._walked = False
        self.elsewhere: list[Record] = []  # finished by other jobs, for the display

    def only(self, positions: Iterable[int]) -> None:
        """Run nothing but what is left of these, whoever has claimed them."""
        self._queue.extend(self._left(self._trials[position] for position in positions))
        self._walked = True

    def next(self) -> Trial | None:
        """A trial to hand out now, or None where there is none at the moment."""
        while not self._queue and not self._walked:
            self._advance()
        if not self._queue and self._held and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_AGAIN_S
            self._look_again()
        return self._queue.popleft() if self._queue else None

    @property
    def over(self) -> bool:
        """Whether nothing is left to hand out, here or elsewhere; what is in flight is not counted."""
        return self._walked and not self._queue and not self._held

    @property
    def waiting_for_others(self) -> int:
        """How many trials are left in blocks that other jobs hold."""
        return sum(map(len, self._held.values()))

    def tell(self, trial: Trial, record: Record) -> None:
        """A trial of ours has ended; one that failed is queued again while it has tries left."""
        self._history.add(record)
        if record["state"] == "failed" and trial.attempt < self._tries:
            self._queue.appendleft(with_attempt(trial, trial.attempt + 1))

    def take_back(self, trial: Trial) -> None:
        """A trial of ours was lost through no fault of its own: it is next."""
        self._queue.appendleft(trial)

    def _advance(self) -> None:
        block = next(self._blocks, None)
        if block is None:
            self._walked = True
            return
        start = block * self._block_size
        places = self._order.positions(start, min(start + self._block_size, self._order.size))
        left = self._left(self._trials[position] for position in places)
        if left:
            self._take(block, left)

    def _take(self, block: int, left: list[Trial]) -> None:
        taken = self._claims.take(block)
        if taken is None:
            self._held[block] = left
            return
        if taken > 0:  # it had another owner, who may have finished some of it
            self.elsewhere += self._history.refresh()
            left = self._left(left)
        self._held.pop(block, None)
        self._queue.extend(left)

    def _look_again(self) -> None:
        self.elsewhere += self._history.refresh()
        for block, trials in list(self._held.items()):
            if left := self._left(trials):
                self._take(block, left)
            else:
                del self._held[block]

    def _left(self, trials: Iterable[Trial]) -> list[Trial]:
        return self._history.left(trials, self._tries, self._again)
