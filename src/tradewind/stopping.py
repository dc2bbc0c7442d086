"""How a run is ended from outside: by signals, cleanly, resumably, and in time."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tradewind.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
PATIENCE_S = 20.0  # Slurm kills a job 30 s after SIGTERM


class Stop:
    """SIGTERM and a scheduler's SIGUSR1 end a run as Ctrl-C does. A second one of the same kind: at once.

    Who is told by a scheduler has not for ever: all that is recorded is durable, so a run whose workers or MPI
    do not let it go ends without them. Somebody at a keyboard has Ctrl-C once more.
    """

    def __init__(self) -> None:
        self._patience = threading.Timer(PATIENCE_S, _end)
        self._patience.daemon = True

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """All that must have ended in time once a scheduler's signal has come."""
        try:
            yield
        finally:
            self._patience.cancel()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """What a signal interrupts, where it can: Python tells the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Callable[..., Any] | int | None] = {
            number: signal.signal(number, self._stop) for number in SIGNALS
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, _: FrameType | None) -> None:
        for each in SIGNALS:  # others may follow on its heels, as a scheduler's do, while all is being closed
            signal.signal(each, signal.SIG_DFL if each == number else signal.SIG_IGN)
        if number != signal.SIGINT:
            self._patience.start()
        raise KeyboardInterrupt(f"stopped by {signal.Signals(number).name}")


def _end() -> None:
    print(
        f"tradewind: told to stop {PATIENCE_S:g} s ago and still not out, so ended by force, where it is waiting "
        "below; nothing recorded is lost, the same command goes on",
        file=sys.stderr,
        flush=True,
    )
    faulthandler.dump_traceback()
    os._exit(Interrupted.exit_code)
