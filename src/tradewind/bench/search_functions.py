"""Functions with a known lowest value, searched by us and by Optuna alone from the same start points."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from tradewind.pack import Config
from tradewind.search import Method, Told
from tradewind.search.making import Settings, adaptive, indexed, order
from tradewind.search.points import Axis, Pick, Points, Specs
from tradewind.study import Range

TRIALS: dict[Method, int] = {"random": 60, "tpe": 60, "cmaes": 100, "nsga2": 100, "gp": 30}
# how many of our first points Optuna is given to begin with: those that do not depend on results. Random search has
# nothing but such points, and would be compared with itself: its draws are left apart
STARTS: dict[Method, int] = {"random": 0, "tpe": 10, "cmaes": 1, "nsga2": 10, "gp": 10}
A = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886), (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650), (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)  # fmt: skip
WEIGHTS = (1.0, 1.2, 3.0, 3.2)


@dataclass(frozen=True)
class Problem:
    """A function with a known lowest value."""

    title: str
    space: Specs
    value: Callable[[Config], float]
    lowest: float


def branin(config: Config) -> float:
    """Three equal valleys in a plane."""
    x, y = config["x0"], config["x1"]
    valley = y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6
    return float(valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def hartmann(config: Config) -> float:
    """Four bumps in six dimensions."""
    x = [config[f"x{k}"] for k in range(6)]
    far = [sum(a * (v - p) ** 2 for a, v, p in zip(*row, strict=True)) for row in ((A[k], x, P[k]) for k in range(4))]
    return -sum(weight * math.exp(-distance) for weight, distance in zip(WEIGHTS, far, strict=True))


def rosenbrock(config: Config) -> float:
    """A bent valley in four dimensions."""
    x = [config[f"x{k}"] for k in range(4)]
    return float(sum(100 * (b - a**2) ** 2 + (1 - a) ** 2 for a, b in pairwise(x)))


def mixed(config: Config) -> float:
    """A list, a log range and a choice that brings its own; lowest with the choice that looks worse at first."""
    away = (math.log10(config["rate"]) + 2) ** 2 + (math.log2(config["width"]) - 6) ** 2 / 4
    if config["kind"] == "smooth":
        return float(away + 0.3 + 2 * (config["power"] - 0.25) ** 2)
    return float(away + (math.log10(config["scale"]) - 0.5) ** 2 + (config["count"] - 5) ** 2 / 10)


def range_of(low: float, high: float, log: bool = False) -> Range:
    """A range as a study file would have it."""
    return Range.model_validate({"low": low, "high": high, "log": log})


PROBLEMS: dict[str, Problem] = {
    "branin": Problem("Branin", {"x0": range_of(-5.0, 10.0), "x1": range_of(0.0, 15.0)}, branin, 0.39788735772973816),
    "hartmann": Problem("Hartmann-6", {f"x{k}": range_of(0.0, 1.0) for k in range(6)}, hartmann, -3.32236801141551),
    "rosenbrock": Problem("Rosenbrock-4", {f"x{k}": range_of(-2.0, 2.0) for k in range(4)}, rosenbrock, 0.0),
    "mixed": Problem(
        "mixed, conditional",
        {
            "rate": range_of(1e-5, 1.0, log=True),
            "width": [16, 32, 64, 128, 256],
            "kind": [
                {"value": "smooth", "space": {"power": range_of(0.0, 1.0)}},
                {"value": "rough", "space": {"scale": range_of(0.01, 100.0, log=True), "count": range_of(1, 8)}},
            ],
        },
        mixed,
        0.0,
    ),
}


def pair(name: str, method: Method, seed: int) -> dict[str, Any]:
    """The regret after every trial of ours and Optuna's, and the processor seconds of each."""
    if method == "gp":  # in both: with several threads they would wait for each other most of the time
        import torch

        torch.set_num_threads(1)
    problem, found, cpu_s = PROBLEMS[name], dict[str, list[float]](), dict[str, float]()
    began = time.process_time()
    tried = ours(problem, method, TRIALS[method], seed)
    found["ours"] = _regrets(problem, [problem.value(config) for config in tried])
    cpu_s["ours"], began = time.process_time() - began, time.process_time()
    values = alone(problem, method, TRIALS[method], seed, tried[: STARTS[method]])
    found["Optuna"] = _regrets(problem, values)
    cpu_s["Optuna"] = time.process_time() - began
    return {"seed": seed, "regret": found, "cpu_s": cpu_s}


def ours(problem: Problem, method: Method, trials: int, seed: int) -> list[Config]:
    """What one of our searches tries with one worker, in its order."""
    points, made = Points(problem.space), Settings(method, ("minimize",), seed, trials)
    if not made.adaptive:
        index = indexed(made, points)
        drawn = order(made, index, 1, "tune")
        return [index[k] for k in drawn.positions(0, drawn.size)]
    search, tried = adaptive(made, points), list[Config]()
    while found := search.ask(1):
        tried.append(found[0].values)
        search.tell(Told(found[0].number, found[0].values, "done", 1, (problem.value(found[0].values),)))
    return tried


def alone(problem: Problem, method: Method, trials: int, seed: int, start: Sequence[Config]) -> list[float]:
    """What Optuna's sampler finds, asked as its documentation says, from these points on."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, points = optuna.create_study(sampler=_sampler(method, seed)), Points(problem.space)
    for config in start:
        study.enqueue_trial(points.picks(config))
    study.optimize(lambda trial: problem.value(points.config(lambda axis: suggested(trial, axis))), n_trials=trials)
    return [trial.value for trial in study.trials if trial.value is not None]


def suggested(trial: Any, axis: Axis) -> Pick:
    """What Optuna suggests for an axis, asked for as its users do: a list as categories."""
    if axis.range is None:
        return int(trial.suggest_categorical(axis.path, range(len(axis.values))))
    ask = trial.suggest_int if axis.range.whole else trial.suggest_float
    found: Pick = ask(axis.path, axis.range.low, axis.range.high, log=axis.range.log)
    return found


def _sampler(method: Method, seed: int) -> Any:
    from optuna import samplers

    kinds: dict[str, Any] = {
        "random": samplers.RandomSampler, "tpe": samplers.TPESampler, "nsga2": samplers.NSGAIISampler,
    }  # fmt: skip
    if method in kinds:
        return kinds[method](seed=seed)
    kind: Any = samplers.GPSampler if method == "gp" else samplers.CmaEsSampler
    return kind(seed=seed, warn_independent_sampling=False)


def _regrets(problem: Problem, values: list[float]) -> list[float]:
    return [best - problem.lowest for best in accumulate(values, min)]
