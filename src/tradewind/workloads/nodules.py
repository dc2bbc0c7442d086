"""Nodules: a lung nodule is drawn again as a mixture of normal distributions, so that new ones can be made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tradewind.errors import DataError, nearest
from tradewind.pack import Config, Value
from tradewind.workloads.contract import Data, Hyperparameter, Split, check_counts
from tradewind.workloads.places import data_path

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    Array = np.ndarray[Any, Any]

SOURCES = ("synthetic", "file")
USUAL = (1588, 256, 256)  # to train, validate and test: 2,100, as many as the paper had


def _augment_complaint(value: Value) -> str:
    return "" if value == "none" else f"found {value!r}; allowed: 'none': the target is the nodule as it stands"


class Nodules:
    """The autoencoder of Cunha et al.: the network sees a nodule, and its DeepDensity layer draws it again."""

    metric = "validation_loss"
    defaults: Mapping[str, Hyperparameter] = {
        "side": Hyperparameter(16, int, low=4, high=64, help="of the cubes, in voxels, from the middle of the data"),
        "shrink": Hyperparameter(1, int, low=1, high=4, help="voxels of the data along a side of one of the cube's"),
        "scale": Hyperparameter(
            "mass", str, choices=("mass", "peak"),
            help="each nodule is divided by its mass, so that it is a density as a mixture is, or by its peak",
        ),
        "filters": Hyperparameter([32, 32, 32], list, help="width of each convolution"),
        "kernels": Hyperparameter([7, 5, 3], list, help="side of each convolution's kernels; there is no padding"),
        "pool": Hyperparameter("none", str, choices=("none", "average", "max"), help="between convolutions"),
        "activation": Hyperparameter("relu", str, choices=("relu", "tanh", "gelu", "elu")),
        "components": Hyperparameter(50, int, low=1, help="normal distributions in a mixture"),
        "correlations": Hyperparameter(
            "positive", str, choices=("positive", "signed"), help="a sigmoid as in the paper, or stretched to ± 1"
        ),
        "augment": Hyperparameter("none", str, choices=("none",), refusal=_augment_complaint),
    }  # fmt: skip

    def __init__(
        self,
        source: str = "synthetic",
        path: str = "",
        train: int | None = None,
        validation: int | None = None,
        test: int | None = None,
        seed: int = 0,
    ) -> None:
        if source not in SOURCES:
            raise DataError(f"source: found {source!r}; {nearest(str(source), SOURCES)}")
        check_counts(train, validation, test, seed)
        if (source == "file") != bool(path):
            raise DataError(f"path: found {path!r}; source file needs the path of an .npz file, and no other has one")
        self.source, self.path, self.seed = source, path, seed
        self.train, self.validation, self.test = train, validation, test

    def data(self, config: Config) -> Data:
        """The nodules, split by `data_seed`; what goes in is what should come out."""
        import numpy as np

        cubes, sizes = self._cubes(config["side"] * config["shrink"])
        order = np.random.default_rng(config["data_seed"]).permutation(len(cubes))
        parts = np.split(order[: sum(sizes)], np.cumsum(sizes)[:2])
        # sorted, so that the mapped file is read once from start to end
        gathered = [_shrunk(cubes[np.sort(part)], config["shrink"]) for part in parts]
        scaled = [_scaled(part, config["scale"]) for part in gathered]
        train, validation, test = (Split(part[:, None], part) for part in scaled)
        return Data(train, validation if len(validation) else None, test)

    def _cubes(self, side: int) -> tuple[Array, list[int]]:
        """All cubes, and how many train, validate and test; of a file all train that are not wanted elsewhere."""
        from tradewind.workloads.nodule_shapes import load_nodules, nodules_cached

        wanted = (self.train, self.validation, self.test)
        sizes = [given if given is not None else usual for given, usual in zip(wanted, USUAL, strict=True)]
        if self.source == "synthetic":
            return nodules_cached(sum(sizes), self.seed, side), sizes
        cubes = load_nodules(data_path(self.path), side)
        if self.train is None:
            sizes[0] = max(1, len(cubes) - sizes[1] - sizes[2])
        if sum(sizes) > len(cubes):
            raise DataError(
                f"train, validation, test: found {', '.join(map(str, sizes))}, {sum(sizes)} in all; "
                f"{self.path} has {len(cubes)} nodules"
            )
        return cubes, sizes

    def model(self, config: Config) -> nn.Module:
        """The network; its options are the hyperparameters of the same names."""
        from tradewind.workloads.deep_density import NoduleNetwork

        return NoduleNetwork(
            config["filters"],
            config["kernels"],
            config["components"],
            config["side"],
            activation=config["activation"],
            pool=config["pool"],
            correlations=config["correlations"],
        )

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean squared difference of the logarithms of 1 + density."""
        return (outputs.log1p() - targets.log1p()).square().mean()

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Mean absolute error, and how far bodies overlap: the voxels above half of a nodule's own peak."""
        half = targets.flatten(1).amax(dim=1).view(-1, 1, 1, 1) / 2
        drawn, true = outputs > half, targets > half
        both = (drawn & true).flatten(1).sum(dim=1)
        dice = 2 * both / (drawn.flatten(1).sum(dim=1) + true.flatten(1).sum(dim=1))
        return {"mae": (outputs - targets).abs().mean().item(), "dice": dice.double().mean().item()}


def _shrunk(cubes: Array, factor: int) -> Array:
    """The means of so many voxels along each side."""
    if factor == 1:
        return cubes
    side = cubes.shape[1] // factor
    means: Array = cubes.reshape(len(cubes), side, factor, side, factor, side, factor).mean(axis=(2, 4, 6))
    return means


def _scaled(cubes: Array, scale: str) -> Array:
    """Densities over a cube from −1 to 1, or values up to 1."""
    import numpy as np

    if scale == "peak":
        divisor = cubes.max(axis=(1, 2, 3), keepdims=True)
    else:
        volume = (2 / (cubes.shape[1] - 1)) ** 3
        divisor = cubes.sum(axis=(1, 2, 3), keepdims=True, dtype=np.float64) * volume
    scaled: Array = (cubes / divisor).astype(np.float32, copy=False)
    return scaled
