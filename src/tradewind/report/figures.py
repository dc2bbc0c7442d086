"""Figures: lines with bands, heat maps, training curves and the Pareto front, drawn from plain values."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tradewind.analysis.series import CurveBand, Front, Line, caption, lumped_text, series
from tradewind.errors import Mistake
from tradewind.measures import is_time
from tradewind.pack import Value
from tradewind.quantities import label_text, value_text
from tradewind.report.style import INK, Tips, image, inline, safe, save, whole_page, with_unit
from tradewind.results import Results
from tradewind.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".html")
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", INK)  # Okabe and Ito's, for all eyes
MARKS = "osD^vPX"
MOST_TICKS = 12
MOST_NUMBERS = 240  # cells of a heat map that still have room for their value
Where = Literal["outside right upper", "outside lower center"]
Drawing = tuple["Figure", Tips]


def plot(results: Results, x: str, y: str, color: str | None, out: Path) -> None:
    """One figure of y along x, a line per value of `color`, as a PNG, SVG or HTML file."""
    _kind(out)
    for name in (x, y, *([color] if color else [])):
        results.column(name)
    lines = series(results, x, y, color)
    if not lines:
        raise Mistake(f"{results.folder.path}: no trial that is done has a value of {y}")
    n = [count for line in lines for count in line.n]
    over = lumped_text(results, [name for name in (x, color) if name])
    note = f"{over}median of {y} with least and greatest · {caption(results, [x, y], n)}"
    draw(lines, x, y, color, out, note, results.named(x) in results.ranges())


def draw(lines: Sequence[Line], x: str, y: str, color: str | None, out: Path, note: str, drawn: bool = False) -> None:
    """Draw lines into a file whose suffix says its kind; the note stands below."""
    kind = _kind(out)
    figure, tips = line_figure(lines, x, y, color, drawn)
    title = f"{y} by {x}" + (f" and {color}" if color else "")
    if kind == "html":
        svg = inline(figure, tips, "f", title)
        text = f"<figcaption>{html.escape(label_text(note))}</figcaption>"
        body = f"<h1>{html.escape(label_text(title))}</h1>\n<figure>{svg}{text}</figure>"
        return save(out, whole_page(title, body).encode())
    figure.suptitle(safe(title), color=INK, fontsize=12)
    figure.supxlabel(textwrap.fill(safe(note, 600), 110), color=INK, fontsize=7.5)
    return save(out, image(figure, kind))


def _kind(out: Path) -> str:
    if out.suffix.lower() not in KINDS:
        raise Mistake(
            f"{out}: a plot can't be a file ending in {out.suffix or 'nothing'!r}; allowed: {', '.join(KINDS)}"
        )
    return out.suffix.lower()[1:]


def line_figure(lines: Sequence[Line], x: str, y: str, color: str | None, drawn: bool = False) -> Drawing:
    """Medians along x as lines, from the least to the greatest as bands; as points where x was drawn from a range."""
    figure, (axes,) = canvas(1, 8.4, 4.4)
    places = _place(axes, [value for line in lines for value in line.x])
    tips: Tips = {}
    words = not all(_is_number(value) for line in lines for value in line.x)
    apart = words or drawn or len(places) > 40  # no line leads from word to word, nor through a random search
    for k, line in enumerate(lines):
        paint, at = PALETTE[k % len(PALETTE)], [places[repr(value)] for value in line.x]
        at = [place + 0.08 * (k - (len(lines) - 1) / 2) for place in at] if words else at
        style: dict[str, Any] = {"color": paint, "marker": MARKS[k % len(MARKS)], "markersize": 5, "gid": f"marks{k}"}
        dash = "none" if apart else ("-", "--", ":")[k // len(PALETTE) % 3]
        axes.plot(at, line.median, linestyle=dash, label=safe(line.label or y), **style)
        if apart:
            axes.vlines(at, line.low, line.high, color=paint, alpha=0.4, linewidth=1.5)
        else:
            axes.fill_between(at, line.low, line.high, color=paint, alpha=0.15, linewidth=0)
        points = zip(line.x, line.median, line.low, line.high, line.n, strict=True)
        about = f"{color} {line.label}\n" if color else ""
        tips[f"marks{k}"] = [
            f"{about}{x} {value_text(a)}\n{y} {b:.4g} ({c:.4g} – {d:.4g}, n = {n})" for a, b, c, d, n in points
        ]
    axes.set_xlabel(with_unit(x))
    axes.set_ylabel(with_unit(y))
    _scale(axes, y, [v for line in lines for v in (*line.low, *line.high)])
    if color:
        legend(figure, axes, safe(color), "outside right upper", 1)
    return figure, tips


def heat_figure(table: Table) -> Drawing:
    """A coloured cell for every pair of values, with its number where there is room."""
    import matplotlib
    from matplotlib.patches import Rectangle

    rows, columns, cells = table.row_labels, table.column_labels, table.blocks[0].cells
    figure, (axes,) = canvas(1, 8.4, min(10.0, 1.6 + 0.42 * len(rows)))
    known = [cell for line in cells for cell in line if cell is not None and math.isfinite(cell)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    colors, tips = matplotlib.colormaps["cividis"], Tips()
    for i, line in enumerate(cells):
        for j, cell in enumerate(line):
            if cell is None or not math.isfinite(cell):
                continue
            part = (cell - low) / (high - low) if high > low else 0.5
            gid = f"patch{i}-{j}"
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=colors(part), gid=gid))
            where = f"{table.rows} {value_text(rows[i])}\n{table.columns} {value_text(columns[j])}"
            tips[gid] = [f"{where}\n{table.value} {cell:.4g} (n = {table.blocks[0].counts[i][j]:,})"]
            if len(rows) * len(columns) <= MOST_NUMBERS:
                text = "#ffffff" if part < 0.55 else "#000000"
                axes.text(j, i, f"{cell:.4g}", ha="center", va="center", fontsize=8.5, color=text)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), [safe(value_text(v), 20) for v in columns])
    axes.set_yticks(range(len(rows)), [safe(value_text(v), 24) for v in rows])
    axes.grid(False)
    axes.set_xlabel(with_unit(table.columns))
    axes.set_ylabel(with_unit(table.rows))
    return figure, tips


def curve_figure(bands: Sequence[CurveBand]) -> Drawing:
    """Training curves with bands over repeats, by epoch and by second side by side."""
    figure, both = canvas(2, 10.5, 4.2 + 0.2 * math.ceil(len(bands) / 2))
    tips: Tips = {}
    for axes, name in zip(both, ("epoch", "elapsed_s"), strict=True):
        for k, band in reversed(list(enumerate(bands))):  # the best is drawn last, above the others
            at = band.epochs if name == "epoch" else band.seconds
            part = slice(None, None, max(1, len(at) // 300))
            paint, dash = PALETTE[(k + 1) % len(PALETTE)], ("-", "--", ":")[k // len(PALETTE) % 3]
            label, width, gid = (
                ("best: " if band.best else "") + band.label,
                2.6 if band.best else 1.2,
                f"patch-{name}{k}",
            )
            style: dict[str, Any] = {"linestyle": dash, "linewidth": width, "label": safe(label, 70), "gid": gid}
            axes.plot(at[part], band.median[part], color=paint, **style)
            axes.fill_between(at[part], band.low[part], band.high[part], color=paint, alpha=0.12, linewidth=0)
            tips[gid] = [
                f"{label}\n{band.metric} {band.median[-1]:.4g} after epoch {band.epochs[-1]} (n = {band.n[-1]})"
            ]
        axes.set_xlabel(with_unit(name))
    both[0].set_ylabel(with_unit(bands[0].metric))
    both[1].sharey(both[0])
    legend(figure, both[0], "", "outside lower center", 2)
    return figure, tips


def front_figure(front: Front) -> Drawing:
    """Time against score: every config a point, those that no other beats joined by steps."""
    figure, (axes,) = canvas(1, 8.4, 4.6)
    pairs = zip(front.labels, front.times, front.scores, front.n, strict=True)
    texts = [f"{label}\n{front.time} {a:.4g}\n{front.score} {b:.4g} (n = {n})" for label, a, b, n in pairs]
    k = front.on_front
    style: dict[str, Any] = {"linestyle": "none", "markersize": 4, "alpha": 0.55, "color": PALETTE[0]}
    axes.plot(front.times[k:], front.scores[k:], "o", gid="marks0", label="dominated", **style)
    axes.step(front.times[:k], front.scores[:k], where="post", color=PALETTE[1], linewidth=1.2)
    style = {"linestyle": "none", "markersize": 7, "color": PALETTE[1]}
    axes.plot(front.times[:k], front.scores[:k], "D", gid="marks1", label="Pareto-optimal", **style)
    axes.set_xlabel(with_unit(front.time))
    axes.set_ylabel(with_unit(front.score))
    if min(front.times, default=0) > 0 and max(front.times) > 20 * min(front.times):
        axes.set_xscale("log")
    legend(figure, axes, "", "outside right upper", 1)
    return figure, {"marks1": texts[:k], "marks0": texts[k:]}


def canvas(parts: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """An empty figure with so many axes side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    found = [figure.add_subplot(1, parts, k + 1) for k in range(parts)]
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(INK)
        axes.tick_params(which="both", colors=INK, labelsize=9)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        axes.grid(True, color=INK, alpha=0.12, linewidth=0.7)
        axes.set_axisbelow(True)
    return figure, found


