"""A trial that is paused and goes on is trained in segments; its record is that of all of them."""

from __future__ import annotations

from typing import Any

from tradewind.journal import Record
from tradewind.pack import Outcome

OF_EACH = ("prepare_s", "compile_s", "warmup_s", "data_s", "test_s", "pack_wall_s", "share_s", "lost_s")
Curve = list[dict[str, float]]


def joined(before: Record, earlier: Curve, outcome: Outcome) -> Outcome:
    """The outcome of a segment with that of those before it.

    A network brings its epochs along in its checkpoint, with what they took; a function knows only its own.
    """
    was, times = before["times"], dict(outcome.times)
    times |= {name: was.get(name, 0.0) + times.get(name, 0.0) for name in OF_EACH if name in was or name in times}
    curve = outcome.curve
    if "epoch_s" in times:
        times["wall_s"] = times["data_s"] + times["train_s"] + times["test_s"]
    else:
        first = min((row["epoch"] for row in curve), default=0.0)
        kept = [row for row in earlier if not curve or row["epoch"] < first]
        curve = kept + [{**row, "elapsed_s": row["elapsed_s"] + was["train_s"]} for row in curve]
        for name in ("train_s", "wall_s", "time_to_target_s"):
            if name in times:
                times[name] += was["train_s"] if name == "time_to_target_s" else was[name]
    facts: dict[str, Any] = dict(outcome.facts)
    for name in ("packed_with", "peak_memory_bytes", "peak_gpu_memory_bytes"):
        if name in before or name in facts:
            facts[name] = max(before.get(name) or 0, facts.get(name) or 0)
    facts["waited_s"] = before.get("waited_s", 0.0) + facts.get("waited_s", 0.0)
    if "disturbed" in facts:
        shares = before.get("disturbed"), facts["disturbed"]
        facts["disturbed"] = None if None in shares else max(shares)
    if interruptions := before.get("interruptions", 0) + facts.get("interruptions", 0):
        facts["interruptions"] = interruptions
    if curve:
        facts["epochs_run"] = int(curve[-1]["epoch"])
    last = outcome.last or before["last"]
    return Outcome(
        outcome.key, outcome.state, outcome.reason, outcome.error, times, outcome.scores, last, facts, curve
    )


def pruned(before: Record) -> Record:
    """The record of a paused trial that does not go on."""
    return {**before, "state": "pruned", "reason": f"pruned after epoch {before['epochs_run']}"}
