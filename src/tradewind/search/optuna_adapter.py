"""Optuna's samplers as searches: asked with what is known now, reseeded for every number, kept by no database."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tradewind import machine
from tradewind.pack import Config, Value
from tradewind.search import Direction, Proposal, Told
from tradewind.search.optuna_samplers import KnownSpace, Storage, make_sampler, quietly, reseed
from tradewind.search.points import Axis, Pick, Points
from tradewind.search.random import unknown
from tradewind.search.ranking import Objectives

# Asks for a config that the conditions accept and that is new, before one is drawn at random. A Gaussian process
# takes a second, and finds the same optimum again.
ATTEMPTS = {"tpe": 20, "gp": 2, "cmaes": 20, "nsga2": 20}
END = math.inf  # the level of a result after all epochs; other levels are the epochs of rungs
STATEFUL = ("cmaes", "nsga2")  # what their sampler noted of a trial when it was asked for counts later


@dataclass(slots=True)
class _Row:
    """What is known of one number."""

    values: Config
    params: dict[str, Any] | None  # None: not of this space, as it was before a study was extended
    attrs: dict[str, Any] = field(default_factory=dict)  # what a stateful sampler noted
    results: dict[float, Objectives] = field(default_factory=dict)  # by level
    ended: bool = False


class Sampled:
    """A search by one of Optuna's samplers.

    Every ask gives the sampler a seed of its own, from the study's and the number, so that it depends on what
    was told and never on what the sampler did before: a resumed search goes on as one that was not killed.
    """

    def __init__(
        self, points: Points, method: str, options: dict[str, Value], directions: Sequence[Direction], seed: int,
        trials: int | None = None,
    ) -> None:  # fmt: skip
        self._points, self._method, self._options, self._seed = points, method, options, seed
        self._directions, self._trials = list(directions), trials
        self._codes = {axis.path: _Code(axis) for axis in points.axes}
        self._startup = int(options.get("startup") or options.get("population") or 10)
        self._rows: dict[int, _Row] = {}
        self._next = 0  # the smallest number that is not known
        self._seen: set[tuple[Any, ...]] = set()
        self._storage = Storage()
        self._study: Any = None  # Optuna's, in memory, and its sampler; None: to be made anew from the rows
        self._places: dict[int, int] = {}  # of the numbers, among the trials of Optuna's study
        self._notes: dict[str, Any] = {}  # what a stateful sampler noted of the study
        self._level = END
        self._exhausted = False

    def ask(self, n: int) -> list[Proposal]:
        """Up to n proposals; those before count as pending."""
        found: list[Proposal] = []
        while len(found) < n and not self.over:
            row = self._proposed(self._next)
            if row is None:
                self._exhausted = True
                break
            found.append(Proposal(self._next, row.values))
            self._add(self._next, row)
        return found

    def tell(self, told: Told) -> None:
        """Take note; what began elsewhere becomes pending."""
        row = self._rows.get(told.number)
        if row is None or (told.state == "started" and not row.results and row.values != told.values):
            row = self._started(told)
        if told.state == "started" or row.ended:
            return
        if told.state == "paused":
            row.results[float(told.epoch or 0)] = told.objectives
            self._study = None
            return
        row.ended = True
        if told.state != "failed" and told.objectives:
            pruned = told.state in ("pruned", "stopped") and row.results
            row.results.setdefault(float(told.epoch or 0) if pruned else END, told.objectives)
        self._finish(told.number, row)

    @property
    def pending(self) -> list[Proposal]:
        """What was asked for or started and not yet told of, by number."""
        rows = sorted(self._rows.items())
        return [Proposal(number, row.values) for number, row in rows if not row.ended and not row.results]

    @property
    def over(self) -> bool:
        """Whether there are as many as were wanted, or no more."""
        return self._exhausted or (self._trials is not None and self._next >= self._trials)

    @property
    def epochs(self) -> int | None:
        """None: it prunes nothing."""
        return None

    @property
    def why(self) -> str:
        """Why it is over with fewer than were wanted: there are no more."""
        return f"the space has no more than {len(self._rows)} configs" if self._exhausted else ""

    def _proposed(self, number: int) -> _Row | None:
        """The sampler's answer that is new and accepted; or chance's; None: there is none."""
        attrs: dict[str, Any] = {}
        # a Gaussian process is many small products: on two busy cores two threads take twice as long as one
        with quietly(), machine.one_thread() if self._method == "gp" else nullcontext():
            for attempt in range(ATTEMPTS[self._method]):
                study = self._current()
                reseed(study.sampler, self._method, self._word(number, attempt))
                trial = study.ask()
                values = self._points.config(lambda axis: self._codes[axis.path].suggested(trial))  # noqa: B023
                asked = self._storage.last()
                attrs = dict(asked.system_attrs) if self._method in STATEFUL else {}
                if self._points.accepts(values) and self._mark(asked.params) not in self._seen:
                    self._notes = self._storage.get_study_system_attrs(0) if self._method in STATEFUL else {}
                    if self._points.conditional and self._method not in STATEFUL:
                        self._blank(asked)
                    self._places[number] = asked.number
                    return _Row(values, dict(asked.params), attrs)
                self._storage.withdraw()
        drawn = unknown(self._points, self._word(number, -1), lambda v: self._mark(self._params(v)) in self._seen)
        if drawn is None:
            return None
        params = self._params(drawn)
        row = _Row(drawn, params, attrs)
        self._places[number] = len(self._current().get_trials(deepcopy=False))
        self._current().add_trial(self._frozen(row, params))
        return row

    def _blank(self, asked: FrozenTrial) -> None:
        """Take away what the sampler noted for a pending trial: it drew for choices that were not taken, too."""
        place = self._storage.get_trial_id_from_study_id_trial_number(0, asked.number)  # the only study there
        for key in asked.system_attrs:
            self._storage.set_trial_system_attr(place, key, "")

    def _started(self, told: Told) -> _Row:
        """A row for what began elsewhere; a stateful sampler is asked all the same, for what it notes."""
        try:
            params = self._params(told.values)
        except ValueError:
            params = None
        again = self._rows.pop(told.number, None)  # asked for here, but begun elsewhere with other values
        if again is None and self._method in STATEFUL:
            again = self._proposed(told.number)
        elif again is not None and again.params is not None:
            self._seen.discard(self._mark(again.params))
        row = _Row(told.values, params, again.attrs if again else {})
        if again is None or again.params != params:
            self._study = None
        self._add(told.number, row)
        return row

    def _add(self, number: int, row: _Row) -> None:
        if number != len(self._rows):  # out of its order
            self._study = None
        self._rows[number] = row
        if row.params is not None:
            self._seen.add(self._mark(row.params))
        while self._next in self._rows:
            self._next += 1

    def _finish(self, number: int, row: _Row) -> None:
        """Tell Optuna, unless it has to be told anew anyway."""
        if self._study is None or row.params is None or self._level != END or len(row.results) > 1:
            self._study = None
            return
        if found := row.results.get(END):
            self._storage.set_trial_state_values(self._places[number], TrialState.COMPLETE, list(found))
        else:
            self._storage.set_trial_state_values(self._places[number], TrialState.FAIL)

    def _current(self) -> Any:
        """Optuna's study with all rows as its trials, in the order of their numbers."""
        if self._study is None:
            self._level = self._best_level()
            self._storage = Storage()
            sampler = make_sampler(self._method, self._options, self._trials)
            if hasattr(sampler, "_search_space") and not self._points.conditional:
                sampler._search_space = KnownSpace(
                    {path: code.distribution for path, code in self._codes.items()}, pruned=self._method == "tpe"
                )
            self._study = optuna.create_study(storage=self._storage, sampler=sampler, directions=self._directions)
            for key, value in self._notes.items():
                self._storage.set_study_system_attr(0, key, value)  # the only study there
            known = [(number, row) for number, row in sorted(self._rows.items()) if row.params is not None]
            self._places = {number: place for place, (number, _) in enumerate(known)}
            for _, row in known:
                self._study.add_trial(self._frozen(row, row.params or {}))
        return self._study

    def _best_level(self) -> float:
        """Results compare only at one level: the highest with enough of them to learn from, else the lowest."""
        levels = sorted({level for row in self._rows.values() for level in row.results}, reverse=True)
        counts = {level: sum(level in row.results for row in self._rows.values()) for level in levels}
        return next((level for level in levels if counts[level] >= self._startup), levels[-1] if levels else END)

    def _frozen(self, row: _Row, params: dict[str, Any]) -> FrozenTrial:
        distributions = {path: self._codes[path].distribution for path in params}
        values = row.results.get(self._level) or (row.results.get(END) if row.ended else None)
        steps: dict[int, float] = {}
        if values:
            state = TrialState.COMPLETE
        elif row.results and self._method == "tpe" and len(self._directions) == 1:
            state = TrialState.PRUNED  # which TPE takes for worse than all that got further
            steps = {int(level): found[0] for level, found in row.results.items() if found}
        else:
            state = TrialState.FAIL if row.ended or () in row.results.values() else TrialState.RUNNING
        return create_trial(
            state=state, values=list(values) if values else None, params=params, distributions=distributions,
            intermediate_values=steps, system_attrs=row.attrs,
        )  # fmt: skip

    def _params(self, values: Config) -> dict[str, Any]:
        picks = self._points.picks(values)
        return {path: self._codes[path].encoded(pick) for path, pick in picks.items()}

    def _mark(self, params: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(sorted(params.items()))

    def _word(self, number: int, attempt: int) -> int:
        return sampler_seed(self._seed, self._method, number, attempt)


def sampler_seed(seed: int, method: str, number: int, attempt: int = 0) -> int:
    """What the sampler is seeded with for a number: with it, Optuna alone asks for the same."""
    text = f"{seed}/{method}/{number}/{attempt}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


class _Code:
    """An axis as Optuna sees it: numbers of a list as their rank, so that near ones are taken for alike."""

    def __init__(self, axis: Axis) -> None:
        self._path, self._rank_of, self._digit_of = axis.path, dict[int, int](), list[int]()
        self.distribution: BaseDistribution
        self._count = count = len(axis.values)
        if axis.range is not None:
            low, high, log = axis.range.low, axis.range.high, axis.range.log
            if axis.range.whole:
                self.distribution = IntDistribution(int(low), int(high), log=log)
            else:
                self.distribution = FloatDistribution(low, high, log=log)
        elif not axis.branches and all(type(value) in {int, float} for value in axis.values):
            self._digit_of = sorted(range(count), key=lambda digit: axis.values[digit])
            self._rank_of = {digit: rank for rank, digit in enumerate(self._digit_of)}
            self.distribution = IntDistribution(0, count - 1)
        else:
            self.distribution = CategoricalDistribution(tuple(range(count)))

    def encoded(self, pick: Pick) -> Pick:
        """What Optuna calls a pick."""
        return self._rank_of[int(pick)] if self._rank_of else pick

    def suggested(self, trial: optuna.Trial) -> Pick:
        """The pick that a trial suggests."""
        match self.distribution:
            case IntDistribution(low=low, high=high, log=log):
                whole = trial.suggest_int(self._path, low, high, log=log)
                return self._digit_of[whole] if self._digit_of else whole
            case FloatDistribution(low=low, high=high, log=log):
                return trial.suggest_float(self._path, low, high, log=log)
        return trial.suggest_categorical(self._path, range(self._count))