def legend(figure: Figure, axes: Axes, title: str, where: Where, columns: int) -> None:
    """What the colours of some axes mean, beside or below them."""
    handles, labels = axes.get_legend_handles_labels()
    if where.endswith("center"):
        handles, labels = handles[::-1], labels[::-1]
    figure.legend(
        handles, labels, title=title or None, loc=where, ncols=columns, frameon=False, fontsize=8, labelcolor=INK
    ).get_title().set_color(INK)


def _scale(axes: Axes, name: str, values: list[float]) -> None:
    if not is_time(name) or not values or min(values) < 0:
        return
    if min(values) > 0 and max(values) > 50 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)  # a time cut off at the bottom looks like a larger difference


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place(axes: Axes, values: list[Value]) -> dict[str, float]:
    """Where each value stands on the x axis: numbers by size, evenly where they grow by factors, others in order."""
    distinct = {repr(value): value for value in values}
    numbers = sorted(v for v in distinct.values() if _is_number(v))
    if len(numbers) < len(distinct):
        axes.set_xlim(-0.5, len(distinct) - 0.5)
        axes.set_xticks(range(len(distinct)), [safe(value_text(v), 20) for v in distinct.values()])
        return {mark: float(k) for k, mark in enumerate(distinct)}
    if by_factors(numbers):
        axes.set_xscale("log")
    if len(numbers) <= MOST_TICKS:
        axes.set_xticks(numbers, [value_text(v) for v in numbers])
        axes.set_xticks([], minor=True)
    return {mark: float(v) for mark, v in distinct.items()}


def by_factors(numbers: Sequence[float]) -> bool:
    """Whether sorted numbers grow by factors, such as powers of 2 or 10, rather than by steps."""
    if len(numbers) < 3 or numbers[0] <= 0 or numbers[-1] < 4 * numbers[0]:
        return False
    steps = [b - a for a, b in pairwise(numbers)]
    factors = [math.log(b / a) for a, b in pairwise(numbers)]
    return max(factors) / min(factors) < max(steps) / min(steps)
