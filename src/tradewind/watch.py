"""Who is told how a run goes while it runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from tradewind.journal import Record
from tradewind.pack import Trial


class Watch(Protocol):
    """Somebody who watches a run."""

    def begin(self, plan: Mapping[str, Any]) -> None:
        """The run starts: how many trials there are, where, with which workers."""
        ...

    def started(self, worker: int, trial: Trial) -> None:
        """A worker begins with a trial."""
        ...

    def epoch(self, worker: int, epoch: int, scores: Mapping[str, float]) -> None:
        """A worker has trained another epoch."""
        ...

    def waiting(self, worker: int, since: float, holder: Mapping[str, Any]) -> None:
        """A worker's trial waits since then for that one of another run; without a holder it waits no more."""
        ...

    def finished(self, worker: int | None, record: Record) -> None:
        """A trial has ended and its record is durable; worker None: another job ran it."""
        ...

    def warn(self, text: str) -> None:
        """Something that the user should know now."""
        ...

    def turn(self, waiting: int) -> None:
        """The loop turns; `waiting` trials are in the hands of other jobs."""
        ...

    def end(self) -> None:
        """The run is over, one way or another."""
        ...


class Quiet:
    """Watches and says nothing."""

    def begin(self, plan: Mapping[str, Any]) -> None: ...
    def started(self, worker: int, trial: Trial) -> None: ...
    def epoch(self, worker: int, epoch: int, scores: Mapping[str, float]) -> None: ...
    def waiting(self, worker: int, since: float, holder: Mapping[str, Any]) -> None: ...
    def finished(self, worker: int | None, record: Record) -> None: ...
    def turn(self, waiting: int) -> None: ...

    def warn(self, text: str) -> None:
        """What can't wait until the end is said all the same."""
        print(f"tradewind: {text}", file=sys.stderr, flush=True)

    def end(self) -> None: ...
