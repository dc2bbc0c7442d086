"""A worker process: set up once, then trains pack after pack until it is told to end.

Started as `python -m tradewind.engine.worker SOCKET PARENT`. It dies with its parent. Its output, down to
what C libraries print while they crash, goes to its log.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from tradewind.disturbance import Disturbance
from tradewind.engine.isolation import Isolation, no_return_from_forks
from tradewind.engine.leftovers import SOCKET_CLOSED, Leftovers, file_of
from tradewind.engine.reaper import under_reaper
from tradewind.engine.trial_log import header
from tradewind.errors import TradewindError
from tradewind.machine import boot, core_numbers
from tradewind.occupancy import Holder, Turn
from tradewind.pack import Outcome, Pack, Place, Scores, Task, Trainer, untold


def error_of(error: BaseException) -> dict[str, str]:
    """An exception as a trial's error."""
    trace = "".join(traceback.format_exception(error))
    return {"what": f"{type(error).__name__}: {error}", "traceback": trace}


def failed(pack: Pack, error: BaseException) -> list[Outcome]:
    """The outcomes of a pack that raised."""
    found = error_of(error)
    return [Outcome(t.key, "failed", found["what"], found) for t in pack.trials]


def load_trainer(reference: str, task: Task) -> Trainer:
    """The trainer that an engine was told to use; engines do not know training."""
    module, _, name = reference.partition(":")
    trainer: Trainer = getattr(importlib.import_module(module), name)(task)
    return trainer


def _log_size(otherwise: int = 0) -> int:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        return os.fstat(1).st_size
    except (OSError, ValueError):  # closed by the trial
        return otherwise


def things_of(gpus: Sequence[str], cores: Iterable[int]) -> list[str]:
    """What a process computes on, as turns are taken on it."""
    return sorted(gpus or {f"core-{number}" for number in cores})


def turn_of(task: Task, things: Sequence[str]) -> Turn:
    """When this process may compute: at any time to tune, unless a trial is timed; alone to time."""
    return Turn(things if task.waits else (), task.purpose == "time", task.run_folder)


def watched(task: Task, place: Place, starter: int) -> Disturbance | None:
    """What else the machine does while a trial is timed; to tune, nobody asks."""
    return Disturbance(place, starter) if task.purpose == "time" else None


def note(outcomes: Sequence[Outcome], waited_s: float, watch: Disturbance | None) -> None:
    """Put into the records of trials how long they waited for their turn, and what disturbed them."""
    disturbed = watch.share() if watch and outcomes else None
    for outcome in outcomes:
        outcome.facts["waited_s"] = waited_s
        if watch:
            outcome.facts["disturbed"] = disturbed


