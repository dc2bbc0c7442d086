"""Batches: which samples in which order, and how they reach the device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from tradewind import machine
from tradewind.augment.affine import Augmentation
from tradewind.augment.live import Live
from tradewind.augment.overlap import overlapped
from tradewind.errors import WorkloadError
from tradewind.noise import start_word
from tradewind.pack import Config
from tradewind.train.ahead import Stored, stored
from tradewind.train.dropout import Places
from tradewind.train.recipe import Recipe, memory_order
from tradewind.train.stream import Stream
from tradewind.workloads.contract import Data, Split

ROOM = 0.4  # of a GPU's memory for one split: more is brought in pieces, epoch for epoch
TO_DEVICE_BYTES = 64 << 20  # at a time: the only memory of the host that a store needs on its way to a device


@dataclass
class Samples:
    """A split as tensors; gathers rows in whichever layout they are stored."""

    inputs: torch.Tensor
    targets: torch.Tensor
    channels_last: bool
    dtype: torch.dtype = torch.float32
    stored: Stored | None = None  # where rows are read from, if the inputs stay on disk

    @classmethod
    def of(cls, split: Split, device: torch.device, dtype: torch.dtype) -> Samples:
        """The arrays of a split on a device if they fit; those of a store stay on disk where the device is a CPU."""
        inputs, last = memory_order(split.inputs)
        targets = torch.from_numpy(np.ascontiguousarray(split.targets))
        targets = targets.to(device, dtype if targets.is_floating_point() else None)
        there = _fits(inputs.nbytes, device)
        if isinstance(split, Stored):
            if device.type == "cpu" or not there:
                return cls(torch.from_numpy(inputs), targets, last, dtype, split)
            return cls(_brought(split, device, dtype), targets, last, dtype)
        held = torch.from_numpy(np.ascontiguousarray(inputs))
        if held.is_floating_point():
            held = held.to(dtype)
        return cls(held.to(device) if there else held, targets, last, dtype)

    @property
    def elsewhere(self) -> bool:
        """Whether the inputs are too many for their device."""
        return self.inputs.device != self.targets.device

    def __len__(self) -> int:
        return len(self.targets)

    def rows(self, index: torch.Tensor | slice) -> torch.Tensor:
        """The inputs of some samples, as (n, channels, …)."""
        rows = self.natural(index).to(self.targets.device)
        return rows.movedim(-1, 1) if self.channels_last else rows

    def natural(self, index: torch.Tensor | slice) -> torch.Tensor:
        """The inputs of some samples with their axes in the order of memory, where the inputs are."""
        if isinstance(index, slice):
            rows = self.inputs[index]
            return rows.to(self.dtype) if self.stored is not None else rows
        index = index.to(self.inputs.device)
        if self.stored is not None:
            return self.stored.read(index).to(self.dtype)
        return self.inputs.index_select(0, index)  # on a CPU several times as fast as self.inputs[index]


def _fits(size: int, device: torch.device) -> bool:
    if device.type == "cpu":
        return True
    return size <= ROOM * torch.cuda.get_device_properties(device).total_memory


def _brought(split: Stored, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """All inputs of a store on a device, piece by piece."""
    shape = memory_order(split.inputs)[0].shape
    found = torch.empty(shape, dtype=dtype, device=device)
    step = max(1, TO_DEVICE_BYTES // split.inputs[0].nbytes)
    piece = torch.empty((min(step, len(split)), *shape[1:]), dtype=torch.float32, pin_memory=device.type == "cuda")
    for start in range(0, len(split), step):
        here = piece[: len(split) - start]
        split.read_span(start, here)
        # converted there, in a third of the time; waits for the copy, so that the piece can be filled anew
        found[start : start + len(here)] = here.to(device)
    return found


def epoch_order(count: int, data_seed: int, epoch: int) -> torch.Tensor:
    """The order of samples in an epoch: a function of (data_seed, epoch) alone."""
    digest = hashlib.blake2b(f"{data_seed}/{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
    return torch.randperm(count, generator=generator)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some samples of an epoch; their indexes tell copies of a sample apart."""

    inputs: torch.Tensor
    targets: torch.Tensor
    index: torch.Tensor
    drops: int | torch.Tensor  # the word of the epoch, from which dropout draws
    first: int | torch.Tensor = 0  # the place of the first sample in the epoch's order
    end: int = 0  # the places up to here come next

    @property
    def places(self) -> Places:
        """The places of these samples in the epoch's order, on which dropout depends."""
        return Places(self.drops, self.first, len(self.index), self.end)


