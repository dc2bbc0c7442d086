"""What training costs, in statements: devices, augmentation, phases."""

from __future__ import annotations

from typing import Any

import numpy as np

from tradewind.analysis.augmentation import LiveAgainstAhead, live_against_ahead
from tradewind.analysis.groups import cells, config_name, levels, numbers, summary, varied
from tradewind.analysis.pareto import Pace, pace_of
from tradewind.analysis.prediction import FEWEST_COUNTS, TO_TARGET, alike, forecast, soonest, table
from tradewind.analysis.statement import FAIR, NONE, SURE, WEAK, Answer, Claim, named, span
from tradewind.results import Results

SHARE = "share_s"  # the time of packed trials
MOST_TRIALS = 100_000  # beyond these the fit would take most of the time of an answer
MOST_FITTED = 12  # configs whose middle says where devices stop paying
TOLD = 0.005  # the chance below which a time is said to differ: what else is asked of a run has the rest of 5 %
DECIDES_S = 0.1  # no one chooses between trials that take less
PHASES = ("data_s", "train_s", "validation_s", "test_s")
BESIDE = ("prepare_s", "compile_s", "warmup_s")


def time_name(results: Results) -> str | None:
    """The time that a config costs; in a pack no trial has one of its own, only an allocated share."""
    packed = "packed_with" in results.names() and np.any(np.nan_to_num(results.column("packed_with")) > 0)
    wanted = (SHARE,) if packed else ("wall_s", "train_s", "epoch_s")
    return next((name for name in wanted if name in results.names("times")), None)


def quickest(results: Results, time: str | None) -> Answer | None:
    """The config that trains the most networks per hour, where nothing but times is known."""
    if time is None:
        return Answer("No time was recorded.")
    configs = cells(results, varied(results))
    measured = numbers(results, time)
    found, pace = summary(measured, configs), pace_of(measured, configs)
    seconds = np.where(found.mean > 0, found.mean, np.nan)
    if np.all(np.isnan(seconds)):
        return Answer(f"No trial that is done has a {time}.")
    most, least = int(np.nanargmin(seconds)), int(np.nanargmax(seconds))
    gap = float(np.log(seconds[least] / seconds[most]))
    if most != least and gap <= pace.margin(int(found.n[most]), int(found.n[least])):
        return Answer(f"No config is quicker than another beyond chance: about {span(float(np.nanmedian(seconds)))}.")
    config, shortest, n = configs.labels(most), float(seconds[most]), int(found.n[most])
    text = f"{named(config)} is quickest, {span(shortest)} (n = {n}): {3600 / shortest:.4g} networks an hour."
    second = np.where(np.arange(len(seconds)) == most, np.nan, seconds)
    rival = int(np.nanargmin(second)) if not np.all(np.isnan(second)) else most
    apart = np.log(seconds[rival] / seconds[most]) > pace.margin(n, int(found.n[rival]), 1 - TOLD)
    facts = {"config": config, time: shortest, "n": n}
    return Answer(text, facts, SURE if n > 2 and apart else WEAK, n, Claim(list(config), None, config))


def devices(results: Results, time: str | None) -> Answer | None:
    """How many devices one network pays, and whether networks side by side are more per hour."""
    name = config_name(results, "devices")
    if name is None or name not in varied(results) or time is None:
        return None
    if time != SHARE and TO_TARGET in results.names("times") and np.any(numbers(results, TO_TARGET) > 0):
        time = TO_TARGET  # how long it trains says less than when it is good enough
    speedups, labels, pace = _speedups(results, name, time)
    if not speedups:
        return Answer("No config was run on more than one number of devices.")
    few, n = labels[0], int(np.sum(~np.isnan(numbers(results, time))))
    sides = " ".join(_side_by_side(few, count, one, len(labels)) for count, one in speedups.items())
    facts = {"speed_up": speedups, "time": time}
    best = max(speedups, key=lambda count: float(speedups[count]["speed_up"]))
    claim, apart = _faster(few, best, speedups[best], pace)
    if len(labels) < FEWEST_COUNTS:
        more = 2 * max(few, best)
        text = f"{sides} Two points are no law: measure {more} devices too before choosing."
        return Answer(text, facts, WEAK, n, claim)
    fastest = best if speedups[best]["speed_up"] > 1 else few
    text = f"One network is done soonest on {fastest} of the numbers tried ({', '.join(map(str, labels))}). "
    told, further = _foretold(results, time, [label for label in labels if type(label) is int])
    every = {**facts, "soonest_on": fastest, **further}
    return Answer(text + sides + told, every, FAIR if apart else WEAK, n, claim)


