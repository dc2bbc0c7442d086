"""What the papers on storms found (Barajas 2019, Basalyga 2021), and how a run is asked whether it agrees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, log2
from statistics import mean, median
from typing import Any

from tradewind.analysis.evidence import Cell, Evidence, devices_of, fit, rank_correlation

# What a run says: agreed, contradicted or nothing (None); why, with the numbers in it; and the numbers alone
Judgement = tuple[bool | None, str, dict[str, Any]]

STRAIGHT, MOSTLY_STRAIGHT = 0.98, 0.95  # R²
FALLS, FLATTENS, FLAT = 1.2, 0.75, 1.3
LEAST_LINES = 3  # one line of a few times says more about the machine's mood
LIVE_COSTS = 1.5
GPU_GAINS = (5.5, 22.0)  # 11 within a factor of two
NO_FASTER = 1.1
CORRELATED, LOST = -0.5, 0.01
SAME_SCORE = 0.015
STAND_INS = "CPU processes stand in for devices"


def with_label(text: str, evidence: Evidence, timed: bool = True) -> str:
    """Say so where processes stand in for devices, and where there were too few cores to time them."""
    if not evidence.stand_ins:
        return text
    many = " and ".join(map(str, evidence.crowded))
    crowded = f"; times of {many} processes, more than there are cores, left out"
    return f"{text} ({STAND_INS}{crowded if timed and evidence.crowded else ''})"


def counted(number: int, what: str) -> str:
    """A number of things, one or several."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def no_times(evidence: Evidence, needed: str) -> Judgement:
    """Why times can't be judged."""
    packed = "trials were trained in packs, so none has a time of its own; " if evidence.packed else ""
    return None, with_label(f"{packed}{needed}", evidence), {}


def linear(evidence: Evidence, along: str, measure: str = "wall_s") -> Judgement:
    """Whether time is a straight line along epochs or data."""
    lines = evidence.lines(along, measure, least=3)
    if len(lines) < LEAST_LINES:
        return no_times(evidence, f"it takes times at 3 values of {along}, all else equal, for {LEAST_LINES} configs")
    fits = [fit(line) for line in lines]
    r2 = [one.r2 for one in fits]
    straight = sum(one >= MOSTLY_STRAIGHT for one in r2) / len(r2)
    slope, fixed = median(one.slope for one in fits), median(one.fixed for one in fits)
    text = (
        f"R² of {measure} along {along} over {len(lines)} lines: median {median(r2):.4f}, least {min(r2):.4f}; "
        f"median slope {slope:.4g} s, and {max(fixed, 0):.0%} of the longest time does not grow"
    )
    numbers = {
        "lines": len(lines), "r2_median": median(r2), "r2_least": min(r2), "slope_s": slope, "fixed_share": fixed,
    }  # fmt: skip
    return median(r2) >= STRAIGHT and straight >= 0.9 and slope > 0, text, numbers


@dataclass(frozen=True)
class Fall:
    """How a time changes along the batch size: over all of it, and by the first and the last doubling."""

    over_all: float
    first: float
    last: float
    spread: float


def _falls(evidence: Evidence, measure: str) -> list[Fall]:
    found = []
    for line in evidence.lines("batch_size", measure, least=3):
        steps = list(zip(pairwise(line.x), pairwise(line.y), strict=True))
        gains = [log(a / b) / log2(high / low) for (low, high), (a, b) in steps]
        found.append(Fall(line.y[0] / min(line.y), gains[0], gains[-1], max(line.y) / min(line.y)))
    return found


def batch_size(evidence: Evidence, measure: str = "wall_s") -> Judgement:
    """Whether time falls with the batch size, and less and less."""
    falls = _falls(evidence, measure)
    if len(falls) < LEAST_LINES:
        return no_times(evidence, f"it takes times at 3 batch sizes, all else equal, for {LEAST_LINES} configs")
    over_all, first, last = (median(getattr(fall, name) for fall in falls) for name in ("over_all", "first", "last"))
    text = (
        f"over {len(falls)} lines the smallest batch takes {over_all:.2f} × the best time (median); "
        f"the first doubling gains {exp(first) - 1:.0%}, the last {exp(last) - 1:.0%}"
    )
    numbers = {"lines": len(falls), "falls": over_all, "first_doubling": exp(first), "last_doubling": exp(last)}
    return over_all >= FALLS and -log(FALLS) <= last <= FLATTENS * first, text, numbers


