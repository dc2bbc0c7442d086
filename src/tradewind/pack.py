"""Plain data that crosses processes: what a worker is set up with, what it is sent, what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Value = Any  # a JSON value: None, bool, int, float, str, or a list or dict of them
Config = dict[str, Value]
Scores = Mapping[str, float]
State = Literal["done", "pruned", "stopped", "failed", "paused"]
Purpose = Literal["tune", "time"]

FINAL: tuple[State, ...] = ("done", "pruned", "stopped")
SCALING = ("strong", "weak", "linear", "linear-warmup", "sqrt")  # rules of batch size and rate on n devices
BY_LENGTH = ("cosine",)  # schedules whose rates depend on the number of epochs


@dataclass(frozen=True, slots=True)
class Trial:
    """One config with one repeat; `key` is its identity, `trial` only its position.

    With `until` it is paused after that epoch, its state kept, and may be handed out again to go on.
    """

    trial: int
    repeat: int
    key: str
    config: Config
    seed: int
    data_seed: int
    attempt: int = 1
    until: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # what dataclasses do by themselves takes 5 × as long, which short trials feel
        return Trial, (
            self.trial, self.repeat, self.key, self.config, self.seed, self.data_seed, self.attempt,
            self.until,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gang:
    """A worker's part in training one network on several devices: which of how many, and where they meet."""

    rank: int
    of: int
    meeting: str = ""  # host:port of rank 0's store; the same for as long as the gang is kept


@dataclass(frozen=True, slots=True)
class Pack:
    """Trials that a worker trains together, or one trial that a gang of workers trains together."""

    trials: tuple[Trial, ...]
    gang: Gang | None = None
    why: str = ""  # it is of one network only

    def parted(self, keys: Container[str]) -> tuple[Pack, Pack]:
        """The trials that have these keys, and the others."""
        inside = tuple(trial for trial in self.trials if trial.key in keys)
        outside = tuple(trial for trial in self.trials if trial.key not in keys)
        return Pack(inside, self.gang, self.why), Pack(outside, self.gang, self.why)


def network_of(trial: Trial) -> str:
    """What trials that share a network have in common: all but their epochs, if these act on nothing else."""
    longer = trial.config.get("schedule") in BY_LENGTH
    acts = {name: value for name, value in trial.config.items() if name != "epochs" or longer}
    return json.dumps([acts, trial.seed], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a trial ends: at a target, after `max_epochs`, or by force after `timeout_s`."""

    max_epochs: int | None = None
    target: Mapping[str, float] = field(default_factory=dict)
    timeout_s: float | None = None
    lower: frozenset[str] = frozenset()  # the measures of the target that are better when lower


@dataclass(frozen=True, slots=True)
class Task:
    """What all trials of a study share; a worker is set up with it once."""

    workload: str  # a bundled name, "module:name", "file.py:name"; empty for a command
    command: str
    data: Mapping[str, Value]
    purpose: Purpose
    limits: Limits
    study_folder: str  # where the user's own modules and files are looked for
    run_folder: str
    threads: int = 1
    waits: bool = True  # for other runs on its cores and GPUs; or all are measured as disturbed
    fixed: tuple[str, ...] = ()  # names that the study gives a value to


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of a synchronous plan a process does; one that watches shows what the others do."""

    rank: int
    of: int
    watches: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """What a process finds where it was started: its host, and the cores and GPUs that it may use."""

    host: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker runs: its cores and GPUs, and how many threads it computes with; empty: as its parent."""

    threads: int = 1
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()  # as CUDA_VISIBLE_DEVICES names them


@dataclass(slots=True)
class Outcome:
    """What became of one trial, as its worker saw it; the run adds who, where and when."""

    key: str
    state: State
    reason: str = ""
    error: dict[str, str] = field(default_factory=dict)  # what, traceback, signal, stderr
    times: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # further fields of the record
    curve: list[dict[str, float]] = field(default_factory=list)  # one entry per epoch


Report = Callable[[str, int, Scores], None]  # (key, epoch, scores so far)
Tell = Callable[[Outcome], None]  # what became of a trial, while others of its pack may go on


def untold(outcome: Outcome) -> None:
    """For who hears of all outcomes at the end of the pack."""


class Trainer(Protocol):
    """What a worker calls: built once from a Task, then given pack after pack."""

    def fit(self, pack: Pack, report: Report, tell: Tell) -> Sequence[Outcome]:
        """Train every trial of the pack; an exception means that those not told of by then have no result."""
        ...

    def meet(self) -> str:
        """Open a meeting place, a new one each time, for a gang that this worker leads: its "host:port".

        Asked only where trials take several devices. It stays open until the next one is opened; then comes
        fit() on every member with a pack that names it. Members that have met elsewhere do not come back to it.
        """
        ...
