# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# ruff: noqa: N803, SIM108 (a kernel's constants are written large; a compiler decides its branches)
"""Convolution + bias + ReLU + 2×2 average pool of many networks in one launch, and its gradients, in Triton.

Networks lie outermost and channels innermost, so that nothing changes its layout on the way, and inputs lie in a
frame of zeros, so that nothing asks whether it is beyond a border. The unit is a cell of 2×2 places. Its window is
one larger than that of a place, (side + 1)², and one product with a matrix of (window; corner, channel), which
holds the weights four times at four offsets and zeros else, gives all four: 1.44 × the operations for a side of 5,
but 0.36 × the loads, which are what limits. A pool is then a sum over columns. What ReLU lets through is kept as a
bit for each corner.

A storm network (the default) and one sample: 4.5 MFLOP forward and 8.9 backward that count; 6 kB of input, which
all networks share, 6 kB of pooled values and 4 kB of bits that are written and read again, 18 kB of gradients.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def convolve(
    x, weights, bias, y, bits, networks, cells, x_m, y_m, y_n, y_row, y_column, y_c,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr,
    N: tl.constexpr, NP: tl.constexpr, SIDE: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, POOL: tl.constexpr,
    RELU: tl.constexpr, KEEP: tl.constexpr, FLAT: tl.constexpr, GROUP: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of cells × the corners and channels of a group of networks; without RELU a bare convolution.

    FLAT: x holds the windows themselves, as `unfold` makes them.
    """
    tile = tl.program_id(0)
    group = tl.program_id(1)
    cell = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    here = cell < cells
    sample = cell // (ROWS * COLUMNS)
    row = cell % (ROWS * COLUMNS) // COLUMNS
    column = cell % COLUMNS
    line: tl.constexpr = (2 * ((WIDTH + 1) // 2) + SIDE - 1) * C
    lines: tl.constexpr = 2 * ((HEIGHT + 1) // 2) + SIDE - 1
    base = cell * KP if FLAT else (sample * lines + row * 2) * line + column * (2 * C)
    output = tl.arange(0, GROUP * 4 * NP)
    network = group * GROUP + output // (4 * NP)
    source = x + group.to(tl.int64) * x_m  # x_m is 0 where all networks see the same
    total = tl.zeros([BLOCK_P, GROUP * 4 * NP], tl.float32)
    for start in tl.range(0, KP, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        shift = k if FLAT else k // ((SIDE + 1) * C) * line + k % ((SIDE + 1) * C)
        if KP == K or FLAT:
            seen = here[:, None]
        else:
            seen = here[:, None] & (k < K)[None, :]
        window = tl.load(source + base[:, None] + shift[None, :], mask=seen, other=0.0)
        weight = tl.load(
            weights + network[None, :] * (KP * 4 * NP) + k[:, None] * (4 * NP) + (output % (4 * NP))[None, :],
            mask=(network < networks)[None, :], other=0.0,
        )  # fmt: skip
        total = tl.dot(window, weight, total, input_precision=PRECISION)
    channel = output % NP
    corner = output // NP % 4
    if RELU:
        known = (network < networks) & (channel < N)
        total += tl.load(bias + network * N + channel, mask=known, other=0.0)[None, :]
        passed = total > 0.0
        total = tl.where(passed, total, 0.0)
    few = tl.arange(0, GROUP * NP)  # columns without corners
    far = (group * GROUP + few // NP).to(tl.int64)
    both = here[:, None] & ((far < networks) & (few % NP < N))[None, :]
    if KEEP:
        mark = tl.where(passed, (1 << corner)[None, :], 0)
        marks = tl.reshape(tl.sum(tl.reshape(mark, [BLOCK_P, GROUP, 4, NP]), 2), [BLOCK_P, GROUP * NP])
        at = (far * cells * N + few % NP)[None, :] + cell[:, None] * N
        tl.store(bits + at, marks.to(tl.uint8), mask=both)
    if POOL:
        total = tl.reshape(tl.sum(tl.reshape(total, [BLOCK_P, GROUP, 4, NP]), 2), [BLOCK_P, GROUP * NP]) * 0.25
        at = (sample * y_n + row * y_row + column * y_column)[:, None] + (far * y_m + few % NP * y_c)[None, :]
        tl.store(y + at, total.to(y.dtype.element_ty), mask=both)
    else:
        at = (sample * y_n + row * 2 * y_row + column * 2 * y_column)[:, None]
        at = at + (network.to(tl.int64) * y_m + corner // 2 * y_row + corner % 2 * y_column + channel * y_c)[None, :]
        written = here[:, None] & ((network < networks) & (channel < N))[None, :]
        if HEIGHT % 2 == 1 or WIDTH % 2 == 1:
            written = written & (row[:, None] * 2 + (corner // 2)[None, :] < HEIGHT)
            written = written & (column[:, None] * 2 + (corner % 2)[None, :] < WIDTH)
        tl.store(y + at, total.to(y.dtype.element_ty), mask=written)


@triton.jit
def unfold(
    x, windows, cells, x_n, x_c, x_row, x_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr, C: tl.constexpr, SIDE: tl.constexpr, KP: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """The windows of all cells of the inputs, row by row: made once for all networks."""
    cell = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    sample = cell // (ROWS * COLUMNS)
    k = tl.arange(0, KP)
    c, place = k % C, k // C
    row = (cell % (ROWS * COLUMNS) // COLUMNS * 2 - SIDE // 2)[:, None] + (place // (SIDE + 1))[None, :]
    column = (cell % COLUMNS * 2 - SIDE // 2)[:, None] + (place % (SIDE + 1))[None, :]
    seen = (cell < cells)[:, None] & (place < (SIDE + 1) * (SIDE + 1))[None, :]
    seen = seen & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    at = (sample.to(tl.int64) * x_n)[:, None] + row * x_row + column * x_column + (c * x_c)[None, :]
    value = tl.load(x + at, mask=seen, other=0.0)
    at = cell[:, None] * KP + k[None, :]
    tl.store(windows + at, value.to(windows.dtype.element_ty), mask=(cell < cells)[:, None])


@triton.jit
def spread(
    gradient, bits, wide, biases, networks, cells, g_m, g_n, g_row, g_column, g_c, w_m,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr,
    NP: tl.constexpr, SIDE: tl.constexpr, S: tl.constexpr, POOL: tl.constexpr, FLAT: tl.constexpr,
    BLOCK_P: tl.constexpr,
):  # fmt: skip
    """The gradient before pool and ReLU, in a frame of zeros (FLAT: cell by cell), and that of the bias."""
    tile = tl.program_id(0)
    network = tl.program_id(1).to(tl.int64)
    cell = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    output = tl.arange(0, 4 * NP)
    corner, channel = output // NP, output % NP
    sample = cell // (ROWS * COLUMNS)
    row = cell % (ROWS * COLUMNS) // COLUMNS
    column = cell % COLUMNS
    known = (cell < cells)[:, None] & (channel < N)[None, :]
    if POOL:
        at = (sample * g_n + row * g_row + column * g_column)[:, None] + (channel * g_c)[None, :]
    else:
        at = (sample * g_n + row * 2 * g_row + column * 2 * g_column)[:, None]
        at = at + (corner // 2 * g_row + corner % 2 * g_column + channel * g_c)[None, :]
        if HEIGHT % 2 == 1 or WIDTH % 2 == 1:
            known = known & (row[:, None] * 2 + (corner // 2)[None, :] < HEIGHT)
            known = known & (column[:, None] * 2 + (corner % 2)[None, :] < WIDTH)
    flow = tl.load(gradient + network * g_m + at, mask=known, other=0.0).to(tl.float32)
    mark = tl.load(bits + network * cells * N + cell[:, None] * N + channel[None, :], mask=known, other=0)
    flow = tl.where((mark.to(tl.int32) >> corner[None, :]) & 1 == 1, flow * (0.25 if POOL else 1.0), 0.0)
    if FLAT:
        at = cell[:, None] * (4 * S) + (corner * S + channel)[None, :]
    else:
        width: tl.constexpr = 2 * ((WIDTH + 1) // 2) + SIDE - 1
        lines: tl.constexpr = 2 * ((HEIGHT + 1) // 2) + SIDE - 1
        first = (sample * lines + row * 2 + SIDE // 2) * width + column * 2 + SIDE // 2
        at = first[:, None] * S + ((corner // 2 * width + corner % 2) * S + channel)[None, :]
    tl.store(wide + network * w_m + at, flow.to(wide.dtype.element_ty), mask=known)
    sums = tl.sum(tl.reshape(tl.sum(flow, 0), [4, NP]), 0)
    lane = tl.arange(0, NP)
    tl.store(biases + (tile * networks + network) * NP + lane, sums)


@triton.jit
def weigh(
    x, wide, parts, networks, cells, per_split, x_m, w_m,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr,
    N: tl.constexpr, NP: tl.constexpr, SIDE: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, S: tl.constexpr,
    FLAT: tl.constexpr, GROUP: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the matrix of weights over one split of the cells."""
    split = tl.program_id(0)
    chunk = tl.program_id(1)
    group = tl.program_id(2)
    width: tl.constexpr = 2 * ((WIDTH + 1) // 2) + SIDE - 1
    lines: tl.constexpr = 2 * ((HEIGHT + 1) // 2) + SIDE - 1
    k = chunk * BLOCK_K + tl.arange(0, BLOCK_K)
    shift = k if FLAT else k // ((SIDE + 1) * C) * (width * C) + k % ((SIDE + 1) * C)
    output = tl.arange(0, GROUP * 4 * NP)
    network = group * GROUP + output // (4 * NP)
    corner = output // NP % 4
    channel = output % NP
    known = (network < networks) & (channel < N)
    far = network.to(tl.int64)
    source = x + group.to(tl.int64) * x_m
    if FLAT:
        aside = far * w_m + corner * S + channel
    else:
        aside = far * w_m + (corner // 2 * width + corner % 2) * S + channel
    total = tl.zeros([BLOCK_K, GROUP * 4 * NP], tl.float32)
    for start in tl.range(0, per_split, BLOCK_P):
        cell = split * per_split + start + tl.arange(0, BLOCK_P)
        here = cell < cells
        sample = cell // (ROWS * COLUMNS)
        row = cell % (ROWS * COLUMNS) // COLUMNS * 2
        column = cell % COLUMNS * 2
        if FLAT:
            base = cell * KP
            first = cell * (4 * S)
        else:
            base = ((sample * lines + row) * width + column) * C
            first = ((sample * lines + row + SIDE // 2) * width + column + SIDE // 2) * S
        if KP == K or FLAT:
            seen = here[:, None]
        else:
            seen = here[:, None] & (k < K)[None, :]
        window = tl.load(source + base[:, None] + shift[None, :], mask=seen, other=0.0)
        flow = tl.load(wide + first[:, None] + aside[None, :], mask=here[:, None] & known[None, :], other=0.0)
        total = tl.dot(tl.trans(window), flow, total, input_precision=PRECISION)
    at = (split * networks + far) * (KP * 4 * NP) + output % (4 * NP)
    tl.store(parts + at[None, :] + k[:, None] * (4 * NP), total, mask=(network < networks)[None, :])


@triton.jit
def pack(
    source, forth, back, w_m, C_IN: tl.constexpr, N: tl.constexpr, SIDE: tl.constexpr, C: tl.constexpr,
    NP: tl.constexpr, KP: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, KB: tl.constexpr, BACK: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Weights (outputs, inputs, window) as matrices of cells, and mirrored for the way back."""
    network = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    taps: tl.constexpr = SIDE * SIDE
    k = index // (4 * NP)
    n, corner, c, place = index % NP, index // NP % 4, k % C, k // C
    row = place // (SIDE + 1) - corner // 2
    column = place % (SIDE + 1) - corner % 2
    known = (index < KP * 4 * NP) & (n < N) & (c < C_IN)
    known = known & (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE)
    value = tl.load(source + network * w_m + (n * C_IN + c) * taps + row * SIDE + column, mask=known, other=0.0)
    tl.store(forth + network * (KP * 4 * NP) + index, value.to(forth.dtype.element_ty), mask=index < KP * 4 * NP)
    if BACK:
        k = index // (4 * CP)
        c, corner, n, place = index % CP, index // CP % 4, k % S, k // S
        row = place // (SIDE + 1) - corner // 2
        column = place % (SIDE + 1) - corner % 2
        known = (index < KB * 4 * CP) & (n < N) & (c < C_IN)
        known = known & (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE)
        tap = taps - 1 - (row * SIDE + column)
        value = tl.load(source + network * w_m + (n * C_IN + c) * taps + tap, mask=known, other=0.0)
        tl.store(back + network * (KB * 4 * CP) + index, value.to(back.dtype.element_ty), mask=index < KB * 4 * CP)


@triton.jit
def gather(
    parts, biases, out, splits, tiles, networks, C_IN: tl.constexpr, N: tl.constexpr, SIDE: tl.constexpr,
    C: tl.constexpr, NP: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The sum over all splits and corners, in the order of the weights; the bias, by the last program, after them."""
    network = tl.program_id(1)
    taps: tl.constexpr = SIDE * SIDE
    size: tl.constexpr = N * C_IN * taps
    far = out + network.to(tl.int64) * (size + N)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        lane = tl.arange(0, NP)
        sums = tl.zeros([NP], tl.float32)
        for start in range(0, tiles, 64):
            tile = start + tl.arange(0, 64)
            at = ((tile * networks + network) * NP)[:, None] + lane[None, :]
            sums += tl.sum(tl.load(biases + at, mask=(tile < tiles)[:, None], other=0.0), 0)
        tl.store(far + size + lane, sums, mask=lane < N)
    else:
        index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # in the order of the parts, which are read most
        n, c, tap = index % N, index // N % C_IN, index // (N * C_IN)
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, splits, SPLITS):
            split = start + tl.arange(0, SPLITS)
            part = (split * networks + network).to(tl.int64) * (KP * 4 * NP)
            known = (split < splits)[:, None] & (index < size)[None, :]
            for corner in tl.static_range(4):
                place = (tap // SIDE + corner // 2) * (SIDE + 1) + tap % SIDE + corner % 2
                at = part[:, None] + ((place * C + c) * (4 * NP) + corner * NP + n)[None, :]
                total += tl.sum(tl.load(parts + at, mask=known, other=0.0), 0)
        tl.store(far + (n * C_IN + c) * taps + tap, total, mask=index < size)