def batch_size_live(evidence: Evidence) -> Judgement:
    """Whether the batch size plays no part where augmentation is live."""
    falls = _falls(evidence, "wall_s")
    if len(falls) < LEAST_LINES:
        return no_times(evidence, f"it takes times at 3 batch sizes, all else equal, for {LEAST_LINES} configs")
    spread = median(fall.spread for fall in falls)
    text = f"over {len(falls)} lines the slowest batch size takes {spread:.2f} × the quickest (median)"
    return spread <= FLAT, text, {"lines": len(falls), "spread": spread}


def live(evidence: Evidence) -> Judgement:
    """Whether live augmentation costs clearly more than augmentation ahead of time: in training, loading beside."""
    trained = "train_s" if evidence.pairs("augment", "live", "pre", "train_s") else "wall_s"
    pairs = evidence.pairs("augment", "live", "pre", trained)
    if not pairs:
        return no_times(evidence, "it takes times with augment live and with pre, all else equal")
    ratios = [a / b for a, b in pairs]
    middle = exp(mean(map(log, ratios)))
    text = f"live takes {middle:.2f} × as long as ahead of time over {len(pairs)} pairs"
    text += f" ({trained}; {min(ratios):.2f} to {max(ratios):.2f})"
    numbers = {"pairs": len(pairs), "ratio": middle, "least": min(ratios), "most": max(ratios)}
    loads = [a / b for a, b in evidence.pairs("augment", "live", "pre", "data_s") if a > 0 and b > 0]
    if loads and trained == "train_s":
        numbers["loading"] = exp(mean(map(log, loads)))
        text += f"; loading takes {numbers['loading']:.2f} × as long"
    return middle >= LIVE_COSTS, text, numbers


def cpu_gpu(evidence: Evidence) -> Judgement:
    """Whether a GPU trains about ten times as fast as CPUs."""
    pairs = evidence.pairs("device", "cpu", "cuda", "wall_s", ignore=("machine", "gpu", "precision"))
    if not pairs:
        return no_times(evidence, "it takes times on a CPU and on a GPU, all else equal")
    ratios = [a / b for a, b in pairs]
    low, high = GPU_GAINS
    text = f"the GPU is {median(ratios):.1f} × as fast (median of {len(pairs)} pairs, {min(ratios):.1f} to "
    text += f"{max(ratios):.1f})"
    numbers = {"pairs": len(pairs), "ratio": median(ratios), "least": min(ratios), "most": max(ratios)}
    return low <= median(ratios) <= high, text, numbers


def more_devices(evidence: Evidence) -> Judgement:
    """Whether more devices for one network gain no time."""
    gains: dict[int, list[float]] = {}
    for line in evidence.lines("devices", "wall_s"):
        if line.x[0] == 1:
            for many, seconds in zip(line.x[1:], line.y[1:], strict=True):
                gains.setdefault(int(many), []).append(line.y[0] / seconds)
    if not gains:
        return no_times(evidence, "it takes times on one and on several devices, all else equal")
    middles = {many: median(some) for many, some in sorted(gains.items())}
    each = ", ".join(f"{many} devices {gain:.2f} ×" for many, gain in middles.items())
    return (
        max(middles.values()) <= NO_FASTER,
        with_label(f"speed-up {each} (medians)", evidence),
        {"speedup": middles},
    )


