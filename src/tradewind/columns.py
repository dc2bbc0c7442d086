"""Records as columns: numbers as float arrays, everything else as codes into a list of values.

A million records are some 300 MB of journal but a few columns of 8 MB each, so what was read once is
kept in one uncompressed .npz, of which only the columns that are asked for are ever loaded.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tradewind.column_names import GROUPS, PLAIN, group_of
from tradewind.errors import RunError
from tradewind.folder import RunFolder, writing
from tradewind.journal import Record, decode
from tradewind.soundness import REQUIRED, sound, sound_columns

Array = np.ndarray[Any, Any]
FORMAT = 3
CHUNK = 20_000


def naming(record: Record) -> dict[str, tuple[str, str]]:
    """The columns of a record by their full names, with group and name there."""
    names = {name: ("record", name) for name in PLAIN if name in record}
    for group in GROUPS:
        names |= {f"{group}.{name}": (group, name) for name in record.get(group) or {}}
    return names


def shape(record: Record) -> tuple[Any, ...]:
    """What records must have in common so that their values line up."""
    parts = [record.get(group) for group in GROUPS]
    return tuple(record), *[tuple(part) if isinstance(part, dict) else None for part in parts]


def lined_up(records: list[Record]) -> dict[str, Sequence[Any]]:
    """The columns of records of one shape, transposed group by group: 10 × as fast as name by name."""
    names, columns = naming(records[0]), {}
    fields = zip(*(record.values() for record in records), strict=True)
    groups: dict[str, dict[str, Sequence[Any]]] = {"record": dict(zip(records[0], fields, strict=True))}
    for group in GROUPS:
        parts = [record.get(group) or {} for record in records]
        groups[group] = dict(zip(parts[0], zip(*(part.values() for part in parts), strict=True), strict=True))
    for flat, (group, name) in names.items():
        values = groups[group][name]
        if group == "times" and any(type(value) is list for value in values):
            values = [median(value) if value else None for value in values]
        columns[flat] = values
    return columns


@dataclass
class Column:
    """One name over all records: `values` are numbers, or codes where there are categories (-1: none)."""

    values: Array
    categories: list[Any] | None = None
    whole: bool = False

    @classmethod
    def of(cls, items: Sequence[Any]) -> Column:
        """The column of plain values, None where there is none."""
        kinds = set(map(type, items))
        one = items[0] if len(kinds) == 1 and items.count(items[0]) == len(items) else None
        if kinds <= {int, float, type(None)} and not _beyond(items if one is None else [one]):
            if one is not None:  # as most are: said once, not converted
                return cls(np.full(len(items), one, np.float64), None, float not in kinds)
            return cls(np.array(items, dtype=np.float64), None, float not in kinds)
        if one is not None:
            return cls(np.zeros(len(items), np.int32), [one])
        plain = kinds == {str}  # text needs no form of its own to be told apart
        marks = items if plain else [json.dumps(item) for item in items]
        codes: dict[Any, int] = {} if plain else {"null": -1}
        first = len(codes)
        found = [codes.setdefault(mark, len(codes) - first) for mark in marks]
        values = list(codes)[first:]
        return cls(np.array(found, dtype=np.int32), values if plain else [json.loads(mark) for mark in values])

    def coded(self) -> Column:
        """The same as codes, to be joined with text."""
        if self.categories is not None:
            return self
        numbers, codes = np.unique(self.values[~np.isnan(self.values)], return_inverse=True)
        values = np.full(len(self.values), -1, dtype=np.int32)
        values[~np.isnan(self.values)] = codes
        return Column(values, [int(x) if self.whole else float(x) for x in numbers])

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


def _beyond(items: Sequence[Any]) -> bool:
    """Whether there is a whole number that a float can't hold, so that two of them would become one."""
    large = np.abs(np.array(items, dtype=np.float64)) >= 2**53
    return bool(large.any()) and any(type(items[k]) is int for k in np.flatnonzero(large).tolist())


