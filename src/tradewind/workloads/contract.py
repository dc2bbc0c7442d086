"""What a workload is: data, a model, a loss, scores, and the hyperparameters it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.errors import DataError
from tradewind.pack import Config, Value

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn


@dataclass(frozen=True)
class Hyperparameter:
    """A name that a study may set: its default, its type and what is allowed."""

    default: Value
    kind: type  # bool, int, float, str or list
    low: float | None = None
    high: float | None = None
    choices: tuple[Value, ...] = ()
    help: str = ""
    stacks: bool = False  # networks that differ in it can be trained as one
    refusal: Callable[[Value], str] | None = None  # why a value can't be, where there is more to say than what can

    def complaint(self, value: Value) -> str:
        """Why this value can't be, or nothing."""
        if self.refusal is not None:
            return self.refusal(value)
        ok = isinstance(value, self.kind) and not (isinstance(value, bool) and self.kind is not bool)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            ok = True
        if not ok:
            return f"found {value!r}, a {type(value).__name__}; allowed: {self.allowed()}"
        if self.choices and value not in self.choices:
            return f"found {value!r}; allowed: {self.allowed()}"
        too_low = self.low is not None and value < self.low
        too_high = self.high is not None and value > self.high
        return f"found {value!r}; allowed: {self.allowed()}" if too_low or too_high else ""

    def allowed(self) -> str:
        """What may be set, in words."""
        if self.choices:
            return ", ".join(map(repr, self.choices))
        name = {"int": "whole numbers", "float": "numbers", "str": "text", "bool": "true or false"}
        words = name.get(self.kind.__name__, f"{self.kind.__name__}s")
        if self.low is not None:
            words += f" from {self.low:g}"
        return words + (f" to {self.high:g}" if self.high is not None else "")


@dataclass(frozen=True)
class Split:
    """Samples along axis 0; inputs are (n, channels, …) in float32, memory layout free."""

    inputs: np.ndarray[Any, Any]
    targets: np.ndarray[Any, Any]

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Data:
    """The arrays of a trial, and which channels are the (x, y) components of vectors."""

    train: Split
    validation: Split | None
    test: Split
    vectors: tuple[tuple[int, int], ...] = ()


def check_counts(train: Value, validation: Value, test: Value, seed: Value) -> None:
    """Refuse numbers of samples, or a seed, that can't be; None is for the workload to fill in."""
    lowest = {"train": (train, 1), "validation": (validation, 0), "test": (test, 1), "seed": (seed, 0)}
    for name, (value, low) in lowest.items():
        if value is not None and (type(value) is not int or value < low):
            raise DataError(f"{name}: found {value!r}; allowed: whole numbers from {low}")


class Workload(Protocol):
    """A class that a study can name; built with the study's `data` as keyword arguments.

    Every config handed to it is resolved: all defaults filled in, plus `seed` and `data_seed`.
    """

    defaults: Mapping[str, Hyperparameter]
    metric: str  # what `best` means, e.g. "validation_auc"

    def data(self, config: Config) -> Data:
        """The arrays; depends on the config's data hyperparameters and `data_seed` alone."""
        ...

    def model(self, config: Config) -> nn.Module:
        """A fresh network; its weights come from torch's generator, seeded before."""
        ...

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean loss of a batch."""
        ...

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """What the outputs are worth, over a whole split."""
        ...
