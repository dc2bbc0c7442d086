"""Whether a record whose line checks holds what records hold; a run folder may come from anybody."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.column_names import GROUPS, MEASURES

REQUIRED = {
    "key", "trial", "repeat", "seed", "data_seed", "state", "reason", "started", "finished", "attempt", *GROUPS,
}  # fmt: skip
NUMBERS = (
    "trial", "repeat", "seed", "data_seed", "started", "finished", "attempt", "packed_with", "epochs_run",
    "disturbed",
)  # fmt: skip
TEXTS = ("state", "reason", "purpose", "machine", "host")
OBJECTS = ("error", "log")
NUMBER = {int, float, type(None)}
LARGEST = 10**300  # of whole numbers: what floats can hold


def sound(record: Mapping[str, Any]) -> bool:
    """Whether everything in a record is of its kind."""
    if not record.keys() >= REQUIRED or not all(_named(record[group]) for group in GROUPS):
        return False
    lists = [value for value in record["times"].values() if type(value) is list]
    measures = [value for group in MEASURES for value in record[group].values() if type(value) is not list]
    if any(type(value) is list for group in ("scores", "last") for value in record[group].values()):
        return False
    numbers = [*measures, *(item for one in lists for item in one), *(record.get(name) for name in NUMBERS)]
    return (
        all(type(value) in NUMBER and _bounded(value) for value in numbers)
        and all(isinstance(record.get(name), str | None) for name in TEXTS)
        and all(isinstance(record.get(name), dict | None) for name in OBJECTS)
        and _bounded(record["config"])
    )


def sound_columns(columns: Mapping[str, Sequence[Any]], records: Sequence[Mapping[str, Any]]) -> bool:
    """The same of many records with the same names, by their columns: a fraction of the time."""
    first = records[0]
    if not first.keys() >= REQUIRED or not all(_named(first[group]) for group in GROUPS):
        return False
    for name, values in columns.items():
        if name in NUMBERS or name.partition(".")[0] in MEASURES:
            if not set(map(type, values)) <= NUMBER or math.inf in values or -math.inf in values:
                return False
        elif name in TEXTS and not set(map(type, values)) <= {str, type(None)}:
            return False
    return all({type(record.get(name)) for record in records} <= {dict, type(None)} for name in OBJECTS)


def _named(part: Any) -> bool:
    return isinstance(part, dict) and all(part)


def _bounded(value: Any) -> bool:
    """Whether numbers are such as floats can hold, however deep they lie."""
    if isinstance(value, int | float):
        return -LARGEST < value < LARGEST
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_bounded, inner))
