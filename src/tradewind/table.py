"""A table of results: grouped in one pass over columns, then shown as text, Markdown, CSV, JSON or LaTeX."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tradewind.errors import Mistake, nearest
from tradewind.pack import Value
from tradewind.quantities import MISSING, label_text, value_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Columns = Mapping[str, "Array | Coded"]

STATS = ("mean", "median", "min", "max", "std", "n")
FORMATS = ("text", "markdown", "csv", "json", "latex")
MOST_CELLS = 1_000_000
MARKDOWN = str.maketrans({"|": r"\|", "<": "&lt;"})
LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"})
LATEX |= str.maketrans({"\\": r"\textbackslash{}", "~": r"\~{}", "^": r"\^{}", "[": "{[}", "–": "--"})


@dataclass(frozen=True)
class Block:
    """The cells of one value of `by`, and how many measurements each stands for."""

    label: Value
    cells: list[list[float | None]]
    counts: list[list[int]]


@dataclass(frozen=True)
class Table:
    """One statistic of one measure over rows × columns, a block per value of `by`."""

    value: str
    stat: str
    rows: str
    columns: str
    by: str | None
    row_labels: list[Value]
    column_labels: list[Value]
    blocks: list[Block]
    note: str = ""
    over: str = ""  # the hyperparameters that a cell lumps together

    def render(self, format: str) -> str:
        """The table in one of FORMATS."""
        if format not in FORMATS:
            raise Mistake(f"unknown table format {format!r}: {nearest(format, FORMATS)}")
        return str(getattr(self, format)())

    def title(self) -> str:
        """What is shown, from how many measurements, and the note."""
        counts = {n for block in self.blocks for line in block.counts for n in line if n} or {0}
        spread = "–".join(str(n) for n in sorted({min(counts), max(counts)}))
        many = (
            f"of {spread} {'trial' if spread == '1' else 'trials'} over {self.over}"
            if self.over
            else f", n = {spread}"
        )
        stat = "n" if self.stat == "n" else f"{self.stat}{' ' if self.over else ''}{many}"
        note = f" · {' '.join(self.note.split())}" if self.note else ""
        return label_text(f"{self.value} ({stat}){note}")

    def text(self) -> str:
        """Right-aligned plain text, block under block as in the papers."""
        lines = [self.title()]
        for heading, grid in self._grids():
            widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
            lines += ["", heading] if heading else [""]
            lines += ["  ".join(map(str.rjust, line, widths)) for line in grid]
        return "\n".join(lines) + "\n"

    __str__ = text

    def markdown(self) -> str:
        """One pipe table per block."""
        parts = [self.title().translate(MARKDOWN)]
        for heading, grid in self._grids():
            head, *lines = ["| " + " | ".join(c.translate(MARKDOWN) for c in line) + " |" for line in grid]
            parts += [f"**{heading.translate(MARKDOWN)}**"] if heading else []
            parts.append("\n".join([head, "|" + " ---: |" * len(grid[0]), *lines]))
        return "\n\n".join(parts) + "\n"

    def csv(self) -> str:
        """One line per cell, unrounded: by, row, column, value and n under their own names."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*([] if self.by is None else [self.by]), self.rows, self.columns, self.value, "n"])
        for block in self.blocks:
            first = [] if self.by is None else [block.label]
            for row, cells, counts in zip(self.row_labels, block.cells, block.counts, strict=True):
                for column, cell, n in zip(self.column_labels, cells, counts, strict=True):
                    labels = [v if v is None else label_text(v) for v in (*first, row, column)]
                    writer.writerow([*labels, _short(cell), n])
        return out.getvalue()

    def json(self) -> str:
        """Labels, unrounded cells and n of every block; a cell without data is null."""
        labels = {"rows": self.row_labels, "columns": self.column_labels}
        cells = [[list(map(_short, line)) for line in block.cells] for block in self.blocks]
        each = zip(self.blocks, cells, strict=True)
        blocks = [{"label": b.label, **labels, "cells": shown, "n": b.counts} for b, shown in each]
        names = {name: getattr(self, name) for name in ("value", "stat", "rows", "columns", "by")}
        return json.dumps({**names, "blocks": blocks, "note": self.note}, ensure_ascii=False) + "\n"

    def latex(self) -> str:
        """One booktabs tabular per block."""
        parts = [self.title().translate(LATEX) + r"\par"]
        for heading, grid in self._grids():
            head, *lines = [" & ".join(c.translate(LATEX) for c in line) + r" \\" for line in grid]
            wide = rf"\multicolumn{{{len(grid[0])}}}{{l}}{{{heading.translate(LATEX)}}} \\"
            begin = [rf"\begin{{tabular}}{{{'r' * len(grid[0])}}}", r"\toprule"]
            begin += [wide, r"\midrule", head] if heading else [head]
            parts.append("\n".join([*begin, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]))
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self.title())}</p>"]
        for heading, grid in self._grids():
            head, *lines = [[html.escape(c) for c in line] for line in grid]
            body = "".join(f"<tr><th>{a}</th><td>{'</td><td>'.join(cells)}</td></tr>" for a, *cells in lines)
            top = f"<caption>{html.escape(heading)}</caption><tr><th>{'</th><th>'.join(head)}</th></tr>"
            parts.append(f"<table>{top}{body}</table>")
        return "\n".join(parts)

    def _grids(self) -> Iterator[tuple[str, list[list[str]]]]:
        shown = iter(figures([cell for block in self.blocks for line in block.cells for cell in line]))
        rows, columns = _labels(self.row_labels), _labels(self.column_labels)
        names = [label_text(f"{self.rows} \\ {self.columns}"), *columns]
        for label in _labels([block.label for block in self.blocks]):
            lines = [[row, *(next(shown) for _ in columns)] for row in rows]
            heading = "" if self.by is None else f"{label_text(self.by)} = {label}"
            yield heading, [names, *lines]


