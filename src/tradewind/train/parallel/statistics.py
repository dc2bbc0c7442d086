"""Batch normalisation by the statistics of the whole batch, however many members share it.

As torch's SyncBatchNorm, which refuses CPUs; and a member that has no samples of a batch counts nothing in it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from tradewind.errors import WorkloadError
from tradewind.train.parallel.meters import Tally

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(_BatchNorm):
    """As nn.BatchNorm of any number of dimensions, over the samples of all members."""

    tally: Tally
    absent = False  # whether this member's samples count nothing

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Whatever its twin has taken."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The inputs with mean 0 and variance 1 over the batch, scaled and shifted."""
        if not self.training:
            return super().forward(inputs)
        values = inputs if inputs.dtype == torch.float64 else inputs.float()
        dims = [0, *range(2, values.ndim)]
        shape = [1, -1, *[1] * (values.ndim - 2)]
        counted = 0.0 if self.absent else 1.0
        own = values.new_full((1,), counted * values.numel() / values.shape[1])
        sums = _summed(torch.cat((counted * values.sum(dims), own)), self.tally)
        count = sums[-1].detach()
        # as torch refuses it; looked at only where it can be, since a GPU is waited for
        if values.numel() == values.shape[1] and count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {inputs.shape}")
        mean = sums[:-1] / count
        centred = values - mean.view(shape)
        variance = _summed(counted * centred.square().sum(dims), self.tally) / count
        self._note(mean.detach(), variance.detach(), count)
        found = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            found = found * self.weight.view(shape) + self.bias.view(shape)
        outputs: torch.Tensor = found.to(inputs.dtype)
        return outputs

    @torch.no_grad()
    def _note(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        if not self.track_running_stats:
            return
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        unbiased = variance * (count / (count - 1).clamp(min=1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)


class _Sum(torch.autograd.Function):
    """The sum over all members; what depends on it does so on every member, hence the sum of gradients."""

    @staticmethod
    def forward(ctx: Any, mine: torch.Tensor, tally: Tally) -> torch.Tensor:
        ctx.tally = tally
        return _exchanged(mine, tally)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _exchanged(gradient, ctx.tally), None


def _summed(mine: torch.Tensor, tally: Tally) -> torch.Tensor:
    found: torch.Tensor = _Sum.apply(mine, tally)  # type: ignore[no-untyped-call]
    return found


def _exchanged(mine: torch.Tensor, tally: Tally) -> torch.Tensor:
    total = mine.contiguous().clone()
    with tally.exchanging():
        dist.all_reduce(total)
    tally.reduced("statistics", total.nbytes, dist.get_world_size())
    return total


def share_statistics(model: nn.Module, tally: Tally) -> list[SharedBatchNorm]:
    """Replace the batch normalisations of a network; returns those that have taken their place."""
    taken: dict[nn.Module, SharedBatchNorm] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if _unshareable(child):
                raise WorkloadError(
                    f"devices: found several, and a network whose {type(child).__name__} keeps statistics of batches "
                    f"in its own way; allowed: {', '.join(kind.__name__ for kind in KINDS)}, or devices 1"
                )
            if type(child) in KINDS:
                assert isinstance(child, _BatchNorm)
                taken[child] = taken.get(child) or _shared(child, tally)
                setattr(parent, name, taken[child])
    return list(taken.values())


def _unshareable(layer: nn.Module | None) -> bool:
    """Whether a part of a batch would leave other statistics than the whole, and none knows how to share them."""
    return (
        isinstance(layer, _NormBase)
        and type(layer) not in KINDS
        and (isinstance(layer, _BatchNorm) or layer.track_running_stats)
    )


def _shared(layer: _BatchNorm, tally: Tally) -> SharedBatchNorm:
    options = layer.eps, layer.momentum, layer.affine, layer.track_running_stats
    found = SharedBatchNorm(layer.num_features, *options)
    found.tally = tally
    found.weight, found.bias = layer.weight, layer.bias
    found.running_mean, found.running_var = layer.running_mean, layer.running_var
    found.num_batches_tracked = layer.num_batches_tracked
    return found.train(layer.training)
