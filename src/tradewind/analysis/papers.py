"""What each paper found, by study, and the rule by which a run bears it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tradewind.analysis import parallel_findings as parallel
from tradewind.analysis import storm_findings as storm
from tradewind.analysis.evidence import STABLE_WITHIN, Evidence


@dataclass(frozen=True)
class Finding:
    """What a paper found, the rule by which a run agrees, and what applies it.

    `pooled` looks at runs beside too; `timed` rests on times, which a busy machine spoils. `forbids` names the
    differences between a study and the paper that decide the finding: while one is there, nothing is said.
    `replaced` is the tool that the finding is about and that Tradewind does without: such a finding is no longer
    refuted by a run, it is overcome.
    """

    claim: str
    rule: str
    judge: Callable[[Evidence], storm.Judgement]
    pooled: bool = False
    timed: bool = True
    forbids: tuple[str, ...] = ()
    replaced: str = ""


DECIDE_ACCURACY = ("dropout", "wind", "balance")
_STRAIGHT = f"median R² at least {storm.STRAIGHT}, nine lines of ten at least {storm.MOSTLY_STRAIGHT}"
_EPOCHS = Finding("time is linear in epochs", _STRAIGHT, partial(storm.linear, along="epochs"))
_DATA = Finding("time is linear in the amount of data", _STRAIGHT, partial(storm.linear, along="data_multiplier"))
_BATCH = Finding(
    "time falls with the batch size, then flattens",
    f"the smallest batch takes {storm.FALLS} × the best time or more, and the last doubling gains at most "
    f"{storm.FLATTENS} of the first (in logarithm) and costs at most {storm.FALLS} ×",
    storm.batch_size,
)
_BATCH_LIVE = Finding(
    "with live augmentation the batch size plays no part",
    f"the slowest batch size takes at most {storm.FLAT} × the quickest",
    storm.batch_size_live,
    replaced="the live augmentation of Keras",
)
_LIVE = Finding(
    "live augmentation takes far longer than augmentation ahead of time",
    f"at least {storm.LIVE_COSTS} × as long (geometric mean of pairs)",
    storm.live,
    pooled=True,
    replaced="the live augmentation of Keras",
)
_CPU_GPU = Finding(
    "a GPU is 10 to 12 times as fast as CPUs",
    f"between {storm.GPU_GAINS[0]} and {storm.GPU_GAINS[1]:.0f} × (median of pairs)",
    storm.cpu_gpu,
    pooled=True,
)
_MORE_GPUS = Finding(
    "more GPUs for one network are no faster", f"speed-up at most {storm.NO_FASTER} (medians)", storm.more_devices
)
_FALLS = f"rank correlation at most {storm.CORRELATED}, and {100 * storm.LOST:.0f} point lost or more"
_ACCURACY = Finding(
    "accuracy falls with the batch size", _FALLS, storm.accuracy_falls, timed=False, forbids=DECIDE_ACCURACY
)
_CURVE = Finding(
    "a larger batch learns less in as many epochs",
    _FALLS,
    partial(storm.accuracy_falls, measure="curve_accuracy"),
    timed=False,
    forbids=DECIDE_ACCURACY,
)
_ALWAYS = f"in at least {parallel.ALWAYS:.0%} of pairs"
_STABLE = f"stable: smoothed over 3 epochs, within {100 * STABLE_WITHIN:.0f} point of its best until the end"

_HALF = f"at most {1 / parallel.HALVES:.2f} × what it was with each doubling (median)"
_HALVES = [
    Finding("twice the devices nearly halve the epoch", _HALF, parallel.doubling_halves),
    Finding("twice the devices nearly halve the job", _HALF, partial(parallel.doubling_halves, measure="job_s")),
]

FINDINGS: dict[str, list[Finding]] = {
    "basalyga/table2": [_EPOCHS, _DATA, _BATCH, _LIVE, _CPU_GPU],
    "basalyga/table3": [_EPOCHS, _DATA, _BATCH, _LIVE, _CPU_GPU],
    "basalyga/table4": [_EPOCHS, _DATA, _BATCH, _LIVE],
    "basalyga/table5": [_EPOCHS, _DATA, _BATCH_LIVE, _LIVE],
    "basalyga/table6": [_EPOCHS, _DATA, _MORE_GPUS],
    "basalyga/table7": [_EPOCHS, _DATA, _MORE_GPUS],
    "basalyga/table8": [_ACCURACY],
    "basalyga/table9": [_EPOCHS, _BATCH],
    "basalyga/figure2": [],
    "basalyga/figure6": [
        Finding(
            "the number of GPUs hardly changes the learning curve",
            f"mean accuracy along the curve within {100 * storm.SAME_SCORE:.1f} points (median)",
            storm.devices_and_accuracy,
            timed=False,
            forbids=DECIDE_ACCURACY,
        )
    ],
    "basalyga/figure7": [_CURVE],
    "basalyga/figure8": [
        Finding(
            "equal batch per GPU does not give equal curves",
            f"the smaller batch is {100 * storm.LOST:.0f} point or more above the larger along the curve (median)",
            storm.equal_share,
            timed=False,
            forbids=DECIDE_ACCURACY,
        )
    ],
    "stevens/linear": [
        Finding("the linear network is quickest on one device", _ALWAYS, parallel.one_is_quickest),
        Finding(
            "two, three and four devices take the same time",
            f"the slowest at most {parallel.ALIKE} × the quickest",
            parallel.several_alike,
        ),
        Finding(
            "the exchange of weights chokes it: epoch time grows with the bytes",
            f"R² at least {storm.STRAIGHT} on several devices",
            parallel.choke,
        ),
    ],
    "stevens/conv": [
        Finding("the convolutional network gains from devices, with batches over 10", _ALWAYS, parallel.several_pay)
    ],
    "cunha/scaling": [
        Finding("strong scaling reaches the target soonest of all rules", _ALWAYS, parallel.strong_is_best),
        Finding(
            "strong scaling always reaches the target, sooner with more devices",
            "reached on every number of devices, and sooner on each larger one",
            parallel.strong_speeds_up,
        ),
        Finding(
            "strong scaling follows the sequential run",
            f"as many epochs to the target on any number of devices, give or take {parallel.SAME_EPOCHS}",
            parallel.strong_follows,
            timed=False,
        ),
        Finding(
            "weak scaling gains little beyond two devices",
            f"its last speed-up less than {parallel.SATURATES:.0f} × that on 2 devices",
            parallel.weak_saturates,
        ),
        Finding(
            "the linear rule diverges on several devices",
            "the target never reached",
            parallel.linear_diverges,
            timed=False,
        ),
        Finding(
            "warm-up saves the linear rule on few devices, not on many",
            "reached on up to 4 devices, not on 8 and more",
            parallel.warmup_helps_a_little,
            timed=False,
        ),
    ],
    "nelson/fruit": [
        *_HALVES,
        Finding("accuracy falls with the devices", _FALLS, parallel.accuracy_drops, timed=False),
    ],
    "nelson/caltech": [
        *_HALVES,
        Finding("more devices need more epochs until stable", _STABLE, parallel.stable_later, timed=False),
        Finding("the most devices are stable soonest", _STABLE, parallel.most_are_soonest),
        Finding(
            "the final accuracy hardly depends on the devices",
            f"within {100 * parallel.SAME_ACCURACY:.0f} points",
            parallel.accuracy_stays,
            timed=False,
        ),
    ],
}  # fmt: skip
WITH_CURVES = ("basalyga/figure", "nelson/")  # studies whose findings are about learning curves
BESIDE = {  # whose runs a pooled finding needs too
    "basalyga/table2": ("basalyga/table3", "basalyga/table4"),
    "basalyga/table3": ("basalyga/table2", "basalyga/table5"),
    "basalyga/table4": ("basalyga/table2",),
    "basalyga/table5": ("basalyga/table3",),
}
