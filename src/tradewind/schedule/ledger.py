"""The ledger of a search: what was asked for and what became of it, as the journals of all jobs tell."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from statistics import fmean

from tradewind.column_names import measured
from tradewind.errors import StudyError, nearest
from tradewind.folder import RunFolder
from tradewind.journal import Reading, Record, owner_of
from tradewind.pack import FINAL, Config, Outcome, Trial
from tradewind.schedule.segments import Curve, joined
from tradewind.schedule.trials import Trials
from tradewind.search import Proposal, Told, ToldState

Stage = tuple[int, int | None]  # a number, and until which epoch


@dataclass
class Fate:
    """What is known of one trial."""

    ended: Record | None = None  # final, or failed so often that it is not tried again
    failures: int = 0
    pauses: dict[int, tuple[Record, Curve]] = field(default_factory=dict)  # by epoch

    def pause(self) -> tuple[Record, Curve] | None:
        """The last one."""
        return self.pauses[max(self.pauses)] if self.pauses else None


class Ledger:
    """Knows the trials of every number and their fates; tells nobody by itself."""

    def __init__(
        self, trials: Trials, folder: RunFolder, owner: str, aside: Collection[tuple[str, float]] = ()
    ) -> None:
        self._trials, self._folder, self._owner, self._aside = trials, folder, owner, aside
        self._readings: dict[str, Reading] = {}
        self._configs: dict[int, list[Trial]] = {}
        self._fates: dict[str, Fate] = {}
        self._tries = trials.study.retries + 1
        self.values: dict[int, Config] = {}
        self.asked: set[Stage] = set()
        self.numbers: dict[str, list[int]] = {}  # by key: a search may propose a config twice

    def lines(self) -> Iterator[Record]:
        """What other jobs have added since, in the order in which it happened; entered as it is drawn."""
        found: list[tuple[float, Record]] = []
        for path in self._folder.files(self._folder.journals, "jsonl"):
            if owner_of(path) == self._owner:
                continue
            at = 0.0
            for _, line in self._readings.setdefault(path.name, Reading(path)).lines():
                if line["kind"] == "finished" and (line["key"], line["finished"]) in self._aside:
                    continue
                if line["kind"] in ("asked", "finished") or "rung" in line:
                    # clocks of hosts differ, lines of a file have their order
                    at = max(at, line["finished"] if line["kind"] == "finished" else line["at"])
                    found.append((at, line))
        for _, line in sorted(found, key=lambda pair: pair[0]):
            if line["kind"] == "asked":
                self.begin(Proposal(line["number"], line["values"], line["until"]))
            else:
                self.add(line.get("rung") or line, line.get("curve") or [])
            yield line

    def begin(self, proposal: Proposal) -> None:
        """A config was asked for, or asked to go on."""
        self.asked.add((proposal.number, proposal.until))
        self.know(proposal.number, proposal.values)

    def know(self, number: int, values: Config) -> None:
        """A number stands for these values."""
        if self.values.get(number) != values:
            self.values[number] = values
            for trial in self._configs.pop(number, []):
                self.numbers[trial.key].remove(number)
            for trial in self.trials(number):
                self.numbers.setdefault(trial.key, []).append(number)

    def add(self, record: Record, curve: Curve) -> None:
        """A trial has ended or was paused."""
        fate = self._fates.setdefault(record["key"], Fate())
        if record["state"] == "paused":
            fate.pauses[record["epochs_run"]] = record, curve
        elif record["state"] in FINAL:
            fate.ended = fate.ended if fate.ended and fate.ended["state"] in FINAL else record
        else:
            fate.failures += 1
            if fate.failures >= self._tries and fate.ended is None:
                fate.ended = record

    def fate(self, key: str) -> Fate:
        """What is known of a trial."""
        return self._fates.get(key, Fate())

    def trials(self, number: int) -> list[Trial]:
        """The trials of a number, one per repeat."""
        if number not in self._configs:
            self._configs[number] = self._trials.of_config(number, self.values[number])
        return self._configs[number]

    def left(self, number: int, until: int | None) -> list[Trial]:
        """Those of a number's trials that are still to be run, or to be run on, until an epoch."""
        found = []
        for trial in self.trials(number):
            fate = self.fate(trial.key)
            if fate.ended is None and (until is None or max(fate.pauses, default=0) < until):
                found.append(replace(trial, until=until, attempt=fate.failures + 1))
        return found

    def result(self, number: int, until: int | None) -> Told | None:
        """What became of a number at a rung or at its end; None while some of its trials are not there yet."""
        parts = [self._part(self.fate(trial.key), until) for trial in self.trials(number)]
        if None in parts:
            return None
        records = [part for part in parts if part is not None]
        values = [found for record in records if (found := self._objectives(record))]
        states = {record["state"] for record in records}
        order: tuple[ToldState, ...] = ("paused", "done", "pruned", "stopped", "failed")
        state = next(each for each in order if each in states)
        epochs = [int(record.get("epochs_run") or 0) for record in records if record["state"] == state]
        means = tuple(fmean(column) for column in zip(*values, strict=True))
        trained = sum(map(self._trained, records)) if self._trials.study.search.epochs else None
        return Told(number, self.values[number], state, min(epochs) or None, means, trained)

    def joined(self, outcome: Outcome) -> Outcome:
        """An outcome with what the segments of the trial before have given."""
        before = self.fate(outcome.key).pause()
        return joined(*before, outcome) if before and outcome.state != "failed" else outcome

    def failed(self) -> list[Trial]:
        """The trials that have failed and would not be tried again."""
        return [
            replace(trial, attempt=fate.failures + 1)
            for number in sorted(self.values)
            for trial in self.trials(number)
            if (fate := self.fate(trial.key)).ended and fate.ended["state"] == "failed"
        ]

    @staticmethod
    def _part(fate: Fate, until: int | None) -> Record | None:
        """A rung that was reached counts as it was then, whatever came after; so that all jobs see the same."""
        past = [epoch for epoch in fate.pauses if until is not None and epoch >= until]
        return fate.pauses[min(past)][0] if past else fate.ended

    @staticmethod
    def _trained(record: Record) -> int:
        """The epochs of a trial, or those that it was to train."""
        epochs = record.get("epochs_run") or record["config"].get("epochs")
        if not isinstance(epochs, int) and record["state"] != "failed":
            raise StudyError(
                f"search.epochs: trial {record['trial']} reported no epochs, so there is nothing to count; call "
                "trial.report(epoch, …) in every epoch, or set `epochs` in `fixed` for it to count as so many"
            )
        return epochs if isinstance(epochs, int) else 1  # one that fails must not go on for ever

    def _objectives(self, record: Record) -> tuple[float, ...]:
        found = [measured(record, name) for name in self._trials.metrics]
        if record["state"] in ("done", "paused") and None in found:
            name = self._trials.metrics[found.index(None)]
            known = {**record["last"], **record["scores"], **record["times"]}
            if name not in known:  # else it is null: not finite
                at = (
                    f" after epoch {record['epochs_run']}, where halving compares"
                    if record["state"] == "paused"
                    else ""
                )
                raise StudyError(
                    f"search.metric: trial {record['trial']} has no {name!r}{at}; {nearest(name, known)}"
                )
        values = tuple(value for value in found if value is not None and math.isfinite(value))
        return values if len(values) == len(found) and record["state"] != "failed" else ()
