"""What augmentation costs: one thread beside its peers, and whole training runs live beside ahead of time."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from tradewind import machine
from tradewind.augment import live
from tradewind.augment.affine import Augmentation, transform
from tradewind.bench import installed, peers
from tradewind.run import run
from tradewind.study import Study

WIND = ((1, 2),)
ROUNDS = 9
SECONDS = 0.3  # of each contender in each round
PAIRS = 9
CONFIDENCE = 0.95
# per epoch twice as many: the natural samples, and as many moved ones
CPU: dict[str, Any] = {"train": 8192, "epochs": 3, "batch_sizes": [128, 2048]}
GPU: dict[str, Any] = {"train": 69_481, "epochs": 5, "batch_sizes": [128, 512, 2048]}

Found = dict[str, Any]


def measure() -> Found:
    """Images per second on one thread, then live over ahead-of-time in interleaved training runs."""
    return {**alone(), "runs": runs(GPU if torch.cuda.is_available() else CPU)}


def page(found: Found) -> str:
    """Both tables."""
    lines = [f"{'images/s on one thread, 32×32×3':44s} {'median':>9s} {'range':>19s}   n"]
    for name, values in found["samples"].items():
        spread = f"{min(values):,.0f} – {max(values):,.0f}"
        lines.append(f"{name:44s} {median(values):9,.0f} {spread:>19s}  {len(values):2d}")
    lines += [f"{name}: not here ({reason})" for name, reason in found["absent"].items()]
    measured = found["runs"]
    lines += ["", f"storm CNN on {measured['device']}, {measured['samples']} samples × {measured['epochs']} epochs"]
    lines.append(
        f"{'batch':>6s} {'live / pre, wall':>24s} {'epochs alone':>24s}   n {'pre s':>8s} {'prepare s':>10s}"
    )
    for batch, pairs in measured["pairs"].items():
        cells = [_ratio_cell(pairs, name) for name in ("wall_s", "epoch_s")]
        pre, prepare = (median(pair["pre"][name] for pair in pairs) for name in ("wall_s", "prepare_s"))
        lines.append(f"{batch:>6s} {cells[0]:>24s} {cells[1]:>24s}  {len(pairs):2d} {pre:8.2f} {prepare:10.2f}")
    held = min(interval(ratios(pairs, "wall_s"))[2] for pairs in measured["pairs"].values())
    lines.append(f"median and {held:.0%} interval of the pairs' ratios; prepare_s is in neither time")
    return "\n".join(lines)


def alone() -> Found:
    """Rounds of all contenders in turn, each on one thread and over batches of its own."""
    images = np.random.default_rng(0).standard_normal((4096, 32, 32, 3)).astype(np.float32)
    samples: dict[str, list[float]] = {}
    absent: dict[str, str] = {}
    with machine.one_thread():
        ready: dict[str, Callable[[int], None]] = {}
        for name, make in {**OURS, **peers.PEERS}.items():
            try:
                ready[name] = make(images)
                ready[name](8)  # compiles, and whatever else happens once
            except Exception as error:
                absent[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        batches = {name: 2048 if name in OURS else peers.BATCH.get(name, 2048) for name in ready}
        for _ in range(ROUNDS):
            for name, work in ready.items():
                samples.setdefault(name, []).append(_rate(work, batches[name]))
    versions = {package: installed(package) for package in ("numba", *peers.PACKAGES)}
    return {"unit": "images/s", "rounds": ROUNDS, "samples": samples, "absent": absent, "versions": versions}


def runs(sizes: Found, pairs: int = PAIRS) -> Found:
    """Every repeat trains all batch sizes live and ahead of time, in an order drawn anew."""
    study = Study(
        name="augment",
        workload="storm",
        purpose="time",
        data={"source": "synthetic", "train": sizes["train"], "validation": 0, "test": 512},
        space={"augment": ["pre", "live"], "batch_size": sizes["batch_sizes"]},
        fixed={"epochs": sizes["epochs"], "data_multiplier": 2},
        repeats=pairs,
    )
    with tempfile.TemporaryDirectory(prefix="tradewind-augment-") as folder, _cache(folder):
        results = run(study, Path(folder) / "run", workers=1)
        names = ("batch_size", "repeat", "augment", "wall_s", "epoch_s", "prepare_s", "state", "device")
        records = [dict(zip(names, row, strict=True)) for row in zip(*map(results.items, names), strict=True)]
    assert all(record["state"] == "done" for record in records), results.counts()
    found: dict[str, dict[int, Found]] = {str(size): {} for size in sizes["batch_sizes"]}
    for record in records:
        times = {"wall_s": record["wall_s"], "epoch_s": _middle(record["epoch_s"]), "prepare_s": record["prepare_s"]}
        found[str(int(record["batch_size"]))].setdefault(int(record["repeat"]), {})[record["augment"]] = times
    by_batch = {batch: list(repeats.values()) for batch, repeats in found.items()}
    return {
        "pairs": by_batch, "samples": 2 * sizes["train"], "epochs": sizes["epochs"], "device": records[0]["device"],
    }  # fmt: skip


def ratios(pairs: list[Found], name: str) -> list[float]:
    """Live over ahead of time, of every pair."""
    return [pair["live"][name] / pair["pre"][name] for pair in pairs]


def interval(values: list[float]) -> tuple[float, float, float]:
    """Of the median, whatever the distribution: two order statistics, and how often they hold it.

    The innermost pair that does so in CONFIDENCE of all cases; fewer than 6 values can't, and give their range.
    """
    ordered, n = sorted(values), len(values)
    cut, outside = 0, 2 / 2**n
    while (wider := outside + 2 * math.comb(n, cut + 1) / 2**n) <= 1 - CONFIDENCE:
        cut, outside = cut + 1, wider
    return ordered[cut], ordered[n - 1 - cut], 1 - outside


def _ratio_cell(pairs: list[Found], name: str) -> str:
    values = ratios(pairs, name)
    low, high, _ = interval(values)
    return f"{median(values):.3f} ({low:.3f} – {high:.3f})"


def _compiled(images: np.ndarray[Any, Any]) -> Callable[[int], None]:
    moving = live.Live(torch.from_numpy(images), True, 0, Augmentation(), WIND)
    if moving.way != "numba":
        raise RuntimeError(moving.reason)
    order = torch.randperm(len(images))

    def work(count: int) -> None:
        moving.batch(order[:count], order[:count], 1)

    return work


def _plain(images: np.ndarray[Any, Any]) -> Callable[[int], None]:
    stored, order = torch.from_numpy(images), torch.randperm(len(images))

    def work(count: int) -> None:
        rows = order[:count]
        transform(stored[rows].movedim(-1, 1), rows, 1, 0, Augmentation(), WIND)

    return work


OURS: dict[str, Callable[[np.ndarray[Any, Any]], Callable[[int], None]]] = {
    "Tradewind, compiled, gathered, wind turned": _compiled,
    "Tradewind, plain torch, gathered, wind turned": _plain,
}


def _rate(work: Callable[[int], None], count: int) -> float:
    """Images per second over at least SECONDS."""
    done, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < SECONDS:
        work(count)
        done += count
    return done / elapsed


def _middle(seconds: Any) -> float:
    return float(median(seconds)) if isinstance(seconds, list) else float(seconds)


@contextmanager
def _cache(folder: str) -> Iterator[None]:
    """A data cache of this benchmark alone: what `pre` writes is made anew, and goes with it."""
    before = os.environ.get("TRADEWIND_CACHE")
    os.environ["TRADEWIND_CACHE"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRADEWIND_CACHE"]
        else:
            os.environ["TRADEWIND_CACHE"] = before
