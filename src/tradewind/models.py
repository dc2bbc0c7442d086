"""Trained networks: made again from their weights, and kept only while they are the best."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.best import rebuild_with
from tradewind.errors import RunError, WorkloadError
from tradewind.folder import RunFolder
from tradewind.journal import Record
from tradewind.results import Results
from tradewind.study import Keep, Study
from tradewind.workloads import find, make

if TYPE_CHECKING:
    from torch import nn


def rebuild(folder: RunFolder, record: Record) -> nn.Module:
    """The trained network of a record, ready for use."""
    from safetensors.torch import load_file

    path = folder.model(record["key"])
    if not path.exists():
        raise RunError(
            f"{folder.path}: trial {record['trial']} left no weights: they are kept of the best config alone; "
            'more with "keep": "all" or a number in the study'
        )
    edition = folder.edition()
    study = Study.of_edition(edition)
    config = {**record["config"], "seed": record["seed"], "data_seed": record["data_seed"]}
    workload = make(_found_here(folder, study.workload), study.data)
    try:
        model = workload.model(config)
    except Exception:  # it may need what data() leaves in the workload, which takes longer
        workload.data(config)
        model = workload.model(config)
    tensors = load_file(path)
    model = model.to(next((t.dtype for t in tensors.values() if t.is_floating_point()), None))
    model.load_state_dict(tensors)
    return model.eval()


def _found_here(folder: RunFolder, reference: str) -> Any:
    """A workload as the caller's own folder and installed packages have it; a run folder leads nowhere."""
    here, file = Path.cwd(), Path(reference.rpartition(":")[0])
    near = file.suffix != ".py" or {str(file.parent), str(file.parent.resolve())} & {".", str(here), *sys.path}
    try:
        if near:
            return find(reference, here)
        why = "its file lies elsewhere"
    except WorkloadError as error:
        why = str(error)
    raise WorkloadError(
        f"{folder.path}: workload {reference!r} is not found from {here} ({why}); "
        "change to the folder that holds it, and ask again"
    )


rebuild_with(rebuild)


class BestWeights:
    """Keeps the weights of a config as long as it can be the best, those of its best repeat; deletes all others."""

    def __init__(self, folder: RunFolder, results: Results, keep: Keep) -> None:
        self._folder = folder
        self._standing = None if keep == "all" else results.standing(1 if keep == "best" else keep)
        if self._standing and self._standing.goals:
            kept = self._standing.kept()
            for path in folder.models.glob("*.safetensors"):  # left by a job that was killed
                if path.stem not in kept and results.ended(path.stem):
                    path.unlink(missing_ok=True)

    def consider(self, record: Record) -> None:
        """Delete the weights that need not be kept now that a trial has ended."""
        if self._standing and record["state"] == "done":
            for key in self._standing.add(record):
                self._folder.model(key).unlink(missing_ok=True)
