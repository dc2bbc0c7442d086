"""Which config to choose: the best, the best for its time, the best within a time, the most per hour."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tradewind.analysis.groups import config_name, for_this_split, numbers, summary
from tradewind.analysis.pareto import Field, Noise, Point, front, knee, plateau
from tradewind.analysis.statement import FAIR, SURE, WEAK, Answer, Claim, named, span
from tradewind.columns import Array
from tradewind.results import Results

SHOWN = 6
APART, FAIRLY = 0.975, 0.9  # how sure each comparison with the best is, where one config alone is called the best
LUCK = 2.8  # standard deviations that two single trials of one config seldom lie farther apart
KNOWN_BY = {
    "repeats": "the spread of repeats", "neighbours": "the scatter of neighbouring configs",
    "names": "what the hyperparameters one by one leave unexplained",
}  # fmt: skip


def _plain(point: Point, found: Field) -> dict[str, Any]:
    seconds = {found.time_name: point.time} if found.time_name and point.time == point.time else {}
    return {"config": point.config, found.score_name: point.score, **seconds, "n": point.n}


def best(results: Results, found: Field, chance: Noise) -> Answer:
    """The config with the best mean, and which others may be the best as well."""
    top, known = found.best(), found.known
    point, near, n = found.point(top), plateau(found, chance), int(found.score.n.sum())
    lower = " (lower is better)" if found.sign < 0 else ""
    text = f"The best {found.score_name}{lower} is {point.score:.4g} (n = {point.n}) with {named(point.config)}."
    others = known[known != top]
    facts: dict[str, Any] = {"noise_from": chance.source, "plateau": len(near)}
    if not len(others):
        return Answer(
            text, {**_plain(point, found), **facts}, WEAK, n, Claim(tuple(point.config), None, point.config)
        )
    second = int(others[np.argmax(found.quality()[others])])
    if chance.source == "none":
        text += f" Each config ran once, so the lead may be luck: repeat the best {min(3, len(known))}."
        return Answer(text, {**_plain(point, found), **facts}, WEAK, n, _lead(found, chance, top, second))
    split = for_this_split(results) if chance.source == "repeats" else ""
    by = KNOWN_BY[chance.source] + (f", for {split}" if split else "")
    margin = float(chance.behind(point.n, int(np.median(found.score.n[near])), len(others)))
    verb = "is" if len(near) == 2 else "are"
    text += (
        f" No other config is within {margin:.2g} of it, so far as can be told by {by}."
        if len(near) == 1
        else f" {len(near) - 1} of {len(others)} other configs {verb} within {margin:.2g} of it "
        f"and can't be told from it by {by}."
    )
    facts |= {"sigma": chance.sigma, "margin": margin}
    claim = _lead(found, chance, top, second)
    return Answer(text, {**_plain(point, found), **facts}, _trust(found, chance), n, claim)


def _lead(found: Field, chance: Noise, top: int, second: int) -> Claim:
    """From the runner-up to the best: by how much the score changes."""
    gap = float(found.quality()[top] - found.quality()[second])
    ends = found.point(second).config, found.point(top).config
    if chance.source == "none":
        return Claim(tuple(ends[1]), *ends, 0, None)
    margin = float(chance.behind(found.score.n[top], found.score.n[second], len(found.known) - 1, APART))
    sign = int(found.sign) if gap > margin else 0
    low, high = sorted((found.sign * (gap - margin), found.sign * (gap + margin)))
    return Claim(tuple(ends[1]), *ends, sign, (low, high))


def _trust(found: Field, chance: Noise) -> str:
    """How sure it is that the best is the best: how clearly all others can be told from it."""
    alone = [len(plateau(found, chance, confidence)) == 1 for confidence in (APART, FAIRLY)]
    if chance.source == "none" or not alone[1]:
        return WEAK
    return SURE if alone[0] and chance.source == "repeats" else FAIR


def for_the_time(found: Field, chance: Noise) -> Answer:
    """The quickest config that can't be told from the best, and its neighbours on the front."""
    if found.time is None or np.all(np.isnan(found.time.mean)):
        return Answer("No time was recorded beside the scores.")
    cell, top = knee(found, chance), found.best()
    n = int(found.score.n.sum())
    if cell is None:
        return Answer(
            "How much a score varies by chance is not known, so no shorter time can be advised: repeat some."
        )
    point, first, line = found.point(cell), found.point(top), front(found)
    at = line.index(cell) if cell in line else 0
    beside = [found.point(k) for k in line[max(0, at - 1) : at + 2] if k != cell]
    text = f"{named(point.config)}: {found.score_name} {point.score:.4g} in {span(point.time)} (n = {point.n}). "
    if cell == top:
        text += "It is the best of all, and nothing quicker comes within noise of it."
    elif first.time == first.time:
        longer = f"takes {first.time / point.time:.3g} times as long"
        text += f"The best, {first.score:.4g}, {longer}; the difference of the scores is within noise."
    for other in beside:
        way = "Quicker" if other.time < point.time else "Better"
        text += f" {way}: {named(other.config)} with {other.score:.4g} in {span(other.time)}."
    facts = {**_plain(point, found), "best": _plain(first, found), "beside": [_plain(p, found) for p in beside]}
    if cell == top:
        return Answer(text, facts, _trust(found, chance), n, Claim(tuple(point.config), None, point.config))
    return Answer(text, facts, _as_good(found, chance, cell, top), n, _loss(found, chance, cell, top))


