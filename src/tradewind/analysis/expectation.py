"""What a study will be: how many trials, over which values, and how long they may take."""

from __future__ import annotations

from typing import Any

from tradewind import machine
from tradewind.analysis.status import typical_s
from tradewind.errors import RunError
from tradewind.folder import default_path
from tradewind.results import Results
from tradewind.run import choose_workers
from tradewind.schedule.trials import Trials


def expectation(trials: Trials, workers: int | None) -> dict[str, Any]:
    """Counts and, where trials of this study have run before, the expected time of the rest."""
    study = trials.study
    count, exact = trials.count()
    many = choose_workers(trials, workers)
    found: dict[str, Any] = {
        "name": study.name, "workload": study.workload or study.command, "purpose": study.purpose,
        "combinations": trials.space.size, "repeats": study.repeats, "trials": count, "exact": exact,
        "space": {name: len(values) for name, values in trials.space.dimensions.items()},
        "workers": many, "machine": machine.name(), "expected_s": None, "done": 0,
    }  # fmt: skip
    try:
        results = Results.load(default_path(study.name))
    except RunError:
        return found
    found["done"] = results.counts()["done"]
    if found["done"]:
        found["expected_s"] = round(typical_s(results) * max(0, count - len(results)) / many, 1)
    return found
