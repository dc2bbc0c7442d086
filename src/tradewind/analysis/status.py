"""How far a run is: what has ended, what is running now, what is left and how long that takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tradewind.claims import owner_gone
from tradewind.errors import Mistake
from tradewind.folder import RunFolder
from tradewind.journal import Record, owner_of, unfinished
from tradewind.progress import epochs_of, progress_of
from tradewind.results import Results


def status(folder: RunFolder) -> dict[str, Any]:
    """Done, running, pruned, stopped, failed, left, and the expected time to the end, as plain values."""
    results = Results.load(folder.path)
    running, jobs = _running(folder)
    epochs = epochs_of(folder)
    counts = results.counts()
    total, exact = _total(folder, len(results))
    ended = sum(counts.values())
    left = max(0, total - ended - len(running))
    far = progress_of(folder, total, ended, results.by_journal(), jobs, time.time(), epochs)
    return {
        "folder": str(folder.path), "name": folder.edition().get("study", {}).get("name", ""),
        "trials": total, "exact": exact, **counts, "running": len(running), "left": left,
        "epochs": {"done": far.done, "expected": far.expected} if epochs else None,
        "eta_s": None if far.left_s is None else round(far.left_s, 1), "jobs": len(jobs), "in_progress": running,
        "duplicates": results.duplicates, "skipped_lines": results.skipped_lines, **_best(results),
        "caveat": results.caveat,
    }  # fmt: skip


def _total(folder: RunFolder, ended: int) -> tuple[int, bool]:
    edition = folder.edition()
    if not edition:
        return ended, True
    known = isinstance(edition.get("trials"), int)
    return (edition["trials"], bool(edition.get("exact"))) if known else (ended, False)


def _running(folder: RunFolder) -> tuple[list[Record], set[str]]:
    found: dict[str, Record] = {}
    jobs: set[str] = set()
    for path in folder.files(folder.journals, "jsonl"):
        if owner_gone(folder.owner(owner_of(path))):
            continue
        jobs.add(owner_of(path))
        found |= {line["key"]: line for line in unfinished(path)}
    return list(found.values()), jobs


def typical_s(results: Results) -> float:
    """The median time from start to end of the trials that have ended."""
    return float(np.nanmedian(results.column("finished") - results.column("started")))


def _best(results: Results) -> dict[str, Any]:
    """The best config, or why there is none although trials are done."""
    try:
        best = results.best()
    except Mistake as why:
        return {"best": None, "no_best": str(why).partition(": ")[2] if results.decisive().any() else ""}
    return {"best": {**best.plain(), "planned": best.planned}, "no_best": ""}


def whom(holder: Mapping[str, Any]) -> str:
    """Who is waited for: a trial that is timed, or one that a timed trial waits for."""
    kind = "a timed trial" if holder.get("purpose") == "time" else "a trial"
    return f"{kind} of {holder.get('run')} (process {holder.get('pid')}) on the same cores or GPUs"
