"""The run folders that a page shows: those that were named, or all under runs/, each followed by a feed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tradewind.column_names import bare
from tradewind.dashboard.feed import Feed
from tradewind.ended_trials import caveat
from tradewind.errors import RunError, nearest
from tradewind.folder import RunFolder, default_path

STALE_S = 90.0  # a run that says it lives and has written nothing for so long
MOST_RUNS = 500


class Runs:
    """Feeds by the name that pages use; a folder is never addressed by a path from outside."""

    def __init__(self, given: Sequence[Path]) -> None:
        self._given = list(given)
        self.feeds: dict[str, Feed] = {}
        self._paths: set[Path] = set()
        for path in self._given:
            RunFolder.open(path)
        self.find()

    def find(self) -> None:
        """Look for folders that are new."""
        for path in self._given or _candidates():
            place = path.resolve()
            if place in self._paths or len(self._paths) >= MOST_RUNS or not (self._given or _is_run(path)):
                continue
            self._paths.add(place)
            name, number = place.name, 1
            while name in self.feeds:
                number += 1
                name = f"{place.name} ({number})"
            self.feeds = {**self.feeds, name: Feed(path, name)}

    def feed(self, name: str) -> Feed:
        """The run of this name."""
        if name not in self.feeds:
            raise RunError(f"no run {name!r}; {nearest(name, self.feeds)}")
        return self.feeds[name]

    def poll(self) -> None:
        """Read what is new in all of them."""
        self.find()
        for feed in list(self.feeds.values()):
            feed.poll()


def _candidates() -> list[Path]:
    parent = default_path("x").parent
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _is_run(path: Path) -> bool:
    try:
        RunFolder.open(path)
    except RunError:
        return False
    return True


def summary(feed: Feed) -> dict[str, Any]:
    """How far a run is, in one line of the list; costs nothing that grows with the run."""
    with feed.lock:
        counts, ended = dict(feed.counts), sum(feed.counts.values())
        total, exact = feed.total
        left = None if total is None else max(0, total - ended)
        typical_s, far = _typical_s(feed), feed.progress()
        written = max((span.finished for span in feed.spans), default=0.0)
        written = max([written, *(max(one.at, one.heard) for one in feed.running.values())])
        return {
            "name": feed.name, "folder": str(feed.path), "study": feed.edition.get("study", {}).get("name", ""),
            "state": _state(feed, left), "error": feed.error, "version": feed.version, "changed": feed.changed,
            "trials": total, "exact": exact, **counts, "running": len(feed.running), "left": left,
            "jobs": len(feed.jobs), "eta_s": far.left_s and round(far.left_s, 1),
            "epochs": {"done": far.done, "expected": far.expected} if feed.epochs else None,
            "last_at": written or None,
            "stale_after_s": max(STALE_S, 5 * typical_s), "damaged": feed.damaged,
            "metric": bare(feed.metric), "lower": feed.lower, "best": feed.best and feed.best.plain(),
            "caveat": caveat(feed.counts),
        }  # fmt: skip


def _state(feed: Feed, left: int | None) -> str:
    if feed.state != "ready":
        return feed.state
    if feed.jobs:
        return "running"
    if not sum(feed.counts.values()):
        return "empty"
    return "unfinished" if left else "ended"


def _typical_s(feed: Feed) -> float:
    spans = sorted(span.finished - span.started for span in feed.spans)
    return spans[len(spans) // 2] if spans else 0.0
