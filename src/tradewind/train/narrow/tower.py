"""The front of a network, convolution upon convolution, for all networks of a stack at once on a shared batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tradewind.train.narrow import kernels
from tradewind.train.narrow.layout import Layer, layers_of, power_of_2, round_up, tile_of, window_of

SPREAD_CELLS = 64
UNFOLD_CELLS = 32
PROGRAMS = 264  # two for every multiprocessor


class Room:
    """Memory of a tower for M networks and B samples: written anew in every step; frames stay zero."""

    def __init__(self, layers: Sequence[Layer], m: int, b: int, like: torch.Tensor, keeps: bool) -> None:
        low, upper = layers[0], layers[1:]

        def zeros(*shape: int) -> torch.Tensor:
            return like.new_zeros(shape)

        self.inputs = [zeros(b, *low.grid, window_of(low, m)), *(zeros(m, b, *a.frame, a.c) for a in upper)]
        self.wide = [zeros(m, b, *low.grid, 4, low.s), *(zeros(m, b, *a.frame, a.s) for a in upper)] if keeps else []
        self.bits = [like.new_empty((m, b, *a.grid, a.outputs), dtype=torch.uint8) for a in layers if keeps]
        self.uses = 0


@dataclass(frozen=True)
class Kept:
    """What the way back needs of the way forth."""

    layers: Sequence[Layer]
    room: Room
    use: int
    backs: Sequence[torch.Tensor | None]  # weights for the way back


class Tower:
    """Convolutions with bias and ReLU, each with a pool or without.

    What a step needs is kept from one to the next, so that a graph can hold it: a way forth that keeps must be
    followed by its way back before the next.
    """

    def __init__(self, pools: Sequence[bool], dtype: torch.dtype = torch.bfloat16) -> None:
        self._pools, self._dtype = pools, dtype
        self._product = "ieee" if dtype == torch.float32 else "tf32"  # of no account for shorter types
        self._rooms: dict[tuple[int, ...], Room] = {}

    def forward(self, x: torch.Tensor, params: Sequence[torch.Tensor], keeps: bool) -> tuple[torch.Tensor, Kept]:
        """Outputs (networks, samples, channels, height, width) for inputs (samples, channels, height, width).

        Parameters are weight and bias of each layer in turn, (networks, …).
        """
        layers = layers_of(x.shape[2], x.shape[3], [weight.shape[1:] for weight in params[::2]], self._pools)
        m, b, last = len(params[0]), len(x), layers[-1]
        room = self._room(layers, m, x, keeps)
        self._unfold(layers[0], x, room.inputs[0])
        out = x.new_empty((m, b, last.outputs, *last.size), dtype=self._dtype)
        backs: list[torch.Tensor | None] = []
        for number, layer in enumerate(layers):
            forth, back = self._packed(layer, params[2 * number], keeps)
            backs.append(back)
            y = out.permute(0, 1, 3, 4, 2)
            if layer is not last:
                edge = layers[number + 1].side // 2
                y = room.inputs[number + 1][:, :, edge:, edge:]
            bias = params[2 * number + 1].contiguous()
            self._convolve(layer, room.inputs[number], forth, bias, y, room.bits[number] if keeps else None)
        return out, Kept(layers, room, room.uses, backs)

    def backward(self, gradient: torch.Tensor, kept: Kept) -> list[torch.Tensor]:
        """The gradients of all parameters."""
        assert kept.room.uses == kept.use, "a way back for every way forth, before the next"
        m, b = gradient.shape[:2]
        gradient = gradient.permute(0, 1, 3, 4, 2)
        found: list[torch.Tensor] = []
        for number in reversed(range(len(kept.layers))):
            layer, back = kept.layers[number], kept.backs[number]
            found = [*self._weigh(layer, number, kept.room, gradient), *found]
            if back is not None:
                gradient = gradient.new_empty((m, b, layer.height, layer.width, layer.inputs))
                self._back(layer, kept.room.wide[number], back, gradient)
        return found

    def _room(self, layers: Sequence[Layer], m: int, x: torch.Tensor, keeps: bool) -> Room:
        like = x.new_empty(0, dtype=self._dtype)
        if not keeps:
            return Room(layers, m, len(x), like, keeps)
        for key in [key for key in self._rooms if key[0] != m]:  # of a pack that has shrunk since
            del self._rooms[key]
        key = (m, *x.shape)
        if key not in self._rooms:
            self._rooms[key] = Room(layers, m, len(x), like, keeps)
        self._rooms[key].uses += 1
        return self._rooms[key]

    def _packed(self, layer: Layer, weight: torch.Tensor, keeps: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        m, block = len(weight), 1024
        weight = weight if weight[0].is_contiguous() else weight.contiguous()
        np, cp = power_of_2(layer.outputs), power_of_2(layer.inputs)
        kp, kb = window_of(layer, m), round_up(layer.kb, tile_of("back", layer, m).window)
        forth = weight.new_empty((m, kp, 4 * np), dtype=self._dtype)
        back = weight.new_empty((m, kb, 4 * cp), dtype=self._dtype) if keeps and not layer.first else None
        most = 4 * max(kp * np, kb * cp if back is not None else 0)
        kernels.pack[-(-most // block), m](
            weight, forth, forth if back is None else back, weight.stride(0), layer.inputs, layer.outputs,
            layer.side, layer.c, np, kp, layer.s, cp, kb, back is not None, block,
        )  # fmt: skip
        return forth, back

    def _convolve(
        self, layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, y: torch.Tensor,
        bits: torch.Tensor | None,
    ) -> None:  # fmt: skip
        m, b = y.shape[:2]
        tile, np, cells = tile_of("forth", layer, m), power_of_2(layer.outputs), b * math.prod(layer.grid)
        group = tile.networks(layer, m)
        kernels.convolve[-(-cells // tile.cells), -(-m // group)](
            x, weights, bias, y, y if bits is None else bits, m, cells, 0 if layer.first else x.stride(0),
            *y.stride(), *layer.grid, layer.height, layer.width, layer.c, layer.outputs, np, layer.side, layer.k,
            weights.shape[1], layer.pool, True, bits is not None, layer.first, group, tile.cells,
            min(tile.window, weights.shape[1]), self._product,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def _back(self, layer: Layer, wide: torch.Tensor, weights: torch.Tensor, lower: torch.Tensor) -> None:
        m, b = lower.shape[:2]
        tile, grid = tile_of("back", layer, m), (-(-layer.height // 2), -(-layer.width // 2))
        cells = b * math.prod(grid)
        kernels.convolve[-(-cells // tile.cells), m](
            wide, weights, weights, lower, lower, m, cells, wide.stride(0), *lower.stride(), *grid,
            layer.height, layer.width, layer.s, layer.inputs, power_of_2(layer.inputs), layer.side, layer.kb,
            weights.shape[1], False, False, False, False, 1, tile.cells, tile.window, self._product,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def _weigh(self, layer: Layer, number: int, room: Room, gradient: torch.Tensor) -> list[torch.Tensor]:
        m, b = gradient.shape[:2]
        tile, np, cells = tile_of("weigh", layer, m), power_of_2(layer.outputs), b * math.prod(layer.grid)
        x, wide, bits = room.inputs[number], room.wide[number], room.bits[number]
        tiles = -(-cells // SPREAD_CELLS)
        biases = gradient.new_empty((tiles, m, np), dtype=torch.float32)
        kernels.spread[tiles, m](
            gradient, bits, wide, biases, m, cells, *gradient.stride(), wide.stride(0), *layer.grid,
            layer.height, layer.width, layer.outputs, np, layer.side, layer.s, layer.pool, layer.first, SPREAD_CELLS,
        )  # fmt: skip
        group, kp = tile.networks(layer, m), x.shape[-1] if layer.first else round_up(layer.k, tile.window)
        window = min(tile.window, kp)
        chunks, groups = kp // window, -(-m // group)
        splits = max(1, min(cells // tile.cells, -(-PROGRAMS // (chunks * groups))))
        per_split = round_up(-(-cells // splits), tile.cells)
        splits = -(-cells // per_split)
        parts = gradient.new_empty((splits, m, kp, 4 * np), dtype=torch.float32)
        kernels.weigh[splits, chunks, groups](
            x, wide, parts, m, cells, per_split, 0 if layer.first else x.stride(0), wide.stride(0), *layer.grid,
            layer.height, layer.width, layer.c, layer.outputs, np, layer.side, layer.k, kp, layer.s, layer.first,
            group, tile.cells, window, self._product, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
        size, block = layer.outputs * layer.inputs * layer.side**2, 32 if splits > 8 else 256
        out = gradient.new_empty((m, size + layer.outputs), dtype=torch.float32)
        kernels.gather[1 + -(-size // block), m](
            parts, biases, out, splits, tiles, m, layer.inputs, layer.outputs, layer.side, layer.c, np, kp, block,
            min(64, power_of_2(splits)),
        )  # fmt: skip
        return [out[:, :size].view(m, layer.outputs, layer.inputs, layer.side, layer.side), out[:, size:]]

    def _unfold(self, layer: Layer, x: torch.Tensor, windows: torch.Tensor) -> None:
        cells = len(x) * math.prod(layer.grid)
        kernels.unfold[-(-cells // UNFOLD_CELLS),](
            x, windows, cells, *x.stride(), *layer.grid, layer.height, layer.width, layer.c, layer.side,
            windows.shape[-1], UNFOLD_CELLS,
        )  # fmt: skip
