"""Turn, shift and zoom images in one resampling, and the vectors in them too.

Rows are y and grow northward (row 0 is the south, as in WRF files), columns are x and grow eastward: a
positive angle turns a field counter-clockwise. A zoom stretches the field and leaves speeds as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from tradewind.noise import uniforms

_CHUNK = 256  # samples, to bound the memory; from 32 to 1024 the speed is the same


@dataclass(frozen=True)
class Augmentation:
    """How far a sample may be moved, and whether its vectors turn with it."""

    rotation_deg: float = 180.0  # angles within ±
    translation: float = 0.1  # shifts within ±, in sides of the image
    zoom: float = 0.1  # factors within 1 ±
    vectors: Literal["turn", "ignore"] = "turn"


def transform(
    images: torch.Tensor,
    index: torch.Tensor,
    epoch: int,
    data_seed: int,
    augmentation: Augmentation,
    vectors: tuple[tuple[int, int], ...],
) -> torch.Tensor:
    """The batch (n, C, H, W) moved; each sample's move depends on (data_seed, epoch, its index) alone."""
    draws = uniforms(data_seed, epoch, index, 4).to(images.dtype) * 2.0 - 1.0
    angle = draws[:, 0] * math.radians(augmentation.rotation_deg)
    scale = 1.0 + draws[:, 1] * augmentation.zoom
    shift = draws[:, 2:] * (2.0 * augmentation.translation)  # the image is 2 wide in grid_sample's units
    cos, sin = angle.cos(), angle.sin()
    grid = _sources(cos / scale, sin / scale, shift, *images.shape[2:])
    # not "reflection" at the border: a mirror image turns cyclones into anticyclones
    moved = functional.grid_sample(images, grid, "bilinear", "border", align_corners=False)
    if augmentation.vectors == "turn":
        _turn(moved, cos, sin, vectors)
    return moved


def augment_ahead(
    inputs: np.ndarray[Any, Any],
    multiplier: int,
    augmentation: Augmentation,
    vectors: tuple[tuple[int, int], ...],
    data_seed: int,
    out: np.ndarray[Any, Any],
) -> None:
    """Fill `out` with `multiplier` copies of the inputs: the natural ones, then moved ones."""
    n = len(inputs)
    if len(out) != multiplier * n:
        raise ValueError(f"out holds {len(out)} samples, not {multiplier} × {n}")
    out[:n] = inputs
    for copy in range(1, multiplier):
        for start in range(0, n, _CHUNK):
            stop = min(start + _CHUNK, n)
            # copied, since torch warns of read-only arrays: 3 % of the time
            images = torch.from_numpy(np.array(inputs[start:stop]))
            index = torch.arange(copy * n + start, copy * n + stop)
            moved = transform(images, index, 0, data_seed, augmentation, vectors)
            # torch's copy: numpy's takes 2.6 × as long when `out` is channels-last
            torch.from_numpy(out[copy * n + start : copy * n + stop]).copy_(moved)


def _sources(cos: torch.Tensor, sin: torch.Tensor, shift: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Where each output pixel comes from, (n, H, W, 2) in units of half a side: shift, turn and zoom back."""
    x = _centres(width, cos) - shift[:, :1]
    y = _centres(height, cos) - shift[:, 1:]
    cos, sin, aspect = cos[:, None], sin[:, None], height / width
    grid = cos.new_empty(len(cos), height, width, 2)
    # sums of a row and a column: 7 × as fast as affine_grid, which multiplies matrices
    torch.add((cos * x)[:, None, :], (sin * aspect * y)[:, :, None], out=grid[..., 0])
    torch.add((-sin / aspect * x)[:, None, :], (cos * y)[:, :, None], out=grid[..., 1])
    return grid


def _centres(side: int, like: torch.Tensor) -> torch.Tensor:
    """The middles of the pixels from -1 to 1, as grid_sample counts them without align_corners."""
    return (torch.arange(side, dtype=like.dtype, device=like.device) * 2 + 1) / side - 1


def _turn(images: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, vectors: tuple[tuple[int, int], ...]) -> None:
    """Turn the vectors of every image by its angle, in place."""
    cos, sin = cos[:, None, None], sin[:, None, None]
    for x, y in vectors:
        u, v = images[:, x], images[:, y]
        turned = (u * cos).addcmul_(v, sin, value=-1.0)
        v.mul_(cos).addcmul_(u, sin)
        u.copy_(turned)
