"""Precisions: in what a network is kept and in what its products are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def resolved(name: str, device: torch.device) -> str:
    """The precision that a config means on a device; what `auto` means on a GPU has been measured before."""
    return name if name != "auto" and (device.type == "cuda" or name in {"fp32", "fp64"}) else "fp32"


def kept_in(precision: str) -> torch.dtype:
    """The type of parameters and samples; products may be coarser."""
    return torch.float64 if precision == "fp64" else torch.float32


def computing(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """The forward pass: products inside are computed so, from values that are cast to it."""
    return nullcontext() if device.type == "cpu" and precision != "bf16" else _computing(precision, device)


def products(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """The backward pass, which casts nothing: fp32 means it, though torch's convolutions use tf32 unless told."""
    return nullcontext() if device.type == "cpu" else _products(precision)  # CPUs have no tf32 to be told of


@contextmanager
def _computing(precision: str, device: torch.device) -> Iterator[None]:
    with products(precision, device), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        yield


@contextmanager
def _products(precision: str) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
