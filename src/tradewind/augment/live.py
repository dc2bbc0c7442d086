"""Live augmentation: samples as they are stored, moved anew in every epoch, by the fastest way that there is."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch

from tradewind.augment.affine import Augmentation, Vectors, check_vectors, transform
from tradewind.noise import signed, start_word

Way = Literal["triton", "numba", "torch"]

_DTYPES = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16)}
_log = logging.getLogger("tradewind")
_told: set[str] = set()


@dataclass(frozen=True)
class Live:
    """Moves samples. The first batch takes seconds where its way must be compiled: make one before timing."""

    stored: torch.Tensor  # (N, C, …), or (N, …, C) if channels last
    channels_last: bool
    data_seed: int
    augmentation: Augmentation
    vectors: Vectors

    def __post_init__(self) -> None:
        check_vectors(self.vectors, self.stored.ndim - 2, self.augmentation)

    @property
    def way(self) -> Way:
        """How samples are moved; asking compiles it."""
        return self._chosen[0]

    @property
    def reason(self) -> str:
        """Why it is plain torch, or nothing."""
        return self._chosen[1]

    def start(self, epoch: int) -> torch.Tensor:
        """The epoch as a word in memory, for `batch`: overwrite it between replays of a CUDA graph."""
        return torch.full((1,), signed(start_word(self.data_seed, epoch)), device=self.stored.device)

    def batch(self, rows: torch.Tensor, index: torch.Tensor, epoch: int | torch.Tensor) -> torch.Tensor:
        """The samples in these rows, moved as those of these indices, as (n, C, …) in the layout of the store.

        A word in place of the epoch serves where `way` is triton alone.
        """
        if self.way == "triton":
            return self._by_triton(rows, index, epoch if isinstance(epoch, torch.Tensor) else self.start(epoch))
        if isinstance(epoch, torch.Tensor):
            raise ValueError(f"an epoch as a word needs a GPU and Triton, not {self.way} ({self.reason})")
        if self.way == "numba":
            return self._by_numba(rows, index, epoch)
        images = self.stored[rows]
        images = images.movedim(-1, 1) if self.channels_last else images
        return transform(images, index, epoch, self.data_seed, self.augmentation, self.vectors)

    def _by_numba(self, rows: torch.Tensor, index: torch.Tensor, epoch: int) -> torch.Tensor:
        from tradewind.augment import cpu

        arrays = self.stored.numpy(), rows.numpy(), index.numpy()
        start = start_word(self.data_seed, epoch)
        return torch.from_numpy(cpu.augmented_rows(*arrays, start, self.augmentation, self.vectors)).movedim(-1, 1)

    def _by_triton(self, rows: torch.Tensor, index: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        from tradewind.augment import gpu

        return gpu.augmented_rows(self.stored, rows, index, start, self.augmentation, self.vectors).movedim(-1, 1)

    @cached_property
    def _chosen(self) -> tuple[Way, str]:
        reason = self._misfit()
        if not reason:
            one = torch.zeros(1, dtype=torch.int64, device=self.stored.device)
            try:
                if self.stored.is_cuda:
                    self._by_triton(one, one, self.start(0))
                    return "triton", ""
                self._by_numba(one, one, 0)
                return "numba", ""
            except Exception as error:  # no compiler, or one that fails: slower, but no reason not to train
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if reason not in _told:
            _told.add(reason)
            _log.warning("live augmentation by plain torch, several times slower: %s", reason)
        return "torch", reason

    def _misfit(self) -> str:
        """What the compiled ways can't do, or nothing."""
        if self.stored.ndim != 4 or not self.channels_last or not self.stored.is_contiguous():
            return "samples are not images stored with channels last"
        if self.stored.dtype not in _DTYPES.get(self.stored.device.type, ()):
            return f"samples are {self.stored.dtype} on {self.stored.device.type}"
        if self.augmentation.interpolation != "linear":
            return f"interpolation is {self.augmentation.interpolation}, not linear"
        return ""
