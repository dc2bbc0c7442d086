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
from multiprocessing.connection import Connection
from typing import Any

from tradewind.engine.trial_log import header
from tradewind.machine import die_with_parent
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


def _serve(connection: Connection) -> None:
    sending = threading.Lock()

    def send(*message: Any) -> None:
        with sending:
            connection.send(message)

    def report(key: str, epoch: int, scores: Scores) -> None:
        send("epoch", key, epoch, dict(scores))

    reference, task = connection.recv()
    trainer: Trainer | None = None
    while (pack := connection.recv()) is not None:
        with contextlib.suppress(OSError):  # a full disk costs the log, not the trial
            os.write(1, header(pack).encode())
        started, log_start = time.time(), _log_size()
        try:
            if trainer is None:
                trainer = load_trainer(reference, task)
                started = time.time()
                send("up")  # starting this process and its imports took time, which no timeout should count
            outcomes = list(trainer.fit(pack, report))
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            outcomes = failed(pack, error)
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
