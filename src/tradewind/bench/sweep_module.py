"""A workload of a user's own, as one would write it: a small residual network on 32×32×3 images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tradewind.pack import Config
from tradewind.workloads.contract import Data, Hyperparameter, Split

CLASSES = 10
NOISE = 1.5  # beside patterns of unit size: the classes can be told apart, not at once


class Block(nn.Module):
    """Two convolutions around which the input goes as well."""

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inward, outward, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outward, outward, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outward) for _ in range(2)])
        self.around = nn.Conv2d(inward, outward, 1, stride, bias=False) if inward != outward else nn.Identity()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Of half the side where the stride is 2."""
        inner = functional.relu(self.norms[0](self.first(inputs)))
        return functional.relu(self.norms[1](self.second(inner)) + self.around(inputs))


class ResidualNetwork(nn.Module):
    """Three blocks, the mean over the image, dropout, one dense layer."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        widths = [width, width, 2 * width, 4 * width]
        self.blocks = nn.Sequential(*[Block(widths[k], widths[k + 1], 1 if not k else 2) for k in range(3)])
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(4 * width, CLASSES))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits of the classes."""
        logits: torch.Tensor = self.head(self.blocks(self.stem(inputs)).mean(dim=(2, 3)))
        return logits


class Residual:
    """Noisy patterns of 10 classes, told apart by the residual network."""

    metric = "validation_accuracy"
    defaults: Mapping[str, Hyperparameter] = {
        "width": Hyperparameter(16, int, low=1, help="channels of the first block"),
        "dropout": Hyperparameter(0.1, float, low=0.0, high=0.9, stacks=True),
    }

    def __init__(self, train: int = 16_384, validation: int = 1024, test: int = 1024) -> None:
        self.sizes = (train, validation, test)

    def data(self, config: Config) -> Data:
        """As many patterns as were asked for, drawn by `data_seed`."""
        rng = np.random.default_rng(config["data_seed"])
        patterns = rng.standard_normal((CLASSES, 3, 32, 32)).astype(np.float32)
        splits = []
        for size in self.sizes:
            labels = rng.integers(CLASSES, size=size)
            noise = rng.standard_normal((size, 3, 32, 32), dtype=np.float32)
            splits.append(Split(patterns[labels] + NOISE * noise, labels))
        train, validation, test = splits
        return Data(train, validation, test)

    def model(self, config: Config) -> nn.Module:
        """A fresh network."""
        return ResidualNetwork(config["width"], config["dropout"])

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean cross-entropy."""
        return functional.cross_entropy(outputs, targets)

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """The share of right answers."""
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
