"""Checkpoints: all that an interrupted trial needs to go on as if undisturbed. No pickle."""

from __future__ import annotations

import json
import math
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from tradewind.folder import writing
from tradewind.train.optim import Optimizer

MOST_SHARE = 0.02  # of the training time that checkpoints may take


@dataclass
class Progress:
    """How far a trial is: what it has measured so far."""

    epoch: int = 0
    epoch_s: list[float] = field(default_factory=list)
    validation_s: float = 0.0
    elapsed_s: float = 0.0
    rates: list[float] = field(default_factory=list)
    curve: list[dict[str, float]] = field(default_factory=list)
    last: dict[str, float] = field(default_factory=dict)
    wait_s: float | None = None  # for data; None where nobody looked
    shares: list[float] = field(default_factory=list)  # of each epoch that the device computed
    way: str = ""  # plain, one, several: as the network trains; each rounds in its own way

    def waited(self, wait_s: float, share: float) -> None:
        """In the epoch that was added last."""
        self.wait_s = (self.wait_s or 0.0) + wait_s
        self.shares += [share] if math.isfinite(share) else []

    def add(self, rate: float, epoch_s: float, elapsed_s: float, last: dict[str, float]) -> None:
        """One more epoch: `epoch_s` of training in `elapsed_s` with validation."""
        self.epoch += 1
        self.epoch_s.append(epoch_s)
        self.validation_s += elapsed_s - epoch_s
        self.elapsed_s += elapsed_s
        self.rates.append(rate)
        self.last = last
        self.curve.append({"epoch": self.epoch, "learning_rate": rate, "elapsed_s": self.elapsed_s, **last})

    def times(self) -> dict[str, Any]:
        """What the epochs took, for the record."""
        return {"train_s": sum(self.epoch_s), "epoch_s": list(self.epoch_s), "validation_s": self.validation_s}


@dataclass
class Checkpoints:
    """Where and how often one trial keeps its state."""

    path: Path
    device: torch.device
    _cost_s: float = 0.0
    _since: float = field(default_factory=time.perf_counter)

    def save(self, progress: Progress, model: nn.Module, optimizer: Optimizer) -> None:
        """Keep the state, unless that would take more than its share of the time."""
        if (time.perf_counter() - self._since) * MOST_SHARE >= self._cost_s:
            self.keep(progress, model, optimizer)

    def keep(self, progress: Progress, model: nn.Module, optimizer: Optimizer) -> None:
        """Keep the state, whatever it takes."""
        began = time.perf_counter()
        tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
        for (parameter, _), state in zip(model.named_parameters(), optimizer.state, strict=True):
            tensors |= {f"optimizer.{parameter}.{name}": value for name, value in state.items()}
        save_tensors(self.path, tensors | random_states(self.device), progress.__dict__)
        self._since = time.perf_counter()
        self._cost_s = self._since - began

    def restore(self, model: nn.Module, optimizer: Optimizer) -> Progress:
        """Go back to the last state kept; a fresh start where there is none that can be read."""
        tensors, progress = read(self.path, {name: value.shape for name, value in model.state_dict().items()})
        if not progress.epoch:
            return progress
        model.load_state_dict({n[6:]: t for n, t in tensors.items() if n.startswith("model.")})
        places = {name: place for place, (name, _) in enumerate(model.named_parameters())}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                parameter, _, field_name = name.removeprefix("optimizer.").rpartition(".")
                place = places[parameter]
                optimizer.state[place][field_name] = _laid_out(tensor, optimizer.parameters[place])
        set_random_states(tensors, self.device)
        return progress


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Of all generators that a network or a workload may draw from: torch's, Python's and numpy's."""
    _, words, gauss = random.getstate()
    found = {"random.cpu": torch.get_rng_state(), "random.python": _numbers([*words, gauss])}
    _, keys, *rest = np.random.get_state(legacy=True)
    found["random.numpy"] = _numbers([*keys.tolist(), *rest])  # type: ignore[union-attr]
    if device.type == "cuda":
        found["random.cuda"] = torch.cuda.get_rng_state(device)
    return found


def set_random_states(tensors: dict[str, torch.Tensor], device: torch.device) -> None:
    """Go back to those that were kept."""
    torch.set_rng_state(tensors["random.cpu"])
    *words, gauss = tensors["random.python"].tolist()
    random.setstate((3, tuple(map(int, words)), None if math.isnan(gauss) else gauss))
    *keys, place, has_gauss, gauss = tensors["random.numpy"].tolist()
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), int(place), int(has_gauss), gauss))
    if "random.cuda" in tensors and device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def _numbers(values: list[float | None]) -> torch.Tensor:
    """Whole numbers of 32 bits, and what else there is, exactly; NaN for none."""
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)


def _laid_out(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A tensor in the memory format of its parameter, which a fused optimiser takes it to have."""
    if tensor.shape != parameter.shape:
        return tensor
    return torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)


def read(
    path: Path, shapes: dict[str, torch.Size] | None = None, whole: bool = True
) -> tuple[dict[str, torch.Tensor], Progress]:
    """A state that was kept, of a network whose state has these shapes; nothing where there is none to be used."""
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys() if whole else ()  # else it is asked how far the network is, and that alone
            tensors = {name: file.get_tensor(name) for name in names}
            progress = Progress(**json.loads(file.metadata()["progress"]))
        there = {name[6:]: value.shape for name, value in tensors.items() if name.startswith("model.")}
        if shapes is not None and there != shapes:
            raise ValueError("it is of another network")
    except FileNotFoundError:
        return {}, Progress()
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        print(f"{path}: can't be used ({error}); starting from the first epoch", file=sys.stderr)
        return {}, Progress()
    return tensors, progress


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], progress: dict[str, Any]) -> None:
    """Write tensors so that readers see all or nothing; a full disk costs the file, not the trial."""
    # a copy of each: safetensors refuses tensors that share memory, as tied weights do
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        with writing(path) as aside:
            save_file(plain, aside, {"progress": json.dumps(progress)})
    except (OSError, SafetensorError) as error:
        print(f"{path}: could not be written: {error}", file=sys.stderr)
