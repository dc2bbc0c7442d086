"""Times that nobody measured, for every config of a run: of the work it did, and until a target.

Until a target: the epochs that its global batch needs (`targets`) times what an epoch takes (`laws`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tradewind.analysis.laws import INTERVAL, Measurement, Model, Prediction, fit, prediction
from tradewind.analysis.scaling import GROWING, Group, Timed, timed
from tradewind.analysis.targets import EpochsToTarget, epochs_to_target
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.results import Results

Found = dict[str, Any]

PAYS = 0.05
FEWEST_COUNTS = 3  # device counts from which it is said whether more of them pay
TO_TARGET = "time_to_target_s"
NOT_PREDICTED = dict.fromkeys(("predicted_s", "low_s", "high_s", "speedup", "efficiency"))
BY_EPOCHS = ("wall_s", "train_s")


@dataclass(frozen=True)
class Forecast:
    """What a run says about devices, batch sizes and rules that it never had."""

    value: str  # what `seconds` predicts
    rows: list[Timed]
    model: Model
    targets: dict[tuple[Group, str], EpochsToTarget]
    per_epoch: bool  # the rows are times of one epoch

    def seconds(self, row: Timed, devices: int) -> Prediction:
        """A measured config on so many devices, by its rule."""
        batch, law = row.global_batch(devices), self.law(row)
        if self.value == TO_TARGET and law:
            return self.to_target(law, row, devices, batch or 0.0)
        return self.model.predict(devices, batch, row.work, self.group(row))

    def to_target(self, law: EpochsToTarget, row: Timed, devices: int, batch_size: float) -> Prediction:
        """Until the target, with any global batch size."""
        fixed: Array | float = 0.0
        epochs, each = law.at(batch_size)[:, None], dict(row.amounts).get("epochs", 1)
        one, noise = self.model.draws(devices, batch_size, row.work / each, self.group(row))
        if not self.per_epoch and self._epochs_vary:  # else nothing tells what is once per job
            fixed = self.model.draws(devices, batch_size, 0, self.group(row))[0]
        return prediction(fixed + epochs * (one - fixed), law.draws.noise[:, None] + noise)

    def law(self, row: Timed) -> EpochsToTarget | None:
        """What is known of the epochs that this config needs."""
        return self.targets.get((row.learning, row.rule))

    def counts(self, row: Timed) -> list[int]:
        """The device counts from which the law of this config is known: its own, or those of who lends it."""
        return self.model.counts(self.group(row))

    def group(self, row: Timed) -> Group:
        """Whose times are one law; until a target all that is learned from counts, unless epochs tell it."""
        return row.group if self.value == TO_TARGET and not self.targets else row.pace

    def measured(self, row: Timed) -> float | None:
        """What was measured of `value`."""
        return row.to_target_s if self.value == TO_TARGET and self.targets else row.seconds

    @property
    def _epochs_vary(self) -> bool:
        return len({dict(row.amounts).get("epochs") for row in self.rows}) > 1


def forecast(results: Results, value: str = "wall_s") -> Forecast:
    """Fit a run. Trials that end at their target take as long as they learn: then it is the time to target."""
    ends_at_target = TO_TARGET in results.names("times") and np.any(results.column(TO_TARGET).astype(float) > 0)
    value = TO_TARGET if value in BY_EPOCHS and ends_at_target else value
    bases = ("epoch_s", *(() if ends_at_target else ("wall_s",))) if value == TO_TARGET else ()
    base = next((name for name in bases if name in results.names("times")), value)
    rows, per_epoch = timed(results, base), base == "epoch_s"
    known = per_epoch or (base in BY_EPOCHS and all("epochs" in dict(row.amounts) for row in rows))
    targets = epochs_to_target(rows) if known else {}
    if value == TO_TARGET and targets:
        rows = [row for row in rows if (row.learning, row.rule) in targets]
    elif value == TO_TARGET:
        rows, per_epoch = timed(results, TO_TARGET), False
    empty = Forecast(value, rows, Model({}, frozenset()), targets, per_epoch)
    told = [Measurement(x.devices, x.global_batch(x.devices), x.work, x.seconds, empty.group(x)) for x in rows]
    return Forecast(value, rows, fit(told), targets, per_epoch)


def time_there(results: Results) -> str:
    """The time that was recorded: the whole one, else that of training, of an epoch, or any."""
    known = results.names("times")
    return next((name for name in (*BY_EPOCHS, "epoch_s", *known) if name in known), "wall_s")


def predict(results: Results, devices: Sequence[int], value: str = "") -> Found:
    """For each config of a run the times on these devices, and from where on more devices do not pay."""
    if not devices or min(devices) < 1:
        raise Mistake(f"devices: found {list(devices)}; allowed: whole numbers from 1")
    value = value or time_there(results)
    found = forecast(results, value)
    reasons = results.items("reason") if "reason" in results.names() else []
    return {
        "value": found.value, "asked": value, "interval": INTERVAL[1] - INTERVAL[0],
        "measured_devices": sorted({row.devices for row in found.rows}), "measurements": len(found.rows),
        "tables": [table(found, same, devices) for same in alike(found)],
        "epochs_to_target": [law.plain(INTERVAL) for law in _distinct(found.targets)],
        "without_target": sum("without the target" in (reason or "") for reason in reasons),
        "soonest_to_target": [one for count in _told(found, devices) if (one := soonest(found, count))],
    }  # fmt: skip


def _told(found: Forecast, devices: Sequence[int]) -> list[int]:
    """The device counts of which the way to a target may be told: all, from three measured ones on."""
    measured = {row.devices for row in found.rows}
    return [count for count in devices if count in measured or len(measured) >= FEWEST_COUNTS]


def alike(found: Forecast) -> list[list[Timed]]:
    """The measurements of one config each, on all of its devices."""
    tables: dict[tuple[Any, ...], list[Timed]] = {}
    for row in found.rows:
        tables.setdefault((row.group, row.batch_size, row.amounts, row.rule), []).append(row)
    return list(tables.values())


def table(found: Forecast, same: Sequence[Timed], devices: Sequence[int]) -> Found:
    """Rows of one config; `same` are its measurements.

    `points`: how many device counts its law stands on; from one nothing is predicted, below three nothing concluded.
    """
    one, measured = same[0], {row.devices: found.measured(row) for row in same}
    counts = found.counts(one)
    if len(counts) < 2:
        known = {row.devices: (found.measured(row), row.n) for row in same}
        rows = [{"devices": count, "measured_s": s, "n": n, **NOT_PREDICTED} for count, (s, n) in known.items()]
        measure_next = [2 * max(known), 4 * max(known)]
        nothing = {"enough_devices": None, "tried_to": max(known), "measure_next": measure_next}
        return {"config": one.config, "rows": rows, "points": 1, "verdict": False, **nothing}
    law, alone, rows = found.law(same[0]), found.seconds(same[0], 1).seconds, []
    for count in devices:
        here = found.seconds(one, count)
        row = {
            "devices": count, "measured_s": measured.get(count), "predicted_s": here.seconds, "low_s": here.low,
            "high_s": here.high, "speedup": alone / here.seconds, "efficiency": alone / here.seconds / count,
        }  # fmt: skip
        if law and found.value != TO_TARGET:
            end = found.to_target(law, one, count, one.global_batch(count) or 0.0)
            row |= {"to_target_s": end.seconds, "to_target_low_s": end.low, "to_target_high_s": end.high}
        rows.append(row)
    verdict, most = len(counts) >= FEWEST_COUNTS, 2 * max([*devices, *measured])
    return {
        "config": one.config, "rows": rows, "points": len(counts), "verdict": verdict,
        "enough_devices": _enough(found, one, devices, most) if verdict else None, "tried_to": most,
        "measure_next": [] if verdict else [2 * max(counts)],
    }  # fmt: skip


def _enough(found: Forecast, one: Timed, devices: Sequence[int], most: int) -> int | None:
    """The fewest devices beyond which less than 5 % is gained; None where that was not reached."""
    doubled = [2**k for k in range(most.bit_length())]
    tried = {count: found.seconds(one, count).seconds for count in sorted({*doubled, *devices, most})}
    enough = [n for n in tried if n < most and min(tried[m] for m in tried if m > n) > (1 - PAYS) * tried[n]]
    return enough[0] if enough else None


@dataclass(frozen=True)
class ScalingCurve:
    """One config over devices: what was measured, and the fit with its interval at every count of `at`."""

    config: dict[str, Any]
    devices: list[int]
    measured: list[float]
    at: list[int]
    fitted: list[Prediction]
    enough_devices: int | None
    verdict: bool  # whether there are device counts enough to say from where on more do not pay


def scaling_curves(found: Forecast, most: int) -> list[ScalingCurve]:
    """The configs measured at most device counts; of many an even choice."""
    several = [same for same in alike(found) if len({row.devices for row in same}) > 1]
    widest = max((len(same) for same in several), default=0)
    chosen = [same for same in several if len(same) == widest]
    picked = [chosen[k] for k in sorted({round(k) for k in np.linspace(0, len(chosen) - 1, most).tolist()}) if chosen]
    curves = []
    for same in picked:
        known = sorted((row.devices, seconds) for row in same if (seconds := found.measured(row)) is not None)
        end = table(found, same, [n for n, _ in known] or [1])
        at = [n for n in range(1, end["tried_to"] + 1) if n <= 16 or n == end["tried_to"] or not n & (n - 1)]
        fitted = [found.seconds(same[0], n) for n in at]
        devices, measured = [n for n, _ in known], [seconds for _, seconds in known]
        curves.append(
            ScalingCurve(same[0].config, devices, measured, at, fitted, end["enough_devices"], end["verdict"])
        )
    return curves


def soonest(found: Forecast, devices: int) -> Found | None:
    """The global batch size, rule and config that reach the target soonest on so many devices, run or not.

    Batch sizes from the smallest that reached it to twice the largest; beyond, what is learned is a guess.
    """
    best: Found | None = None
    for (learning, rule), law in found.targets.items():
        same = [row for row in found.rows if (row.learning, row.rule) == (learning, rule)]
        ran = {row.global_batch(devices) for row in same if row.devices == devices}
        batch, most = law.batch_sizes[0], law.batch_sizes[-1] * (2 if len(law.batch_sizes) > 1 else 1)
        while batch <= most:
            here = found.to_target(law, same[0], devices, batch)
            if best is None or here.seconds < best["predicted_s"]:
                best = {
                    "devices": devices, "config": dict(learning), "scaling": rule, "global_batch_size": batch,
                    "batch_size": batch / devices if rule in GROWING else batch, "ran": batch in ran,
                    "predicted_s": here.seconds, "low_s": here.low, "high_s": here.high,
                }  # fmt: skip
            batch *= 2
    return best


def _distinct(targets: dict[tuple[Group, str], EpochsToTarget]) -> list[EpochsToTarget]:
    """Each law once, where several rules share it."""
    return list({(group, law.rules): law for (group, _), law in targets.items()}.values())
