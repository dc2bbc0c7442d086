"""Optimisers by name, and the learning rate of every epoch."""

from __future__ import annotations

import math

import torch
from torch import nn

from tradewind.pack import Config


def make_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """The optimiser that a config names."""
    rate, decay = config["learning_rate"], config["weight_decay"]
    if config["optimizer"] == "sgd":
        return torch.optim.SGD(model.parameters(), rate, momentum=config["momentum"], weight_decay=decay)
    kind: type[torch.optim.Adam] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config["optimizer"]]
    return kind(model.parameters(), rate, betas=(config["beta1"], config["beta2"]), weight_decay=decay)


def learning_rate(config: Config, epoch: int) -> float:
    """The rate of an epoch, counted from 1."""
    rate: float = config["learning_rate"]
    if config["schedule"] == "step":
        return rate * float(config["step_factor"] ** ((epoch - 1) // config["step_epochs"]))
    if config["schedule"] == "cosine":
        return rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / config["epochs"]))
    return rate
