"""What a trainer remembers from pack to pack: samples on their device, and what networks are like."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tradewind.pack import Config
from tradewind.train.ahead import Stored
from tradewind.train.batches import Samples, prepared
from tradewind.train.config_reads import ReadCache
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.profile import Profile, Shape
from tradewind.workloads.contract import Data

SHARE = 0.4  # of a device's memory for samples that may be wanted again

# what the stored training samples depend on, besides the data
ACT = (
    *("augment", "data_multiplier", "positive_copies", "rotation_deg", "translation", "zoom", "vectors"),
    *("reflection", "edges", "interpolation"),
)
assert set(ACT) <= set(TRAINING)


@dataclass
class Held:
    """The samples of a data set, augmented or not, on a device."""

    train: Samples
    stored: bool  # whether there is one for every index
    validation: Samples | None
    test: Samples
    times: dict[str, float]
    brought_s: float  # what bringing them took, this time

    @property
    def nbytes(self) -> int:
        """What they take there."""
        parts = [part for part in (self.train, self.validation, self.test) if part is not None]
        return sum(part.inputs.nbytes for part in parts if not part.elsewhere)


def hold(data: Data, config: Config, device: torch.device, dtype: torch.dtype) -> Held:
    """Bring samples to a device, augmented ahead of time if the config says so."""
    split, times = prepared(data, config, device)
    began = time.perf_counter()
    validation = Samples.of(data.validation, device, dtype) if data.validation is not None else None
    train, test = Samples.of(split, device, dtype), Samples.of(data.test, device, dtype)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return Held(train, isinstance(split, Stored), validation, test, times, time.perf_counter() - began)


@dataclass
class Remembered:
    """Of one data set at a time; the samples used longest ago go when they are too many."""

    profile: Profile | None = None  # in place of this machine's own
    fronts: ReadCache[bool] = field(default_factory=ReadCache)  # whether our kernels can do the front of a network
    shapes: ReadCache[tuple[Shape, ...]] = field(default_factory=ReadCache)  # none where a network can't be looked at
    _data: Data | None = None
    _held: OrderedDict[str, Held] = field(default_factory=OrderedDict)

    def hold(self, data: Data, config: Config, device: torch.device, dtype: torch.dtype) -> Held:
        """Samples that are there already, or brought there now."""
        if data is not self._data:
            self._held.clear()
            self._data = data
        acts: list[Any] = [config[name] for name in ACT] if config["augment"] == "pre" else []
        key = json.dumps([acts, config["data_seed"], str(device), str(dtype)])
        if key in self._held:
            self._held.move_to_end(key)
            return replace(self._held[key], brought_s=0.0)
        self._make_room(device)
        self._held[key] = hold(data, config, device, dtype)
        return self._held[key]

    def forget_data(self) -> None:
        """Before other data are loaded: one data set at a time in memory."""
        self._held.clear()
        self._data = None

    def _make_room(self, device: torch.device) -> None:
        most = SHARE * torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0.0
        while self._held and sum(one.nbytes for one in self._held.values()) > most:
            self._held.popitem(last=False)
