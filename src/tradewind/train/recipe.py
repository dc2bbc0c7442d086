"""What samples augmented ahead of time are: which row of a split, moved how, under which name."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tradewind.augment
from tradewind.augment.affine import Augmentation
from tradewind.augment.live import Live
from tradewind.workloads.contract import Split

Array = np.ndarray[Any, Any]

HASHED_BYTES = 4 << 20  # by one thread at a time
PIECE_BYTES = 1 << 20  # moved at a time: about 85 storms, which stay in a core's cache
GPU_PIECE_BYTES = 8 << 20  # a GPU wants more: what it is asked and what it gives back take a while on their way
GPU_SHARE = 0.25  # of a GPU's memory that the samples to be moved may take
_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class Recipe:
    """The samples of a split, some more than once, all but the first of each moved."""

    split: Split
    rows: Array  # of the split, in one pass: all in their order, then the further copies
    multiplier: int  # passes
    augmentation: Augmentation
    vectors: tuple[tuple[int, ...], ...]
    data_seed: int
    device: torch.device  # where they are moved, if they fit

    @property
    def count(self) -> int:
        """How many samples there are."""
        return self.multiplier * len(self.rows)

    @property
    def row_bytes(self) -> int:
        """The size of one sample."""
        return int(math.prod(self.split.inputs.shape[1:])) * _FLOAT.itemsize

    @property
    def piece(self) -> int:
        """How many samples are moved at a time."""
        return max(1, (GPU_PIECE_BYTES if self.device.type == "cuda" else PIECE_BYTES) // self.row_bytes)

    def sources(self, start: int, stop: int) -> Array:
        """Which row of the split each of these samples is."""
        rows: Array = self.rows[np.arange(start, stop) % len(self.rows)]
        return rows

    def samples(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Samples from `start` to before `stop` in the order of memory, in pieces with the number of their first."""
        inputs, last = memory_order(self.split.inputs)
        natural, live = len(self.split), self._live
        device = live.stored.device
        while start < stop:
            # ends that do not depend on the start: pieces, and with them rounding, are the same for every chunk size
            end = min(stop, start - start % self.piece + self.piece, natural if start < natural else stop)
            rows = self.sources(start, end)
            if start < natural:
                yield start, np.asarray(inputs[rows], _FLOAT)
            else:
                index = torch.arange(start, end, device=device)
                moved = live.batch(torch.from_numpy(rows).to(device), index, 0).cpu()
                yield start, (moved.movedim(1, -1) if last else moved).numpy()
            start = end

    @cached_property
    def _live(self) -> Live:
        return self._moving(len(self.split))

    def _moving(self, count: int) -> Live:
        """What moves the first samples of the split, on their device."""
        inputs, last = memory_order(self.split.inputs)
        device = torch.device("cpu")
        if self.device.type == "cuda":
            whole = torch.cuda.get_device_properties(self.device).total_memory
            device = self.device if inputs.nbytes <= GPU_SHARE * whole else device
        held = torch.from_numpy(np.asarray(inputs[:count], _FLOAT)).to(device)
        return Live(held, last, self.data_seed, self.augmentation, self.vectors)

    def name(self) -> str:
        """The same for the same samples, made by the same code."""
        digest = hashlib.blake2b(digest_size=12)
        for path in sorted(Path(tradewind.augment.__file__).parent.glob("*.py")):
            digest.update(path.read_bytes())
        inputs = self.split.inputs
        text = repr((
            torch.__version__, _content(self.split), inputs.shape, memory_order(inputs)[1], self._moving(1).way,
            self.multiplier, self.augmentation, self.vectors, self.data_seed,
        ))  # fmt: skip
        digest.update(text.encode())
        digest.update(np.ascontiguousarray(self.rows, np.int64).data)
        return digest.hexdigest()


def memory_order(inputs: Array) -> tuple[Array, bool]:
    """The inputs with their axes in the order of memory, and whether that has the channels last."""
    moved = np.moveaxis(inputs, 1, -1) if inputs.ndim > 2 else inputs
    last = moved.flags.c_contiguous and not inputs.flags.c_contiguous
    return (moved if last else inputs), last


def _content(split: Split) -> str:
    """A hash of all inputs; kept with the split, since a worker's trials share it (1.2 s a GB on one thread)."""
    kept = vars(split)
    if "_content" not in kept:
        inputs, _ = memory_order(split.inputs)
        step = max(1, HASHED_BYTES // inputs[:1].nbytes)

        def hashed(start: int) -> bytes:
            return hashlib.blake2b(np.ascontiguousarray(inputs[start : start + step]).data).digest()

        digest = hashlib.blake2b(str(inputs.dtype).encode(), digest_size=16)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # hashing lets go of the interpreter
            for part in pool.map(hashed, range(0, len(inputs), step)):
                digest.update(part)
        kept["_content"] = digest.hexdigest()
    return str(kept["_content"])