def address() -> str:
    """What other hosts can reach this one by: its name where that does not lead back to itself, else a number."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        if not socket.gethostbyname(name).startswith("127."):
            return name
    import psutil

    numbers = [one.address for own in psutil.net_if_addrs().values() for one in own if one.family == socket.AF_INET]
    return next((number for number in numbers if not number.startswith("127.")), name)


KEPT_TURN_S = 0.05  # a timed trial waits no longer for short ones than that
FOLLOWS_S = 0.002  # what the engine takes to answer with more packs


class Service:
    """What a worker does for the engine that started it, message after message."""

    def __init__(self, connection: Connection, starter: int) -> None:
        self._starter = starter
        self._connection, self._sending = connection, threading.Lock()
        self._socket = file_of(connection.fileno())
        self._pid, self._training = os.getpid(), Pack(())
        os.register_at_fork(after_in_child=connection.close)
        self._reference, self._task, place = connection.recv()
        cores = set(core_numbers())
        if place.cores:
            os.sched_setaffinity(0, place.cores)
            # to time, nobody computes on what this worker leaves idle either
            cores = cores | set(place.cores) if self._task.purpose == "time" else set(place.cores)
        self._things = things_of(place.gpus, cores)
        self._turn = turn_of(self._task, self._things)
        self._turn_for_all = contextlib.ExitStack()  # of a gang's members on this host
        self._place, self._waited_s = place, 0.0
        self._trainer: Trainer | None = None
        self._up = False  # and said so
        self._isolation: Isolation | None = None
        self._leftovers = Leftovers([0, 1, 2, connection.fileno()])

    def serve(self) -> None:
        """Do what is asked until there is nobody to ask: train a list of packs, or take part in a gang."""
        self._load_ahead()
        message = self._connection.recv()
        while message:
            following = None
            if not isinstance(message, list):
                self._take_part(*message)
            elif message[0].gang is not None:  # its turn was taken for all members
                for pack in message:
                    self._train(pack)
            else:
                with self._waited_for(self._turn):
                    following = self._train_packs(message)
            message = self._connection.recv() if following is None else following

    def _train_packs(self, packs: list[Pack]) -> Any:
        """Train packs and, where they are short, those that follow at once: a turn costs more than an empty trial.

        Returns the message that came instead of more, if one did.
        """
        until = time.monotonic() + (KEPT_TURN_S if self._task.purpose == "tune" else 0.0)
        message: Any = packs
        while isinstance(message, list) and message and message[0].gang is None:
            for pack in message:
                self._train(pack)
            if time.monotonic() > until or not select.select([self._connection], [], [], FOLLOWS_S)[0]:
                return None
            message = self._connection.recv()
        return message

    def _send(self, *message: Any) -> None:
        if os.getpid() != self._pid:
            raise TradewindError("a forked process can't report for its trial; report from the process that trains")
        if file_of(self._connection.fileno()) != self._socket:  # its number may be another file's now
            os._exit(SOCKET_CLOSED)
        with self._sending:
            self._connection.send(message)

    def _report(self, key: str, epoch: int, scores: Scores) -> None:
        if any(trial.key == key for trial in self._training.trials):  # a thread may outlive its trial
            self._send("epoch", key, epoch, dict(scores))

    def _load_ahead(self) -> None:
        """Load the trainer while the parent still prepares; what goes wrong does so again with the first trial."""
        if self._task.purpose != "tune":
            return
        self._turn.take()
        try:
            if self._turn.ahead() is None:  # else it would disturb what is timed here
                with contextlib.suppress(Exception, SystemExit):
                    self._ready()
        finally:
            self._turn.__exit__()

    def _ready(self) -> Trainer:
        if self._trainer is None:
            self._trainer = load_trainer(self._reference, self._task)
        return self._trainer

    @contextlib.contextmanager
    def _waited_for(self, turn: Turn) -> Iterator[None]:
        since, holders = time.time(), list[Holder]()

        def told(holder: Holder) -> None:
            holders.append(holder)
            with contextlib.suppress(OSError):
                os.write(1, f"waiting for a trial of {holder['run']} on the same cores or GPUs\n".encode())
            self._send("waiting", since, dict(holder))

        turn.enter(told)
        try:
            if holders:
                self._waited_s = time.time() - since
                self._send("waiting", since, {})
            yield
        finally:
            turn.__exit__()

    def _train(self, pack: Pack) -> None:
        with contextlib.suppress(OSError):  # a full disk costs the log, not the trial
            os.write(1, header(pack).encode())
        started, log_start = time.time(), _log_size()
        leads = pack.gang is None or not pack.gang.rank
        told: set[str] = set()
        watch: Disturbance | None = None
        waited_s, self._waited_s = self._waited_s, 0.0

        def tell(outcome: Outcome) -> None:  # at once: what comes after it may be the end of this process
            told.add(outcome.key)
            note([outcome], waited_s, watch)
            self._send("told", [outcome], started, time.time(), log_start, _log_size())

        try:
            if not self._up:
                self._ready()
                started, self._up = time.time(), True
                self._send("up")
            self._isolation = self._isolation or Isolation()  # what imports have done stays
            self._isolation.seed(pack.trials[0].seed)
            # of a single trial the outcome is that of the pack
            watch = watched(self._task, self._place, self._starter)
            hears = self._report if leads else _unheard, tell if len(pack.trials) > 1 else untold
            self._training = pack
            with no_return_from_forks():
                trained = self._ready().fit(pack, *hears)
            outcomes = [outcome for outcome in trained if outcome.key not in told]
        except (Exception, SystemExit) as error:
            traceback.print_exc(file=sys.__stderr__)
            outcomes = failed(pack.parted(told)[1], error)
        self._training, finished = Pack(()), time.time()
        note(outcomes, waited_s, watch)
        if self._isolation is not None:
            self._isolation.restore()
        left = self._leftovers.found() if pack.gang is None else ""
        # sent before the next one begins, which may be the end of this process
        self._send("ended", outcomes, started, finished, log_start, _log_size(log_start), left)

    def _take_part(self, word: str, *content: Any) -> None:
        try:
            if word == "take":
                turn = turn_of(self._task, content[0])
                self._turn_for_all.enter_context(self._waited_for(turn))
                self._send("taken")
            elif word == "leave":
                self._turn_for_all.close()
            else:
                trainer = self._ready()
                meeting = _meeting(trainer, *content) if word == "meet" else ""
                # hosts that are containers of one machine share its cores
                self._send("gathered", (meeting, boot() or socket.gethostname(), self._things))
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            self._send("unready", error_of(error))


def _unheard(key: str, epoch: int, scores: Scores) -> None:
    """Where all members of a gang report the same, the first one speaks."""


def _meeting(trainer: Trainer, far: bool) -> str:
    port = trainer.meet().rpartition(":")[2]
    return f"{address() if far else '127.0.0.1'}:{port}"


def main() -> None:
    """Serve the parent that started this process."""
    handle, starter = map(int, sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGUSR1):  # Ctrl-C, and mpiexec's signals, reach the whole group
        signal.signal(number, signal.SIG_IGN)  # the parent decides
    under_reaper(starter, handle)
    os.set_inheritable(handle, False)
    faulthandler.enable()
    try:
        Service(Connection(handle), starter).serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has ended
    sys.stdout.flush()
    os._exit(0)  # threads and exit hooks of a user's libraries must not keep it alive


if __name__ == "__main__":
    main()
