"""Optimisers by name, and the learning rate of every epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from tradewind.pack import Config

EPSILON = 1e-8  # torch's

Some = list[tuple[torch.Tensor, dict[str, torch.Tensor]]]  # parameters and their state


class Optimizer:
    """SGD, Adam or AdamW as in torch.optim, to the bit, fused on CPUs.

    The functional forms: a class of torch.optim imports torch._dynamo, which takes as long as torch itself.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], config: Config) -> None:
        self.parameters = list(parameters)
        self.rate: float = config["learning_rate"]  # the training loop sets it anew in every epoch
        self.state: list[dict[str, torch.Tensor]] = [{} for _ in self.parameters]  # by torch's names; empty at first
        self._config = config
        on_cpu = all(p.device.type == "cpu" and p.is_floating_point() for p in self.parameters)
        self._fused = True if on_cpu else None  # None: what torch takes by default

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient."""
        there: Some = [(p, s) for p, s in zip(self.parameters, self.state, strict=True) if p.grad is not None]
        if self._config["optimizer"] == "sgd":
            # torch's fused form takes buffers of all or of none
            for some in ([one for one in there if not one[1]], [one for one in there if one[1]]):
                self._sgd(some)
        else:
            self._adam(there)

    def _sgd(self, some: Some) -> None:
        if not some:
            return
        gradients = [p.grad for p, _ in some if p.grad is not None]
        buffers = [state.get("momentum_buffer") for _, state in some]
        sparse, momentum = any(gradient.is_sparse for gradient in gradients), self._config["momentum"]
        sgd(
            [p for p, _ in some], gradients, buffers if momentum else [], sparse,
            fused=None if sparse else self._fused, lr=self.rate, weight_decay=self._config["weight_decay"],
            momentum=momentum, dampening=0.0, nesterov=False, maximize=False,
        )  # fmt: skip
        for (_, state), buffer in zip(some, buffers, strict=True):
            if buffer is not None:
                state["momentum_buffer"] = buffer

    def _adam(self, some: Some) -> None:
        for parameter, state in some:
            if not state:
                # counted on the CPU unless the kernel counts: a launch costs more
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        adam(
            [p for p, _ in some], [p.grad for p, _ in some if p.grad is not None], [s["exp_avg"] for _, s in some],
            [s["exp_avg_sq"] for _, s in some], [], [s["step"] for _, s in some], fused=self._fused,
            has_complex=any(p.is_complex() for p, _ in some), amsgrad=False, beta1=self._config["beta1"],
            beta2=self._config["beta2"], lr=self.rate, weight_decay=self._config["weight_decay"], eps=EPSILON,
            maximize=False, decoupled_weight_decay=self._config["optimizer"] == "adamw",
        )  # fmt: skip


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
