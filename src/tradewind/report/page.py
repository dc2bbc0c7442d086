"""The report: everything a run has to say in one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.analysis.series import caption, configs, curves, front, heat, series, value_text
from tradewind.analysis.status import duration
from tradewind.errors import Mistake, RunError
from tradewind.jsonfile import read_json
from tradewind.report.figures import Drawing, curve_figure, front_figure, heat_figure, line_figure
from tradewind.report.pages import best_page
from tradewind.report.style import grid, inline, preformatted, save, whole_page, words
from tradewind.results import OF_A_PACK, Results
from tradewind.table import label_text

MOST_TABLE = 400_000
MOST_REASONS = 20
MOST_PLACES = 2000
ROWS, COLUMNS, BLOCKS = 40, 12, 6  # a table with more values than these is not read by anyone
TIMES = ("train_s", "wall_s", *OF_A_PACK)

Section = tuple[str, str]  # title, HTML


@dataclass(frozen=True)
class View:
    """What the report is about: measures and the hyperparameters that vary, those with most values first."""

    results: Results
    time: str | None
    score: str | None
    lower: bool
    varied: dict[str, int]

    @property
    def measures(self) -> list[str]:
        """The time and the objective, as far as there are any."""
        return [name for name in (self.time, self.score) if name]

    def shown(self, most: int) -> list[str]:
        """The hyperparameters with at most so many values."""
        return [name for name, count in self.varied.items() if count <= most]


def report(results: Results, out: Path, sections: Sequence[tuple[str, str]] = ()) -> None:
    """Write the report; further sections (title, plain text), such as advice, come after the best trial."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise Mistake(f"{out}: a report can't be a file ending in {out.suffix or 'nothing'!r}; allowed: .html")
    if not out.absolute().parent.is_dir():
        raise Mistake(f"{out}: there is no folder {out.absolute().parent}")
    view = _view(results)
    study = results.folder.edition().get("study", {})
    parts: list[Section] = [
        ("Best trial", _best(results)),
        *((title, preformatted(text)) for title, text in sections),
    ]
    if view.varied and view.measures:
        parts += [("Tables", "\n".join(_tables(view))), ("Figures", "\n".join(_figures(view)))]
    parts += [
        ("What did not end well", _failures(results)),
        ("Machines", _machines(results)),
        (
            "The study",
            preformatted(json.dumps(study, indent=2, ensure_ascii=False)) if study else words("Imported results."),
        ),
    ]
    name = study.get("name") or results.folder.path.resolve().name
    save(out, whole_page(f"{name} · Tradewind", _body(results, name, study, parts)).encode(errors="replace"))


def _view(results: Results) -> View:
    score, lower = results.objective()
    done = results.column("state") == "done" if len(results) else np.empty(0, dtype=bool)
    known = {name for name in results.names() if done.any()}
    packed = "packed_with" in known and bool(np.any(np.nan_to_num(results.column("packed_with")) > 0))
    times = OF_A_PACK if packed else (*TIMES, *results.names("times"))
    varied = configs(results).varied

    def measured(name: str) -> bool:
        return bool(np.isfinite(results.column(name)[done].astype(float)).any())

    return View(
        results,
        next((name for name in times if name in known and measured(name)), None),
        score if score in known and measured(score) else None,
        lower,
        dict(sorted(varied.items(), key=lambda item: -item[1])),
    )


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
    if rows is None:
        yield words(f"No table: every hyperparameter that varies takes more than {ROWS} values.")
        return
    for measure in view.measures:
        table = view.results.table(rows, columns, by, value=measure)
        text = table._repr_html_()
        large = words(f"{measure}: too large to show")
        yield f'<div class="table">{text}</div>' if len(text) < MOST_TABLE else large


def _figures(view: View) -> Iterator[str]:
    number = 0
    for draw in (_times, _heats, _curves, _front):
        for title, note, (figure, tips) in draw(view):
            number += 1
            svg = inline(figure, tips, f"f{number}", title)
            below = f"<b>{html.escape(label_text(title))}.</b> {html.escape(label_text(note))}"
            yield f"<figure>{svg}<figcaption>{below}</figcaption></figure>"


Drawn = Iterator[tuple[str, str, Drawing]]


def _times(view: View) -> Drawn:
    """The measures along the batch size, or along what has most values."""
    x = "batch_size" if "batch_size" in view.varied else next(iter(view.shown(ROWS)), next(iter(view.varied)))
    color = next((name for name in view.shown(BLOCKS) if name != x), None)
    if view.varied[x] > MOST_PLACES:
        return
    for measure in view.measures:
        lines = series(view.results, x, measure, color)
        n = [count for line in lines for count in line.n]
        note = f"Median, and from least to greatest of all trials there. {caption(view.results, [measure], n)}"
        title = f"{measure} by {x}" + (f" and {color}" if color else "")
        yield title, note, line_figure(lines, x, measure, color)


def _heats(view: View) -> Drawn:
    rows = next(iter(view.shown(ROWS)), None)
    columns = next((name for name in view.shown(2 * COLUMNS) if name != rows), None)
    if rows and columns:
        for measure in view.measures:
            table = heat(view.results, rows, columns, measure)
            yield f"{measure} over {rows} and {columns}", table.title(), heat_figure(table)


def _curves(view: View) -> Drawn:
    bands = curves(view.results)
    if bands:
        note = f"Median and range over repeats; the best and an even spread of the others, {len(bands)} configs"
        n = [count for band in bands for count in band.n]
        yield "Training curves", f"{note}. {caption(view.results, ['elapsed_s'], n)}", curve_figure(bands)


def _front(view: View) -> Drawn:
    if view.time and view.score and view.time != view.score:
        found = front(view.results, view.time, view.score, view.lower)
        some = f", {len(found.times):,} of them shown" if len(found.times) < found.configs else ""
        note = f"Each point a config, means over repeats; {found.configs:,} configs{some}."
        note = f"{note} {caption(view.results, [view.time, view.score], found.n)}"
        yield f"{view.score} against {view.time}: the Pareto front", note, front_figure(found)


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
    for path in sorted(results.folder.machines.glob("*.json"))[:100]:
        try:
            facts = read_json(path)
            found.append((path.stem, ", ".join(f"{name} {value_text(value)}" for name, value in facts.items())))
        except (Mistake, AttributeError):
            found.append((path.stem, "the file can't be read"))
    return grid(("machine", "facts"), found) if found else words("No machine facts were recorded.")
