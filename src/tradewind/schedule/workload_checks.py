"""What a study asks of its workload that can't be: said in one line, before any work starts."""

from __future__ import annotations

import inspect
import shlex
import string
from collections.abc import Callable, Iterable
from typing import Any

from tradewind.errors import StudyError, nearest
from tradewind.measures import is_time
from tradewind.space import names_of
from tradewind.study import Study
from tradewind.train.function import trial_parameter

PLACEHOLDERS = {"config", "folder", "scores", "trial", "repeat"}  # in a command; each has a value of its own
COMMAND_FIELDS = {*PLACEHOLDERS, "seed", "data_seed"}


def check_command(study: Study) -> None:
    """A command uses what the study gives values to, and nothing else."""
    try:
        shlex.split(study.command)
        used = {field for _, field, _, _ in string.Formatter().parse(study.command) if field is not None}
    except ValueError as error:
        hint = "close the quote" if "quot" in str(error) else "write {{ and }} for braces that are meant"
        raise StudyError(f"command: {error}; {hint}") from None
    names = {*names_of(study.space), *study.fixed}
    for name in sorted(names & PLACEHOLDERS):
        place = "fixed" if name in study.fixed else "space"
        raise StudyError(f"{place}.{name}: in a command {{{name}}} is Tradewind's own; give it another name")
    for field in used - names - COMMAND_FIELDS:
        raise StudyError(f"command: {{{field}}} is not in the study; {nearest(field, names | COMMAND_FIELDS)}")
    for name in names_of(study.space):
        if name not in used and "config" not in used:
            raise StudyError(f"space.{name}: the command does not use it; put {{{name}}} or {{config}} into it")


def check_function(study: Study, target: Any) -> None:
    """A function takes a config and, where the search needs it, the trial."""
    if inspect.isclass(target) or not _takes_a_config(target):
        raise StudyError(
            f"workload {study.workload!r}: allowed: a function f(config) or f(config, trial), "
            "or a class with defaults, metric, data, model, loss and scores"
        )
    if study.search.halving and not trial_parameter(target):
        raise StudyError(
            f"search.halving: {study.workload} can't be paused; write f(config, trial), which reports every "
            "epoch, returns once trial.should_stop() and goes on from what it left in trial.folder"
        )
    if study.search.epochs and not trial_parameter(target):
        names = (*names_of(study.space), *study.fixed)
        if "epochs" not in names:
            raise StudyError(
                f"search.epochs: {study.workload} can't report its epochs; write f(config, trial), which "
                "calls trial.report(epoch, …), or set `epochs` in `fixed` for it to count as so many"
            )


def _takes_a_config(function: Callable[..., Any]) -> bool:
    """Whether it can be called with a config, and with the trial where it has a parameter for it."""
    signature = inspect.signature(function)
    if not signature.parameters:
        return False
    name = trial_parameter(function)
    try:
        signature.bind({}, **{name: None} if name else {})
    except TypeError:
        return False
    return True


def check_rungs(metrics: Iterable[str]) -> None:
    """Halving compares networks by what they report after each epoch."""
    for name in metrics:
        if not (name.startswith(("train_", "validation_")) or is_time(name)):
            raise StudyError(
                f"search.metric: {name!r} is measured at a trial's end, and halving compares after some epochs; "
                f"take one of the training or validation data, such as validation_{name.removeprefix('test_')}"
            )
