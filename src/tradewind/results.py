"""Results: the journals of a run read back as a table."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tradewind.column_names import Names, bare, measured
from tradewind.columns import Array, Columns
from tradewind.counting import counted, disturbed, positions
from tradewind.errors import Mistake, RunError, nearest
from tradewind.folder import RunFolder
from tradewind.journal import Reading, Record
from tradewind.measures import lower_is_better
from tradewind.pack import FINAL
from tradewind.reading import read
from tradewind.table import MISSING, Coded, Table, label_text, tabulate

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

OF_A_PACK = ("pack_wall_s", "share_s")
SHOWN = 10  # trials in a notebook

Rebuild = Callable[[RunFolder, Record], "nn.Module"]
_rebuild: list[Rebuild] = []


def rebuild_with(rebuild: Rebuild) -> None:
    """Tell how a trained network is made again; workloads stand above and say so when imported."""
    _rebuild[:] = [rebuild]


@dataclass(frozen=True)
class Best:
    """The best trial of a run."""

    folder: RunFolder
    record: Record
    metric: str

    @property
    def value(self) -> float:
        """What it reached in the metric."""
        found = measured(self.record, self.metric)
        assert found is not None, "the best trial is the best in this metric"
        return found

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


class Results:
    """Every trial of a run that has ended, each counted once."""

    def __init__(self, folder: RunFolder, columns: Columns) -> None:
        self.folder = folder
        self._all = columns
        self._names = Names.of(columns.groups)
        self._trial = positions(folder, columns)
        self._counted, self.duplicates = counted(columns, self._trial)
        self.skipped_lines = columns.bad + columns.torn

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read a run folder; what an earlier call has read comes from a cache."""
        folder = RunFolder.open(path)
        return cls(folder, read(folder))

    def __len__(self) -> int:
        return len(self._counted)

    def _repr_html_(self) -> str:
        """What a notebook shows: how many trials ended how, and the first of them."""
        counts = ", ".join(f"{count:,} {state}" for state, count in self.counts().items())
        title = f"{self.folder.path}: {counts}; {self.duplicates:,} duplicates, {self.skipped_lines:,} damaged lines"
        names = ["trial", "state", *self.names("config", "times", "scores")] if len(self) else []
        columns = [self.column(name)[:SHOWN].tolist() for name in names]
        lines = [[_shown(value) for value in line] for line in zip(*columns, strict=True)]
        rest = f"<p>and {len(self) - SHOWN:,} more</p>" if len(self) > SHOWN else ""
        body = "".join(f"<tr><td>{'</td><td>'.join(line)}</td></tr>" for line in lines)
        head = "</th><th>".join(map(html.escape, names))
        return f"<p>{html.escape(title)}</p><table><tr><th>{head}</th></tr>{body}</table>{rest}"

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

    def frame(self) -> pd.DataFrame:
        """All trials as a pandas frame."""
        import pandas as pd

        return pd.DataFrame({"key": self.keys(), **{name: self.items(name) for name in self.names()}})

    def table(
        self, rows: str, columns: str, by: str | None = None, value: str = "wall_s", stat: str = "median"
    ) -> Table:
        """Rows × columns, one block per value of `by`; any hyperparameter in any place."""
        if not len(self):
            raise RunError(f"{self.folder.path}: no trial has ended yet; `tradewind status` tells how far it is")
        done, value = self.decisive(), self.measure(value)
        if self.is_time(value) and value not in OF_A_PACK:
            self.refuse_packed(value)
        left_out = done & self.disturbed() if self.is_time(value) else np.zeros_like(done)
        done = done & ~left_out
        names = [name for name in (rows, columns, by, value) if name]
        data = {name: self.coded(name, done) for name in names}
        note = self._note(value, done, int(left_out.sum()))
        return tabulate(data, rows=rows, columns=columns, by=by, value=value, stat=stat, note=note)

    def coded(self, name: str, done: Array) -> Array | Coded:
        """A column of some trials as codes into its values, or as numbers: never a million objects."""
        column = self._all.column(self._column(name))
        if column.categories is None or self._column(name) == "trial":
            return np.asarray(self.column(name)[done])
        return Coded(column.values[self._counted][done], column.categories)

    def _distinct(self, name: str, done: Array) -> list[str]:
        column = self.coded(name, done)
        values = column.values if isinstance(column, Coded) else column.tolist()
        used = np.bincount(column.codes[column.codes >= 0], minlength=1) if isinstance(column, Coded) else None
        return sorted({str(x) for k, x in enumerate(values) if used is None or (k < len(used) and used[k])})

    def is_time(self, name: str) -> bool:
        """Whether a name stands for a time."""
        return self._all.groups.get(self._names.meant.get(name, "")) == "times"

    def disturbed(self) -> Array:
        """Which trials were disturbed so much while they were timed that their times decide nothing."""
        return disturbed(self._all)[self._counted]

    def refuse_packed(self, value: str) -> None:
        """Refuse a time of trials that were trained together."""
        if "packed_with" in self._all.groups and np.any(np.nan_to_num(self.column("packed_with")) > 0):
            raise Mistake(
                f"{value}: some trials were trained in a pack, so none has a time of its own; "
                f"ask for {' or '.join(OF_A_PACK)}, or run the study with purpose time"
            )

    def _note(self, value: str, done: Array, disturbed: int) -> str:
        shown = ("purpose", "machine") if self.is_time(value) else ()
        parts = [f"{name} {', '.join(self._distinct(name, done))}" for name in shown if name in self._all.groups]
        parts += [f"{disturbed} disturbed left out"] if disturbed else []
        return " · ".join([*parts, *self.left_out()])

    def left_out(self) -> list[str]:
        """What must stand below figures: what they rest on unless that is done trials, and which do not count."""
        shown = ("done", "pruned") if self.caveat else ("done",)
        left = {state: count for state, count in self.counts().items() if state not in shown and count}
        return [*([self.caveat] if self.caveat else []), *(f"{n:,} {state} left out" for state, n in left.items())]

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
        for path in sorted(self.folder.curves.glob("*.jsonl"), reverse=True):
            for _, line in Reading(path).lines():
                if line["key"] == key:
                    found: list[dict[str, float]] = line["curve"]
                    return found
        return []

    def objective(self) -> tuple[str, bool]:
        """The metric that `best` means, and whether lower is better."""
        edition = self.folder.edition()
        metric, direction = edition.get("metric", ""), edition.get("direction", "")
        if not metric:
            scores = self._bare("scores") or self._bare("last")
            metric = "score" if "score" in scores else scores[0] if scores else ""
        return self.measure(metric), direction == "minimize" if direction else lower_is_better(metric)

    def _bare(self, group: str) -> list[str]:
        return [bare(column) for column, one in self._all.groups.items() if one == group]

    def best(self) -> Best:
        """The best trial that ran to its end; where none did, the best of the pruned ones trained longest."""
        metric, lower = self.objective()
        if not len(self) or metric not in self._names.meant:
            raise RunError(f"{self.folder.path}: no trial has a value of {metric or 'any score'} yet")
        values = self.column(metric).astype(float)
        values = np.where(self.decisive(longest=True), values, np.nan)
        if np.all(np.isnan(values)):
            raise RunError(f"{self.folder.path}: no trial that is done has a value of {metric}")
        row = np.nanargmin(values) if lower else np.nanargmax(values)
        return Best(self.folder, self._record(self._counted[row]), metric)


def caveat(counts: Mapping[str, int]) -> str:
    """What must be said with every answer where no trial is done, but some were pruned; or nothing."""
    if counts["done"] or not (pruned := counts["pruned"]):
        return ""
    return f"no trial is done: last scores of {pruned:,} pruned trial{'s' * (pruned > 1)}"


def _shown(value: Any) -> str:
    if value is None or value != value:
        return MISSING
    return f"{value:.6g}" if isinstance(value, float) else html.escape(label_text(value))
