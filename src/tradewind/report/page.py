"""The report: everything a run has to say in one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.analysis.findings import paper_beside, runs_beside
from tradewind.analysis.scaling import scaling
from tradewind.analysis.series import described
from tradewind.errors import Mistake, RunError
from tradewind.jsonfile import read_json
from tradewind.quantities import MISSING, duration, label_text, value_text
from tradewind.report.best import best_page
from tradewind.report.findings import findings_section
from tradewind.report.style import grid, preformatted, save, whole_page, words
from tradewind.report.view import (
    BLOCKS,
    COLUMNS,
    MOST_RANGES,
    ROWS,
    View,
    figure_of,
    figures,
    optimisation_history,
    view_of,
)
from tradewind.results import Results

MOST_TABLE = 400_000
MOST_REASONS = 20
SCALING = ("config", "devices", "seconds", "n", "speed-up", "efficiency", "time to target s")

Section = tuple[str, str]  # title, HTML


def report(results: Results, out: Path, sections: Sequence[tuple[str, str]] = ()) -> None:
    """Write the report; further sections (title, plain text), such as advice, come after the best config."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise Mistake(f"{out}: a report can't be a file ending in {out.suffix or 'nothing'!r}; allowed: .html")
    if not out.absolute().parent.is_dir():
        raise Mistake(f"{out}: there is no folder {out.absolute().parent}")
    view = view_of(results)
    study = results.folder.edition().get("study", {})
    before = figure_of(view, optimisation_history, "history")
    parts: list[Section] = [
        ("Best config", _best(results)),
        *([("Optimisation history", before)] if before else []),
        *((title, preformatted(text)) for title, text in sections),
    ]
    beside = paper_beside(results, runs_beside(results))
    parts += [findings_section(beside)] if beside else []
    if view.varied and view.measures:
        parts += [("Tables", "\n".join(_tables(view))), ("Figures", "\n".join(figures(view)))]
    parts += [
        ("Failed and pruned trials", _failures(results)),
        ("Machines", _machines(results)),
        (
            "The study",
            preformatted(json.dumps(study, indent=2, ensure_ascii=False)) if study else words("Imported results."),
        ),
    ]
    name = study.get("name") or results.folder.path.resolve().name
    save(out, whole_page(f"{name} · Tradewind", _body(results, name, study, parts)).encode(errors="replace"))


def _body(results: Results, name: str, study: dict[str, Any], parts: list[Section]) -> str:
    about = study.get("description", "")
    what = study.get("workload") or study.get("command")
    facts = [f"workload {what}"] if what else []
    facts += [f"purpose {study.get('purpose', 'tune')}"] if study else []
    facts += [f"run folder {results.folder.path}", *_span(results)]
    counts = [(f"{count:,}", state) for state, count in results.counts().items()]
    counts += [
        (f"{results.duplicates:,}", "duplicates, not used"),
        (f"{results.skipped_lines:,}", "damaged lines skipped"),
    ]
    cards = "".join(f'<div class="card"><b>{number}</b><span>{text}</span></div>' for number, text in counts)
    links = "".join(f'<a href="#s{k}">{html.escape(title)}</a>' for k, (title, _) in enumerate(parts))
    body = [
        f"<h1>{html.escape(label_text(name))}</h1>",
        words(about) if about else "",
        words(" · ".join(facts), "soft"),
        f'<div class="cards">{cards}</div>\n<nav>{links}</nav>',
    ]
    body += [
        f'<section><h2 id="s{k}">{html.escape(label_text(title))}</h2>\n{content}</section>'
        for k, (title, content) in enumerate(parts)
    ]
    return "\n".join(body)


def _span(results: Results) -> list[str]:
    if not len(results) or not {"started", "finished"} <= set(results.names()):
        return []
    first, last = results.column("started"), results.column("finished")
    if not (np.isfinite(first).any() and np.isfinite(last).any()):
        return []
    begin, end = float(np.nanmin(first)), float(np.nanmax(last))
    return [f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(begin))} UTC, {duration(end - begin)} from first to last"]


def _best(results: Results) -> str:
    try:
        return preformatted(best_page(results.best()))
    except RunError as error:
        return words(str(error))


def _tables(view: View) -> Iterator[str]:
    rows = next(iter(view.shown(ROWS)), None)
    columns = next((name for name in view.shown(COLUMNS) if name != rows), "state")
    by = next((name for name in view.shown(BLOCKS) if name not in (rows, columns)), None)
    places = [(rows, columns, by, measure) for measure in view.measures if rows]
    across = next(iter(view.shown(COLUMNS)), "state")
    places += [(name, across, None, view.measures[-1]) for name in view.ranges[:MOST_RANGES]]
    if not places:
        yield words(f"No table: every hyperparameter that varies takes more than {ROWS} values.")
    for down, side, block, measure in places:
        text = view.results.table(str(down), side, block, value=measure)._repr_html_()
        large = words(f"{measure}: too large to show")
        yield f'<div class="table">{text}</div>' if len(text) < MOST_TABLE else large
    yield from _by_devices(view)


def _by_devices(view: View) -> Iterator[str]:
    """What more devices gave, as measured."""
    time_name = view.time_by_devices
    if time_name is None:
        return
    found = scaling(view.results, time_name)
    if len({row.devices for row in found}) > 1:
        yield words(f"{time_name} by devices: medians; speed-up against one device with all else equal", "soft")
        yield grid(SCALING, [
            (
                described(row.config), str(row.devices), f"{row.seconds:.4g}", str(row.n), _number(row.speedup),
                MISSING if row.efficiency is None else f"{row.efficiency:.0%}", _number(row.to_target_s),
            )
            for row in found
        ])  # fmt: skip


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"


def _failures(results: Results) -> str:
    if not len(results):
        return words("No trial has ended yet.")
    states = results.column("state")
    rows = np.flatnonzero(states != "done")
    if not len(rows):
        return words("Every trial that ended is done.")
    reasons, trials = results.column("reason")[rows], results.column("trial")[rows]
    kinds: dict[tuple[str, str], list[int]] = {}
    for state, reason, trial in zip(states[rows], reasons, trials, strict=True):
        kinds.setdefault((state, label_text(reason)), []).append(int(trial))
    most = sorted(kinds.items(), key=lambda item: -len(item[1]))
    lines = [(state, reason[:500], f"{len(some):,}", str(some[0])) for (state, reason), some in most[:MOST_REASONS]]
    rest = len(most) - MOST_REASONS
    more = words(f"and {rest:,} other reasons", "soft") if rest > 0 else ""
    errors = [_error(results, some[0]) for (state, _), some in most[:3] if state == "failed"]
    return grid(("state", "reason", "trials", "for example trial"), lines) + more + "".join(errors)


def _error(results: Results, trial: int) -> str:
    error = results.record(trial).get("error") or {}
    text = str(error.get("traceback") or error.get("what") or "").strip()
    shown = f"<summary>The error of trial {trial}</summary>{preformatted(text[-4000:])}"
    return f"<details>{shown}</details>" if text else ""


def _machines(results: Results) -> str:
    found = []
    for path in results.folder.files(results.folder.machines, "json")[:100]:
        try:
            facts = read_json(path)
            found.append((path.stem, ", ".join(f"{name} {value_text(value)}" for name, value in facts.items())))
        except (Mistake, AttributeError):
            found.append((path.stem, "the file can't be read"))
    return grid(("machine", "facts"), found) if found else words("No machine facts were recorded.")
