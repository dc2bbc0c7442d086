"""Times that nobody measured: one law of devices, batch size and work, fitted with its uncertainty.

The law is a sum of non-negative costs. Which of them a machine has, few measurements can't tell, so all small
sums are fitted and weighed by how well they explain the measurements; where they disagree, the interval is wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tradewind.analysis.scaling import Group, Timed, epochs_to_target, timed
from tradewind.columns import Array
from tradewind.errors import Mistake, RunError
from tradewind.results import Results

Found = dict[str, Any]

DRAWS = 600
MOST_COSTS = 6
TYPICAL_NOISE, ITS_ROWS = 0.08, 2.0  # what is believed of timing noise before any row, and worth how many rows
SHARED_NOISE = 0.2  # the part of the noise that all rows of one device count have in common
OUTLYING = 2.0  # standard deviations beyond which a row loses weight
INTERVAL = (0.1, 0.9)
PAYS = 0.05
LINEAR, ITS_CHANCE = 8, 1 / 3  # collectives are trees or rings: a message per device and step is the exception


@dataclass(frozen=True)
class Measurement:
    """How long an amount of work took; `batch_size` is the global one, None where it is not known."""

    devices: int
    batch_size: float | None
    work: float
    seconds: float
    group: Group = ()


@dataclass(frozen=True)
class Prediction:
    """A time with its 80 % interval."""

    seconds: float
    low: float
    high: float


def costs(devices: Array, batch_size: Array, work: Array) -> Array:
    """What the work costs, one column per cost, up to its factor."""
    steps, several = work / batch_size, devices > 1
    return np.stack(
        [
            np.ones_like(work),  # once per job
            work,  # serial: reading and preparing samples
            work / devices,  # computing the share of a device
            work / np.sqrt(devices),  # shares that balance badly
            steps,  # launching a step
            steps * several,  # exchanging gradients at all: a saturated link, replication
            work * several,  # scattering samples
            steps * np.log2(devices),  # a tree of messages
            steps * (devices - 1),  # one message per device
            steps * (1 - 1 / devices),  # bytes around a ring
        ],
        axis=-1,
    )


@dataclass(frozen=True)
class Law:
    """The costs of one group as draws of their factors, with the noise of each draw."""

    factors: Array
    noise: Array

    def draws(self, devices: float, batch_size: float | None, work: float) -> Array:
        """The time in every draw, without noise."""
        return np.asarray(self.factors @ costs(*np.array([[devices], [batch_size or 1], [work]], dtype=float))[0])


@dataclass(frozen=True)
class Model:
    """The laws of all groups; a group measured at one device count only borrows the shape of the others."""

    laws: dict[Group, list[Law]]

    def predict(self, devices: int, batch_size: float | None, work: float = 1, group: Group = ()) -> Prediction:
        """The time of one run that may never have been made."""
        if group not in self.laws:
            raise RunError(f"no measurement of {dict(group)}")
        each = [(law.draws(devices, batch_size, work), law.noise) for law in self.laws[group]]
        draws, noise = np.stack(each, axis=1)
        low, high = np.quantile(draws * np.exp(noise), INTERVAL)
        return Prediction(float(np.median(draws)), float(low), float(high))


def fit(rows: Sequence[Measurement]) -> Model:
    """The model of these measurements."""
    if not rows:
        raise RunError("nothing to predict from: no trial that is done has this time")
    groups: dict[Group, list[Measurement]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    scaled = [group for group, members in groups.items() if len({row.devices for row in members}) > 1]
    own = {group: _law(groups[group]) for group in scaled or groups}
    borrowed = {g: [_borrowed(law, rows) for law in own.values()] for g, rows in groups.items() if g not in own}
    return Model({group: [law] for group, law in own.items()} | borrowed)


def _borrowed(law: Law, rows: Sequence[Measurement]) -> Law:
    """The law of another group, made to fit the few rows of this one."""
    ratios = [row.seconds / np.median(law.draws(row.devices, row.batch_size, row.work)) for row in rows]
    return Law(law.factors * np.median(ratios), law.noise)


def _law(rows: Sequence[Measurement]) -> Law:
    table = np.array([[row.devices, row.batch_size or 1.0, row.work, row.seconds] for row in rows], dtype=float)
    columns, seconds = costs(*table[:, :3].T), table[:, 3]
    scale = np.where(columns.max(axis=0) > 0, columns.max(axis=0), 1.0)
    _, places = np.unique(table[:, :2], axis=0, return_inverse=True)
    sums = _Sums(columns / scale / seconds[:, None], _beliefs(columns / scale), _independent(places))
    weights = np.ones(len(rows))
    for _ in range(3):
        fitted, spread = sums.average(weights)
        weights = np.minimum(1.0, OUTLYING * spread / np.maximum(np.abs(1 - fitted), 1e-12))
    random = np.random.default_rng(0)  # the same measurements always give the same answer
    spreads = spread * np.sqrt((sums.rows + ITS_ROWS) / random.chisquare(sums.rows + ITS_ROWS, DRAWS))
    together = random.standard_normal((places.max() + 1, DRAWS))[places.reshape(-1)]
    alone = random.standard_normal((len(rows), DRAWS))
    noise = math.sqrt(SHARED_NOISE) * together + math.sqrt(1 - SHARED_NOISE) * alone
    factors = sums.draw(fitted[:, None] + spreads * noise, weights, random)
    return Law(factors / scale, spreads * random.standard_normal(DRAWS))


def _independent(places: Array) -> float:
    """How many independent rows these are worth, since those that differ in work alone err together."""
    each = len(places) / (places.max() + 1)
    return float(len(places) / (1 + (each - 1) * SHARED_NOISE))


def _beliefs(columns: Array) -> Array:
    """The logarithm of each cost's chance; costs that these rows can't tell apart share one."""
    length = np.linalg.norm(columns, axis=0)
    unit = columns / np.where(length > 0, length, 1.0)
    chances = 1.0 / np.maximum(1, np.sum(unit.T @ unit > 1 - 1e-9, axis=0))
    chances[LINEAR] *= ITS_CHANCE
    return np.asarray(np.log(chances))


@dataclass
class _Sums:
    """All small sums of costs; `shares` is what each cost is of each measured time."""

    shares: Array
    beliefs: Array
    rows: float

    def solve(self, targets: Array, weights: Array) -> tuple[Array, Array]:
        """The factors of each sum for each target, and the logarithm of its weight; none below zero."""
        weighted = self.shares * weights[:, None]
        gram, right = weighted.T @ self.shares, weighted.T @ targets
        whole = np.sum(weights[:, None] * targets**2, axis=0)
        used, size = np.flatnonzero(self.shares.max(axis=0) > 0), np.sqrt(np.diag(gram))
        factors, logs = [], []
        for many in range(1, min(MOST_COSTS, len(self.shares), len(used)) + 1):
            chosen = np.array(list(combinations(used, many)))
            part = gram[chosen[:, :, None], chosen[:, None, :]]
            unit = part / (size[chosen][:, :, None] * size[chosen][:, None, :])
            told_apart = np.linalg.eigvalsh(unit)[:, 0] > 1e-9
            part, chosen = part[told_apart], chosen[told_apart]
            found = np.linalg.solve(part, right[chosen])
            left = np.maximum(whole - np.sum(found * right[chosen], axis=1), 0) / weights.sum()
            full = np.zeros((len(chosen), self.shares.shape[1], targets.shape[1]))
            full[np.arange(len(chosen))[:, None], chosen] = found
            log = self._log_weight(left, many) + self.beliefs[chosen].sum(axis=1)[:, None]
            factors.append(full)
            logs.append(np.where(np.all(found >= 0, axis=1), log, -np.inf))
        return np.concatenate(factors), np.concatenate(logs)

    def _log_weight(self, variance: Array, many: int) -> Array:
        """Schwarz's weight (BIC), with the noise that is believed beforehand."""
        rows = self.rows + ITS_ROWS
        believed = (variance * self.rows + TYPICAL_NOISE**2 * ITS_ROWS) / rows
        return np.asarray(-rows / 2 * np.log(believed) - many * math.log(rows) / 2)

    def average(self, weights: Array) -> tuple[Array, float]:
        """The weighted mean of all sums as shares of the measured times, and the spread around it."""
        factors, logs = self.solve(np.ones((len(self.shares), 1)), weights)
        chances = np.exp(logs - logs.max())[:, 0]
        fitted = self.shares @ (chances @ factors[:, :, 0] / chances.sum())
        many = float(chances @ np.sum(factors[:, :, 0] > 0, axis=1) / chances.sum())
        missed = float(weights @ (1 - fitted) ** 2) / float(weights.sum()) * self.rows
        free = max(self.rows - many, 0.0) + ITS_ROWS
        return fitted, math.sqrt((missed + TYPICAL_NOISE**2 * ITS_ROWS) / free)

    def draw(self, targets: Array, weights: Array, random: np.random.Generator) -> Array:
        """For each target the factors of one sum, taken as often as its weight says."""
        factors, logs = self.solve(targets, weights)
        taken = np.argmax(logs + random.gumbel(size=logs.shape), axis=0)
        return np.maximum(factors[taken, :, np.arange(targets.shape[1])], 0)


