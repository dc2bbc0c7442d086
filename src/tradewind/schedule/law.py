"""What a trial costs by plain reasoning on its config, before any has run.

An epoch shows every sample once and takes a step per batch; a step costs something besides its samples. So
seconds grow with epochs and with data, fall with the batch size until steps no longer matter, and devices
share the samples, not the steps. Costs are relative: 1 is an epoch over the data as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tradewind.pack import Value

Array = np.ndarray[Any, Any]

# a user's function or command may call them otherwise than our own workloads do
NAMES = {
    "epochs": ("epochs", "epoch", "n_epochs", "num_epochs", "max_epochs", "iterations", "max_iter"),
    "data": ("data_multiplier", "samples", "n_samples", "train_samples", "data_size"),
    "copies": ("positive_copies",),
    "batch": ("batch_size", "batch", "minibatch_size"),
    "size": ("filters", "width", "widths", "units", "hidden", "channels", "layers", "depth", "kernel", "kernel_size"),
    "devices": ("devices", "gpus"),
    "scaling": ("scaling",),
    "pace": ("augment", "augmentation", "precision", "device"),
}
ROLES = {name: role for role, names in NAMES.items() for name in names}
PACES = {"live": 1.2, "pre": 1.05, "fp64": 2.0, "float64": 2.0, "cuda": 0.1}  # of a sample; any other value: 1
LARGEST = 1e300
POSITIVES = 0.1  # the rare class is copied because it is rare


@dataclass(frozen=True)
class Law:
    """Cost from a config; its two constants are guesses of their order until trials have run."""

    step: float = 128.0  # samples that could be trained in the time that a step costs besides
    start: float = 0.0  # epochs that could be trained in the time that it takes to begin and to end

    def cost(self, sizes: Mapping[str, Array | float]) -> Array:
        """The cost of configs, given what `size` makes of each of their values."""
        found: dict[str, Any] = dict.fromkeys(NAMES, 1.0)
        for name, value in sizes.items():
            found[ROLES[name]] = found[ROLES[name]] * value
        batch = found["batch"] * np.where(found["scaling"] > 1.0, found["devices"], 1.0)
        steps = self.step / batch if any(ROLES[name] == "batch" for name in sizes) else 0.0
        per_epoch = found["size"] * found["pace"] / found["devices"] + steps
        return np.asarray(self.start + found["epochs"] * found["data"] * found["copies"] * per_epoch)


def size(name: str, value: Value) -> float:
    """What a value of a hyperparameter means to the law; 1 where nothing is known."""
    role = ROLES[name]
    if role == "pace":
        return PACES.get(value, 1.0) if isinstance(value, str) else 1.0
    if role == "scaling":
        return 1.0 if value in (None, "strong") else 2.0  # all others enlarge the batch with the devices
    if isinstance(value, list):
        numbers = [size(name, one) for one in value]
        return sum(numbers) if numbers else 1.0
    if not is_number(value) or value <= 0:
        return 1.0
    return 1.0 + POSITIVES * (value - 1.0) if role == "copies" else float(value)


def is_number(value: Value) -> bool:
    """Whether a value has a size that can be reckoned with; true and false have none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST
