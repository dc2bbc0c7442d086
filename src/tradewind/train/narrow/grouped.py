"""A convolution of many networks at once, each over its own images, by kernels of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tradewind.train.narrow import grouped_kernels as kernels
from tradewind.train.narrow.layout import power_of_2

CLOSE = 1e-2  # of the size of what the library gives
WIDE_BYTES = 256  # of a place's channels: of wider ones a tile has half as many places, and less is read ahead
PROGRAMS = 2112  # sixteen for every multiprocessor


@dataclass(frozen=True)
class Shape:
    """Of a convolution: networks, channels in and out, sizes of images and results, kernel, stride and edge."""

    networks: int
    inputs: int
    outputs: int
    size: tuple[int, int]
    result: tuple[int, int]
    kernel: tuple[int, int]
    stride: int
    edge: int

    @property
    def taps(self) -> int:
        """Places that a place sees."""
        return self.kernel[0] * self.kernel[1]


class Grouped(torch.autograd.Function):
    """(samples, networks × channels, rows, columns) and (networks, outputs, channels, …) to the same of outputs."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor, stride: int, edge: int) -> torch.Tensor:
        """The results, channels last."""
        m, n, c, *kernel = weights.shape
        size = (x.shape[2], x.shape[3])
        result = tuple((side + 2 * edge - wide) // stride + 1 for side, wide in zip(size, kernel, strict=True))
        shape = Shape(m, c, n, size, result, tuple(kernel), stride, edge)  # type: ignore[arg-type]
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weights)
        ctx.shape = shape
        y = x.new_empty((len(x), *result, m * n)).movedim(-1, 1)
        _convolve(shape, x, weights.permute(0, 3, 4, 2, 1), y, back=False)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """The gradients of images and weights."""
        (x, weights), shape = ctx.saved_tensors, ctx.shape
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        found = None
        if ctx.needs_input_grad[0]:
            found = torch.empty_like(x)
            _convolve(shape, gradient, weights.permute(0, 3, 4, 1, 2), found, back=True)
        return found, _weigh(shape, x, gradient).to(weights.dtype), None, None


def convolved(x: torch.Tensor, weights: torch.Tensor, stride: int, edge: int) -> torch.Tensor:
    """As Grouped does it."""
    found: torch.Tensor = Grouped.apply(x, weights, stride, edge)  # type: ignore[no-untyped-call]
    return found


def compared(x: torch.Tensor, weights: torch.Tensor, stride: int, edge: int) -> torch.Tensor:
    """The same; raises ArithmeticError where the library gives something else, there or on the way back."""
    about = x.detach().requires_grad_(), weights.detach().requires_grad_()
    ours = convolved(*about, stride, edge)
    theirs = functional.conv2d(about[0], about[1].flatten(0, 1), None, stride, edge, groups=len(weights))
    found = [(way, *torch.autograd.grad(way, about, theirs.detach())) for way in (ours, theirs)]
    for what, one, other in zip(("its results", "the gradient of images", "that of weights"), *found, strict=True):
        if not (one - other).norm() <= CLOSE * other.norm():
            raise ArithmeticError(f"a convolution of {list(x.shape)} and {list(weights.shape)}: {what} differ")
    return ours


def _convolve(shape: Shape, x: torch.Tensor, weights: torch.Tensor, y: torch.Tensor, back: bool) -> None:
    """Forth from images to results, or back from the gradient of results to that of images."""
    c, n = (shape.outputs, shape.inputs) if back else (shape.inputs, shape.outputs)
    seen, made = (shape.result, shape.size) if back else (shape.size, shape.result)
    places, (tile, ahead) = len(x) * made[0] * made[1], _tile(shape, x)
    kernels.convolve[(-(-places // tile) * shape.networks,)](
        x, weights.contiguous(), y, shape.networks, places, c, _padded(c), n, _padded(n), shape.taps, *made, *seen,
        shape.kernel[1], shape.stride, shape.edge, back, tile, _precision(x), num_stages=ahead,
    )  # fmt: skip


def _weigh(shape: Shape, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    m, c, n, taps = shape.networks, shape.inputs, shape.outputs, shape.taps
    places = len(x) * shape.result[0] * shape.result[1]
    tile, ahead = _tile(shape, x)
    tiles = -(-places // tile)
    parts = min(tiles, -(-PROGRAMS // (m * taps)))
    share = -(-tiles // parts) * tile
    sums = x.new_empty((parts, m, *shape.kernel, c, n), dtype=torch.float32)
    # with more warps than products of 16 × 8 in a tile, Triton 3.6 gives wrong sums
    warps = max(1, min(4, _padded(c) * _padded(n) // 128))
    kernels.weigh[(parts * taps * m,)](
        x, gradient, sums, m, places, share, c, _padded(c), n, _padded(n), taps, *shape.result, *shape.size,
        shape.kernel[1], shape.stride, shape.edge, tile, _precision(x), num_stages=ahead, num_warps=warps,
    )  # fmt: skip
    return sums.sum(dim=0).permute(0, 4, 3, 1, 2)


def _tile(shape: Shape, x: torch.Tensor) -> tuple[int, int]:
    """The places of a tile, and how many are under way at once: all must fit the memory of a multiprocessor."""
    wide = max(_padded(shape.inputs), _padded(shape.outputs)) * x.element_size()
    return (128, 3) if wide <= WIDE_BYTES else (64, 2)


def _padded(channels: int) -> int:
    return max(16, power_of_2(channels))


def _precision(x: torch.Tensor) -> str:
    tf32 = torch.backends.cudnn.allow_tf32 and x.is_cuda  # of no account for shorter types
    return "tf32" if tf32 else "ieee"
