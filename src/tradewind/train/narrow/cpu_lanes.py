"""Tiles of convolutions as instructions on 8 neighbouring channels: sums stay in registers.

numba's compiler would keep none of them there. `cpu_kernels.py` keeps what is compiled until that file changes: after
a change here alone, touch it.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils

from tradewind.augment.lanes import instruction

LANES = 8

_EIGHT = ir.VectorType(ir.FloatType(), LANES)
_WHOLE = ir.IntType(64)
_types: Any = numba.types
_INT = _types.int64


def _zeros() -> Any:
    return ir.Constant(_EIGHT, [0.0] * LANES)


class _Registers:
    """Builds the instructions of a tile: rows of sums, each of 8 channels."""

    def __init__(self, context: Any, builder: Any, rows: int, vectors: int) -> None:
        self.context, self.builder, self.vectors = context, builder, vectors
        alloca: Any = cgutils.alloca_once
        self.sums = [[alloca(builder, _EIGHT) for _ in range(vectors)] for _ in range(rows)]

    def array(self, kind: Any, value: Any) -> Any:
        """Where an array lies."""
        return self.context.make_array(kind)(self.context, self.builder, value).data

    def place(self, start: Any, *steps: tuple[Any, Any]) -> Any:
        """start + each number of steps of a length."""
        for count, length in steps:
            start = self.builder.add(start, self.builder.mul(count, length))
        return start

    def lanes(self, data: Any, place: Any) -> list[Any]:
        """The neighbouring channels from a place on."""
        return [self.builder.load(self._eight(data, place, vector), align=4) for vector in range(self.vectors)]

    def store(self, data: Any, place: Any, values: list[Any]) -> None:
        """The neighbouring channels to a place."""
        for vector, value in enumerate(values):
            self.builder.store(value, self._eight(data, place, vector), align=4)

    def spread(self, data: Any, place: Any) -> Any:
        """One value in all lanes."""
        value = self.builder.load(self.builder.gep(data, [place]), align=4)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        first = self.builder.insert_element(ir.Constant(_EIGHT, ir.Undefined), value, ir.IntType(32)(0))
        return self.builder.shuffle_vector(first, first, zeros)

    def add(self, row: int, factor: Any, values: list[Any]) -> None:
        """Add a multiple of the channels to a row of sums, fused."""
        for held, value in zip(self.sums[row], values, strict=True):
            product = self.builder.fmul(factor, value, flags=("contract",))
            self.builder.store(self.builder.fadd(product, self.builder.load(held), flags=("contract",)), held)

    def set(self, row: int, values: list[Any]) -> None:
        """Begin a row of sums."""
        for held, value in zip(self.sums[row], values, strict=True):
            self.builder.store(value, held)

    def get(self, row: int) -> list[Any]:
        """A row of sums."""
        return [self.builder.load(held) for held in self.sums[row]]

    def _eight(self, data: Any, place: Any, vector: int) -> Any:
        place = self.builder.add(place, _WHOLE(LANES * vector))
        return self.builder.bitcast(self.builder.gep(data, [place]), _EIGHT.as_pointer())


@instruction
def convolve_tile(
    typing: Any, taps: Any, cells: Any, vectors: Any, x: Any, at: Any, row: Any, step: Any, side: Any,
    weights: Any, wide: Any, first: Any, bias: Any, y: Any, target: Any,
) -> Any:  # fmt: skip
    """y[target + p·wide] = bias[first] + Σ x[at + i·row + (p + j)·step + c] · weights[w·wide + first].

    Lane by lane, w = (i·side + j)·step + c. `taps` of the weights along a row are in registers at once, so that a
    value is loaded once for all.
    """
    if not all(isinstance(size, _types.IntegerLiteral) for size in (taps, cells, vectors)):
        return None
    columns, rows = taps.literal_value, cells.literal_value

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        _, _, _, _, at, row, step, side, _, wide, first, _, _, target = values
        tile = _Registers(context, builder, rows, vectors.literal_value)
        images, factors, biases, out = (tile.array(kinds[k], values[k]) for k in (3, 8, 11, 12))
        for p in range(rows):
            tile.set(p, tile.lanes(biases, first))
        run = builder.mul(side, step)
        with cgutils.for_range(builder, side) as line:
            start, begin = tile.place(at, (line.index, row)), builder.mul(line.index, run)
            # one column after the other, or all of them at once: then what is left to go along is the channels
            with cgutils.for_range(builder, step if columns > 1 else run) as along:
                value, weight = builder.add(start, along.index), builder.add(begin, along.index)
                held = [
                    tile.lanes(factors, tile.place(first, (tile.place(weight, (_WHOLE(j), step)), wide)))
                    for j in range(columns)
                ]
                for q in range(rows + columns - 1):
                    spread = tile.spread(images, tile.place(value, (_WHOLE(q), step)))
                    for j in range(columns):
                        if 0 <= q - j < rows:
                            tile.add(q - j, spread, held[j])
        for p in range(rows):
            tile.store(out, tile.place(target, (_WHOLE(p), wide)), tile.get(p))
        return context.get_dummy_value()

    return _types.void(taps, cells, vectors, x, *(_INT,) * 4, weights, _INT, _INT, bias, y, _INT), build


@instruction
def weigh_tile(
    typing: Any, run: Any, vectors: Any, x: Any, at: Any, row: Any, step: Any, g: Any, from_: Any, line: Any,
    wide: Any, height: Any, width: Any, out: Any, target: Any,
) -> Any:  # fmt: skip
    """out[target + r·wide] += Σ x[at + h·row + p·step + r] · g[from_ + h·line + p·wide], lane by lane."""
    if not all(isinstance(size, _types.IntegerLiteral) for size in (run, vectors)):
        return None
    rows = run.literal_value

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        _, _, _, at, row, step, _, from_, line, wide, height, width, _, target = values
        tile = _Registers(context, builder, rows, vectors.literal_value)
        images, gradient, found = (tile.array(kinds[k], values[k]) for k in (2, 6, 12))
        for r in range(rows):
            tile.set(r, [_zeros()] * tile.vectors)
        with cgutils.for_range(builder, height) as down:
            start, begin = tile.place(at, (down.index, row)), tile.place(from_, (down.index, line))
            with cgutils.for_range(builder, width) as along:
                value = tile.place(start, (along.index, step))
                slope = tile.lanes(gradient, tile.place(begin, (along.index, wide)))
                for r in range(rows):
                    tile.add(r, tile.spread(images, builder.add(value, _WHOLE(r))), slope)
        for r in range(rows):
            place = tile.place(target, (_WHOLE(r), wide))
            pairs = zip(tile.lanes(found, place), tile.get(r), strict=True)
            tile.store(found, place, [builder.fadd(one, other) for one, other in pairs])
        return context.get_dummy_value()

    whole = (_INT,) * 3
    return _types.void(run, vectors, x, *whole, g, *(_INT,) * 5, out, _INT), build


@instruction
def activate_row(
    typing: Any, pool: Any, y: Any, source: Any, line: Any, wide: Any, cells: Any, out: Any, target: Any
) -> Any:
    """8 channels of a row: ReLU, or the mean of 2×2 of them."""
    if not isinstance(pool, _types.IntegerLiteral):
        return None

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, _, source, line, wide, cells, _, target = values
        tile = _Registers(context, builder, 1, 1)
        sums, results = tile.array(signature.args[1], values[1]), tile.array(signature.args[6], values[6])

        def positive(place: Any) -> Any:
            (value,) = tile.lanes(sums, place)
            return builder.select(builder.fcmp_ordered("<", value, _zeros()), _zeros(), value)  # NaN stays

        with cgutils.for_range(builder, cells) as along:
            if pool.literal_value:
                left = tile.place(source, (builder.mul(along.index, _WHOLE(2)), wide))
                below = builder.add(left, line)
                upper = builder.fadd(positive(left), positive(builder.add(left, wide)))
                lower = builder.fadd(positive(below), positive(builder.add(below, wide)))
                value = builder.fmul(builder.fadd(upper, lower), ir.Constant(_EIGHT, [0.25] * LANES))
            else:
                value = positive(tile.place(source, (along.index, wide)))
            tile.store(results, tile.place(target, (along.index, wide)), [value])
        return context.get_dummy_value()

    return _types.void(pool, y, *(_INT,) * 4, out, _INT), build


@instruction
def spread_row(
    typing: Any, pool: Any, gradient: Any, above: Any, y: Any, source: Any, wide: Any, cells: Any, out: Any,
    target: Any, bias: Any, first: Any,
) -> Any:  # fmt: skip
    """8 channels of a row: the gradient where y is positive, a quarter of it where cells were pooled."""
    if not isinstance(pool, _types.IntegerLiteral):
        return None

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds, share = signature.args, 0.25 if pool.literal_value else 1.0
        _, _, above, _, source, wide, cells, _, target, _, first = values
        tile = _Registers(context, builder, 1, 1)
        slopes, sums, results, biases = (tile.array(kinds[k], values[k]) for k in (1, 3, 7, 9))
        tile.set(0, [_zeros()])
        with cgutils.for_range(builder, cells) as along:
            over = builder.lshr(along.index, _WHOLE(1)) if pool.literal_value else along.index
            (slope,) = tile.lanes(slopes, tile.place(above, (over, wide)))
            (value,) = tile.lanes(sums, tile.place(source, (along.index, wide)))
            slope = builder.fmul(slope, ir.Constant(_EIGHT, [share] * LANES))
            slope = builder.select(builder.fcmp_ordered(">", value, _zeros()), slope, _zeros())
            tile.store(results, tile.place(target, (along.index, wide)), [slope])
            tile.set(0, [builder.fadd(slope, tile.get(0)[0])])
        tile.store(biases, first, [builder.fadd(tile.lanes(biases, first)[0], tile.get(0)[0])])
        return context.get_dummy_value()

    return _types.void(pool, gradient, _INT, y, *(_INT,) * 3, out, _INT, bias, _INT), build
