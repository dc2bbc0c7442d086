"""Optuna's samplers, one for a whole run, and its trials in memory.

Uses names of Optuna 5 that are not public: those of a sampler's generators and of its search space, and the trials of
the storage in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from tradewind.pack import Value

GENERATORS = {  # of random numbers, or what has one as `_rng`
    "tpe": ("_rng", "_random_sampler"),
    "gp": ("_rng", "_independent_sampler"),
    "cmaes": ("_cma_rng", "_independent_sampler"),
    "nsga2": ("_rng", "_random_sampler"),
}


def reseed(sampler: Any, method: str, seed: int) -> None:
    """Have a sampler draw as one that was made with this seed, and forget what it has drawn."""
    if method == "gp":  # it starts from what it has fitted before
        sampler._gprs_cache_list = None
    for name in GENERATORS[method]:
        owner = getattr(sampler, name)
        (owner if hasattr(owner, "rng") else owner._rng).rng.seed(seed)


class Storage(optuna.storages.InMemoryStorage):
    """Optuna's trials in memory, of one study: the numbers of trials are their ids."""

    def last(self) -> FrozenTrial:
        """The trial that was asked for last."""
        found: FrozenTrial = self._studies[0].trials[-1]
        return found

    def withdraw(self) -> None:
        """Take back the trial that was asked for last, as if it had never been."""
        trial = self._studies[0].trials.pop()
        del self._trial_id_to_study_id_and_number[trial._trial_id]
        self._max_trial_id -= 1


class KnownSpace:
    """In place of what a sampler works out from all its trials at every ask: all of them have all parameters."""

    def __init__(self, space: dict[str, BaseDistribution], pruned: bool) -> None:
        self._space = dict(sorted(space.items()))
        self._states = (TrialState.COMPLETE, TrialState.PRUNED) if pruned else (TrialState.COMPLETE,)
        self._begun = False

    def calculate(self, study: Any, use_cache: bool = False) -> dict[str, BaseDistribution]:
        """The space, once a trial of it has ended."""
        self._begun = self._begun or any(trial.state in self._states for trial in study.get_trials(deepcopy=False))
        return dict(self._space) if self._begun else {}


def make_sampler(method: str, options: dict[str, Value], trials: int | None) -> Any:
    """A sampler, which is reseeded for every proposal.

    TPE's `group=True` is no better where choices bring hyperparameters: after 80 trials it beat Optuna 5's default in
    7 and 10 of 20 seeds of two such functions (medians 0.21 against 0.14, 0.039 against 0.025).
    """
    kinds = optuna.samplers
    if method == "tpe":
        return kinds.TPESampler(
            seed=0, n_startup_trials=options["startup"], n_ei_candidates=options["candidates"], constant_liar=True
        )
    if method == "gp":
        return kinds.GPSampler(seed=0, n_startup_trials=options["startup"], warn_independent_sampling=False)
    if method == "cmaes":
        return kinds.CmaEsSampler(
            seed=0, n_startup_trials=options["startup"], popsize=options["population"],
            warn_independent_sampling=False,
        )  # fmt: skip
    # about ten generations, if the trials are as many
    population = options["population"] or max(10, min(50, (trials or 500) // 10))
    return kinds.NSGAIISampler(
        seed=0, population_size=population, mutation_prob=options["mutation"], crossover_prob=options["crossover"]
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Without Optuna's notes on studies made and arguments that may change; other warnings are seen."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
