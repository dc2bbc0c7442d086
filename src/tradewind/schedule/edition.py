"""The study that a run folder holds: kept by the first job, extended by a later one, or refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.errors import RunError, StudyError
from tradewind.extension import refusal
from tradewind.folder import RunFolder
from tradewind.schedule.trials import Trials
from tradewind.search.making import sampler_of
from tradewind.study import Study


def extend(folder: RunFolder, trials: Trials) -> None:
    """Keep the study in the folder; refuse one that is neither the same nor an extension."""
    imported = any(folder.journals.iterdir())  # looked at first: a job keeps its study before it opens a journal
    study, edition = trials.study, folder.edition()
    if edition:
        if why := refusal(Study.of_edition(edition), study, trials.unset):
            raise StudyError(
                f"{folder.path} holds another study: {why}; choose another --out, or --fresh to start anew"
            )
    elif imported:
        raise RunError(f"{folder.path}: holds imported results; choose another --out")
    count, exact = trials.count()  # so that who looks at the folder need not import the user's modules to know
    found = {**study.edition([*filter(None, trials.metrics)], trials.directions), "trials": count, "exact": exact}
    if edition and Path(found["file"]).resolve() == folder.study_file.resolve():  # its own copy, as jobs run it
        found |= {name: edition[name] for name in ("folder", "file", "sets")}
    found |= sampler_recorded(study, edition)
    if found != edition:
        folder.keep_edition(study.digest(), found)


def sampler_recorded(study: Study, edition: Mapping[str, Any]) -> dict[str, str]:
    """What proposes the trials of a search that learns, for the run folder; says so where it was another before."""
    sampler = sampler_of(study.search.method)
    if sampler and edition.get("sampler", sampler) != sampler:
        print(
            f"tradewind: search: earlier trials were proposed by {edition['sampler']}, now {sampler} proposes; what "
            "comes differs from what a run under one of them would have tried",
            file=sys.stderr,
        )
    return {"sampler": sampler} if sampler else {}
