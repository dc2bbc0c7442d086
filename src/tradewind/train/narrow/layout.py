"""How layers lie in memory, and which piece of them one program of a kernel does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SHARED_BYTES = 200_000  # of a multiprocessor, with some left for what a kernel needs besides


def round_up(n: int, step: int) -> int:
    """The least multiple of a step that is not below n."""
    return -(-n // step) * step


def power_of_2(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


@dataclass(frozen=True)
class Layer:
    """One convolution with bias and ReLU, and perhaps a 2×2 average pool, on images of a size."""

    inputs: int
    outputs: int
    side: int  # of the window
    pool: bool
    height: int
    width: int
    first: bool

    @property
    def c(self) -> int:
        """Channels of the input as it lies in memory."""
        return self.inputs if self.first else round_up(self.inputs, 8)

    @property
    def k(self) -> int:
        """Length of the window of a cell as it lies in memory."""
        return (self.side + 1) ** 2 * self.c

    @property
    def s(self) -> int:
        """Channels of the spread gradient as it lies in memory."""
        return round_up(self.outputs, 8)

    @property
    def kb(self) -> int:
        """Length of a window of the spread gradient."""
        return (self.side + 1) ** 2 * self.s

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the output."""
        return (self.height // 2, self.width // 2) if self.pool else (self.height, self.width)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of cells; a pool leaves out an odd line."""
        return self.size if self.pool else (-(-self.height // 2), -(-self.width // 2))

    @property
    def frame(self) -> tuple[int, int]:
        """Height and width of the input in its frame."""
        return round_up(self.height, 2) + self.side - 1, round_up(self.width, 2) + self.side - 1


@dataclass(frozen=True)
class Tile:
    """What one program of a kernel does: cells × window, for so many columns at the most."""

    cells: int = 128
    window: int = 32
    columns: int = 64  # where all networks see the same inputs, several share a program
    warps: int = 4
    stages: int = 3

    def networks(self, layer: Layer, m: int) -> int:
        """How many networks share a program."""
        return min(power_of_2(m), max(1, self.columns // (4 * power_of_2(layer.outputs)))) if layer.first else 1

    def within(self, values: int) -> Tile:
        """With as many stages as fit into shared memory, when one holds so many values of up to 4 bytes."""
        return replace(self, stages=max(1, min(self.stages, SHARED_BYTES // (4 * values))))


def tile_of(kind: str, layer: Layer, m: int) -> Tile:
    """The tile of a kernel: of those tried on an H200 the best, or within a few per cent of it."""
    if kind == "weigh":
        tile = Tile(32, 128, 64, 4, 4) if layer.first else Tile(64, 64, 64, 4, 3)
        columns = 4 * power_of_2(layer.outputs) * tile.networks(layer, m)
        return tile.within(tile.cells * (tile.window + columns))
    length = 4 * layer.c if kind == "forth" else 2 * layer.s
    window = 32 if layer.first else min(64, power_of_2(length))
    tile = Tile(128 if m > 2 and (window < 64 or kind == "back") else 64, window, 128, 4, 4)
    columns = 4 * power_of_2(layer.outputs if kind == "forth" else layer.inputs) * tile.networks(layer, m)
    return tile.within(window * (tile.cells + columns))


def window_of(layer: Layer, m: int) -> int:
    """The length of a window as products take it."""
    step = tile_of("forth", layer, m).window
    return power_of_2(max(layer.k, 16)) if layer.first else round_up(layer.k, step)


def layers_of(height: int, width: int, weights: Sequence[Sequence[int]], pools: Sequence[bool]) -> list[Layer]:
    """The layers for images of a size and weights of shapes (outputs, inputs, side, side)."""
    found: list[Layer] = []
    for weight, pool in zip(weights, pools, strict=True):
        layer = Layer(weight[1], weight[0], weight[2], pool, height, width, not found)
        found.append(layer)
        height, width = layer.size
    return found
