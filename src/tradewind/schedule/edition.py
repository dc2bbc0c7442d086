"""The study that a run folder holds: kept by the first job, extended by a later one, or refused."""

from __future__ import annotations

from pathlib import Path

from tradewind.errors import RunError, StudyError
from tradewind.extension import refusal, sampler_recorded
from tradewind.folder import RunFolder
from tradewind.schedule.trials import Trials
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
