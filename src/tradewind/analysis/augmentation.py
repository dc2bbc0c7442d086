"""Live augmentation against augmentation ahead of time: what an epoch costs, and when preparing pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tradewind.analysis.groups import cells, config_name, levels, numbers, summary, t_quantile, varied
from tradewind.analysis.multiple import two_sided
from tradewind.analysis.once import once
from tradewind.columns import Array
from tradewind.results import Results

CONFIDENCE = 0.95


@dataclass(frozen=True)
class LiveAgainstAhead:
    """Matching trials that differ in nothing but `augment`; `ratio` is live / ahead of time."""

    measure: str
    pairs: int
    unpaired: int  # trials with live or pre, and a time, that have no partner
    ratio: float  # geometric mean over pairs
    low: float | None
    high: float | None
    chance: float  # that so much is seen where there is no difference
    live_s: float  # an epoch, the median over pairs
    ahead_s: float
    prepare_s: float | None  # the longest seen: later trials find the prepared data on disk
    break_even_epochs: float | None  # None: preparing never pays, or its cost is not known


@once
def live_against_ahead(results: Results) -> LiveAgainstAhead | None:
    """Paired by everything else, repeat included; None where no pair differs in `augment` alone."""
    name = config_name(results, "augment")
    if name is None or not len(results):
        return None
    codes, labels = levels(results, name)
    measure, seconds = _epoch_s(results)
    if not {"live", "pre"} <= {x for x in labels if isinstance(x, str)} or measure is None:
        return None
    others = cells(results, [*(other for other in varied(results) if other != name), "repeat"])
    is_live, is_ahead = codes == labels.index("live"), codes == labels.index("pre")
    live, ahead = (summary(np.where(rows, seconds, np.nan), others) for rows in (is_live, is_ahead))
    both = (live.n > 0) & (ahead.n > 0) & (live.mean > 0) & (ahead.mean > 0)
    if not np.any(both):
        return None
    a, b = live.mean[both], ahead.mean[both]
    ratio, low, high, chance = _ratio(a, b)
    prepare = _prepare_s(results, is_ahead, others.ids, len(others))[both]
    known, saved = not np.any(np.isnan(prepare)), float(np.sum(a - b))
    return LiveAgainstAhead(
        measure, int(both.sum()), int((live.n + ahead.n)[~both].sum()), ratio, low, high, chance,
        float(np.median(a)), float(np.median(b)), float(np.median(prepare)) if known else None,
        float(np.sum(prepare)) / saved if known and saved > 0 else None,
    )  # fmt: skip


def _epoch_s(results: Results) -> tuple[str | None, Array]:
    """The seconds of an epoch: as recorded, or those of the whole training by its number of epochs."""
    times, epochs = results.names("times"), config_name(results, "epochs")
    if "epoch_s" in times:
        return "epoch_s", numbers(results, "epoch_s")
    name = next((name for name in ("train_s", "wall_s") if name in times), None)
    if name is None or epochs is None:
        return None, np.empty(0)
    return f"{name} / epochs", numbers(results, name) / numbers(results, epochs)


def _ratio(live: Array, ahead: Array) -> tuple[float, float | None, float | None, float]:
    """The geometric mean of the pairs' ratios, its confidence interval, and how likely it is by chance."""
    logs = np.log(live / ahead)
    middle, n = float(np.mean(logs)), len(logs)
    if n < 2:
        return float(np.exp(middle)), None, None, 1.0
    error = float(np.std(logs, ddof=1)) / n**0.5
    margin = t_quantile(CONFIDENCE, n - 1) * error
    chance = two_sided(middle / error, n - 1) if error > abs(middle) * 1e-9 else float(middle == 0)
    return float(np.exp(middle)), float(np.exp(middle - margin)), float(np.exp(middle + margin)), chance


def _prepare_s(results: Results, is_ahead: Array, ids: Array, size: int) -> Array:
    """What preparing costs in each cell: the longest seen among trials with as much data, NaN if not known."""
    if "prepare_s" not in results.names("times"):
        return np.full(size, np.nan)
    multiplier = config_name(results, "data_multiplier")
    amounts, labels = levels(results, multiplier) if multiplier else (np.zeros(len(results), dtype=np.intp), [1])
    seconds, longest = numbers(results, "prepare_s"), np.full(len(labels), np.nan)
    np.fmax.at(longest, amounts[is_ahead], seconds[is_ahead])
    cost = np.full(size, np.nan)
    cost[ids] = longest[amounts]
    return cost
