"""SQL over results: DuckDB in memory, without access to files, network or settings."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from tradewind.columns import Array
from tradewind.errors import Mistake
from tradewind.quantities import MISSING, label_text
from tradewind.results import Results
from tradewind.table import figures

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]
WHOLE = ("record", "config")  # 64 is a batch size; a time of 2.0 s stays a real number


def query(results: Results, sql: str) -> list[Row]:
    """The rows that a statement gives over the table `results`, whose columns are those of Results."""
    import duckdb

    connection = duckdb.connect(":memory:", config={"temp_directory": "", "python_enable_replacements": "false"})
    try:
        columns = _register(connection, results, sql)
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        try:
            connection.execute(sql)
            names = _distinct([entry[0] for entry in connection.description or []])
            rows = connection.fetchall() if names else []
        except duckdb.Error as error:
            message = " ".join(str(error).split("\n\nLINE ")[0].split())
            raise Mistake(f"query: {message}; columns of results: {', '.join(columns)}") from None
    finally:
        connection.close()
    return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def query_text(rows: list[Row]) -> str:
    """Rows as an aligned table."""
    if not rows:
        return "no rows\n"
    grid = [[label_text(name), *_shown([row[name] for row in rows])] for name in rows[0]]
    numbers = [all(isinstance(row[name], int | float | None) for row in rows) for name in rows[0]]
    widths = [max(map(len, column)) for column in grid]
    lines = []
    for cells in zip(*grid, strict=True):
        padded = zip(cells, widths, numbers, strict=True)
        lines.append("  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in padded).rstrip())
    return "\n".join(lines) + "\n"


def _shown(values: list[Any]) -> list[str]:
    if any(isinstance(value, float) for value in values) and all(isinstance(v, int | float | None) for v in values):
        return figures(values)
    return [MISSING if value is None else label_text(value) for value in values]


def _register(connection: duckdb.DuckDBPyConnection, results: Results, sql: str) -> list[str]:
    """Make the view `results`; returns its columns: those that are shown, and those whose full name is asked for."""
    import pandas as pd

    names = ["key", *results.names()]
    names += [column for column in results.full_names() if column not in names and f'"{column}"' in sql]
    shown = _distinct(names)
    parts: list[Any] = [results.keys()]
    casts = ["c0"]
    for k, name in enumerate(names[1:], start=1):
        whole = results.named(name) in results.names(*WHOLE)
        values, cast = _column(results.column(name) if len(results) else np.empty(0), whole)
        parts.append(values)
        casts.append(cast.format(f"c{k}"))
    frame = pd.DataFrame({f"c{k}": part for k, part in enumerate(parts)}, copy=False)
    connection.register("columns_of_results", frame)
    quoted = [f'{cast} as "{_quoted(name)}"' for cast, name in zip(casts, shown, strict=True)]
    connection.execute(f"create view results as select {', '.join(quoted)} from columns_of_results")
    return shown


def _column(values: Array, whole: bool) -> tuple[Any, str]:
    """A column as pandas holds it, and the SQL that makes plain values of it."""
    import pandas as pd

    if values.dtype != object:
        known = values[~np.isnan(values)]
        real = not whole or bool(np.any((known != np.floor(known)) | (np.abs(known) > 2**53)))
        return values, "case when isnan({0}) then null else {0}" + (" end" if real else "::bigint end")
    # Equal values are one object each, so that a million of them are told apart by address.
    _, first, codes = np.unique(
        np.fromiter(map(id, values.tolist()), np.int64, len(values)), return_index=True, return_inverse=True
    )
    items = [values[row] for row in first]
    if all(isinstance(item, bool | None) for item in items):
        return pd.array(values, dtype="boolean"), "{0}"
    if all(isinstance(item, int | None) and abs(item or 0) < 2**63 for item in items):
        return pd.array(values, dtype="Int64"), "{0}"
    texts = [None if item is None else item if isinstance(item, str) else label_text(item) for item in items]
    kinds = sorted({text for text in texts if text is not None})
    place = {text: code for code, text in enumerate(kinds)}
    final = np.array([-1 if text is None else place[text] for text in texts])[codes]
    return pd.Categorical.from_codes(final, pd.Index(kinds)), "{0}::varchar"


def _distinct(names: Iterable[str]) -> list[str]:
    """Names told apart without regard to case, as SQL does."""
    taken: set[str] = set()
    found = []
    for name in names:
        number, other = 1, name
        while other.lower() in taken:
            number += 1
            other = f"{name}_{number}"
        taken.add(other.lower())
        found.append(other)
    return found


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else str(value)
