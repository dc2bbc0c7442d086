# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""The same transform as one Triton kernel: gathers, draws, resamples and turns a batch in one launch.

For images channels last, linear interpolation. The epoch reaches the kernel as a word in device memory, so that a
CUDA graph that holds a launch replays it for another epoch once the word is overwritten. Import, compile and build
`_roles` by one call before a capture: none of them may happen inside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from tradewind.augment.affine import ANGLE, MIRROR, MIRRORED_AXIS, SHIFT_X, SHIFT_Y, ZOOM, Augmentation, Vectors
from tradewind.augment.options import EDGES
from tradewind.noise import GOLDEN, MIX, column_word

_CELLS = 128  # of an image, in one program

# what a kernel reads of its module must be a constexpr
_GOLDEN, _SHIFT_A, _FACTOR_A, _SHIFT_B, _FACTOR_B = map(tl.constexpr, (GOLDEN, *MIX[0], *MIX[1]))
_ANGLE, _ZOOM, _SHIFT_X, _SHIFT_Y, _MIRROR = (
    tl.constexpr(column_word(column)) for column in (ANGLE, ZOOM, SHIFT_X, SHIFT_Y, MIRROR)
)
_NEAREST, _WRAP = tl.constexpr(EDGES.index("nearest")), tl.constexpr(EDGES.index("wrap"))


