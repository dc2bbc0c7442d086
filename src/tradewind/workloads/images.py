"""Images: which class is in a small picture?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tradewind.errors import DataError, nearest
from tradewind.pack import Config
from tradewind.workloads.contract import Data, Hyperparameter, Split
from tradewind.workloads.places import data_path

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from tradewind.workloads import image_files

    Array = np.ndarray[Any, Any]

SOURCES = ("synthetic", "file")


class Images:
    """Photographs in classes, as in Nelson's laboratory, on a backbone that is fine-tuned or frozen.

    What a source marks as test images is the test; otherwise it is a share of all, drawn by `data_seed`. Of the
    others, a share validates. Colours are standardised by what the training part shows, channel by channel.
    """

    metric = "validation_accuracy"
    defaults: Mapping[str, Hyperparameter] = {
        "network": Hyperparameter("small", str, choices=("small", "residual"), help="the backbone"),
        "width": Hyperparameter(32, int, low=1, help="channels of its first layer; later ones have 2 and 4 times"),
        "blocks": Hyperparameter(2, int, low=1, help="network residual: blocks in each of its three stages"),
        "fine_tune": Hyperparameter(True, bool, help="whether the backbone trains, or the head alone"),
        "weights": Hyperparameter("", str, help="a .safetensors file that the backbone starts from"),
    }

    def __init__(
        self,
        source: str = "synthetic",
        path: str = "",
        side: int = 32,
        classes: int | None = None,
        validation: float = 0.2,
        test: float = 0.2,
        images: int = 2000,
        seed: int = 0,
    ) -> None:
        if source not in SOURCES:
            raise DataError(f"source: found {source!r}; {nearest(str(source), SOURCES)}")
        if (source == "file") != bool(path):
            found = "is missing; source file needs" if source == "file" else f"found {path!r}; only source file has"
            raise DataError(f"path: {found} a folder of class folders or an .npz file")
        for name, share, low in (("validation", validation, True), ("test", test, False)):
            if type(share) not in {int, float} or not (0 <= share < 1) or not (low or share):
                raise DataError(f"{name}: found {share!r}; allowed: a share {'from' if low else 'above'} 0, below 1")
        whole = {"side": (side, 8), "classes": (2 if classes is None else classes, 2), "images": (images, 20)}
        for name, (number, lowest) in {**whole, "seed": (seed, 0)}.items():
            if type(number) is not int or number < lowest:
                raise DataError(f"{name}: found {number!r}; allowed: whole numbers from {lowest}")
        self.source, self.path, self.side, self.classes = source, path, side, classes
        self.validation, self.test, self.images, self.seed = float(validation), float(test), images, seed

    def data(self, config: Config) -> Data:
        """The images of the first `classes` classes, split by `data_seed`."""
        import numpy as np

        held = self._held
        rows = np.flatnonzero(held.labels < self._count)
        rng = np.random.default_rng(config["data_seed"])
        train, test = rng.permutation(rows[~held.test[rows]]), rows[held.test[rows]]
        if not len(test):
            cut = max(1, round(self.test * len(train)))
            test, train = train[:cut], train[cut:]
        cut = max(1, round(self.validation * len(train))) if self.validation else 0
        validation, train = train[:cut], train[cut:]
        if not len(train):
            raise DataError(f"images: found {len(rows)}, too few to train, validate and test")
        parts = [np.sort(part) for part in (train, validation, test)]
        gathered = [held.images[part].astype(np.float32) for part in parts]
        axes = (0, 1, 2)
        offset, scale = gathered[0].mean(axes, np.float64), np.maximum(gathered[0].std(axes, np.float64), 1.0)
        for part in gathered:  # in place: the gathered copy is the only one
            part -= offset.astype(np.float32)
            part /= scale.astype(np.float32)
        # channels first by stride alone: torch sees its channels_last layout without a copy
        splits = [Split(np.moveaxis(p, 3, 1), held.labels[r]) for p, r in zip(gathered, parts, strict=True)]
        return Data(splits[0], splits[1] if len(splits[1]) else None, splits[2])

    @cached_property
    def _held(self) -> image_files.Pictures:
        from tradewind.workloads.image_files import load_images, shapes_cached

        if self.source == "synthetic":
            return shapes_cached(self.images, self.seed, self.side)
        return load_images(data_path(self.path), self.side)

    @property
    def _count(self) -> int:
        """How many classes."""
        there = len(self._held.classes)
        if self.classes is not None and self.classes > there:
            raise DataError(f"classes: found {self.classes}; allowed: 2 to {there}")
        return self.classes or there

    def model(self, config: Config) -> nn.Module:
        """The network that the config names, its backbone from the weights that it names."""
        from tradewind.workloads.image_networks import (
            ImageNetwork,
            load_backbone,
            residual_backbone,
            small_backbone,
        )

        channels, width = self._held.images.shape[3], config["width"]
        if config["network"] == "residual":
            backbone = residual_backbone(channels, width, config["blocks"])
        else:
            backbone = small_backbone(channels, width)
        network = ImageNetwork(backbone, 4 * width, self._count, config["fine_tune"])
        if config["weights"]:
            load_backbone(network, data_path(config["weights"]))
        return network

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean cross-entropy."""
        from torch.nn import functional

        return functional.cross_entropy(outputs, targets)

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Accuracy."""
        from tradewind.workloads.class_scores import class_scores

        return class_scores(outputs, targets)