def _loss(found: Field, chance: Noise, cell: int, top: int) -> Claim:
    """From the best to what is chosen for its time: what of the score that may cost."""
    gap = float(found.quality()[cell] - found.quality()[top])
    margin = float(chance.behind(found.score.n[top], found.score.n[cell], len(found.known) - 1, APART))
    low, high = sorted((found.sign * (gap - margin), found.sign * (gap + margin)))
    config = found.point(cell).config
    return Claim(tuple(config), found.point(top).config, config, 0, (low, high))


def _as_good(found: Field, chance: Noise, cell: int, top: int) -> str:
    """As good as the best means: no more is lost than two single trials of one config may differ."""
    gap, n, m = found.quality()[top] - found.quality()[cell], found.score.n[top], found.score.n[cell]
    lost = [gap + float(chance.behind(n, m, len(found.known) - 1, confidence)) for confidence in (APART, FAIRLY)]
    if chance.source != "repeats" or lost[1] > LUCK * chance.sigma:
        return WEAK
    return SURE if lost[0] <= LUCK * chance.sigma else FAIR


def within_a_time(found: Field, chance: Noise) -> Answer | None:
    """The Pareto front, from quick to good."""
    line = [] if found.time is None else front(found)
    if len(line) < 2:
        return None
    points = [found.point(cell) for cell in line]
    picked = [points[k] for k in sorted({round(k) for k in np.linspace(0, len(line) - 1, SHOWN).tolist()})]
    steps = "; ".join(f"{span(p.time)}: {p.score:.4g} with {named(p.config)}" for p in picked)
    quality, n = found.quality(), found.score.n
    told = [
        quality[b] - quality[a] > chance.behind(n[a], n[b], len(found.known) - 1, APART) and found.slower(b, a)
        for a, b in pairwise(line)
    ]
    text = f"Within a time, {found.score_name} reaches at best: {steps}."
    sure = SURE if all(told) and chance.source == "repeats" else FAIR if all(told) else WEAK
    return Answer(text, {"front": [_plain(p, found) for p in points]}, sure, int(n.sum()))


def most_per_hour(results: Results, found: Field, chance: Noise) -> Answer | None:
    """The config that trains the most networks per device and hour."""
    if found.time is None or np.all(np.isnan(found.time.mean)):
        return None
    name = config_name(results, "devices")
    devices = summary(numbers(results, name), found.configs).mean if name else np.ones(len(found.configs))
    per_hour = 3600 / (found.time.mean * np.where(np.isnan(devices), 1, devices))
    per_hour = np.where(found.score.n > 0, per_hour, np.nan)
    most = int(np.nanargmax(per_hour))
    cell = knee(found, chance)
    text = (
        f"Per device and hour, {named(found.configs.labels(most))} trains the most networks: {per_hour[most]:.4g}, "
        f"with {found.score_name} {found.score.mean[most]:.4g}."
    )
    facts = {"most": {**_plain(found.point(most), found), "per_device_hour": float(per_hour[most])}}
    if cell is not None:
        near = plateau(found, chance)
        good = int(near[np.nanargmax(per_hour[near])])
        if good != most:
            text += f" As good as the best: {per_hour[good]:.4g} with {named(found.configs.labels(good))}."
        facts["as_good_as_the_best"] = {**_plain(found.point(good), found), "per_device_hour": float(per_hour[good])}
    config = found.configs.labels(most)
    n = int(found.time.n[most])
    return Answer(text, facts, _quickest(found, per_hour, most), n, Claim(tuple(config), None, config))


def _quickest(found: Field, per_hour: Array, most: int) -> str:
    """How sure it is that a config trains the most networks: by the next one."""
    assert found.time is not None
    assert found.pace is not None
    rest = np.where(np.arange(len(per_hour)) == most, np.nan, per_hour)
    if np.all(np.isnan(rest)):
        return WEAK
    rival = int(np.nanargmax(rest))
    gap, n = float(np.log(per_hour[most] / per_hour[rival])), (int(found.time.n[most]), int(found.time.n[rival]))
    if gap > found.pace.margin(*n, 0.99) and min(n) > 2:
        return SURE
    return FAIR if gap > found.pace.margin(*n) else WEAK
