"""What the plain way gives: faster ways are compared with it before they train."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

import torch
from torch import nn

from tradewind.errors import WorkloadError
from tradewind.train.batches import Batch
from tradewind.train.dropout import KeyedDropout, set_places
from tradewind.train.precision import computing, kept_in, products

GRADIENT = "{}: its gradient"
AFTER_STEP = "{}: its value after a step"
AFTER_EVALUATION = "{}: its value after an evaluation"

# what a faster way gives may differ from the plain one by this share of its largest element
CLOSE = {"fp64": 1e-9, "fp32": 2e-3, "tf32": 2e-2, "bf16": 1e-1}


def one_output(found: Any) -> torch.Tensor:
    """What a network gives for a batch, which must be one tensor."""
    if isinstance(found, torch.Tensor):
        return found
    what = f"{type(found).__name__} of {len(found)}" if isinstance(found, Sized) else type(found).__name__
    raise WorkloadError(
        f"model: found a network that returns a {what}; allowed: one tensor of outputs, which loss and scores take; "
        "put several into one, as by torch.cat"
    )


def tried(
    model: nn.Module, batch: Batch, loss: Callable[[torch.Tensor], torch.Tensor], precision: str
) -> dict[str, torch.Tensor]:
    """All that a step and then an evaluation of a network give; what takes no part in the loss has no gradient."""
    device, dtype = batch.targets.device, kept_in(precision)
    set_places([layer for layer in model.train().modules() if isinstance(layer, KeyedDropout)], batch.places)
    with computing(precision, device):
        outputs = one_output(model(batch.inputs)).to(dtype)
    lost, trained = loss(outputs), {name: p for name, p in model.named_parameters() if p.requires_grad}
    with products(precision, device):
        gradients = torch.autograd.grad(lost, list(trained.values()), allow_unused=True)
    found = {"the outputs of a step": outputs.detach(), "its loss": lost.detach()}
    pairs = zip(trained, gradients, strict=True)
    found |= {GRADIENT.format(name): gradient for name, gradient in pairs if gradient is not None}
    found |= {AFTER_STEP.format(name): value.clone() for name, value in model.named_buffers()}
    with torch.no_grad(), computing(precision, device):
        found["the outputs of an evaluation"] = one_output(model.eval()(batch.inputs)).to(dtype)
    return found | {AFTER_EVALUATION.format(name): value for name, value in model.named_buffers()}


def close(one: torch.Tensor, other: torch.Tensor, precision: str) -> bool:
    """Whether a value of a faster way is the plain one's but for rounding."""
    one, other = one.double(), other.double()
    if one.shape != other.shape or one.numel() == 0:
        return one.shape == other.shape
    return bool((one - other).abs().max() <= CLOSE[precision] * one.abs().max() + 1e-12)
