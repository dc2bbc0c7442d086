"""Dropout by counter: what is dropped depends on (seed, epoch, layer, place in the epoch's order) alone.

So a network trains the same alone, in a pack, on several devices and after a resume. Before training, the dropout
layers of a model are replaced by these. The training loop tells them the places of every batch, and they draw for
many batches at once, which costs less than `nn.Dropout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tradewind.noise import LANE_BITS, WORD, lanes, sample_words, signed, start_word

LAYER = 0x632BE59BD9B4E019  # odd: layers of a network, and a layer of several networks, draw apart
CALL = 0xD1342543DE82EF95  # odd: every use of a layer in a step draws apart
KINDS: dict[type[nn.Module], int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}
PIECE = 1 << 17  # elements drawn at once, which stay in a core's cache
LOWEST, HIGHEST = -(1 << LANE_BITS - 1), (1 << LANE_BITS - 1) - 1


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a batch's samples in the epoch's order: they follow each other."""

    epoch: int | torch.Tensor  # its word
    first: int | torch.Tensor
    count: int
    end: int = 0  # the places up to here come next, and may be drawn now

    def words(self, count: int, device: torch.device) -> torch.Tensor:
        """A word for each of so many places."""
        return sample_words(self.epoch, self.first + torch.arange(count, device=device))


@dataclass(frozen=True, slots=True)
class _Piece:
    """What was drawn for some batches: a tensor for each, of networks, samples and elements."""

    about: tuple[Any, ...]
    first: int
    batch_size: int
    batches: Sequence[torch.Tensor]

    def batch(self, about: tuple[Any, ...], first: int, count: int) -> torch.Tensor | None:
        """The factors of so many places, if they are a batch of this piece."""
        number, rest = divmod(first - self.first, self.batch_size)
        if about != self.about or rest or not 0 <= number < len(self.batches):
            return None
        found = self.batches[number]
        return found if found.shape[-2] == count else None


@dataclass(slots=True)
class _Step:
    """What changes from step to step; an attribute of a module takes a microsecond to set."""

    places: Places | None = None
    calls: int = 0
    pieces: dict[int, _Piece] = field(default_factory=dict)  # by offset


class KeyedDropout(nn.Module):
    """As nn.Dropout, or with `trailing` > 0 as those that drop whole channels of so many trailing dimensions."""

    def __init__(self, rate: float, layer: int, trailing: int) -> None:
        super().__init__()
        self.rate: float | torch.Tensor = rate
        self.trailing, self._offset = trailing, LAYER * layer & WORD
        self.seed: int | torch.Tensor = 0  # a word for the network
        self._step = _Step()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The inputs, some of them dropped and the others scaled up, while training."""
        step = self._step
        if not self.training or step.places is None or (isinstance(self.rate, float) and not self.rate):
            return inputs
        trailing = max(0, min(self.trailing, inputs.ndim - 2))  # as torch, which drops elements of dense layers
        shape = inputs.shape[1 : inputs.ndim - trailing]
        offset = signed(self._offset + CALL * step.calls & WORD)
        step.calls += 1
        factors = self._factors(inputs, step.places, shape.numel(), offset)
        kept: torch.Tensor = inputs * factors.view(len(inputs), *shape, *[1] * trailing)
        return kept

    def _factors(self, inputs: torch.Tensor, places: Places, width: int, offset: int) -> torch.Tensor:
        """What every element of a sample is multiplied by, (samples, elements): 0 or the scale."""
        seed, dtype, device = self.seed, inputs.dtype, inputs.device
        if len(inputs) != places.count:  # rows that are no samples: by their place in the batch
            rows = sample_words(places.words(1, device), torch.arange(len(inputs), device=device))
            return drawn(rows, seed + offset, self.rate, width, dtype)
        if isinstance(places.first, int) and isinstance(places.epoch, int):  # else a graph holds them
            if isinstance(seed, int):
                return self._ahead(places, seed, self.rate, width, offset, inputs)
            if device.type == "cpu":
                found: torch.Tensor = _Ahead.apply(seed, self.rate, self, places, width, offset, inputs.detach())  # type: ignore[no-untyped-call]
                return found
        return drawn(places.words(len(inputs), device), seed + offset, self.rate, width, dtype)

    def _ahead(
        self, places: Places, seed: Any, rate: Any, width: int, offset: int, like: torch.Tensor
    ) -> torch.Tensor:
        """The factors of these places, drawn with those of places that come next. Lists are of several networks."""
        first, count = places.first, places.count
        assert isinstance(first, int), "places in device memory have no piece"
        about = (seed, rate, width, like.dtype, places.epoch)
        piece = self._step.pieces.get(offset)
        found = piece.batch(about, first, count) if piece is not None else None
        if found is None:
            networks, start = 1, seed
            if isinstance(seed, list):
                networks, start = len(seed), torch.tensor(seed)[:, None]
                rate = torch.tensor(rate, dtype=torch.float64)[:, None, None]
            batches = max(1, PIECE // max(1, networks * width * count))
            words = places.words(max(count, min(batches * count, places.end - first)), like.device)
            factors = drawn(words, start + offset, rate, width, like.dtype)
            piece = self._step.pieces[offset] = _Piece(about, first, count, torch.split(factors, count, -2))
            found = piece.batches[0]
        return found


class _Ahead(torch.autograd.Function):
    """The same for networks that vmap has stacked, whose words are plain numbers only here."""

    @staticmethod
    def forward(seed: torch.Tensor, rate: torch.Tensor, layer: KeyedDropout, *about: Any) -> torch.Tensor:
        return layer._ahead(about[0], int(seed), float(rate), *about[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is differentiated."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, seed: torch.Tensor, rate: torch.Tensor, layer: Any, *about: Any) -> Any:
        seeds, rates = (value.expand(info.batch_size).tolist() for value in (seed, rate))
        return layer._ahead(about[0], seeds, rates, *about[1:]), 0


def drawn(samples: torch.Tensor, start: Any, rate: Any, width: int, dtype: torch.dtype) -> torch.Tensor:
    """0 or the scale for every element of some samples, of one network or, with a column of words, of several."""
    least, scale = coin(rate)
    start = start if isinstance(start, torch.Tensor) else start & WORD  # a tensor of words wraps by itself
    factors: torch.Tensor = (lanes(sample_words(start, samples), width) >= least).to(dtype)
    return factors.mul_(scale.to(dtype) if isinstance(scale, torch.Tensor) else scale)


def coin(rate: float | torch.Tensor) -> tuple[Any, Any]:
    """The least signed number of 16 bits that is kept, and the scale of what is kept."""
    if isinstance(rate, torch.Tensor):
        rate = rate.double()
        least = ((rate * 2.0**LANE_BITS).round() + LOWEST).clamp(max=HIGHEST).to(torch.int16)
        return least, torch.where(rate < 1.0, 1.0 / (1.0 - rate), 0.0)
    return min(round(rate * 2.0**LANE_BITS) + LOWEST, HIGHEST), 1.0 / (1.0 - rate) if rate < 1.0 else 0.0


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


def set_places(layers: Sequence[KeyedDropout], places: Places) -> None:
    """Tell the layers which places of the epoch's order come next."""
    for layer in layers:
        layer._step.places, layer._step.calls = places, 0
