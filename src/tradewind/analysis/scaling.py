"""What more devices give, as measured: times by devices and rule, with speed-up and efficiency."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tradewind.analysis.groups import Cells, levels, numbers, summary
from tradewind.columns import Array
from tradewind.errors import Mistake, RunError
from tradewind.pack import Value
from tradewind.ranking import combined
from tradewind.results import OF_A_PACK, Results

Group = tuple[tuple[str, Any], ...]
Coded = dict[str, tuple[Array, list[Value]]]

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
    def pace(self) -> Group:
        """What of the group changes how long a step takes: not the rule, which acts by the global batch alone."""
        return tuple(pair for pair in self.group if pair[0] not in ("scaling", *LEARNING))

    @property
    def learning(self) -> Group:
        """What changes how much is learned in an epoch, the rule aside."""
        amounts = tuple(pair for pair in self.amounts if pair[0] != "epochs")
        return tuple(pair for pair in (*self.group, *amounts) if pair[0] != "scaling")

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
    """Every config by devices; on one device all rules are the same, so each is compared with any of them there."""
    rows = timed(results, value)
    alone = {(row.learning, row.batch_size, row.amounts): row.seconds for row in rows if row.devices == 1}
    found = []
    for row in rows:
        one = row.seconds if row.devices == 1 else alone.get((row.learning, row.batch_size, row.amounts))
        speedup = None if one is None else one / row.seconds
        efficiency = None if speedup is None else speedup / row.devices
        found.append(Scaling(row.config, row.devices, row.seconds, row.n, speedup, efficiency, row.to_target_s))
    return found


def timed(results: Results, value: str) -> list[Timed]:
    """The trials that are done, those equal in all that matters to time as one; sorted by config, then devices."""
    if not len(results):
        raise RunError(f"{results.folder.path}: no trial has ended yet; `tradewind status` tells how far it is")
    if value not in results.names("times"):
        raise Mistake(f"{value}: found no such time; allowed: {', '.join(results.names('times')) or 'nothing'}")
    seconds = numbers(results, value)
    rows = np.flatnonzero(seconds > 0)
    to_target, epochs = (known[rows] for known in _targets(results, value))
    config = _config(results, rows)
    names = _grouping(config, len(rows), bool(np.any(to_target > 0) or np.any(epochs > 0)))
    amounts = [a for a in AMOUNTS if a in config and not (a == "epochs" and value in NOT_BY_EPOCHS)]
    found = _cells({name: config[name] for name in (*SETTINGS, *amounts, *names) if name in config}, len(rows))
    times = summary(seconds[rows], found)
    ends = [summary(np.where(known > 0, known, np.nan), found).median.tolist() for known in (to_target, epochs)]
    each = zip(times.median.tolist(), times.n.tolist(), *ends, strict=True)
    some = [_timed(found.labels(k), amounts, names, facts) for k, facts in enumerate(each)]
    return sorted(some, key=lambda row: (repr(row.group), row.batch_size or 0, row.work, row.devices))


def _timed(labels: dict[str, Any], amounts: list[str], names: list[str], facts: tuple[float, ...]) -> Timed:
    devices, batch, rule = (labels.get(name) for name in SETTINGS)
    seconds, n, to_target_s, epochs = facts
    return Timed(
        int(devices) if devices and _positive(devices) else 1,
        batch if _positive(batch) else None,
        tuple((name, labels[name]) for name in amounts if _positive(labels[name])),
        tuple((name, _hashable(labels[name])) for name in names),
        rule or "strong", seconds, int(n), _known(to_target_s), _known(epochs),
    )  # fmt: skip


def _cells(config: Coded, rows: int) -> Cells:
    ids, first = combined([(codes, len(labels)) for codes, labels in config.values()], rows)
    codes = np.column_stack([np.zeros((len(first), 0), np.int64), *(codes[first] for codes, _ in config.values())])
    return Cells(list(config), [labels for _, labels in config.values()], codes, ids)


def _config(results: Results, rows: Array) -> Coded:
    """What was set, by name, and the machine where the config does not tell it."""
    columns = {name.removeprefix("config."): name for name in results.names("config")}
    if "devices" not in columns and "devices" in results.names():
        columns["devices"] = "devices"
    config = {}
    for name, column in columns.items():
        codes, labels = levels(results, column)
        config[name] = codes[rows], labels
    if "machine" in results.names() and not any(_count(config[x]) > 1 for x in ("device", "gpu") if x in config):
        codes, labels = levels(results, "machine")
        config["machine"] = codes[rows], labels
    return config


def _targets(results: Results, value: str) -> tuple[Array, Array]:
    """Time and epochs to the target, NaN where it was not reached or not asked for."""
    names, none = results.names(), np.full(len(results), np.nan)
    if value in OF_A_PACK:
        return none, none
    to_target = numbers(results, "time_to_target_s") if "time_to_target_s" in names else none
    counted = next((name for name in names if name.startswith("epochs_to_")), "")
    if counted:
        return to_target, numbers(results, counted)
    each = numbers(results, "epoch_s") if "epoch_s" in names else none
    with np.errstate(divide="ignore", invalid="ignore"):
        return to_target, to_target / np.where(each > 0, each, np.nan)


def _grouping(config: Coded, rows: int, targets: bool) -> list[str]:
    """The names that vary and can change a time; one that differs in every row only numbers the rows."""
    beside = {"devices", "batch_size", *AMOUNTS, *(() if targets else LEARNING)}
    counts = {name: _count(column) for name, column in config.items() if name not in beside}
    return [name for name, count in counts.items() if count > 1 and not (count == rows > 2)]


def _count(column: tuple[Array, list[Value]]) -> int:
    return int(np.sum(np.bincount(column[0], minlength=1) > 0))


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and value > 0


def _hashable(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _known(value: float) -> float | None:
    return None if value != value else value
