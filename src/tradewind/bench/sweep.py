"""A sweep of learning rates and seeds by the ordinary ways and by Tradewind: same trials, interleaved."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tradewind import machine
from tradewind.bench import installed
from tradewind.bench.sweep_trials import Sweep
from tradewind.bench.sweep_ways import GPU_PROCESSES, WAYS, as_text, run_study
from tradewind.errors import Mistake, nearest

Found = dict[str, Any]

OURS, RIVAL, EAGER = "Tradewind", "joblib", "eager, data on the device"
COMPILED = "torch.compile, CUDA graphs"  # the best that people ordinarily do
GROWTH_ROUNDS = 3  # of which the first may build kernels: the median does not
FOREIGN = "tradewind.bench.sweep_module:Residual"
RATES = (5e-4, 7e-4, 1e-3, 1.4e-3, 2e-3, 2.8e-3, 4e-3, 5.6e-3)


@dataclass(frozen=True)
class Sizes:
    """What is trained here: sized so that a part takes minutes, on a GPU less."""

    sweep: Sweep
    ordinary: Sweep  # of which the ordinary ways are measured; every further network takes as long
    foreign: Sweep
    foreign_ordinary: Sweep
    growing: Sweep
    precisions: tuple[str, ...]
    foreign_precisions: tuple[str, ...]  # of both ways alike
    rounds: int
    foreign_rounds: int
    rounds_of: dict[str, int]  # where they are fewer
    engine: str = "auto"  # of studies that grow


_STORMS = Sweep(RATES, epochs=3)
_FOREIGN = Sweep(RATES, epochs=2, train=2048, workload=FOREIGN)
CPU = Sizes(
    _STORMS, _STORMS, _FOREIGN, replace(_FOREIGN, rates=RATES[:2]),
    Sweep(RATES[:4], epochs=2, train=2048, validation=512, test=512), ("fp32",), ("fp32",), 5, 3,
    {"DataLoader": 2, EAGER: 2, "Optuna": 2},
)  # fmt: skip
_MANY = Sweep(RATES, seeds=8, epochs=8, train=138_963, validation=4096, test=4096, precision="bf16")
_MODULES = Sweep(RATES, seeds=4, epochs=20, train=16_384, workload=FOREIGN)
GPU = Sizes(
    _MANY, replace(_MANY, rates=RATES[:1], seeds=1, epochs=2, precision="tf32"), _MODULES,
    replace(_MODULES, rates=RATES[:1], seeds=1, epochs=3),
    replace(_MANY, rates=RATES[:4], seeds=4, epochs=2, train=34_740), ("fp32", "bf16"), ("tf32", "bf16"), 2, 2,
    {"DataLoader": 1, RIVAL: 1, "Optuna": 1},
    engine="serial",  # in this process, which has its context: else starting one would be most of the time
)  # fmt: skip


def sizes() -> Sizes:
    """For this machine."""
    return GPU if machine.gpus() else CPU


def measure(parts: Sequence[str] = ()) -> Found:
    """The parts that were asked for, or all of them."""
    for part in parts:
        if part not in PARTS:
            raise Mistake(f"--part {part}: {nearest(part, PARTS)}")
    here = sizes()
    _make_storms(here)
    found = {name: PARTS[name][0](here) for name in parts or PARTS}
    versions = {package: installed(package) for package in ("torch", "triton", "joblib", "optuna")}
    return {"device": "cuda" if machine.gpus() else "cpu", "versions": versions, "parts": found}


def page(found: Found) -> str:
    """A table for every part."""
    tables = [PARTS[name][1](part) for name, part in found["parts"].items()]
    return "\n\n".join("\n".join(lines) for lines in tables)


def ways(here: Sizes) -> Found:
    """Every way in interleaved rounds, each time in a process of its own; the slower ones in fewer rounds."""
    present = [name for name, (_, package) in WAYS.items() if not package or installed(package)]
    samples: dict[str, list[Found]] = {name: [] for name in present}
    with tempfile.TemporaryDirectory(prefix="tradewind-sweep-") as folder:
        # what is compiled is kept from round to round: the first is cold, the others are warm
        kept = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        for number in range(here.rounds):
            first = number % len(present)
            for name in present[first:] + present[:first]:
                if number < here.rounds_of.get(name, here.rounds):
                    samples[name].append(in_way(name, _sized(here, name), kept))
    losses = {name: [sample.pop("losses") for sample in each].pop() for name, each in samples.items()}
    return {
        "sweep": asdict(here.sweep), "samples": samples, "difference": differences(losses),
        "absent": [name for name in WAYS if name not in present],
    }  # fmt: skip


def _sized(here: Sizes, name: str) -> Sweep:
    if name == OURS:
        return here.sweep
    shared = machine.gpus() and name == RIVAL  # among its processes
    return replace(here.ordinary, rates=here.sweep.rates[:GPU_PROCESSES]) if shared else here.ordinary


def in_way(name: str, sweep: Sweep, environment: dict[str, str]) -> Found:
    """One sweep in one way, in a process of its own, as a script of the user's would be."""
    command = [sys.executable, "-m", "tradewind.bench.sweep_ways", name, as_text(sweep)]
    began = time.perf_counter()
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )  # fmt: skip
    if ended.returncode:
        raise Mistake(f"bench sweep: {name} ended with {ended.returncode}: {ended.stderr[-500:]}")
    found: Found = json.loads(ended.stdout.splitlines()[-1])
    steady = [seconds for trial in found["epoch_s"] for seconds in trial[1:] or trial]  # the first warms up
    rate = found["at_once"] * sweep.train / median(steady)
    return {**found, "wall_s": time.perf_counter() - began, "networks": sweep.networks, "samples_per_s": rate}


