"""Optimisers for many networks at once: row m of every tensor belongs to network m, and so does its rate.

The formulas, and their order of rounding, are those of torch.optim.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch

from tradewind.pack import Config
from tradewind.train.optim import EPSILON


@cache
def triton_is_there() -> bool:
    """Whether kernels of our own can be built here."""
    return find_spec("triton") is not None


class Stacked:
    """The state of one optimiser over all rows; `step` changes the parameters in place."""

    def __init__(self, parameters: torch.Tensor, configs: Sequence[Config]) -> None:
        self._kind = configs[0]["optimizer"]
        self._count = torch.zeros((), dtype=torch.float64, device=parameters.device)
        self._buffers = [torch.zeros_like(parameters) for _ in range(1 if self._kind == "sgd" else 2)]

        def column(name: str) -> torch.Tensor:
            values = [config[name] for config in configs]
            return torch.tensor(values, dtype=torch.float64, device=parameters.device).to(parameters.dtype)[:, None]

        self._momentum, self._decay = column("momentum"), column("weight_decay")
        self._beta1, self._beta2 = column("beta1"), column("beta2")
        self._powers = [torch.tensor([[c[n]] for c in configs], dtype=torch.float64, device=parameters.device)
                        for n in ("beta1", "beta2")]  # fmt: skip
        self._logs = [power.log() for power in self._powers]
        self.fuses = parameters.is_cuda and parameters.dtype == torch.float32 and triton_is_there()

    @torch.no_grad()
    def step(self, parameters: torch.Tensor, gradients: torch.Tensor, rates: torch.Tensor) -> None:
        """One step of every row; `rates` is a column."""
        if self.fuses:
            self._fused_step(parameters, gradients.contiguous(), rates)
            return
        if self._kind == "sgd":
            (momentum,) = self._buffers
            momentum.mul_(self._momentum).add_(gradients.addcmul(parameters, self._decay))
            parameters.sub_(rates * momentum)
            return
        if self._kind == "adamw":
            parameters.mul_(1.0 - rates * self._decay)
        else:
            gradients = gradients.addcmul(parameters, self._decay)
        self._count += 1
        first, second = self._buffers
        first.lerp_(gradients, 1.0 - self._beta1)
        second.mul_(self._beta2).add_((1.0 - self._beta2) * gradients * gradients)
        bias1, bias2 = ((1.0 - power**self._count).to(parameters.dtype) for power in self._powers)
        spread = (second.sqrt() / bias2.sqrt()).add_(EPSILON)
        parameters.sub_((rates / bias1) * (first / spread))

    def _fused_step(self, parameters: torch.Tensor, gradients: torch.Tensor, rates: torch.Tensor) -> None:
        from tradewind.train import stacked_kernel as kernel

        m, length = parameters.shape
        grid = -(-length // kernel.BLOCK), m
        if self._kind == "sgd":
            kernel.sgd[grid](
                parameters, gradients, *self._buffers, rates, self._decay, self._momentum, length, kernel.BLOCK
            )
            return
        self._count += 1
        kernel.adam[grid](
            parameters, gradients, *self._buffers, rates, self._decay, self._beta1, self._beta2, *self._logs,
            self._count, length, EPSILON, self._kind == "adamw", kernel.BLOCK,
        )  # fmt: skip

    def state(self) -> dict[str, torch.Tensor]:
        """What lies in rows as the parameters do, under torch's names."""
        names = ["momentum_buffer"] if self._kind == "sgd" else ["exp_avg", "exp_avg_sq"]
        return dict(zip(names, self._buffers, strict=True))

    @property
    def count(self) -> torch.Tensor:
        """How many steps were taken, which may be set."""
        return self._count

    def tensors(self) -> list[torch.Tensor]:
        """All that a step changes besides the parameters."""
        return [self._count, *self._buffers]

    def keep(self, numbers: Sequence[int]) -> None:
        """Go on with these rows only."""
        rows = torch.tensor(numbers, device=self._count.device)
        self._buffers = [buffer[rows] for buffer in self._buffers]
        self._powers = [power[rows] for power in self._powers]
        self._logs = [power.log() for power in self._powers]
        for name in ("_momentum", "_decay", "_beta1", "_beta2"):
            setattr(self, name, getattr(self, name)[rows])
