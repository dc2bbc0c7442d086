# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# ruff: noqa: N803 (a kernel's constants are written large)
"""Convolutions of many networks, each over its own images, in one launch, and their gradients, in Triton.

Images lie as (samples, rows, columns, networks, channels): all that stands between convolutions, from norms to pools,
sees networks as more channels, and the channels of one are a run of memory. A tile of places × the channels of one
network is a sum of small products, one for each tap of the kernel. The libraries do the groups of such a convolution
one after the other, or without tensor cores.

32 residual networks of 16 to 64 channels over 32×32 images, a batch of 128: 307 GFLOP a step in their convolutions,
which take 4.1 of its 8.7 ms on an H200 in bf16: 74 TFLOP/s of about 790. From 16 to 16 channels, forth: 19 GFLOP and
0.27 GB in 0.31 ms, 62 TFLOP/s and 0.9 TB/s of about 4. Neither limits: every value is loaded for each of 9 taps.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def seen_from(place, tap, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
              WIDE: tl.constexpr, STRIDE: tl.constexpr, EDGE: tl.constexpr, BACK: tl.constexpr):  # fmt: skip
    """Which place of the images a place of the results sees through a tap, and whether there is one.

    BACK: on the way back, where results are of the convolution's input and images its output.
    """
    row, column = place % (ROWS * COLUMNS) // COLUMNS, place % COLUMNS
    if BACK:
        down, right = row + EDGE - tap // WIDE, column + EDGE - tap % WIDE
        meets = (down % STRIDE == 0) & (right % STRIDE == 0) & (down >= 0) & (right >= 0)
        down, right = down // STRIDE, right // STRIDE
    else:
        down, right = row * STRIDE - EDGE + tap // WIDE, column * STRIDE - EDGE + tap % WIDE
        meets = (down >= 0) & (right >= 0)
    there = meets & (down < HEIGHT) & (right < WIDTH)
    return (place // (ROWS * COLUMNS) * HEIGHT + down) * WIDTH + right, there


@triton.jit
def convolve(x, weights, y, networks, places, C: tl.constexpr, CP: tl.constexpr, N: tl.constexpr, NP: tl.constexpr,
             TAPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
             WIDE: tl.constexpr, STRIDE: tl.constexpr, EDGE: tl.constexpr, BACK: tl.constexpr, BLOCK: tl.constexpr,
             PRECISION: tl.constexpr):  # fmt: skip
    """A tile of places of one network's results; weights are (networks, taps, C, N)."""
    network = tl.program_id(0) % networks  # neighbours in memory, so that their channels are read together
    place = tl.program_id(0) // networks * BLOCK + tl.arange(0, BLOCK)
    c, n = tl.arange(0, CP), tl.arange(0, NP)
    total = tl.zeros([BLOCK, NP], tl.float32)
    for tap in tl.range(0, TAPS):
        source, there = seen_from(place, tap, ROWS, COLUMNS, HEIGHT, WIDTH, WIDE, STRIDE, EDGE, BACK)
        there &= place < places
        at = (source.to(tl.int64) * networks + network)[:, None] * C + c[None, :]
        image = tl.load(x + at, mask=there[:, None] & (c < C)[None, :], other=0.0)
        at = ((network * TAPS + tap) * C + c)[:, None] * N + n[None, :]
        weight = tl.load(weights + at, mask=(c < C)[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(image, weight, total, input_precision=PRECISION)
    at = (place.to(tl.int64) * networks + network)[:, None] * N + n[None, :]
    tl.store(y + at, total.to(y.dtype.element_ty), mask=(place < places)[:, None] & (n < N)[None, :])


@triton.jit
def weigh(x, gradient, sums, networks, places, share, C: tl.constexpr, CP: tl.constexpr, N: tl.constexpr,
          NP: tl.constexpr, TAPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr,
          WIDTH: tl.constexpr, WIDE: tl.constexpr, STRIDE: tl.constexpr, EDGE: tl.constexpr, BLOCK: tl.constexpr,
          PRECISION: tl.constexpr):  # fmt: skip
    """What a share of the places gives to one network's gradient at one tap: (shares, networks, taps, C, N)."""
    network = tl.program_id(0) % networks
    tap = tl.program_id(0) // networks % TAPS
    part = tl.program_id(0) // networks // TAPS
    c, n = tl.arange(0, CP), tl.arange(0, NP)
    total = tl.zeros([CP, NP], tl.float32)
    for start in tl.range(part * share, min((part + 1) * share, places), BLOCK):
        place = start + tl.arange(0, BLOCK)
        source, there = seen_from(place, tap, ROWS, COLUMNS, HEIGHT, WIDTH, WIDE, STRIDE, EDGE, False)
        there &= place < places
        at = (source.to(tl.int64) * networks + network)[:, None] * C + c[None, :]
        image = tl.load(x + at, mask=there[:, None] & (c < C)[None, :], other=0.0)
        at = (place.to(tl.int64) * networks + network)[:, None] * N + n[None, :]
        back = tl.load(gradient + at, mask=(place < places)[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(tl.trans(image), back, total, input_precision=PRECISION)
    at = (((part * networks + network) * TAPS + tap) * C + c)[:, None] * N + n[None, :]
    tl.store(sums + at, total, mask=(c < C)[:, None] & (n < N)[None, :])
