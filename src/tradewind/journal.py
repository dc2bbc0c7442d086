"""The journal: what happened, as append-only JSON Lines that survive crashes, kills and full disks.

A file belongs to one process lifetime and is never reopened, so no line is ever glued to a torn one.
Every line begins with a checksum of the rest: {"crc":"xxxxxxxx","v":1,"kind":…}.
A thread writes and syncs; lines that arrive while it syncs go into the next group, so a slow disk
costs latency, not throughput.
"""

from __future__ import annotations

import errno
import os
import queue
import re
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from tradewind.errors import JournalError, RunError
from tradewind.folder import RunFolder
from tradewind.pack import FINAL

VERSION = 1
PROGRESS = (b"started", b"epoch", b"asked", b"waiting")
CHECKED = re.compile(rb'\{"crc":"([0-9a-f]{8})",')  # before what it is a checksum of
HEAD = re.compile(CHECKED.pattern + rb'"v":\d+,"kind":"(\w+)"(?:,"key":"([0-9a-f]{32})")?')
Record = dict[str, Any]


def encode(kind: str, fields: Record) -> bytes:
    """One journal line."""
    content = {"v": VERSION, "kind": kind, **fields}
    try:
        body = to_json(content, inf_nan_mode="null", fallback=str)[1:]
    except PydanticSerializationError:
        body = to_json(_readable(content), inf_nan_mode="null", fallback=str)[1:]
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body)


