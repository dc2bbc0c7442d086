"""Precisions: in what a network is kept and in what its products are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# what a faster way gives may differ from the plain one by this share of its largest element
CLOSE = {"fp64": 1e-9, "fp32": 2e-3, "tf32": 2e-2, "bf16": 1e-1}


def close(one: torch.Tensor, other: torch.Tensor, precision: str) -> bool:
    """Whether a value of a faster way is the plain one's but for rounding."""
    one, other = one.double(), other.double()
    if one.shape != other.shape or one.numel() == 0:
        return one.shape == other.shape
    return bool((one - other).abs().max() <= CLOSE[precision] * one.abs().max() + 1e-12)


def resolved(name: str, device: torch.device) -> str:
    """The precision that a config means by `auto`: the fastest that trains as well, which is fp32 on a CPU."""
    if name != "auto":
        return name if device.type == "cuda" or name in {"fp32", "fp64"} else "fp32"
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def kept_in(precision: str) -> torch.dtype:
    """The type of parameters and samples; products may be coarser."""
    return torch.float64 if precision == "fp64" else torch.float32


@contextmanager
def computing(precision: str, device: torch.device) -> Iterator[None]:
    """The way forth: products inside are computed so, from values that are cast to it."""
    with products(precision), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        yield


@contextmanager
def products(precision: str) -> Iterator[None]:
    """The way back, which casts nothing: fp32 means it, though torch's convolutions use tf32 unless told."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
