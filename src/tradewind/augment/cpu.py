"""The same transform compiled for the CPU: gathers, draws, turns and resamples in one pass over a batch.

For images in float32, channels last, linear interpolation. A sample is first copied into a frame of its own, one
cell wider on every side, with its channels filled up to a multiple of 4 and its vectors turned: then every output
cell is a blend of 4 neighbours without a branch, 4 channels in one register. Lanes that no channel fills are written
too, and the next cell overwrites them; only the last row of an image takes a way round, so as not to spill.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np

from tradewind.augment.affine import ANGLE, MIRROR, MIRRORED_AXIS, SHIFT_X, SHIFT_Y, ZOOM, Augmentation, Vectors
from tradewind.augment.lanes import LANES, blend_lanes, compiled, copy_lanes, njit
from tradewind.augment.options import EDGES
from tradewind.noise import GOLDEN, MIX

Array = np.ndarray[Any, Any]
Function = TypeVar("Function", bound=Callable[..., Any])

# neither NaN nor infinity is assumed away: a broken sample must show in the loss
_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz", "arcp", "reassoc"}}
_NEAREST, _WRAP = EDGES.index("nearest"), EDGES.index("wrap")
_WORDS = tuple(map(np.uint64, (GOLDEN, *MIX[0], *MIX[1], 31)))
_GOLDEN, _SHIFT_A, _FACTOR_A, _SHIFT_B, _FACTOR_B, _SHIFT_C = _WORDS
_DROPPED = np.uint64(40)  # all bits but the 24 that a float32 holds exactly


def augmented_rows(
    stored: Array,
    rows: Array,
    index: Array,
    start: int,
    augmentation: Augmentation,
    vectors: Vectors,
    out: Array | None = None,
) -> Array:
    """Rows of a store (N, H, W, C) of float32 as a moved batch (n, H, W, C); `start` is `start_word` of the epoch.

    Holds no lock while it works, so threads may share a batch by parts of `out`. Differs from `affine.transform` by
    rounding: a cell comes from a place that is off by less than 1e-6 sides, so values are off by less than that
    times the side in cells, of the values' range.
    """
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(stored):
        raise IndexError(f"rows {rows.min()} to {rows.max()} of a store of {len(stored)}")
    ranges = (math.radians(augmentation.rotation_deg), augmentation.translation, augmentation.zoom)
    turned = vectors if augmentation.vectors == "turn" else ()
    pairs = np.array(turned, dtype=np.int64).reshape(len(turned), 2)
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < stored.shape[3]:
        raise IndexError(f"vectors {vectors} of images of {stored.shape[3]} channels")
    if out is None:
        out = np.empty((len(rows), *stored.shape[1:]), dtype=np.float32)
    how = (np.uint64(start), ranges, MIRRORED_AXIS.get(augmentation.reflection, -1), EDGES.index(augmentation.edges))
    kernel()(np.asarray(stored), rows, index, *how, pairs, out)  # an array: numba knows no memory maps as such
    return out


@cache
def kernel() -> Callable[..., None]:
    """The compiled pass over a batch."""
    types: Any = numba.types
    whole, images = types.int64, types.Array(types.float32, 4, "C")
    stored = types.Array(types.float32, 4, "C", readonly=True)
    signature = types.void(
        stored, whole[::1], whole[::1], types.uint64, types.UniTuple(types.float64, 3), whole, whole,
        whole[:, ::1], images,
    )  # fmt: skip
    return compiled(_batch, signature, _HOW)


def _part(function: Function) -> Function:
    """A piece of the kernel, compiled with it."""
    found: Function = njit(**_HOW)(function)
    return found


@_part
def _mixed(word: Any) -> Any:
    """splitmix64's finaliser."""
    word = (word ^ (word >> _SHIFT_A)) * _FACTOR_A
    word = (word ^ (word >> _SHIFT_B)) * _FACTOR_B
    return word ^ (word >> _SHIFT_C)


@_part
def _draw(sample: Any, column: int) -> float:
    """A sample's random number of this column, from -1 to below 1."""
    bits = _mixed(sample + np.uint64(column + 1) * _GOLDEN) >> _DROPPED
    return np.int64(bits) * 2.0**-23 - 1.0


@_part
def _turned(sample: Any, rotation: float, mirrored_axis: int) -> tuple[float, float, float, float]:
    """The matrix, row by row, that mirrors and turns (x, y)."""
    angle = _draw(sample, ANGLE) * rotation
    cos, sin = math.cos(angle), math.sin(angle)
    mirrored = mirrored_axis >= 0 and _draw(sample, MIRROR) < 0
    x = -1.0 if mirrored and mirrored_axis == 0 else 1.0
    y = -1.0 if mirrored and mirrored_axis == 1 else 1.0
    return x * cos, -y * sin, x * sin, y * cos


@_part
def _fill(frame: Array, image: Array, sides: tuple[int, int, int], lanes: int, line: Array) -> None:
    """Copy an image into the inside of its frame, the last row by way of `line`: nothing behind it is read."""
    height, width, channels = sides
    for y in range(height):
        # unsigned: of signed places numba would ask at every access whether they count from the end
        source, place = np.uintp(y * width * channels), np.uintp(((y + 1) * (width + 2) + 1) * lanes)
        last = (height - y - 1) * width * channels < LANES
        if last:
            line[: width * channels] = image[y * width * channels : (y + 1) * width * channels]
            source = np.uintp(0)
        for _ in range(width):
            for block in range(0, lanes, LANES):
                if last:
                    copy_lanes(line, source + np.uintp(block), frame, place + np.uintp(block))
                else:
                    copy_lanes(image, source + np.uintp(block), frame, place + np.uintp(block))
            source += np.uintp(channels)
            place += np.uintp(lanes)


