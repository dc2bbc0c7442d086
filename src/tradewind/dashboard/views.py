"""What the pages of one run show, as plain values: its names, its trials, a table, failures, advice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tradewind.analysis.advice import advise
from tradewind.analysis.costs import time_name
from tradewind.analysis.groups import level_counts, levels
from tradewind.columns import Array
from tradewind.dashboard.feed import Feed
from tradewind.dashboard.progress import Span
from tradewind.dashboard.runs import summary
from tradewind.dashboard.selection import selected
from tradewind.errors import Mistake, nearest
from tradewind.jsonfile import read_json
from tradewind.results import Results
from tradewind.table import STATS, codes_of, figures

ROWS, COLUMNS, BLOCKS = 40, 12, 6  # a table with more values than these is not read by anyone
MOST_CELLS = 20_000
MOST_PAGE = 500
MOST_COLUMNS = 40
MOST_REASONS = 30
MOST_RUNNING = 256
MOST_TEXT = 20_000
Json = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """Which of the trials, in which order, and which of their columns."""

    where: str = ""
    trials: tuple[int, ...] = ()
    sort: str = "trial"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    columns: tuple[str, ...] = ()


def names_view(results: Results) -> Json:
    """Which hyperparameters vary, what was measured, and what is shown first."""
    groups = {group: results.names(group) for group in ("config", "times", "scores", "last", "record")}
    varied = dict(sorted(level_counts(results).items(), key=lambda item: -item[1]))
    shown = list(varied)
    score, lower = results.objective()
    rows = next((name for name in shown if varied[name] <= ROWS), None)
    columns = next((name for name in shown if varied[name] <= COLUMNS and name != rows), "state")
    by = next((name for name in shown if varied[name] <= BLOCKS and name not in (rows, columns)), None)
    x = "batch_size" if "batch_size" in varied else rows
    first: Json = {
        "rows": rows, "columns": columns, "by": by, "x": x, "score": score, "lower": lower,
        "time": time_name(results) if len(results) else None,
        "color": next((name for name in shown if varied[name] <= BLOCKS and name != x), None),
    }  # fmt: skip
    example = next((name for name in shown if name.isidentifier()), None)
    first["example"] = f"{example} == {json.dumps(levels(results, example)[1][0])}" if example else 'state == "done"'
    return {
        "hyperparameters": [{"name": name, "values": varied.get(name, 1)} for name in groups["config"]],
        "measures": [*groups["scores"], *groups["times"], *groups["last"], *_numeric(results, groups["record"])],
        "columns": [name for some in groups.values() for name in some], "stats": list(STATS), "first": first,
    }  # fmt: skip


def _numeric(results: Results, names: list[str]) -> list[str]:
    wanted = (
        "peak_memory_bytes",
        "peak_gpu_memory_bytes",
        "communication_s",
        "bytes_exchanged",
        "wait_s",
        "utilisation",
        "devices",
    )
    return [name for name in wanted if name in names and results.column(name).dtype.kind == "f"]


def run_view(feed: Feed) -> Json:
    """What a run is, and all that the first look at it needs."""
    results = feed.ready()
    study = feed.edition.get("study", {})
    machines = {}
    for path in feed.folder.files(feed.folder.machines, "json")[:100]:
        try:
            machines[path.stem] = read_json(path)
        except Mistake:
            machines[path.stem] = {"": "the file can't be read"}
    return {
        "summary": summary(feed), "study": study, "machines": machines, "names": names_view(results),
        "duplicates": results.duplicates, "ended": len(results), **live_view(feed, 0),
    }  # fmt: skip


def live_view(feed: Feed, after: int) -> Json:
    """Who trains what now, and the bars of the timeline that are newer than `after`."""
    with feed.lock:
        running = sorted(feed.running.values(), key=lambda one: one.trial)[:MOST_RUNNING]
        spans = [span for span in feed.spans if span.number > after]
        return {
            "running": [
                {"trial": one.trial, "attempt": one.attempt, "at": one.at, "worker": one.worker, "job": one.owner,
                 "epoch": one.epoch, "scores": one.scores, "waiting": one.waiting}
                for one in running
            ],
            "spans": [[s.number, s.lane, s.trial, s.state, s.started, s.finished] for s in spans],
            "lanes": lanes(list(feed.spans)),
        }  # fmt: skip


def lanes(spans: Sequence[Span]) -> list[Json]:
    """For every worker: how many of the latest trials it had, and which share of that time it was idle."""
    by_lane: dict[str, list[Span]] = {}
    for span in spans:
        by_lane.setdefault(span.lane, []).append(span)
    found = []
    for lane, some in sorted(by_lane.items()):
        some.sort(key=lambda span: span.started)
        busy, until = 0.0, some[0].started
        for span in some:  # trials of a pack lie above each other: the time of all of them counts once
            busy += max(0.0, span.finished - max(until, span.started))
            until = max(until, span.finished)
        whole = until - some[0].started
        found.append({"lane": lane, "trials": len(some), "span_s": whole, "idle": 1 - busy / whole if whole else 0.0})
    return found


def trials_view(feed: Feed, page: Page) -> Json:
    """One page of the trials that a condition holds for, sorted by any column."""
    everything = feed.ready()
    results = selected(everything, page.where, page.trials)
    known = ["trial", *results.names()]
    for name in (page.sort, *page.columns):
        if name not in known:
            raise Mistake(f"there is no column {name!r}: {nearest(name, known)}")
    columns = list(page.columns[:MOST_COLUMNS])
    order = _order(results, page.sort, page.descending)
    rows = order[max(0, page.offset) : max(0, page.offset) + max(1, min(page.limit, MOST_PAGE))]
    values = [_plain(results.column(name)[rows]) for name in columns] if len(results) else [[] for _ in columns]
    return {
        "all": len(everything), "matched": len(results), "offset": page.offset, "columns": columns,
        "rows": [list(row) for row in zip(*values, strict=True)],
    }  # fmt: skip


def _order(results: Results, name: str, descending: bool) -> Array:
    if not len(results):
        return np.empty(0, dtype=int)
    column = results.coded(name, np.ones(len(results), dtype=bool))
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        values = column
        none = np.isnan(values)
    else:
        codes, labels = codes_of(column)
        values, none = codes, np.isin(codes, [k for k, label in enumerate(labels) if label is None])
    order = np.argsort(-values if descending else values, kind="stable")
    return np.concatenate([order[~none[order]], order[none[order]]])  # what has no value comes last, either way


def _plain(column: Array) -> list[Any]:
    whole = column.dtype.kind == "f" and bool(np.all(np.isnan(column) | (column == np.round(column))))
    items = column.tolist()
    if column.dtype.kind != "f":
        return [_for_a_browser(item) for item in items]
    return [None if x != x else int(x) if whole and abs(x) < 2**53 else x for x in items]


def _for_a_browser(item: Any) -> Any:
    """Text cut short, and whole numbers that JavaScript can't hold as text."""
    if isinstance(item, str):
        return item[:500]
    return str(item) if type(item) is int and abs(item) > 2**53 else item


