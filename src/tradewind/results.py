"""Results: the journals of a run read back as a table."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tradewind.best import Best
from tradewind.binning import bins_of, distinct, drawn, in_bins
from tradewind.column_names import MEASURES, bare, group_of
from tradewind.columns import Array
from tradewind.ended_trials import EndedTrials
from tradewind.errors import Mistake, RunError
from tradewind.measures import Direction, direction_of
from tradewind.quantities import MISSING, label_text
from tradewind.ranking import APART, Ranking, Standing, front, rank, repeats_of
from tradewind.table import Coded, Table, codes_of, tabulate

if TYPE_CHECKING:
    import pandas as pd

OF_A_PACK = ("pack_wall_s", "share_s")
SHOWN = 10  # trials in a notebook
SEEDS = ("seed", "data_seed")


class Results(EndedTrials):
    """Every trial of a run that has ended, each counted once: tables, the objective, the best config."""

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

    def frame(self) -> pd.DataFrame:
        """All trials as a pandas frame."""
        import pandas as pd

        def column(name: str) -> Any:
            values, kinds = self.items(name), set(map(type, self._categories(name)))
            return pd.array(values, dtype="Int64") if kinds == {int} else values  # exact, with or without None

        return pd.DataFrame({"key": self.keys(), **{name: column(name) for name in self.names()}})

    def table(
        self, rows: str, columns: str, by: str | None = None, value: str = "wall_s", stat: str = "median",
        exact: bool = False,
    ) -> Table:  # fmt: skip
        """Rows × columns, one block per value of `by`; any hyperparameter in any place.

        Values that were drawn from a range are put into bins, unless `exact`.
        """
        if not len(self):
            raise RunError(f"{self.folder.path}: no trial has ended yet; `tradewind status` tells how far it is")
        done, value = self.decisive(), self.measure(value)
        if self.is_time(value) and value not in OF_A_PACK:
            self.refuse_packed(value)
        odd = {"disturbed": self.disturbed(), "interrupted": self.interrupted()} if self.is_time(value) else {}
        left_out = {why: int((done & which).sum()) for why, which in odd.items()}
        for which in odd.values():
            done = done & ~which
        dimensions = [name for name in (rows, columns, by) if name]
        data = {name: self.coded(name, done) for name in (*dimensions, value)}
        if not exact:
            named = {name: column for name, column in data.items() if self.named(name) in self.names("config")}
            ranges = self.ranges() if self.folder.edition() else None
            data |= in_bins(named, None if ranges is None else {n for n in named if self.named(n) in ranges})
        over = ", ".join([*bins_of(data), *self.lumped([self.named(name) for name in dimensions], done)])
        note = self._note(value, done, left_out)
        return tabulate(data, rows=rows, columns=columns, by=by, value=value, stat=stat, note=note, over=over)

    def ranges(self) -> set[str]:
        """The hyperparameters that the study draws from a range instead of a list of values."""
        return {self.named(f"config.{name}") for name in drawn(self.folder.edition().get("study", {}))}

    def searched(self) -> bool:
        """Whether a search chose the trials, rather than a grid."""
        search = self.folder.edition().get("study", {}).get("search") or {}
        return bool(search) and search.get("method", "grid") != "grid"

    def lumped(self, shown: Sequence[str], rows: Array) -> list[str]:
        """The hyperparameters that vary within the cells of a table or figure, with how many values."""
        names = [name for name in self.names("config") if bare(self._column(name)) not in SEEDS]
        counts = {name: distinct(self.coded(name, rows)) for name in names if name not in shown}
        return [name + (f" ({count} values)" if count else "") for name, count in counts.items() if count != 1]

    def _distinct(self, name: str, done: Array) -> list[str]:
        column = self.coded(name, done)
        values = column.values if isinstance(column, Coded) else column.tolist()
        used = np.bincount(column.codes[column.codes >= 0], minlength=1) if isinstance(column, Coded) else None
        return sorted({str(x) for k, x in enumerate(values) if used is None or (k < len(used) and used[k])})

    def refuse_packed(self, value: str) -> None:
        """Refuse a time of trials that were trained together."""
        if "packed_with" in self._all.groups and np.any(np.nan_to_num(self.column("packed_with")) > 0):
            raise Mistake(
                f"{value}: some trials were trained in a pack, so none has a time of its own; "
                f"ask for {' or '.join(OF_A_PACK)}, or run the study with purpose time"
            )

    def _note(self, value: str, done: Array, left_out: Mapping[str, int]) -> str:
        shown = ("purpose", "machine") if self.is_time(value) else ()
        parts = [f"{name} {', '.join(self._distinct(name, done))}" for name in shown if name in self._all.groups]
        parts += [f"{count} {why} left out" for why, count in left_out.items() if count]
        return " · ".join([*parts, *self.left_out()])

    def left_out(self) -> list[str]:
        """What must stand below figures: what they rest on unless that is done trials, and which do not count."""
        shown = ("done", "pruned") if self.caveat else ("done",)
        left = {state: count for state, count in self.counts().items() if state not in shown and count}
        return [*([self.caveat] if self.caveat else []), *(f"{n:,} {state} left out" for state, n in left.items())]

    def direction(self, name: str) -> Direction | None:
        """Which way a measure is better: as the study or the import says, else by its name; None: not known."""
        told, column = self._directions, self._names.measure(name) or name
        if found := told.get(name) or told.get(bare(column)):
            return found
        if group_of(column) == "times":
            return "minimize"
        unnamed = told.get("") if self._metrics([])[:1] == [bare(column)] else None
        return unnamed or direction_of(bare(column))

    def _metrics(self, scores: Sequence[str]) -> list[str]:
        """What the study searches for, else one of the scores that were recorded, or are these."""
        if metrics := self._edition.get("metrics"):
            return list(metrics)
        scores = self._bare("scores") or self._bare("last") or scores
        wanted = [name for name in (*filter(None, self._directions), "score", *scores) if name in scores]
        return wanted[:1]

    def _bare(self, group: str) -> list[str]:
        return [bare(column) for column, one in self._all.groups.items() if one == group]

    def objective(self) -> tuple[str, bool | None]:
        """The column of the metric that `best` means, and whether lower is better; None: not known."""
        metric = next(iter(self._metrics([])), "")
        way = self.direction(metric)
        return self.measure(metric), None if way is None else way == "minimize"

    def goals(self, scores: Sequence[str] = ()) -> list[tuple[str, bool]]:
        """Every metric that is searched for and whether lower is better; none where that is not known."""
        unnamed = self._directions.get("") or None
        ways = [(self.measure(name), self.direction(name) or unnamed) for name in self._metrics(scores)]
        return [(name, way == "minimize") for name, way in ways if way] if all(way for _, way in ways) else []

    def lower_is_better(self, name: str) -> bool:
        """Whether lower is better of a measure; refused where nobody has said so."""
        way = self.direction(name)
        if way is None:
            name = bare(self._names.measure(name) or name)
            where = (
                f'set "search": {{"direction": {{"{name}": "minimize"}}}} or "maximize" in the study and run it again'
            )
            if not self._edition:
                where = f"import it again with --minimize {name} or --maximize {name}"
            what = f"is a lower or a higher {name!r} better? Its name does not say"
            raise RunError(f"{self.folder.path}: {what}; {where}")
        return way == "minimize"

    @property
    def planned(self) -> int:
        """How many repeats of each config were planned."""
        return int(self._edition.get("study", {}).get("repeats", 1))

    def ranking(self, metric: str = "") -> Ranking:
        """All configs by the mean of a measure over their repeats, values turned so that higher is better."""
        metric = self.measure(metric) if metric else self.objective()[0]
        column = self._names.meant.get(metric, "")
        if not len(self) or group_of(column) not in MEASURES:
            what = bare(metric) or "any score"
            raise RunError(f"{self.folder.path}: no trial has a value of {what} yet{self._all_failed()}")
        lower, values = self.lower_is_better(metric), self.column(metric).astype(float)
        values = np.where(self.decisive(longest=True) & np.isfinite(values), values, np.nan)
        if np.all(np.isnan(values)):
            raise RunError(f"{self.folder.path}: no trial that is done has a value of {metric}")
        return rank(0.0 - values if lower else values, repeats_of(self._all, self._counted), self.planned)

    def apart(self) -> list[str]:
        """What divides repeats into groups of their own beside the config: precision and code, where several ran."""
        known = [name for name in APART if name in self.names() and len(self)]
        columns = {name: self.coded(name, np.ones(len(self), dtype=bool)) for name in known}
        return [name for name, column in columns.items() if len(codes_of(column)[1]) > 1]

    def best(self) -> Best:
        """The config with the best mean over its repeats; of two metrics it also names the front."""
        names = [self.measure(name) for name in self._metrics([])[:2]] or [""]
        rankings = [self.ranking(name) for name in names]
        top = self._best(names, rankings, int(rankings[0].order[0]))
        if len(names) < 2:
            return top
        return replace(top, front=tuple(self._best(names, rankings, config) for config in front(rankings)))

    def _all_failed(self) -> str:
        """The cause, where every trial that ended failed."""
        counts = self.counts()
        if not counts["failed"] or sum(counts.values()) > counts["failed"]:
            return ""
        reason = max(reasons := self.column("reason").tolist(), key=reasons.count)
        return f": all {counts['failed']} that ended failed, {label_text(reason)}"

    def _best(self, names: list[str], rankings: list[Ranking], config: int) -> Best:
        found = rankings[0]
        lower = [self.lower_is_better(name) for name in names]
        means = [
            0.0 - one.mean[config] if low else one.mean[config] for one, low in zip(rankings, lower, strict=True)
        ]
        record = self._record(self._counted[found.best_row(config)])
        apart = {one: record.get(one) for one in self.apart()}
        spread = float(found.spread[config])
        return Best(
            self.folder, record, names[0], "minimize" if lower[0] else "maximize", float(means[0]),
            int(found.n[config]), None if spread != spread else spread, found.planned, apart,
            {name: float(mean) for name, mean in zip(names, means, strict=True)},
        )  # fmt: skip

    def standing(self, keep: int = 1) -> Standing:
        """Who leads, to be told of further trials; it holds only the best of the complete configs."""
        found = Standing(self.planned, keep, self.goals)
        try:
            rankings = [self.ranking(name) for name, _ in found.goals]
        except RunError:
            return found  # nothing is done yet
        if rankings:
            n, order = rankings[0].n, rankings[0].order
            matters = n < self.planned
            matters[order if len(rankings) > 1 else order[:keep]] = True
            known = ~np.isnan(np.sum([one.values for one in rankings], axis=0))
            apart = [self.items(one) if one in self.names() else [None] * len(self) for one in APART]
            for row in np.flatnonzero(matters[rankings[0].ids] & known).tolist():
                values = [float(one.values[row]) for one in rankings]
                key, trial = self._all.key(self._counted[row]), int(self._trial[self._counted[row]])
                found.put(key, trial, [column[row] for column in apart], values)
        return found


def _shown(value: Any) -> str:
    if value is None or value != value:
        return MISSING
    return f"{value:.6g}" if isinstance(value, float) else html.escape(label_text(value))
