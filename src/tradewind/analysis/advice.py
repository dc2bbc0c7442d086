"""What to choose, why, and how sure: sentences with the numbers behind them.

The rule behind "soon enough": scores vary by chance (`pareto.noise`: the spread of repeats; without repeats the
scatter of neighbouring configs; without either the digits written down). Configs whose mean score is less below the
best than two equally good ones may lie apart with 95 % probability (Student's t) form the plateau; the quickest of
the plateau is the choice, because what more time buys can't be told from luck.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tradewind.analysis import costs
from tradewind.analysis.costs import FAIR, NONE, SHARE, SURE, WEAK, Answer, named, span
from tradewind.analysis.groups import config_name, counted, levels, numbers, summary
from tradewind.analysis.pareto import Field, Noise, Point, field_of, front, knee, noise, plateau
from tradewind.errors import Mistake
from tradewind.results import Results

SHOWN = 6
TIMED = ("best score for the time", "best score within a time", "most networks per hour", "devices per network")


@dataclass(frozen=True)
class Advice:
    """One piece of advice: about what, in words, the numbers behind it, and how sure it is."""

    topic: str
    text: str
    numbers: dict[str, Any] = field(default_factory=dict)
    sure: str = SURE


def advise(results: Results) -> list[Advice]:
    """What this run says about how to train; each topic that it can't tell says so."""
    if not results.decisive().any():
        return [Advice("what was measured", *_measured(results)[:2], NONE)]
    time = costs.time_name(results)
    about: dict[str, Callable[[], Answer | None]] = {"what was measured": lambda: _measured(results)}
    score = ""
    try:
        found = field_of(results, time, results.objective()[0] or None)
        score = found.score_name
        about |= _on_scores(results, found, noise(found))
    except Mistake as mistake:
        refusal: Answer = (str(mistake), {}, NONE)
        about["best score"] = lambda: refusal
        about["most networks per hour"] = lambda: costs.quickest(results, time)
    about |= {
        "devices per network": lambda: costs.devices(results, time),
        "augmentation live or ahead of time": lambda: costs.augmentation(results),
        "where the time goes": lambda: costs.phases(results),
        "what matters": lambda: costs.importance(results, score, time),
    }
    answers = {topic: _answer(ask) for topic, ask in about.items()}
    if time == SHARE:
        answers |= {topic: _allotted(answer) for topic in TIMED if (answer := answers.get(topic))}
    if results.caveat:
        answers = {topic: answer and _early(answer, results.caveat) for topic, answer in answers.items()}
    order = sorted(answers, key=lambda topic: topic == "what to measure next")
    return [Advice(topic, _spoken(answer[0]), *answer[1:]) for topic in order if (answer := answers[topic])]


def _allotted(answer: Answer) -> Answer:
    """An answer on times that no trial was measured to take: less sure, and it says so."""
    text, facts, sure = answer
    if sure == NONE:
        return answer
    return f"{text} Times are {SHARE}, a trial's allotted share of its pack's: alone it may take longer.", facts, WEAK


def _early(answer: Answer, caveat: str) -> Answer:
    """An answer that rests on trials which never came to their end: less sure, and it says so."""
    text, facts, sure = answer
    return (text, facts, sure) if sure == NONE else (f"{text} But {caveat}.", facts, WEAK)


def _spoken(text: str) -> str:
    """Without what tells a hyperparameter from a field of the record that has its name (devices, …)."""
    return re.sub(r"\bconfig\.(?=\w)", "", text)


def _on_scores(results: Results, found: Field, chance: Noise) -> dict[str, Callable[[], Answer | None]]:
    return {
        "best score": lambda: _best(found, chance),
        "best score for the time": lambda: _knee(found, chance),
        "best score within a time": lambda: _within(found),
        "most networks per hour": lambda: _throughput(results, found, chance),
        "accuracy": lambda: _accuracy(results, found),
        "what to measure next": lambda: _next(results, found, chance),
    }


def _answer(ask: Callable[[], Answer | None]) -> Answer | None:
    """What a question can't be answered for is an answer too."""
    try:
        return ask()
    except Mistake as mistake:
        return str(mistake), {}, NONE


def _plain(point: Point, found: Field) -> dict[str, Any]:
    seconds = {found.time_name: point.time} if found.time_name and point.time == point.time else {}
    return {"config": point.config, found.score_name: point.score, **seconds, "n": point.n}


