"""Which networks train faster as one, by a profile of the kind of machine: a rule, so that no clock decides in a run.

A profile is measured once (`tradewind bench profile`), comes with Tradewind for common machines, and holds how the
time of a step as one compares with the time alone, by what networks are made of, how much they compute, and how many
there are. Where there is none, networks train one by one.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tradewind import machine
from tradewind.train.batches import Samples
from tradewind.workloads.cache import cache_folder
from tradewind.workloads.contract import Split

PAYS = 0.9  # of the time alone: less gained is not worth the memory
SHIPPED = Path(__file__).parent / "profiles"
UPDATE = 40  # multiplications that take as long as the optimiser's step of one weight
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Shape:
    """What decides on the speed of a network's step: what does most of its work, and how much of it there is."""

    layers: str  # dense, convolution, or front: convolutions that our own kernels do
    work: float  # multiplications of a layer with weights, for one sample, in the mean
    weights: float  # of such a layer
    count: int  # of such layers

    @property
    def total(self) -> float:
        """Multiplications of the whole network for one sample."""
        return self.work * self.count

    def step(self, batch_size: int) -> float:
        """The work of a layer in a step, the optimiser's part in it."""
        return self.work * batch_size + UPDATE * self.weights


@dataclass(frozen=True)
class Row:
    """Times of a step as one, for each of so many networks, over those alone; `work` is that of a layer in a step."""

    layers: str
    networks: int
    work: tuple[float, ...]
    ratio: tuple[float, ...]
    threads: int = 0  # on a CPU; 0: on a GPU, where they do not matter

    def at(self, work: float) -> float:
        """The ratio for so much work: between measured points, and above them as it rises there."""
        x, y = np.log(np.asarray(self.work)), np.asarray(self.ratio)
        here = math.log(max(work, 1.0))
        slope = max(0.0, (y[-1] - y[-2]) / (x[-1] - x[-2])) if len(x) > 1 else 0.0
        return float(np.interp(here, x, y) + slope * max(0.0, here - x[-1]))


@dataclass(frozen=True)
class Profile:
    """What was measured on a kind of machine."""

    kind: str
    as_one: tuple[Row, ...]
    models: tuple[str, ...] = ()  # of GPUs: those whose names hold one of these
    work_per_s: float = 0.0  # of a GPU, by torch's own kernels in stacks: multiplications, forth and back
    beside_work: float = 0.0  # of a GPU: the multiplications of a step that leave no room for others beside it
    about: dict[str, Any] = field(default_factory=dict)  # when and on what it was measured

    @classmethod
    def of(cls, content: dict[str, Any]) -> Profile:
        """From the content of its file."""
        rows = [Row(**{**row, "work": tuple(row["work"]), "ratio": tuple(row["ratio"])}) for row in content["as_one"]]
        return cls(**{**content, "as_one": tuple(rows), "models": tuple(content.get("models", ()))})

    def ratio(self, shape: Shape, batch_size: int, networks: int, threads: int) -> float:
        """The expected time of a step as one, for each network, over that alone."""
        rows = [row for row in self.as_one if row.layers == shape.layers]
        rows = rows or [
            row for row in self.as_one if row.layers == "convolution"
        ]  # where nothing closer was measured
        most = max((row.threads for row in rows if row.threads <= threads), default=0)
        rows = sorted((row for row in rows if row.threads == most), key=lambda row: row.networks)
        if not rows:
            return math.inf
        counts = np.log([row.networks for row in rows])
        return float(np.interp(math.log(networks), counts, [row.at(shape.step(batch_size)) for row in rows]))

    def why_apart(self, shape: Shape, batch_size: int, networks: int, threads: int) -> str:
        """Why so many networks are not trained as one; empty where they are."""
        ratio = self.ratio(shape, batch_size, networks, threads)
        if ratio <= PAYS:
            return ""
        size = f"{shape.layers} layers of {shape.step(batch_size):.2g} multiplications a step"
        return f"{networks} networks with {size} take {ratio:.2f} of the time alone each, by the profile {self.kind}"

    def building_saves_s(self, shape: Shape, samples: float) -> float:
        """The seconds of training on so many samples, of all networks together, that built kernels can shorten."""
        return 3 * shape.total * samples / self.work_per_s if self.work_per_s else 0.0

    def beside_pays(self, works: Sequence[float]) -> bool:
        """Whether kinds of networks train faster beside each other, by the multiplications of a step of each."""
        return self.beside_work > 0 and sum(work / self.beside_work <= PAYS for work in works) > 1


def shape_of(model: nn.Module, split: Split, front: bool) -> Shape:
    """What a fresh network computes, seen as it is called with two samples; `front`: by kernels of our own."""
    samples = Samples.of(Split(split.inputs[:2], split.targets[:2]), torch.device("cpu"), torch.float32)
    found: list[tuple[bool, float, int]] = []

    def called(layer: nn.Module, inputs: Any, outputs: Any) -> None:
        weights = sum(p.numel() for p in layer.parameters(recurse=False) if p.ndim > 1)
        if isinstance(layer, CONVOLUTIONS):
            found.append((True, outputs.numel() / layer.out_channels * weights, weights))
        elif weights and inputs and not isinstance(layer, nn.Embedding):  # a parametrisation is called with none
            found.append((False, inputs[0].numel() / inputs[0].shape[-1] * weights, weights))

    for layer in model.modules():
        layer.register_forward_hook(called)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        model.float().eval()(samples.rows(slice(0, 2)))
    work = sum(each for _, each, _ in found) / len(samples)
    convolved = sum(each for convolution, each, _ in found if convolution) / len(samples)
    layers = "front" if front else "convolution" if convolved > work / 2 else "dense"
    count = max(1, len(found))
    return Shape(layers, work / count, sum(weights for _, _, weights in found) / count, count)


def profile_of(device: torch.device) -> Profile | None:
    """The profile of this machine: the one that was measured on its kind before, else one that comes with us."""
    return _read(profile_path(device)) or shipped_profile(device)


def shipped_profile(device: torch.device) -> Profile | None:
    """The profile of such a machine that comes with Tradewind."""
    if device.type == "cpu":
        return _read(SHIPPED / f"{_features()}.json")
    name = torch.cuda.get_device_name(device)
    shipped = (_read(path) for path in sorted(SHIPPED.glob("*.json")))
    return next((one for one in shipped if one and any(model in name for model in one.models)), None)


def profile_path(device: torch.device) -> Path:
    """Where the profile that is measured on this kind of machine lies."""
    return cache_folder() / "profiles" / f"{kind_of_machine(device)}.json"


def kind_of_machine(device: torch.device) -> str:
    """The model of the CPU and what of it torch uses, or that of the GPU, as a name of a file."""
    if device.type == "cpu":
        return f"{_plain(machine.facts()['cpu'])}-{_features()}"
    return _plain(torch.cuda.get_device_name(device))


def _features() -> str:
    return _plain(f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability()}")


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@cache
def _read(path: Path) -> Profile | None:
    """A profile's file, read once in a process; None where there is none that can be used."""
    try:
        return Profile.of(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"{path}: can't be used ({error}); tradewind bench profile writes it anew")
        return None
