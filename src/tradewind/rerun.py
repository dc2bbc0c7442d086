"""`--rerun`: records that count no more, so that their trials run again; they stay in their journals."""

from __future__ import annotations

import time

import numpy as np

from tradewind.errors import Mistake
from tradewind.folder import RunFolder
from tradewind.journal import Journal
from tradewind.results import Results

ALLOWED = "allowed: disturbed, changed, or numbers of trials such as 3,7"


def set_aside_again(journal: Journal, which: str) -> Results:
    """The results without those that are to run again, which a line of the journal names."""
    results = Results.load(journal.folder.path)
    rows = chosen(results, which) if which else []
    if not rows:
        return results
    finished, keys = results.column("finished"), results.keys()
    records = [[keys[row], float(finished[row])] for row in rows]
    journal.set_aside({"records": records, "why": which, "at": time.time()})
    journal.settle()
    for row in rows:
        _clear_path(journal.folder, keys[row])
    return Results.load(journal.folder.path)


def chosen(results: Results, which: str) -> list[int]:
    """The rows of the results that are to run again."""
    if which == "disturbed":
        return [int(row) for row in np.flatnonzero(results.disturbed())]
    if which == "changed":
        return _changed(results)
    words = which.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise Mistake(f"--rerun {which}: {ALLOWED}")
    trials = results.column("trial") if len(results) else np.array([])
    rows = []
    for number in map(int, words):
        there = np.flatnonzero(trials == number)
        if not len(there):
            raise Mistake(f"--rerun {which}: {results.folder.path}: trial {number} has no result to set aside")
        rows.append(int(there[-1]))
    return rows


def _changed(results: Results) -> list[int]:
    """Those that ran under another code than the latest one."""
    if not len(results):
        return []
    code, latest = results.items("code"), int(np.argmax(results.column("finished")))
    return [row for row, one in enumerate(code) if one != code[latest]]


def _clear_path(folder: RunFolder, key: str) -> None:
    """What a function has left in its folder would let it go on where it should begin."""
    own = folder.trial(key)
    if own.exists():
        own.rename(own.with_name(f"{key}.before-{time.strftime('%Y%m%d-%H%M%S')}"))
    folder.checkpoint(key).unlink(missing_ok=True)
