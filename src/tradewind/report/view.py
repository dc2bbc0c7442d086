"""What a report shows of a run: its measures, its hyperparameters, and the figures drawn of them."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tradewind.analysis.augmentation import live_against_ahead
from tradewind.analysis.causes import causes
from tradewind.analysis.costs import time_name
from tradewind.analysis.effects import effects
from tradewind.analysis.groups import level_counts
from tradewind.analysis.history import history
from tradewind.analysis.matters import OF_SCORE, OF_TIME
from tradewind.analysis.prediction import forecast, scaling_curves
from tradewind.analysis.series import caption, curves, front, heat, lumped_text, series
from tradewind.analysis.shares import time_shares
from tradewind.binning import MOST_LEVELS
from tradewind.errors import Mistake
from tradewind.quantities import label_text
from tradewind.report.answers import (
    break_even_figure,
    effects_figure,
    history_figure,
    scaling_figure,
    shares_figure,
)
from tradewind.report.figures import Drawing, curve_figure, front_figure, heat_figure, line_figure
from tradewind.report.style import inline
from tradewind.results import OF_A_PACK, Results

MOST_PLACES = 2000
MOST_TRIALS = 100_000  # beyond these a fit over devices would take most of the time of a report
MOST_CURVES = 6
MOST_RANGES = 6
ROWS, COLUMNS, BLOCKS = 40, 12, 6  # a table with more values than these is not read by anyone
TIMES = ("train_s", "wall_s", *OF_A_PACK)

Drawn = Iterator[tuple[str, str, Drawing]]


@dataclass(frozen=True)
class View:
    """What the report is about: measures and the hyperparameters that vary, those with most values first."""

    results: Results
    time: str | None
    cost: str | None  # the time that advice weighs scores against
    score: str | None
    varied: dict[str, int]
    ranges: list[str]  # those of them that were drawn from a range: shown in bins or as points, one at a time

    @property
    def measures(self) -> list[str]:
        """The time and the objective, as far as there are any."""
        return [name for name in (self.time, self.score) if name]

    @property
    def time_by_devices(self) -> str | None:
        """The time that is compared by devices; None where they do not vary or trials have no time of their own."""
        several = "devices" in {name.removeprefix("config.") for name in self.varied}
        if not several or self.time in (None, *OF_A_PACK) or len(self.results) > MOST_TRIALS:
            return None
        return "wall_s" if "wall_s" in self.results.names("times") else self.time

    def shown(self, most: int) -> list[str]:
        """The hyperparameters with at most so many values."""
        return [name for name, count in self.varied.items() if count <= most and name not in self.ranges]


def view_of(results: Results) -> View:
    """What there is to show of a run."""
    score, _ = results.objective()
    done = results.decisive()
    known = {name for name in results.names() if done.any()}
    packed = "packed_with" in known and bool(np.any(np.nan_to_num(results.column("packed_with")) > 0))
    times = OF_A_PACK if packed else (*TIMES, *results.names("times"))
    varied = dict(sorted(level_counts(results).items(), key=lambda item: -item[1]))
    ranges = [name for name, count in varied.items() if name in results.ranges() and count > MOST_LEVELS]

    def measured(name: str) -> bool:
        return bool(np.isfinite(results.column(name)[done].astype(float)).any())

    time = next((name for name in times if name in known and measured(name)), None)
    cost = time_name(results)
    return View(
        results,
        time,
        cost if cost in known and measured(cost) else time,
        score if score in known and measured(score) else None,
        varied,
        ranges,
    )


def figures(view: View) -> Iterator[str]:
    """Every figure that a run has data for, as HTML."""
    for draw in (_times, _heats, _effects, _curves, _front, _shares, _devices, _break_even):
        yield figure_of(view, draw, draw.__name__.strip("_"))


def figure_of(view: View, draw: Callable[[View], Drawn], name: str) -> str:
    """What one of the drawers has to draw, as HTML; the name tells its parts from those of the others."""
    found = []
    for number, (title, note, (figure, tips)) in enumerate(draw(view)):
        svg = inline(figure, tips, f"{name}{number}", title)
        below = f"<b>{html.escape(label_text(title))}.</b> {html.escape(label_text(note))}"
        found.append(f"<figure>{svg}<figcaption>{below}</figcaption></figure>")
    return "\n".join(found)


def optimisation_history(view: View) -> Drawn:
    """What a search has reached, trial after trial."""
    found = history(view.results) if view.results.ranges() or view.results.searched() else None
    if found:
        early = sum(found.pruned)
        aside = f"; {early:,} of them pruned, with their last value" if early else ""
        note = f"Every trial a point, in the order in which they ended{aside}; the line is the best so far."
        yield "Optimisation history", note, history_figure(found)


def _times(view: View) -> Drawn:
    """The measures along every range, else along the batch size or what has most values."""
    most = "batch_size" if "batch_size" in view.varied else next(iter(view.shown(ROWS)), next(iter(view.varied)))
    for x in view.ranges[:MOST_RANGES] or [most]:
        if view.varied[x] > MOST_PLACES:
            continue
        color = next((name for name in view.shown(BLOCKS) if name != x), None)
        for measure in view.measures:
            yield _along(view, x, measure, color)


def _along(view: View, x: str, measure: str, color: str | None) -> tuple[str, str, Drawing]:
    lines = series(view.results, x, measure, color)
    n = [count for line in lines for count in line.n]
    over = lumped_text(view.results, [name for name in (x, color) if name])
    note = f"Median, and from least to greatest of all trials there. {over}{caption(view.results, [measure], n)}"
    title = f"{measure} by {x}" + (f" and {color}" if color else "")
    return title, note, line_figure(lines, x, measure, color, x in view.ranges)


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
    if view.cost and view.score and view.cost != view.score and view.results.direction(view.score):
        found = front(view.results, view.cost, view.score)
        some = f", {len(found.times):,} of them shown" if len(found.times) < found.configs else ""
        note = f"Each point a config, means over repeats; {found.configs:,} configs{some}."
        note = f"{note} {caption(view.results, [view.cost, view.score], found.n)}"
        yield f"{view.score} against {view.cost}: the Pareto front", note, front_figure(found)


def _effects(view: View) -> Drawn:
    found = [effects(view.results, measure) for measure in (view.cost, view.score) if measure]
    found = [one for one in found if one.main and any(part.share > 0 for part in one.main)]
    if found:
        ways = " ".join(f"{one.value}: {one.method}. {_beyond_chance(view, one.value)}" for one in found)
        note = f"How much of the variance each hyperparameter, and each pair beyond its two names, explains. {ways}"
        yield "What matters", note, effects_figure(found)


def _beyond_chance(view: View, value: str) -> str:
    """Which of the shares are more than chance makes, by the rule of `advise`."""
    part = OF_TIME if view.results.is_time(value) else OF_SCORE
    named = [" and ".join(cause.names) for cause in causes(view.results, value, part).named]
    return f"More than chance makes: {', '.join(named)}." if named else "None of these is more than chance makes."


def _shares(view: View) -> Drawn:
    by, bars = time_shares(view.results)
    if bars:
        note = "Means over the trials that are done; exchange may go on while computing does, and counts as exchange."
        note = f"{note} {caption(view.results, ['train_s'], [bar.n for bar in bars])}"
        yield "Where the time goes" + (f" by {by}" if by else ""), note, shares_figure(by, bars)


def _devices(view: View) -> Drawn:
    if view.time_by_devices is None:
        return
    found = forecast(view.results, view.time_by_devices)
    lines = scaling_curves(found, MOST_CURVES)
    if lines:
        note = "Points are measured, lines fitted, bands hold 80 %; beyond a bar across a line more devices gain less"
        note = f"{note} than 5 %. {caption(view.results, [found.value], [row.n for row in found.rows])}"
        yield f"{found.value} by devices, measured and fitted", note, scaling_figure(found.value, lines)


def _break_even(view: View) -> Drawn:
    try:
        found = live_against_ahead(view.results)
    except Mistake:  # trained in packs
        return
    if found and found.prepare_s is not None:
        even = found.break_even_epochs
        ends = "; preparing never pays" if even is None else f"; preparing pays from {even:.3g} epochs on"
        note = f"Medians over {found.pairs} pairs of trials that differ in nothing else{ends}."
        note = f"{note} {caption(view.results, ['prepare_s'], [found.pairs])}"
        yield "Augmentation live against ahead of time", note, break_even_figure(found)
