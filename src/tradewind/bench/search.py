"""How close a search comes to the best in so many trials, beside Optuna alone; and in seconds on a network."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tradewind.bench import installed
from tradewind.pack import Config, Pack
from tradewind.run import run
from tradewind.schedule.trials import Trials
from tradewind.search import Method, Told
from tradewind.search.making import Settings, adaptive, indexed, order
from tradewind.search.points import Axis, Pick, Points, Specs
from tradewind.study import Range, Study
from tradewind.train.trainer import Trainer

SEEDS = 10
TRIALS: dict[Method, int] = {"random": 60, "tpe": 60, "cmaes": 100, "gp": 30}
DOUBT = 0.05  # a one-sided rank test below this doubts that ours is as good
NETWORK_TRIALS = 24
METRIC = "validation_auc"
NETWORK: dict[str, Any] = {
    "name": "search",
    "workload": "storm",
    "data": {"source": "synthetic", "train": 512, "validation": 512, "test": 64},
    "fixed": {"epochs": 3, "batch_size": 32, "filters": [4, 8, 8], "kernel": 3},
}
A = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886), (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650), (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)  # fmt: skip
WEIGHTS = (1.0, 1.2, 3.0, 3.2)


@dataclass(frozen=True)
class Problem:
    """A function with a known lowest value."""

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


def _range(low: float, high: float, log: bool = False) -> Range:
    return Range.model_validate({"low": low, "high": high, "log": log})


NETWORK_SPACE = {
    "learning_rate": _range(1e-4, 1e-1, log=True),
    "dropout": _range(0.0, 0.6),
    "positive_weight": _range(0.2, 5.0, log=True),
}
PROBLEMS = {
    "Branin": Problem({"x0": _range(-5.0, 10.0), "x1": _range(0.0, 15.0)}, branin, 0.39788735772973816),
    "Hartmann-6": Problem({f"x{k}": _range(0.0, 1.0) for k in range(6)}, hartmann, -3.32236801141551),
    "Rosenbrock-4": Problem({f"x{k}": _range(-2.0, 2.0) for k in range(4)}, rosenbrock, 0.0),
    "mixed, conditional": Problem(
        {
            "rate": _range(1e-5, 1.0, log=True),
            "width": [16, 32, 64, 128, 256],
            "kind": [
                {"value": "smooth", "space": {"power": _range(0.0, 1.0)}},
                {"value": "rough", "space": {"scale": _range(0.01, 100.0, log=True), "count": _range(1, 8)}},
            ],
        },
        mixed,
        0.0,
    ),
}


def measure() -> dict[str, Any]:
    """The regret after every trial, of ours and Optuna's, in turns; then a network in seconds."""
    regrets: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    for name, problem in PROBLEMS.items():
        for method, trials in TRIALS.items():
            both = {"ours": partial(ours, problem, method, trials), "Optuna": partial(alone, problem, method, trials)}
            found: dict[str, list[list[float]]] = {who: [] for who in both}
            for seed in range(SEEDS):
                for who, search in both.items():
                    found[who].append(search(seed))
            regrets.setdefault(name, {})[method] = found
    versions = {name: installed(name) for name in ("optuna", "cmaes")}
    return {"seeds": SEEDS, "trials": dict(TRIALS), "versions": versions, "regret": regrets, "network": network()}


def ours(problem: Problem, method: Method, trials: int, seed: int) -> list[float]:
    """The regret after every trial of one of our searches."""
    points, made = Points(problem.space), Settings(method, ("minimize",), seed, trials)
    if not made.adaptive:
        index = indexed(made, points)
        drawn = order(made, index, 1, "tune")
        return _regrets(problem, [problem.value(index[k]) for k in drawn.positions(0, drawn.size)])
    search, values = adaptive(made, points), []
    while found := search.ask(1):
        values.append(problem.value(found[0].values))
        search.tell(Told(found[0].number, found[0].values, "done", 1, (values[-1],)))
    return _regrets(problem, values)