@dataclass
class TrainingBatches:
    """The training samples of a trial, multiplied, balanced and augmented as its config says."""

    samples: Samples
    sources: torch.Tensor | None  # the sample of each index of one pass; None: as they stand in `samples`
    count: int  # per epoch
    batch_size: int
    data_seed: int
    live: Live | None  # moves samples as they are drawn
    stream: Stream | None = None  # brings them, where they do not fit their device

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, the last one as large as what is left."""
        batches = self._batches(epoch)
        # on a GPU all is queued anyway; on a CPU the next batch is made beside training where a core is left for it,
        # else training's threads would wait for one another: 1.2 × the time, instead of 1.04 × one after the other
        beside = self.live and self.live.way == "numba" and machine.cores() > torch.get_num_threads()
        return overlapped(batches) if beside else batches

    def order(self, epoch: int) -> torch.Tensor:
        """The indexes of an epoch, in their order."""
        return epoch_order(self.count, self.data_seed, epoch)

    def pieces(self, epoch: int) -> Iterator[torch.Tensor]:
        """The indexes of an epoch in their order: all at once, or those of each piece when it has been brought."""
        order = self.order(epoch)
        if self.stream is None:
            yield order.to(self.samples.targets.device)
        else:
            yield from self.stream.brought(order, self._rows(order))

    def places(self, start: int, end: int) -> torch.Tensor | None:
        """In the piece that was brought last; None where nothing is brought."""
        return self.stream.places[start:end] if self.stream is not None else None

    def batch(
        self,
        index: torch.Tensor,
        epoch: int | torch.Tensor,
        drops: int | torch.Tensor | None = None,
        places: torch.Tensor | None = None,
        first: int | torch.Tensor = 0,
        end: int = 0,
    ) -> Batch:
        """The samples of these indexes, which may have places in the piece that was brought last.

        `first` is the place of the first one in the epoch's order. Words in device memory may stand for the epoch
        and for that place, for CUDA graphs.
        """
        rows = self._rows(index)
        if drops is None:
            assert isinstance(epoch, int), "words come in pairs"
            drops = start_word(0, epoch)
        inputs = self._inputs(rows, index, epoch, places)
        return Batch(inputs, self.samples.targets[rows], index, drops, first, end)

    def _rows(self, index: torch.Tensor) -> torch.Tensor:
        if self.sources is None:
            return index % len(self.samples)
        return self.sources.to(index.device)[index % len(self.sources)]

    def _inputs(
        self, rows: torch.Tensor, index: torch.Tensor, epoch: int | torch.Tensor, places: torch.Tensor | None
    ) -> torch.Tensor:
        if self.stream is None:
            return self.live.batch(rows, index, epoch) if self.live else self.samples.rows(rows)
        held = self.stream.piece
        if places is None:  # single ones, besides the pieces
            held = self.samples.natural(rows).to(index.device)
            places = torch.arange(len(rows), device=index.device)
        if self.live is not None:
            live = self.live if held is self.stream.piece else replace(self.live, stored=held)
            return live.batch(places, index, epoch)
        return held[places].movedim(-1, 1) if self.samples.channels_last else held[places]

    def _batches(self, epoch: int) -> Iterator[Batch]:
        before, drops = 0, start_word(0, epoch)
        for order in self.pieces(epoch):
            for start in range(0, len(order), self.batch_size):
                end = min(start + self.batch_size, len(order))
                places = self.places(start, end)
                yield self.batch(order[start:end], epoch, drops, places, before + start, self.count)
            before += len(order)


def batches_of(samples: Samples, stored: bool, data: Data, config: Config) -> TrainingBatches:
    """How a trial sees its training samples; of stored ones there is one for every index."""
    rows = balanced_rows(data.train.targets, config["positive_copies"])
    repeats = len(rows) > len(data.train) and not stored
    sources = torch.from_numpy(rows).to(samples.targets.device) if repeats else None
    count = len(rows) * config["data_multiplier"]
    data_seed, stream, held = config["data_seed"], None, samples.inputs
    if samples.elsewhere:
        one = samples.natural(slice(0, 1))[0]
        stream = Stream(samples.natural, one, samples.targets.device, config["batch_size"])
        held = stream.piece
    live = None
    if config["augment"] == "live":
        live = Live(held, samples.channels_last, data_seed, augmentation_of(config), data.vectors)
    return TrainingBatches(samples, sources, count, config["batch_size"], data_seed, live, stream)


def augmentation_of(config: Config) -> Augmentation:
    """How a config lets samples be moved: its hyperparameters have the names of the fields."""
    return Augmentation(**{field.name: config[field.name] for field in fields(Augmentation) if field.name in config})


def balanced_rows(targets: np.ndarray[Any, Any], positive_copies: int) -> np.ndarray[Any, Any]:
    """The rows of one pass: all in their order, then the positives again until each stands there so many times."""
    rows = np.arange(len(targets))
    if positive_copies == 1:
        return rows
    if targets.ndim != 1 or not np.isin(targets, (0, 1)).all():
        found = f"targets of shape {targets.shape}" if targets.ndim != 1 else "targets other than 0 and 1"
        raise WorkloadError(
            f"positive_copies: found {positive_copies}, and {found}; only samples whose target is 0 or 1 can be "
            "balanced, for others leave it at 1"
        )
    return np.concatenate((rows, np.tile(np.flatnonzero(targets > 0.5), positive_copies - 1)))


def prepared(data: Data, config: Config, device: torch.device) -> tuple[Split, dict[str, float]]:
    """The training samples, and what augmenting them ahead of time took, whichever trial did it."""
    if config["augment"] != "pre":
        return data.train, {"prepare_s": 0.0}
    rows = balanced_rows(data.train.targets, config["positive_copies"])
    augmentation, multiplier = augmentation_of(config), config["data_multiplier"]
    found = stored(Recipe(data.train, rows, multiplier, augmentation, data.vectors, config["data_seed"], device))
    rate = found.size / 1e6 / found.seconds
    return found, {"prepare_s": found.seconds, "prepare_bytes": found.size, "prepare_mb_per_s": rate}