def _readable(value: Any) -> Any:
    """The same with text that is no Unicode, such as odd file names in an error, made so that it can be written."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_readable(name): _readable(one) for name, one in value.items()}
    return [_readable(one) for one in value] if isinstance(value, (list, tuple)) else value


def decode(line: bytes) -> Record | None:
    """The content of a line, or None where it does not check."""
    checked = CHECKED.match(line)
    if checked is None or zlib.crc32(line[checked.end() :].rstrip(b"\n")) != int(checked[1], 16):
        return None
    try:
        content = from_json(line)
    except ValueError:
        return None
    if not isinstance(content, dict) or type(version := content.get("v")) is not int:
        return None
    if version > VERSION:
        raise RunError(
            f"a journal line of version {version}; this Tradewind reads version {VERSION}: take a newer one"
        )
    return content if version == VERSION else None


def head(line: bytes) -> tuple[bytes, bytes]:
    """Kind and key of a line that is not parsed, and may not check; empty where it has none."""
    found = HEAD.match(line)
    return (found[2], found[3] or b"") if found else (b"", b"")


def is_record(content: Record) -> bool:
    """Whether a line holds what every record has."""
    key = content.get("key")
    return (
        isinstance(key, str)
        and len(key) == 32
        and not key.strip("0123456789abcdef")
        and type(content.get("trial")) is int
        and 0 <= content["trial"] < 2**53
        and content.get("state") in (*FINAL, "failed", "paused")
    )


def is_set_aside(content: Record) -> bool:
    """Whether a line says that records count no more."""
    records = content.get("records")
    pairs = isinstance(records, list) and all(isinstance(one, list) and len(one) == 2 for one in records)
    return content.get("kind") == "set_aside" and pairs


def new_owner() -> str:
    """An identity that no other process lifetime has; sorts by time."""
    host = "".join(c for c in socket.gethostname() if c.isalnum() or c in "-.")
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{host}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass
class _Line:
    journal: bytes
    curve: bytes
    record: Record | None  # set: is announced once durable


class Journal:
    """The writing end: one per process; `durable()` tells which records have reached the disk."""

    def __init__(self, folder: RunFolder, owner: str) -> None:
        self.folder, self.owner = folder, owner
        self._pending: list[_Line] = []
        self._wake = threading.Condition()
        self._durable: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._failure: OSError | None = None
        self._closing = False
        self._files: tuple[int, int] | None = None
        self._files_opened = 0
        self._written = threading.Thread(target=self._write_groups, name="journal", daemon=True)
        self._written.start()

    def asked(self, fields: Record) -> None:
        """A search has proposed a config, or that one goes on: number, values, until."""
        self._add(_Line(encode("asked", fields), b"", None))

    def started(self, fields: Record) -> None:
        """A trial was handed out."""
        self._add(_Line(encode("started", fields), b"", None))

    def epoch(self, fields: Record) -> None:
        """A trial reports progress."""
        self._add(_Line(encode("epoch", fields), b"", None))

    def waiting(self, fields: Record) -> None:
        """A trial waits for another run's: since when and for whom; for nobody: no more."""
        self._add(_Line(encode("waiting", fields), b"", None))

    def set_aside(self, fields: Record) -> None:
        """Records that count no more, each by its key and when it was finished, and why."""
        self._add(_Line(encode("set_aside", fields), b"", None))

    def paused(self, record: Record, curve: list[dict[str, float]]) -> None:
        """A trial was paused at a rung; with all it takes to end it there, and counts once `durable` returns it."""
        about = {"key": record["key"], "epoch": record["epochs_run"], "scores": record["last"], "at": time.time()}
        self._add(_Line(encode("epoch", {**about, "rung": record, "curve": curve}), b"", record))

    def finished(self, record: Record, curve: list[dict[str, float]]) -> None:
        """A trial ended; the record counts once `durable` returns it."""
        line = encode("curve", {"key": record["key"], "attempt": record["attempt"], "curve": curve}) if curve else b""
        self._add(_Line(encode("finished", record), line, record))

    def durable(self) -> list[Record]:
        """The records that became durable since the last call."""
        if self._failure:
            why = self._failure.strerror or str(self._failure)
            raise JournalError(
                f"{self.folder.journals}: {why}: {len(self._pending)} results could not be written and will be "
                "run again; what was recorded is safe. Make room, then run the same command"
            )
        found = []
        while True:
            try:
                found.append(self._durable.get_nowait())
            except queue.Empty:
                return found

    def settle(self) -> list[Record]:
        """Wait until all lines are on disk; the records that became durable on the way."""
        with self._wake:
            self._wake.wait_for(lambda: not self._pending or self._failure is not None)
        return self.durable()

    def close(self) -> None:
        """Write what is left and end."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._written.join()

    def _add(self, line: _Line) -> None:
        with self._wake:
            self._pending.append(line)
            self._wake.notify_all()

    def _write_groups(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._pending or self._closing)
                group = list(self._pending)
                if not group:
                    return self._close_files()
            try:
                self._write(group)
            except OSError:
                self._close_files()  # nothing is assumed of the old file: all of it is written anew to another
                self._files_opened += 1
                try:
                    self._write(group)
                except OSError as error:
                    with self._wake:
                        self._failure = error
                        self._wake.notify_all()
                    return self._close_files()
            with self._wake:
                del self._pending[: len(group)]
                self._wake.notify_all()
            for line in group:
                if line.record is not None:
                    self._durable.put(line.record)

    def _write(self, group: list[_Line]) -> None:
        journal, curves = self._files or self._open_files()
        lasting = any(line.record is not None for line in group)
        if text := b"".join(line.curve for line in group):
            _write_all(curves, text)
            os.fsync(curves)  # before the record, so that a record that counts has its curve
        _write_all(journal, b"".join(line.journal for line in group))
        if lasting:
            os.fsync(journal)
            if not os.fstat(journal).st_nlink:  # deleted by somebody, which no write notices
                raise FileNotFoundError(errno.ENOENT, "the run folder has been deleted")

    def _open_files(self) -> tuple[int, int]:
        name = f"{self.owner}~{self._files_opened}" if self._files_opened else self.owner
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        journal = os.open(self.folder.journal(name), flags, 0o644)
        curves = os.open(self.folder.curve_file(name), flags, 0o644)
        for parent in (self.folder.journals, self.folder.curves):
            handle = os.open(parent, os.O_RDONLY)
            os.fsync(handle)  # a file whose name is not on disk would be lost with its lines
            os.close(handle)
        self._files = journal, curves
        return self._files

    def _close_files(self) -> None:
        for handle in self._files or ():
            os.close(handle)
        self._files = None


def _write_all(handle: int, text: bytes) -> None:
    while text:
        text = text[os.write(handle, text) :]


def owner_of(journal: Path) -> str:
    """Whose journal this is; one owner has several files only after a failed write."""
    return journal.stem.partition("~")[0]


@dataclass
class Reading:
    """What was read of one file: how far, and how many lines did not check."""

    path: Path
    at: int = 0
    end: int | None = None  # where to stop at the latest
    bad: int = 0

    def lines(self, finished_only: bool = False) -> Iterator[tuple[int, Record]]:
        """(offset, content) of the lines that were added since; with `finished_only` those that decide what counts:
        finished and set aside. Others are not even parsed.
        """
        with open(self.path, "rb") as file:
            file.seek(self.at)
            for line in file:
                if not line.endswith(b"\n") or self.at == self.end:
                    return  # torn, or still being written: looked at again next time
                start, self.at = self.at, self.at + len(line)
                if finished_only and head(line)[0] in PROGRESS:
                    continue
                content = decode(line)
                if content is None or (finished_only and not (is_record(content) or is_set_aside(content))):
                    self.bad += 1
                else:
                    yield start, content


def _is_started(content: Record) -> bool:
    at = content.get("at")
    return type(content.get("trial")) is int and isinstance(content.get("key"), str) and isinstance(at, int | float)


def unfinished(path: Path) -> list[Record]:
    """The trials that a journal says were started and neither finished nor paused, each with its last epoch line.

    `waiting` says since when and for whom one waits, if it does.
    """
    begun: dict[bytes, bytes] = {}
    latest: dict[bytes, bytes] = {}
    waits: dict[bytes, bytes] = {}
    with open(path, "rb") as file:
        for line in file:  # only what is left need be parsed
            kind, key = head(line)
            if kind == b"started":
                begun[key] = line
                latest.pop(key, None)
            elif kind == b"epoch":
                latest[key] = line
            elif kind == b"waiting":
                waits[key] = line
            elif kind == b"finished":
                begun.pop(key, None)
                latest.pop(key, None)
    found = []
    for key, line in begun.items():
        content, epoch = decode(line), decode(latest.get(key, b"")) or {}
        if content is not None and "rung" not in epoch and _is_started(content):
            wait = decode(waits.get(key, b"")) or {}
            waiting = {"since": wait["since"], "for": wait["for"]} if wait.get("for") else None
            about = {"epoch": epoch.get("epoch", 0), "scores": epoch.get("scores", {}), "waiting": waiting}
            found.append({**content, **about})
    return found
