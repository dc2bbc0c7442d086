"""What training costs, in sentences: devices, augmentation, phases, and which hyperparameters drive it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tradewind.analysis.augmentation import live_against_ahead
from tradewind.analysis.effects import effects
from tradewind.analysis.groups import cells, config_name, levels, numbers, summary, varied
from tradewind.analysis.prediction import TO_TARGET, alike, forecast, soonest, table
from tradewind.results import Results

SHARE = "share_s"  # the time of packed trials
SURE, FAIR, WEAK, NONE = "sure", "fairly sure", "weak", "not enough data"
MOST_TRIALS = 100_000  # beyond these the fit would take most of the time of an answer
MOST_FITTED = 12  # configs whose middle says where devices stop paying
PHASES = ("data_s", "train_s", "validation_s", "test_s")
BESIDE = ("prepare_s", "compile_s", "warmup_s")

Answer = tuple[str, dict[str, Any], str]  # the sentence, the numbers behind it, how sure


def time_name(results: Results) -> str | None:
    """The time that a config costs; in a pack no trial has one of its own, only an allocated share."""
    packed = "packed_with" in results.names() and np.any(np.nan_to_num(results.column("packed_with")) > 0)
    wanted = (SHARE,) if packed else ("wall_s", "train_s", "epoch_s")
    return next((name for name in wanted if name in results.names("times")), None)


def span(seconds: float) -> str:
    """A time in seconds and, where that is long, in minutes or hours."""
    text = f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"
    if seconds < 120:
        return text
    return f"{text} = {seconds / 60:.1f} min" if seconds < 7200 else f"{text} = {seconds / 3600:.1f} h"


def named(config: dict[str, Any]) -> str:
    """A config in words: batch_size 256, epochs 100."""
    pairs = [f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in config.items()]
    return ", ".join(pairs) or "the only config"


def quickest(results: Results, time: str | None) -> Answer | None:
    """The config that trains the most networks per hour, where nothing but times is known."""
    if time is None:
        return "No time was recorded.", {}, NONE
    configs = cells(results, varied(results))
    found = summary(numbers(results, time), configs)
    seconds = np.where(found.mean > 0, found.mean, np.nan)
    if np.all(np.isnan(seconds)):
        return f"No trial that is done has a {time}.", {}, NONE
    most = int(np.nanargmin(seconds))
    config, shortest, n = configs.labels(most), float(seconds[most]), int(found.n[most])
    text = f"{named(config)} is quickest, {span(shortest)} (n = {n}): {3600 / shortest:.4g} networks an hour."
    return text, {"config": config, time: shortest, "n": n}, SURE if n > 2 else FAIR


def devices(results: Results, time: str | None) -> Answer | None:
    """How many devices one network pays, and whether networks side by side are more per hour."""
    name = config_name(results, "devices")
    if name is None or name not in varied(results) or time is None:
        return None
    if time != SHARE and TO_TARGET in results.names("times") and np.any(numbers(results, TO_TARGET) > 0):
        time = TO_TARGET  # how long it trains says less than when it is good enough
    speedups, labels = _speedups(results, name, time)
    if not speedups:
        return "No config was run on more than one number of devices.", {}, NONE
    few = labels[0]
    fastest = max([(1.0, few), *((one["speed_up"], count) for count, one in speedups.items())])[1]
    text = f"One network is done soonest on {fastest} of the numbers tried ({', '.join(map(str, labels))}). "
    text += " ".join(_side_by_side(few, count, one) for count, one in speedups.items())
    told, facts = _foretold(results, time, [label for label in labels if type(label) is int])
    return text + told, {"speed_up": speedups, "soonest_on": fastest, "time": time, **facts}, FAIR


def _speedups(results: Results, name: str, time: str) -> tuple[dict[Any, dict[str, Any]], list[Any]]:
    """How much faster than the fewest devices each number is, the median over configs that ran on both."""
    others = cells(results, [other for other in varied(results) if other not in (name, "global_batch_size")])
    codes, labels = levels(results, name)
    seconds = numbers(results, time)
    means = [summary(np.where(codes == k, seconds, np.nan), others).mean for k in range(len(labels))]
    few, speedups = labels[0], dict[Any, dict[str, Any]]()
    for count, mean in zip(labels[1:], means[1:], strict=True):
        ratio = means[0] / np.where(mean > 0, mean, np.nan)
        if type(count) is int and type(few) is int and np.any(~np.isnan(ratio)):
            speed_up = float(np.nanmedian(ratio))
            speedups[count] = {
                "speed_up": speed_up, "efficiency": speed_up * few / count, "configs": int(np.sum(~np.isnan(ratio))),
                "one_network_on_all_is_better": speed_up * few > count,
            }  # fmt: skip
    return speedups, labels


def _foretold(results: Results, time: str, counts: list[int]) -> tuple[str, dict[str, Any]]:
    """What the fit says beyond the numbers tried: where devices stop paying, and how to reach the target soonest."""
    if len(counts) < 2 or len(results) > MOST_TRIALS or time == SHARE:
        return "", {}
    found = forecast(results, time)
    enough = [table(found, same, counts)["enough_devices"] for same in alike(found)[:MOST_FITTED]]
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


def _side_by_side(few: int, count: int, one: dict[str, Any]) -> str:
    """Whether to give the devices to one network or to several."""
    gain, apart = one["efficiency"], f"{count / few:g} networks on {few} each"
    if one["one_network_on_all_is_better"]:
        verdict = f"one network on all {count} beats {apart}: {gain:.3g} times as many per hour"
    else:
        verdict = f"{apart} beat one on all {count}: {1 / gain:.3g} times as many per hour"
    many = "one config" if one["configs"] == 1 else f"median of {one['configs']} configs"
    faster = f"{count} are {one['speed_up']:.3g} times as fast as {few} ({many})"
    return f"{faster}, so {verdict}."


def augmentation(results: Results) -> Answer | None:
    """Live or ahead of time, where both were tried."""
    found, name = live_against_ahead(results), config_name(results, "augment")
    if found is None:
        tried = levels(results, name)[1] if name else []
        if len(tried) < 2:
            return None
        return f"Tried were {', '.join(map(str, tried))}: no two trials differ in live against pre alone.", {}, NONE
    text = (
        f"An epoch takes {found.ratio:.3g} times as long with live augmentation as with data prepared ahead of time "
        f"(n = {found.pairs} pairs{'' if found.low is None else f', 95 % {found.low:.3g} to {found.high:.3g}'})"
    )
    told = found.low is not None and found.high is not None and (found.low > 1 or found.high < 1)
    if found.ratio <= 1:
        text += ", so preparing buys nothing: augment live."
    elif found.break_even_epochs is None:
        text += "; the time to prepare was not recorded, so where it pays is not known."
    else:
        text += (
            f"; preparing takes {span(found.prepare_s or 0.0)} and pays from {found.break_even_epochs:.3g} epochs on."
        )
    if not told:
        text += " The difference may be chance."
    return text, dict(vars(found)), FAIR if told else WEAK


def phases(results: Results) -> Answer | None:
    """Where the time goes, over all trials that are done."""
    known = [name for name in (*PHASES, *BESIDE, "communication_s", "wait_s") if name in results.names()]
    seconds = {name: float(np.nansum(numbers(results, name))) for name in known}
    total = sum(seconds[name] for name in PHASES if name in seconds)
    if len([name for name in PHASES if name in seconds]) < 2 or not total:
        return "Times of loading, training and testing were not recorded apart.", {}, NONE
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
    return text, {"shares": shares, "beside": beside, "total_s": total, "n": results.counts()["done"]}, SURE


def importance(results: Results, score: str, time: str | None) -> Answer | None:
    """Which hyperparameters drive score and time, by their share of the variance."""
    parts, facts = [], {}
    for value in filter(None, (score, time)):
        found = effects(results, value)
        if not found.main:
            continue
        shares = {one.name: one.share for one in found.main}
        top = sorted(shares.items(), key=lambda item: -item[1])[:3]
        pair = max(found.pairs, key=lambda p: p.share, default=None)
        text = f"{value}: " + ", ".join(f"{name} {100 * x:.3g} %" for name, x in top)
        if pair and pair.share > 0.05:
            mixed = "" if found.repeated or len(found.main) > 2 else " and noise"
            text += f", {' with '.join(pair.names)}{mixed} {100 * pair.share:.3g} %"
        parts.append(text)
        pairs = {" × ".join(p.names): p.share for p in found.pairs}
        facts[value] = {
            "main": shares, "pairs": pairs, "higher": found.higher, "residual": found.residual, "n": found.n,
            "method": found.method, "aliases": found.aliases, "binned": found.binned,
        }  # fmt: skip
    if not parts:
        return None
    return f"Shares of the variance. {'. '.join(parts)}.", facts, FAIR
