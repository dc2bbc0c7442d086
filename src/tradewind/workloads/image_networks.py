"""Networks for small images: a backbone that makes features, and a head that tells classes apart by them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tradewind.errors import WorkloadError, nearest

BACKBONE = "backbone."  # what its weights' names begin with in the state of the whole network


class ImageNetwork(nn.Module):
    """A backbone, the mean of its features over the image, and a dense layer.

    With `fine_tune` the backbone trains too; without it, it stays as it is, down to the statistics of its
    normalisation, and only the head trains.
    """

    def __init__(self, backbone: nn.Module, width: int, classes: int, fine_tune: bool) -> None:
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(width, classes)
        self._fine_tune = fine_tune
        self.backbone.requires_grad_(fine_tune)

    def train(self, mode: bool = True) -> ImageNetwork:
        """Training mode; a frozen backbone stays out of it."""
        super().train(mode)
        if not self._fine_tune:
            self.backbone.eval()
        return self

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits, shape (n, classes)."""
        logits: torch.Tensor = self.head(self.backbone(images).mean(dim=(2, 3)))
        return logits


class Residual(nn.Module):
    """Two normalised convolutions beside a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.short_cut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.short_cut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features of `outputs` channels, of a side divided by the stride."""
        found = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(found)) + self.short_cut(images))


def small_backbone(channels: int, width: int) -> nn.Sequential:
    """Three convolutions with pools between them."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
    )


def residual_backbone(channels: int, width: int, blocks: int) -> nn.Sequential:
    """A residual network of three stages, as He et al. have it for images of this size."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    inputs = width
    for stage in range(3):
        for block in range(blocks):
            outputs = width * 2**stage
            layers.append(Residual(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*layers)


def load_backbone(network: ImageNetwork, path: Path) -> None:
    """Set the backbone to the weights of a .safetensors file: a backbone's own, or those of a whole network."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        there = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WorkloadError(f"weights: {path} can't be read as .safetensors: {error}") from None
    if any(name.startswith(BACKBONE) for name in there):
        there = {name.removeprefix(BACKBONE): value for name, value in there.items() if name.startswith(BACKBONE)}
    wanted = network.backbone.state_dict()
    for name, value in wanted.items():
        if name not in there:
            raise WorkloadError(f"weights: {path} holds no {name!r}; {nearest(name, list(there)[:8])}")
        if there[name].shape != value.shape:
            found, shape = tuple(there[name].shape), tuple(value.shape)
            raise WorkloadError(f"weights: {path}: {name}: found shape {found}; this network's is {shape}")
    if strange := sorted(there.keys() - wanted.keys()):
        raise WorkloadError(f"weights: {path} holds {strange[0]!r}, which this backbone does not have")
    network.backbone.load_state_dict(there)