def alone(problem: Problem, method: str, trials: int, seed: int) -> list[float]:
    """The same by Optuna's sampler, as its documentation says."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=_sampler(method, seed))
    points = Points(problem.space)
    study.optimize(lambda trial: problem.value(points.config(lambda axis: suggested(trial, axis))), n_trials=trials)
    return _regrets(problem, [trial.value for trial in study.trials if trial.value is not None])


def suggested(trial: Any, axis: Axis) -> Pick:
    """What Optuna suggests for an axis, asked for as its users do: a list as categories."""
    if axis.range is None:
        return int(trial.suggest_categorical(axis.path, range(len(axis.values))))
    ask = trial.suggest_int if axis.range.whole else trial.suggest_float
    found: Pick = ask(axis.path, axis.range.low, axis.range.high, log=axis.range.log)
    return found


def _sampler(method: str, seed: int) -> Any:
    import optuna

    kinds = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    if method in kinds:
        return kinds[method](seed=seed)
    kind = optuna.samplers.GPSampler if method == "gp" else optuna.samplers.CmaEsSampler
    return kind(seed=seed, warn_independent_sampling=False)


def _regrets(problem: Problem, values: list[float]) -> list[float]:
    return [best - problem.lowest for best in accumulate(values, min)]


def network() -> dict[str, Any]:
    """The storm network at small size: TPE in packs, and Optuna with one network after the other."""
    found: dict[str, Any] = {"trials": NETWORK_TRIALS, "study": NETWORK, "ours": [], "Optuna": []}
    for seed in range(SEEDS):
        for who, work in (("ours", searched), ("Optuna", one_by_one)):
            with tempfile.TemporaryDirectory(prefix="tradewind-search-") as folder:
                began = time.perf_counter()
                score = work(seed, Path(folder))
                found[who].append({"seconds": time.perf_counter() - began, "score": score})
    return found


def searched(seed: int, folder: Path) -> float:
    """The best score of a search as users run it, one worker; its journal is durable."""
    chosen = {"method": "tpe", "trials": NETWORK_TRIALS, "metric": METRIC, "direction": "maximize"}
    study = Study(**{**NETWORK, "seed": seed}, space=NETWORK_SPACE, search=chosen)
    return run(study, out=folder / "run", engine="serial").best().value


def one_by_one(seed: int, folder: Path) -> float:
    """The best score of Optuna's TPE over the plain training loop, in this process, with nothing kept."""
    import optuna

    trials = Trials(Study(**{**NETWORK, "seed": seed}))
    trainer, plain = Trainer(trials.task(str(folder), 1)), trials[0]
    points = Points(NETWORK_SPACE)

    def objective(trial: Any) -> float:
        values = points.config(lambda axis: suggested(trial, axis))
        pack = Pack((replace(plain, key=f"{trial.number:032x}", config={**plain.config, **values}),))
        return trainer.fit(pack, lambda key, epoch, scores: None)[0].last[METRIC]

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=_sampler("tpe", seed), direction="maximize")
    study.optimize(objective, n_trials=NETWORK_TRIALS)
    return float(study.best_value)


def page(found: dict[str, Any]) -> str:
    """Median regret and quartiles at the end, who is better, and the network's seconds."""
    head = f"{'regret, median (quartiles)':30s} {'trials':>6s} {'ours':>26s} {'Optuna alone':>26s}   behind by chance"
    lines, chances = [head], []
    for name, methods in found["regret"].items():
        for method, both in methods.items():
            ends = {who: [one[-1] for one in seeds] for who, seeds in both.items()}
            chances.append(worse(ends["ours"], ends["Optuna"]))
            verdict = f"p = {chances[-1]:.2f}"
            left, right = (_spread(ends[who]) for who in ("ours", "Optuna"))
            lines.append(f"{name + ', ' + method:30s} {len(both['ours'][0]):6d} {left:>26s} {right:>26s}   {verdict}")
    doubted = sum(p < DOUBT for p in chances)
    lines.append(
        f"{doubted} of {len(chances)} rows have p below {DOUBT}; equal searches give {DOUBT * len(chances):.1f}"
    )
    for who in ("ours", "Optuna"):
        runs = found["network"][who]
        seconds, scores = ([one[key] for one in runs] for key in ("seconds", "score"))
        lines.append(
            f"storm network, {found['network']['trials']} trials, {who}: {_spread(seconds)} s, "
            f"best {METRIC} {_spread(scores)}, n = {len(runs)}"
        )
    return "\n".join(lines)


def worse(a: list[float], b: list[float]) -> float:
    """How likely chance alone makes a at least this much larger than b: a one-sided rank test."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(a, b, alternative="greater").pvalue)


def _spread(values: list[float]) -> str:
    low, _, high = quantiles(values, n=4, method="inclusive")
    return f"{median(values):.3g} ({low:.3g} – {high:.3g})"
