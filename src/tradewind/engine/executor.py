"""Any concurrent.futures.Executor as an engine for single trials, and Dask that way.

What such an engine can't do: end a trial by force when its time is up, give several workers to one trial,
show epochs as they pass, or follow a synchronous schedule.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tradewind.engine import Ended, Event
from tradewind.engine.children import worker_environment
from tradewind.engine.serial import Serial
from tradewind.engine.worker import failed
from tradewind.engine.world import here
from tradewind.errors import Mistake
from tradewind.pack import Pack, Place, Task

_one_at_a_time = threading.Lock()  # threads of one process would take each other's packs and output
_here: dict[str, Serial] = {}  # in a worker of the executor: kept from trial to trial


def fit(trainer: str, task: Task, logs: str, name: str, pack: Pack) -> Ended:
    """Train a pack in this process, whoever's it is."""
    with _one_at_a_time:
        if name not in _here:
            _here.clear()  # on a cluster that outlives runs, what earlier ones needed
            _here[name] = Serial(trainer, task, Path(logs), f"{name}-{os.getpid()}", echo=False)
        _here[name].submit(pack)
        events: list[Event] = []
        while not (events and isinstance(events[-1], Ended)):
            events = _here[name].poll(1.0)
        ended = events[-1]
    assert isinstance(ended, Ended), "the last event of a pack is its end"
    return replace(ended, where=here(0)[1])


class Pooled:
    """The workers of an executor; it decides which one takes a pack."""

    def __init__(self, executor: Executor, workers: int, trainer: str, task: Task, logs: Path, name: str) -> None:
        if task.limits.timeout_s is not None:
            raise Mistake(
                "stop.timeout_s: this engine can't end a trial by force; take --engine processes or mpi, "
                "or leave the timeout out"
            )
        self.workers = workers
        self._executor, self._about = executor, (trainer, task, str(logs.resolve()), name)
        self._running: dict[Future[Ended], tuple[int, Pack, float]] = {}

    def free(self) -> int:
        """How many packs could be handed out now."""
        return self.workers - len(self._running)

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Hand a pack to the executor; the number is only for the display."""
        if slots != 1:
            raise Mistake(f"a trial on {slots} devices: this engine gives a trial one worker; take processes or mpi")
        taken = {number for number, *_ in self._running.values()}
        number = next(number for number in range(self.workers) if number not in taken)
        self._running[self._executor.submit(fit, *self._about, pack)] = number, pack, time.time()
        return number

    def poll(self, timeout_s: float) -> list[Event]:
        """What has ended; waits up to `timeout_s` for something to end."""
        if not self._running:
            return []
        done, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        return [self._ended(future) for future in done]

    def close(self) -> None:
        """Take back what has not begun; a trial that runs goes on unheard."""
        for future in self._running:
            future.cancel()
        self._executor.shutdown(wait=False)

    def _ended(self, future: Future[Ended]) -> Ended:
        number, pack, submitted = self._running.pop(future)
        if (error := future.exception()) is not None:  # its worker died, or could not be reached
            return Ended(number, pack, failed(pack, error), submitted, time.time())
        found = future.result()
        if [outcome.key for outcome in found.outcomes] != [trial.key for trial in pack.trials]:
            wrong = RuntimeError("the worker's answer is not that of this trial")
            return Ended(number, pack, failed(pack, wrong), submitted, time.time())
        return Ended(number, found.pack, found.outcomes, found.started, found.finished, found.log, found.where)


@contextmanager
def dask(workers: int, trainer: str, task: Task, logs: Path, name: str) -> Iterator[Pooled]:
    """The cluster whose scheduler DASK_SCHEDULER_ADDRESS names, else one on this host that ends with the run."""
    try:
        import distributed
        from dask import config
    except ImportError:
        raise Mistake("--engine dask: Dask is not installed; install it with: pip install distributed") from None
    environment = worker_environment(Place(task.threads), {})
    with config.set(
        {"distributed.nanny.pre-spawn-environ": environment, "distributed.scheduler.allowed-failures": 0}
    ):
        elsewhere = config.get("scheduler-address", None) or config.get("scheduler-file", None)
        own = {} if elsewhere else {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        try:
            client: Any = distributed.Client(**own)  # type: ignore[no-untyped-call]
        except OSError as error:
            raise Mistake(f"--engine dask: {error}; is the scheduler of DASK_SCHEDULER_ADDRESS running?") from None
    with client:
        processes = len(client.scheduler_info(n_workers=-1)["workers"])  # in each, one trial at a time
        if not processes:
            raise Mistake(f"--engine dask: the cluster at {client.scheduler.address} has no workers yet")
        yield Pooled(client.get_executor(retries=0), min(processes, workers) or 1, trainer, task, logs, name)
