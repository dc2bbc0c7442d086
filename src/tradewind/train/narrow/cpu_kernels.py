"""Convolutions of few channels on one core, tile by tile.

Images lie channels last in frames of zeros, so that a window is `side` runs of `side × channels` neighbouring
values and no edge is a case of its own. A row is as wide as the tiles make it; what lies right of the image is
computed and never read, or is zero. Numbers of outputs are multiples of 8; of inputs, those of all layers but the
first. All arrays are flat, of float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from tradewind.augment.lanes import compiled
from tradewind.train.narrow.cpu_lanes import LANES, activate_row, convolve_tile, spread_row, weigh_tile

CELLS = 8  # a row is a multiple of so many

# neither NaN nor infinity is assumed away: a network that diverges must show it
_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
_types: Any = numba.types
_FLOATS, _INT = _types.float32[::1], _types.int64


def _compiled(*kinds: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return lambda function: compiled(function, _types.void(*kinds), _HOW)


@_compiled(_FLOATS, _FLOATS, *(_INT,) * 6)
def frame(x: Any, out: Any, images: int, height: int, width: int, wide: int, inputs: int, edge: int) -> None:
    """Images into their frames."""
    row = (wide + 2 * edge) * inputs
    for n in range(images):
        for h in range(height):
            source = (n * height + h) * width * inputs
            target = (n * (height + 2 * edge) + h + edge) * row + edge * inputs
            for j in range(width * inputs):
                out[target + j] = x[source + j]


@_compiled(_FLOATS, _FLOATS, _FLOATS, _FLOATS, *(_INT,) * 6)
def convolve(
    x: Any, weights: Any, bias: Any, y: Any, images: int, height: int, wide: int, inputs: int, outputs: int, side: int
) -> None:
    """y (n, height, wide, outputs) of x in frames, by weights (side, side × inputs, outputs)."""
    row, pairs = (wide + side - 1) * inputs, outputs // 16 * 16
    for n in range(images):
        for h in range(height):
            at, to = (n * (height + side - 1) + h) * row, (n * height + h) * wide * outputs
            for o in range(0, pairs, 16):
                for p in range(0, wide, 4):
                    a, b = at + p * inputs, to + p * outputs + o
                    convolve_tile(1, 4, 2, x, a, row, inputs, side, weights, outputs, o, bias, y, b)
            if pairs < outputs:
                for p in range(0, wide, 8):
                    a, b = at + p * inputs, to + p * outputs + pairs
                    if side == 5:
                        convolve_tile(5, 8, 1, x, a, row, inputs, side, weights, outputs, pairs, bias, y, b)
                    elif side == 3:
                        convolve_tile(3, 8, 1, x, a, row, inputs, side, weights, outputs, pairs, bias, y, b)
                    else:
                        convolve_tile(1, 8, 1, x, a, row, inputs, side, weights, outputs, pairs, bias, y, b)


@_compiled(_FLOATS, _FLOATS, *(_INT,) * 8)
def activate(
    y: Any, out: Any, images: int, height: int, width: int, wide: int, outputs: int, pool: int, row: int, edge: int
) -> None:
    """ReLU and, if so, the mean of 2×2 cells, into the frames (of such rows) of the next layer."""
    line = wide * outputs
    rows, cells = (height // 2, width // 2) if pool else (height, width)
    for n in range(images):
        for h in range(rows):
            target = (n * (rows + 2 * edge) + h + edge) * row + edge * outputs
            for c in range(0, outputs, LANES):
                if pool:
                    activate_row(1, y, (n * height + 2 * h) * line + c, line, outputs, cells, out, target + c)
                else:
                    activate_row(0, y, (n * height + h) * line + c, line, outputs, cells, out, target + c)


@_compiled(_FLOATS, _FLOATS, _FLOATS, _FLOATS, *(_INT,) * 8)
def spread(
    gradient: Any, y: Any, out: Any, bias: Any,
    images: int, height: int, width: int, wide: int, outputs: int, pool: int, line: int, edge: int,
) -> None:  # fmt: skip
    """The gradient before ReLU and pool into frames, of one (lines of such a length) after them; its sums to bias."""
    row = (wide + 2 * edge) * outputs
    for n in range(images):
        for h in range(height // 2 * 2 if pool else height):
            source = (n * height + h) * wide * outputs
            target = (n * (height + 2 * edge) + h + edge) * row + edge * outputs
            for c in range(0, outputs, LANES):
                if pool:
                    above, cells = (n * (height // 2) + h // 2) * line + c, width // 2 * 2
                    spread_row(1, gradient, above, y, source + c, outputs, cells, out, target + c, bias, c)
                else:
                    above = (n * height + h) * line + c
                    spread_row(0, gradient, above, y, source + c, outputs, width, out, target + c, bias, c)


def reach_of(run: int, outputs: int) -> int:
    """How long a run of weights is in the tiles of `weigh`."""
    return max(-(-run // 5) * 5 if outputs >= 16 else 0, -(-run // 8) * 8 if outputs % 16 else 0)


@_compiled(_FLOATS, _FLOATS, _FLOATS, *(_INT,) * 8)
def weigh(
    x: Any, g: Any, out: Any,
    images: int, height: int, width: int, wide: int, inputs: int, outputs: int, side: int, reach: int,
) -> None:  # fmt: skip
    """Add to out (side, reach, outputs) the gradient of the weights; both x and g are in frames."""
    row, line, run = (wide + side - 1) * inputs, (wide + side - 1) * outputs, side * inputs
    tall, edge, pairs = height + side - 1, side // 2, outputs // 16 * 16
    for n in range(images):
        from_ = (n * tall + edge) * line + edge * outputs
        for i in range(side):
            at, to = (n * tall + i) * row, i * reach * outputs
            for first in range(0, pairs, 16):
                for r in range(0, run, 5):
                    weigh_tile(
                        5, 2, x, at + r, row, inputs, g, from_ + first, line, outputs, height, width, out,
                        to + r * outputs + first,
                    )  # fmt: skip
            if pairs < outputs:
                for r in range(0, run, 8):
                    weigh_tile(
                        8, 1, x, at + r, row, inputs, g, from_ + pairs, line, outputs, height, width, out,
                        to + r * outputs + pairs,
                    )  # fmt: skip
