"""Dropout by counter: whether an element is dropped depends on (seed, epoch, sample, layer, element) alone.

So a network trains the same alone, in a pack, or on several devices. Before training, the dropout layers of a
model are replaced by these, which draw from keys that the training loop sets for every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from tradewind.noise import FLOAT_BITS, WORD, bits, sample_words, signed, start_word

LAYER = 0x632BE59BD9B4E019  # odd: layers of a network, and a layer of several networks, draw apart
KINDS: dict[type[nn.Module], int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}


class KeyedDropout(nn.Module):
    """As nn.Dropout, or with `trailing` > 0 as those that drop whole channels of so many trailing dimensions."""

    def __init__(self, rate: float, layer: int, trailing: int) -> None:
        super().__init__()
        self.rate: float | torch.Tensor = rate
        self.trailing, self._offset = trailing, signed(LAYER * layer & WORD)
        self.samples: torch.Tensor | None = None  # a word for every sample of the batch
        self.seed: int | torch.Tensor = 0  # a word for the network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The inputs, some of them dropped and the others scaled up, while training."""
        if not self.training or self.samples is None:
            return inputs
        shape = inputs.shape[1 : inputs.ndim - self.trailing]
        start = self.seed + self._offset  # a tensor of words wraps by itself
        start = start if isinstance(start, torch.Tensor) else start & WORD
        drawn = bits(sample_words(start, self.samples), shape.numel())
        keep = (drawn >= self.rate * 2.0**FLOAT_BITS).view(len(inputs), *shape, *[1] * self.trailing)
        return inputs * (keep / (1.0 - self.rate)).to(inputs.dtype)


def keyed(model: nn.Module, seed: int) -> list[KeyedDropout]:
    """Replace the dropout layers of a network, and return those that have taken their place, in order."""
    found: list[KeyedDropout] = []
    for parent in model.modules():
        for name, child in list(parent.named_children()):
            if isinstance(child, KeyedDropout):
                found.append(child)
            elif type(child) in KINDS:
                layer = KeyedDropout(float(child.p), len(found), KINDS[type(child)])  # type: ignore[arg-type]
                layer.seed = seed_word(seed)
                layer.train(child.training)
                setattr(parent, name, layer)
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
            layer.samples = samples
