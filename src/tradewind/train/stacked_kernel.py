# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# ruff: noqa: N803 (a kernel's constants are written large)
"""A step of every row's optimiser as one Triton kernel: the same formulas as in stacked.py, in one pass."""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def adam(
    parameters, gradients, first, second, rates, decays, betas1, betas2, powers1, powers2, count, length, epsilon,
    DECOUPLED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Adam, or AdamW where the decay is DECOUPLED."""
    row = tl.program_id(1)
    index = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    here = index < length
    at = row.to(tl.int64) * length + index
    rate, decay = tl.load(rates + row), tl.load(decays + row)
    beta1, beta2 = tl.load(betas1 + row), tl.load(betas2 + row)
    steps = tl.load(count)
    bias1 = (1.0 - tl.exp(tl.load(powers1 + row) * steps)).to(tl.float32)
    bias2 = (1.0 - tl.exp(tl.load(powers2 + row) * steps)).to(tl.float32)
    value = tl.load(parameters + at, mask=here)
    gradient = tl.load(gradients + at, mask=here)
    if DECOUPLED:
        value = value * (1.0 - rate * decay)
    else:
        gradient = gradient + value * decay
    mean = tl.load(first + at, mask=here)
    mean = mean + (1.0 - beta1) * (gradient - mean)
    square = tl.load(second + at, mask=here) * beta2 + (1.0 - beta2) * gradient * gradient
    spread = tl.div_rn(tl.sqrt_rn(square), tl.sqrt_rn(bias2)) + epsilon  # rounded as torch does, not approximately
    tl.store(first + at, mean, mask=here)
    tl.store(second + at, square, mask=here)
    tl.store(parameters + at, value - tl.div_rn(rate, bias1) * tl.div_rn(mean, spread), mask=here)


@triton.jit
def sgd(parameters, gradients, momenta, rates, decays, factors, length, SIZE: tl.constexpr):
    """Gradient descent with momentum."""
    row = tl.program_id(1)
    index = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    here = index < length
    at = row.to(tl.int64) * length + index
    value = tl.load(parameters + at, mask=here)
    gradient = tl.load(gradients + at, mask=here) + value * tl.load(decays + row)
    momentum = tl.load(momenta + at, mask=here) * tl.load(factors + row) + gradient
    tl.store(momenta + at, momentum, mask=here)
    tl.store(parameters + at, value - tl.load(rates + row) * momentum, mask=here)
