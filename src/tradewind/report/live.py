"""A run as it happens: a live display on a terminal, timestamped lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import stdev
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tradewind.analysis.status import whom
from tradewind.folder import RunFolder
from tradewind.journal import Record
from tradewind.pack import Trial
from tradewind.progress import Progress, epochs_of, portion
from tradewind.quantities import duration, printable
from tradewind.ranking import Standing
from tradewind.report.best import mean_text
from tradewind.watch import Quiet, Watch

LINE_S = 1.0  # at most one line in this time, so that a log of a million trials stays readable


def watcher(quiet: bool) -> Watch:
    """What suits where the output goes."""
    if quiet:
        return Quiet()
    return Terminal() if sys.stderr.isatty() else Lines()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


class Tally:
    """What both displays count."""

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Start counting from what earlier runs have left."""
        self.plan = plan
        self.counts: dict[str, int] = dict(plan["counts"])
        self.began, self.here = time.monotonic(), 0
        self.epochs = epochs_of(RunFolder(Path(plan["folder"])))
        self._before: int | None = None
        self._standing: Standing = plan["results"].standing()

    def count(self, record: Record) -> None:
        """One more trial has ended."""
        if record["attempt"] > 1:
            self.counts["failed"] -= 1  # its last attempt was counted; a trial counts once
        self.counts[record["state"]] += 1
        self.here += 1
        self._standing.add(record)

    @property
    def ended(self) -> int:
        """How many trials have ended, here or before."""
        return sum(self.counts.values())

    def summary(self) -> str:
        """Done, failed, best so far and the expected time to the end, in one line."""
        total, far = self.plan["trials"], self.progress()
        parts = [f"{self.ended}/{'' if self.plan['exact'] else '≈'}{total}"]
        parts += [f"{portion(far.done, far.expected)} epochs"] if far.unit == "epochs" else []
        parts += [f"{count} {state}" for state, count in self.counts.items() if state != "done" and count]
        if leader := self._standing.best():
            (metric, lower), n = self._standing.goals[0], len(leader.values)
            mean = -leader.means()[0] if lower else leader.means()[0]
            spread = stdev(values[0] for values in leader.values.values()) if n > 1 else None
            parts.append(f"best {mean_text(metric, mean, spread, n, self._standing.planned, lower)}")
        if far.left_s:
            parts.append(f"{duration(far.left_s)} left")
        return " · ".join(parts)

    def progress(self) -> Progress:
        """How far the run is."""
        worked_s = time.monotonic() - self.began
        if self.epochs is None:
            return Progress("trials", self.ended, self.plan["trials"], self.here, worked_s)
        self.epochs.read()
        if self._before is None:  # this is the first look, before any trial has begun
            self._before = sum(self.epochs.by_owner.values())
        return self.epochs.progress(self.ended >= self.plan["trials"], self._before, worked_s)

    def heading(self) -> str:
        """What is about to happen."""
        plan = self.plan
        skipped = f"; {plan['skipped_lines']} damaged journal lines skipped" if plan["skipped_lines"] else ""
        before = f", {self.ended} of them ended before" if self.ended else ""
        trials, workers = _count(plan["trials"], "trial"), _count(plan["workers"], "worker")
        approx = "" if plan["exact"] else "≈"
        return f"{plan['name']}: {approx}{trials}{before}, {workers}, purpose {plan['purpose']}{skipped}"


