"""A plain function of a config as a workload: f(config) or f(config, trial)."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tradewind.errors import TradewindError
from tradewind.folder import RunFolder
from tradewind.pack import Config, Limits, Outcome, Report, Task, Trial, Value
from tradewind.train.config_reads import TracedConfig
from tradewind.train.execution import Execution
from tradewind.train.interruption import Parts
from tradewind.train.judgement import all_finite, on_target

EXECUTION = Execution("function").facts()


class Handle:
    """What a function sees of its trial: report progress, ask whether to stop, a folder of its own."""

    def __init__(self, trial: Trial, task: Task, report: Report) -> None:
        self.number, self.repeat, self.seed, self.attempt = trial.trial, trial.repeat, trial.seed, trial.attempt
        self.data: Mapping[str, Value] = copy.deepcopy(task.data)
        self.curve: list[dict[str, float]] = []
        self.reason, self.stopped = "", False
        self.times: dict[str, float] = {}
        self.paused = False
        self._pause = range(trial.until, trial.config["epochs"]) if trial.until is not None else range(0)
        self._key, self._limits, self._report = trial.key, task.limits, report
        self._run_folder = task.run_folder
        self._parts: Parts | None = None
        self._began = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """How long the trial has taken, with its earlier parts where it was cut off."""
        return time.perf_counter() - self._began

    def report(self, epoch: int, **scores: float) -> None:
        """Tell how far the trial is; what was reported last counts as its `last` scores."""
        self.paused = False  # one that goes on all the same ends as it likes
        elapsed_s = self.elapsed_s
        if int(epoch) != epoch:
            raise TradewindError(f"trial.report: epoch {epoch!r}; allowed: a whole number")
        epoch = int(epoch)  # numpy's whole numbers are no int, and JSON does not know them
        numbers = {name: float(value) for name, value in scores.items()}
        self.curve.append({"epoch": epoch, "elapsed_s": elapsed_s, **numbers})
        self._judge(epoch, numbers, elapsed_s, self._limits)
        self._report(self._key, epoch, numbers)
        if self._parts is not None:
            self._parts.alive()

    def should_stop(self) -> bool:
        """Whether the study's limits say that this trial has gone far enough, or the search: for now."""
        self.paused = not self.reason and bool(self.curve) and int(self.curve[-1]["epoch"]) in self._pause
        return self.paused or bool(self.reason)

    @property
    def folder(self) -> Path:
        """A folder for checkpoints and files; the same one when the trial is tried again."""
        folder = RunFolder(Path(self._run_folder)).trial(self._key)
        folder.mkdir(parents=True, exist_ok=True)
        if self._parts is None:
            self._parts = Parts(folder)
            self._parts.begin(self.elapsed_s)
            self._began -= self._parts.seconds
        return folder

    def ended(self, outcome: Outcome) -> Outcome:
        """The outcome, with what is known of earlier parts."""
        return outcome if self._parts is None else self._parts.end(outcome)

    def _judge(self, epoch: int, scores: dict[str, float], elapsed_s: float, limits: Limits) -> None:
        if self.reason:
            return
        if not all_finite(scores):
            self.reason, self.stopped = f"loss not finite in epoch {epoch}", True
        elif on_target(scores, limits):
            self.reason, self.times = "target reached", {"time_to_target_s": elapsed_s}
        elif limits.max_epochs is not None and epoch >= limits.max_epochs:
            self.reason, self.stopped = f"max_epochs {limits.max_epochs}", True


def call(function: Callable[..., Any], trial: Trial, task: Task, report: Report, first: bool = False) -> Outcome:
    """Run the function; the number or dict that it returns are the trial's scores.

    `first`: it is not known yet what the function reads.
    """
    handle = Handle(trial, task, report)
    config: Config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
    if first:
        config, handle.data = TracedConfig(config), TracedConfig(handle.data)
    answer = function(config, **{name: handle}) if (name := trial_parameter(function)) else function(config)
    train_s = handle.elapsed_s
    times: dict[str, Any] = {"train_s": train_s, "wall_s": train_s, **handle.times}
    last = {k: v for k, v in handle.curve[-1].items() if k not in {"epoch", "elapsed_s"}} if handle.curve else {}
    state, scores = "paused" if handle.paused else "stopped" if handle.stopped else "done", numbers(answer)
    facts = {"packed_with": 0, **EXECUTION}
    if handle.curve:
        facts["epochs_run"] = max(len(handle.curve), int(handle.curve[-1]["epoch"]))
    if isinstance(config, TracedConfig) and isinstance(handle.data, TracedConfig):
        left = [f"data.{name}" for name in task.data if name not in handle.data.reads]
        facts["unread"] = left + [f"fixed.{name}" for name in task.fixed if name not in config.reads]
    found = Outcome(trial.key, state, handle.reason, {}, times, scores, last, facts, handle.curve)  # type: ignore[arg-type]
    return handle.ended(found)


@cache
def trial_parameter(function: Callable[..., Any]) -> str:
    """The parameter that gets the trial: the one called `trial`, else a second one without default; empty: none."""
    _, *others = inspect.signature(function).parameters.values()
    if any(p.name == "trial" and p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY} for p in others):
        return "trial"
    second = others[0] if others else None
    return (
        second.name
        if second and second.kind is second.POSITIONAL_OR_KEYWORD and second.default is second.empty
        else ""
    )


def numbers(answer: Any) -> dict[str, float]:
    """Scores from what a function returned: a number is `score`, a dict is taken by name, None is none."""
    if answer is None:
        return {}
    pairs = answer.items() if isinstance(answer, Mapping) else [("score", answer)]
    try:
        return {str(name): float(value) for name, value in pairs}
    except (TypeError, ValueError, OverflowError):
        raise TradewindError(
            f"the function returned {answer!r:.80}; allowed: a number or a dict of numbers"
        ) from None
