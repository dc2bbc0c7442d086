"""Which networks train faster as one on this machine: writes the profile by which runs here decide."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tradewind import machine
from tradewind.bench import about
from tradewind.folder import RunFolder
from tradewind.pack import Config, Limits, Task, Trial
from tradewind.train.fitting import train_pack
from tradewind.train.held import Remembered
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.plain import choose_device
from tradewind.train.profile import Profile, Row, kind_of_machine, profile_path, shape_of, shipped_profile
from tradewind.workloads.contract import Data, Hyperparameter, Split

BATCHES, CLASSES = 4, 10
MOST_EPOCHS, LEAST_EPOCHS = 30, 3
TAKES = 1e9  # multiplications for which a case is measured, alone
NETWORKS = {"cpu": (2, 4, 8), "cuda": (4, 64)}
BATCH = {"cpu": 1, "cuda": 4}  # times those of the cases: a GPU computes as soon as it is told
# width or channels, side of an image, batch size
CASES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "dense": ((16, 0, 32), (92, 0, 32), (92, 0, 256), (256, 0, 64), (256, 0, 256)),
    "convolution": ((4, 8, 32), (8, 16, 32), (8, 16, 128), (16, 32, 32)),
    "front": ((8, 8, 32), (8, 16, 128), (8, 32, 128), (16, 32, 64)),
}
EVER = Profile("as one", (Row("convolution", 2, (1.0, 2.0), (0.0, 0.0)),))
NEVER = Profile("one by one", ())


class Probe:
    """A network of a kind and size on noise."""

    metric = "validation_loss"
    defaults: Mapping[str, Hyperparameter] = {
        "layers": Hyperparameter("dense", str),
        "width": Hyperparameter(1, int),
        "side": Hyperparameter(0, int),
    }

    def data(self, config: Config) -> Data:
        """As many samples as make so many batches."""
        width, side, count = config["width"], config["side"], BATCHES * config["batch_size"]
        inputs = np.random.default_rng(0).standard_normal((count, width, *[side] * 2 * (side > 0)), dtype=np.float32)
        split = Split(inputs, np.zeros((count, CLASSES), dtype=np.float32))
        return Data(split, None, Split(inputs[:2], split.targets[:2]))

    def model(self, config: Config) -> nn.Module:
        """Two layers of the kind, and a dense one."""
        width, side = config["width"], config["side"]
        if config["layers"] == "dense":
            return nn.Sequential(
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
            )
        between = nn.ReLU if config["layers"] == "front" else nn.Tanh  # which our kernels do not know
        return nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), between(), nn.AvgPool2d(2),
            nn.Conv2d(width, width, 3, padding=1), between(),
            nn.Flatten(), nn.Linear(width * (side // 2) ** 2, CLASSES),
        )  # fmt: skip

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean square error."""
        return nn.functional.mse_loss(outputs, targets)

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """None."""
        return {}


def measure() -> dict[str, Any]:
    """The profile of this machine, which is written to the user's cache folder."""
    device = choose_device("auto")
    threads = sorted({1, machine.cores()}) if device.type == "cpu" else [0]
    before = torch.get_num_threads()
    try:
        rows = [row for count in threads for layers in CASES for row in rows_of(device, layers, count)]
    finally:
        torch.set_num_threads(before)
    known = shipped_profile(device) or Profile("", ())  # what is not measured here stays as it is known
    found = replace(known, kind=kind_of_machine(device), as_one=tuple(rows), about=about())
    path = profile_path(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return {"profile": asdict(found), "path": str(path)}


def rows_of(device: torch.device, layers: str, threads: int) -> list[Row]:
    """The ratios for networks of these layers."""
    torch.set_num_threads(threads or torch.get_num_threads())
    work, found = list[float](), {count: list[float]() for count in NETWORKS[device.type]}
    for width, side, batch_size in CASES[layers]:
        config = config_of(device, layers, width, side, batch_size * BATCH[device.type])
        data, probe = Probe().data(config), Probe()
        shape = shape_of(probe.model(config), data.train, layers == "front")
        work.append(shape.step(config["batch_size"]))
        samples = shape.total * len(data.train) * 3
        config["epochs"] = int(max(LEAST_EPOCHS, min(MOST_EPOCHS, TAKES / samples)))
        alone_s = epoch_s(config, data, 1, NEVER)
        for count, ratios in found.items():
            ratios.append(round(epoch_s(config, data, count, EVER) / count / alone_s, 3))
    order = np.argsort(work)
    return [
        Row(layers, count, tuple(work[k] for k in order), tuple(ratios[k] for k in order), threads)
        for count, ratios in found.items()
    ]


def config_of(device: torch.device, layers: str, width: int, side: int, batch_size: int) -> Config:
    """All that a probe is told."""
    known = {name: each.default for name, each in {**TRAINING, **Probe.defaults}.items()}
    precision = "bf16" if device.type == "cuda" and layers == "front" else "fp32"
    own = {"layers": layers, "width": width, "side": side}
    return {**known, **own, "batch_size": batch_size, "device": device.type, "precision": precision}


def epoch_s(config: Config, data: Data, networks: int, profile: Profile) -> float:
    """The shortest epoch of so many networks, in all: what else runs on the machine only makes one longer."""
    trials = [Trial(k, k, f"{k:032x}", config, k, 0) for k in range(networks)]
    with tempfile.TemporaryDirectory(prefix="tradewind-") as folder:
        run = RunFolder.create(Path(folder) / "run")
        task = Task("", "", {}, "tune", Limits(), "", str(run.path), torch.get_num_threads())
        found = train_pack(trials, Probe(), data, task, lambda *_: None, remembered=Remembered(profile))
    return float(min(found[trials[0].key].times["epoch_s"]))


def page(found: dict[str, Any]) -> str:
    """What was measured, and where it is kept."""
    profile = Profile.of(found["profile"])
    lines = ["time of a step as one over that alone, by multiplications of a layer and batch", ""]
    for row in profile.as_one:
        points = "  ".join(f"{work:.0e}: {ratio:.2f}" for work, ratio in zip(row.work, row.ratio, strict=True))
        where = f", {row.threads} thread{'s' * (row.threads > 1)}" if row.threads else ""
        lines.append(f"{row.layers:11s} {row.networks:2d} networks{where}   {points}")
    return "\n".join([*lines, "", f"written to {found['path']}: runs on this machine go by it from now on"])