def _faster(few: int, count: int, one: dict[str, Any], pace: Pace) -> tuple[Claim, bool]:
    """How much the time changes with the devices, and whether that is beyond chance."""
    low, high = one["interval"]
    gap = float(np.log(one["speed_up"]))
    apart = abs(gap) > pace.margin(one["configs"], one["configs"], 1 - TOLD)
    sign = -int(np.sign(gap)) if apart else 0
    return Claim(["devices"], few, count, sign, (1 / high, 1 / low)), bool(apart)


def _speedups(results: Results, name: str, time: str) -> tuple[dict[Any, dict[str, Any]], list[Any], Pace]:
    """How much faster than the fewest devices each number is, the median over configs that ran on both."""
    others = cells(results, [other for other in varied(results) if other not in (name, "global_batch_size")])
    codes, labels = levels(results, name)
    seconds = numbers(results, time)
    used = [k for k, label in enumerate(labels) if type(label) is int and np.any(~np.isnan(seconds[codes == k]))]
    if len(used) < 2:
        return {}, [labels[k] for k in used], Pace(1.0, 1)
    means = [summary(np.where(codes == k, seconds, np.nan), others).mean for k in used]
    pace = pace_of(seconds, cells(results, varied(results)))
    few, speedups = labels[used[0]], dict[Any, dict[str, Any]]()
    assert type(few) is int
    for k, mean in zip(used[1:], means[1:], strict=True):
        ratio = means[0] / np.where(mean > 0, mean, np.nan)
        count, many = labels[k], int(np.sum(~np.isnan(ratio)))
        if many and type(count) is int:
            speed_up = float(np.nanmedian(ratio))
            spread = float(np.nanstd(np.log(ratio), ddof=1)) / many**0.5 if many > 1 else 0.0
            margin = float(np.exp(max(float(pace.margin(many, many)), 2 * spread)))
            speedups[count] = {
                "speed_up": speed_up, "efficiency": speed_up * few / count, "configs": many,
                "interval": [speed_up / margin, speed_up * margin],
                "one_network_on_all_is_better": speed_up * few > count,
            }  # fmt: skip
    return speedups, [labels[k] for k in used], pace


