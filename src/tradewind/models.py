"""Trained networks: made again from their weights, and kept only while they are the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.column_names import measured
from tradewind.errors import RunError
from tradewind.folder import RunFolder
from tradewind.journal import Record
from tradewind.results import Results, rebuild_with
from tradewind.study import Study
from tradewind.workloads import find, make

if TYPE_CHECKING:
    from torch import nn


def rebuild(folder: RunFolder, record: Record) -> nn.Module:
    """The trained network of a record, ready for use."""
    from safetensors.torch import load_file

    path = folder.model(record["key"])
    if not path.exists():
        raise RunError(f"{folder.path}: trial {record['trial']} left no weights; only the best network does")
    edition = folder.edition()
    study = Study.of_edition(edition)
    config = {**record["config"], "seed": record["seed"], "data_seed": record["data_seed"]}
    workload = make(find(study.workload, study.folder), study.data)
    try:
        model = workload.model(config)
    except Exception:  # it may need what data() leaves in the workload, which takes longer
        workload.data(config)
        model = workload.model(config)
    tensors = load_file(path)
    model = model.to(next((t.dtype for t in tensors.values() if t.is_floating_point()), None))
    model.load_state_dict(tensors)
    return model.eval()


rebuild_with(rebuild)


class BestWeights:
    """Deletes the weights of trials that are beaten; those of the best one stay."""

    def __init__(self, folder: RunFolder, results: Results) -> None:
        self._folder = folder
        self._best: tuple[float, int] | None = None  # of equal ones the first trial counts, as in Results.best
        self._key = ""
        self._metric, self._lower = results.objective()
        try:
            best = results.best()
        except RunError:
            return  # nothing done yet
        self._best, self._key = self._rank(best.value, best.record), best.record["key"]
        for path in folder.models.glob("*.safetensors"):  # left by a job that was killed
            if path.stem != self._key and results.ended(path.stem):
                path.unlink(missing_ok=True)

    def consider(self, record: Record) -> None:
        """Keep or delete the weights of a trial that has just ended."""
        if record["state"] != "done":
            return
        value = measured(record, self._metric)
        loser = record["key"]
        if value is not None and value == value:
            rank = self._rank(value, record)
            if self._best is None or rank < self._best:
                self._best, self._key, loser = rank, record["key"], self._key
        if loser:
            self._folder.model(loser).unlink(missing_ok=True)

    def _rank(self, value: float, record: Record) -> tuple[float, int]:
        return (value if self._lower else -value), record["trial"]
