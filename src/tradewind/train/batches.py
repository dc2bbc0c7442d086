"""Batches: which samples in which order, and how they reach the device."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tradewind.augment.affine import Augmentation, augment_ahead, transform
from tradewind.pack import Config
from tradewind.workloads.cache import cached
from tradewind.workloads.contract import Data, Split


@dataclass
class Samples:
    """A split as tensors; gathers rows in whichever layout they are stored."""

    inputs: torch.Tensor
    targets: torch.Tensor
    channels_last: bool

    @classmethod
    def of(cls, split: Split, device: torch.device, dtype: torch.dtype) -> Samples:
        """The arrays of a split on a device."""
        inputs = split.inputs
        last = inputs.ndim > 2 and np.moveaxis(inputs, 1, -1).flags.c_contiguous and not inputs.flags.c_contiguous
        stored = torch.from_numpy(np.moveaxis(inputs, 1, -1) if last else np.ascontiguousarray(inputs))
        if stored.is_floating_point():
            stored = stored.to(dtype)
        targets = torch.from_numpy(np.ascontiguousarray(split.targets))
        if targets.is_floating_point():
            targets = targets.to(dtype)
        return cls(stored.to(device), targets.to(device), last)

    def __len__(self) -> int:
        return len(self.targets)

    def rows(self, index: torch.Tensor | slice) -> torch.Tensor:
        """The inputs of some samples, as (n, channels, …)."""
        rows = self.inputs[index]
        return rows.movedim(-1, 1) if self.channels_last else rows


def epoch_order(count: int, data_seed: int, epoch: int) -> torch.Tensor:
    """The order of samples in an epoch: a function of (data_seed, epoch) alone."""
    digest = hashlib.blake2b(f"{data_seed}/{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
    return torch.randperm(count, generator=generator)


@dataclass
class TrainingBatches:
    """The training samples of a trial, multiplied and augmented as its config says."""

    samples: Samples
    count: int  # per epoch
    batch_size: int
    data_seed: int
    vectors: tuple[tuple[int, int], ...]
    augmentation: Augmentation | None  # live, if there is one

    def epoch(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The batches of an epoch, the last one as large as what is left."""
        order = epoch_order(self.count, self.data_seed, epoch).to(self.samples.targets.device)
        for index in torch.split(order, self.batch_size):
            rows = index % len(self.samples)
            inputs = self.samples.rows(rows)
            if self.augmentation is not None:
                inputs = transform(inputs, index, epoch, self.data_seed, self.augmentation, self.vectors)
            yield inputs, self.samples.targets[rows]


def training_batches(
    split: Split, data: Data, config: Config, device: torch.device, dtype: torch.dtype
) -> TrainingBatches:
    """How a trial sees its training samples, which `prepared` has made ready."""
    live = augmentation_of(config) if config["augment"] == "live" else None
    count = len(data.train) * config["data_multiplier"]
    samples = Samples.of(split, device, dtype)
    return TrainingBatches(samples, count, config["batch_size"], config["data_seed"], data.vectors, live)


def augmentation_of(config: Config) -> Augmentation:
    """How far a config lets samples be moved."""
    return Augmentation(config["rotation_deg"], config["translation"], config["zoom"], config["vectors"])


def prepared(data: Data, identity: str, config: Config) -> tuple[Split, float]:
    """The training samples, and the seconds that augmenting them ahead of time took whichever trial did it."""
    if config["augment"] != "pre":
        return data.train, 0.0
    augmentation = augmentation_of(config)
    multiplier, data_seed = config["data_multiplier"], config["data_seed"]
    inputs = np.moveaxis(data.train.inputs, 1, -1)

    def make() -> tuple[np.ndarray[Any, Any], ...]:
        began = time.perf_counter()
        out = np.empty((multiplier * len(inputs), *inputs.shape[1:]), dtype=np.float32)
        augment_ahead(data.train.inputs, multiplier, augmentation, data.vectors, data_seed, np.moveaxis(out, -1, 1))
        return out, np.array([time.perf_counter() - began])

    text = f"{identity} {data_seed} {multiplier} {augmentation}"
    name = f"augmented-{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"
    stored, seconds = cached(name, ["inputs", "seconds"], make)
    return Split(np.moveaxis(stored, -1, 1), np.tile(data.train.targets, multiplier)), float(seconds[0])
