"""What a run has to say on a finding: its trials by config, along one hyperparameter, and in pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median
from typing import Any

import numpy as np

from tradewind.disturbance import MOST
from tradewind.errors import Mistake
from tradewind.journal import Record
from tradewind.jsonfile import read_json
from tradewind.pack import Config
from tradewind.results import Results
from tradewind.studies.published import kind_of

NO_SETTING = ("seed", "data_seed", "model")
OF_A_RECORD = ("bytes_exchanged", "communication_s", "wait_s", "parameters", "epochs_run")
STABLE_WITHIN = 0.01
FAR = 5.0  # times the median: such loading was something else


@dataclass(frozen=True)
class Cell:
    """The trials of one config: medians of those that are done; `missed` ended without what they were to reach.

    Crowded are more processes than the machine has cores: how they stand in for devices says nothing of time.
    """

    config: Config
    values: dict[str, float]
    n: int
    missed: int
    failed: int
    crowded: bool
    disturbed: bool = False  # its loading took far longer than that of the others with as much data


@dataclass(frozen=True)
class Line:
    """One measure along one hyperparameter, all else equal."""

    fixed: Config
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Fit:
    """A straight line through a Line, by least squares; `fixed` is its share of the last time at x = 0."""

    slope: float
    start: float
    r2: float
    fixed: float


class Evidence:
    """The trials of some runs, those of one config together; a time of packed or disturbed trials is left out.

    `unsteady` is by what share an epoch's time differs from the next one's: a trial's mean, all trials' median.
    """

    def __init__(self, runs: Sequence[Results], curves: bool = False) -> None:
        groups: dict[str, list[tuple[Config, dict[str, float], str]]] = {}
        self.packed = False
        steps: list[float] = []
        cores: dict[str, int] = {}
        for results in runs:
            cores |= _cores(results)
            for record in results.records():
                config, values = _config(record), _values(record)
                steps += _between_epochs(record["times"].get("epoch_s"))
                if record.get("packed_with") or (record.get("disturbed") or 0.0) > MOST:
                    self.packed |= bool(record.get("packed_with"))
                    values = {name: value for name, value in values.items() if not name.endswith("_s")}
                if curves and record["state"] == "done":
                    values |= _of_curve(results.curve(record["key"]))
                mark = json.dumps(config, sort_keys=True)
                groups.setdefault(mark, []).append((config, values, record["state"]))
        self.unsteady = median(steps) if steps else 0.0
        self.cells = _without_disturbed([_cell(trials, cores) for trials in groups.values()])
        names = dict.fromkeys(name for cell in self.cells for name in cell.config)
        self.varied = [n for n in names if len({json.dumps(cell.config.get(n)) for cell in self.cells}) > 1]

    @property
    def stand_ins(self) -> bool:
        """Whether processes on a CPU stand in for several devices."""
        return any(cell.config.get("device") == "cpu" and devices_of(cell) > 1 for cell in self.cells)

    @property
    def crowded(self) -> list[int]:
        """On how many devices trials were crowded, so that no finding looks at their times."""
        return sorted({devices_of(cell) for cell in self.cells if cell.crowded})

    @property
    def disturbed(self) -> list[Cell]:
        """The configs whose times no finding looks at, because something else happened beside them."""
        return [cell for cell in self.cells if cell.disturbed]

    def lines(
        self, along: str, measure: str, least: int = 2, only: Callable[[Cell], bool] = lambda cell: True
    ) -> list[Line]:
        """The measure along one hyperparameter for every choice of the others, of at least so many points."""
        others = [name for name in self.varied if name != along]
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells:
            if has(cell, measure) and type(cell.config.get(along)) in (int, float) and only(cell):
                groups.setdefault(json.dumps([cell.config.get(name) for name in others]), []).append(cell)
        found = []
        for cells in groups.values():
            cells.sort(key=lambda cell: float(cell.config[along]))
            if len(cells) >= least:
                fixed = {name: cells[0].config.get(name) for name in others}
                x, y = [float(c.config[along]) for c in cells], [c.values[measure] for c in cells]
                found.append(Line(fixed, x, y))
        return found

    def pairs(self, name: str, a: Any, b: Any, measure: str, ignore: Sequence[str] = ()) -> list[tuple[float, float]]:
        """The measure with name = a and with name = b, all else equal but for what is ignored."""
        others = [n for n in self.varied if n != name and n not in ignore]
        sides: dict[str, dict[str, float]] = {}
        for cell in self.cells:
            value = cell.config.get(name)
            if has(cell, measure) and value in (a, b):
                sides.setdefault(json.dumps([cell.config.get(n) for n in others]), {})[value] = cell.values[measure]
        return [(both[a], both[b]) for both in sides.values() if len(both) == 2]

    def counts(self) -> dict[str, int]:
        """How many trials ended in which way."""
        return {
            "done": sum(cell.n for cell in self.cells),
            "stopped": sum(cell.missed for cell in self.cells),
            "failed": sum(cell.failed for cell in self.cells),
        }


def has(cell: Cell, measure: str) -> bool:
    """Whether a finding may look at this measure of a cell."""
    return measure in cell.values and not ((cell.crowded or cell.disturbed) and measure.endswith("_s"))


def _without_disturbed(cells: Sequence[Cell]) -> list[Cell]:
    """The same with those marked whose loading took far longer than that of most others with as much data."""
    alike: dict[str, list[float]] = {}
    marks = [
        json.dumps([cell.config.get(name) for name in ("data_multiplier", "augment", "machine")]) for cell in cells
    ]
    for cell, mark in zip(cells, marks, strict=True):
        alike.setdefault(mark, []).extend([cell.values["data_s"]] if "data_s" in cell.values else [])
    return [
        replace(cell, disturbed=_is_far(cell.values.get("data_s"), alike[mark]))
        for cell, mark in zip(cells, marks, strict=True)
    ]


def _is_far(seconds: float | None, others: Sequence[float]) -> bool:
    return seconds is not None and len(others) > 2 and seconds > FAR * median(others) and seconds > median(others) + 1


def devices_of(cell: Cell) -> int:
    """How many devices trained the network."""
    return int(cell.config.get("devices") or 1)


def fit(line: Line) -> Fit:
    """The straight line through some points."""
    x, y = np.array(line.x), np.array(line.y)
    slope, start = (float(v) for v in np.polyfit(x, y, 1))
    spread = float(np.sum((y - y.mean()) ** 2))
    rest = float(np.sum((y - start - slope * x) ** 2))
    return Fit(slope, start, 1 - rest / spread if spread > 0 else 0.0, start / (start + slope * float(x.max())))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's: 1 where y always rises with x, -1 where it always falls."""
    ranks = []
    for values in (x, y):
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[places])
    a, b = (some - some.mean() for some in ranks)
    size = float(np.sqrt(np.sum(a * a) * np.sum(b * b)))
    return float(np.sum(a * b)) / size if size > 0 else 0.0


