"""The engine `processes`: spawned workers on this host, replaced when they die."""

from __future__ import annotations

import os
import pickle
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tradewind.engine import Ended, Epoch, Event, Waiting
from tradewind.engine.children import CLOSED, cause_of_death, end, worker_environment
from tradewind.engine.gang import TIMEOUT, WORDS, Answer, Gangs
from tradewind.engine.pace import Pace
from tradewind.engine.trial_log import span, tail
from tradewind.pack import Outcome, Pack, Place, Task

DYING_S = 1.0
MOST_EVENTS = 500  # heard in one go: the loop has other things to do as well
LARGEST_MESSAGE = 2**30  # bytes; a length beyond it is no length
GRACE_S = 0.5  # between a member's exception and the death of another one that it comes from
SETTING_UP_S = 120.0  # for starting a process and its imports, which no trial's timeout counts
NOT_ITS_ANSWER = "the worker's answer is not that of this trial: something else wrote to its socket"


@dataclass
class Worker:
    """One worker process and what it is doing."""

    number: int
    process: subprocess.Popen[bytes]
    connection: Connection
    log: Path
    packs: deque[Pack] = field(default_factory=deque)  # the first is being trained, the others follow it
    unsent: list[Pack] = field(default_factory=list)
    asked: bool = False  # and has not answered
    started: float = 0.0
    log_start: int = 0
    deadline: float = float("inf")
    ready: bool = False  # it has loaded what it trains with
    verdict: str = ""  # why it is killed

    @property
    def busy(self) -> bool:
        """Whether something is expected of it."""
        return self.asked or bool(self.packs)


