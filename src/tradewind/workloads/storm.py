"""Storms: will a thunderstorm seen now rotate strongly within the hour?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tradewind.errors import DataError, nearest
from tradewind.pack import Config
from tradewind.workloads.contract import Data, Hyperparameter, Split

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

SOURCES = ("synthetic",)


class Storm:
    """The storm network of Basalyga et al. on reflectivity and wind, 32×32."""

    metric = "validation_auc"
    defaults: Mapping[str, Hyperparameter] = {
        "filters": Hyperparameter([8, 16, 32], list, help="width of each convolution"),
        "kernel": Hyperparameter(5, int, choices=(1, 3, 5, 7, 9), help="side of the convolutions' kernels"),
        "activation": Hyperparameter("relu", str, choices=("relu", "tanh", "gelu", "elu")),
        "pool": Hyperparameter("average", str, choices=("average", "max"), help="between convolutions"),
        "dropout": Hyperparameter(0.0, float, low=0.0, high=0.95, help="share, before the dense layer"),
        "positive_weight": Hyperparameter(1.0, float, low=0.0, help="of rotating storms, in the loss"),
    }

    def __init__(
        self,
        source: str = "synthetic",
        train: int = 8192,
        validation: int = 1024,
        test: int = 2048,
        seed: int = 0,
    ) -> None:
        if source not in SOURCES:
            raise DataError(f"source: found {source!r}; {nearest(str(source), SOURCES)}")
        lowest = {"train": (train, 1), "validation": (validation, 0), "test": (test, 1), "seed": (seed, 0)}
        for name, (value, low) in lowest.items():
            if type(value) is not int or value < low:
                raise DataError(f"{name}: found {value!r}; allowed: whole numbers from {low}")
        self.train, self.validation, self.test, self.seed = train, validation, test, seed

    def data(self, config: Config) -> Data:
        """The storms, split by `data_seed` and standardised by what the training part shows."""
        import numpy as np

        from tradewind.workloads.storms import storms_cached

        count = self.train + self.validation + self.test
        inputs, labels = storms_cached(count, self.seed)
        order = np.random.default_rng(config["data_seed"]).permutation(count)
        # sorted, so that the mapped file is read once from start to end
        parts = [np.sort(part) for part in np.split(order, [self.train, self.train + self.validation])]
        gathered = [inputs[part] for part in parts]
        offset, scale = _standard(gathered[0])
        for part in gathered:  # in place: the gathered copy is the only one
            part -= offset
            part /= scale
        # channels first by stride alone: torch sees its channels_last layout without a copy
        train, validation, test = (
            Split(np.moveaxis(part, 3, 1), np.array(labels[rows])) for part, rows in zip(gathered, parts, strict=True)
        )
        return Data(train, validation if self.validation else None, test, vectors=((1, 2),))

    def model(self, config: Config) -> nn.Module:
        """The network; its options are the hyperparameters of the same names."""
        from tradewind.workloads.networks import StormNetwork

        return StormNetwork(
            filters=config["filters"],
            kernel=config["kernel"],
            activation=config["activation"],
            pool=config["pool"],
            dropout=config["dropout"],
        )

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean cross-entropy, rotating storms counting `positive_weight` times."""
        from torch.nn import functional

        # filled on the device: a number copied there could not be captured in a CUDA graph
        weight = outputs.new_full((), config["positive_weight"])
        return functional.binary_cross_entropy_with_logits(outputs, targets, pos_weight=weight)

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Accuracy, AUC, Brier score, POD, FAR and CSI."""
        from tradewind.workloads.scores import binary_scores

        return binary_scores(outputs, targets)


def _standard(train: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The offset and scale of each channel, as whole patches.

    u and v share one scale and keep their zero: with an offset, or a scale each, a vector that turns with
    its image would change its speed, and a rotated storm would be none that the wind can make.
    """
    import numpy as np

    # storm upon storm, patch by patch: 4 × as fast as numpy's loops over an axis of 3 channels
    mean = train.mean(axis=0, dtype=np.float64).mean(axis=(0, 1))
    power = np.einsum("n...,n...->...", train, train, dtype=np.float64).mean(axis=(0, 1)) / len(train)
    echo, wind = np.sqrt(power[0] - mean[0] ** 2), np.sqrt(power[1:].mean())
    offset, scale = np.array([[mean[0], 0.0, 0.0], [echo, wind, wind]], np.float32)
    patch = np.ones(train.shape[1:], np.float32)
    return patch * offset, patch * scale
