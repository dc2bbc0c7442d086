"""A training step of M storm networks as one CUDA graph, with kernels of our own and without, and what is in it.

    python bench/steps.py [--save bench/results/steps-h200.json]

Samples per second over all networks and seconds for an epoch of 138,963 storms: the median of three epochs after one
to warm up. What it takes to make the graph is beside it, which is most where kernels are still to be compiled. The
kernels of a step come from torch's profiler, ten replays.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tradewind import Study
from tradewind.bench import about, installed
from tradewind.schedule.trials import Trials
from tradewind.train.held import Remembered
from tradewind.train.plain import load
from tradewind.train.stack import Stack
from tradewind.train.stacked import Stacked
from tradewind.train.steps import Steps
from tradewind.workloads.contract import Data
from tradewind.workloads.storm import Storm
from tradewind.workloads.storms import storms_cached

DATA = {"train": 138_963, "validation": 0, "test": 44_760}
CASES = [
    {"networks": networks, "batch_size": batch_size, "precision": precision, "augment": augment}
    for networks, batch_size, precision, augment in (
        (64, 128, "bf16", "none"), (64, 1024, "bf16", "none"), (64, 128, "bf16", "live"), (1, 128, "bf16", "none"),
        (1, 1024, "bf16", "none"), (1, 128, "bf16", "live"), (1, 128, "fp32", "none"), (1, 128, "tf32", "none"),
    )
]  # fmt: skip


def steps_of(case: dict[str, Any], fuses: bool, data: Data, held: Remembered) -> tuple[Steps, torch.Tensor]:
    """The steps of a case, and the rates of its networks."""
    fixed = {"device": "cuda", **{name: value for name, value in case.items() if name != "networks"}}
    trials = Trials(Study(name="steps", workload="storm", data=DATA, repeats=case["networks"], fixed=fixed))
    configs = [{**trials[k].config, "seed": trials[k].seed, "data_seed": 0} for k in range(case["networks"])]
    storm, models = Storm(**DATA), []
    sets = load(data, configs[0], torch.device("cuda"), torch.float32, held)
    for config in configs:
        torch.manual_seed(config["seed"])
        models.append(storm.model(config).cuda().to(memory_format=torch.channels_last))
    stack = Stack(models, [config["seed"] for config in configs], storm, case["precision"])
    if not fuses:
        stack.unfuse("to compare")
    rates = torch.full((case["networks"], 1), 1e-3, device="cuda")
    return Steps(stack, Stacked(stack.rows, configs), sets.train, configs[0]), rates


def measured(case: dict[str, Any], fuses: bool, data: Data, held: Remembered) -> dict[str, Any]:
    """Seconds of an epoch and of making the graph, and the kernels of a step."""
    began = time.perf_counter()
    steps, rates = steps_of(case, fuses, data, held)
    torch.cuda.synchronize()
    making_s, seconds = time.perf_counter() - began, list[float]()
    for epoch in range(1, 5):
        began = time.perf_counter()
        steps.epoch(epoch, rates)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(10):
            steps._graph.replay()  # type: ignore[union-attr]
        torch.cuda.synchronize()
    kernels = sorted(seen.key_averages(), key=lambda one: -one.device_time_total)[:20]
    epoch_s = median(seconds[1:])
    return {
        **case, "kernels_of_our_own": fuses, "epochs_s": seconds, "making_s": making_s,
        "samples_per_s": case["networks"] * DATA["train"] / epoch_s, "epoch_s": epoch_s,
        "kernels_us": {one.key[:80]: one.device_time_total / 10 for one in kernels},
    }  # fmt: skip


def main() -> None:
    """Every case in bf16 both ways, the others as they are; the file is written after each."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--save", type=Path, default=Path("steps.json"))
    chosen = options.parse_args()
    versions = {name: installed(name) for name in ("torch", "triton")}
    found: dict[str, Any] = {**about(), "versions": versions, "cases": []}
    storms_cached(sum(DATA.values()), 0, "cuda")
    data, held = Storm(**DATA).data({"data_seed": 0}), Remembered()
    for case in CASES:
        for fuses in (True, False) if case["precision"] == "bf16" else (False,):
            found["cases"].append(one := measured(case, fuses, data, held))
            chosen.save.write_text(json.dumps(found, indent=1) + "\n")
            print(
                {name: one[name] for name in (*case, "kernels_of_our_own", "samples_per_s", "epoch_s", "making_s")},
                flush=True,
            )


if __name__ == "__main__":
    main()