def predict(results: Results, devices: Sequence[int], value: str = "wall_s") -> Found:
    """For each config of a run the times on these devices, and from where on more devices do not pay."""
    if not devices or min(devices) < 1:
        raise Mistake(f"devices: found {list(devices)}; allowed: whole numbers from 1")
    rows = timed(results, value)
    model = fit([Measurement(x.devices, x.global_batch(x.devices), x.work, x.seconds, x.group) for x in rows])
    tables: dict[tuple[Any, ...], list[Timed]] = {}
    for row in rows:
        tables.setdefault((row.group, row.batch_size, row.amounts, row.rule), []).append(row)
    targets = epochs_to_target(rows)
    by_epochs = targets if value == "epoch_s" or all("epochs" in dict(row.amounts) for row in rows) else {}
    return {
        "value": value, "interval": INTERVAL[1] - INTERVAL[0],
        "measured_devices": sorted({row.devices for row in rows}), "measurements": len(rows),
        "tables": [_table(model, same, devices, by_epochs.get(same[0].group)) for same in tables.values()],
        "epochs_to_target": [{"config": dict(group), **found} for group, found in targets.items()],
    }  # fmt: skip


def _table(model: Model, same: Sequence[Timed], devices: Sequence[int], target: Found | None) -> Found:
    """Rows of one config; `same` are its measurements."""
    one, measured = same[0], {row.devices: row.seconds for row in same}

    def at(count: int, work: float = one.work) -> Prediction:
        return model.predict(count, one.global_batch(count), work, one.group)

    rows = []
    for count in devices:
        found, speedup = at(count), at(1).seconds / at(count).seconds
        row = {
            "devices": count, "measured_s": measured.get(count), "predicted_s": found.seconds, "low_s": found.low,
            "high_s": found.high, "speedup": speedup, "efficiency": speedup / count,
        }  # fmt: skip
        if target:
            epochs = target["epochs_least"] + target["epochs_per_batch_sample"] * (one.global_batch(count) or 0.0)
            row["to_target_s"] = epochs * at(count, one.work / dict(one.amounts).get("epochs", 1)).seconds
        rows.append(row)
    most = 2 * max([*devices, *measured])
    doubled = [2**k for k in range(most.bit_length())]
    tried = {count: at(count).seconds for count in sorted({*doubled, *devices, most})}
    enough = [n for n in tried if n < most and min(tried[m] for m in tried if m > n) > (1 - PAYS) * tried[n]]
    return {"config": one.config, "rows": rows, "enough_devices": enough[0] if enough else None, "tried_to": most}
