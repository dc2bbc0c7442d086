"""The report's figures as SVG files for the live page, with what must stand beside them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tradewind.analysis.costs import time_name
from tradewind.analysis.series import Line, caption, curves, front, heat, series
from tradewind.dashboard.feed import Feed
from tradewind.dashboard.selection import selected
from tradewind.errors import Mistake, nearest
from tradewind.report.figures import Drawing, curve_figure, front_figure, heat_figure, line_figure
from tradewind.report.style import INK, image
from tradewind.results import Results

LIGHT_INK = "#e6edf3"  # on a dark page
MOST_KEPT = 64
MOST_CELLS = 2500
MOST_PLACES = 2000
KINDS = ("line", "heat", "curves", "front")


@dataclass(frozen=True)
class Asked:
    """Which figure of which trials."""

    kind: str
    names: Mapping[str, str]  # x, y, color, rows, columns, value, time, score
    where: str = ""
    trials: tuple[int, ...] = ()

    def name(self, what: str) -> str:
        """A name that the figure can't do without."""
        if not self.names.get(what):
            raise Mistake(f"a figure of kind {self.kind} needs {what}")
        return self.names[what]


@dataclass(frozen=True)
class Picture:
    """A figure and its words."""

    title: str
    note: str
    svg: bytes

    def on(self, dark: bool) -> bytes:
        """The figure for a light or a dark page."""
        return self.svg.replace(INK.encode(), LIGHT_INK.encode()) if dark else self.svg


class Studio:
    """Draws one figure at a time, and keeps the latest: a picture is asked for twice, for its words and its lines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, Picture] = OrderedDict()

    def picture(self, feeds: list[Feed], asked: Asked) -> Picture:
        """The figure of one run, or of several beside each other."""
        key = (tuple((feed.name, feed.version) for feed in feeds), asked.kind, tuple(sorted(asked.names.items())),
               asked.where, asked.trials)  # fmt: skip
        if asked.kind not in KINDS:
            raise Mistake(f"no figure of kind {asked.kind!r}: {nearest(asked.kind, KINDS)}")
        with self._lock:
            if key not in self._kept:
                runs = {feed.name: selected(feed.ready(), asked.where, asked.trials) for feed in feeds}
                if not any(len(results) for results in runs.values()):
                    raise Mistake("no trial is left to draw")
                title, note, (figure, _) = _draw(runs, asked)
                figure.patch.set_alpha(0)
                for axes in figure.axes:
                    axes.patch.set_alpha(0)
                self._kept[key] = Picture(title, note, image(figure, "svg"))
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]


def _draw(runs: Mapping[str, Results], asked: Asked) -> tuple[str, str, Drawing]:
    if asked.kind == "line":
        return _lines(runs, asked)
    results = next(iter(runs.values()))
    return {"heat": _heat, "curves": _curves, "front": _front}[asked.kind](results, asked)


def _lines(runs: Mapping[str, Results], asked: Asked) -> tuple[str, str, Drawing]:
    """One measure along one hyperparameter; of several runs a line each."""
    x, y, color = asked.name("x"), asked.name("y"), asked.names.get("color") or None
    lines: list[Line] = []
    notes = []
    for name, results in runs.items():
        found = series(results, x, y, color if len(runs) == 1 else None) if len(results) else []
        lines += found if len(runs) == 1 else [replace(line, label=name) for line in found]
        about = caption(results, [x, y], [n for line in found for n in line.n]) if len(results) else "no trial"
        notes.append(about if len(runs) == 1 else f"{name}: {about}")
    if not lines:
        raise Mistake(f"no trial that is done has a value of {y}")
    if max(len(line.x) for line in lines) > MOST_PLACES:
        raise Mistake(f"{x} has too many values for a figure: choose another")
    color = color if len(runs) == 1 else "run"
    title = f"{y} by {x}" + (f" and {color}" if color else "")
    note = f"Median, and from least to greatest of all trials there. {'; '.join(notes)}"
    return title, note, line_figure(lines, x, y, color)


def _heat(results: Results, asked: Asked) -> tuple[str, str, Drawing]:
    table = heat(results, asked.name("rows"), asked.name("columns"), asked.name("value"))
    if len(table.row_labels) * len(table.column_labels) > MOST_CELLS:
        raise Mistake(f"more than {MOST_CELLS:,} cells are too many for a heat map: choose names with fewer values")
    return f"{table.value} over {table.rows} and {table.columns}", table.title(), heat_figure(table)


def _curves(results: Results, asked: Asked) -> tuple[str, str, Drawing]:
    bands = curves(results)
    if not bands:
        raise Mistake("no trial that is done has left a training curve")
    n = [count for band in bands for count in band.n]
    note = f"Median and range over repeats; the best and an even spread of the others, {len(bands)} configs"
    return "Training curves", f"{note}. {caption(results, ['elapsed_s'], n)}", curve_figure(bands)


def _front(results: Results, asked: Asked) -> tuple[str, str, Drawing]:
    metric, _ = results.objective()
    time, score = asked.names.get("time") or time_name(results) or "", asked.names.get("score") or metric
    if not time or not score or time == score:
        raise Mistake("a Pareto front needs a time and a score")
    found = front(results, time, score)
    if not found.times:
        raise Mistake(f"no config has both {time} and {score}")
    some = f", {len(found.times):,} of them shown" if len(found.times) < found.configs else ""
    note = f"Each point a config, means over repeats; {found.configs:,} configs{some}."
    note = f"{note} {caption(results, [time, score], found.n)}"
    return f"{score} against {time}: the Pareto front", note, front_figure(found)
