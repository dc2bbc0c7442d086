"""Instructions on 4 neighbouring floats for numba's kernels: left to itself, its compiler takes them one by one.

`cpu.py` keeps its compiled kernel until that file changes: after a change here alone, touch it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import extending, types

LANES = 4

_four = ir.VectorType(ir.FloatType(), LANES)


njit: Any = numba.njit  # some versions come with types, too strict for signatures; some with none


def instruction(function: Callable[..., Any]) -> Any:
    """numba's decorator, whose types differ from version to version."""
    return extending.intrinsic(function)


def compiled(function: Callable[..., None], kinds: Any, how: dict[str, Any]) -> Callable[..., None]:
    """Seconds the first time on a machine, later read from numba's cache."""
    try:
        found: Callable[..., None] = njit(kinds, cache=True, **how)(function)
    except Exception:
        # nowhere to keep it, a full disk, a torn file: none of it a reason not to train
        found = njit(kinds, **how)(function)
    return found


@instruction
def copy_lanes(typing: Any, source: Any, a: Any, out: Any, b: Any) -> Any:
    """out[b : b + 4] = source[a : a + 4]; both flat arrays of float32, places unsigned."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = _Lanes(context, builder, signature.args, values)
        lanes.store(2, values[3], lanes.load(0, values[1]))
        return context.get_dummy_value()

    return types.void(source, a, out, b), build


@instruction
def blend_lanes(
    typing: Any, frame: Any, a: Any, beside: Any, line: Any, right: Any, above: Any, out: Any, b: Any
) -> Any:
    """out[b : b + 4] = what lies between the cells at a, beside it, one line on, and beside that."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, place, beside, line, right, above, _, target = values
        lanes = _Lanes(context, builder, signature.args, values)
        upper = builder.add(place, line)
        places = place, builder.add(place, beside), upper, builder.add(upper, beside)
        left_low, right_low, left_high, right_high = (lanes.load(0, one) for one in places)
        low, high = lanes.between(left_low, right_low, right), lanes.between(left_high, right_high, right)
        lanes.store(6, target, lanes.between(low, high, above))
        return context.get_dummy_value()

    return types.void(frame, a, beside, line, right, above, out, b), build


class _Lanes:
    """Builds the instructions; arrays are named by their number among the arguments."""

    def __init__(self, context: Any, builder: Any, kinds: Any, values: Any) -> None:
        self.context, self.builder, self.kinds, self.values = context, builder, kinds, values

    def load(self, array: int, place: Any) -> Any:
        """4 floats from a place."""
        return self.builder.load(self._pointer(array, place), align=4)

    def store(self, array: int, place: Any, value: Any) -> None:
        """4 floats to a place."""
        self.builder.store(value, self._pointer(array, place), align=4)

    def between(self, a: Any, b: Any, share: Any) -> Any:
        """a + share × (b - a), fused."""
        zero, zeros = ir.IntType(32)(0), ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        first = self.builder.insert_element(ir.Constant(_four, ir.Undefined), share, zero)
        shares = self.builder.shuffle_vector(first, first, zeros)
        part = self.builder.fmul(shares, self.builder.fsub(b, a), flags=("contract",))
        return self.builder.fadd(a, part, flags=("contract",))

    def _pointer(self, array: int, place: Any) -> Any:
        data = self.context.make_array(self.kinds[array])(self.context, self.builder, self.values[array]).data
        return self.builder.bitcast(self.builder.gep(data, [place]), _four.as_pointer())
