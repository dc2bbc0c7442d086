"""The front of a network on a CPU: what `tower` does, in float32, network by network and image by image."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from tradewind.train.narrow import cpu_kernels as kernels
from tradewind.train.narrow.layout import Layer, layers_of, round_up

BLOCK = 128  # images at a time where nothing is kept

Part = Callable[[slice, int], None]


class Room:
    """Memory of a tower for so many images, written anew in every step; frames stay zero."""

    def __init__(self, layers: Sequence[Layer], images: int, networks: int) -> None:
        self.layers, self.images, self.uses = layers, images, 0
        first = _frames(layers[0], images, layers[0].inputs)  # all networks see the same
        self._frames = [[first, *(_frames(a, images, a.inputs) for a in layers[1:])] for _ in range(networks)]
        self._sums = [[torch.empty(images, _sums(layer)) for layer in layers] for _ in range(networks)]
        self._slopes = [_frames(layer, images, layer.outputs) for layer in layers]

    def take(self, x: torch.Tensor) -> None:
        """Put the inputs (images, height, width, channels) into their frames."""
        low = self.layers[0]

        def part(own: slice, _: int) -> None:
            size = low.height, low.width, _wide(low), low.inputs, low.side // 2
            kernels.frame(_flat(x[own]), _flat(self._frames[0][0][own.start :]), own.stop - own.start, *size)

        _by_threads(self.images, part)

    def forth(self, number: int, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], out: Any) -> None:
        """The outputs (images, height, width, channels) of a network."""
        for k, layer in enumerate(self.layers):
            last = k + 1 == len(self.layers)
            target = out.flatten(1) if last else self._frames[number][k + 1]
            edge = 0 if last else self.layers[k + 1].side // 2
            wide = layer.size[1] if last else _wide(self.layers[k + 1])
            self._layer(number, k, weights[k], biases[k], target, (wide + 2 * edge) * layer.outputs, edge)

    def _layer(
        self, number: int, k: int, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor, row: int, edge: int
    ) -> None:
        layer, frames, sums = self.layers[k], self._frames[number][k], self._sums[number][k]
        height, width, wide, outputs = layer.height, layer.width, _wide(layer), layer.outputs
        factors, constants = _flat(weight), _flat(bias)

        def part(own: slice, _: int) -> None:
            count, y = own.stop - own.start, _flat(sums[own])
            shape = count, height, wide, layer.inputs, outputs, layer.side
            kernels.convolve(_flat(frames[own.start :]), factors, constants, y, *shape)
            kernels.activate(
                y, _flat(target[own.start :]), count, height, width, wide, outputs, int(layer.pool), row, edge
            )

        _by_threads(self.images, part)

    def back(self, number: int, weights: Sequence[torch.Tensor], gradient: torch.Tensor) -> list[torch.Tensor]:
        """The gradients of a network's parameters, of that of its outputs (images, height, width, channels)."""
        found: list[torch.Tensor] = []
        line = self.layers[-1].size[1] * self.layers[-1].outputs
        for k in reversed(range(len(self.layers))):
            layer = self.layers[k]
            lower = torch.empty(self.images, layer.height * _wide(layer) * layer.inputs) if k else gradient
            found = [*self._back(number, k, weights[k], gradient.flatten(1), line, lower), *found]
            gradient, line = lower, _wide(layer) * layer.inputs
        return found

    def _back(
        self, number: int, k: int, weight: torch.Tensor, gradient: torch.Tensor, line: int, lower: torch.Tensor
    ) -> list[torch.Tensor]:
        layer, frames, sums, slopes = self.layers[k], self._frames[number][k], self._sums[number][k], self._slopes[k]
        height, width, wide, inputs, outputs = layer.height, layer.width, _wide(layer), layer.inputs, layer.outputs
        run = layer.side * inputs
        reach = kernels.reach_of(run, outputs)
        threads = torch.get_num_threads()
        weighed, biases = torch.zeros(threads, layer.side, reach, outputs), torch.zeros(threads, outputs)
        factors, nothing = _flat(weight), _flat(torch.zeros(inputs))

        def part(own: slice, thread: int) -> None:
            count, x, g = own.stop - own.start, _flat(frames[own.start :]), _flat(slopes[own.start :])
            kernels.spread(
                _flat(gradient[own]), _flat(sums[own]), g, _flat(biases[thread]), count, height, width, wide, outputs,
                int(layer.pool), line, layer.side // 2,
            )  # fmt: skip
            kernels.weigh(
                x, g, _flat(weighed[thread]), count, height, width, wide, inputs, outputs, layer.side, reach
            )
            if k:
                kernels.convolve(
                    g, factors, nothing, _flat(lower[own]), count, height, wide, outputs, inputs, layer.side
                )

        _by_threads(self.images, part)
        whole = weighed.sum(0)[:, :run].reshape(layer.side, layer.side, inputs, outputs)
        return [whole.permute(3, 2, 0, 1), biases.sum(0)]


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
        for begin in range(0, max(1, count), max(1, count) if keeps else BLOCK):  # a member of a gang may have none
            own = slice(begin, count if keeps else min(begin + BLOCK, count))
            room = self._room(layers, own.stop - begin, m if keeps else 1)
            room.take(images[own])
            for number in range(m):
                mine = [weight[number] for weight in weights], [bias[number] for bias in params[1::2]]
                room.forth(number if keeps else 0, *mine, out[number, own])
        return out.permute(0, 1, 4, 2, 3), Kept(room, room.uses, params[::2]) if keeps else None

    def backward(self, gradient: torch.Tensor, kept: Kept) -> list[torch.Tensor]:
        """The gradients of all parameters."""
        assert kept.room.uses == kept.use, "a way back for every way forth, before the next"
        weights = [weight.flip(3, 4).permute(0, 3, 4, 1, 2).contiguous() for weight in kept.weights]
        slopes = gradient.permute(0, 1, 3, 4, 2).contiguous()
        found = [kept.room.back(k, [weight[k] for weight in weights], own) for k, own in enumerate(slopes)]
        return [torch.stack(each) for each in zip(*found, strict=True)]

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


def _sums(layer: Layer) -> int:
    return layer.height * _wide(layer) * layer.outputs


def _frames(layer: Layer, images: int, channels: int) -> torch.Tensor:
    edges = layer.side - 1
    return torch.zeros(images + 1, (layer.height + edges) * (_wide(layer) + edges) * channels)  # tiles read on a bit


def _flat(tensor: torch.Tensor) -> Any:
    return tensor.detach().reshape(-1).numpy()


def _by_threads(images: int, part: Part) -> None:
    """Equal parts of the images, one for each of torch's threads."""
    threads = torch.get_num_threads()
    if threads == 1:
        part(slice(0, images), 0)
        return
    ends = [images * number // threads for number in range(threads + 1)]
    parts = [slice(begin, end) for begin, end in itertools.pairwise(ends)]
    list(_pool(threads).map(part, parts, range(threads)))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="tradewind-narrow")
