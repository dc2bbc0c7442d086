"""What advice claims of a study, compared with what is true of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.analysis.advice import Advice, advise
from tradewind.bench.calibration_studies import Simulated, results_of

Counts = Counter[tuple[str, ...]]
ALIKE = 1e-9
LARGE = 3.0  # standard deviations of the noise


def judge(study: Simulated, folder: Path) -> Counts:
    """Counts of this study's statements: (topic, how sure, true or false), and of what else is asked."""
    items = advise(results_of(study, folder))
    counts: Counts = Counter()
    for item in items:
        if item.sure == "not enough data":
            continue
        true = _true(study, item)
        if true is not None:
            counts[item.topic, item.sure, "true" if true else "false"] += 1
        if (held := _held(study, item)) is not None:
            counts[("intervals",)] += 1
            counts[("interval held",)] += held
    ranges = _ranges(study)
    named = [item for item in items if item.claim.names and item.claim.sign != 0 and item.topic in CAUSAL]
    if not study.rugged and not any(ranges.values()) and not study.pairs and not _costly(study):
        counts[("noise",)] += 1
        counts[("noise named",)] += bool(named)
    matters = [item for item in named if item.topic == "what matters" and item.numbers["value"] == "accuracy"]
    counts.update(_power(study, ranges, matters))
    return counts


CAUSAL = ("what matters", "what to measure next", "devices per network", "augmentation live or ahead of time")


def _power(study: Simulated, ranges: dict[str, float], matters: list[Advice]) -> Iterator[tuple[str, ...]]:
    """Whether the largest effect of 2 is named first, and those above 3 are called sure, in grids."""
    if study.kind != "grid" or not any(ranges.values()):
        return
    largest = max(ranges, key=lambda name: ranges[name])
    levels = {name: len({str(config[name]) for config in study.configs}) for name in ranges}
    enough = all(len(study.configs) / count >= (6 if count == 2 else 9) for count in levels.values())
    if enough and abs(ranges[largest] - 2) < 0.01:
        yield ("asked first",)
        if matters and tuple(matters[0].claim.names) == (largest,):
            yield ("first",)
    if all(len(study.configs) == 3 * count for count in levels.values()):
        for name, wide in ranges.items():
            if wide > LARGE:
                yield ("large",)
                if any(tuple(item.claim.names) == (name,) and item.sure == "sure" for item in matters):
                    yield ("large sure",)


def _ranges(study: Simulated) -> dict[str, float]:
    """How much each name changes the score, in standard deviations of the noise."""
    found = {}
    for name, effect in study.effects.items():
        values = [effect(config[name]) for config in study.configs]
        found[name] = (max(values) - min(values)) / study.sigma
    return found


def _costly(study: Simulated) -> bool:
    return any(
        len({round(effect(config[name]), 9) for config in study.configs}) > 1
        for name, effect in study.time_effects.items()
    )


def _true(study: Simulated, item: Advice) -> bool | None:
    """Whether what a statement claims is true; None where it claims nothing that can be compared."""
    judges: dict[str, Any] = {
        "what matters": _matters, "best score": _best, "best score for the time": _for_the_time,
        "best score within a time": _front, "most networks per hour": _most, "what to measure next": _edges,
    }  # fmt: skip
    return judges[item.topic](study, item) if item.topic in judges else None


def _change(study: Simulated, item: Advice) -> float | None:
    """What truly changes from one value of a single name to another."""
    effects = study.time_effects if item.numbers["value"] == "wall_s" else study.effects
    names = item.claim.names
    if len(names) != 1 or item.claim.sign is None:
        return None
    effect = effects.get(names[0])
    return effect(item.claim.end) - effect(item.claim.start) if effect else 0.0


def _matters(study: Simulated, item: Advice) -> bool | None:
    names = item.claim.names
    if not names:
        return None
    change = _change(study, item)
    if change is not None:
        return bool(abs(change) > ALIKE and np.sign(change) == item.claim.sign)
    if "depends on" in item.text:
        return None if study.rugged else frozenset(names) in study.pairs
    ranges = _ranges(study)
    return any(ranges.get(name, 0) > ALIKE for name in names)


def _best(study: Simulated, item: Advice) -> bool:
    top = max(study.true(config) for config in study.configs)
    return study.true(item.claim.end) >= top - ALIKE


def _for_the_time(study: Simulated, item: Advice) -> bool | None:
    """The choice is quicker than the best and loses no more than two single trials of one config may differ."""
    if item.claim.start is None or study.true_seconds is None:
        return _best(study, item)
    top = max(study.true(config) for config in study.configs)
    quicker = study.true_seconds(item.claim.end) < study.true_seconds(item.claim.start)
    return quicker and study.true(item.claim.end) >= top - 2.8 * study.sigma


def _front(study: Simulated, item: Advice) -> bool | None:
    if study.true_seconds is None:
        return None
    configs = [point["config"] for point in item.numbers["front"]]
    times, scores = [study.true_seconds(c) for c in configs], [study.true(c) for c in configs]
    return bool(np.all(np.diff(times) > 0) and np.all(np.diff(scores) > 0))


def _most(study: Simulated, item: Advice) -> bool | None:
    if study.true_seconds is None:
        return None
    least = min(study.true_seconds(config) for config in study.configs)
    return study.true_seconds(item.claim.end) <= least * (1 + ALIKE)


def _edges(study: Simulated, item: Advice) -> bool | None:
    """A name whose best value is at the end of its range truly has its best value there."""
    if not item.claim.names:
        return None
    for name, (_, value) in item.numbers["edges"].items():
        values = {config[name] for config in study.configs}
        if max(values, key=study.effects[name]) != value:
            return False
    return True


def _held(study: Simulated, item: Advice) -> bool | None:
    """Whether the interval of a difference of scores holds the truth."""
    interval = item.claim.interval
    if interval is None or item.topic not in ("what matters", "best score", "best score for the time"):
        return None
    if item.topic == "what matters":
        change = None if item.numbers["value"] == "wall_s" or study.rugged else _change(study, item)
    else:
        change = study.true(item.claim.end) - study.true(item.claim.start)
    return None if change is None else bool(interval[0] - ALIKE <= change <= interval[1] + ALIKE)