def _labels(labels: Sequence[Value]) -> list[str]:
    """Labels with four digits, or with all where four do not tell them apart."""
    short = [value_text(label) for label in labels]
    return short if len(set(short)) == len(short) else [label_text(label) for label in labels]


def figures(values: Sequence[float | None]) -> list[str]:
    """Numbers as text with equal decimals: every digit if four decimals hold them, else about four digits."""
    sizes = sorted(abs(v) for v in values if v is not None and math.isfinite(v) and v != 0)
    decimals = next((d for d in range(5) if all(abs(round(v, d) - v) <= 1e-11 * v for v in sizes)), None)
    if decimals is None:
        # Rounding noise beside real values must not set the digits of the whole table.
        typical = [v for v in sizes if v >= 1e-6 * sizes[-1]]
        exponent = math.floor(math.log10(typical[len(typical) // 10]))
        decimals = max(0, min(3 - exponent, max(4, 2 - exponent)))
    form = f"z.{decimals}f" if decimals < 9 and max(sizes, default=0) < 1e15 else ".4g"
    return [MISSING if v is None or v != v else format(v, form) for v in values]


def _short(value: Value) -> Value:
    # JSON and CSV hold neither NaN nor infinity as numbers, and 128.0 was 128 in the study.
    if isinstance(value, float) and not math.isfinite(value):
        return None if value != value else str(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


@dataclass(frozen=True)
class Coded:
    """A column as codes into a list of values (-1: none), which need not be looked at one by one."""

    codes: Array
    values: Sequence[Value]
    ordered: bool = False  # the values stand in their order


def tabulate(
    data: Columns, *, rows: str, columns: str, by: str | None, value: str, stat: str, note: str = "",
    over: str = "",
) -> Table:  # fmt: skip
    """Group equally long columns by (by, rows, columns) and take one statistic of `value` in every group."""
    for name in (rows, columns, value, *([] if by is None else [by])):
        if name not in data:
            raise Mistake(f"there is no column {name!r}: {nearest(name, data)}")
    if stat not in STATS:
        raise Mistake(f"unknown statistic {stat!r}: {nearest(stat, STATS)}")
    block_codes, block_labels = (0, [None]) if by is None else codes_of(data[by])
    row_codes, row_labels = codes_of(data[rows])
    column_codes, column_labels = codes_of(data[columns])
    shape = (len(block_labels), len(row_labels), len(column_labels))
    if math.prod(shape) > MOST_CELLS:
        raise Mistake(f"{' × '.join(map(str, shape))} cells are too many: choose columns with fewer values")
    group = (block_codes * shape[1] + row_codes) * shape[2] + column_codes
    both = _statistic(numbers_of(value, data[value]), group, math.prod(shape), stat)
    parts = zip(block_labels, *(part.reshape(shape).tolist() for part in both), strict=True)
    blocks = [Block(a, [[None if c != c else c for c in line] for line in some], n) for a, some, n in parts]
    return Table(value, stat, rows, columns, by, row_labels, column_labels, blocks, note, over)


def codes_of(column: Array | Coded) -> tuple[Array, list[Value]]:
    """A column as codes into its labels in order."""
    import numpy as np

    if isinstance(column, Coded):
        used, codes = np.unique(column.codes, return_inverse=True)
        kept: list[Value] = [None if code < 0 else column.values[code] for code in used.tolist()]
        places = sorted(
            range(len(kept)), key=lambda k: (kept[k] is None, k) if column.ordered else _order(_identity(kept[k]))
        )
        return np.argsort(places)[codes], [_short(kept[k]) for k in places]
    if column.dtype.kind in "fiu":
        numbers, codes = np.unique(column.astype(float), return_inverse=True)
        return codes, list(map(_short, numbers.tolist()))
    items = column.tolist()
    # Keys of their own cost half a second per million; only lists, 1 beside True, and NaN need them.
    keys = items if set(map(type, items)) - {type(None)} in ({str}, {bool}) else list(map(_identity, items))
    labels = {key: key for key in set(keys)} if keys is items else dict(zip(keys, items, strict=True))
    ordered = sorted(labels, key=_order)
    place = {key: code for code, key in enumerate(ordered)}
    codes = np.fromiter(map(place.__getitem__, keys), np.intp, len(keys))
    return codes, [_short(labels[key]) for key in ordered]


def _identity(item: Value) -> Value:
    kind = type(item)
    return (kind, repr(item)) if kind in (list, bool, dict) else item if item == item else None


def _order(key: Value) -> tuple[int, float, list[Any]]:
    # Numbers by size; text with the numbers in it by size; then truth values and lists; nothing last.
    if key is None or isinstance(key, int | float):
        return (3, 0, []) if key is None else (0, key, [])
    parts = re.split(r"(\d{1,18})", key if isinstance(key, str) else key[1])
    return (1 if isinstance(key, str) else 2), 0, [int(p) if i % 2 else p for i, p in enumerate(parts)]


def numbers_of(name: str, column: Array | Coded) -> Array:
    """A column as floats, NaN where there is none; anything but numbers is refused."""
    import numpy as np

    if isinstance(column, Coded):
        column = np.array([*column.values, None], dtype=object)[column.codes]
    if column.dtype.kind not in "fiub":
        for item in column.tolist():
            if not isinstance(item, int | float | None):
                raise Mistake(f"{name!r} can't be the value of a table: it holds {label_text(item)}")
    return column.astype(float)


def _statistic(values: Array, group: Array, size: int, stat: str) -> tuple[Array, Array]:
    import numpy as np

    kept = ~np.isnan(values)
    values, group = values[kept], group[kept]
    counts = np.bincount(group, minlength=size)
    cells = counts.astype(float) if stat == "n" else np.full(size, np.nan)
    if stat in ("min", "max"):
        (np.fmin if stat == "min" else np.fmax).at(cells, group, values)
    elif stat == "median":
        # Two sorts, the second a radix sort of short codes: 4 times as fast as one sort by both.
        order = np.argsort(values)
        order = order[np.argsort(group[order].astype(np.min_scalar_type(size)), kind="stable")]
        ordered, some = values[order], counts > 0
        start, n = (np.cumsum(counts) - counts)[some], counts[some]
        cells[some] = (ordered[start + (n - 1) // 2] + ordered[start + n // 2]) / 2
    elif stat in ("mean", "std"):
        with np.errstate(all="ignore"):
            cells = np.bincount(group, values, size) / counts
            if stat == "std":
                squares = np.bincount(group, (values - cells[group]) ** 2, size)
                cells = np.where(counts < 2, np.nan, np.sqrt(squares / (counts - 1)))
    return cells, counts
