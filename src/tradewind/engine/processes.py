"""The engine `processes`: spawned workers on this host, replaced when they die."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tradewind.engine import Ended, Epoch, Event
from tradewind.engine.pace import Pace
from tradewind.engine.trial_log import span, tail
from tradewind.pack import Outcome, Pack, Place, Task

# Large freed blocks stay with the process: without this every batch pays for fresh pages, 1.5–2 × slower.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
DYING_S = 1.0
MOST_EVENTS = 500  # heard in one go: the loop has other things to do as well
SETTING_UP_S = 120.0  # for starting a process and its imports, which no trial's timeout counts
MARK = "TRADEWIND_WORKER"  # in the environment of a worker and of all that it starts
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
MPI_PREFIXES = ("OMPI_", "PMIX_", "PRTE_", "PMI_")  # a child that inherits them takes itself for a rank


def worker_environment(place: Place, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker."""
    kept = {name: value for name, value in base.items() if not name.startswith(MPI_PREFIXES)}
    path = os.pathsep.join(entry for entry in sys.path if entry)  # what could be imported here can be there
    own = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **dict.fromkeys(THREADS, str(place.threads))}
    if place.gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
    return {**ALLOCATOR, **kept, **own}


@dataclass
class Worker:
    """One worker process and what it is doing."""

    number: int
    process: subprocess.Popen[bytes]
    connection: Connection
    log: Path
    mark: str
    packs: deque[Pack] = field(default_factory=deque)  # the first is being trained, the others follow it
    unsent: list[Pack] = field(default_factory=list)
    started: float = 0.0
    log_start: int = 0
    deadline: float = float("inf")
    overrun: bool = False


