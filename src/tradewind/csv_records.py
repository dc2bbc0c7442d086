"""A run's results as CSV: a column for each name, and a last one that holds the whole record: nothing is lost."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tradewind.column_names import Names
from tradewind.columns import naming
from tradewind.errors import DataError
from tradewind.journal import Record, is_record
from tradewind.results import Results
from tradewind.soundness import sound

RECORD = "record"  # no name of a hyperparameter or measure takes it: the column is the last one
NOT_COMPARED = ("key", "trial", RECORD)  # the position of a trial is that in the study as it stands


def write_csv(results: Results, path: Path) -> None:
    """One line per trial."""
    names = results.names()
    columns = [results.items(name) for name in names]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", *names, RECORD])
        for key, record, *row in zip(results.keys(), results.records(), *columns, strict=True):
            writer.writerow([key, *map(_cell, row), json.dumps(plain(record))])


def plain(record: Record) -> dict[str, Any]:
    """A record without what the journal adds to its line."""
    return {name: value for name, value in record.items() if name not in {"crc", "v", "kind"}}


def read_csv(path: Path) -> list[Record] | None:
    """The records of a CSV file that `export` has written; None for any other file.

    A cell that was edited since is an error: it and the record would say two things.
    """
    csv.field_size_limit(2**31 - 1)
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, strict=True)
        if not reader.fieldnames or reader.fieldnames[-1] != RECORD or reader.fieldnames[0] != "key":
            return None
        lines = [(reader.line_num, line) for line in reader]
    records = [_record(path, number, line.get(RECORD) or "") for number, line in lines]
    shown = Names.of({name for record in records for name in naming(record)}).shown
    for record, (number, line) in zip(records, lines, strict=True):
        for name, text in _cells(record, shown):
            if line.get(name, text) != text:
                raise DataError(
                    f"{path}, line {number}: {name} is {line[name]!r} in its column and {text!r} in the column "
                    f"{RECORD!r}; delete that column to import the others"
                )
    return records


def _record(path: Path, number: int, text: str) -> Record:
    try:
        found: Any = json.loads(text)
        if is_record(found) and sound(found):
            return dict(found)
    except (ValueError, RecursionError):
        pass
    raise DataError(f"{path}, line {number}: the column {RECORD!r} holds no record; delete it to import the others")


def _cells(record: Record, shown: dict[str, str]) -> Iterator[tuple[str, str]]:
    for full, (group, name) in naming(record).items():
        value = record[name] if group == "record" else record[group][name]
        if shown[full] not in NOT_COMPARED and isinstance(value, (str, int, bool)):
            yield shown[full], str(_cell(value))


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, dict)) else value
