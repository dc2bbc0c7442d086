"""Records as columns: numbers as float arrays, everything else as codes into a list of values.

A million records are some 300 MB of journal but a few columns of 8 MB each, so what was read once is
kept in one uncompressed .npz, of which only the columns that are asked for are ever loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tradewind.folder import writing
from tradewind.journal import Record

Array = np.ndarray[Any, Any]
FORMAT = 1
CHUNK = 20_000
PLAIN = (
    "trial", "repeat", "seed", "data_seed", "state", "reason", "global_batch_size", "communication_s",
    "bytes_exchanged", "wait_s", "utilisation", "device", "devices", "precision", "purpose", "packed_with",
    "peak_memory_bytes", "rank", "host", "machine", "code", "started", "finished", "attempt",
)  # fmt: skip
GROUPS = ("config", "times", "scores", "last")


def flatten(record: Record) -> dict[str, Any]:
    """A record as one level of names; a name that is taken gets its group in front."""
    flat = {name: record[name] for name in PLAIN if name in record}
    for group in GROUPS:
        for name, value in (record.get(group) or {}).items():
            if group == "config" or not isinstance(value, (list, dict)):
                flat[name if name not in flat or group == "config" else f"{group}.{name}"] = value
            elif name == "epoch_s" and value:
                flat[name] = median(value)
    return flat


@dataclass
class Column:
    """One name over all records: `values` are numbers, or codes where there are categories (-1: none)."""

    values: Array
    categories: list[Any] | None = None
    whole: bool = False

    @classmethod
    def of(cls, items: list[Any]) -> Column:
        """The column of plain values, None where there is none."""
        kinds = set(map(type, items))
        if kinds <= {int, float, type(None)}:
            return cls(np.array(items, dtype=np.float64), None, float not in kinds)
        codes: dict[str, int] = {"null": -1}
        texts = [json.dumps(item) for item in items]
        found = [codes.setdefault(text, len(codes) - 1) for text in texts]
        return cls(np.array(found, dtype=np.int32), [json.loads(text) for text in list(codes)[1:]])

    def decoded(self) -> Array:
        """Floats for numbers (NaN: none), otherwise the values themselves as objects."""
        if self.categories is None:
            return self.values
        lookup = np.empty(len(self.categories) + 1, dtype=object)
        lookup[: len(self.categories)] = self.categories
        return np.asarray(lookup[self.values])

    def items(self) -> list[Any]:
        """Plain values, None where there is none."""
        if self.categories is not None:
            return list(self.decoded())
        return [None if x != x else int(x) if self.whole else x for x in self.values.tolist()]


def join(parts: list[Column]) -> Column:
    """One column from consecutive pieces."""
    if len(parts) == 1:
        return parts[0]
    if all(part.categories is None for part in parts):
        return Column(np.concatenate([p.values for p in parts]), None, all(p.whole for p in parts))
    codes: dict[str, int] = {}
    values = []
    for part in parts:
        if part.categories is None:  # numbers in one piece, text in another
            part = Column.of([json.loads(json.dumps(item)) for item in part.items()] or [None])
            if part.categories is None:
                distinct, inverse = np.unique(part.values, return_inverse=True)
                part = Column(inverse, [int(x) if part.whole else float(x) for x in distinct])
        new = [codes.setdefault(json.dumps(value), len(codes)) for value in part.categories or []]
        values.append(np.array([*new, -1], dtype=np.int32)[part.values])
    return Column(np.concatenate(values), [json.loads(text) for text in codes])


@dataclass
class Columns:
    """All records: who (key), where the whole record stands (journal, offset), and the columns."""

    keys: Array = field(default_factory=lambda: np.empty((0, 2), dtype=np.uint64))
    places: Array = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    columns: dict[str, Column] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    journals: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)  # journal: how far it was read
    bad: int = 0
    torn: int = 0  # journals that end in half a line, left so by a kill
    file: Any = None  # the open .npz that columns not loaded yet come from
    stored: dict[str, tuple[str, list[Any] | None, bool]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def names(self) -> list[str]:
        """All column names, in order of appearance."""
        return list(self.groups)

    def column(self, name: str) -> Column:
        """A column, loaded when first asked for."""
        if name not in self.columns:
            member, categories, whole = self.stored[name]
            self.columns[name] = Column(self.file[member], categories, whole)
        return self.columns[name]

    def key(self, row: int) -> str:
        """The key of a record."""
        return f"{int(self.keys[row, 0]):016x}{int(self.keys[row, 1]):016x}"

    def extended(self, found: Iterable[tuple[str, int, Record]]) -> Columns:
        """With further records (journal, offset, record) added; chunk by chunk, to bound memory."""
        pieces, chunk = [self], []
        for item in found:
            chunk.append(item)
            if len(chunk) == CHUNK:
                pieces.append(self._piece(chunk))
                chunk = []
        if chunk:
            pieces.append(self._piece(chunk))
        return self if len(pieces) == 1 else self._joined(pieces)

    def _piece(self, chunk: list[tuple[str, int, Record]]) -> Columns:
        flat = [flatten(record) for _, _, record in chunk]
        groups: dict[str, str] = {}
        for (_, _, record), row in zip(chunk, flat, strict=True):
            if row.keys() - groups.keys():
                groups.update({name: _group(name, record) for name in row if name not in groups})
        for journal, _, _ in chunk:
            if journal not in self.journals:
                self.journals.append(journal)
        number = {journal: k for k, journal in enumerate(self.journals)}
        keys = np.array([divmod(int(record["key"], 16), 2**64) for _, _, record in chunk], dtype=np.uint64)
        places = np.array([(number[journal], offset) for journal, offset, _ in chunk], dtype=np.int64)
        columns = {name: Column.of([row.get(name) for row in flat]) for name in groups}
        return Columns(keys, places, columns, groups)

    def _joined(self, pieces: list[Columns]) -> Columns:
        groups = {name: group for piece in pieces for name, group in piece.groups.items()}
        columns = {}
        for name in groups:
            parts = [
                piece.column(name) if name in piece.groups else Column(np.full(len(piece), np.nan))
                for piece in pieces
                if len(piece)
            ]
            columns[name] = join(parts)
        keys, places = (np.concatenate([getattr(p, part) for p in pieces]) for part in ("keys", "places"))
        return Columns(keys, places, columns, groups, self.journals, self.ends, self.bad, self.torn)

    def save(self, path: Path) -> None:
        """Keep everything in one file, written aside."""
        members = {f"c{k}": self.column(name).values for k, name in enumerate(self.groups)}
        stored = {
            name: (f"c{k}", self.column(name).categories, self.column(name).whole)
            for k, name in enumerate(self.groups)
        }
        meta = {
            "format": FORMAT, "stored": stored, "groups": self.groups,
            "journals": self.journals, "ends": self.ends, "bad": self.bad,
        }  # fmt: skip
        text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
        with writing(path) as aside, open(aside, "wb") as file:
            np.savez(file, allow_pickle=False, meta=text, keys=self.keys, places=self.places, **members)

    @classmethod
    def load(cls, path: Path) -> Columns:
        """What was kept; empty where there is nothing that can be used."""
        try:
            file = np.load(path, allow_pickle=False)
            meta: Mapping[str, Any] = json.loads(file["meta"].tobytes())
            if meta["format"] != FORMAT:
                return cls()
            stored = {name: tuple(entry) for name, entry in meta["stored"].items()}
            return cls(
                file["keys"], file["places"], {}, meta["groups"], meta["journals"], meta["ends"], meta["bad"],
                0, file, stored,
            )  # fmt: skip
        except (OSError, ValueError, KeyError, EOFError):
            return cls()


def _group(name: str, record: Record) -> str:
    bare = name.partition(".")[2] if name.partition(".")[0] in GROUPS else name
    return next((group for group in GROUPS if bare in (record.get(group) or {})), "record")