class Processes:
    """A fixed number of workers; each is started when it first has work.

    Trials shorter than a message are sent in bundles. When a worker dies, the one that it was training fails;
    those that it had not begun go to another worker.
    """

    def __init__(self, trainer: str, task: Task, places: Sequence[Place], logs: Path, name: str) -> None:
        self.workers = len(places)
        self._trainer, self._task, self._places, self._logs, self._name = trainer, task, places, logs, name
        self._timeout_s = task.limits.timeout_s or float("inf")
        self._workers: list[Worker | None] = [None] * self.workers
        self._again: deque[Pack] = deque()  # not begun by workers that died
        self._pace = Pace()
        self._born = 0
        self._selector = selectors.DefaultSelector()

    def free(self) -> int:
        """How many packs could be handed out now."""
        depth = self._pace.depth()
        room = sum(depth if w is None else max(0, depth - len(w.packs)) for w in self._workers)
        return max(0, room - len(self._again))

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Give a pack to the worker with the least in hand, one that lives already if there is one."""
        return self._give(pack)

    def poll(self, timeout_s: float) -> list[Event]:
        """What the workers sent, and what the dead ones left."""
        self._send()
        self._kill_overdue()
        soonest = min((w.deadline for w in self._workers if w and w.packs), default=float("inf"))
        wait_s = max(0.0, min(timeout_s, soonest - time.monotonic()))
        events: list[Event] = []
        ready = self._selector.select(wait_s)
        while ready:
            for worker in [key.data for key, _ in ready]:
                events.extend(self._heard(worker))
            ready = self._selector.select(0) if len(events) < MOST_EVENTS else []
        events = events or [event for worker in self._ended_unseen() for event in self._buried(worker)]
        while self._again and any(worker is None or not worker.packs for worker in self._workers):
            self._give(self._again.popleft())
        return events

    def close(self) -> None:
        """Kill all workers and what they started."""
        for worker in self._workers:
            if worker is not None:
                self._bury(worker)
        self._selector.close()

    def _give(self, pack: Pack) -> int:
        def load(number: int) -> tuple[int, bool]:
            worker = self._workers[number]
            return (0, True) if worker is None else (len(worker.packs), False)

        number = min(range(self.workers), key=load)
        known = self._workers[number]
        worker = known or self._start(number)
        if not worker.packs:
            worker.started, worker.overrun = time.time(), False
            worker.deadline = time.monotonic() + self._timeout_s + (0.0 if known else SETTING_UP_S)
        worker.packs.append(pack)
        worker.unsent.append(pack)
        return number

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
        return [
            w for w in self._workers if w and w.packs and w.process.poll() is not None and not w.connection.poll()
        ]

    def _start(self, number: int) -> Worker:
        self._born += 1
        place = self._places[number]
        mark = f"{self._name}-worker{self._born}"
        log = self._logs / f"{mark}.log"
        ours, theirs = socket.socketpair()
        with theirs, open(log, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tradewind.engine.worker", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[theirs.fileno()],
                env={**worker_environment(place, os.environ), MARK: mark},
            )  # fmt: skip
        worker = Worker(number, process, Connection(ours.detach()), log, mark)
        worker.connection.send((self._trainer, replace(self._task, threads=place.threads), place))
        self._workers[number] = worker
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        return worker

    def _heard(self, worker: Worker) -> list[Event]:
        try:
            events = self._received(worker, *worker.connection.recv())
        except (EOFError, ConnectionResetError, OSError):
            return self._buried(worker)
        if worker.overrun and not worker.packs:
            self._bury(worker)
        return events

    def _received(self, worker: Worker, kind: str, *content: Any) -> list[Event]:
        if kind == "up":
            worker.deadline = time.monotonic() + self._timeout_s
            return []
        if kind == "epoch":
            return [Epoch(worker.number, *content)]
        outcomes, started, finished, log_start, log_end = content
        pack = worker.packs.popleft()
        self._pace.note(finished - started)
        worker.deadline = time.monotonic() + self._timeout_s if worker.packs else float("inf")
        worker.started, worker.log_start = finished, log_end
        if worker.overrun:  # it ended just as it was killed: what it had besides needs another worker
            self._again.extend(worker.packs)
            worker.packs.clear()
        return [Ended(worker.number, pack, outcomes, started, finished, span(worker.log, log_start, log_end))]

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker and worker.packs and now >= worker.deadline:
                worker.overrun, worker.deadline = True, float("inf")
                kill_tree(worker.process.pid)  # its end of the pipe closes, and poll buries it

    def _buried(self, worker: Worker) -> list[Event]:
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(DYING_S)  # its pipe closes first; killed now, it would seem to have died of that
        self._bury(worker)
        if not worker.packs:
            return []
        guilty, *others = worker.packs
        self._again.extend(others)
        error = self._cause(worker)
        outcomes = [Outcome(t.key, "failed", error["what"], error) for t in guilty.trials]
        log = span(worker.log, worker.log_start, worker.log.stat().st_size)
        return [Ended(worker.number, guilty, outcomes, worker.started, time.time(), log)]

    def _cause(self, worker: Worker) -> dict[str, str]:
        code = worker.process.returncode
        error = {"what": f"the worker ended with exit code {code}"}
        if worker.overrun:
            error = {"what": f"timeout: ran longer than {self._timeout_s:g} s"}
        elif code < 0:
            name = signal_name(-code)
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            error = {"what": f"the worker died of {name}{hint}", "signal": name}
        return {**error, "stderr": tail(worker.log, worker.log_start)}

    def _bury(self, worker: Worker) -> None:
        kill_tree(worker.process.pid)
        worker.process.wait()
        kill_marked(worker.mark)
        self._selector.unregister(worker.connection)
        worker.connection.close()
        self._workers[worker.number] = None


def kill_marked(mark: str) -> None:
    """Kill what a dead worker has left behind: its children now belong to init, but carry its mark."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                process.kill()


def signal_name(number: int) -> str:
    """The name of a signal; real-time signals have only numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill_tree(pid: int) -> None:
    """Kill a process and all that it started; a worker's own children would outlive it."""
    try:
        root = psutil.Process(pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
