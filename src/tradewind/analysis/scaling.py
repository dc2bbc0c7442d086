"""What more devices give: times by devices with speed-up and efficiency, and epochs to a target by batch size."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tradewind.errors import Mistake, RunError
from tradewind.results import OF_A_PACK, Results

Group = tuple[tuple[str, Any], ...]
Key = tuple[int, float | None, Group, Group, str]

SETTINGS = ("devices", "batch_size", "scaling")
AMOUNTS = ("epochs", "data_multiplier", "samples")
NOT_BY_EPOCHS = ("epoch_s", "time_to_target_s")
# They change what is learned, so how soon a target is reached, but not how long an epoch takes
LEARNING = ("learning_rate", "weight_decay", "momentum", "warmup_epochs", "seed", "data_seed")
GROWING = ("weak", "linear", "linear-warmup", "sqrt")


@dataclass(frozen=True)
class Timed:
    """The median time of trials that differ in nothing that costs time; `batch_size` is as set, of one device."""

    devices: int
    batch_size: float | None
    amounts: Group
    group: Group
    rule: str
    seconds: float
    n: int
    to_target_s: float | None
    epochs_to_target: float | None

    @property
    def work(self) -> float:
        """How much there was to do: epochs × data multiplier × samples, as far as they are known."""
        return float(math.prod(amount for _, amount in self.amounts))

    def global_batch(self, devices: int) -> float | None:
        """How many samples one step takes over all of so many devices, by the rule."""
        return self.batch_size * devices if self.batch_size and self.rule in GROWING else self.batch_size

    @property
    def config(self) -> dict[str, Any]:
        """What was set, but for the devices."""
        batch = {} if self.batch_size is None else {"batch_size": self.batch_size}
        return {**dict(self.group), **batch, **dict(self.amounts)}


@dataclass(frozen=True)
class Scaling:
    """The time of one config on some devices; speed-up and efficiency where one device was measured too."""

    config: dict[str, Any]
    devices: int
    seconds: float
    n: int
    speedup: float | None
    efficiency: float | None
    to_target_s: float | None


def scaling(results: Results, value: str = "wall_s") -> list[Scaling]:
    """Every config by devices."""
    rows = timed(results, value)
    alone = {(row.group, row.batch_size, row.amounts): row.seconds for row in rows if row.devices == 1}
    found = []
    for row in rows:
        one = alone.get((row.group, row.batch_size, row.amounts))
        speedup = None if one is None else one / row.seconds
        efficiency = None if speedup is None else speedup / row.devices
        found.append(Scaling(row.config, row.devices, row.seconds, row.n, speedup, efficiency, row.to_target_s))
    return found


def timed(results: Results, value: str) -> list[Timed]:
    """The trials that are done, those equal in all that matters to time as one; sorted by config, then devices."""
    if not len(results):
        raise RunError(f"{results.folder.path}: no trial has ended yet; `tradewind status` tells how far it is")
    seconds, to_target, epochs = _seconds(results, value), *_targets(results)
    config = _config(results)
    rows = [i for i, state in enumerate(results.items("state")) if state == "done" and (seconds[i] or 0) > 0]
    names = _grouping(config, rows, any(to_target[i] or epochs[i] for i in rows))
    amounts = [a for a in AMOUNTS if a in config and not (a == "epochs" and value in NOT_BY_EPOCHS)]
    cells: dict[Key, list[int]] = {}
    for i in rows:
        amount = tuple((name, config[name][i]) for name in amounts if _positive(config[name][i]))
        group = tuple((name, _hashable(config[name][i])) for name in names)
        devices, batch, rule = (config[name][i] if name in config else None for name in SETTINGS)
        count = int(devices) if devices and _positive(devices) else 1
        cells.setdefault((count, batch if _positive(batch) else None, amount, group, rule or "strong"), []).append(i)
    found = [
        Timed(
            *key, median(seconds[i] or 0.0 for i in cell), len(cell), _median(to_target, cell), _median(epochs, cell)
        )
        for key, cell in cells.items()
    ]
    return sorted(found, key=lambda row: (repr(row.group), row.batch_size or 0, row.work, row.devices))


def epochs_to_target(rows: Sequence[Timed]) -> dict[Group, dict[str, Any]]:
    """The critical batch size of each group that reached its target at three batch sizes or more."""
    pairs: dict[Group, list[tuple[float, float]]] = {}
    for row in rows:
        batch = row.global_batch(row.devices)
        if batch and row.epochs_to_target:
            pairs.setdefault(row.group, []).append((batch, row.epochs_to_target))
    return {group: found for group, known in pairs.items() if (found := critical_batch(known))}


def critical_batch(rows: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """Epochs to the target by global batch size: steps = s·(1 + critical/B), so epochs are linear in B.

    Fitted in relative error with both parts non-negative; None with fewer than three batch sizes.
    """
    batches = np.array([batch for batch, _ in rows], dtype=float)
    epochs = np.array([epoch for _, epoch in rows], dtype=float)
    if len(np.unique(batches)) < 3:
        return None
    shares = np.stack([1 / epochs, batches / epochs], axis=1)
    least, per_sample = (float(x) for x in np.linalg.lstsq(shares, np.ones(len(rows)), rcond=None)[0])
    if least < 0 or per_sample < 0:
        alone = shares.sum(axis=0) / np.sum(shares**2, axis=0)
        better = int(np.argmin(np.sum((1 - shares * alone) ** 2, axis=0)))
        least, per_sample = (float(alone[0]), 0.0) if better == 0 else (0.0, float(alone[1]))
    missed = np.abs(shares @ np.array([least, per_sample]) - 1)
    return {
        "epochs_least": least,
        "epochs_per_batch_sample": per_sample,
        "critical_batch_size": least / per_sample if per_sample > 0 else None,
        "batch_sizes": len(np.unique(batches)),
        "median_error": float(np.median(missed)),
    }


def _config(results: Results) -> dict[str, list[Any]]:
    """What was set, by name, and the machine where the config does not tell it."""
    config = {name.removeprefix("config."): results.items(name) for name in results.names("config")}
    if "devices" not in config and "devices" in results.names():
        config["devices"] = results.items("devices")
    if "machine" in results.names() and not any(_varies(config.get(name, [])) for name in ("device", "gpu")):
        config["machine"] = results.items("machine")
    return config


def _seconds(results: Results, value: str) -> list[float | None]:
    times = results.names("times")
    if value not in times:
        raise Mistake(f"{value}: found no such time; allowed: {', '.join(times) or 'nothing'}")
    packed = results.items("packed_with") if "packed_with" in results.names() else []
    if value not in OF_A_PACK and any(number for number in packed):
        raise Mistake(
            f"{value}: some trials were trained in a pack, so none has a time of its own; "
            "run the study with purpose time"
        )
    return results.items(value)


def _targets(results: Results) -> tuple[list[float | None], list[float | None]]:
    """Time and epochs to the target, None where it was not reached or not asked for."""
    names = results.names()
    none: list[float | None] = [None] * len(results)
    to_target = results.items("time_to_target_s") if "time_to_target_s" in names else none
    counted = next((name for name in names if name.startswith("epochs_to_")), "")
    if counted:
        return to_target, results.items(counted)
    each = results.items("epoch_s") if "epoch_s" in names else none
    return to_target, [a / b if a and b else None for a, b in zip(to_target, each, strict=True)]


def _grouping(config: dict[str, list[Any]], rows: Sequence[int], targets: bool) -> list[str]:
    """The names that vary and can change a time; one that differs in every row only numbers the rows."""
    beside = {"devices", "batch_size", *AMOUNTS, *(() if targets else LEARNING)}
    chosen = []
    for name, values in config.items():
        distinct = {json.dumps(values[i]) for i in rows}
        if name not in beside and len(distinct) > 1 and not (len(distinct) == len(rows) > 2):
            chosen.append(name)
    return chosen


def _varies(values: Sequence[Any]) -> bool:
    return len({json.dumps(value) for value in values}) > 1


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and value > 0


def _hashable(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _median(values: Sequence[float | None], rows: Sequence[int]) -> float | None:
    known = [value for i in rows if (value := values[i]) is not None]
    return median(known) if known else None
