"""The trials of a study: position in, fully resolved trial out; checked before any work starts."""

from __future__ import annotations

import hashlib
import inspect
import shlex
import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from tradewind.errors import StudyError, nearest
from tradewind.pack import Config, Task, Trial, Value
from tradewind.space import Space
from tradewind.study import Range, Study
from tradewind.train.hyperparameters import TRAINING
from tradewind.workloads import data_identity, find, is_network, make
from tradewind.workloads.contract import Hyperparameter

COMMAND_FIELDS = {"config", "folder", "scores", "seed", "data_seed", "trial", "repeat"}


class Trials:
    """A lazy sequence of trials; `trials[position]` is resolved in microseconds."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.metric = ""
        self.known: Mapping[str, Hyperparameter] = {}
        data: Mapping[str, Value] = study.data
        if study.command:
            _check_command(study)
        else:
            target = find(study.workload, study.folder)
            if is_network(target):
                self.known = {**TRAINING, **target.defaults}
                self.metric = target.metric
                make(target, study.data)
            data = data_identity(target, study.data)
            self._check_function(target)
        self.metric = study.search.metric or self.metric
        self.unset: Config = {name: known.default for name, known in self.known.items()}
        if self.known and study.stop.max_epochs and study.stop.target:
            self.unset["epochs"] = study.stop.max_epochs  # a study that trains to a target need not name epochs
        self.defaults = self._defaults()
        self.space = Space(self._dimensions(), study.where, self.defaults)
        self._identity = to_json([study.workload or study.command, data])

    @property
    def size(self) -> int:
        """How many positions there are, conditions not yet applied."""
        return self.space.size * self.study.repeats

    def count(self) -> tuple[int, bool]:
        """How many trials there are, and whether that is exact."""
        count, exact = self.space.count()
        return count * self.study.repeats, exact

    def __getitem__(self, position: int) -> Trial:
        index, repeat = divmod(position, self.study.repeats)
        config = {**self.defaults, **self.space[index]}
        seed = self.study.seed + repeat
        data_seed = self.study.data_seed + (repeat if self.study.purpose == "time" else 0)
        # the defaults hold every name, so the order of names, and with it the hash, is always the same
        text = self._identity + to_json([{name: _same(value) for name, value in config.items()}, seed, data_seed])
        key = hashlib.blake2b(text, digest_size=16).hexdigest()
        return Trial(position, repeat, key, config, seed, data_seed)

    def task(self, run_folder: str, threads: int) -> Task:
        """What a worker needs to know to train any of them."""
        study = self.study
        return Task(
            study.workload, study.command, study.data, study.purpose, study.stop.limits(),
            str(study.folder), run_folder, threads,
        )  # fmt: skip

    def _defaults(self) -> Config:
        defaults = dict(self.unset)
        defaults.update(
            {name: self._checked(f"fixed.{name}", name, value) for name, value in self.study.fixed.items()}
        )
        defaults.update(dict.fromkeys(name for name in self.study.space if name not in defaults))
        return dict(sorted(defaults.items()))

    def _dimensions(self) -> dict[str, list[Value]]:
        found = {}
        for name, spec in self.study.space.items():
            if isinstance(spec, Range):
                if spec.steps is None:
                    raise StudyError(f'space.{name}: a range without steps is continuous; a grid needs "steps": N')
                if name in self.known and self.known[name].kind is float:
                    spec = spec.model_copy(update={"type": "float"})
                spec = spec.values()
            found[name] = [self._checked(f"space.{name}", name, value) for value in spec]
        return found

    def _checked(self, place: str, name: str, value: Value) -> Value:
        if not self.known:
            return value
        if name not in self.known:
            raise StudyError(f"{place}: {self.study.workload} does not know {name!r}; {nearest(name, self.known)}")
        if complaint := self.known[name].complaint(value):
            raise StudyError(f"{place}: {complaint}")
        return float(value) if self.known[name].kind is float else value

    def _check_function(self, target: Any) -> None:
        if self.known:
            return
        parameters = list(inspect.signature(target).parameters.values())
        required = [
            p for p in parameters if p.default is p.empty and p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
        ]
        if inspect.isclass(target) or not parameters or len(required) > 2:
            raise StudyError(
                f"workload {self.study.workload!r}: allowed: a function f(config) or f(config, trial), "
                "or a class with defaults, metric, data, model, loss and scores"
            )


def _same(value: Value) -> Value:
    """What is hashed of a value: 1.0 is 1, as it is in JSON."""
    return int(value) if type(value) is float and value.is_integer() else value


def _check_command(study: Study) -> None:
    try:
        shlex.split(study.command)
        used = {field for _, field, _, _ in string.Formatter().parse(study.command) if field is not None}
    except ValueError as error:
        hint = "close the quote" if "quot" in str(error) else "write {{ and }} for braces that are meant"
        raise StudyError(f"command: {error}; {hint}") from None
    names = {*study.space, *study.fixed}
    for field in used - names - COMMAND_FIELDS:
        raise StudyError(f"command: {{{field}}} is not in the study; {nearest(field, names | COMMAND_FIELDS)}")
    for name in study.space:
        if name not in used and "config" not in used:
            raise StudyError(f"space.{name}: the command does not use it; put {{{name}}} or {{config}} into it")


def with_attempt(trial: Trial, attempt: int) -> Trial:
    """The same trial, tried again."""
    return replace(trial, attempt=attempt)
