"""A worker process: set up once, then trains pack after pack until it is told to end.

Started as `python -m tradewind.engine.worker SOCKET PARENT`. It dies with its parent. Its output, down to
what C libraries print while they crash, goes to its log.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from tradewind.engine.trial_log import header
from tradewind.machine import core_numbers, die_with_parent
from tradewind.occupancy import Turn
from tradewind.pack import Outcome, Pack, Scores, Task, Trainer


def failed(pack: Pack, error: BaseException) -> list[Outcome]:
    """The outcomes of a pack that raised."""
    what = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    return [Outcome(t.key, "failed", what, {"what": what, "traceback": trace}) for t in pack.trials]


def load_trainer(reference: str, task: Task) -> Trainer:
    """The trainer that an engine was told to use; engines do not know training."""
    module, _, name = reference.partition(":")
    trainer: Trainer = getattr(importlib.import_module(module), name)(task)
    return trainer


def _log_size() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(1).st_size


def turn_of(task: Task, gpus: Sequence[str]) -> Turn:
    """When this process may compute: at any time to tune, unless a trial is timed; alone to time."""
    return Turn(gpus or [f"core-{number}" for number in core_numbers()], task.purpose == "time")


def _serve(connection: Connection) -> None:
    sending = threading.Lock()

    def send(*message: Any) -> None:
        with sending:
            connection.send(message)

    def report(key: str, epoch: int, scores: Scores) -> None:
        send("epoch", key, epoch, dict(scores))

    reference, task, place = connection.recv()
    if place.cores:
        os.sched_setaffinity(0, place.cores)
    turn = turn_of(task, place.gpus)
    trainer: Trainer | None = None
    while packs := connection.recv():
        at_once = turn.at_once()
        if not at_once:
            os.write(1, b"waiting: while a trial is timed, no other one runs on this host's cores or GPUs\n")
        with turn:
            if not at_once:
                send("up")  # what came before took time that no timeout counts
            for pack in packs:
                with contextlib.suppress(OSError):  # a full disk costs the log, not the trial
                    os.write(1, header(pack).encode())
                started, log_start = time.time(), _log_size()
                try:
                    if trainer is None:
                        trainer = load_trainer(reference, task)
                        started = time.time()
                        send("up")
                    outcomes = list(trainer.fit(pack, report))
                except (Exception, SystemExit) as error:
                    traceback.print_exc()
                    outcomes = failed(pack, error)
                # sent before the next one begins, which may be the end of this process
                send("ended", outcomes, started, time.time(), log_start, _log_size())


def main() -> None:
    """Serve the parent that started this process."""
    die_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    faulthandler.enable()
    try:
        _serve(Connection(int(sys.argv[1])))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has ended
    sys.stdout.flush()
    os._exit(0)  # threads and exit hooks of a user's libraries must not keep it alive


if __name__ == "__main__":
    main()
