"""Random numbers by counter: a number depends on what it is for, never on what was drawn before it."""

from __future__ import annotations

import torch

_GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's increment; odd, so its multiples run through all of 2^64
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1
_FLOAT_BITS = 24  # what a float32 holds exactly


def uniforms(data_seed: int, epoch: int, index: torch.Tensor, n: int) -> torch.Tensor:
    """Numbers in [0, 1), shape (len(index), n), from (data_seed, epoch, sample index, column) alone."""
    start = _mixed_word(_mixed_word(data_seed * _GOLDEN & _WORD) + epoch * _GOLDEN & _WORD)
    sample = _mixed(index.to(torch.int64) * _signed(_GOLDEN) + _signed(start))
    column = torch.arange(1, n + 1, dtype=torch.int64, device=index.device) * _signed(_GOLDEN)
    bits = _shifted(_mixed(sample[:, None] + column), 64 - _FLOAT_BITS)
    return bits.to(torch.float32) * 2.0**-_FLOAT_BITS


def _mixed(word: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser; torch's int64 products wrap as unsigned ones do."""
    for shift, factor in _MIX:
        word = (word ^ _shifted(word, shift)) * _signed(factor)
    return word ^ _shifted(word, 31)


def _mixed_word(word: int) -> int:
    """The same on a Python number: the seed costs no kernel."""
    for shift, factor in _MIX:
        word = (word ^ word >> shift) * factor & _WORD
    return word ^ word >> 31


def _shifted(word: torch.Tensor, bits: int) -> torch.Tensor:
    """The logical right shift; torch's own copies the sign."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    """The int64 with these 64 bits."""
    return word - (1 << 64) if word >> 63 else word
