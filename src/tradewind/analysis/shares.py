"""Where the time of a trial goes: loading, waiting for data, exchange between devices, computing, judging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tradewind.analysis.groups import cells, config_name, numbers, summary, varied
from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.pack import Value
from tradewind.results import Results

MOST_BARS = 12
WITHIN = {"waiting for data": "wait_s", "exchange": "communication_s"}  # parts of train_s, where measured
BESIDE = {"loading": "data_s", "validation": "validation_s", "test": "test_s"}


@dataclass(frozen=True)
class TimeShares:
    """The mean seconds of the parts of a trial, for one value of what they are compared by.

    What is exchanged while computing goes on counts as exchange: computing is what is left of the training.
    """

    label: Value
    n: int
    seconds: dict[str, float]


def time_shares(results: Results) -> tuple[str, list[TimeShares]]:
    """By devices, else by batch size, else over all trials; nothing where fewer than two parts were measured."""
    found: dict[str, Array] = {}
    try:
        train = numbers(results, "train_s")
        parts = {part: _known(results, name) for part, name in (BESIDE | WITHIN).items()}
    except Mistake:  # trained in packs, or no such time
        return "", []
    inside = np.sum([parts[part] for part in WITHIN], axis=0)
    found = {"loading": parts["loading"], "computing": np.maximum(train - inside, 0.0)}
    found |= {part: parts[part] for part in (*WITHIN, "validation", "test")}
    used = {part: seconds for part, seconds in found.items() if np.any(seconds[~np.isnan(train)] > 0)}
    if len(used) < 2:
        return "", []
    by = _compared_by(results)
    places = cells(results, [by] if by else [])
    each = {part: summary(np.where(np.isnan(train), np.nan, seconds), places) for part, seconds in used.items()}
    n = next(iter(each.values())).n
    bars = [
        TimeShares(places.labels(k).get(by), int(n[k]), {part: float(some.mean[k]) for part, some in each.items()})
        for k in range(len(places))
        if n[k]
    ]
    return by.removeprefix("config."), bars if len(bars) <= MOST_BARS else []


def _known(results: Results, name: str) -> Array:
    return np.nan_to_num(numbers(results, name)) if name in results.names() else np.zeros(len(results))


def _compared_by(results: Results) -> str:
    wanted = (config_name(results, name) for name in ("devices", "batch_size"))
    changing = varied(results)
    return next((name for name in wanted if name in changing), "") or ""
