"""A run as it is followed: each journal line is read once; counts, what runs now and the columns of results.

A poll costs a look at the sizes of the journals and the parsing of what is new. Results are put together only
when a page asks for them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.best import Best
from tradewind.claims import owner_gone
from tradewind.columns import Columns
from tradewind.dashboard.progress import Running, Span, running_of, span_of
from tradewind.dashboard.tail import CurveIndex, Tail, any_too_long
from tradewind.errors import Mistake, TradewindError
from tradewind.folder import RunFolder
from tradewind.journal import Record, decode, head, is_record, is_set_aside, owner_of
from tradewind.pack import FINAL
from tradewind.progress import Epochs, Progress, epochs_of, progress_of
from tradewind.reading import read
from tradewind.results import Results
from tradewind.soundness import sound

MANY_BYTES = 8 << 20  # from here on the columns are read by all cores and kept in a cache
MOST_PENDING = 5000
MOST_SPANS = 1500
LOOK_AT_OWNERS_S = 3.0
TRY_AGAIN_S = 5.0  # a disk across a network may come back


class Feed:
    """One run folder; `poll` in one thread, which alone reads journals, everything else in any."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.folder = RunFolder(path)
        self.lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self.state = "loading"  # or ready, or error
        self.error = ""
        self.version = 0
        self.changed = time.time()
        self.running: dict[str, Running] = {}
        self.jobs: set[str] = set()
        self.spans: deque[Span] = deque(maxlen=MOST_SPANS)
        self.counts: dict[str, int] = dict.fromkeys((*FINAL, "failed"), 0)
        self.best: Best | None = None
        self.metric = ""
        self.lower: bool | None = None
        self.edition: dict[str, Any] = {}
        self.epochs: Epochs | None = None
        self.curves = CurveIndex(self.folder)
        self._columns = Columns(self.folder.journals)
        self._tails: dict[str, Tail] = {}
        self._pending: list[tuple[str, int, Record]] = []
        self._failed: set[str] = set()
        self._results: Results | None = None
        self._bad, self._numbered, self._looked = 0, 0, 0.0
        self._stamp: tuple[int, int] = (0, 0)
        self._again = self._refresh = 0.0

    @property
    def total(self) -> tuple[int | None, bool]:
        """The trials of the study, as its run has said, and whether that is exact; of imports all there are."""
        if not self.edition:
            return sum(self.counts.values()), True
        return self.edition.get("trials"), bool(self.edition.get("exact"))

    def progress(self) -> Progress:
        """How far the run is, as `tradewind status` says."""
        ended, by_journal = sum(self.counts.values()), Counter(self._columns.by_journal())
        by_journal.update(journal for journal, _, _ in self._pending)
        total = self.total[0]
        total = ended if total is None else total
        return progress_of(self.folder, total, ended, by_journal, self.jobs, time.time(), self.epochs)

    @property
    def bytes_read(self) -> int:
        """How much of the journals was read line by line so far."""
        return sum(tail.bytes_read for tail in self._tails.values())

    @property
    def damaged(self) -> int:
        """How many lines did not check, were no records, or were too long to read."""
        with self.lock:
            return self._columns.bad + self._bad + sum(tail.too_long for tail in self._tails.values())

    def poll(self) -> bool:
        """Read what is new; whether anything is."""
        before = self.version
        try:
            self._follow()
        except Exception as error:  # one damaged folder must not end the page of the others
            text = str(error) if isinstance(error, TradewindError) else f"{type(error).__name__}: {error}"
            with self.lock:
                self.version += (self.state, self.error) != ("error", text)
                self.state, self.error, self._again = "error", text, time.monotonic() + TRY_AGAIN_S
        if self.version == before:
            return False
        self.changed = time.time()
        return True

    def _follow(self) -> None:
        stamp = self._identity()
        journals = self.folder.files(self.folder.journals, "jsonl")
        anew = stamp[0] != self._stamp[0] or self._tails.keys() - {path.name for path in journals}
        if self.state == "error" and not anew and time.monotonic() < self._again:
            return
        if self.state != "ready" or anew:
            self._load()  # a fresh run may have taken the place of an older one
        elif stamp != self._stamp:
            self._study()
        new = self.state != "ready" or any(path.name not in self._tails for path in journals)
        self._stamp = stamp
        for path in journals:
            tail = self._tails.setdefault(path.name, Tail(path))
            for offset, line in tail.lines():
                with self.lock:
                    self._take(path, offset, line)
        if new or time.monotonic() - self._looked > LOOK_AT_OWNERS_S:
            self._owners()
        with self.lock:
            self.state = "ready"
            if (self._pending or self._results is None) and time.monotonic() >= self._refresh:
                began = time.monotonic()
                self.results()  # the best config is known from all trials; that costs at most a twentieth of the time
                self._refresh = time.monotonic() + 20 * (time.monotonic() - began)

    def _identity(self) -> tuple[int, int]:
        folder = RunFolder(self.path)
        study = folder.study_file
        return folder.journals.stat().st_ino, study.stat().st_mtime_ns if study.exists() else 0

    def _load(self) -> None:
        RunFolder.open(self.path)
        columns = self._read()  # takes seconds for a large run; others are not kept waiting meanwhile
        with self.lock:
            version = self.version
            self._forget()
            self.version, self._columns = version + 1, columns
            journals = self.folder.files(self.folder.journals, "jsonl")
            self._tails = {path.name: Tail(path, columns.ends.get(path.name, 0)) for path in journals}
        self._study()
        self._owners()
        for path in journals:
            if owner_of(path) in self.jobs:
                self._replay(path, self._tails[path.name].at)
        self.results()
        self._last_spans()

    def _read(self) -> Columns:
        """The columns of what ended before, from the cache and, where much is new, by all cores."""
        columns = Columns.load(self.folder.cache / "results.npz", self.folder.journals)
        news = {path: columns.ends.get(path.name, 0) for path in self.folder.files(self.folder.journals, "jsonl")}
        many = sum(path.stat().st_size - start for path, start in news.items()) > MANY_BYTES
        return read(self.folder) if many and not any(any_too_long(*new) for new in news.items()) else columns

    def _study(self) -> None:
        with self.lock:
            self.edition = self.folder.edition()
            self.epochs = epochs_of(self.folder)
            self._results = None
            self.version += 1

    def _replay(self, path: Path, end: int) -> None:
        """What a journal whose columns are known already says about trials that still run."""
        lines: dict[bytes, list[tuple[int, bytes]]] = {}
        for offset, line in Tail(path).lines():
            if offset >= end:
                break
            kind, key = head(line)
            if kind == b"started":
                lines[key] = [(offset, line)]
            elif kind in (b"epoch", b"waiting") and key in lines:
                lines[key][1:] = [(offset, line)]
            elif kind == b"finished":
                lines.pop(key, None)
        for some in lines.values():
            for offset, line in some:
                with self.lock:
                    self._take(path, offset, line)

    def _last_spans(self) -> None:
        columns = self._columns
        if len(columns) and "finished" in columns.groups:
            ends = columns.column("finished").values
            for row in np.argsort(np.nan_to_num(ends), kind="stable")[-MOST_SPANS:]:
                content = columns.record(int(row))
                with self.lock:
                    self._span(content)

    def _owners(self) -> None:
        """Who still lives; what those who are gone had begun runs no more."""
        self._looked = time.monotonic()
        found = {owner_of(path) for path in self.folder.files(self.folder.journals, "jsonl")}
        alive = {owner for owner in found if not owner_gone(self.folder.owner(owner))}
        with self.lock:
            gone = [key for key, one in self.running.items() if one.owner not in alive]
            for key in gone:
                del self.running[key]
            self.version += bool(gone) or alive != self.jobs
            self.jobs = alive

    def _take(self, path: Path, offset: int, line: bytes) -> None:
        if line.startswith(b"asked", 32):
            return
        content = decode(line)
        if content is None:
            self._bad += 1
            return
        kind, key = content.get("kind"), content.get("key")
        if kind == "finished":
            self._finish(path, offset, content)
        elif kind == "started" and isinstance(key, str) and isinstance(content.get("trial"), int):
            self.running[key] = running_of(content, owner_of(path))
        elif kind == "waiting" and key in self.running:
            self.running[key].wait(content)
        elif is_set_aside(content):
            self._columns.aside |= {(str(key), at) for key, at in content["records"]}
            self._results = None
        elif kind == "epoch" and key in self.running:
            if "rung" in content:
                del self.running[key]  # paused: it may go on later
            else:
                self.running[key].go_on(content, time.time() if self.state == "ready" else 0.0)
        self.version += 1

    def _finish(self, path: Path, offset: int, record: Record) -> None:
        if not is_record(record) or not sound(record):
            self._bad += 1
            return
        key, state = record["key"], record["state"]
        self.running.pop(key, None)
        self._pending.append((path.name, offset, record))
        if len(self._pending) >= MOST_PENDING:
            self._extend()
        self._span(record)
        if key in self._failed:
            self.counts["failed"] -= 1  # a trial counts once, by its last attempt
            self._failed.discard(key)
        if state in self.counts:
            self.counts[state] += 1
        if state == "failed":
            self._failed.add(key)

    def _span(self, record: Record) -> None:
        self._numbered += 1
        self.spans.append(span_of(record, self._numbered))

    def _extend(self) -> None:
        if self._pending:
            ends = {name: tail.at for name, tail in self._tails.items()}
            self._columns = self._columns.extended(self._pending)
            self._columns.ends |= ends
            self._pending, self._results = [], None

    def results(self) -> Results:
        """All trials that have ended, as of now."""
        with self.lock:
            self._extend()
            if self._results is None:
                self._results = found = Results(self.folder, self._columns)
                self.counts = found.counts()
                failed = found.column("state") == "failed" if len(found) else np.empty(0, bool)
                self._failed = set(np.array(found.keys(), dtype=object)[failed]) if failed.any() else set()
                self.metric, self.lower = found.objective()
                try:
                    self.best = found.best()
                except Mistake:
                    self.best = None
            return self._results

    def ready(self) -> Results:
        """The results, or why there are none."""
        with self.lock:
            if self.state == "error":
                raise Mistake(self.error)
            if self.state == "loading":
                raise Mistake(f"{self.name}: still being read")
            return self.results()
