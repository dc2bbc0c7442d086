"""What matters: a statement for each hyperparameter that changes score or time beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tradewind.analysis.causes import NAMED, Cause, Causes, causes
from tradewind.analysis.groups import for_this_split
from tradewind.analysis.statement import FAIR, NONE, SURE, WEAK, Answer, Claim, plain_name, value_words
from tradewind.results import Results

OF_TIME = 0.1  # the part of the permitted error that goes to times where scores are asked about too
OF_SCORE = 1 - OF_TIME
SURE_BELOW, FAIR_BELOW = 0.02, 0.03
TOGETHER_BELOW = 0.002  # interactions are many to ask for and few to find
FEW = 12  # degrees of freedom below which a larger chance is still fair evidence: more could not be seen


def what_matters(results: Results, score: str, time: str | None) -> list[Answer]:
    """The causes of score and time, the largest first; or that none stands out."""
    values = list(dict.fromkeys(filter(None, (score, time))))
    shares = [OF_SCORE, OF_TIME] if len(values) > 1 else [1.0]
    found = [causes(results, value, share) for value, share in zip(values, shares, strict=True)]
    found = [one for one in found if one.asked]
    answers = [_cause(results, one, cause) for one in found for cause in one.named]
    return [*answers, *(_silent(results, one) for one in found if not one.named)]


def _cause(results: Results, found: Causes, cause: Cause) -> Answer:
    names, time = " and ".join(map(plain_name, cause.names)), results.is_time(found.value)
    share = f"{100 * cause.share:.3g} % of the variance of {found.value}"
    odds = f"chance makes as much in {_percent(cause.chance)} of runs, n = {found.n}"
    sure = _sure(cause.chance, found.dof)
    sign = None if cause.difference is None else int(np.sign(cause.difference))
    interval = _interval(cause, time)
    if cause.together:
        text = f"What {names.replace(' and ', ' does depends on ')}: {share} ({odds})."
        sure = FAIR if cause.chance < TOGETHER_BELOW else WEAK
    elif len(cause.names) > 1 and sign is None:
        text = f"{names} changed together, so which of them it is can't be said: {share} ({odds})."
    else:
        text = f"{names} changes {found.value}{_change(cause, time)}: {share} ({odds})."
        text += " These names always changed together." if len(cause.names) > 1 else ""
    facts: dict[str, Any] = {"value": found.value, "share": cause.share, "chance": cause.chance, "dof": found.dof}
    claim = Claim(cause.names, cause.start, cause.end, sign, interval)
    return Answer(text + _beside(results, found), facts, sure, found.n, claim)


def _sure(chance: float, dof: int) -> str:
    if chance < SURE_BELOW:
        return SURE
    return FAIR if chance < FAIR_BELOW or dof < FEW else WEAK


def _interval(cause: Cause, time: bool) -> tuple[float, float] | None:
    if cause.low is None or cause.high is None:
        return None
    return (float(np.exp(cause.low)), float(np.exp(cause.high))) if time else (cause.low, cause.high)


def _change(cause: Cause, time: bool) -> str:
    """By how much, from where to where."""
    assert cause.difference is not None
    where = f"from {value_words(cause.start)} to {value_words(cause.end)}"
    low_high = _interval(cause, time)
    if time:
        between = f" ({low_high[0]:.3g} to {low_high[1]:.3g})" if low_high else ""
        return f" {float(np.exp(cause.difference)):.3g} times{between} {where}"
    if low_high is None:
        return f", which {'rises' if cause.difference > 0 else 'falls'} {where}"
    return f" by {cause.difference:+.3g} ({low_high[0]:+.3g} to {low_high[1]:+.3g}) {where}"


def _percent(chance: float) -> str:
    return "less than 0.1 %" if chance < 0.001 else f"{100 * chance:.2g} %"


def _beside(results: Results, found: Causes) -> str:
    """For which split it holds, and which trials were left out."""
    split = for_this_split(results) if found.repeats else ""
    left = [part for part in results.left_out() if part != results.caveat]
    return (f" For {split}." if split else "") + (f" Trials: {_listed(left)}." if left else "")


def _silent(results: Results, found: Causes) -> Answer:
    """No name stands out: because of chance, or because the trials can't tell."""
    names = _listed([plain_name(name) for name in found.asked])
    facts: dict[str, Any] = {"value": found.value, "dof": found.dof, "asked": found.asked, "limit": NAMED}
    if found.dof < 1:
        text = f"{found.n} trials are too few to tell what {names} does to {found.value}."
    else:
        text = f"Beyond chance no hyperparameter changes {found.value} ({names}; n = {found.n})."
    for group in found.inseparable:
        text += f" {_listed([plain_name(name) for name in group])} changed together and can't be separated."
    if found.untested:
        text += f" Not asked: {'; '.join(f'{plain_name(name)} ({why})' for name, why in found.untested.items())}."
    return Answer(text + _beside(results, found), facts, NONE, found.n)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
