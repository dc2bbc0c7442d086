"""The trials of a run that have ended, each counted once: their columns, and their whole records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from tradewind.column_names import Names
from tradewind.columns import Array, Columns
from tradewind.counting import counted, disturbed, interrupted, positions
from tradewind.errors import Mistake, RunError, nearest
from tradewind.folder import RunFolder
from tradewind.journal import Reading, Record
from tradewind.measures import Direction
from tradewind.pack import FINAL
from tradewind.reading import read
from tradewind.table import Coded


class EndedTrials:
    """Every trial of a run that has ended, each counted once."""

    def __init__(self, folder: RunFolder, columns: Columns) -> None:
        self.folder = folder
        self._all = columns
        self._names = Names.of(columns.groups)
        self._edition = folder.edition()
        self._directions: dict[str, Direction] = (self._edition or folder.imported()).get("directions", {})
        self._trial = positions(folder, columns)
        strange = self._of_another_study()
        self._counted, self.duplicates = counted(columns, self._trial, strange)
        self.skipped_lines = columns.bad + columns.torn + int(strange.sum())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a run folder; what an earlier call has read comes from a cache."""
        folder = RunFolder.open(path)
        return cls(folder, read(folder))

    def _of_another_study(self) -> Array:
        """Which records name an edition of a study that never ran here."""
        if "edition" not in self._all.groups or not self._edition:
            return np.zeros(len(self._all), dtype=bool)
        editions = self._all.column("edition").coded()
        known = self.folder.known_editions()
        strange = [edition is not None and edition not in known for edition in editions.categories or []]
        return np.array([*strange, False])[editions.values]

    def __len__(self) -> int:
        return len(self._counted)

    def names(self, *groups: str) -> list[str]:
        """The columns, or those of some groups: record, config, times, scores, last."""
        return [
            self._names.shown[column] for column, group in self._all.groups.items() if not groups or group in groups
        ]

    def full_names(self) -> list[str]:
        """The columns by their full names, as `config.epochs`."""
        return list(self._all.groups)

    def named(self, name: str) -> str:
        """The name under which a column is shown, asked for by that or by its full name; any other as it is."""
        return self._names.shown.get(self._names.meant.get(name, ""), name)

    def measure(self, name: str) -> str:
        """The same where a measure is asked for, whose the bare name then is."""
        return self._names.shown.get(self._names.measure(name) or "", name)

    def _column(self, name: str) -> str:
        if name not in self._names.meant:
            raise Mistake(f"{self.folder.path}: no column {name!r}; {nearest(name, self.names())}")
        return self._names.meant[name]

    def column(self, name: str) -> Array:
        """One column: floats for numbers (NaN: none), otherwise objects."""
        column = self._column(name)
        values = self._trial if column == "trial" else self._all.column(column).decoded()
        return np.asarray(values[self._counted])

    def items(self, name: str) -> list[Any]:
        """One column as plain values, None where there is none."""
        column = self._column(name)
        everything = self._trial.astype(int).tolist() if column == "trial" else self._all.column(column).items()
        return [everything[row] for row in self._counted]

    def keys(self) -> list[str]:
        """The keys of the trials."""
        return [self._all.key(row) for row in self._counted]

    def final_keys(self) -> set[str]:
        """The keys of the trials that need not run again."""
        states = self.column("state") if len(self) else np.array([])
        return {self._all.key(row) for row, state in zip(self._counted, states, strict=True) if state in FINAL}

    def ended(self, key: str) -> bool:
        """Whether a trial has ended."""
        return bool(np.any(self._all.keys[~self._all.set_aside(), 0] == int(key[:16], 16)))

    def set_aside(self) -> set[tuple[str, float]]:
        """The records that count no more since `--rerun`, by key and when they were finished."""
        return self._all.aside

    def ends(self) -> dict[str, int]:
        """How far each journal was read."""
        return dict(self._all.ends)

    def by_journal(self) -> dict[str, int]:
        """How many records each journal has."""
        return self._all.by_journal()

    def attempts(self) -> dict[str, int]:
        """How often each trial that only failed has been tried."""
        if not len(self._all):
            return {}
        state = self._all.column("state")
        failed = (state.categories or []).index("failed") if "failed" in (state.categories or []) else -2
        tries: dict[str, int] = {}
        for row in np.flatnonzero((state.values == failed) & ~self._all.set_aside()):
            key = self._all.key(int(row))
            tries[key] = tries.get(key, 0) + 1
        return tries

    def counts(self) -> dict[str, int]:
        """How many trials are done, pruned, stopped and failed."""
        states = self.column("state") if len(self) else np.array([], dtype=object)
        return {state: int(np.sum(states == state)) for state in (*FINAL, "failed")}

    def decisive(self, longest: bool = False) -> Array:
        """The trials that answers rest on: those that are done or, where none is, those that a search pruned.

        `longest`: of pruned ones only those that were trained for the most epochs, whose scores compare.
        """
        if not self.caveat:
            return np.asarray(self.column("state") == "done") if len(self) else np.empty(0, dtype=bool)
        pruned = np.asarray(self.column("state") == "pruned")
        if not longest or "epochs_run" not in self.names():
            return pruned
        epochs = np.where(pruned, np.nan_to_num(self.column("epochs_run")), -1)
        return np.asarray(epochs == epochs.max())

    @property
    def caveat(self) -> str:
        """What must be said with every answer that rests on pruned trials, or nothing."""
        return caveat(self.counts())

    def _categories(self, name: str) -> list[Any]:
        """The values of a column that is no plain numbers."""
        return self._all.column(self._column(name)).categories or []

    def coded(self, name: str, done: Array) -> Array | Coded:
        """A column of some trials as codes into its values, or as numbers: never a million objects."""
        column = self._all.column(self._column(name))
        if column.categories is None or self._column(name) == "trial":
            return np.asarray(self.column(name)[done])
        return Coded(column.values[self._counted][done], column.categories)

    def is_time(self, name: str) -> bool:
        """Whether a name stands for a time."""
        return self._all.groups.get(self._names.meant.get(name, "")) == "times"

    def disturbed(self) -> Array:
        """Which trials were disturbed so much while they were timed that their times decide nothing."""
        return disturbed(self._all)[self._counted]

    def interrupted(self) -> Array:
        """Which functions and commands went on after they had been cut off: their times are sums, with gaps."""
        return interrupted(self._all)[self._counted]

    def records(self) -> Iterator[Record]:
        """The whole records, read from the journals again, in order of trial."""
        for row in self._counted:
            yield self._record(row)

    def record(self, trial: int) -> Record:
        """The record of one trial."""
        found = np.flatnonzero(self.column("trial") == trial) if len(self) else np.array([])
        if not len(found):
            raise RunError(f"{self.folder.path}: trial {trial} has no result; `tradewind status` tells what has")
        return self._record(self._counted[found[-1]])

    def _record(self, row: int) -> Record:
        return {**self._all.record(row), "trial": int(self._trial[row])}

    def curve(self, key: str) -> list[dict[str, float]]:
        """What a trial reached after each epoch."""
        for path in reversed(self.folder.files(self.folder.curves, "jsonl")):
            for _, line in Reading(path).lines():
                if line["key"] == key:
                    found: list[dict[str, float]] = line["curve"]
                    return found
        return []


def caveat(counts: Mapping[str, int]) -> str:
    """What must be said with every answer where no trial is done, but some were pruned; or nothing."""
    if counts["done"] or not (pruned := counts["pruned"]):
        return ""
    return f"no trial is done: last scores of {pruned:,} pruned trial{'s' * (pruned > 1)}"