def epochs_to_stable(scores: Sequence[float], within: float = STABLE_WITHIN) -> int | None:
    """The first epoch from which on the score stays within this of its best, both smoothed.

    Smoothed is the median of an epoch with its two neighbours. None where fewer than three epochs are left from
    there on: then it may be rising still.
    """
    if len(scores) < 3:
        return None
    smooth = [median(scores[max(0, k - 1) : k + 2]) for k in range(len(scores))]
    below = [k for k, score in enumerate(smooth) if score < max(smooth) - within]
    first = below[-1] + 1 if below else 0
    return first + 1 if len(scores) - first >= 3 else None


def _config(record: Record) -> Config:
    """The settings; a device is a kind here, and a machine tells apart what was measured on several."""
    config = {name: value for name, value in record["config"].items() if name not in NO_SETTING}
    named = str(config.get("device") or config.get("gpu") or "")
    if record["purpose"] == "imported":
        return {**config, "device": kind_of(named)}
    kind = record.get("device") or named
    precision = {"precision": record["precision"]} if record.get("precision") else {}  # what `auto` chose
    return {**config, **precision, "device": kind, "machine": record.get("machine", "")}


def _values(record: Record) -> dict[str, float]:
    """Every number that a record tells, scores as shares of 1, by one name for ours and for the papers'."""
    beside = {name: record.get(name) for name in OF_A_RECORD}
    found = {**beside, **record["last"], **record["scores"], **record["times"]}
    epochs = found.pop("epoch_s", None)
    values = {n: float(v) for n, v in found.items() if type(v) in (int, float) and np.isfinite(v)}
    if isinstance(epochs, list) and epochs:
        values["epoch_s"] = mean(epochs[1:] or epochs)  # the first pays for what is set up on the way
    if "accuracy_percent" in values:
        values["accuracy"] = values["accuracy_percent"] / 100
    if "efficiency_percent" in values:  # in units of the time with one device
        many = int(record["config"].get("devices") or 1)
        values["time_to_target_s"] = 100 / (many * values["efficiency_percent"])
    if record["purpose"] != "imported" and record.get("finished"):
        values["job_s"] = record["finished"] - record["started"]
    return values


def _between_epochs(epoch_s: Any) -> list[float]:
    """How much an epoch's time differs from the next one's, as a share; the first pays for what is set up."""
    later = epoch_s[1:] if isinstance(epoch_s, list) else []
    if len(later) < 2 or not median(later):
        return []
    return [mean(abs(b - a) for a, b in pairwise(later)) / median(later)]


def _of_curve(curve: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How well it did along the way, and from when on it was stable."""
    curves = {
        name: [row[f"validation_{name}"] for row in curve if isinstance(row.get(f"validation_{name}"), int | float)]
        for name in ("accuracy", "auc")
    }
    found = {f"curve_{name}": mean(scores) for name, scores in curves.items() if scores}
    stable = epochs_to_stable(curves["accuracy"])
    return found | ({"epochs_to_stable": float(stable)} if stable is not None else {})


def _cores(results: Results) -> dict[str, int]:
    """How many cores each machine of a run has, as far as it keeps that."""
    found = {}
    for path in results.folder.files(results.folder.machines, "json"):
        with suppress(Mistake, AttributeError, TypeError, ValueError):  # the report says which can't be read
            found[path.stem] = int(read_json(path).get("cores") or 0)
    return found


def _cell(trials: list[tuple[Config, dict[str, float], str]], cores: Mapping[str, int]) -> Cell:
    done = [values for _, values, state in trials if state == "done"]
    names = dict.fromkeys(name for values in done for name in values)
    middle = {name: median(values[name] for values in done if name in values) for name in names}
    missed, failed = (sum(state == what for _, _, state in trials) for what in ("stopped", "failed"))
    config = trials[0][0]
    here = cores.get(str(config.get("machine", "")).replace("/", "-"), 0)
    crowded = config.get("device") == "cpu" and 0 < here < int(config.get("devices") or 1)
    return Cell(config, middle, len(done), missed, failed, crowded)
