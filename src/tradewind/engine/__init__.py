"""Engines: where workers come from. All take packs by submit() and tell what became of them by poll()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tradewind.pack import Outcome, Pack

TRAINER = "tradewind.train.trainer:Trainer"


@dataclass(frozen=True, slots=True)
class Epoch:
    """A trial reports progress."""

    worker: int
    key: str
    epoch: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A trial waits since then for the holder of its cores or GPUs, a trial of another run; no holder: no more."""

    worker: int
    key: str
    since: float
    holder: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """A pack ended, well or badly, or some trials of it, as a pack; there is an outcome for every one of these."""

    worker: int
    pack: Pack
    outcomes: list[Outcome]
    started: float
    finished: float
    log: Mapping[str, Any] = field(default_factory=dict)  # file, from, to: where its output stands
    where: Mapping[str, Any] = field(default_factory=dict)  # rank, host, machine; empty: here
    goes_on: bool = False  # the worker with the others of the pack


@dataclass(frozen=True, slots=True)
class Lost:
    """The place where a pack was trained is gone, which says nothing about its trials: hand them out again."""

    worker: int
    pack: Pack


Event = Epoch | Waiting | Ended | Lost


class Engine(Protocol):
    """Workers of some kind. `slots` is how many of them one pack takes; it waits until so many are idle."""

    workers: int

    def free(self) -> int:
        """How many packs could be handed out now: one to each idle worker, more where trials are short.

        None while a pack waits for several workers: it must not be overtaken for ever.
        """
        ...

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Hand out a pack; the number of the worker that takes it, or leads those that do."""
        ...

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened; waits up to `timeout_s` for something to happen."""
        ...

    def close(self) -> None:
        """End all workers at once; what they were doing has no outcome."""
        ...
