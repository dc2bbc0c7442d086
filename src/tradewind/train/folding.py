"""Operations of stacked networks in which networks are more channels: what vmap does in a slower way, or can't.

`vmap` of a norm asks for types that agree and for one layout, and that of a convolution for a bias that is cast.
Here each is one norm or one convolution over the channels of all networks, on images that lie as they lie, in
whichever type. Convolutions of images may be left to kernels of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tradewind.train.stacked import triton_is_there

LEAST, MOST = 8, 128  # channels: fewer make no product, and of more the library's kernels make good use
CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)

Convolve = Callable[[torch.Tensor, torch.Tensor, int, int], torch.Tensor]  # images, weights, stride and edge


class Folding(TorchFunctionMode):
    """Around a vmap over networks: its norms and convolutions are done as said above, by what is given if it can."""

    def __init__(self, convolve: Convolve | None) -> None:
        super().__init__()
        self._convolve = convolve

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every call of a function of torch's comes here."""
        if func is functional.batch_norm:
            return _norm(*args, **(kwargs or {}))
        if func in CONVOLUTIONS:
            return _convolution(func, self._convolve, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def foldable(model: nn.Module, device: torch.device, precision: str) -> bool:
    """Whether there are convolutions that kernels of our own may do, where they can be built."""
    there = device.type == "cuda" and precision in {"tf32", "bf16"} and triton_is_there()
    return there and any(type(layer) is nn.Conv2d for layer in model.modules())


class _Norm(torch.autograd.Function):
    """Only its rule for stacks matters: what no network's own values came to needs no gradient."""

    @staticmethod
    def forward(*args: Any) -> torch.Tensor:
        return functional.batch_norm(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, *args: Any) -> Any:
        m = info.batch_size
        values: Any = [_flat(value, dim, m) for value, dim in zip(args[:4], in_dims[1:5], strict=True)]
        return _apart(functional.batch_norm(_folded(x, in_dims[0], m), *values, *args[4:]), m)


class _Convolution(torch.autograd.Function):
    """As above."""

    @staticmethod
    def forward(x: Any, weight: Any, bias: Any, how: _How) -> torch.Tensor:
        return how.apply(x, weight, bias, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, weight: Any, bias: Any, how: _How) -> Any:
        m = info.batch_size
        weight = weight.expand(m, *weight.shape) if in_dims[1] is None else weight.movedim(in_dims[1], 0)
        bias = _flat(bias, in_dims[2], m)
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight, bias = (None if value is None else value.to(dtype) for value in (x, weight, bias))
        if in_dims[0] is None and how.groups == 1:  # all networks see the same: an ordinary convolution
            x = x.contiguous(memory_format=torch.channels_last) if how.convolve else x
            return _apart(how.apply(x, weight.flatten(0, 1), bias, 1), m)
        x = _folded(x, in_dims[0], m)
        if how.convolve is None or not all(LEAST <= channels <= MOST for channels in weight.shape[1:3]):
            return _apart(how.apply(x, weight.flatten(0, 1), bias, m), m)
        found = how.convolve(x, weight, *how.even)
        return _apart(found if bias is None else found + bias[:, None, None], m)


class _How:
    """All that a convolution is told besides its tensors; `convolve` only where it can do that."""

    def __init__(
        self,
        func: Any,
        convolve: Convolve | None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> None:
        self._func, self._sizes, self.groups = func, (stride, padding, dilation), groups
        self.even = _both(stride), _both(padding)
        plain = func is torch.conv2d and groups == 1 and _both(dilation) == 1 and None not in self.even
        self.convolve: Any = convolve if plain else None

    def apply(self, x: torch.Tensor, weight: torch.Tensor, bias: Any, networks: int) -> torch.Tensor:
        """By torch, for networks that are more groups."""
        found: torch.Tensor = self._func(x, weight, bias, *self._sizes, self.groups * networks)
        return found


def _norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    return _Norm.apply(x, mean, var, weight, bias, training, momentum, eps)  # type: ignore[no-untyped-call]


def _convolution(
    func: Any, convolve: Convolve | None, input: Any, weight: Any, bias: Any = None, *sizes: Any, **more: Any
) -> Any:
    if input.ndim != weight.ndim:  # a sample without a batch
        return func(input, weight, bias, *sizes, **more)
    return _Convolution.apply(input, weight, bias, _How(func, convolve, *sizes, **more))  # type: ignore[no-untyped-call]


def _both(size: Any) -> int | None:
    """A size along both axes, if it is the same number."""
    if isinstance(size, int):
        return size
    return size[0] if isinstance(size, tuple) and isinstance(size[0], int) and len(set(size)) == 1 else None


def _folded(x: torch.Tensor, dim: int | None, networks: int) -> torch.Tensor:
    """(samples, networks × channels, …)"""
    x = x.unsqueeze(1).expand(-1, networks, *x.shape[1:]) if dim is None else x.movedim(dim, 1)
    return x.flatten(1, 2)


def _apart(found: torch.Tensor, networks: int) -> tuple[torch.Tensor, int]:
    """What was folded as vmap takes it, and the place of its networks."""
    return found.view(len(found), networks, -1, *found.shape[2:]), 1


def _flat(value: Any, dim: int | None, networks: int) -> Any:
    """The values of all networks' channels, if there are some; of what lies in rows a view, which can be changed."""
    if value is None:
        return None
    return value.repeat(networks) if dim is None else value.movedim(dim, 0).flatten()
