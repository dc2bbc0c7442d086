"""Nodules as mixtures of normal distributions: the encoder of Cunha et al. and its DeepDensity layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tradewind.errors import DataError, WorkloadError, nearest
from tradewind.workloads.networks import ACTIVATIONS

POOLS: dict[str, type[nn.Module]] = {"none": nn.Identity, "average": nn.AvgPool3d, "max": nn.MaxPool3d}
CORRELATIONS = {"positive": (0.0, 1.0), "signed": (-1.0, 2.0)}  # what a sigmoid is moved and stretched to
# densities and squared distances stay below 1e11: float32 holds them, and the gradients of a loss of logarithms
NARROWEST = 1e-3  # a spread, where the cube is 2 wide; what is narrower falls between the voxels anyway
STRONGEST = 0.99  # a partial correlation
# voxels × components drawn at once: few megabytes on a CPU, half a gigabyte on a GPU, whatever the batch
_PIECE = {"cpu": 1 << 20, "cuda": 1 << 27}
NEIGHBOURS = 8  # of a nodule, towards which new ones like it lie


def output_count(dimensions: int, components: int) -> int:
    """How many numbers describe a mixture: weights, means, spreads and correlations."""
    return (dimensions**2 + 3 * dimensions + 2) * components // 2


class Mixture(NamedTuple):
    """K normal distributions in d dimensions for each of n samples.

    Correlations are partial ones: that of axes i and j once the axes before j are known, in the order 10, 20, 21, ….
    Any numbers between −1 and 1 then make a positive definite matrix, as plain correlations in 3 dimensions do not.
    """

    log_weights: Tensor  # (n, K)
    means: Tensor  # (n, K, d)
    spreads: Tensor  # (n, K, d)
    correlations: Tensor  # (n, K, d(d−1)/2)

    def factors(self) -> list[list[Tensor]]:
        """The Cholesky factor of every correlation matrix, row by row, elements (n, K)."""
        rows, start = [], 0
        for axis in range(self.means.shape[2]):
            left, row = torch.ones_like(self.log_weights), []
            for place in range(start, start + axis):
                partial = self.correlations[..., place]
                row.append(left * partial)
                left = left * torch.sqrt((1.0 - partial) * (1.0 + partial))
            rows.append([*row, left])
            start += axis
        return rows

    def covariances(self) -> Tensor:
        """The covariance matrices, (n, K, d, d)."""
        size = self.means.shape[2]
        zero = torch.zeros_like(self.log_weights)
        rows = [torch.stack([*row, *[zero] * (size - len(row))], dim=-1) for row in self.factors()]
        factor = self.spreads[..., None] * torch.stack(rows, dim=-2)
        return factor @ factor.mT


class DeepDensity(nn.Module):
    """Draws mixtures on the voxels of a cube whose axes run from −1 to 1."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, mixture: Mixture) -> Tensor:
        """The density at every voxel, (n, side, …)."""
        count, components, size = mixture.means.shape
        piece = max(1, _PIECE.get(mixture.means.device.type, _PIECE["cuda"]) // (components * self.side**size))
        rows = [slice(start, start + piece) for start in range(0, count, piece)]
        return torch.cat([self._drawn(Mixture(*(part[row] for part in mixture))) for row in rows])

    def _drawn(self, mixture: Mixture) -> Tensor:
        """Solve for the independent coordinates axis by axis: each depends on the axes up to its own alone.

        Only the last one fills the whole cube. Differences are taken before they are squared: the quadratic form
        multiplied out would be a single product, and lose all digits of narrow components.
        """
        count, components, size = mixture.means.shape
        axis = torch.linspace(-1.0, 1.0, self.side, dtype=mixture.means.dtype, device=mixture.means.device)
        exponent, known = mixture.log_weights - 0.5 * size * math.log(2 * math.pi), list[Tensor]()
        exponent = exponent.view(count, components, *[1] * size)
        for number, row in enumerate(mixture.factors()):
            spread = mixture.spreads[..., number] * row[-1]
            own = (axis - mixture.means[..., number, None]) * (math.sqrt(0.5) / spread)[..., None]
            own = own.view(count, components, *[1] * number, self.side, *[1] * (size - number - 1))
            for part, other in zip(row, known, strict=False):
                own = own - _each(part / row[-1], size) * other
            known.append(own)
            exponent = exponent - _each(spread.log(), size) - own.square()
        return exponent.exp().sum(dim=1)


def _each(values: Tensor, axes: int) -> Tensor:
    """A value of every component, ready to meet its voxels."""
    return values.view(*values.shape, *[1] * axes)


class NoduleNetwork(nn.Module):
    """Convolutions without padding, then a dense layer for each kind of parameter; 1,191,220 weights by default."""

    def __init__(
        self,
        filters: Sequence[int] = (32, 32, 32),
        kernels: Sequence[int] = (7, 5, 3),
        components: int = 50,
        side: int = 16,
        *,
        activation: str = "relu",
        pool: str = "none",
        correlations: str = "positive",
    ) -> None:
        super().__init__()
        _check_name("activation", activation, ACTIVATIONS)
        _check_name("pool", pool, POOLS)
        _check_name("correlations", correlations, CORRELATIONS)
        layers, channels = list[nn.Module](), 1
        left = sides(filters, kernels, side, pooled=pool != "none")[-1]
        for position, (width, kernel) in enumerate(zip(filters, kernels, strict=True)):
            if position and pool != "none":
                layers.append(POOLS[pool](2))
            layers += [nn.Conv3d(channels, width, kernel), ACTIVATIONS[activation]()]
            channels = width
        self.encoder = nn.Sequential(*layers, nn.Flatten())
        self.correlations = correlations
        width = channels * left**3
        self.weights = nn.Linear(width, components)
        self.means = nn.Linear(width, 3 * components)
        self.spreads = nn.Linear(width, 3 * components)
        self.partials = nn.Linear(width, 3 * components)
        self.density = DeepDensity(side)
        for layer in self.modules():
            if isinstance(layer, nn.Conv3d | nn.Linear):  # as Keras does, which the paper used
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def mixture(self, inputs: Tensor) -> Mixture:
        """The mixtures that the network sees in nodules (n, 1, side, side, side)."""
        return self.mixture_of(self.encoder(inputs))

    def mixture_of(self, code: Tensor) -> Mixture:
        """The mixtures of codes that the encoder gave, or that were made in their likeness."""
        heads = (self.weights(code), self.means(code), self.spreads(code), self.partials(code))
        return bounded(*heads, self.correlations)

    def forward(self, inputs: Tensor) -> Tensor:
        """The densities, (n, side, side, side)."""
        drawn: Tensor = self.density(self.mixture(inputs))
        return drawn


@torch.no_grad()
def sample(model: NoduleNetwork, nodules: Tensor, count: int, seed: int = 0) -> Tensor:
    """New nodules (count, side, side, side), each between one of those given, (n, 1, side, …), and one like it.

    Between means in the encoder's code: of a code in between the heads give numbers between theirs.
    """
    if count < 1 or len(nodules) < 2:
        raise DataError(f"sample: found count {count} of {len(nodules)} nodules; allowed: 1 or more, of 2 or more")
    codes = torch.cat([model.encoder(nodules[k : k + 256]) for k in range(0, len(nodules), 256)])
    generator = torch.Generator().manual_seed(seed)  # of the CPU: the same nodules on every device
    first = torch.randint(len(codes), (count,), generator=generator).to(codes.device)
    nearest_first = min(NEIGHBOURS + 1, len(codes))  # the nearest of all is the nodule itself
    like = torch.cdist(codes[first], codes).topk(nearest_first, largest=False).indices
    chosen = torch.randint(1, nearest_first, (count, 1), generator=generator).to(codes.device)
    share = torch.rand(count, 1, generator=generator).to(codes)
    between = torch.lerp(codes[first], codes[like.gather(1, chosen)[:, 0]], share)
    drawn: Tensor = model.density(model.mixture_of(between))
    return drawn


def bounded(weights: Tensor, means: Tensor, spreads: Tensor, partials: Tensor, correlations: str) -> Mixture:
    """The mixtures of what the heads give, whatever that is; in half precision it would not be safe."""
    if weights.dtype in (torch.bfloat16, torch.float16):
        weights, means, spreads, partials = weights.float(), means.float(), spreads.float(), partials.float()
    components = weights.shape[1]
    low, width = CORRELATIONS[correlations]
    return Mixture(
        torch.log_softmax(weights, dim=1),
        torch.tanh(means).view(len(means), components, -1),
        (NARROWEST + (1.0 - NARROWEST) * torch.sigmoid(spreads)).view(len(spreads), components, -1),
        (STRONGEST * (low + width * torch.sigmoid(partials))).view(len(partials), components, -1),
    )


def _check_name(name: str, value: str, known: Mapping[str, object]) -> None:
    if value not in known:
        raise WorkloadError(f"{name}: found {value!r}; {nearest(value, known)}")


def sides(filters: Sequence[int], kernels: Sequence[int], side: int, pooled: bool) -> list[int]:
    """The side of the cube after every convolution; raises where there is none left."""
    for name, values in (("filters", filters), ("kernels", kernels)):
        if not values or any(type(value) is not int or value < 1 for value in values):
            raise WorkloadError(f"{name}: found {values!r}; allowed: a list of whole numbers from 1")
    if len(filters) != len(kernels):
        raise WorkloadError(f"kernels: found {len(kernels)} for {len(filters)} filters; allowed: one for each layer")
    found = [side]
    for position, kernel in enumerate(kernels):
        before = found[-1] // 2 if position and pooled else found[-1]
        if kernel > before:
            raise WorkloadError(
                f"kernels: found {list(kernels)}; layer {position + 1} has a kernel of {kernel}, a cube of {before}"
            )
        found.append(before - kernel + 1)
    return found[1:]
