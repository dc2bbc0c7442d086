"""Random numbers by counter: a number depends on what it is for, never on what was drawn before it."""

from __future__ import annotations

import torch

GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's increment; odd, so its multiples run through all of 2^64
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
FLOAT_BITS = 24  # what a float32 holds exactly
LANE_BITS = 16  # four numbers in a word
WORD = (1 << 64) - 1


def uniforms(data_seed: int, epoch: int, index: torch.Tensor, n: int) -> torch.Tensor:
    """Numbers in [0, 1), shape (len(index), n), from (data_seed, epoch, sample index, column) alone."""
    return bits(sample_words(start_word(data_seed, epoch), index), n).to(torch.float32) * 2.0**-FLOAT_BITS


def sample_words(start: int | torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """A word for every sample of an epoch that starts at a word; the start may be a tensor of one int64."""
    origin = start if isinstance(start, torch.Tensor) else signed(start)
    return _mixed(index.to(torch.int64) * signed(GOLDEN) + origin)


def start_word(data_seed: int, epoch: int) -> int:
    """The unsigned 64-bit word from which every sample of an epoch draws."""
    return _mixed_word(_mixed_word(data_seed * GOLDEN & WORD) + epoch * GOLDEN & WORD)


def column_word(column: int) -> int:
    """What a sample's word grows by for one of its random numbers."""
    return (column + 1) * GOLDEN & WORD


def bits(samples: torch.Tensor, n: int) -> torch.Tensor:
    """The first n columns of every sample, as whole numbers of 24 bits."""
    column = torch.arange(1, n + 1, dtype=torch.int64, device=samples.device) * signed(GOLDEN)
    return _shifted(_mixed(samples[..., None] + column), 64 - FLOAT_BITS)


def lanes(samples: torch.Tensor, n: int) -> torch.Tensor:
    """The first n columns of every sample, as signed numbers of 16 bits: four columns share a word."""
    count = -(-n * LANE_BITS // 64)
    column = torch.arange(1, count + 1, dtype=torch.int64, device=samples.device) * signed(GOLDEN)
    words = _mixed(samples[..., None] + column)
    if words.device.type == "cpu" and not torch._C._functorch.is_batchedtensor(words):
        return words.view(torch.int16)[..., :n]  # little-endian, as every processor that torch is built for
    left = torch.arange(64 - LANE_BITS, -1, -LANE_BITS, device=samples.device)
    return (words[..., None] << left >> 64 - LANE_BITS).flatten(-2)[..., :n]


def _mixed(word: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser; torch's int64 products wrap as unsigned ones do."""
    for shift, factor in MIX:
        word = (word ^ _shifted(word, shift)).mul_(signed(factor))
    return word.bitwise_xor_(_shifted(word, 31))


def _mixed_word(word: int) -> int:
    """The same on a Python number: the seed costs no kernel."""
    for shift, factor in MIX:
        word = (word ^ word >> shift) * factor & WORD
    return word ^ word >> 31


def _shifted(word: torch.Tensor, bits: int) -> torch.Tensor:
    """The logical right shift; torch's own copies the sign."""
    return (word >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def signed(word: int) -> int:
    """The int64 with these 64 bits."""
    return word - (1 << 64) if word >> 63 else word
