"""Results from elsewhere as plain rows: flat CSV, a JSON list of objects, nested JSON, Tradewind's export."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tradewind.errors import DataError, nearest
from tradewind.pack import Config, Value

OURS = {"gpus": "devices", "scaling_rule": "scaling"}  # one word per idea
DESCRIPTION = ("title", "source", "note")
MEASURED = re.compile(r"_s$|accuracy|auc|loss|score|error|efficiency|speedup|epochs_to", re.IGNORECASE)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass
class ForeignResult:
    """One result from elsewhere; `facts` is what else it says: its note, or an exported record's fields."""

    config: Config
    values: dict[str, float | None]
    facts: dict[str, Value] = field(default_factory=dict)


@dataclass
class Foreign:
    """The rows at one place of a file, the part of their configs that they share, and what is said of them."""

    place: str
    rows: list[ForeignResult]
    shared: Config
    description: str

    def columns(self) -> list[str]:
        """The names in the rows, then those that they share."""
        return list({name: 0 for row in self.rows for name in row.config | row.values} | self.shared)


def read_rows(
    path: Path, at: str = "", join: str = "", values: Sequence[str] = (), rename: Mapping[str, str] = {},
    further: Sequence[str] = (),
) -> Foreign:  # fmt: skip
    """The rows at a dotted path of a file, merged with those at `join` that have the same config.

    Measured are the columns in `values`; else what an exported record or a nested mapping measures; else the
    numeric columns of the rows that end in _s or contain accuracy, auc, loss, score, error, efficiency,
    speedup or epochs_to; and, whatever the others are, those in `further`. All other columns are config.
    """
    document = _document(path)
    try:
        places = [_place(document, name) for name in ([at, join] if join else [at])]
        _rename(places, rename)
        _measure(places, *([rename.get(name, name) for name in names] for names in (values, further)))
        return _joined(*places) if join else places[0]
    except (DataError, ValueError) as mistake:
        raise DataError(f"{path}: {mistake.args[0]}") from None


def _document(path: Path) -> Value:
    if path.suffix.lower() not in (".csv", ".json"):
        raise DataError(f"{path}: results are read from .csv and .json files")
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 text") from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty")
    return list(_csv_rows(path, text)) if path.suffix.lower() == ".csv" else _json_value(path, text)


def _csv_rows(path: Path, text: str) -> Iterator[Config]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(filter(None, reader), [])]
        if "" in header or len(set(header)) < len(header):
            raise ValueError("every column needs a name of its own")
        for fields in filter(None, reader):
            if len(fields) != len(header):
                raise ValueError(f"{len(fields)} fields under a header of {len(header)}")
            yield dict(zip(header, map(_field, fields), strict=True))
    except (csv.Error, ValueError) as error:
        raise DataError(f"{path}, line {reader.line_num}: {error.args[0]}") from None


def _json_value(path: Path, text: str) -> Value:
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_number)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{path}: not valid JSON: nested too deep") from None
    except ValueError as error:
        # Up to here the file was valid, so that without its strings the first match is the culprit.
        line = re.sub(r'"(?:[^"\\]|\\.)*"', "", text).partition(error.args[1])[0].count("\n") + 1
        raise DataError(f"{path}, line {line}: {error.args[0]}") from None


@lru_cache(maxsize=65536)
def _field(text: str) -> Value:
    text = text.strip()
    words: dict[str, Value] = {"": None, "true": True, "false": False}
    return _number(text) if NUMBER.fullmatch(text) else words.get(text.lower(), text)


def _number(literal: str) -> int | float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"{literal[:24]} is not a finite number; leave out what is missing", literal)
    return int(literal) if literal.lstrip("+-").isdigit() else number


def _place(document: Value, at: str) -> Foreign:
    node, above, name = _walk(document, at)
    where = repr(at) if at else "the top"
    inner = node if isinstance(node, dict) else {}
    lists = [key for key, value in inner.items() if _are_rows(value)]
    if len(lists) == 1:
        above, node = [*above, node], node[lists[0]]
    if _are_rows(node):
        exported = any("times" in row for row in node) and all(isinstance(r.get("config"), dict) for r in node)
        flat = [{".".join(keys): leaf for keys, leaf in _leaves(row).items()} for row in node if not exported]
        rows = list(map(_record, node)) if exported else [ForeignResult(row, {}) for row in flat]
    else:
        leaves = _leaves({} if lists else inner)
        if len(set(map(len, leaves))) > 1 or not all(map(_is_number, leaves.values())):
            further = ", ".join(key for key, value in inner.items() if isinstance(value, dict | list))
            raise DataError(f"no rows at {where}; --at can go on to: {further or 'nothing'}")
        levels = [{f"level{i}": _field(key) for i, key in enumerate(keys, 1)} for keys in leaves]
        rows = [ForeignResult(level, {name: leaf}) for level, leaf in zip(levels, leaves.values(), strict=True)]
    told = [part[key] for part in above for key in DESCRIPTION if isinstance(part.get(key), str)]
    beside = {key: value for key, value in above[-1].items() if not isinstance(value, dict | list)}
    return Foreign(where, rows, {k: v for k, v in beside.items() if k not in DESCRIPTION}, "\n".join(told))