def join(parts: list[Column]) -> Column:
    """One column from consecutive pieces."""
    if len(parts) == 1:
        return parts[0]
    if all(part.categories is None for part in parts):
        return Column(np.concatenate([p.values for p in parts]), None, all(p.whole for p in parts))
    codes: dict[str, int] = {}
    values = []
    for part in parts:
        part = part.coded()
        new = [codes.setdefault(json.dumps(value), len(codes)) for value in part.categories or []]
        values.append(np.array([*new, -1], dtype=np.int32)[part.values])
    return Column(np.concatenate(values), [json.loads(text) for text in codes])


@dataclass
class Columns:
    """All records: who (key), where the whole record stands (journal, offset), and the columns."""

    folder: Path  # of the journals
    keys: Array = field(default_factory=lambda: np.empty((0, 2), dtype=np.uint64))
    places: Array = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    columns: dict[str, Column] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    journals: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)  # journal: how far it was read
    bad: int = 0
    aside: set[tuple[str, float]] = field(default_factory=set)  # records that count no more: key, when finished
    torn: int = 0  # journals that end in half a line, left so by a kill
    file: Any = None  # the open .npz that columns not loaded yet come from
    stored: dict[str, tuple[str, list[Any] | None, bool]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def column(self, name: str) -> Column:
        """A column, loaded when first asked for."""
        if name not in self.columns:
            member, categories, whole = self.stored[name]
            try:
                self.columns[name] = self._checked(Column(self.file[member], categories, whole))
            except (zipfile.BadZipFile, OSError, ValueError, KeyError, TypeError):
                if isinstance(name_ := getattr(self.file.fid, "name", None), str):
                    Path(name_).unlink(missing_ok=True)  # made anew by the next who reads
                self.columns[name] = self._reread(name)
        return self.columns[name]

    def _checked(self, column: Column) -> Column:
        """A column from a file, which may be damaged or made by anybody."""
        codes, values = column.categories, column.values
        kind = np.float64 if codes is None else np.int32
        within = codes is None or not len(values) or -1 <= values.min() <= values.max() < len(codes)
        if values.shape != (len(self),) or values.dtype != kind or not within:
            raise ValueError("no column of these records")
        return column

    def _valid(self) -> bool:
        """Whether what was read from a file may be about these journals."""
        sizes = {path.name: path.stat().st_size for path in RunFolder.files(self.folder, "jsonl")}
        ends, many = self.ends.items(), len(self.keys)
        return (
            self.keys.dtype == np.uint64
            and self.keys.shape == self.places.shape == (many, 2)
            and self.places.dtype == np.int64
            and all(type(end) is int and 0 <= end <= sizes.get(name, -1) for name, end in ends)
            and set(self.journals) <= self.ends.keys()
            and (not many or 0 <= self.places.min() <= self.places.max() <= max(self.ends.values()))
            and (not many or self.places[:, 0].max() < len(self.journals))
            and self.stored.keys() == self.groups.keys()
            and all(group == group_of(name) for name, group in self.groups.items())
            and (not many or REQUIRED - {"key", *GROUPS} <= self.groups.keys())
        )

    def _reread(self, name: str) -> Column:
        return Column.of([lined_up([self.record(row)]).get(name, [None])[0] for row in range(len(self))])

    def by_journal(self) -> dict[str, int]:
        """How many records each journal has."""
        counts = np.bincount(self.places[:, 0], minlength=len(self.journals)) if len(self) else np.zeros(0, int)
        return dict(zip(self.journals, counts.tolist(), strict=False))

    def record(self, row: int) -> Record:
        """The whole record, read from its journal again."""
        number, offset = self.places[row]
        with open(self.folder / self.journals[number], "rb") as file:
            file.seek(offset)
            record = decode(file.readline())
        if record is None or record.get("key") != self.key(row):
            raise RunError(f"{file.name}: the record at byte {offset} is damaged")
        return record

    def key(self, row: int) -> str:
        """The key of a record."""
        return f"{int(self.keys[row, 0]):016x}{int(self.keys[row, 1]):016x}"

    def set_aside(self) -> Array:
        """Which records count no more."""
        found = np.zeros(len(self), dtype=bool)
        for key, at in self.aside if len(self) else ():
            same = self.keys[:, 0] == int(key[:16], 16)
            found |= same & (self.column("finished").values == at)
        return found

    def extended(self, found: Iterable[tuple[str, int, Record]]) -> Columns:
        """With further records (journal, offset, record) added; chunk by chunk, to bound memory."""
        pieces: list[Columns] = []
        chunk = []
        for item in found:
            chunk.append(item)
            if len(chunk) == CHUNK:
                pieces += self._pieces(chunk)
                chunk = []
        pieces += self._pieces(chunk)
        return self.joined(pieces) if pieces else self

    def _pieces(self, chunk: list[tuple[str, int, Record]]) -> list[Columns]:
        shapes: dict[Any, list[tuple[str, int, Record]]] = {}
        for item in chunk:
            shapes.setdefault(shape(item[2]), []).append(item)
        pieces = [self._sound_piece(items) for items in shapes.values()]
        return [piece for piece in pieces if piece is not None]

    def _sound_piece(self, items: list[tuple[str, int, Record]]) -> Columns | None:
        """The piece of those records that hold what records hold; the others are counted."""
        try:
            return self._piece(items)
        except (ValueError, TypeError, ArithmeticError, AttributeError):
            found = [item for item in items if sound(item[2])]
            self.bad += len(items) - len(found)
            return self._piece(found) if found else None

    def _piece(self, items: list[tuple[str, int, Record]]) -> Columns:
        records = [record for _, _, record in items]
        values = lined_up(records)
        if not sound_columns(values, records):
            raise ValueError("a record that is none")
        journals = list(dict.fromkeys(journal for journal, _, _ in items))
        number = {journal: k for k, journal in enumerate(journals)}
        keys = np.frombuffer(bytes.fromhex("".join(record["key"] for record in records)), dtype=">u8")
        places = np.array([(number[journal], offset) for journal, offset, _ in items], dtype=np.int64)
        columns = {name: Column.of(some) for name, some in values.items()}
        groups = {name: group for name, (group, _) in naming(records[0]).items()}
        return Columns(self.folder, keys.reshape(-1, 2).astype(np.uint64), places, columns, groups, journals)

    def joined(self, pieces: list[Columns]) -> Columns:
        """With further columns below these."""
        everything = [self, *pieces]
        pieces = [piece for piece in everything if len(piece)]
        ends: dict[str, int] = {}
        for piece in everything:
            ends |= {name: max(end, ends.get(name, 0)) for name, end in piece.ends.items()}
        bad = sum(piece.bad for piece in everything)
        aside = set().union(*(piece.aside for piece in everything))
        if not pieces:
            return Columns(self.folder, ends=ends, bad=bad, aside=aside)
        journals = list(dict.fromkeys([*self.journals, *(name for piece in pieces for name in piece.journals)]))
        number = {name: k for k, name in enumerate(journals)}
        groups = {name: group for piece in pieces for name, group in piece.groups.items()}
        columns = {
            name: join(
                [p.column(name) if name in p.groups else Column(np.full(len(p), np.nan), None, True) for p in pieces]
            )
            for name in groups
        }
        for piece in pieces:
            renumbered = np.array([number[name] for name in piece.journals], dtype=np.int64)
            piece.places = np.column_stack([renumbered[piece.places[:, 0]], piece.places[:, 1]])
        keys, places = (np.concatenate([getattr(p, part) for p in pieces]) for part in ("keys", "places"))
        return Columns(self.folder, keys, places, columns, groups, journals, ends, bad, aside)

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
            "aside": sorted(self.aside),
        }  # fmt: skip
        text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
        with writing(path) as aside, open(aside, "wb") as file:
            np.savez(file, allow_pickle=False, meta=text, keys=self.keys, places=self.places, **members)

    @classmethod
    def load(cls, path: Path, folder: Path) -> Columns:
        """What was kept; empty where there is nothing that can be used."""
        try:
            file = np.load(path, allow_pickle=False) if zipfile.is_zipfile(path) else {}
            meta: Mapping[str, Any] = json.loads(file["meta"].tobytes())
            if meta["format"] != FORMAT:
                return cls(folder)
            stored = {name: tuple(entry) for name, entry in meta["stored"].items()}
            found = cls(
                folder, file["keys"], file["places"], {}, meta["groups"], meta["journals"], meta["ends"], meta["bad"],
                {(key, at) for key, at in meta["aside"]}, 0, file, stored,
            )  # fmt: skip
            return found if found._valid() else cls(folder)
        except (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile):
            return cls(folder)
