"""What to choose, why, and how sure: statements with the numbers behind them.

The rule behind "soon enough": scores vary by chance (`pareto.noise`: the spread of repeats; without repeats the
scatter of neighbouring configs, or what the sum of the names' effects leaves). The configs that may be the best
(Hsu's multiple comparisons with the best, 95 %) form the plateau; the quickest of the plateau is the choice, because
what more time buys can't be told from luck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tradewind.analysis import costs
from tradewind.analysis.causes import causes
from tradewind.analysis.choice import APART, best, for_the_time, most_per_hour, within_a_time
from tradewind.analysis.costs import DECIDES_S, SHARE
from tradewind.analysis.groups import counted, labels_of, levels, numbers
from tradewind.analysis.matters import OF_SCORE, what_matters
from tradewind.analysis.pareto import Field, Noise, field_of, noise, plateau
from tradewind.analysis.statement import NONE, NOTHING, SURE, WEAK, Answer, Claim, plain_name
from tradewind.errors import Mistake
from tradewind.results import Results

TIMED = ("best score for the time", "best score within a time", "most networks per hour", "devices per network")


@dataclass(frozen=True)
class Advice:
    """One statement: about what, in words, what it claims, how sure it is, on how many trials it rests."""

    topic: str
    text: str
    numbers: dict[str, Any] = field(default_factory=dict)
    sure: str = SURE
    claim: Claim = NOTHING
    n: int = 0

    def plain(self) -> dict[str, Any]:
        """As `advise --json` has it; documented, since others judge by it."""
        parts = {"topic": self.topic, "text": self.text, "claim": self.claim.plain(), "sure": self.sure}
        return {**parts, "n": self.n}


Ask = Callable[[], "Answer | list[Answer] | None"]


def advise(results: Results) -> list[Advice]:
    """What this run says about how to train; each topic that it can't tell says so."""
    if not results.decisive().any():
        return [_advice("what was measured", replace(_measured(results), sure=NONE))]
    time = costs.time_name(results)
    about: dict[str, Ask] = {"what was measured": lambda: _measured(results)}
    score = ""
    try:
        found = field_of(results, time, results.objective()[0] or None)
        score = found.score_name
        about |= _on_scores(results, found, noise(found))
    except Mistake as mistake:
        refusal = Answer(str(mistake))
        about["best score"] = lambda: refusal
        about["most networks per hour"] = lambda: costs.quickest(results, time)
    about |= {
        "devices per network": lambda: costs.devices(results, time),
        "augmentation live or ahead of time": lambda: costs.augmentation(results),
        "where the time goes": lambda: costs.phases(results),
        "what matters": lambda: what_matters(results, score, time),
    }
    order = sorted(about, key=lambda topic: topic == "what to measure next")
    answers = [(topic, answer) for topic in order for answer in _answers(about[topic])]
    if time == SHARE:
        answers = [(topic, _allotted(answer) if topic in TIMED else answer) for topic, answer in answers]
    if results.caveat:
        answers = [(topic, _early(answer, results.caveat)) for topic, answer in answers]
    return [_advice(topic, answer) for topic, answer in answers]


def _advice(topic: str, answer: Answer) -> Advice:
    return Advice(topic, answer.text, answer.numbers, answer.sure, answer.claim, answer.n)


def _allotted(answer: Answer) -> Answer:
    """An answer on times that no trial was measured to take: less sure, and it says so."""
    if answer.sure == NONE:
        return answer
    told = f"{answer.text} Times are {SHARE}, a trial's allotted share of its pack's: alone it may take longer."
    return replace(answer, text=told, sure=WEAK)


def _early(answer: Answer, caveat: str) -> Answer:
    """An answer that rests on trials which never came to their end: less sure, and it says so."""
    return answer if answer.sure == NONE else replace(answer, text=f"{answer.text} But {caveat}.", sure=WEAK)


def _on_scores(results: Results, found: Field, chance: Noise) -> dict[str, Ask]:
    about: dict[str, Ask] = {"best score": lambda: best(results, found, chance)}
    if _times_decide(found):
        about |= {
            "best score for the time": lambda: for_the_time(found, chance),
            "best score within a time": lambda: within_a_time(found, chance),
            "most networks per hour": lambda: most_per_hour(results, found, chance),
        }
    about |= {
        "accuracy": lambda: _accuracy(results, found),
        "what to measure next": lambda: _next(results, found, chance),
    }
    return about


def _times_decide(found: Field) -> bool:
    """Whether there are times to choose by: not microseconds, nor times that only chance tells apart."""
    if found.time is None or np.all(np.isnan(found.time.mean)):
        return True  # that none was recorded is said
    longest, shortest = int(np.nanargmax(found.time.mean)), int(np.nanargmin(found.time.mean))
    return bool(found.time.mean[longest] >= DECIDES_S) and (longest == shortest or found.slower(longest, shortest))


