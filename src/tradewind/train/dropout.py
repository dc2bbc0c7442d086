"""Dropout by counter: whether an element is dropped depends on (seed, epoch, sample, layer, element) alone.

So a network trains the same alone, in a pack, or on several devices. Before training, the dropout layers of a
model are replaced by these, which draw from keys that the training loop sets for every batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tradewind.noise import FLOAT_BITS, WORD, bits, sample_words, signed, start_word

LAYER = 0x632BE59BD9B4E019  # odd: layers of a network, and a layer of several networks, draw apart
CALL = 0xD1342543DE82EF95  # odd: every use of a layer in a step draws apart
KINDS: dict[type[nn.Module], int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}


class KeyedDropout(nn.Module):
    """As nn.Dropout, or with `trailing` > 0 as those that drop whole channels of so many trailing dimensions."""

    def __init__(self, rate: float, layer: int, trailing: int) -> None:
        super().__init__()
        self.rate: float | torch.Tensor = rate
        self.trailing, self._offset = trailing, LAYER * layer & WORD
        self.calls = 0  # in this step
        self.samples: torch.Tensor | None = None  # a word for every sample of the batch
        self.seed: int | torch.Tensor = 0  # a word for the network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The inputs, some of them dropped and the others scaled up, while training."""
        if not self.training or self.samples is None:
            return inputs
        trailing = max(0, min(self.trailing, inputs.ndim - 2))  # as torch, which drops elements of dense layers
        shape = inputs.shape[1 : inputs.ndim - trailing]
        start = self.seed + signed(self._offset + CALL * self.calls & WORD)  # a tensor of words wraps by itself
        start = start if isinstance(start, torch.Tensor) else start & WORD
        self.calls += 1
        samples = self.samples
        if len(samples) != len(inputs):  # rows that are no samples: by their place in the batch
            samples = sample_words(samples[0], torch.arange(len(inputs), device=inputs.device))
        least, scale = coin(self.rate)
        keep = (bits(sample_words(start, samples), shape.numel()) >= least).view(len(inputs), *shape, *[1] * trailing)
        scale = scale.to(inputs.dtype) if isinstance(scale, torch.Tensor) else scale
        kept: torch.Tensor = inputs * (keep.to(inputs.dtype) * scale)
        return kept


def coin(rate: float | torch.Tensor) -> tuple[Any, Any]:
    """The least of 24 bits that is kept, a whole number as no float32 rounds it, and the scale of what is kept."""
    if isinstance(rate, torch.Tensor):
        rate = rate.double()
        return (rate * 2.0**FLOAT_BITS).ceil().long(), torch.where(rate < 1.0, 1.0 / (1.0 - rate), 0.0)
    return math.ceil(rate * 2.0**FLOAT_BITS), 1.0 / (1.0 - rate) if rate < 1.0 else 0.0


def keyed(model: nn.Module, seed: int) -> list[KeyedDropout]:
    """Replace the dropout layers of a network, and return those that have taken their place, in order."""
    found: list[KeyedDropout] = []
    taken: dict[nn.Module, KeyedDropout] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children() leaves out a second name
            if child is None:
                continue
            if isinstance(child, KeyedDropout):
                if child not in found:
                    found.append(child)
            elif child in taken:
                setattr(parent, name, taken[child])
            elif type(child) in KINDS:
                layer = KeyedDropout(float(child.p), len(found), KINDS[type(child)])  # type: ignore[arg-type]
                layer.seed = seed_word(seed)
                layer.train(child.training)
                setattr(parent, name, layer)
                taken[child] = layer
                found.append(layer)
    return found


def seed_word(seed: int) -> int:
    """The word of a network, from which all its dropout layers draw."""
    return signed(start_word(seed, 0))


def set_samples(layers: Sequence[KeyedDropout], words: Callable[[], torch.Tensor]) -> None:
    """Tell the layers which samples come next; the words are made only where there are layers."""
    if layers:
        samples = words()
        for layer in layers:
            layer.samples, layer.calls = samples, 0