def _walk(document: Value, at: str) -> tuple[Value, list[dict[str, Value]], str]:
    node, name, held = document, "value", ""
    above: list[dict[str, Value]] = [{}]
    for part in at.split(".") if at else ():
        held = f"{held}.{part}" if held else part  # a name may contain dots itself
        if isinstance(node, dict) and held in node:
            above, node, name, held = [*above, node], node[held], held, ""
    if held:
        end, missing = at[: -len(held) - 1] or "the top", held.partition(".")[0]
        there = nearest(missing, node if isinstance(node, dict) else ())
        raise DataError(f"the path {at!r} ends at {end}: there is no {missing!r}; {there}")
    return node, above, name


def _are_rows(node: Value) -> bool:
    return isinstance(node, list) and bool(node) and all(isinstance(row, dict) for row in node)


def _is_number(value: Value) -> bool:
    return value is None or type(value) in (int, float)


def _leaves(node: Value, keys: tuple[str, ...] = ()) -> dict[tuple[str, ...], Value]:
    if not isinstance(node, dict) or not node:
        return {keys: node}
    return {path: leaf for key, value in node.items() for path, leaf in _leaves(value, (*keys, key)).items()}


def _record(record: dict[str, Value]) -> ForeignResult:
    parts = {name: record.get(name) or {} for name in ("last", "scores", "times")}
    measured = {name: value for part in parts.values() for name, value in part.items()}
    facts = {name: value for name, value in (record | measured).items() if name not in (*parts, "config")}
    values = {name: facts.pop(name) for name, value in measured.items() if _is_number(value)}
    return ForeignResult(dict(record["config"]), values, facts)


def _rename(places: Sequence[Foreign], rename: Mapping[str, str]) -> None:
    known = list(dict.fromkeys(name for place in places for name in place.columns()))
    for name in rename:
        if name not in known:
            raise DataError(f"--rename: there is no column {name!r}; {nearest(name, known)}")
    taken = {*known, *rename.values()}
    ours = {theirs: name for theirs, name in OURS.items() if name not in taken}
    names = {**ours, **rename}
    renamed = [names.get(name, name) for name in known]
    if len(set(renamed)) < len(renamed):
        raise DataError(f"--rename: two columns would have the same name, of: {', '.join(renamed)}")
    for place in places:
        for part in (place.shared, *(part for row in place.rows for part in (row.config, row.values))):
            items = [(names.get(name, name), value) for name, value in part.items()]
            part.clear()
            part.update(items)


def _measure(places: Sequence[Foreign], values: Sequence[str], further: Sequence[str]) -> None:
    known = {name for place in places for name in place.columns()}
    for option, names in (("--values", values), ("--minimize or --maximize", further)):
        for name in names:
            if name not in known:
                raise DataError(f"{option}: there is no column {name!r}; {nearest(name, known)}")
    for place in places:
        own = {name: 0 for row in place.rows for name in row.values}
        seen = {name: 0 for row in place.rows for name in row.config if MEASURED.search(name)}
        likely = [name for name in seen if all(_is_number(row.config.get(name)) for row in place.rows)]
        columns = place.columns()
        chosen = [name for name in values if name in columns] if values else list(own) or likely
        chosen += [name for name in further if name in columns and name not in chosen]
        if not chosen:
            raise DataError(f"{place.place} measures nothing; name its --values, of: {', '.join(columns)}")
        for number, row in enumerate(place.rows, 1):
            config = place.shared | row.config
            for name in chosen:
                value = row.values.get(name) if name in own else config.pop(name, None)
                if not _is_number(value):
                    raise DataError(f"row {number} of {place.place}: {name} is {value!r}, not a number")
                row.values[name] = None if value is None else float(value)
            row.facts |= {n: config.pop(n) for n in DESCRIPTION if not own and type(config.get(n)) is str}
            row.config, row.values = config, {name: row.values[name] for name in chosen}
        place.shared = {name: value for name, value in place.shared.items() if name not in chosen}


def _joined(first: Foreign, second: Foreign) -> Foreign:
    both = first.rows[0].values.keys() & second.rows[0].values.keys()
    if both:
        raise DataError(f"{first.place} and {second.place} both measure {', '.join(sorted(both))}")
    left, right = _by_config(first), _by_config(second)
    alone = [row.config for key, row in (left | right).items() if (key in left) != (key in right)]
    if alone:
        odd = ", ".join(sorted(first.rows[0].config.keys() ^ second.rows[0].config.keys())) or "none"
        raise DataError(f"{len(alone)} rows have no partner (columns of one side: {odd}), first {alone[0]}")
    for key, row in left.items():
        row.values |= right[key].values
        row.facts = right[key].facts | row.facts
    told = dict.fromkeys([*first.description.splitlines(), *second.description.splitlines()])
    return Foreign(first.place, first.rows, first.shared, "\n".join(told))


def _by_config(place: Foreign) -> dict[Hashable, ForeignResult]:
    found: dict[Hashable, ForeignResult] = {}
    twice = []
    for row in place.rows:
        # Python's own equality: 5 in one table is 5.0 in the other.
        key = frozenset((k, repr(v) if isinstance(v, list | dict) else v) for k, v in row.config.items())
        twice += [row.config] if found.setdefault(key, row) is not row else []
    if twice:
        raise DataError(f"{len(twice)} rows of {place.place} repeat a config; the first is {twice[0]}")
    return found