def _measured(results: Results) -> Answer:
    counts, facts = counted(results), dict[str, Any]()
    for name in ("purpose", "machine"):
        if len(results) and name in results.names():
            facts[name] = sorted({str(x) for x in levels(results, name)[1] if x is not None})
    left = [f"{n} {what.replace('_', ' ')}" for what, n in counts.items() if what != "done" and n]
    where = "; ".join(f"{name} {', '.join(values)}" for name, values in facts.items())
    text = f"{counts['done']} trials done" + (f" (beside them {', '.join(left)})" if left else "")
    return f"{text}{f'; {where}' if where else ''}.", {**counts, **facts}, SURE


def _best(found: Field, chance: Noise) -> Answer:
    point, near = found.point(found.best()), plateau(found, chance)
    known = {
        "repeats": "the spread of repeats", "neighbours": "the scatter of neighbouring configs",
        "rounding": "the digits written down alone, which says nothing about chance",
    }[chance.source]  # fmt: skip
    margin = float(chance.margin(point.n, int(np.median(found.score.n[near]))))
    text = f"The best {found.score_name} is {point.score:.4g} (n = {point.n}) with {named(point.config)}."
    if others := int(np.sum(found.score.n > 0)) - 1:
        verb = "is" if len(near) == 2 else "are"
        text += (
            f" {len(near) - 1} of {others} other configs {verb} within {margin:.2g} of it "
            f"and can't be told from it by {known}."
        )
    facts = {"sigma": chance.sigma, "margin": margin, "noise_from": chance.source, "plateau": len(near)}
    return text, {**_plain(point, found), **facts}, _trust(found, chance)


def _trust(found: Field, chance: Noise) -> str:
    if chance.source == "rounding":
        return WEAK
    return SURE if chance.source == "repeats" and chance.dof >= 8 and found.score.n[found.best()] > 2 else FAIR


def _knee(found: Field, chance: Noise) -> Answer:
    cell, best = knee(found, chance), found.point(found.best())
    if cell is None:
        return "No time was recorded beside the scores.", {}, NONE
    point, line = found.point(cell), front(found)
    at = line.index(cell) if cell in line else 0
    beside = [found.point(k) for k in line[max(0, at - 1) : at + 2] if k != cell]
    gain = f"{best.time / point.time:.3g} times as long" if best.time == best.time else "a time not recorded"
    text = f"{named(point.config)}: {found.score_name} {point.score:.4g} in {span(point.time)} (n = {point.n}). "
    if cell == found.best():
        text += "It is the best of all, and nothing quicker comes within noise of it."
    else:
        text += f"The best, {best.score:.4g}, takes {gain}; the difference is within noise."
    for other in beside:
        way = "Quicker" if other.time < point.time else "Better"
        text += f" {way}: {named(other.config)} with {other.score:.4g} in {span(other.time)}."
    facts = {**_plain(point, found), "best": _plain(best, found), "beside": [_plain(p, found) for p in beside]}
    return text, facts, _trust(found, chance)


def _within(found: Field) -> Answer | None:
    if found.time is None:
        return None
    line = [found.point(cell) for cell in front(found)]
    if len(line) < 2:
        return None
    picked = [line[k] for k in sorted({round(k) for k in np.linspace(0, len(line) - 1, SHOWN).tolist()})]
    steps = "; ".join(f"{span(p.time)}: {p.score:.4g} with {named(p.config)}" for p in picked)
    sure = SURE if min(p.n for p in line) > 2 else FAIR
    text = f"Within a time, {found.score_name} reaches at best: {steps}."
    return text, {"front": [_plain(p, found) for p in line]}, sure


