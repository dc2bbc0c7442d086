"""The trials of a study: position in, fully resolved trial out; checked before any work starts.

A position is index × repeats + repeat: the index of a config in the space, or, where that can't be listed or the
search learns, the number of the config in the order of the search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from tradewind.errors import StudyError, nearest
from tradewind.measures import Direction, direction_of
from tradewind.pack import Config, Task, Trial, Value
from tradewind.schedule.workload_checks import check_command, check_function, check_rungs
from tradewind.search import Indexed, Order, Search
from tradewind.search.making import Settings, adaptive, check, indexed, order, steps_of
from tradewind.search.points import Points, is_choice
from tradewind.space import COUNTED, Space, names_of
from tradewind.study import Range, Study
from tradewind.study_search import LEARNING
from tradewind.train.hyperparameters import TRAINING
from tradewind.workloads import data_identity, find, is_network, make
from tradewind.workloads.contract import Hyperparameter

SHOWN = 9  # values that stand for a range without steps


class Trials:
    """A lazy sequence of trials; `trials[position]` is resolved in microseconds."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.metric = ""
        self.known: Mapping[str, Hyperparameter] = {}
        declared: Mapping[str, Direction] = {}
        data: Mapping[str, Value] = study.data
        if study.command:
            check_command(study)
        else:
            target = find(study.workload, study.folder)
            if is_network(target):
                self.known = {**TRAINING, **target.defaults}
                self.metric = target.metric
                declared = _declared(target)
                make(target, study.data)
            data = data_identity(target, study.data)
            if not self.known:
                check_function(study, target)
        self.metrics = study.search.metrics or (self.metric or ("score" if study.search.searches else ""),)
        self.metric = self.metrics[0]
        self.directions = self._directions(declared)
        self.unset: Config = {name: known.default for name, known in self.known.items()}
        if self.known and study.stop.max_epochs and study.stop.target:
            self.unset["epochs"] = study.stop.max_epochs  # a study that trains to a target need not name epochs
        self.defaults = self._defaults()
        self._search(self._specs(study.space, "space"))
        self._identity = to_json([study.workload or study.command, data])

    @property
    def size(self) -> int:
        """How many positions there are, conditions not yet applied."""
        return self.count()[0] if self.searching else self.index.size * self.study.repeats

    def count(self) -> tuple[int, bool]:
        """How many trials there are, and whether that is exact; a search may end before."""
        search = self.study.search
        if search.method in LEARNING:  # without trials another budget ends it, nobody knows when
            count, exact = search.trials or search.epochs or search.patience or 1, search.trials is not None
        else:
            count, exact = _count(self.index)
            if search.trials is not None and count >= search.trials:
                count, exact = search.trials, True
        exact = exact and search.epochs is search.target is search.patience is None
        return count * self.study.repeats, exact

    @property
    def too_few(self) -> str:
        """Why an order has fewer configs than are wanted, or nothing."""
        wanted, most = self.study.search.trials, self.points.combinations
        if wanted is None or most is None or (most >= wanted and not self.study.where):
            return ""
        order = self.order()
        return self.fewer(sum(1 for _ in order.positions(0, order.size)) // self.study.repeats)

    def fewer(self, tried: int, why: str = "") -> str:
        """That a search is over after so many configs where more were wanted, and why; or nothing."""
        wanted = self.study.search.trials
        if wanted is None or tried >= wanted:
            return ""
        return f"{tried} of {wanted} configs were tried: {why or f'the space has no more than {tried} configs'}"

    def finishing(self) -> int | None:
        """How many trials are trained to their end at least, if none fails; None: all of them."""
        if not self.settings.halving:
            return None
        count, exact = self.count()
        repeats = self.study.repeats
        steps = steps_of(self.settings, self.points)
        return repeats * steps.finishing(count // repeats if exact else 1)

    def search(self) -> Search:
        """The search of a study that learns, as at its start."""
        return adaptive(self.settings, self.points)

    def order(self) -> Order:
        """The order in which a search that does not learn tries its positions."""
        return order(self.settings, self.index, self.study.repeats, self.study.purpose)

    def of_config(self, number: int, values: Config) -> list[Trial]:
        """The trials of a config that a search has proposed, one per repeat."""
        first = number * self.study.repeats
        return [self._trial(first + repeat, repeat, values) for repeat in range(self.study.repeats)]

    def __getitem__(self, position: int) -> Trial:
        index, repeat = divmod(position, self.study.repeats)
        return self._trial(position, repeat, self.index[index])

    def _trial(self, position: int, repeat: int, values: Config) -> Trial:
        config = {**self.defaults, **values}
        varying = self.study.varying
        seed = self.study.seed + (repeat if "seed" in varying else 0)
        data_seed = self.study.data_seed + (repeat if "data_seed" in varying else 0)
        # the defaults hold every name, so the order of names, and with it the hash, is always the same
        text = self._identity + to_json([{name: _same(value) for name, value in config.items()}, seed, data_seed])
        key = hashlib.blake2b(text, digest_size=16).hexdigest()
        return Trial(position, repeat, key, config, seed, data_seed)

    def task(self, run_folder: str, threads: int, waits: bool = True) -> Task:
        """What a worker needs to know to train any of them."""
        study = self.study
        return Task(
            study.workload, study.command, study.data, study.purpose, study.stop.limits(self.directions),
            str(study.folder), run_folder, threads, waits, tuple(study.fixed),
        )  # fmt: skip

    def _defaults(self) -> Config:
        defaults = dict(self.unset)
        defaults.update(
            {name: self._checked(f"fixed.{name}", name, value) for name, value in self.study.fixed.items()}
        )
        defaults.update(dict.fromkeys(name for name in names_of(self.study.space) if name not in defaults))
        return dict(sorted(defaults.items()))

    def _directions(self, declared: Mapping[str, Direction]) -> dict[str, Direction]:
        """Which way every measure that the study names is better: it says so, its workload does, or the name."""
        study, found = self.study, {}
        places = dict.fromkeys(filter(None, self.metrics), "metric" if not study.search.metrics else "search.metric")
        for name, place in {**dict.fromkeys(study.stop.target, "stop.target"), **places}.items():
            way = study.search.direction_of(name, self.metric) or declared.get(name) or direction_of(name)
            if way is None:
                raise StudyError(
                    f'{place} {name!r}: its name does not say whether lower or higher is better; say "search": '
                    f'{{"direction": {{"{name}": "minimize"}}}} or "maximize"'
                )
            found[name] = way
        if isinstance(study.search.direction, dict):
            found = {**study.search.direction, **found}
        elif not self.metric and isinstance(study.search.direction, str):
            found[""] = study.search.direction  # of whatever a function returns
        return found

    def _search(self, specs: dict[str, list[Value] | Range]) -> None:
        """What is searched, and how."""
        search = self.study.search
        directions = tuple(self.directions.get(name, "maximize") for name in self.metrics)
        self.settings = Settings(
            search.method, directions, self.study.seed, search.trials, search.halving, search.min_epochs,
            search.eta, search.options, search.epochs, search.target, search.patience, self.study.repeats,
        )  # fmt: skip
        self.searching = search.searches
        if search.halving and self.study.command:
            raise StudyError(
                "search.halving: a command can't be paused; leave it out, or make the command a function"
            )
        if search.halving and self.known:
            check_rungs(self.metrics)
        self.points = Points(specs, self.study.where, self.defaults)
        check(self.settings, self.points)
        continuous = [name for name, spec in specs.items() if isinstance(spec, Range)]
        listed = not continuous and not self.points.conditional
        # for what a trial costs, of a range without steps some values stand for all
        shown = {name: _some(spec) if isinstance(spec, Range) else _values(spec) for name, spec in specs.items()}
        self.space = Space(shown, self.study.where if listed else (), self.defaults)
        by_itself = search.method in LEARNING or (listed and search.method == "grid")
        self.index: Indexed = self.space if by_itself else indexed(self.settings, self.points)

    def _specs(self, space: Mapping[str, Any], place: str) -> dict[str, list[Value] | Range]:
        return {name: self._spec(f"{place}.{name}", name, spec) for name, spec in space.items()}

    def _spec(self, place: str, name: str, spec: list[Value] | Range | dict[str, Any]) -> list[Value] | Range:
        if isinstance(spec, dict):
            spec = Range(**spec)
        if isinstance(spec, Range):
            if name in self.known and self.known[name].kind is float:
                spec = spec.model_copy(update={"type": "float"})
            if spec.steps is None:
                if self.study.search.method == "grid":
                    raise StudyError(f'{place}: a range without steps is continuous; a grid needs "steps": N')
                for end in (spec.low, spec.high):
                    self._checked(place, name, end)
                return spec
            spec = spec.values()
        return [self._item(place, name, item) for item in spec]

    def _item(self, place: str, name: str, item: Value) -> Value:
        if not is_choice(item):
            return self._checked(place, name, item)
        value = self._checked(place, name, item["value"])
        return {"value": value, "space": self._specs(item["space"], f"{place}[{value!r}]")}

    def _checked(self, place: str, name: str, value: Value) -> Value:
        if not self.known:
            return value
        if name not in self.known:
            raise StudyError(f"{place}: {self.study.workload} does not know {name!r}; {nearest(name, self.known)}")
        if complaint := self.known[name].complaint(value):
            raise StudyError(f"{place}: {complaint}")
        return float(value) if self.known[name].kind is float else value


def _declared(target: Any) -> dict[str, Direction]:
    """The direction that a workload declares beside its metric."""
    way = getattr(target, "direction", None)
    if way not in (None, "minimize", "maximize"):
        raise StudyError(f"{target.__name__}.direction: found {way!r}; allowed: minimize or maximize")
    return {target.metric: way} if way else {}


def _count(index: Indexed) -> tuple[int, bool]:
    if isinstance(index, Space):
        return index.count()
    if index.size > COUNTED:
        return index.size, False
    return sum(1 for _ in index.indices()), True


def _some(spec: Range) -> list[Value]:
    if spec.low == spec.high:
        return [spec.low]
    steps = min(SHOWN, int(spec.high - spec.low) + 1) if spec.whole else SHOWN
    found: Iterable[Value] = spec.model_copy(update={"steps": steps}).values()
    return list(dict.fromkeys(found))


def _values(spec: Iterable[Value]) -> list[Value]:
    return [item["value"] if is_choice(item) else item for item in spec]


def _same(value: Value) -> Value:
    """What is hashed of a value: 1.0 is 1, as it is in JSON."""
    return int(value) if type(value) is float and value.is_integer() else value


def with_attempt(trial: Trial, attempt: int) -> Trial:
    """The same trial, tried again."""
    return replace(trial, attempt=attempt)
