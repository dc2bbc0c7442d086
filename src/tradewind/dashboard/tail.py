"""The end of a growing file, line by line: every byte is read once, and no line can fill the memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.folder import RunFolder
from tradewind.journal import decode

MOST_LINE = 4 << 20  # records have kilobytes; what is longer is damage, or meant to harm
KEY = re.compile(rb'"key":"([0-9a-f]{32})"')


@dataclass
class Tail:
    """What was added to a file since it was last looked at."""

    path: Path
    at: int = 0
    too_long: int = 0  # lines that were skipped unread
    bytes_read: int = 0
    _size: int = -1
    _within: bool = False  # a line that is too long

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(offset, line) of every whole line that is new; to be gone through to the end."""
        size = self.path.stat().st_size
        if size == self._size:
            return  # a torn line at the end is not read again and again
        self._size = size
        with open(self.path, "rb") as file:
            file.seek(self.at)
            while line := file.readline(MOST_LINE):
                self.bytes_read += len(line)
                whole = line.endswith(b"\n")
                if not whole and len(line) < MOST_LINE and not self._within:
                    return  # torn, or still being written
                start, self.at = self.at, self.at + len(line)
                if whole and not self._within:
                    yield start, line
                    continue
                self.too_long += not self._within
                self._within = not whole


def any_too_long(path: Path, start: int) -> bool:
    """Whether a file has a line that a `Tail` would skip; half a second per gigabyte."""
    since = 0
    with open(path, "rb") as file:
        file.seek(start)
        while block := file.read(1 << 20):
            first = block.find(b"\n")
            if since + (len(block) if first < 0 else first) >= MOST_LINE:
                return True
            since = since + len(block) if first < 0 else len(block) - 1 - block.rfind(b"\n")
    return False


@dataclass
class CurveIndex:
    """Where the curve of each trial stands, so that one can be had without reading the others."""

    folder: RunFolder
    _tails: list[Tail] = field(default_factory=list)
    _places: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def curve(self, key: str) -> list[dict[str, float]]:
        """What a trial reached after each epoch; nothing where it left no curve."""
        self._refresh()
        place = self._places.get(bytes.fromhex(key))
        if place is None:
            return []
        with open(self._tails[place[0]].path, "rb") as file:
            file.seek(place[1])
            content = decode(file.readline(MOST_LINE)) or {}
        found: list[dict[str, float]] = content.get("curve") or []
        return found

    def _refresh(self) -> None:
        known = {tail.path for tail in self._tails}
        self._tails += [Tail(path) for path in self.folder.files(self.folder.curves, "jsonl") if path not in known]
        for number, tail in enumerate(self._tails):
            for offset, line in tail.lines():
                if match := KEY.search(line, 0, 200):
                    self._places[bytes.fromhex(match[1].decode())] = number, offset
