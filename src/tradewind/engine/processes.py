"""The engine `processes`: spawned workers on this host, replaced when they die."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from tradewind.engine import Ended, Epoch, Event
from tradewind.engine.trial_log import span, tail
from tradewind.pack import Outcome, Pack, Task

# Large freed blocks stay with the process: without this every batch pays for fresh pages, 1.5–2 × slower.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
DYING_S = 1.0
SETTING_UP_S = 120.0  # for starting a process and its imports, which no trial's timeout counts
MARK = "TRADEWIND_WORKER"  # in the environment of a worker and of all that it starts
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
MPI_PREFIXES = ("OMPI_", "PMIX_", "PRTE_", "PMI_")  # a child that inherits them takes itself for a rank


def worker_environment(threads: int, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker."""
    kept = {name: value for name, value in base.items() if not name.startswith(MPI_PREFIXES)}
    path = os.pathsep.join(entry for entry in sys.path if entry)  # what could be imported here can be there
    own = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
    return {**ALLOCATOR, **kept, **dict.fromkeys(THREADS, str(threads)), **own}


@dataclass
class Worker:
    """One worker process and what it is doing."""

    number: int
    process: subprocess.Popen[bytes]
    connection: Connection
    log: Path
    mark: str
    pack: Pack | None = None
    started: float = 0.0
    log_start: int = 0
    deadline: float = float("inf")
    overrun: bool = False


class Processes:
    """A fixed number of workers; each is started when it first has work."""

    def __init__(self, trainer: str, task: Task, workers: int, logs: Path, name: str) -> None:
        self.workers = workers
        self._trainer, self._task, self._logs, self._name = trainer, task, logs, name
        self._timeout_s = task.limits.timeout_s or float("inf")
        self._workers: list[Worker | None] = [None] * workers
        self._born = 0
        self._selector = selectors.DefaultSelector()

    def free(self) -> int:
        """How many workers could take a pack now."""
        return sum(1 for worker in self._workers if worker is None or worker.pack is None)

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Hand a pack to a free worker, one that lives already if there is one."""
        order = sorted(range(self.workers), key=lambda k: self._workers[k] is None)
        number = next(k for k in order if (w := self._workers[k]) is None or w.pack is None)
        known = self._workers[number]
        worker = known or self._start(number)
        worker.pack, worker.started, worker.overrun = pack, time.time(), False
        worker.deadline = time.monotonic() + self._timeout_s + (0.0 if known else SETTING_UP_S)
        try:
            worker.connection.send(pack)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has just died; the next poll sees that and tells what became of the pack
        return number

    def poll(self, timeout_s: float) -> list[Event]:
        """What the workers sent, and what the dead ones left."""
        self._kill_overdue()
        soonest = min((w.deadline for w in self._workers if w and w.pack), default=float("inf"))
        wait_s = max(0.0, min(timeout_s, soonest - time.monotonic()))
        events: list[Event] = []
        for ready, _ in self._selector.select(wait_s):
            worker: Worker = ready.data
            try:
                events.extend(self._received(worker))
            except (EOFError, ConnectionResetError, OSError):
                events.extend(self._buried(worker))
        return events or [event for worker in self._ended_unseen() for event in self._buried(worker)]

    def _ended_unseen(self) -> list[Worker]:
        # a child that a worker forked may hold its end of the pipe open after the worker has died
        return [w for w in self._workers if w and w.pack and w.process.poll() is not None and not w.connection.poll()]

    def close(self) -> None:
        """Kill all workers and what they started."""
        for worker in self._workers:
            if worker is not None:
                self._bury(worker)
        self._selector.close()

    def _start(self, number: int) -> Worker:
        self._born += 1
        mark = f"{self._name}-worker{self._born}"
        log = self._logs / f"{mark}.log"
        ours, theirs = socket.socketpair()
        with theirs, open(log, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tradewind.engine.worker", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[theirs.fileno()],
                env={**worker_environment(self._task.threads, os.environ), MARK: mark},
            )  # fmt: skip
        worker = Worker(number, process, Connection(ours.detach()), log, mark)
        worker.connection.send((self._trainer, self._task))
        self._workers[number] = worker
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        return worker

    def _received(self, worker: Worker) -> list[Event]:
        kind, *content = worker.connection.recv()
        if kind == "up":
            worker.deadline = time.monotonic() + self._timeout_s
            return []
        if kind == "epoch":
            return [Epoch(worker.number, *content)]
        outcomes, started, finished, log_start, log_end = content
        assert worker.pack is not None, "a worker ends only what it was given"
        log = span(worker.log, log_start, log_end)
        ended = Ended(worker.number, worker.pack, outcomes, started, finished, log)
        worker.pack, worker.deadline, worker.log_start = None, float("inf"), log_end
        if worker.overrun:  # it ended just as it was killed: the next pack needs another worker
            self._bury(worker)
        return [ended]

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker and worker.pack and now >= worker.deadline:
                worker.overrun, worker.deadline = True, float("inf")
                kill_tree(worker.process.pid)  # its end of the pipe closes, and poll buries it

    def _buried(self, worker: Worker) -> list[Event]:
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(DYING_S)  # its pipe closes first; killed now, it would seem to have died of that
        self._bury(worker)
        if worker.pack is None:
            return []
        code = worker.process.returncode
        error = {"what": f"the worker ended with exit code {code}"}
        if worker.overrun:
            error = {"what": f"timeout: ran longer than {self._timeout_s:g} s"}
        elif code < 0:
            name = signal_name(-code)
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            error = {"what": f"the worker died of {name}{hint}", "signal": name}
        error["stderr"] = tail(worker.log, worker.log_start)
        outcomes = [Outcome(t.key, "failed", error["what"], error) for t in worker.pack.trials]
        log = span(worker.log, worker.log_start, worker.log.stat().st_size)
        return [Ended(worker.number, worker.pack, outcomes, worker.started, time.time(), log)]

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