def table_view(feed: Feed, names: Json, where: str, trials: tuple[int, ...]) -> Json:
    """A table with any hyperparameter as rows, columns and blocks; cells as numbers and as text, with n."""
    results = selected(feed.ready(), where, trials)
    if not len(results):
        raise Mistake("no trial is left: the condition holds for none")
    table = results.table(names["rows"], names["columns"], names["by"] or None, names["value"], names["stat"])
    size = len(table.blocks) * len(table.row_labels) * len(table.column_labels)
    if size > MOST_CELLS:
        raise Mistake(f"{size:,} cells are too many for a page: choose names with fewer values")
    texts = iter(figures([cell for block in table.blocks for line in block.cells for cell in line]))
    found: Json = json.loads(table.json())
    for block in found["blocks"]:
        block["texts"] = [[next(texts) for _ in line] for line in block["cells"]]
    return {**found, "title": table.title(), "matched": len(results)}


def failures_view(feed: Feed) -> Json:
    """What did not end well, by reason, most frequent first, each with the traceback of one."""
    results = feed.ready()
    if not len(results):
        return {"kinds": [], "more": 0}
    states = results.column("state")
    rows = np.flatnonzero(states != "done")
    reasons = results.column("reason")[rows] if "reason" in results.names() else np.full(len(rows), "")
    trials = results.column("trial")[rows]
    kinds: dict[tuple[str, str], list[int]] = {}
    for state, reason, trial in zip(states[rows].tolist(), reasons.tolist(), trials.tolist(), strict=True):
        kinds.setdefault((str(state), str(reason or "")), []).append(int(trial))
    most = sorted(kinds.items(), key=lambda item: -len(item[1]))
    found = [
        {"state": state, "reason": reason[:500], "n": len(some), "trials": some[:10], **error_of(results, some[0])}
        for (state, reason), some in most[:MOST_REASONS]
    ]
    return {"kinds": found, "more": max(0, len(most) - MOST_REASONS)}


def error_of(results: Results, trial: int) -> Json:
    """The traceback of a trial, and the end of what it wrote to standard error."""
    error = results.record(trial).get("error")
    if not isinstance(error, dict):
        return {"traceback": "", "stderr": ""}
    text = str(error.get("traceback") or error.get("what") or "").strip()
    return {"traceback": text[-MOST_TEXT:], "stderr": str(error.get("stderr") or "")[-MOST_TEXT:]}


def advice_view(feed: Feed) -> Json:
    """What the run says about how to train, as `tradewind advise`."""
    return {"advice": [item.plain() for item in advise(feed.ready())]}
