"""The best config of a run and, second, its best single trial with the trained network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.column_names import bare, measured
from tradewind.errors import RunError
from tradewind.folder import RunFolder
from tradewind.journal import Record
from tradewind.measures import Direction
from tradewind.pack import Config
from tradewind.space import names_of

if TYPE_CHECKING:
    from torch import nn

Rebuild = Callable[[RunFolder, Record], "nn.Module"]
_rebuild: list[Rebuild] = []


def rebuild_with(rebuild: Rebuild) -> None:
    """Tell how a trained network is made again; workloads stand above and say so when imported."""
    _rebuild[:] = [rebuild]


@dataclass(frozen=True)
class Best:
    """The config with the best mean over its repeats, and the record of the best of them."""

    folder: RunFolder
    record: Record
    metric: str
    direction: Direction
    score: float  # the mean over
    n: int  # repeats
    spread: float | None  # their standard deviation; None for one
    planned: int  # repeats
    apart: Mapping[str, Any]  # precision or code, where the run has several
    scores: Mapping[str, float]  # the mean of each metric that is searched for
    front: tuple[Best, ...] = ()  # of two metrics: the configs that no other beats in both

    @property
    def config(self) -> Config:
        """The whole config."""
        return dict(self.record["config"])

    @property
    def params(self) -> Config:
        """The part of the config that the study searches; all of it where results were imported."""
        study = self.folder.edition().get("study")
        names = self.config if study is None else names_of(study.get("space", {}))
        return {name: self.config[name] for name in names if name in self.config}

    @property
    def provisional(self) -> bool:
        """Whether fewer repeats are done than were planned."""
        return self.n < self.planned

    @property
    def value(self) -> float:
        """What the best single trial reached in the metric."""
        found = measured(self.record, self.metric)
        assert found is not None, "a trial without a value is not ranked"
        return found

    def plain(self) -> dict[str, Any]:
        """All of it as JSON holds it."""
        found = {
            "metric": bare(self.metric), "direction": self.direction, "config": self.config, "params": self.params,
            "score": self.score, "n": self.n, "spread": self.spread, "provisional": self.provisional,
            "trial": self.record["trial"], **self.apart,
        }  # fmt: skip
        front = [{**one.plain(), "scores": {bare(k): v for k, v in one.scores.items()}} for one in self.front]
        return {**found, "front": front} if front else found

    @property
    def weights(self) -> Path:
        """The file of its trained weights."""
        path = self.folder.model(self.record["key"])
        if not path.exists():
            raise RunError(f"{self.folder.path}: trial {self.record['trial']} left no weights; only networks do")
        return path

    def model(self) -> nn.Module:
        """The trained network, ready for use."""
        if not _rebuild:
            import_module("tradewind.models")  # says how; it stands above, so it is called by name
        return _rebuild[0](self.folder, self.record)
