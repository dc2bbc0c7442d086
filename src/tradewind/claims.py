"""Claims: how several jobs share one run folder without a lock daemon, on network file systems too.

A block of work is claimed by hard-linking one's owner file to the block's name, which exactly one
process can do. The link shows who owns it and, by its time of change, when that owner last lived.
A block whose owner is gone is claimed anew under the next generation of its name.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from tradewind.folder import RunFolder, write_aside
from tradewind.machine import Process

LEASE_S = 60.0  # a sign of life older than this, from another host, means that its owner is gone
MOST_LINKS = 30_000  # ext4 allows 65,000 links to a file


class Claims:
    """One job's view of who owns which block."""

    def __init__(self, folder: RunFolder, edition: str, owner: str) -> None:
        self._folder, self._owner, self._links, self._renewals = folder, owner, 0, 0
        self._names = folder.claims / edition
        self._names.mkdir(exist_ok=True)
        self._file = self._sign()
        self._beat = time.monotonic()

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

    def beat(self) -> None:
        """Give a sign of life; cheap enough to call in every turn of a loop."""
        if time.monotonic() - self._beat > LEASE_S / 6:
            self._beat = time.monotonic()
            os.utime(self._file)

    def leave(self) -> None:
        """Say that this owner ended, so that others need not wait for the lease."""
        for path in self._folder.owners.glob(f"{self._owner}*.json"):
            path.write_text(json.dumps({"ended": True}))

    def _sign(self) -> Path:
        path = self._folder.owner(self._owner + (f"+{self._renewals}" if self._renewals else ""))
        write_aside(path, json.dumps(asdict(Process.this())).encode())
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


def living_owners(folder: RunFolder) -> list[str]:
    """Who is at work in a run folder: host and process of each."""
    found = []
    for path in sorted(folder.owners.glob("*.json")):
        if not owner_gone(path):
            try:
                process = Process(**json.loads(path.read_bytes()))
                found.append(f"process {process.pid} on {process.host}")
            except (OSError, ValueError, TypeError):
                found.append(f"the job {path.stem}")
    return found


def owner_gone(name: Path) -> bool:
    """Whether the process behind a claim or owner file has ended."""
    try:
        content = json.loads(name.read_bytes())
        if content.get("ended"):
            return True
        gone = Process(**content).gone()
        return time.time() - name.stat().st_mtime > LEASE_S if gone is None else gone
    except FileNotFoundError:
        return True
    except (ValueError, TypeError):
        return time.time() - name.stat().st_mtime > LEASE_S
