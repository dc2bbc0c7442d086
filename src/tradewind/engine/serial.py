"""The engine `serial`: trials run in this process, in the foreground, one at a time; for a debugger."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tradewind.engine import Ended, Epoch, Event, Waiting
from tradewind.engine.isolation import Isolation, no_return_from_forks
from tradewind.engine.trial_log import header, span
from tradewind.engine.worker import failed, load_trainer, note, things_of, turn_of, watched
from tradewind.machine import core_numbers, gpu_ids
from tradewind.occupancy import Holder
from tradewind.pack import Outcome, Pack, Place, Report, Scores, Task, Trainer, untold

LOOK_S = 0.05  # how often a pack that waits for its turn looks


class Overrun(BaseException):
    """The trial ran longer than its timeout."""


class Tee(io.TextIOBase):
    """Writes to the terminal and to the log."""

    def __init__(self, *targets: TextIO) -> None:
        self._targets = targets

    def write(self, text: str) -> int:
        """Write to all."""
        for target in self._targets:
            target.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush all."""
        for target in self._targets:
            target.flush()


class Serial:
    """Runs a pack when it is polled. A crash takes the run with it; a timeout is an exception."""

    def __init__(self, trainer: str, task: Task, logs: Path, name: str, echo: bool = True) -> None:
        self.workers, self._echo = 1, echo
        self._reference, self._task = trainer, task
        self._path = logs / f"{name}-serial.log"
        self._turn = turn_of(task, things_of(gpu_ids(), core_numbers()))
        self._trainer: Trainer | None = None
        self._waiting: Pack | None = None
        self._since = 0.0  # when it began to wait for its turn

    def free(self) -> int:
        """One, unless a pack waits to be polled."""
        return 0 if self._waiting else 1

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Keep a pack until it is polled."""
        self._waiting = pack
        return 0

    def poll(self, timeout_s: float) -> list[Event]:
        """Run the pack that waits, unless there is no time at all."""
        if self._waiting is None or not timeout_s:
            time.sleep(timeout_s)
            return []
        self._turn.take()
        if holder := self._turn.ahead():
            return self._wait(holder, timeout_s)
        pack, self._waiting = self._waiting, None
        events: list[Event] = []
        waited_s = 0.0
        if self._since:
            waited_s = time.time() - self._since
            events, self._since = [Waiting(0, pack.trials[0].key, self._since)], 0.0

        def report(key: str, epoch: int, scores: Scores) -> None:
            events.append(Epoch(0, key, epoch, dict(scores)))

        started = time.time()
        with open(
            self._path, "a", 1, encoding="utf-8", errors="replace"
        ) as log:  # a fork copies what is not written yet
            log.write(header(pack))
            begin = log.tell()
            watch = watched(self._task, Place(gpus=gpu_ids()), os.getpid())
            outcomes = self._fit(pack, report, log)
            note(outcomes, waited_s, watch)
            log.flush()
            place = span(self._path, begin, log.tell())
        return [*events, Ended(0, pack, outcomes, started, time.time(), place)]

    def close(self) -> None:
        """There is no worker to end; whoever waits for this one need not."""
        self._turn.__exit__()

    def _wait(self, holder: Holder, timeout_s: float) -> list[Event]:
        if self._since:
            time.sleep(min(timeout_s, LOOK_S))
            return []
        assert self._waiting is not None, "a pack waits"
        self._since = time.time()
        return [Waiting(0, self._waiting.trials[0].key, self._since, holder)]

    def _fit(self, pack: Pack, report: Report, log: TextIO) -> list[Outcome]:
        out, err = (Tee(terminal, log) if self._echo else Tee(log) for terminal in (sys.stdout, sys.stderr))
        with contextlib.ExitStack() as heard:
            # what a thread says beside others can't be told apart: sys.stdout is everybody's
            if not self._echo or threading.current_thread() is threading.main_thread():
                heard.enter_context(contextlib.redirect_stdout(out))
                heard.enter_context(contextlib.redirect_stderr(err))
            try:
                self._trainer = self._trainer or load_trainer(self._reference, self._task)
                with self._turn, _isolated(pack.trials[0].seed), _time_limit(self._task.limits.timeout_s):
                    return list(self._trainer.fit(pack, report, untold))
            except Overrun:
                what = f"timeout: ran longer than {self._task.limits.timeout_s:g} s"
                return [Outcome(t.key, "failed", what, {"what": what}) for t in pack.trials]
            except (Exception, SystemExit) as error:
                traceback.print_exc(file=log)
                return failed(pack, error)


@contextlib.contextmanager
def _isolated(seed: int) -> Iterator[None]:
    isolation = Isolation(users_own=True)
    try:
        isolation.seed(seed)
        with no_return_from_forks():
            yield
    finally:
        isolation.restore()
        isolation.close()


@contextlib.contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise Overrun

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