@_part
def _turn(frame: Array, sides: tuple[int, int, int], lanes: int, pair: Array, turn: tuple[float, ...]) -> None:
    """Turn one vector in all cells of a frame."""
    xx, xy, yx, yy = np.float32(turn[0]), np.float32(turn[1]), np.float32(turn[2]), np.float32(turn[3])
    row = sides[1] + 2
    for cell in range(row + 1, row * (sides[0] + 1) - 1):
        a, b = np.uintp(cell * lanes + pair[0]), np.uintp(cell * lanes + pair[1])
        x, y = frame[a], frame[b]
        frame[a], frame[b] = xx * x + xy * y, yx * x + yy * y


@_part
def _wrap(frame: Array, sides: tuple[int, int, int], lanes: int) -> None:
    """Put the cells of the far side around a frame, corners included."""
    height, width, _ = sides
    row = (width + 2) * lanes
    for start in range(row, (height + 1) * row, row):
        for c in range(lanes):
            frame[start + c] = frame[start + width * lanes + c]
            frame[start + row - lanes + c] = frame[start + lanes + c]
    for k in range(row):
        frame[k] = frame[height * row + k]
        frame[(height + 1) * row + k] = frame[row + k]


@_part
def _place(where: Any, side: Any, edges: int) -> Any:
    """A place in cells as one in the frame: from 0 to side + 1."""
    if edges == _WRAP:
        return where - np.floor(where / side) * side + np.float32(1)
    low = np.float32(0) if edges == _NEAREST else np.float32(-1)
    return min(max(where, low), side - np.float32(1) - low) + np.float32(1)


@_part
def _sources(
    begin: tuple[float, float],
    step: tuple[float, float],
    sides: tuple[int, int, int],
    lanes: int,
    edges: int,
    row: tuple[Array, ...],
) -> None:
    """Of every cell in an output row: its lower left neighbour in the frame, and the shares of right and above."""
    counted, offsets, right, above = row
    x, y, dx, dy = np.float32(begin[0]), np.float32(begin[1]), np.float32(step[0]), np.float32(step[1])
    width, height, line = np.float32(sides[1]), np.float32(sides[0]), np.int32(sides[1] + 2)
    for j in range(len(counted)):
        # the counter is a float32 and places are int32, or the loop would not be one of vectors: twice as long
        px, py = _place(x + counted[j] * dx, width, edges), _place(y + counted[j] * dy, height, edges)
        left, below = min(np.floor(px), width), min(np.floor(py), height)
        right[j], above[j] = px - left, py - below
        offsets[j] = np.int32(np.int32(np.int32(below) * line) + np.int32(left)) * np.int32(lanes)


@_part
def _emit(frame: Array, out: Array, begin: int, channels: int, lanes: int, row: tuple[Array, ...]) -> None:
    """Write an output row."""
    counted, offsets, right, above = row
    beside, line, place = np.uintp(lanes), np.uintp((len(counted) + 2) * lanes), np.uintp(begin)
    for j in range(len(counted)):
        for block in range(0, lanes, LANES):
            source = np.uintp(offsets[j] + block)
            blend_lanes(frame, source, beside, line, right[j], above[j], out, place + np.uintp(block))
        place += np.uintp(channels)


def _batch(
    stored: Array, rows: Array, index: Array, start: Any, ranges: tuple[float, float, float],
    mirrored_axis: int, edges: int, pairs: Array, out: Array,
) -> None:  # fmt: skip
    """Every sample of a batch; `ranges` are of the angle in radians, the shift in sides and the zoom."""
    sides = height, width, channels = stored.shape[1:]
    size, lanes = width * channels, (channels + LANES - 1) // LANES * LANES
    frame, line = np.zeros((height + 2) * (width + 2) * lanes, np.float32), np.zeros(size + LANES, np.float32)
    right, above = np.empty(width, np.float32), np.empty(width, np.float32)
    row = np.arange(width).astype(np.float32), np.empty(width, np.int32), right, above
    middle_x, middle_y = 0.5 * (width - 1), 0.5 * (height - 1)
    for n in range(len(rows)):
        sample = _mixed(np.uint64(index[n]) * _GOLDEN + start)
        turn, scale = _turned(sample, ranges[0], mirrored_axis), 1.0 + _draw(sample, ZOOM) * ranges[2]
        _fill(frame, stored[rows[n]].reshape(-1), sides, lanes, line)
        for p in range(len(pairs)):
            _turn(frame, sides, lanes, pairs[p], turn)
        if edges == _WRAP:
            _wrap(frame, sides, lanes)
        flat = out[n].reshape(-1)
        x = -middle_x - _draw(sample, SHIFT_X) * ranges[1] * width
        y = -middle_y - _draw(sample, SHIFT_Y) * ranges[1] * height
        step = turn[0] / scale, turn[1] / scale
        for k in range(height):
            from_x = (turn[0] * x + turn[2] * (y + k)) / scale + middle_x
            from_y = (turn[1] * x + turn[3] * (y + k)) / scale + middle_y
            _sources((from_x, from_y), step, sides, lanes, edges, row)
            if (height - k - 1) * size >= LANES:
                _emit(frame, flat, k * size, channels, lanes, row)
            else:
                _emit(frame, line, 0, channels, lanes, row)
                flat[k * size : (k + 1) * size] = line[:size]
