"""Shapes in many small fields at once: hills, noise with a red spectrum, and cells that hang together.

Fields are (n, 32, 32) tensors; rows grow northward, columns eastward, and places are cells from cell [16, 16].
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from tradewind.noise import uniforms

SIDE = 32
CENTRE = 16
_FLOOD = 20  # steps from the centre to the farthest cell
Hills = tuple[Tensor, Tensor, Tensor, Tensor]  # x, y, radius and height, each (n, hills)


@lru_cache
def axes(device: torch.device) -> tuple[Tensor, Tensor]:
    """Places east and north of the storm's centre, in cells."""
    axis = torch.arange(SIDE, dtype=torch.float32, device=device) - CENTRE
    return axis[None, None, :], axis[None, :, None]


def add_hills(field: Tensor, hills: Hills) -> None:
    """Add round hills to a field: rows times columns, so few exponentials."""
    x, y, radius, height = hills
    axis = axes(field.device)[0]
    scale = (-0.5 / radius**2)[:, :, None]
    rows = height[:, :, None] * torch.exp(scale * (axis - y[:, :, None]) ** 2)
    columns = torch.exp(scale * (axis - x[:, :, None]) ** 2)
    field.baddbmm_(rows.transpose(1, 2), columns)


def texture(seed: int, stream: int, index: Tensor, waves: int, slope: float) -> Tensor:
    """Noise of spread 1 whose waves weaken with their number to the power `slope`: weather's red spectrum."""
    shape, spread = _spectrum(waves, slope, index.device)
    noise = uniforms(seed, stream, index, waves * waves).view(-1, waves, waves)
    return shape @ ((noise - 0.5) * spread) @ shape.T


@lru_cache
def _spectrum(waves: int, slope: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines (cells, waves) over a width greater than the patch, and the range of each pair's coefficient."""
    number = torch.arange(waves, dtype=torch.float64)
    width = SIDE + 8  # so that the field isn't flat across the patch's edges
    shape = torch.cos(math.pi * number * (torch.arange(SIDE)[:, None] + 4.5) / width)
    order = torch.hypot(number[:, None], number)
    spread = (1.0 + order) ** -slope
    spread[0, 0] = 0.0
    power = (shape**2 @ spread**2 @ (shape**2).T).mean()
    spread *= math.sqrt(12.0) / power.sqrt()  # a uniform number's spread is 1/√12 of its range
    return shape.to(device, torch.float32), spread.to(device, torch.float32)


def connected(inside: Tensor) -> Tensor:
    """The True cells that hang together with the four in the middle, corners too, in at most 20 steps."""
    # a row of 32 cells is 32 bits of a word: a step costs 32 words a storm, not 1024 cells
    columns = torch.arange(SIDE, device=inside.device)
    rows = (inside.to(torch.int64) << columns).sum(dim=2)
    flood = torch.zeros_like(rows)
    flood[:, CENTRE - 1 : CENTRE + 1] = 3 << (CENTRE - 1)
    flood &= rows
    for _ in range(_FLOOD):
        flood |= (flood << 1) | (flood >> 1)
        below, above = flood[:, :-1].clone(), flood[:, 1:].clone()
        flood[:, 1:] |= below
        flood[:, :-1] |= above
        flood &= rows
    return (flood[:, :, None] >> columns & 1).to(torch.bool)
