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
    data: Data, identity: str, config: Config, device: torch.device, dtype: torch.dtype
) -> tuple[TrainingBatches, float]:
    """How a trial sees its training data, and the seconds spent augmenting ahead of time."""
    augmentation = Augmentation(config["rotation_deg"], config["translation"], config["zoom"], config["vectors"])
    split, prepare_s = data.train, 0.0
    if config["augment"] == "pre":
        began = time.perf_counter()
        split = _ahead(data, identity, config, augmentation)
        prepare_s = time.perf_counter() - began
    batches = TrainingBatches(
        Samples.of(split, device, dtype), len(data.train) * config["data_multiplier"], config["batch_size"],
        config["data_seed"], data.vectors, augmentation if config["augment"] == "live" else None,
    )  # fmt: skip
    return batches, prepare_s


def _ahead(data: Data, identity: str, config: Config, augmentation: Augmentation) -> Split:
    multiplier, data_seed = config["data_multiplier"], config["data_seed"]
    inputs = np.moveaxis(data.train.inputs, 1, -1)

    def make() -> np.ndarray[Any, Any]:
        out = np.empty((multiplier * len(inputs), *inputs.shape[1:]), dtype=np.float32)
        augment_ahead(data.train.inputs, multiplier, augmentation, data.vectors, data_seed, np.moveaxis(out, -1, 1))
        return out

    text = f"{identity} {data_seed} {multiplier} {augmentation}"
    name = f"augmented-{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"
    (stored,) = cached(name, ["inputs"], lambda: (make(),))
    return Split(np.moveaxis(stored, -1, 1), np.tile(data.train.targets, multiplier))
