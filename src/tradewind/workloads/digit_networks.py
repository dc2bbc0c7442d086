"""Stevens' two networks for spoken digits: many weights and little work, few weights and much work."""

from __future__ import annotations

import torch
from torch import nn

from tradewind.errors import WorkloadError, nearest
from tradewind.workloads.digit_sounds import SAMPLES

CLASSES = 10


class LinearDigits(nn.Module):
    """Four dense layers on the bare samples; 12,102,220 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(SAMPLES, 1000),
            nn.ReLU(),
            nn.Linear(1000, 100),
            nn.ReLU(),
            nn.Linear(100, 10),
            nn.Sigmoid(),
            nn.Linear(10, CLASSES),
        )

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Logits, shape (n, 10), of clips (n, 1, 12000)."""
        logits: torch.Tensor = self.layers(clips.flatten(1))
        return logits


class ConvDigits(nn.Module):
    """Three wide convolutions with pools, then two dense layers; 376,200 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Sequential(
            nn.Conv1d(1, 50, 200, padding=100),  # even kernels: one sample more than came in, which the pools drop
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(50, 30, 100, padding=50),
            nn.ReLU(),
            nn.MaxPool1d(3),
            nn.Conv1d(30, 10, 50, padding=25),
            nn.ReLU(),
            nn.MaxPool1d(5),
        )
        self.dense = nn.Sequential(nn.Linear(2000, 100), nn.Sigmoid(), nn.Linear(100, CLASSES))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Logits, shape (n, 10), of clips (n, 1, 12000)."""
        logits: torch.Tensor = self.dense(self.filters(clips).flatten(1))
        return logits


NETWORKS: dict[str, type[nn.Module]] = {"linear": LinearDigits, "conv": ConvDigits}


def digit_network(name: str) -> nn.Module:
    """A fresh network of this name."""
    if name not in NETWORKS:
        raise WorkloadError(f"network: found {name!r}; {nearest(name, NETWORKS)}")
    return NETWORKS[name]()
