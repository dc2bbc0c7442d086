"""What the papers on data-parallel training found (Stevens, Cunha 2018, Nelson 2021), asked of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, log2
from statistics import median

from tradewind.analysis.evidence import Cell, Evidence, Fit, Line, devices_of, fit, has, rank_correlation
from tradewind.analysis.storm_findings import CORRELATED, LOST, STRAIGHT, Judgement, counted, no_times, with_label
from tradewind.studies.published import CLIPS

ALWAYS = 0.9  # the share of pairs that a rule of the papers must hold in
ALIKE = 1.15
BYTES_OF_LINEAR = 2 * 4 * 12_102_220  # paper 002: the weights out and the gradients back, once a batch
SAME_EPOCHS = 1  # rounding alone parts two runs in single precision by about that
SATURATES = 2.0
HALVES = 1.5
SAME_ACCURACY = 0.02


def _by_devices(evidence: Evidence, measure: str, over: int = 0) -> list[tuple[Line, float, float]]:
    """Lines along devices that start at one, with each further number of devices and its time."""
    lines = evidence.lines("devices", measure, only=lambda cell: cell.config.get("batch_size", over + 1) > over)
    return [(line, n, y) for line in lines if line.x[0] == 1 for n, y in zip(line.x[1:], line.y[1:], strict=True)]


def one_is_quickest(evidence: Evidence) -> Judgement:
    """Whether one device has the shortest epoch at every batch size."""
    found = _by_devices(evidence, "epoch_s")
    if not found:
        return no_times(evidence, "it takes epoch times on one and on several devices")
    quicker = sum(line.y[0] < seconds for line, _, seconds in found) / len(found)
    middle = median(seconds / line.y[0] for line, _, seconds in found)
    text = (
        f"one device is quicker in {quicker:.0%} of {len(found)} pairs, several take {middle:.2f} × its time (median)"
    )
    return quicker >= ALWAYS, with_label(text, evidence), {"pairs": len(found), "quicker": quicker, "ratio": middle}


def several_alike(evidence: Evidence) -> Judgement:
    """Whether two, three and four devices take the same time."""
    lines = evidence.lines("devices", "epoch_s", only=lambda cell: devices_of(cell) > 1)
    if not lines:
        return no_times(evidence, "it takes epoch times on 2 and on more devices")
    spread = median(max(line.y) / min(line.y) for line in lines)
    text = f"from 2 devices on, the slowest number takes {spread:.2f} × the quickest (median of {len(lines)})"
    return spread <= ALIKE, with_label(text, evidence), {"lines": len(lines), "spread": spread}


def choke(evidence: Evidence) -> Judgement:
    """Whether the epoch on several devices is a straight line in the bytes exchanged."""
    fits: list[Fit] = []
    measured = False
    for many in sorted({devices_of(cell) for cell in evidence.cells} - {1}):
        cells = [cell for cell in evidence.cells if devices_of(cell) == many and has(cell, "epoch_s")]
        counted = all(cell.values.get("bytes_exchanged") for cell in cells)
        measured = measured or counted
        points = sorted((_bytes(cell, counted) / 1e9, cell.values["epoch_s"]) for cell in cells)
        if len({x for x, _ in points}) >= 3:
            fits.append(fit(Line({}, [x for x, _ in points], [y for _, y in points])))
    if not fits:
        return no_times(evidence, "it takes epoch times at 3 batch sizes on several devices")
    r2, per_gb = median(one.r2 for one in fits), median(one.slope for one in fits)
    how = "measured" if measured else "reckoned as twice the weights a batch"
    text = f"epoch time along the bytes exchanged ({how}): R² {r2:.4f}, {per_gb:.3g} s per GB"
    agreed = r2 >= STRAIGHT and per_gb > 0
    return agreed, with_label(text, evidence), {"r2": r2, "s_per_gb": per_gb, "bytes_measured": measured}


def _bytes(cell: Cell, counted: bool) -> float:
    if counted:
        return cell.values["bytes_exchanged"] / max(
            cell.values.get("epochs_run") or cell.config.get("epochs") or 1, 1
        )
    return float(BYTES_OF_LINEAR * ceil(CLIPS / cell.config["batch_size"]))


def several_pay(evidence: Evidence) -> Judgement:
    """Whether several devices have shorter epochs above the smallest batch."""
    found = _by_devices(evidence, "epoch_s", over=10)
    if not found:
        return no_times(evidence, "it takes epoch times on one and on several devices, with batches over 10")
    quicker = sum(seconds < line.y[0] for line, _, seconds in found) / len(found)
    middle = median(line.y[0] / seconds for line, _, seconds in found)
    text = f"several devices are quicker in {quicker:.0%} of {len(found)} pairs; speed-up {middle:.2f} (median)"
    return quicker >= ALWAYS, with_label(text, evidence), {"pairs": len(found), "quicker": quicker, "speedup": middle}


def _to_target(evidence: Evidence, rule: str, measure: str = "time_to_target_s") -> dict[int, float | None]:
    """The time to the target by devices under a rule, None where it was never reached; one device serves all."""
    found: dict[int, float | None] = {}
    for cell in evidence.cells:
        many, own = devices_of(cell), cell.config.get("scaling", "strong") == rule
        if (own or many == 1) and (has(cell, measure) or (cell.missed and not cell.n)):
            known = [x for x in (found.get(many), cell.values.get(measure)) if x is not None]
            found[many] = min(known) if known else None
    return dict(sorted(found.items()))


def _reached(evidence: Evidence, rule: str) -> dict[int, bool]:
    """Whether several devices reached the target under a rule, which needs no time that can be compared."""
    found: dict[int, bool] = {}
    for cell in evidence.cells:
        many = devices_of(cell)
        if many > 1 and cell.config.get("scaling", "strong") == rule and (cell.n or cell.missed):
            found[many] = found.get(many, False) or "time_to_target_s" in cell.values
    return dict(sorted(found.items()))


def strong_is_best(evidence: Evidence) -> Judgement:
    """Whether strong scaling reaches the target soonest of all rules on any number of devices."""
    strong = _to_target(evidence, "strong")
    wins, asked, slower = 0, 0, []
    for rule in ("weak", "linear", "linear-warmup"):
        other = _to_target(evidence, rule)
        for many in sorted((strong.keys() & other.keys()) - {1}):
            ours, theirs = strong[many], other[many]
            asked += 1
            if ours is not None and (theirs is None or ours < theirs):
                wins += 1
            else:
                slower.append(f"{rule} on {many}")
    if not asked:
        return None, "it takes strong and another rule on the same number of devices, 2 or more", {}
    behind = f"; not before {', '.join(slower)}" if slower else ""
    text = with_label(f"strong is soonest in {wins} of {asked} comparisons{behind}", evidence)
    return wins >= ALWAYS * asked, text, {"wins": wins, "asked": asked}


def strong_speeds_up(evidence: Evidence) -> Judgement:
    """Whether strong scaling reaches the target on every number of devices, sooner with more of them."""
    times = _to_target(evidence, "strong")
    if 1 not in times or len(times) < 2:
        return no_times(evidence, "it takes times to a target on one and on several devices")
    failed = [many for many, reached in _reached(evidence, "strong").items() if not reached]
    failed += [1] if times[1] is None else []
    known = {many: seconds for many, seconds in times.items() if seconds is not None}
    gains = {many: known[1] / seconds for many, seconds in known.items()} if 1 in known else {}
    each = ", ".join(f"{many}: {gain:.2f} × ({gain / many:.0%})" for many, gain in gains.items() if many > 1)
    missed = f"; the target was missed on {', '.join(map(str, failed))}" if failed else ""
    text = with_label(f"speed-up and efficiency by devices {each or 'unknown'}{missed}", evidence)
    agreed = not failed and rank_correlation(list(gains), list(gains.values())) == 1 and max(gains.values()) > 1
    return agreed, text, {"speedup": gains, "missed": failed}


def strong_follows(evidence: Evidence) -> Judgement:
    """Whether strong scaling takes as many epochs as the sequential run, which no machine changes."""
    epochs = {many: count for many, count in _to_target(evidence, "strong", "epochs_run").items() if count}
    if 1 not in epochs or len(epochs) < 2:
        return None, "it takes the epochs of strong scaling on one and on several devices, to a target", {}
    most = max(abs(count - epochs[1]) for count in epochs.values())
    parts = [f"strong {_each(epochs)}"]
    for rule in ("weak", "linear", "linear-warmup"):
        others = {many: n for many, n in _to_target(evidence, rule, "epochs_run").items() if many > 1}
        parts += [f"{rule} {_each(others)}"] if others else []
    text = with_label(f"epochs to the target by devices: {'; '.join(parts)}", evidence, timed=False)
    return most <= SAME_EPOCHS, text, {"epochs": epochs, "most": most}


def _each(epochs: Mapping[int, float | None]) -> str:
    return ", ".join(f"{many}: {'missed' if count is None else f'{count:g}'}" for many, count in epochs.items())


def weak_saturates(evidence: Evidence) -> Judgement:
    """Whether weak scaling gains little beyond two devices."""
    times = {many: seconds for many, seconds in _to_target(evidence, "weak").items() if seconds is not None}
    most = max(times, default=0)
    if not {1, 2} <= times.keys() or most < 4:
        missed = [str(many) for many, reached in _reached(evidence, "weak").items() if not reached]
        beside = f"; the target was missed on {', '.join(missed)}" if missed else ""
        return no_times(evidence, f"it takes times to a target on 1, 2 and at least 4 devices{beside}")
    two, last = times[1] / times[2], times[1] / times[most]
    text = with_label(f"weak scaling: speed-up {two:.2f} on 2 devices, {last:.2f} on {most}", evidence)
    return last < SATURATES * two, text, {"speedup_2": two, "speedup_most": last, "devices": most}


def linear_diverges(evidence: Evidence) -> Judgement:
    """Whether the linear rule never reaches the target on several devices."""
    asked = _reached(evidence, "linear")
    if not asked:
        return None, "it takes the linear rule on several devices, to a target", {}
    reached = [many for many, did in asked.items() if did]
    text = f"tried on {_some(asked)} devices, the linear rule reaches the target on {_some(reached)}"
    return not reached, with_label(text, evidence, timed=False), {"asked": list(asked), "reached": reached}


def _some(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def warmup_helps_a_little(evidence: Evidence) -> Judgement:
    """Whether warm-up saves the linear rule on few devices and not on many."""
    asked = _reached(evidence, "linear-warmup")
    few, more = ([did for many, did in asked.items() if (many <= 4) == low] for low in (True, False))
    if not few or not more:
        return None, "it takes the linear rule with warm-up on up to 4 and on 8 or more devices, to a target", {}
    reached = [many for many, did in asked.items() if did]
    text = f"tried on {_some(asked)} devices, with warm-up the target is reached on {_some(reached)}"
    agreed = all(few) and not any(more)
    return agreed, with_label(text, evidence, timed=False), {"asked": list(asked), "reached": reached}


def doubling_halves(evidence: Evidence, measure: str = "epoch_s") -> Judgement:
    """Whether twice the devices nearly halve the epoch, or the whole job."""
    gains = []
    for line in evidence.lines("devices", measure):
        steps = zip(pairwise(line.x), pairwise(line.y), strict=True)
        gains += [(a / b) ** (1 / log2(high / low)) for (low, high), (a, b) in steps]
    if not gains:
        return no_times(evidence, f"it takes {measure} at 2 numbers of devices")
    text = f"with twice the devices {measure} is {1 / median(gains):.2f} × what it was"
    text += f" (median of {counted(len(gains), 'step')})"
    return median(gains) >= HALVES, with_label(text, evidence), {"steps": len(gains), "gain": median(gains)}


def stable_later(evidence: Evidence) -> Judgement:
    """Whether more devices need more epochs until validation accuracy is stable."""
    points = _points(evidence, "epochs_to_stable")
    if len({x for x, _ in points}) < 3:
        return None, "it takes 3 numbers of devices whose validation accuracy became stable", {}
    x, y = zip(*points, strict=True)
    correlation, slope = rank_correlation(x, y), fit(Line({}, [log2(many) for many in x], list(y))).slope
    text = f"{slope:+.1f} epochs until stable with every doubling of the devices (rank correlation {correlation:.2f})"
    agreed = correlation >= 0.7 and slope > 0
    numbers = {"epochs_per_doubling": slope, "rank_correlation": correlation}
    return agreed, with_label(text, evidence, timed=False), numbers


def accuracy_stays(evidence: Evidence) -> Judgement:
    """Whether the final validation accuracy is about the same on any number of devices."""
    points = _points(evidence, "validation_accuracy")
    if len({x for x, _ in points}) < 2:
        return None, "it takes the validation accuracy on 2 numbers of devices", {}
    low, high = min(y for _, y in points), max(y for _, y in points)
    spread = high - low
    text = f"validation accuracy {low:.1%} to {high:.1%} over numbers of devices"
    return spread <= SAME_ACCURACY, with_label(text, evidence, timed=False), {"spread": spread}


def accuracy_drops(evidence: Evidence) -> Judgement:
    """Whether the final validation accuracy falls with the devices."""
    points = _points(evidence, "validation_accuracy")
    if len({x for x, _ in points}) < 2:
        return None, "it takes the validation accuracy on 2 numbers of devices", {}
    first, last = points[0], points[-1]
    change, correlation = last[1] - first[1], rank_correlation(*zip(*points, strict=True))
    text = f"validation accuracy {first[1]:.1%} on {first[0]:.0f}, {last[1]:.1%} on {last[0]:.0f} devices"
    agreed = change <= -LOST and correlation <= CORRELATED
    return agreed, with_label(text, evidence, timed=False), {"change": change}


def most_are_soonest(evidence: Evidence) -> Judgement:
    """Whether the largest number of devices is stable soonest, though it takes more epochs."""
    cells = [c for c in evidence.cells if has(c, "epochs_to_stable") and has(c, "epoch_s")]
    times = sorted((devices_of(c), c.values["epochs_to_stable"] * c.values["epoch_s"]) for c in cells)
    if len({many for many, _ in times}) < 2:
        return no_times(evidence, "it takes 2 numbers of devices whose validation accuracy became stable")
    soonest = min(times, key=lambda pair: pair[1])
    each = ", ".join(f"{many}: {seconds:.4g} s" for many, seconds in times)
    return soonest[0] == times[-1][0], with_label(f"stable by devices after {each}", evidence), {"times_s": times}


def _points(evidence: Evidence, measure: str) -> Sequence[tuple[float, float]]:
    cells = [cell for cell in evidence.cells if measure in cell.values]
    return sorted((float(devices_of(cell)), cell.values[measure]) for cell in cells)
