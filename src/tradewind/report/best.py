"""The best config in words, as `best`, `run`, the report and the live page say it."""

from __future__ import annotations

from typing import Any

from tradewind.best import Best
from tradewind.column_names import bare
from tradewind.quantities import label_text, number, quantity, value_text

MOST_FRONT = 20


def better_text(lower: bool) -> str:
    """Which way is better."""
    return f"{'lower' if lower else 'higher'} is better"


def mean_text(metric: str, score: float, spread: float | None, n: int, planned: int, lower: bool) -> str:
    """A mean with its spread, over how many repeats, and which way is better."""
    about = f"mean of n = {n} repeats" if n > 1 else "n = 1"
    if n < planned:
        about += f", provisional: {n} of {planned} repeats"
    margin = "" if spread is None else f" ± {number(spread)}"
    return label_text(f"{bare(metric)} {number(score)}{margin} ({about}, {better_text(lower)})")


def best_page(best: Best) -> str:
    """The answer of `tradewind best`."""
    if best.front:
        return _front(best)
    record, lower = best.record, best.direction == "minimize"
    first = mean_text(best.metric, best.score, best.spread, best.n, best.planned, lower)
    scores = "  ".join(
        f"{name} {quantity(name, value)}" for name, value in record["scores"].items() if value is not None
    )
    single = f": {bare(best.metric)} {number(best.value)}, the best of its repeats" if best.n > 1 else ""
    lines = [first + early_text(best), f"  config  {pairs_text(varied(best))}"]
    lines += [f"  {name:<9} {label_text(value)}" for name, value in best.apart.items()]
    lines += [
        label_text(f"  trial   {record['trial']}{single}"),
        label_text(f"  scores  {scores or 'none'}"),
        f"  times   {times_text(record)}",
    ]
    return "\n".join(lines)


def early_text(best: Best) -> str:
    """That its trials never came to their end, where that is so."""
    return label_text(f" ({best.record['reason']}; no trial is done)") if best.record["state"] == "pruned" else ""


def _front(best: Best) -> str:
    names = " and ".join(bare(name) for name in best.scores)
    many = len(best.front)
    lines = [f"no single best of {names}: {many:,} Pareto-optimal config{'s' * (many > 1)}"]
    for one in best.front[:MOST_FRONT]:
        scores = "  ".join(f"{bare(name)} {number(value)}" for name, value in one.scores.items())
        whose = f"n = {one.n}, trial {one.record['trial']}{', provisional' if one.provisional else ''}"
        lines.append(f"  {label_text(scores)}  ({whose})  {pairs_text(one.params)}")
    if many > MOST_FRONT:
        lines.append(f"  and {many - MOST_FRONT:,} more: --json has all")
    return "\n".join(lines)


def varied(best: Best) -> dict[str, Any]:
    """The part of the config that the study itself sets; all of it where results were imported."""
    study = best.folder.edition().get("study", {})
    return {**best.params, **{name: best.config[name] for name in study.get("fixed", {}) if name in best.config}}


def pairs_text(values: dict[str, Any]) -> str:
    """Names and values in a line."""
    return " ".join(f"{label_text(name)}={value_text(value)}" for name, value in values.items())


def times_text(record: dict[str, Any]) -> str:
    """The times of a trial, for what purpose and where."""
    scalars = {name: value for name, value in record["times"].items() if isinstance(value, (int, float))}
    text = "  ".join(f"{name} {quantity(name, value)}" for name, value in scalars.items() if value)
    return label_text(
        f"{text}  (purpose {record.get('purpose', 'unknown')}, {record.get('machine', 'unknown machine')})"
    )
