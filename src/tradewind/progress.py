"""How far a run is and how long the rest takes: one definition for the terminal, `status` and the page.

A search that prunes is counted in epochs, since most of its trials are short; everything else in trials. The rest
takes as long as what has been done since the jobs that run now began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tradewind.folder import RunFolder
from tradewind.journal import Reading, Record, owner_of


@dataclass(frozen=True)
class Progress:
    """What is done and what is expected in all, in trials or epochs; `here` was done in the last `worked_s`."""

    unit: str
    done: int
    expected: int
    here: int
    worked_s: float

    @property
    def left_s(self) -> float | None:
        """The expected time to the end; None where nothing has been done yet, or nobody works."""
        left = max(0, self.expected - self.done)
        if not left:
            return 0.0
        return self.worked_s / self.here * left if self.here and self.worked_s > 0 else None


def portion(done: int, expected: int) -> str:
    """How much of what is expected is done, in words."""
    return f"{done:,} of {'' if done >= expected else '≈'}{expected:,}"


class Epochs:
    """The epochs of a search that prunes, by its journals: those trained, and those expected in all."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._readings: dict[str, Reading] = {}
        self._trained: dict[str, int] = {}  # by key
        self._asked, self._at = 0, 0.0
        self.by_owner: Counter[str] = Counter()

    def read(self) -> None:
        """Take in what the journals have gained."""
        for path in self._folder.files(self._folder.journals, "jsonl"):
            for _, line in self._readings.setdefault(path.name, Reading(path)).lines():
                self._take(owner_of(path), line)

    def progress(self, over: bool, before: int, worked_s: float) -> Progress:
        """How far it is; `before` were trained by others than those who work since `worked_s`."""
        done = sum(self._trained.values())
        return Progress("epochs", done, done if over else max(done, self._asked), done - before, worked_s)

    def _take(self, owner: str, line: Record) -> None:
        if line["kind"] == "asked" and isinstance(line.get("epochs"), int) and _at(line) >= self._at:
            self._asked, self._at = line["epochs"], _at(line)
        epoch = line.get("epoch") if line["kind"] == "epoch" else line.get("epochs_run")
        key = line.get("key")
        if isinstance(key, str) and isinstance(epoch, int) and (more := epoch - self._trained.get(key, 0)) > 0:
            self._trained[key] = epoch
            self.by_owner[owner] += more


def epochs_of(folder: RunFolder) -> Epochs | None:
    """What counts the epochs of a run, where its search prunes."""
    search = folder.edition().get("study", {}).get("search") or {}
    return Epochs(folder) if search.get("halving") else None


def progress_of(
    folder: RunFolder, total: int, ended: int, by_journal: Mapping[str, int], jobs: Collection[str], now: float,
    epochs: Epochs | None,
) -> Progress:  # fmt: skip
    """How far a run is as its folder tells; `by_journal`: trials that ended in each; `jobs`: live owners."""
    began = [at for owner in jobs if (at := _began(folder, owner)) is not None]
    worked_s = now - min(began) if began else 0.0
    if epochs is not None:
        epochs.read()
        before = sum(n for owner, n in epochs.by_owner.items() if owner not in jobs)
        return epochs.progress(ended >= total, before, worked_s)
    here = sum(n for name, n in by_journal.items() if name.removesuffix(".jsonl").partition("~")[0] in jobs)
    return Progress("trials", ended, total, here, worked_s)


def _began(folder: RunFolder, owner: str) -> float | None:
    """When a job began its first trial."""
    path = folder.journal(owner)
    lines = Reading(path).lines() if path.exists() else iter(())
    return next((at for _, line in lines if (at := _at(line))), None)


def _at(line: Record) -> float:
    at = line.get("at")
    return at if isinstance(at, int | float) else 0.0
