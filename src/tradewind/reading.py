"""All finished records of a run as columns: what was read before, then what the journals have since.

Parsing is what takes the time, so many new bytes are read by as many processes as there are cores, each
of which leaves its part as a file of columns.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tradewind.claims import owner_gone
from tradewind.columns import Columns
from tradewind.folder import RunFolder
from tradewind.journal import Reading, Record, is_set_aside, owner_of
from tradewind.machine import cores

MANY_BYTES = 64 << 20  # about two seconds of parsing, twice what a further process takes to start
Span = tuple[Path, int, int]  # of a journal: from, to


def read(folder: RunFolder) -> Columns:
    """All finished records; a cache of them is kept once it pays."""
    cached = Columns.load(folder.cache / "results.npz", folder.journals)
    spans = [
        (path, cached.ends.get(path.name, 0), path.stat().st_size) for path in folder.files(folder.journals, "jsonl")
    ]
    spans = [(path, start, end) for path, start, end in spans if end > start]
    if sum(end - start for _, start, end in spans) > MANY_BYTES and cores() > 1:
        columns = _read_by_many(cached, spans)
    else:
        columns = read_spans(cached, spans)
    columns.torn = sum(
        columns.ends[path.name] < end and owner_gone(folder.owner(owner_of(path))) for path, _, end in spans
    )
    columns.torn += folder.odd(folder.journals, "jsonl")
    if len(columns) - len(cached) > max(2000, len(cached) // 5):
        try:
            columns.save(folder.cache / "results.npz")
        except OSError:
            pass  # a cache on a full or read-only disk is only slower
    return columns


def read_spans(columns: Columns, spans: list[Span]) -> Columns:
    """With the records of these parts of journals added."""
    collecting = gc.isenabled()
    gc.disable()  # a million records are no garbage: looking for it would double the time
    try:
        return columns.extended(_records(columns, spans))
    finally:
        if collecting:
            gc.enable()


def _records(columns: Columns, spans: list[Span]) -> Iterator[tuple[str, int, Record]]:
    for path, start, end in spans:
        reading = Reading(path, start, end)
        for offset, record in reading.lines(finished_only=True):
            if is_set_aside(record):
                columns.aside |= {(str(key), at) for key, at in record["records"]}
            else:
                yield path.name, offset, record
        columns.ends[path.name] = max(columns.ends.get(path.name, 0), reading.at)
        columns.bad += reading.bad


def _read_by_many(cached: Columns, spans: list[Span]) -> Columns:
    """Every process reads its share of every journal, cut at the ends of lines."""
    many = cores()
    with tempfile.TemporaryDirectory(prefix="tradewind-") as place:
        parts = [Path(place) / f"{k}.npz" for k in range(many)]
        shares = [[share for span in spans for share in _shares(span, many)[k : k + 1]] for k in range(many)]
        readers = []
        for part, share in zip(parts, shares, strict=True):
            words = [str(word) for span in share for word in span]
            call = [sys.executable, "-m", "tradewind.reading", str(part), str(cached.folder), *words]
            readers.append(subprocess.Popen(call, stdin=subprocess.DEVNULL))
        if any(reader.wait() for reader in readers):
            return read_spans(cached, spans)  # too little memory or room for it: slower, alone
        return cached.joined([Columns.load(part, cached.folder) for part in parts])


def _shares(span: Span, many: int) -> list[Span]:
    path, start, end = span
    cuts = [start]
    with open(path, "rb") as file:
        for k in range(1, many):
            file.seek(max(cuts[-1], start + (end - start) * k // many - 1))
            file.readline()
            cuts.append(min(file.tell(), end))
    return [(path, first, last) for first, last in zip(cuts, [*cuts[1:], end], strict=True)]


def main() -> None:
    """Read one share, as started by `_read_by_many`."""
    part, folder, *words = sys.argv[1:]
    spans = [(Path(words[k]), int(words[k + 1]), int(words[k + 2])) for k in range(0, len(words), 3)]
    read_spans(Columns(Path(folder)), spans).save(Path(part))


if __name__ == "__main__":
    main()