def _foretold(results: Results, time: str, counts: list[int]) -> tuple[str, dict[str, Any]]:
    """What the fit says beyond the numbers tried: where devices stop paying, and how to reach the target soonest."""
    if len(counts) < FEWEST_COUNTS or len(results) > MOST_TRIALS or time == SHARE:
        return "", {}
    found = forecast(results, time)
    tables = [table(found, same, counts) for same in alike(found)[:MOST_FITTED]]
    enough = [one["enough_devices"] for one in tables if one["verdict"]]
    if not enough:
        return "", {}
    tried = 2 * max(counts)
    middle = sorted(count or tried for count in enough)[len(enough) // 2]
    text = (
        f" By the fit, devices pay up to {tried} at least."
        if middle >= tried
        else f" By the fit, more than {middle} gain less than 5 %."
    )
    best = soonest(found, max(counts))
    if best:
        ran = "" if best["ran"] else ", which nobody ran"
        text += (
            f" On {best['devices']} the target is reached soonest with a global batch of "
            f"{best['global_batch_size']:g} (scaling {best['scaling']}{ran}): {span(best['predicted_s'])}, "
            f"80 % {best['low_s']:.3g} to {best['high_s']:.3g} s."
        )
    return text, {"enough_devices": middle if middle < tried else None, "soonest_to_target": best}


def _side_by_side(few: int, count: int, one: dict[str, Any], counts: int) -> str:
    """Whether to give the devices to one network or to several; with two counts only what was measured."""
    low, high = one["interval"]
    many = "one config" if one["configs"] == 1 else f"median of {one['configs']} configs"
    faster = f"{count} are {one['speed_up']:.3g} times as fast as {few} ({many}, 95 % {low:.3g} to {high:.3g})"
    if counts < FEWEST_COUNTS:
        return f"{faster}."
    gain, apart = one["efficiency"], f"{count / few:g} networks on {few} each"
    if one["one_network_on_all_is_better"]:
        verdict = f"one network on all {count} beats {apart}: {gain:.3g} times as many per hour"
    else:
        verdict = f"{apart} beat one on all {count}: {1 / gain:.3g} times as many per hour"
    doubt = " (by chance it may be the other way round)" if low < count / few < high else ""
    return f"{faster}, so {verdict}{doubt}."


def augmentation(results: Results) -> Answer | None:
    """Live or ahead of time, where both were tried."""
    found, name = live_against_ahead(results), config_name(results, "augment")
    if found is None:
        tried = levels(results, name)[1] if name else []
        if len(tried) < 2:
            return None
        return Answer(f"Tried were {', '.join(map(str, tried))}: no two trials differ in live against pre alone.")
    text = (
        f"An epoch takes {found.ratio:.3g} times as long with live augmentation as with data prepared ahead of time "
        f"(n = {found.pairs} pairs{'' if found.low is None else f', 95 % {found.low:.3g} to {found.high:.3g}'})"
    )
    told = found.chance < TOLD
    if not told:
        text += "; the difference may be chance."
    elif found.ratio <= 1:
        text += ", so preparing buys nothing: augment live."
    elif found.break_even_epochs is None:
        text += "; the time to prepare was not recorded, so where it pays is not known."
    else:
        text += (
            f"; preparing takes {span(found.prepare_s or 0.0)} and pays from {found.break_even_epochs:.3g} epochs on."
        )
    return Answer(text, dict(vars(found)), FAIR if told else WEAK, 2 * found.pairs, _prepared(found, told))


def _prepared(found: LiveAgainstAhead, told: bool) -> Claim:
    interval = None if found.low is None or found.high is None else (1 / found.high, 1 / found.low)
    sign = (-1 if found.ratio > 1 else 1) if told else 0
    return Claim(["augment"], "live", "pre", sign, interval)


def phases(results: Results) -> Answer | None:
    """Where the time goes, over all trials that are done."""
    known = [name for name in (*PHASES, *BESIDE, "communication_s", "wait_s") if name in results.names()]
    seconds = {name: float(np.nansum(numbers(results, name))) for name in known}
    total = sum(seconds[name] for name in PHASES if name in seconds)
    if len([name for name in PHASES if name in seconds]) < 2 or not total:
        return Answer("Times of loading, training and testing were not recorded apart.", {}, NONE)
    shares = {name: seconds[name] / total for name in PHASES if name in seconds}
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    text = "Of the time, " + ", ".join(f"{100 * x:.3g} % is {name.removesuffix('_s')}" for name, x in ordered) + "."
    beside = {name: seconds[name] / total for name in known if name not in PHASES and seconds[name] > 0.005 * total}
    if beside:
        text += " Beside it, as a share of that time: "
        text += ", ".join(f"{name.removesuffix('_s')} {100 * x:.3g} %" for name, x in beside.items()) + "."
    name = ordered[0][0]
    if name != "train_s" or shares.get("data_s", 0) > 0.25:
        slow = name if name != "train_s" else "data_s"
        text += f" {slow.removesuffix('_s').capitalize()} is worth speeding up before the network is."
    done = results.counts()["done"]
    return Answer(text, {"shares": shares, "beside": beside, "total_s": total, "n": done}, SURE, done)