def accuracy_falls(evidence: Evidence, measure: str = "accuracy") -> Judgement:
    """Whether accuracy falls with the batch size at equal epochs."""
    lines = evidence.lines("batch_size", measure, least=3)
    if not lines:
        return None, f"it takes {measure} at 3 batch sizes, all else equal", {}
    ranks = [rank_correlation(line.x, line.y) for line in lines]
    change = median(line.y[-1] - line.y[0] for line in lines)
    text = (
        f"rank correlation of {measure} with the batch size {median(ranks):.2f} (median of "
        f"{counted(len(lines), 'line')}); from the smallest to the largest batch {100 * change:+.1f} points"
    )
    numbers = {"lines": len(lines), "rank_correlation": median(ranks), "change": change}
    auc = evidence.lines("batch_size", measure.replace("accuracy", "auc"), least=3)
    if auc:
        numbers["auc_change"] = median(line.y[-1] - line.y[0] for line in auc)
        text += f", of AUC {numbers['auc_change']:+.3f}"
    return _if_found(evidence, median(ranks) <= CORRELATED and change <= -LOST, text, numbers)


def _if_found(evidence: Evidence, agreed: bool, text: str, numbers: dict[str, Any]) -> Judgement:
    """No verdict by accuracy where none is clearly above the share of negatives, which finding nothing gives."""
    part = "validation_" if any("validation_pod" in cell.values for cell in evidence.cells) else ""
    scores, pods = ([cell.values.get(f"{part}{name}") for cell in evidence.cells] for name in ("accuracy", "pod"))
    both = [(score, pod) for score, pod in zip(scores, pods, strict=True) if score is not None and pod is not None]
    blind = [score for score, pod in both if pod == 0]
    if not blind or max(both)[0] - max(blind) >= LOST:
        return agreed, text, numbers
    text += f"; none is a point above the {max(blind):.1%} of finding no positive at all"
    return None, f"{text} ({len(blind)} of {len(both)} do so), so accuracy can't tell", numbers


def devices_and_accuracy(evidence: Evidence) -> Judgement:
    """Whether the number of devices leaves the learning curve of a batch size as it is."""
    lines = evidence.lines("devices", "curve_accuracy")
    if not lines:
        return None, "it takes curves of validation accuracy at 2 numbers of devices, all else equal", {}
    spread = median(max(line.y) - min(line.y) for line in lines)
    text = f"mean accuracy along the curve differs by {100 * spread:.2f} points between numbers of devices (median)"
    numbers = {"lines": len(lines), "spread": spread}
    auc = evidence.lines("devices", "curve_auc")
    if auc:
        numbers["auc_spread"] = median(max(line.y) - min(line.y) for line in auc)
        text += f", AUC by {numbers['auc_spread']:.3f}"
    if spread == 0:
        return (
            None,
            with_label(f"{text}: equal by construction, so nothing was tested", evidence, timed=False),
            numbers,
        )
    return _if_found(evidence, spread <= SAME_SCORE, with_label(text, evidence, timed=False), numbers)


def equal_share(evidence: Evidence) -> Judgement:
    """Whether curves differ though every device has as many samples of a batch: the larger batch learns less."""
    drops = _drops(evidence, "curve_accuracy")
    if not drops:
        return None, "it takes curves of equal batch size per device on different numbers of devices", {}
    text = (
        f"with equal batch per device the smaller batch has {100 * median(drops):+.2f} points of mean accuracy along "
        f"the curve over the larger (median of {counted(len(drops), 'group')})"
    )
    numbers = {"groups": len(drops), "drop": median(drops)}
    auc = _drops(evidence, "curve_auc")
    if auc:
        numbers["auc_drop"] = median(auc)
        text += f", of AUC {median(auc):+.3f}"
    return _if_found(evidence, median(drops) >= LOST, with_label(text, evidence, timed=False), numbers)


def _drops(evidence: Evidence, measure: str) -> list[float]:
    """By how much the smallest batch is above the largest, for every number of samples per device."""
    groups: dict[tuple[float, Any], list[Cell]] = {}
    for cell in evidence.cells:
        if measure in cell.values:
            share = cell.config["batch_size"] / devices_of(cell)
            groups.setdefault((share, cell.config.get("epochs")), []).append(cell)
    found = []
    for cells in groups.values():
        cells.sort(key=lambda cell: float(cell.config["batch_size"]))
        if cells[0].config["batch_size"] < cells[-1].config["batch_size"]:
            found.append(cells[0].values[measure] - cells[-1].values[measure])
    return found
