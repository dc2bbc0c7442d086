"""The networks of the bundled workloads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tradewind.errors import WorkloadError, nearest

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "elu": nn.ELU}
POOLS: dict[str, type[nn.Module]] = {"average": nn.AvgPool2d, "max": nn.MaxPool2d}


class StormNetwork(nn.Module):
    """Convolutions with 2×2 pools between them, then one dense layer; 18,705 parameters by default."""

    def __init__(
        self,
        filters: Sequence[int] = (8, 16, 32),
        kernel: int = 5,
        activation: str = "relu",
        pool: str = "average",
        dropout: float = 0.0,
        channels: int = 3,
        side: int = 32,
    ) -> None:
        super().__init__()
        _check(filters, kernel, activation, pool, side)
        layers: list[nn.Module] = []
        for position, width in enumerate(filters):
            if position:
                layers.append(POOLS[pool](2))
                side //= 2
            layers += [nn.Conv2d(channels, width, kernel, padding=kernel // 2), ACTIVATIONS[activation]()]
            channels = width
        if dropout:
            layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits, shape (n,)."""
        logits: torch.Tensor = self.layers(inputs)
        return logits.squeeze(1)


def _check(filters: Sequence[int], kernel: int, activation: str, pool: str, side: int) -> None:
    if not filters or any(type(width) is not int or width < 1 for width in filters):
        raise WorkloadError(f"filters: found {filters!r}; allowed: a list of whole numbers from 1")
    if side < 2 ** (len(filters) - 1):
        most = side.bit_length()
        raise WorkloadError(
            f"filters: found {len(filters)} layers, with a pool between each two; images of side {side} allow {most}"
        )
    if kernel % 2 == 0:
        raise WorkloadError(f"kernel: found {kernel}; allowed: odd numbers, so that the image keeps its size")
    for name, value, known in (("activation", activation, ACTIVATIONS), ("pool", pool, POOLS)):
        if value not in known:
            raise WorkloadError(f"{name}: found {value!r}; {nearest(value, known)}")