def _throughput(results: Results, found: Field, chance: Noise) -> Answer | None:
    cell = knee(found, chance)
    if found.time is None or cell is None:
        return None
    name = config_name(results, "devices")
    devices = summary(numbers(results, name), found.configs).mean if name else np.ones(len(found.configs))
    per_hour = 3600 / (found.time.mean * np.where(np.isnan(devices), 1, devices))
    most = int(np.nanargmax(np.where(found.score.n > 0, per_hour, np.nan)))
    near = plateau(found, chance)
    good = int(near[np.nanargmax(per_hour[near])])
    text = (
        f"Per device and hour, {named(found.configs.labels(most))} trains the most networks: {per_hour[most]:.4g}, "
        f"with {found.score_name} {found.score.mean[most]:.4g}."
    )
    if good != most:
        text += f" As good as the best: {per_hour[good]:.4g} with {named(found.configs.labels(good))}."
    facts = {
        "most": {**_plain(found.point(most), found), "per_device_hour": float(per_hour[most])},
        "as_good_as_the_best": {**_plain(found.point(good), found), "per_device_hour": float(per_hour[good])},
    }
    return text, facts, SURE if found.time.n[most] > 2 else FAIR


def _accuracy(results: Results, found: Field) -> Answer | None:
    """Whether accuracy says little because one class is rare."""
    rate = next((name for name in results.names() if name.split(".")[-1] == "positive_rate"), None)
    name = next((n for n in [found.score_name, *results.names("scores", "last")] if "accuracy" in n), None)
    if rate is None or name is None:
        return None
    rates, values = numbers(results, rate), numbers(results, name)
    if np.all(np.isnan(rates)) or np.all(np.isnan(values)):
        return None
    positive, full = float(np.nanmean(rates)), 100.0 if "percent" in name else 1.0
    blind, best = full * max(positive, 1 - positive), float(np.nanmax(values))
    facts = {"positive_rate": positive, "always_the_same_answer": blind, name: best}
    text = f"With {100 * positive:.3g} % positive samples, always the same answer gives {name} {blind:.4g}; "
    if best <= blind:
        return f"{text}the best here, {best:.4g}, is no better. Choose by AUC or CSI, not by accuracy.", facts, SURE
    skill = (best - blind) / (full - blind)
    facts["share_of_the_rest"] = skill
    text += f"the best here, {best:.4g}, is {100 * skill:.3g} % of the way from there to perfect. "
    misleads = blind >= 0.7 * full
    text += "Accuracy misleads: choose by AUC or CSI." if misleads else "Accuracy is a fair measure here."
    return text, facts, SURE


def _next(results: Results, found: Field, chance: Noise) -> Answer:
    """What would make the advice surer: repeats, a wider range, failed trials."""
    near, best = plateau(found, chance), found.best()
    todo, facts = [], {"plateau": len(near), "fewest_repeats": int(found.score.n[near].min())}
    few = facts["fewest_repeats"]
    if few < 3 and len(found.configs) > 1:
        many = (
            f"the {len(near)} configs that may be the best, the quickest first,"
            if len(near) > 1
            else "the best config"
        )
        guessed = "" if chance.source == "repeats" else ", so chance is guessed"
        todo.append(f"Repeat {many} to 3 trials each: the fewest now is {few}{guessed}")
    edges = _edges(found, chance, best)
    todo += [
        f"Try {name} {way} {value}: the best lies at the end of its range" for name, (way, value) in edges.items()
    ]
    failed = results.counts()["failed"]
    todo += [f"See why {failed} trials failed (`tradewind status`)"] if failed else []
    if found.time_name is None:
        todo.append("Record times (purpose time), to weigh score against cost")
    text = (
        ". ".join(todo) + "." if todo else "Nothing stands out: repeats are enough and the best is inside its ranges."
    )
    return text, {**facts, "edges": {name: list(edge) for name, edge in edges.items()}, "failed": failed}, SURE


def _edges(found: Field, chance: Noise, best: int) -> dict[str, tuple[str, float]]:
    """Numeric names whose lowest or highest value is best by more than noise over the best of all other values."""
    quality, edges = found.quality(), {}
    for axis, (name, labels) in enumerate(zip(found.configs.names, found.configs.levels, strict=True)):
        if len(labels) < 3 or not all(type(x) in (int, float) for x in labels):
            continue
        at = int(found.configs.codes[best, axis])
        others = np.where(found.configs.codes[:, axis] != at, quality, np.nan)
        if at not in (0, len(labels) - 1) or np.all(np.isnan(others)):
            continue
        if at == 0 and type(labels[at]) is int and labels[at] <= 1:  # a count, of which there is no less
            continue
        rival = int(np.nanargmax(others))
        if quality[best] - quality[rival] > chance.margin(found.score.n[best], found.score.n[rival]):
            edges[name] = ("below" if at == 0 else "above", labels[at])
    return edges
