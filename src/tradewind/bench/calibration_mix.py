"""The kinds of studies that statements are tried on, and of runs that times are predicted from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tradewind.analysis.laws import Measurement, fit
from tradewind.bench.calibration_searches import TABLES, drawn, real_table, search
from tradewind.bench.calibration_studies import Simulated, grid, timed

SIZES = [((3, 3), 1), ((2, 2), 3), ((2, 3, 4), 2), ((4, 4, 4), 1), ((5, 3), 5), ((3, 3, 3), 1), ((2, 2, 2, 2), 1)]
POWERED = [((2, 2), 3), ((3, 3), 3), ((3, 3, 3), 1), ((2, 3), 4), ((3, 3, 2), 2), ((2, 2, 2), 2)]
NOISES = (0.01, 0.03, 0.06, 0.1)  # of the logarithm of a time


@dataclass(frozen=True)
class Kind:
    """One kind of study: what it is, and one of it by its number; None where a table is not installed."""

    what: str
    make: Callable[[int], Simulated | None]


def _noise(seed: int) -> Simulated:
    random = np.random.default_rng([1, seed])
    sizes, repeats = SIZES[seed % len(SIZES)]
    study = grid(random, sizes, repeats, [0.0] * len(sizes))
    return timed(random, study, float(random.choice(NOISES)), costly=False) if seed % 2 else study


def _noise_search(seed: int) -> Simulated:
    random = np.random.default_rng([2, seed])
    trials = int(random.choice([15, 30, 60]))
    return search(
        random, ("tpe", "random")[seed % 2], trials, [0.0] * int(random.integers(2, 5)), categories=seed % 3 // 2
    )


def _one(seed: int) -> Simulated:
    random = np.random.default_rng([3, seed])
    sizes, repeats = POWERED[seed % len(POWERED)]
    ranges = random.uniform(0, 1.5, len(sizes)) * (seed // 6 % 2)
    ranges[int(random.integers(len(sizes)))] = 2.0
    return grid(random, sizes, repeats, ranges.tolist())


def _mixed(seed: int) -> Simulated:
    random = np.random.default_rng([4, seed])
    sizes, repeats = SIZES[seed % len(SIZES)]
    ranges = random.uniform(0, 6, len(sizes)) * (random.uniform(size=len(sizes)) < 0.6)
    study = grid(random, sizes, repeats, ranges.tolist(), interaction=float(random.choice([0, 0, 1.5])))
    return timed(random, study, float(random.choice(NOISES)), costly=seed % 4 == 1) if seed % 2 else study


def _small(seed: int) -> Simulated:
    random = np.random.default_rng([5, seed])
    return grid(random, (3, 3), 1, (random.uniform(0, 6, 2) * (random.uniform(size=2) < 0.8)).tolist())


def _plateau(seed: int) -> Simulated:
    """Longer training gives less and less; other names do nothing, or make it slower."""
    random = np.random.default_rng([6, seed])
    study = grid(random, (6, 3), int(random.integers(1, 6)), [0.0, 0.0], texts=0.0)
    gain, rate = float(random.uniform(1, 8)), float(random.uniform(0.3, 2))

    def learned(value: object) -> float:
        return float(-gain * np.exp(-rate * np.log2(float(str(value)))))

    study.effects["h0"] = learned
    old = study.true
    study.true = lambda config: old(config) + learned(config["h0"])
    study.score = study.score + np.array([learned(config["h0"]) for config in study.configs])
    study.kind = "plateau"
    noise = float(random.choice(NOISES))
    study.true_seconds = lambda config: 10 * float(str(config["h0"]))
    exact = np.array([study.true_seconds(config) for config in study.configs])
    study.seconds = exact * np.exp(noise * random.normal(size=len(exact)))
    study.time_effects = {"h0": lambda value: float(np.log(float(str(value))))}
    return study


def _search(seed: int) -> Simulated:
    random = np.random.default_rng([7, seed])
    names = int(random.integers(2, 5))
    ranges = random.uniform(0, 8, names) * (random.uniform(size=names) < 0.5)
    trials = int(random.choice([15, 30, 60]))
    return search(random, ("tpe", "random")[seed % 2], trials, ranges.tolist(), categories=seed % 3 // 2)


def _table(seed: int) -> Simulated | None:
    random = np.random.default_rng([8, seed])
    found = real_table(TABLES[seed // 50 % len(TABLES)])
    return drawn(random, found, int(random.choice([20, 50, 100])), whole=bool(seed % 2)) if found else None


MIX = {
    "noise, grids": Kind(
        "7 grids of 4 to 64 configs, n = 1 to 5, no effect; half with times, without effect too", _noise
    ),
    "noise, searches": Kind("TPE and random search, 15 to 60 trials, 2 to 4 names, no effect", _noise_search),
    "one effect of 2": Kind("6 grids with 9 trials a level (6 of two); half with smaller effects beside", _one),
    "effects, grids": Kind(
        "7 grids; 6 of 10 names with 0 to 6; a third with an interaction; half with times", _mixed
    ),
    "3 × 3, n = 1": Kind("two names, 8 of 10 with an effect of 0 to 6, 4 residual degrees of freedom", _small),
    "plateaus": Kind(
        "epochs that gain less and less and cost time, beside a name without effect; n = 1 to 5", _plateau
    ),
    "effects, searches": Kind(
        "TPE and random search, 15 to 60 trials; every second name 0 to 8, half of them bent", _search
    ),
    "real tables": Kind(
        "factorials of 3 names with 4 values, and random searches, of 5 published tables, n = 1", _table
    ),
}


def covered(seed: int) -> dict[str, bool]:
    """Whether 80 % intervals hold one more measurement, by the device counts that were measured."""
    random = np.random.default_rng([9, seed])
    law, noise = _law(random), float(random.choice(NOISES))
    found = {}
    for counts in ((1, 2, 4), (1, 2, 4, 8), (2, 4, 8), (1, 2)):
        rows = [Measurement(n, None, 1, law(n) * float(np.exp(noise * random.normal()))) for n in counts]
        model = fit(rows)
        for times in (2, 4):
            target = times * max(counts)
            here, seen = model.predict(target, None), law(target) * float(np.exp(noise * random.normal()))
            known = ", ".join(map(str, counts))
            found[f"{target} devices from {known}"] = here.low <= seen <= here.high
    return found


def _law(random: np.random.Generator) -> Callable[[float], float]:
    """Amdahl's law, trees, one message per device, a saturated link, rings, and a power law."""
    serial, cost = float(random.uniform(0, 0.25)), float(random.uniform(0, 0.3))
    laws: list[Callable[[float], float]] = [
        lambda n: 10 * (serial + (1 - serial) / n), lambda n: 10 / n + cost * float(np.log2(n)),
        lambda n: 10 / n + 0.3 * cost * (n - 1), lambda n: 10 / n + 5 * cost * (n > 1),
        lambda n: 10 * serial + 10 / n + 6 * cost * (1 - 1 / n), lambda n: 10 / n ** (1 - serial),
    ]  # fmt: skip
    return laws[int(random.integers(len(laws)))]