def differences(losses: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """How far each way's validation losses are from ours, over the epochs of the trials that both trained."""
    found = {}
    for name, trials in losses.items():
        pairs = [
            (one, other)
            for trial in trials.keys() & losses[OURS].keys()
            for one, other in zip(trials[trial], losses[OURS][trial], strict=False)
        ]
        found[name] = max((abs(one - other) / abs(one) for one, other in pairs), default=0.0)
    return found


def ways_page(found: Found) -> list[str]:
    """Seconds of whole programs, samples per second in their epochs, and the ratio to joblib."""
    from tradewind.bench.augment import interval

    sweep, samples = found["sweep"], found["samples"]
    lines = [
        f"{len(sweep['rates']) * sweep['seeds']} storm networks (learning rate × seed), batch {sweep['batch_size']}, "
        f"{sweep['train']:,} storms × {sweep['epochs']} epochs",
        f"{'way':28s} {'networks':>8s} {'program s':>10s} {'range':>17s} {'samples/s':>11s} {'loss apart':>10s}   n",
    ]
    for name, all_of in samples.items():
        walls = [sample["wall_s"] for sample in all_of]
        rate = median(sample["samples_per_s"] for sample in all_of)
        spread = f"{min(walls):.1f} – {max(walls):.1f}"
        lines.append(
            f"{name:28s} {all_of[0]['networks']:8d} {median(walls):10.1f} {spread:>17s} {rate:11,.0f} "
            f"{found['difference'][name]:10.1e}  {len(all_of):2d}"
        )
    lines += [f"{name}: not installed" for name in found["absent"]]
    compiled = [sample["times"]["compile_s"] for sample in samples[OURS]]
    lines.append(f"Tradewind compiled for {compiled[0]:.1f} s cold, {compiled[-1]:.1f} s warm; in the program's time")
    rivals = samples.get(RIVAL, [])
    if rivals and rivals[0]["networks"] == samples[OURS][0]["networks"]:
        ratios = [one["wall_s"] / other["wall_s"] for one, other in zip(rivals, samples[OURS], strict=True)]
        low, high, held = interval(ratios)
        lines.append(
            f"{OURS} is {median(ratios):.2f} × as fast as {RIVAL} ({low:.2f} – {high:.2f}: {held:.0%} interval "
            f"of the median, {len(ratios)} interleaved pairs)"
        )
    return lines


def foreign(here: Sizes) -> Found:
    """Networks of a user's own module: Tradewind beside one after the other, in interleaved rounds."""
    rounds = []
    for _ in range(here.foreign_rounds):
        found: dict[str, dict[str, Found]] = {}
        for precision in here.foreign_precisions:
            ordinary = replace(here.foreign_ordinary, precision=precision)
            found[precision] = {
                EAGER: in_way(EAGER, ordinary, {}),
                COMPILED: in_way(EAGER, replace(ordinary, compiled=True), {}),
                OURS: in_way(OURS, replace(here.foreign, precision=precision), {}),
            }
            for sample in found[precision].values():
                del sample["losses"]  # its dropout draws as torch does, ours by counter
        rounds.append(found)
    return {"sweep": asdict(here.foreign), "rounds": rounds}


def foreign_page(found: Found) -> list[str]:
    """Samples per second of both, and their ratio."""
    sweep, rounds = found["sweep"], found["rounds"]
    lines = [
        f"{len(sweep['rates']) * sweep['seeds']} residual networks (BatchNorm, dropout, 32×32×3), "
        f"batch {sweep['batch_size']}: samples/s over all networks",
    ]
    for precision in rounds[0]:
        pairs = [each[precision] for each in rounds]
        times = pairs[0][OURS]["times"]
        for name in pairs[0]:
            rate = median(pair[name]["samples_per_s"] for pair in pairs)
            lines.append(f"{name:28s} {precision:5s} {rate:11,.0f}   n {len(pairs)}")
        built = f"compiled {times['compile_s']:.1f} s, warm-up {times['warmup_s']:.1f} s, not counted"
        lines.append(
            f"{OURS} at {precision}: {', '.join(_beside(pairs, name) for name in pairs[0] if name != OURS)}; {built}"
        )
    return lines


def _beside(pairs: list[dict[str, Found]], peer: str) -> str:
    ratios = [pair[OURS]["samples_per_s"] / pair[peer]["samples_per_s"] for pair in pairs]
    return f"{median(ratios):.2f} × ({min(ratios):.2f} – {max(ratios):.2f}) {peer}"


def one(here: Sizes) -> Found:
    """One storm network alone, at every precision of this machine."""
    samples = {}
    for precision in here.precisions:
        sweep = replace(here.sweep, rates=(1e-3,), seeds=1, epochs=4, precision=precision)
        with tempfile.TemporaryDirectory(prefix="tradewind-sweep-") as folder:
            results = run_study(sweep, Path(folder) / "run", engine="serial", purpose="time")
            times = next(results.records())["times"]
        samples[precision] = {name: times[name] for name in ("epoch_s", "compile_s", "warmup_s")}
    return {"sweep": asdict(here.sweep), "samples": samples}


def one_page(found: Found) -> list[str]:
    """Seconds per epoch."""
    sweep = found["sweep"]
    lines = [f"one storm network alone, batch {sweep['batch_size']}, {sweep['train']:,} storms: s/epoch"]
    for precision, sample in found["samples"].items():
        times = sample["epoch_s"]
        lines.append(
            f"{precision:28s} {median(times):8.3f} ({min(times):.3f} – {max(times):.3f})   n {len(times)}, "
            f"compiled {sample['compile_s']:.1f} s"
        )
    return lines


def growth(here: Sizes) -> Found:
    """How the time of a study grows as networks, data and epochs double, from one small study on."""
    base = here.growing
    axes: dict[str, list[Sweep]] = {
        "networks": [replace(base, seeds=base.seeds * k) for k in (1, 2, 4)],
        "data": [replace(base, train=base.train * k) for k in (1, 2, 4)],
        "epochs": [replace(base, epochs=base.epochs * k) for k in (1, 2, 4)],
    }
    seconds: dict[Sweep, list[float]] = {}
    _study_s(base, here.engine)  # warms up
    for _ in range(GROWTH_ROUNDS):
        for sweep in dict.fromkeys(sweep for axis in axes.values() for sweep in axis):
            seconds.setdefault(sweep, []).append(_study_s(sweep, here.engine))
    return {
        name: [{"sweep": asdict(sweep), "wall_s": seconds[sweep]} for sweep in axis] for name, axis in axes.items()
    }


def _study_s(sweep: Sweep, engine: str) -> float:
    with tempfile.TemporaryDirectory(prefix="tradewind-sweep-") as folder:
        began = time.perf_counter()
        run_study(sweep, Path(folder) / "run", engine=engine)
        seconds = time.perf_counter() - began
    gc.collect()
    return seconds


def growth_page(found: Found) -> list[str]:
    """Seconds, and what doubling costs."""
    lines = [
        f"{'what doubles':14s} {'networks':>8s} {'samples':>8s} {'epochs':>7s} {'study s':>9s} {'× before':>9s}   n"
    ]
    for name, rows in found.items():
        middles = [median(row["wall_s"]) for row in rows]
        factors = ["", *(f"{after / before:.2f}" for before, after in pairwise(middles))]
        for row, middle, factor in zip(rows, middles, factors, strict=True):
            sweep = row["sweep"]
            networks = len(sweep["rates"]) * sweep["seeds"]
            lines.append(
                f"{name:14s} {networks:8d} {sweep['train']:8,d} {sweep['epochs']:7d} {middle:9.2f} {factor:>9s}  "
                f"{len(row['wall_s']):2d}"
            )
    return lines


PARTS: dict[str, tuple[Callable[[Sizes], Found], Callable[[Found], list[str]]]] = {
    "ways": (ways, ways_page),
    "foreign": (foreign, foreign_page),
    "one": (one, one_page),
    "growth": (growth, growth_page),
}


def _make_storms(here: Sizes) -> None:
    """All storms that the parts train on, made once, where that is fastest."""
    from tradewind.workloads.storms import best_device, storms_cached

    grown = [replace(here.growing, train=here.growing.train * k) for k in (1, 2, 4)]
    for sweep in (here.sweep, here.ordinary, *grown):
        storms_cached(sum(sweep.splits().values()), 0, best_device("auto"))
