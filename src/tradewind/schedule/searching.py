"""What both schedules of a search that learns have in common: the ledger, the trials in hand, and the pruned."""

from __future__ import annotations

import time
from collections import deque

from tradewind import machine
from tradewind.claims import Claims
from tradewind.journal import Journal, Record
from tradewind.pack import Outcome, Trial
from tradewind.schedule.ledger import Ledger
from tradewind.schedule.packing import LARGEST
from tradewind.schedule.segments import Curve, pruned
from tradewind.schedule.trials import Trials, with_attempt
from tradewind.search import Proposal
from tradewind.study_search import LEARNING

ROUNDS = 8  # a search is asked for less than fills a pack, rather than learn less often than this;
HALVES = 2  # with halving alone there is less to learn
STAGES = 1_000_000  # claims of a number: one for each epoch until which it may be asked to train, and
PRUNED, RANK = STAGES - 1, STAGES - 2  # one to end it where it is; one that says which process a rank is


def claim_of(number: int, stage: int | None) -> int:
    """The block to claim for a stage of a number; None: to the end."""
    return number * STAGES + (stage or 0)


def batch_size(trials: Trials, workers: int) -> int:
    """How many trials a worker takes at once: what fills a pack, unless that is much of the search."""
    if not trials.known or trials.study.purpose == "time":
        return 1
    on_gpu = trials.defaults["device"] != "cpu" and machine.gpus()
    rounds = ROUNDS if trials.study.search.method in LEARNING else HALVES
    return max(1, min(LARGEST["cuda" if on_gpu else "cpu"], trials.count()[0] // (rounds * workers)))


class Searching:
    """Hands out what it holds; who fills it is up to the schedule."""

    def __init__(self, trials: Trials, claims: Claims, ledger: Ledger, journal: Journal) -> None:
        self._trials, self._claims, self.ledger, self._journal = trials, claims, ledger, journal
        self.search = trials.search()
        self._tries = trials.study.retries + 1
        self._queue: deque[Trial] = deque()
        self._mine: set[str] = set()  # queued, handed out, or on the way to the disk
        self._curves: dict[str, Curve] = {}  # of trials that are paused, until that is durable
        self._next_look = 0.0
        self.elsewhere: list[Record] = []  # finished by other jobs, for the display

    @property
    def settled(self) -> bool:
        """Whether nothing more is asked, and nothing is in anybody's hands."""
        raise NotImplementedError

    @property
    def over(self) -> bool:
        """Whether every trial has its record."""
        return self.settled and not self._paused()

    @property
    def too_few(self) -> str:
        """Why fewer configs were tried than were wanted, once it is over; or nothing."""
        return self._trials.fewer(len(self.ledger.values), self.search.why)

    def joined(self, outcome: Outcome) -> Outcome:
        """An outcome with what the segments of the trial before have given."""
        whole = self.ledger.joined(outcome)
        if whole.state == "paused":
            self._curves[whole.key] = whole.curve
        return whole

    def tell(self, trial: Trial, record: Record) -> None:
        """A trial of ours has ended or is paused; one that failed is queued again while it has tries left."""
        self.ledger.add(record, self._curves.pop(trial.key, []))
        if record["state"] == "failed" and trial.attempt < self._tries:
            self._queue.appendleft(with_attempt(trial, trial.attempt + 1))
            return
        self._mine.discard(trial.key)
        self.note(trial.key)

    def note(self, key: str) -> None:
        """There is news of a trial."""

    def take_back(self, trial: Trial) -> None:
        """A trial of ours was lost through no fault of its own: it is next."""
        self._queue.appendleft(trial)

    def pruned(self) -> list[tuple[Trial, Record, Curve]]:
        """Once all is over: the paused trials that this job is to record as they are, with their curves."""
        found = []
        for trial in self._paused() if self.settled else ():
            generation = self._claims.take(claim_of(trial.trial // self._trials.study.repeats, PRUNED))
            if generation:  # a job that is gone had it, and may have recorded it
                self.read()
            fate = self.ledger.fate(trial.key)
            if generation is not None and fate.ended is None and (pause := fate.pause()):
                self._mine.add(trial.key)
                found.append((trial, pruned(pause[0]), pause[1]))
        return found

    def read(self) -> None:
        """See what other jobs have done."""
        raise NotImplementedError

    def _paused(self) -> list[Trial]:
        """Those that are paused and in nobody's hands here."""
        found = []
        for number in sorted(self.ledger.values):
            for trial in self.ledger.trials(number):
                fate = self.ledger.fate(trial.key)
                if fate.pauses and fate.ended is None and trial.key not in self._mine:
                    found.append(trial)
        return found

    def _enter(self, proposal: Proposal) -> None:
        """Note a proposal that this job has claimed, unless a journal has it already."""
        if (proposal.number, proposal.until) not in self.ledger.asked:
            self.ledger.begin(proposal)
            trial = self.ledger.trials(proposal.number)[0]
            self._journal.asked(
                {
                    "key": trial.key, "number": proposal.number, "values": proposal.values, "until": proposal.until,
                    "epochs": self.search.epochs, "at": time.time(),
                }
            )  # fmt: skip

    def _enqueue(self, proposal: Proposal) -> None:
        """Queue what is left of a number's trials; one that an equal number has in hand serves both."""
        for trial in self.ledger.left(proposal.number, proposal.until):
            if trial.key not in self._mine and not self.in_other_hands(proposal.number, trial.key):
                self._mine.add(trial.key)
                self._queue.append(trial)

    def in_other_hands(self, number: int, key: str) -> bool:
        """Whether another number of the same config is under way, whose result will serve this one."""
        raise NotImplementedError
