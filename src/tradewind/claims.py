"""Claims: how several jobs share one run folder without a lock daemon, on network file systems too.

A block of work is claimed by hard-linking one's owner file to the block's name, which exactly one
process can do. The link shows who owns it and, by its time of change, when that owner last lived: the file
system stamps it, and its clock tells how long ago.
A block whose owner is gone is claimed anew under the next generation of its name.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tradewind.folder import RunFolder, write_aside
from tradewind.machine import Process

LEASE_S = 60.0  # a sign of life older than this, from another host, means that its owner is gone
BEAT_S = LEASE_S / 6
CLOCK_S = 30.0  # how often a file system is asked for its time
MOST_LINKS = 30_000  # ext4 allows 65,000 links to a file


class Claims:
    """One job's view of who owns which block."""

    def __init__(self, folder: RunFolder, edition: str, owner: str) -> None:
        self._folder, self._owner, self._links, self._renewals = folder, owner, 0, 0
        self._names, self._edition = folder.claims / edition, edition.partition(".")[0]
        self._names.mkdir(exist_ok=True)
        self._file = self._sign()
        self._ended = threading.Event()
        threading.Thread(target=_beat, args=(folder, owner, self._ended), name="lease", daemon=True).start()
        weakref.finalize(self, self._ended.set)

    def take(self, block: int) -> int | None:
        """Try to own a block: the generation of the claim, or None while another owner lives."""
        generation = 0
        while True:
            name = self._names / f"{block}.{generation}"
            if self._link(name):
                return generation
            if not owner_gone(name):
                return None
            generation += 1

    def leave(self) -> None:
        """Say that this owner ended, so that others need not wait for the lease."""
        self._ended.set()
        for path in self._folder.owners.glob(f"{self._owner}*.json"):
            path.write_text(json.dumps({"ended": True}))

    def _sign(self) -> Path:
        path = self._folder.owner(self._owner + (f"+{self._renewals}" if self._renewals else ""))
        write_aside(path, json.dumps({**asdict(Process.this()), "edition": self._edition}).encode())
        return path

    def _link(self, name: Path) -> bool:
        if self._links >= MOST_LINKS:
            self._links, self._renewals = 0, self._renewals + 1
            self._file = self._sign()
        try:
            os.link(self._file, name)
        except FileExistsError:
            return name.samefile(self._file)
        self._links += 1
        return True


@dataclass(frozen=True)
class Owner:
    """A job that is at work in a folder."""

    who: str
    edition: str = ""  # of the study that it runs; empty where its file can't be read


def living_owners(folder: RunFolder) -> list[Owner]:
    """Who is at work in a folder."""
    found = []
    for path in sorted(folder.owners.glob("*.json")):
        if not owner_gone(path):
            try:
                content = json.loads(path.read_bytes())
                found.append(Owner(f"process {content['pid']} on {content['host']}", content["edition"]))
            except (OSError, ValueError, KeyError, TypeError):
                found.append(Owner(f"the job {path.stem}"))
    return found


def owner_gone(name: Path) -> bool:
    """Whether the process behind a claim or owner file has ended; its lease decides where it can't be seen."""
    try:
        content = json.loads(name.read_bytes())
        if content.get("ended"):
            return True
        gone = Process(**{name: value for name, value in content.items() if name != "edition"}).gone()
        return _lapsed(name) if gone is None else gone
    except FileNotFoundError:
        return True
    except (ValueError, TypeError):
        return _lapsed(name)


def _beat(folder: RunFolder, owner: str, ended: threading.Event) -> None:
    """Signs of life from a thread: whatever else this process waits for, its lease does not run out."""
    while not ended.wait(BEAT_S):
        for path in folder.owners.glob(f"{owner}*.json"):
            with suppress(OSError):  # a disk across a network may come back
                os.utime(path)


def _lapsed(name: Path) -> bool:
    """Whether the last sign of life is older than a lease: by the clock of the file system, which stamped it.

    One that lies in the future says nothing by itself: such an owner lives while new ones come.
    """
    beat, now = name.stat().st_mtime, _file_system_time(name.parent)
    if now >= beat:
        _watched.pop(name, None)
        return now - beat > LEASE_S
    seen, since = _watched.get(name, (0.0, 0.0))
    if seen != beat:
        _watched[name] = beat, time.monotonic()
        return False
    return time.monotonic() - since > LEASE_S


_watched: dict[Path, tuple[float, float]] = {}  # signs of life in the future: which, and seen since when
_clocks: dict[Path, tuple[float, float]] = {}  # of file systems: ahead of our monotonic clock by this, as of when


def _file_system_time(folder: Path) -> float:
    """Now, by the clock that stamps files in a folder; by our own where no file can be made there."""
    ahead, asked = _clocks.get(folder, (0.0, -CLOCK_S))
    if time.monotonic() - asked >= CLOCK_S:
        probe = folder / f".clock.{secrets.token_hex(4)}"
        try:
            probe.touch()
            ahead = probe.stat().st_mtime - time.monotonic()
        except OSError:
            ahead = time.time() - time.monotonic()
        with suppress(OSError):
            probe.unlink()
        _clocks[folder] = ahead, time.monotonic()
    return time.monotonic() + ahead