def _answers(ask: Ask) -> list[Answer]:
    """What a question can't be answered for is an answer too."""
    try:
        found = ask()
    except Mistake as mistake:
        return [Answer(str(mistake))]
    return found if isinstance(found, list) else [found] if found else []


def _measured(results: Results) -> Answer:
    counts, facts = counted(results), dict[str, Any]()
    for name in ("purpose", "machine"):
        if len(results) and name in results.names():
            facts[name] = sorted({str(x) for x in levels(results, name)[1] if x is not None})
    left = [f"{n} {what.replace('_', ' ')}" for what, n in counts.items() if what != "done" and n]
    where = "; ".join(f"{name} {', '.join(values)}" for name, values in facts.items())
    text = f"{counts['done']} trials done" + (f" (beside them {', '.join(left)})" if left else "")
    return Answer(f"{text}{f'; {where}' if where else ''}.", {**counts, **facts}, SURE, counts["done"])


def _accuracy(results: Results, found: Field) -> Answer | None:
    """Whether accuracy says little because one class is rare."""
    rate = next((name for name in results.names() if name.split(".")[-1] == "positive_rate"), None)
    name = next((n for n in [found.score_name, *results.names("scores", "last")] if "accuracy" in n), None)
    if rate is None or name is None:
        return None
    rates, values = numbers(results, rate), numbers(results, name)
    if np.all(np.isnan(rates)) or np.all(np.isnan(values)):
        return None
    n = int(np.sum(~np.isnan(values)))
    positive, full = float(np.nanmean(rates)), 100.0 if "percent" in name else 1.0
    blind, best = full * max(positive, 1 - positive), float(np.nanmax(values))
    facts = {"positive_rate": positive, "always_the_same_answer": blind, name: best}
    text = f"With {100 * positive:.3g} % positive samples, always the same answer gives {name} {blind:.4g}; "
    if best <= blind:
        text += f"the best here, {best:.4g}, is no better. Choose by AUC or CSI, not by accuracy."
        return Answer(text, facts, SURE, n)
    skill = (best - blind) / (full - blind)
    facts["share_of_the_rest"] = skill
    text += f"the best here, {best:.4g}, is {100 * skill:.3g} % of the way from there to perfect. "
    misleads = blind >= 0.7 * full
    text += "Accuracy misleads: choose by AUC or CSI." if misleads else "Accuracy is a fair measure here."
    return Answer(text, facts, SURE, n)


def _next(results: Results, found: Field, chance: Noise) -> Answer:
    """What would make the advice surer: repeats, a wider range, failed trials."""
    near, best = plateau(found, chance), found.best()
    todo, facts = [], dict[str, Any]() | {"plateau": len(near), "fewest_repeats": int(found.score.n[near].min())}
    few = facts["fewest_repeats"]
    if few < 3 and len(found.configs) > 1:
        many = (
            f"the {len(near)} configs that may be the best, the quickest first,"
            if len(near) > 1
            else "the best config"
        )
        guessed = "" if chance.source == "repeats" else ", so chance is guessed"
        todo.append(f"Repeat {many} to 3 trials each: the fewest now is {few}{guessed}")
    edges = _edges(results, found, chance, best)
    todo += [
        f"Try {plain_name(name)} {way} {value}: the best lies at the end of its range"
        for name, (way, value) in edges.items()
    ]
    failed = results.counts()["failed"]
    todo += [f"See why {failed} trials failed (`tradewind status`)"] if failed else []
    if found.time_name is None:
        todo.append("Record times (purpose time), to weigh score against cost")
    text = (
        ". ".join(todo) + "." if todo else "Nothing stands out: repeats are enough and the best is inside its ranges."
    )
    facts |= {"edges": {name: list(edge) for name, edge in edges.items()}, "failed": failed}
    return Answer(text, facts, SURE, int(found.score.n.sum()), Claim(tuple(edges)))


def _edges(results: Results, found: Field, chance: Noise, best: int) -> dict[str, tuple[str, float]]:
    """Numbers that matter and whose lowest or highest value is best by more than noise over all other values."""
    quality, edges = found.quality(), {}
    named_ = {name for cause in causes(results, found.score_name, OF_SCORE).named for name in cause.names}
    for axis, (name, labels) in enumerate(zip(found.configs.names, found.configs.levels, strict=True)):
        numeric = len(labels) > 2 and all(type(x) in (int, float) for x in labels)
        if not numeric or name not in named_ or name in labels_of(results):
            continue
        at = int(found.configs.codes[best, axis])
        others = np.where(found.configs.codes[:, axis] != at, quality, np.nan)
        if at not in (0, len(labels) - 1) or np.all(np.isnan(others)):
            continue
        if at == 0 and type(labels[at]) is int and labels[at] <= 1:  # a count, of which there is no less
            continue
        rival = int(np.nanargmax(others))
        if quality[best] - quality[rival] > chance.behind(found.score.n[best], found.score.n[rival], 1, APART):
            edges[name] = ("below" if at == 0 else "above", labels[at])
    return edges
