"""Simulated studies whose truth is known, as results in memory: grids and searches, with effects or with none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from tradewind.columns import Array, Column, Columns
from tradewind.folder import RunFolder
from tradewind.pack import Value
from tradewind.results import Results

Config = dict[str, Value]


@dataclass
class Simulated:
    """One study: its results, what is true of each config, and what sort it is."""

    kind: str
    configs: list[Config]
    score: Array  # as measured
    true: Callable[[Config], float]
    sigma: float
    seconds: Array | None = None
    true_seconds: Callable[[Config], float] | None = None
    effects: dict[str, Callable[[Value], float]] = field(default_factory=dict)  # marginal means, by name
    time_effects: dict[str, Callable[[Value], float]] = field(default_factory=dict)  # of the logarithm of the time
    pairs: set[frozenset[str]] = field(default_factory=set)  # that interact
    repeats: int = 1
    rugged: bool = False  # from a table, where all names interact: only what is said of single names is compared


def results_of(study: Simulated, folder: Path, lower: bool = False) -> Results:
    """The study as results; nothing is written but the mark of a run folder."""
    rows = len(study.configs)
    names = list(study.configs[0])
    columns = {f"config.{name}": Column.of([config[name] for config in study.configs]) for name in names}
    groups = dict.fromkeys(columns, "config")
    columns |= {
        "trial": Column(np.arange(rows, dtype=float), None, True), "repeat": Column(np.zeros(rows), None, True),
        "state": Column(np.zeros(rows, np.int32), ["done"]), "purpose": Column(np.zeros(rows, np.int32), ["tune"]),
        "finished": Column(np.arange(rows, dtype=float)),
    }  # fmt: skip
    groups |= dict.fromkeys(("trial", "repeat", "state", "purpose", "finished"), "record")
    score = "scores.loss" if lower else "scores.accuracy"
    columns[score], groups[score] = Column(-study.score if lower else study.score), "scores"
    if study.seconds is not None:
        columns["times.wall_s"], groups["times.wall_s"] = Column(study.seconds), "times"
    keys = np.column_stack([np.arange(rows, dtype=np.uint64)] * 2)
    return Results(RunFolder.create(folder), Columns(folder, keys, np.zeros((rows, 2), np.int64), columns, groups))


def grid(
    random: np.random.Generator,
    sizes: Sequence[int],
    repeats: int,
    ranges: Sequence[float],
    sigma: float = 1.0,
    interaction: float = 0.0,
    texts: float = 0.3,
    shape: str = "any",
) -> Simulated:
    """A full factorial; the effect of each name has this range, in standard deviations of the noise."""
    levels, effects = {}, {}
    for k, (size, wide) in enumerate(zip(sizes, ranges, strict=True)):
        labels: list[Value] = [2.0**i for i in range(size)]
        if random.random() < texts:
            labels = [f"v{i}" for i in range(size)]
        raw = random.uniform(size=size) if shape == "any" else np.arange(size, dtype=float)
        raw = (raw - raw.min()) / np.ptp(raw) if size > 1 else raw
        at = (raw - raw.mean()) * wide * sigma
        levels[f"h{k}"] = labels
        effects[f"h{k}"] = dict(zip(labels, at.tolist(), strict=True))
    configs = [dict(zip(levels, values, strict=True)) for values in product(*levels.values())]
    joint, pairs = {}, set()
    if interaction and len(sizes) > 1:
        pairs.add(frozenset(("h0", "h1")))
        table = random.normal(size=(sizes[0], sizes[1]))
        table -= table.mean(axis=0) + table.mean(axis=1)[:, None] - table.mean()
        table *= interaction * sigma / max(np.abs(table).max(), 1e-9)
        joint = {(a, b): float(table[i, j]) for i, a in enumerate(levels["h0"]) for j, b in enumerate(levels["h1"])}

    def true(config: Config) -> float:
        alone = sum(effects[name][value] for name, value in config.items())
        return float(10 + alone + joint.get((config["h0"], config.get("h1")), 0.0))

    means = np.array([true(config) for config in configs])
    score = np.concatenate([means + sigma * random.normal(size=len(means)) for _ in range(repeats)])
    order = random.permutation(len(score))
    every = configs * repeats
    return Simulated(
        "grid", [every[i] for i in order], score[order], true, sigma,
        effects={n: e.__getitem__ for n, e in effects.items()}, pairs=pairs, repeats=repeats,
    )  # fmt: skip


def timed(random: np.random.Generator, study: Simulated, noise: float, costly: bool) -> Simulated:
    """The same with times, that hyperparameters change (`costly`) or only chance does."""
    name, factors = next(iter(study.effects)), dict[Value, float]()
    for config in study.configs:
        factors.setdefault(config[name], float(np.exp(random.uniform(-1, 1))) if costly else 1.0)

    def seconds(config: Config) -> float:
        return 30 * factors[config[name]]

    study.true_seconds = seconds
    study.seconds = np.array([seconds(c) for c in study.configs]) * np.exp(
        noise * random.normal(size=len(study.score))
    )
    study.time_effects = {name: lambda value: float(np.log(factors[value]))}
    return study
