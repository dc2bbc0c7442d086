"""Runs beside each other, and beside the papers' numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tradewind.analysis.findings import paper_beside
from tradewind.dashboard.feed import Feed
from tradewind.dashboard.runs import summary
from tradewind.dashboard.views import Json, names_view
from tradewind.errors import Mistake
from tradewind.table import Table, figures

MOST_RUNS = 8
MOST_ROWS = 2000


def compare_view(feeds: list[Feed], rows: str, value: str, stat: str) -> Json:
    """One statistic along one hyperparameter, a column for each run, and its ratio to the first run."""
    if not 2 <= len(feeds) <= MOST_RUNS:
        raise Mistake(f"{len(feeds)} runs: allowed: 2 to {MOST_RUNS}")
    names = {feed.name: names_view(feed.ready()) for feed in feeds}
    common = _common(names, "hyperparameters")
    measures = _common(names, "measures")
    first = names[feeds[0].name]["first"]
    rows = rows or next((name for name in (first["x"], first["rows"], *common) if name in common), "")
    value = value or next((name for name in (first["score"], first["time"], *measures) if name in measures), "")
    found: Json = {
        "runs": [summary(feed) for feed in feeds], "common": common, "measures": measures, "rows": rows,
        "value": value, "stat": stat, "lines": [], "notes": {}, "papers": papers_view(feeds),
    }  # fmt: skip
    if rows and value:
        tables: dict[str, Table | str] = {feed.name: _table(feed, rows, value, stat) for feed in feeds}
        found["notes"] = {name: one if isinstance(one, str) else one.title() for name, one in tables.items()}
        found["lines"] = _beside([one if isinstance(one, Table) else None for one in tables.values()])
    return found


def _common(names: dict[str, Json], what: str) -> list[str]:
    lists = [[one["name"] if isinstance(one, dict) else one for one in some[what]] for some in names.values()]
    return [name for name in lists[0] if all(name in other for other in lists[1:])]


def _table(feed: Feed, rows: str, value: str, stat: str) -> Table | str:
    try:
        return feed.ready().table(rows, "state", value=value, stat=stat)
    except Mistake as mistake:
        return str(mistake)


def _beside(tables: list[Table | None]) -> list[Json]:
    """Label by label what each run has: value, text, n, and its ratio to the first."""
    cells: dict[str, list[dict[str, Any]]] = {}
    labels: dict[str, Any] = {}
    for number, table in enumerate(tables):
        if table is None:
            continue
        texts = figures([line[0] for line in table.blocks[0].cells])
        for label, line, counts, text in zip(
            table.row_labels, table.blocks[0].cells, table.blocks[0].counts, texts, strict=True
        ):
            mark = json.dumps(label)
            labels.setdefault(mark, label)
            row = cells.setdefault(mark, [{"value": None, "text": "–", "n": 0, "ratio": None} for _ in tables])
            row[number] = {"value": line[0], "text": text, "n": counts[0], "ratio": None}
    for row in cells.values():
        base = row[0]["value"]
        for cell in row[1:]:
            cell["ratio"] = cell["value"] / base if base and cell["value"] is not None else None
    marks = sorted(labels, key=lambda mark: _place(labels[mark]))
    return [{"label": labels[mark], "cells": cells[mark]} for mark in marks[:MOST_ROWS]]


def _place(label: Any) -> tuple[bool, float, str]:
    number = isinstance(label, int | float) and not isinstance(label, bool)
    return not number, float(label) if number else 0.0, str(label)


def papers_view(feeds: list[Feed]) -> list[Json]:
    """What the papers printed and found, for those runs that repeat one of their studies."""
    found = []
    for feed in feeds:
        others = [other.ready() for other in feeds if other is not feed]
        beside = paper_beside(feed.ready(), others)
        if beside is not None:
            found.append({"run": feed.name, **asdict(beside)})
    return found
