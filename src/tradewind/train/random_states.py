"""The generators of random numbers that a network may draw from by itself: Python's, numpy's and torch's."""

from __future__ import annotations

import random
from typing import Self

import numpy as np
import torch


class RandomStates:
    """Their states at a moment; as a context, what is drawn inside leaves no trace."""

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        self._python, self._numpy, self._torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(device) if self._device else self._torch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._device is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)

    def drawn(self) -> str:
        """The first of those that were drawn from since; empty if none was."""
        now, ours, its = RandomStates(self._device or torch.device("cpu")), self._numpy, np.random.get_state()
        if now._python != self._python:
            return "Python's random"
        if any(not np.array_equal(one, other) for one, other in zip(ours, its, strict=True)):
            return "numpy.random"
        same = torch.equal(now._torch, self._torch) and torch.equal(now._cuda, self._cuda)
        return "" if same else "torch's generator"