class Lines(Tally):
    """Timestamped lines, for logs and pipes."""

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Say what will be done."""
        super().begin(plan)
        self._said, self._unsaid, self._waiting = 0.0, 0, 0
        self._say(f"{self.heading()}, run folder {plan['folder']}")

    def started(self, worker: int, trial: Trial) -> None:
        """Nothing: the end of a trial is what counts."""

    def epoch(self, worker: int, epoch: int, scores: Mapping[str, float]) -> None:
        """Nothing."""

    def waiting(self, worker: int, since: float, holder: Mapping[str, Any]) -> None:
        """Say who waits for whom, at once: a wait may be long."""
        if holder:
            self._say(f"worker {worker} waits for {whom(holder)}")

    def finished(self, worker: int | None, record: Record) -> None:
        """One line per trial, or one for many where they are short."""
        self.count(record)
        self._unsaid += 1
        if time.monotonic() - self._said >= LINE_S:
            took = duration(record["finished"] - record["started"])
            state = record["state"] + (f" ({record['reason']})" if record["reason"] else "")
            others = f" and {self._unsaid - 1} others" if self._unsaid > 1 else ""
            self._say(f"trial {record['trial']} {state} in {took}{others} | {self.summary()}")
            self._unsaid = 0

    def warn(self, text: str) -> None:
        """Say it."""
        self._say(text)

    def turn(self, waiting: int) -> None:
        """Tell once when only other jobs have work."""
        if waiting and waiting != self._waiting:
            self._say(f"waiting for {waiting} trials that other jobs on this folder have claimed")
        self._waiting = waiting

    def end(self) -> None:
        """The last count."""
        self._say(f"{self.summary()}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        print(time.strftime("%H:%M:%S"), printable(text), file=sys.stderr, flush=True)


class Terminal(Tally):
    """A live display: a bar, what each worker does, the best so far."""

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Draw the first picture."""
        super().begin(plan)
        self._trials: dict[int, Trial] = {}
        self._doing: dict[int, str] = {}
        self._waiting = 0
        console = Console(stderr=True)
        console.print(Text(printable(f"{self.heading()}\n→ {plan['folder']}")))
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def started(self, worker: int, trial: Trial) -> None:
        """A worker has a new trial."""
        self._trials[worker], self._doing[worker] = trial, ""

    def epoch(self, worker: int, epoch: int, scores: Mapping[str, float]) -> None:
        """A worker has trained another epoch."""
        values = " ".join(f"{name} {value:.4g}" for name, value in list(scores.items())[:2])
        self._doing[worker] = f"epoch {epoch} {values}"

    def waiting(self, worker: int, since: float, holder: Mapping[str, Any]) -> None:
        """A worker waits for another run."""
        at = time.strftime("%H:%M:%S", time.localtime(since))
        self._doing[worker] = f"waits since {at} for {whom(holder)}" if holder else ""

    def finished(self, worker: int | None, record: Record) -> None:
        """Count it; a failure is also said in a line that stays."""
        self.count(record)
        if worker is not None and self._trials[worker].key == record["key"]:  # it may have another one by now
            self._doing.pop(worker, None)
        if record["state"] == "failed" and self.counts["failed"] <= 20:
            self._live.console.print(
                Text(printable(f"trial {record['trial']} failed: {record['reason']}"), style="red")
            )

    def warn(self, text: str) -> None:
        """Say it in a line that stays."""
        self._live.console.print(Text(text, style="yellow"))

    def turn(self, waiting: int) -> None:
        """Remember how many trials others have."""
        self._waiting = waiting

    def end(self) -> None:
        """Clear the display."""
        self._live.stop()
        self._live.console.print(Text(self.summary()))

    def _draw(self) -> Group:
        far = self.progress()
        bar = ProgressBar(total=max(1, far.expected), completed=far.done, width=40)
        top = Table.grid(padding=(0, 1))
        top.add_row(bar, Text(self.summary()))
        rows = [
            Text(f"  worker {worker}: trial {self._trials[worker].trial} {self._about(worker)} {doing}", style="dim")
            for worker, doing in sorted(self._doing.items())[:16]
        ]
        if self._waiting:
            rows.append(Text(f"  waiting for {self._waiting} trials that other jobs have claimed", style="yellow"))
        return Group(top, *rows)

    def _about(self, worker: int) -> str:
        config = self._trials[worker].config
        names = self.plan["space"]
        return " ".join(f"{name}={config[name]}" for name in names[:6])
