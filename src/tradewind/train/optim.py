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


def global_batch_size(config: Config) -> int:
    """The samples of a step on all devices together."""
    size: int = config["batch_size"]
    return size if config["scaling"] == "strong" else config["devices"] * size


def learning_rate(config: Config, epoch: int) -> float:
    """The rate of an epoch, counted from 1: what the scaling rule makes of it, then the schedule."""
    rate: float = config["learning_rate"] * _scale(config, epoch)
    if config["schedule"] == "step":
        return rate * float(config["step_factor"] ** ((epoch - 1) // config["step_epochs"]))
    if config["schedule"] == "cosine":
        return rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / config["epochs"]))
    return rate


def _scale(config: Config, epoch: int) -> float:
    """By how much several devices raise the rate of an epoch; one device never does.

    A warm-up over w epochs is the line from 1 before the first epoch to n after the w-th; an epoch has the value at
    its start, so epoch 1 has the rate of one device and epoch w + 1 is the first with all of it.
    """
    devices, rule = config["devices"], config["scaling"]
    if rule == "sqrt":
        return math.sqrt(devices)
    if rule == "linear-warmup" and epoch <= config["warmup_epochs"]:
        return 1.0 + float((devices - 1) * (epoch - 1) / config["warmup_epochs"])
    return float(devices) if rule in {"linear", "linear-warmup"} else 1.0
