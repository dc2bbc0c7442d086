"""Figures of what analysis answers: what matters, where the time goes, what devices give, when preparing pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tradewind.analysis.augmentation import LiveAgainstAhead
from tradewind.analysis.effects import BALANCED, Effects
from tradewind.analysis.history import History
from tradewind.analysis.prediction import ScalingCurve
from tradewind.analysis.series import described
from tradewind.analysis.shares import TimeShares
from tradewind.quantities import quantity, value_text
from tradewind.report.best import better_text
from tradewind.report.figures import MARKS, PALETTE, Drawing, canvas, legend
from tradewind.report.style import INK, Tips, safe, with_unit

MOST_SOURCES = 14
SMALLEST = 0.005  # a share below this has no bar worth its line


def history_figure(found: History) -> Drawing:
    """A point for every trial in the order in which they ended, and the best so far as a line."""
    figure, (axes,) = canvas(1, 8.4, 4.2)
    at, tips = range(1, len(found.values) + 1), Tips()
    for early, mark, label in ((False, "o", "done"), (True, "x", "pruned: last value")):
        rows = [k for k, pruned in enumerate(found.pruned) if pruned == early]
        if rows:
            gid, x, y = f"marks{int(early)}", [at[k] for k in rows], [found.values[k] for k in rows]
            axes.plot(x, y, mark, color=PALETTE[0], alpha=0.6, markersize=5, linestyle="none", label=label, gid=gid)
            tips[gid] = [f"trial {found.trials[k]}\n{quantity(found.metric, found.values[k])}" for k in rows]
    best = [float("nan") if value is None else value for value in found.best]
    axes.step(at, best, where="post", color=PALETTE[1], linewidth=1.8, label="best so far")
    axes.set_xlabel("trials, as they ended")
    axes.set_ylabel(f"{with_unit(found.metric)}, {better_text(found.lower)}")
    low, high = min(found.values), max(found.values)
    if low > 0 and high > 100 * low:
        axes.set_yscale("log")
    legend(figure, axes, "", "outside right upper", 1)
    return figure, tips


def effects_figure(found: Sequence[Effects]) -> Drawing:
    """The shares of the variance, a bar for each value that they were found of; the largest on top."""
    shares = [_sources(one) for one in found]
    largest = {name: max(each.get(name, 0.0) for each in shares) for each in shares for name in each}
    names = sorted((name for name in largest if largest[name] >= SMALLEST), key=lambda name: -largest[name])
    names = names[:MOST_SOURCES] or list(largest)[:1]
    figure, (axes,) = canvas(1, 8.4, 1.4 + 0.36 * len(names))
    height, tips = 0.8 / len(found), Tips()
    for k, (one, each) in enumerate(zip(found, shares, strict=True)):
        for i, name in enumerate(names):
            gid, label = f"patch-effect{k}-{i}", safe(one.value) if not i else None
            at, share = i + (k - (len(found) - 1) / 2) * height, 100 * each.get(name, 0.0)
            axes.barh(at, share, height, color=PALETTE[k % len(PALETTE)], label=label, gid=gid)
            axes.text(share + 0.6, at, f"{share:.3g}", va="center", fontsize=7.5, color=INK)
            tips[gid] = [f"{name}\n{share:.3g} % of the variance of {one.value} (n = {one.n:,})"]
    axes.set_yticks(range(len(names)), [safe(name, 40) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 106)
    axes.grid(False, axis="y")
    axes.set_xlabel("share of the variance (%)")
    legend(figure, axes, "", "outside right upper", 1)
    return figure, tips


def _sources(one: Effects) -> dict[str, float]:
    shares = {main.name: main.share for main in one.main}
    shares |= {" × ".join(pair.names): pair.share for pair in one.pairs}
    repeats = {"between repeats": one.residual} if one.repeated else {}
    if one.method != BALANCED:
        rest = "names together, and noise" if not one.repeated else "names together"
    else:
        rest = "three and more together" if one.repeated else "three and more together, and noise"
    return shares | {rest: one.higher} | repeats


def shares_figure(by: str, bars: Sequence[TimeShares]) -> Drawing:
    """A bar for each value, parted by where its time goes."""
    figure, (axes,) = canvas(1, 8.4, 1.5 + 0.42 * len(bars))
    tips: Tips = {}
    left = [0.0] * len(bars)
    for k, part in enumerate(bars[0].seconds):
        for i, bar in enumerate(bars):
            total, gid = sum(bar.seconds.values()), f"patch-share{k}-{i}"
            share = 100 * bar.seconds[part] / total if total else 0.0
            label = part if not i else None
            axes.barh(i, share, 0.7, left=left[i], color=PALETTE[k % len(PALETTE)], label=label, gid=gid)
            where = f"{by} {value_text(bar.label)}\n" if by else ""
            tips[gid] = [f"{where}{part}: {share:.3g} %, {bar.seconds[part]:.4g} s (n = {bar.n:,})"]
            left[i] += share
    axes.set_yticks(range(len(bars)), [safe(value_text(bar.label)) if by else "all" for bar in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.grid(False, axis="y")
    axes.set_xlabel("share of the time (%)")
    axes.set_ylabel(safe(by))
    legend(figure, axes, "", "outside right upper", 1)
    return figure, tips


def scaling_figure(value: str, lines: Sequence[ScalingCurve]) -> Drawing:
    """Measured points, the fitted law with its band, and where devices stop paying."""
    from matplotlib.ticker import LogFormatter

    figure, (axes,) = canvas(1, 8.4, 4.6 + 0.12 * len(lines))
    tips: Tips = {}
    for k, line in enumerate(lines):
        paint, label = PALETTE[k % len(PALETTE)], described(line.config) or "all trials"
        style: dict[str, Any] = {"color": paint, "markersize": 6, "gid": f"marks{k}", "linestyle": "none"}
        axes.plot(line.devices, line.measured, MARKS[k % len(MARKS)], label=safe(label, 48), **style)
        axes.plot(line.at, [one.seconds for one in line.fitted], color=paint, linewidth=1.4, gid=f"patch-fit{k}")
        low, high = [one.low for one in line.fitted], [one.high for one in line.fitted]
        axes.fill_between(line.at, low, high, color=paint, alpha=0.13, linewidth=0)
        enough = line.enough_devices
        end = f"more than {enough} gain less than 5 %" if enough else f"devices pay up to {line.at[-1]} at least"
        end = end if line.verdict else "two points: no verdict"
        tips[f"patch-fit{k}"] = [f"{label}\nfitted; {end}"]
        pairs = zip(line.devices, line.measured, strict=True)
        tips[f"marks{k}"] = [f"{label}\n{n} devices: {seconds:.4g} s measured" for n, seconds in pairs]
        if enough in line.at:
            here = line.fitted[line.at.index(enough)].seconds
            axes.plot([enough], [here], "|", color=paint, markersize=18, markeredgewidth=2.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))
    ticks = sorted({n for line in lines for n in (*line.devices, *line.at) if n in line.devices or not n & (n - 1)})
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("devices")
    axes.set_ylabel(with_unit(value))
    legend(figure, axes, "", "outside lower center", 1)
    return figure, tips


def break_even_figure(found: LiveAgainstAhead) -> Drawing:
    """What training costs by its epochs, live and with data prepared ahead of time."""
    figure, (axes,) = canvas(1, 8.4, 4.0)
    prepare, cross = found.prepare_s or 0.0, found.break_even_epochs
    last = 2 * cross if cross else 10.0
    epochs = [0.0, last]
    axes.plot(epochs, [found.live_s * e for e in epochs], color=PALETTE[0], label="live", gid="patch-live")
    ahead = [prepare + found.ahead_s * e for e in epochs]
    axes.plot(epochs, ahead, color=PALETTE[1], linestyle="--", label="ahead of time", gid="patch-ahead")
    tips = {
        "patch-live": [f"live: {found.live_s:.4g} s an epoch"],
        "patch-ahead": [f"ahead of time: {prepare:.4g} s to prepare, then {found.ahead_s:.4g} s an epoch"],
    }
    if cross:
        axes.axvline(cross, color=INK, linewidth=1, linestyle=":")
        axes.text(cross, 0, f" {cross:.3g} epochs", va="bottom", fontsize=9, color=INK)
    axes.set_xlim(0, last)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epochs")
    axes.set_ylabel("preparing and training (seconds)")
    legend(figure, axes, "", "outside right upper", 1)
    return figure, tips
