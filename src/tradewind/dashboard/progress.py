"""What journal lines say about a run as it happens: the trials that run, and the bars of a timeline."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tradewind.analysis.status import whom
from tradewind.journal import Record

MOST_POINTS = 500
WORKER = re.compile(r"worker(\d+)")


@dataclass
class Running:
    """A trial that was handed out and has not ended."""

    key: str
    trial: int
    attempt: int
    at: float
    owner: str
    worker: int | None = None
    epoch: int = 0
    heard: float = 0.0  # when it last reported
    scores: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, Any] | None = None  # since when, and for whom
    points: deque[tuple[int, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))

    def wait(self, content: Record) -> None:
        """Take into account for whom it waits, if for anybody."""
        holder = content.get("for")
        since = number(content.get("since"), self.at)
        self.waiting = {"since": since, "for": whom(holder)} if isinstance(holder, dict) and holder else None

    def go_on(self, content: Record, heard: float) -> None:
        """Take an epoch line into account."""
        self.heard = heard
        scores = content.get("scores")
        self.epoch = int(number(content.get("epoch"), self.epoch))
        self.scores = scores if isinstance(scores, dict) else {}
        self.worker = content["worker"] if isinstance(content.get("worker"), int) else self.worker
        self.points.append((self.epoch, self.scores))


@dataclass(frozen=True)
class Span:
    """One bar of the timeline: which worker had which trial, from when to when."""

    number: int  # counts up, so that a page can ask for what is new
    lane: str
    trial: int
    state: str
    started: float
    finished: float


def running_of(content: Record, owner: str) -> Running:
    """The trial that a started line is about; the line may or may not say which worker has it."""
    at, attempt = number(content.get("at"), time.time()), int(number(content.get("attempt"), 1))
    worker = content.get("worker")
    known = worker if isinstance(worker, int) else None
    return Running(content["key"], content["trial"], attempt, at, owner, known)


def span_of(record: Record, place: int) -> Span:
    """The bar of a trial that has ended; its worker is known by the log that it wrote to."""
    log = record.get("log")
    worker = WORKER.search(str(log.get("file"))) if isinstance(log, dict) else None
    parts = [str(record.get("host") or "host unknown"), f"rank {record.get('rank', '?')}"]
    lane = " · ".join([*parts, f"worker {worker[1]}"] if worker else parts)
    begin, end = (number(record.get(name), 0.0) for name in ("started", "finished"))
    return Span(place, lane, record["trial"], record["state"], begin, end)


def number(value: Any, otherwise: float) -> float:
    """A number of a line, whatever stands there."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