def augmented_rows(
    stored: torch.Tensor,
    rows: torch.Tensor,
    index: torch.Tensor,
    start: torch.Tensor,
    augmentation: Augmentation,
    vectors: Vectors,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rows of a store (N, H, W, C) on a GPU as a moved batch (n, H, W, C); `start` holds `start_word` as one int64.

    Rows are not checked, since that would wait for the device. Places are off by some 1e-6 sides, as on the CPU.
    """
    height, width, channels = stored.shape[1:]
    if out is None:
        out = stored.new_empty(len(rows), height, width, channels)
    turned = vectors if augmentation.vectors == "turn" else ()
    if len(rows):
        with torch.cuda.device(stored.device) if stored.is_cuda else nullcontext():  # on a CPU Triton interprets it
            _move[len(rows), triton.cdiv(height * width, _CELLS)](
                stored, rows, index, start, _roles(turned, channels, stored.device), out, height, width, channels,
                math.radians(augmentation.rotation_deg), augmentation.translation, augmentation.zoom,
                MIRRORED_AXIS.get(augmentation.reflection, -1), EDGES.index(augmentation.edges), bool(turned),
                _CELLS, triton.next_power_of_2(channels),
            )  # fmt: skip
    return out


@cache
def _roles(vectors: Vectors, channels: int, device: torch.device) -> torch.Tensor:
    """Of every channel the one that mixes with it, then whether it is a scalar (0), an x (1) or a y (2)."""
    partners, components = list(range(channels)), [0] * channels
    for x, y in vectors:
        partners[x], partners[y], components[x], components[y] = y, x, 1, 2
    return torch.tensor([partners, components], dtype=torch.int32, device=device)


def _kernel(function: Callable[..., Any]) -> Any:
    """Triton's decorator. It reads the annotations of what it compiles as its own: only constexpr may stand there."""
    return triton.jit(function)


@_kernel
def _mixed(word):
    """splitmix64's finaliser, on unsigned words: their right shift is the logical one."""
    word = (word ^ (word >> _SHIFT_A)) * _FACTOR_A
    word = (word ^ (word >> _SHIFT_B)) * _FACTOR_B
    return word ^ (word >> 31)


@_kernel
def _draw(sample, column: tl.constexpr):
    """A sample's random number of this column, from -1 to below 1; 24 bits, which a float32 holds exactly."""
    return (_mixed(sample + column) >> 40).to(tl.int32).to(tl.float32) * (2.0 / 16777216.0) - 1.0


@_kernel
def _neighbours(where, side, edges: tl.constexpr):
    """The cells before and after a place, the share of the one after, and whether each is in the image."""
    if edges == _NEAREST:
        where = tl.minimum(tl.maximum(where, 0.0), side - 1.0)
    before = tl.floor(where)
    share = where - before
    first = before.to(tl.int32)
    second = first + 1
    if edges == _NEAREST:
        second = tl.minimum(second, side - 1)
    if edges == _WRAP:
        first = (first % side + side) % side
        second = (first + 1) % side
    return first, second, share, (first >= 0) & (first < side), (second >= 0) & (second < side)


@_kernel
def _read(image, cell, inside, lane, channels):
    """Channels (cells, lanes) of some cells; 0 outside the image."""
    mask = inside[:, None] & (lane < channels)[None, :]
    return tl.load(image + cell[:, None] * channels + lane[None, :], mask=mask, other=0.0).to(tl.float32)


@_kernel
def _sampled(image, lane, sx, sy, height, width, channels, edges: tl.constexpr):
    """The image between cells."""
    left, right, share_x, in_left, in_right = _neighbours(sx, width, edges)
    below, above, share_y, in_below, in_above = _neighbours(sy, height, edges)
    a = _read(image, below * width + left, in_below & in_left, lane, channels)
    b = _read(image, below * width + right, in_below & in_right, lane, channels)
    c = _read(image, above * width + left, in_above & in_left, lane, channels)
    d = _read(image, above * width + right, in_above & in_right, lane, channels)
    low = a + share_x[:, None] * (b - a)
    high = c + share_x[:, None] * (d - c)
    return low + share_y[:, None] * (high - low)


@_kernel
def _turned(sample, rotation, mirrored_axis: tl.constexpr):
    """The matrix, row by row, that mirrors and turns (x, y)."""
    angle = _draw(sample, _ANGLE) * rotation
    cos = tl.cos(angle)
    sin = tl.sin(angle)
    x = 1.0
    y = 1.0
    if mirrored_axis == 0:
        x = tl.where(_draw(sample, _MIRROR) < 0.0, -1.0, 1.0)
    if mirrored_axis == 1:
        y = tl.where(_draw(sample, _MIRROR) < 0.0, -1.0, 1.0)
    return x * cos, -y * sin, x * sin, y * cos


@_kernel
def _move(
    stored, rows, index, start, roles, out, height, width, channels,
    rotation, translation, zoom, mirrored_axis: tl.constexpr, edges: tl.constexpr,
    turning: tl.constexpr, cells: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    """Some cells of one sample."""
    n = tl.program_id(0)
    word = tl.load(start).to(tl.uint64, bitcast=True)
    sample = _mixed(tl.load(index + n).to(tl.uint64, bitcast=True) * _GOLDEN + word)
    xx, xy, yx, yy = _turned(sample, rotation, mirrored_axis)
    scale = 1.0 + _draw(sample, _ZOOM) * zoom
    middle_x = (width - 1) * 0.5
    middle_y = (height - 1) * 0.5
    cell = tl.program_id(1) * cells + tl.arange(0, cells)
    x = (cell % width).to(tl.float32) - (middle_x + _draw(sample, _SHIFT_X) * translation * width)
    y = (cell // width).to(tl.float32) - (middle_y + _draw(sample, _SHIFT_Y) * translation * height)
    sx = (xx * x + yx * y) / scale + middle_x
    sy = (xy * x + yy * y) / scale + middle_y
    lane = tl.arange(0, lanes)
    size = height * width * channels
    image = stored + tl.load(rows + n).to(tl.int64) * size
    value = _sampled(image, lane, sx, sy, height, width, channels, edges)
    if turning:
        # every channel blends its partner once more: cheaper than to exchange values between threads
        partner = tl.load(roles + lane, mask=lane < channels, other=0)
        component = tl.load(roles + channels + lane, mask=lane < channels, other=0)
        other = _sampled(image, partner, sx, sy, height, width, channels, edges)
        own_share = tl.where(component == 1, xx, tl.where(component == 2, yy, 1.0))
        other_share = tl.where(component == 1, xy, tl.where(component == 2, yx, 0.0))
        value = value * own_share[None, :] + other * other_share[None, :]
    place = out + n.to(tl.int64) * size + cell[:, None] * channels + lane[None, :]
    tl.store(place, value, mask=(cell < height * width)[:, None] & (lane < channels)[None, :])
