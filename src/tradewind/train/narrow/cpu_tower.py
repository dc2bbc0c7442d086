"""The front of a network on a CPU: what `tower` does, in float32, network by network and image by image."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tradewind.train.narrow import cpu_kernels as kernels
from tradewind.train.narrow.layout import Layer, layers_of, round_up

BLOCK = 128  # images at a time where nothing is kept


class Room:
    """Memory of a tower for so many images, written anew in every step; frames stay zero."""

    def __init__(self, layers: Sequence[Layer], images: int, networks: int) -> None:
        self.layers, self.images, self.uses = layers, images, 0
        first = _frames(layers[0], images, layers[0].inputs)  # all networks see the same
        self._frames = [[first, *(_frames(a, images, a.inputs) for a in layers[1:])] for _ in range(networks)]
        self._sums = [[torch.empty(images, _sums(a, a.outputs)) for a in layers] for _ in range(networks)]
        self._slopes = [_frames(layer, images, layer.outputs) for layer in layers]
        self._lower = [torch.empty(images, _sums(layer, layer.inputs)) for layer in layers[1:]]

    def take(self, x: torch.Tensor) -> None:
        """Put the inputs (images, height, width, channels) into their frames."""
        low = self.layers[0]
        size = low.height, low.width, _wide(low), low.inputs, low.side // 2
        kernels.frame(_flat(x), _flat(self._frames[0][0]), self.images, *size)

    def forth(self, number: int, params: Sequence[tuple[Any, Any]], out: torch.Tensor) -> None:
        """The outputs (images, height, width, channels) of a network."""
        for k, (layer, after) in enumerate(itertools.zip_longest(self.layers, self.layers[1:])):
            target = out if after is None else self._frames[number][k + 1]
            edge = 0 if after is None else after.side // 2
            row = (layer.size[1] if after is None else _wide(after) + 2 * edge) * layer.outputs
            x, y = _flat(self._frames[number][k]), _flat(self._sums[number][k])
            shape = self.images, layer.height, _wide(layer), layer.inputs, layer.outputs, layer.side
            kernels.convolve(x, *params[k], y, *shape)
            cells = self.images, layer.height, layer.width, _wide(layer), layer.outputs, int(layer.pool)
            kernels.activate(y, _flat(target), *cells, row, edge)

    def back(
        self, number: int, weights: Sequence[Any], gradient: torch.Tensor, found: Sequence[torch.Tensor]
    ) -> None:
        """Add to what was found of the gradients of a network's parameters, by that of its outputs."""
        slope, line = gradient, gradient.shape[2] * gradient.shape[3]
        for k in reversed(range(len(self.layers))):
            layer, weighed, biases = self.layers[k], found[2 * k], found[2 * k + 1]
            inputs, outputs, side, wide = layer.inputs, layer.outputs, layer.side, _wide(layer)
            x, g, y = _flat(self._frames[number][k]), _flat(self._slopes[k]), _flat(self._sums[number][k])
            cells = self.images, layer.height, layer.width, wide
            kernels.spread(_flat(slope), y, g, _flat(biases), *cells, outputs, int(layer.pool), line, side // 2)
            kernels.weigh(x, g, _flat(weighed), *cells, inputs, outputs, side, weighed.shape[1])
            if k:
                slope, line, nothing = self._lower[k - 1], wide * inputs, _flat(torch.zeros(inputs))
                shape = self.images, layer.height, wide, outputs, inputs, side
                kernels.convolve(g, weights[k], nothing, _flat(slope), *shape)


@dataclass(frozen=True)
class Kept:
    """What the way back needs of the way forth."""

    room: Room
    use: int
    weights: Sequence[torch.Tensor]


class CpuTower:
    """Convolutions with bias and ReLU, each with a pool or without."""

    def __init__(self, pools: Sequence[bool]) -> None:
        self._pools = pools
        self._rooms: dict[tuple[int, ...], Room] = {}

    def forward(
        self, x: torch.Tensor, params: Sequence[torch.Tensor], keeps: bool
    ) -> tuple[torch.Tensor, Kept | None]:
        """Outputs (networks, samples, channels, height, width) for inputs (samples, channels, height, width).

        Parameters are weight and bias of each layer in turn, (networks, …).
        """
        layers = layers_of(x.shape[2], x.shape[3], [weight.shape[1:] for weight in params[::2]], self._pools)
        m, count, last = len(params[0]), len(x), layers[-1]
        images, out = x.permute(0, 2, 3, 1).contiguous(), x.new_empty((m, count, *last.size, last.outputs))
        weights = [weight.permute(0, 3, 4, 2, 1).contiguous() for weight in params[::2]]
        pairs = list(zip(weights, params[1::2], strict=True))
        flat = [[(_flat(weight[k]), _flat(bias[k])) for weight, bias in pairs] for k in range(m)]
        for begin in range(0, max(1, count), max(1, count) if keeps else BLOCK):  # a member of a gang may have none
            part = images[begin : count if keeps else begin + BLOCK]
            room = self._room(layers, len(part), m if keeps else 1)
            room.take(part)
            for number, mine in enumerate(flat):
                room.forth(number if keeps else 0, mine, out[number, begin : begin + len(part)])
        return out.permute(0, 1, 4, 2, 3), Kept(room, room.uses, params[::2]) if keeps else None

    def backward(self, gradient: torch.Tensor, kept: Kept) -> list[torch.Tensor]:
        """The gradients of all parameters."""
        room, m = kept.room, len(gradient)
        assert room.uses == kept.use, "a way back for every way forth, before the next"
        weights = [weight.flip(3, 4).permute(0, 3, 4, 1, 2).contiguous() for weight in kept.weights]
        slopes = gradient.permute(0, 1, 3, 4, 2).contiguous()
        sums = [torch.zeros(m, *shape) for layer in room.layers for shape in _weighed(layer)]
        for number in range(m):
            mine = [_flat(weight[number]) for weight in weights], slopes[number], [each[number] for each in sums]
            room.back(number, *mine)
        for k, layer in enumerate(room.layers):
            whole = sums[2 * k][:, :, : layer.side * layer.inputs]
            shape = m, layer.side, layer.side, layer.inputs, layer.outputs
            sums[2 * k] = whole.reshape(shape).permute(0, 4, 3, 1, 2)
        return sums

    def _room(self, layers: Sequence[Layer], images: int, networks: int) -> Room:
        for other in [other for other in self._rooms if other[1] not in (1, networks)]:  # of a pack that has shrunk
            del self._rooms[other]
        key = (images, networks, layers[0].height, layers[0].width)
        if key not in self._rooms:
            self._rooms[key] = Room(layers, images, networks)
        self._rooms[key].uses += 1
        return self._rooms[key]


def _wide(layer: Layer) -> int:
    return round_up(layer.width, kernels.CELLS)


def _sums(layer: Layer, channels: int) -> int:
    return layer.height * _wide(layer) * channels


def _weighed(layer: Layer) -> tuple[tuple[int, ...], ...]:
    """The shapes in which the gradients of weight and bias are summed."""
    reach = kernels.reach_of(layer.side * layer.inputs, layer.outputs)
    return (layer.side, reach, layer.outputs), (layer.outputs,)


def _frames(layer: Layer, images: int, channels: int) -> torch.Tensor:
    edges = layer.side - 1
    return torch.zeros(images + 1, (layer.height + edges) * (_wide(layer) + edges) * channels)  # tiles read on a bit


def _flat(tensor: torch.Tensor) -> Any:
    return tensor.detach().reshape(-1).numpy()