class Processes:
    """A fixed number of workers; to tune they are started at once, else when they first have work.

    Trials shorter than a message are sent in bundles. When a worker dies, the one that it was training fails;
    those that it had not begun go to another worker. A pack that takes several workers waits until they are
    idle, and until then no other one is handed out.
    """

    def __init__(self, trainer: str, task: Task, places: Sequence[Place], logs: Path, name: str) -> None:
        self.workers = len(places)
        self._trainer, self._task, self._places, self._logs, self._name = trainer, task, places, logs, name
        self._timeout_s = task.limits.timeout_s or float("inf")
        self._workers: list[Worker | None] = [None] * self.workers
        self._again: deque[Pack] = deque()  # not begun by workers that died
        # to time on CPUs, one trial at a time: the others are there for gangs
        self._alone = self.workers if task.purpose == "tune" or places[0].gpus else 1
        self._gangs = Gangs(self, GRACE_S)
        self._pace = Pace()
        self._born = 0
        self._selector = selectors.DefaultSelector()
        for number in range(self.workers if task.purpose == "tune" else 0):
            self._start(number)  # they import what they need while this process prepares

    def free(self) -> int:
        """How many packs could be handed out now."""
        if self._gangs.waiting:
            return 0
        workers = [self._workers[number] for number in self._open()]
        room = sum(self._pace.room(len(worker.packs) if worker else 0) for worker in workers)
        return max(0, room - len(self._again))

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Give a pack to the worker with the least in hand, one that lives already if there is one."""
        if slots > 1:
            return self._gangs.submit(pack, slots)

        def load(number: int) -> tuple[int, bool]:
            worker = self._workers[number]
            return (0, True) if worker is None else (len(worker.packs), False)

        number = min(self._open(), key=load)
        self.give(number, pack)
        return number

    def poll(self, timeout_s: float) -> list[Event]:
        """What the workers sent, and what the dead ones left."""
        return self._gangs.heard(self.hear(min(timeout_s, self._gangs.due_s())))

    def hear(self, timeout_s: float) -> list[Event | Answer]:
        """The same of each worker by itself, whether it belongs to a gang or not."""
        self._send()
        self._kill_overdue()
        soonest = min((w.deadline for w in self._workers if w and w.busy), default=float("inf"))
        wait_s = max(0.0, min(timeout_s, soonest - time.monotonic()))
        events: list[Event | Answer] = []
        ready = self._selector.select(wait_s)
        while ready:
            for worker in [key.data for key, _ in ready]:
                events.extend(self._heard(worker))
            ready = self._selector.select(0) if len(events) < MOST_EVENTS else []
        events = events or [event for worker in self._ended_unseen() for event in self._buried(worker)]
        while self._again and any(map(self.idle, self._open())):
            self.submit(self._again.popleft())
        return events

    def close(self) -> None:
        """Kill all workers and what they started."""
        living = [worker for worker in self._workers if worker is not None]
        for worker in living:
            worker.process.terminate()
        for worker in living:
            self._bury(worker)
        self._selector.close()

    def living(self) -> Sequence[int]:
        """All: who dies is replaced."""
        return range(self.workers)

    def idle(self, number: int) -> bool:
        """Whether a worker has nothing in hand."""
        worker = self._workers[number]
        return worker is None or not worker.busy

    def seat(self, number: int) -> tuple[str, tuple[str, ...]]:
        """All are on one host, whatever its name."""
        return "", self._places[number].gpus

    def ask(self, number: int, word: str, *content: Any) -> None:
        """Have a worker gather or take turns with the rest of its gang."""
        worker = self._workers[number] or self._start(number)
        worker.asked, worker.verdict = word != "leave", ""
        limit_s = float("inf") if word == "take" else self._timeout_s + SETTING_UP_S
        worker.started, worker.deadline = time.time(), time.monotonic() + limit_s
        with suppress(BrokenPipeError, ConnectionResetError):  # it has just died, which is seen when it is heard
            worker.connection.send((word, *content))

    def give(self, number: int, pack: Pack) -> None:
        """Give a pack to this very worker."""
        worker = self._workers[number] or self._start(number)
        if not worker.packs:
            worker.started, worker.verdict = time.time(), ""
            worker.deadline = time.monotonic() + self._timeout_s + (0.0 if worker.ready else SETTING_UP_S)
        worker.packs.append(pack)
        worker.unsent.append(pack)

    def drop(self, number: int) -> None:
        """Kill a worker; what it was doing has no outcome."""
        if (worker := self._workers[number]) is not None:
            self._bury(worker)

    def _open(self) -> list[int]:
        return [number for number in range(self._alone) if number not in self._gangs.held]

    def _send(self) -> None:
        for worker in self._workers:
            if worker and worker.unsent:
                bundle, worker.unsent = worker.unsent, []
                try:
                    worker.connection.send(bundle)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # it has just died; that is seen below, and what becomes of its packs

    def _ended_unseen(self) -> list[Worker]:
        # a child that a worker forked may hold its end of the pipe open after the worker has died
        return [w for w in self._workers if w and w.busy and w.process.poll() is not None and not w.connection.poll()]

    def _start(self, number: int) -> Worker:
        self._born += 1
        place = self._places[number]
        log = self._logs / f"{self._name}-worker{self._born}.log"
        ours, theirs = socket.socketpair()
        with theirs, open(log, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tradewind.engine.worker", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[theirs.fileno()],
                env=worker_environment(place, os.environ),
            )  # fmt: skip
        worker = Worker(number, process, Connection(ours.detach()), log)
        worker.connection.send((self._trainer, replace(self._task, threads=place.threads), place))
        self._workers[number] = worker
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        return worker

    def _heard(self, worker: Worker) -> list[Event | Answer]:
        try:
            message = worker.connection.recv_bytes(LARGEST_MESSAGE)
        except OSError as error:
            if error.errno is None:  # not even a length
                worker.verdict = NOT_ITS_ANSWER
            return self._buried(worker)
        except EOFError:
            return self._buried(worker)
        try:
            kind, *content = pickle.loads(message)
        except Exception:  # a trial may write anything there
            kind, content = "", []
        if not _expected(worker, kind, content):
            worker.verdict = NOT_ITS_ANSWER
            return self._buried(worker)
        events = self._received(worker, kind, *content)
        if worker.verdict and not worker.packs:
            self._bury(worker)
            events.append(Answer(worker.number, "gone", self._cause(worker)))
        return events

    def _received(self, worker: Worker, kind: str, *content: Any) -> list[Event | Answer]:
        if kind in {"up", "waiting"}:  # for its turn, which takes time that no timeout counts
            since, holder = content or (0.0, {})
            worker.ready = worker.ready or kind == "up"
            worker.deadline = time.monotonic() + (float("inf") if holder else self._timeout_s)
            key = worker.packs[0].trials[0].key if worker.packs else ""
            return [Waiting(worker.number, key, since, holder)] if kind == "waiting" else []
        if kind == "epoch":  # a thread may outlive its trial
            return [Epoch(worker.number, *content)] if content[0] in _keys(worker) else []
        if kind not in {"told", "ended"}:
            worker.asked = False
            return [Answer(worker.number, kind, *content)]
        outcomes, started, finished, log_start, log_end, *left = content
        pack, log = worker.packs.popleft(), span(worker.log, log_start, log_end)
        if kind == "told":
            ended, rest = pack.parted({outcome.key for outcome in outcomes})
            worker.packs.appendleft(rest)
            return [Ended(worker.number, ended, outcomes, started, finished, log, goes_on=True)]
        self._pace.note(finished - started)
        worker.deadline = time.monotonic() + self._timeout_s if worker.packs else float("inf")
        worker.started, worker.log_start = finished, log_end
        worker.verdict = worker.verdict or left[0]
        if worker.verdict:  # it is to be replaced, or was just being killed: what it had besides needs another one
            self._again.extend(worker.packs)
            worker.packs.clear()
        return [Ended(worker.number, pack, outcomes, started, finished, log)]

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker and worker.busy and now >= worker.deadline:
                worker.verdict, worker.deadline = f"{TIMEOUT}ran longer than {self._timeout_s:g} s", float("inf")
                worker.process.terminate()  # its end of the socket closes, and poll buries it

    def _buried(self, worker: Worker) -> list[Event | Answer]:
        try:  # its socket closes before it ends; killed now, it would seem to have died of that
            worker.process.wait(0 if worker.verdict else DYING_S)
        except subprocess.TimeoutExpired:
            worker.verdict = worker.verdict or CLOSED
        self._bury(worker)
        error = self._cause(worker)
        gone = Answer(worker.number, "gone", error)
        if not worker.packs:
            return [gone]
        guilty, *others = worker.packs
        self._again.extend(others)
        outcomes = [Outcome(t.key, "failed", error["what"], error) for t in guilty.trials]
        log = span(worker.log, worker.log_start, worker.log.stat().st_size)
        return [Ended(worker.number, guilty, outcomes, worker.started, time.time(), log), gone]

    def _cause(self, worker: Worker) -> dict[str, str]:
        error = {"what": worker.verdict} if worker.verdict else cause_of_death(worker.process.returncode)
        return {**error, "stderr": tail(worker.log, worker.log_start)}

    def _bury(self, worker: Worker) -> None:
        end(worker.process)
        self._selector.unregister(worker.connection)
        worker.connection.close()
        self._workers[worker.number] = None


def _expected(worker: Worker, kind: str, content: list[Any]) -> bool:
    """Whether this is an answer to what the worker was asked."""
    if kind == "epoch":
        return len(content) == 3 and bool(worker.packs)
    if kind not in {"told", "ended"}:
        return kind in {"up", "waiting", *WORDS}
    if len(content) != {"told": 5, "ended": 6}[kind] or not worker.packs:
        return False
    keys = _keys(worker)
    answered = [outcome.key for outcome in content[0]]
    return answered == keys if kind == "ended" else set(answered) <= set(keys)


def _keys(worker: Worker) -> list[str]:
    return [trial.key for trial in worker.packs[0].trials]
