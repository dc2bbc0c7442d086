"""A sweep of learning rates and seeds, and one network of it trained as the tutorials do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind import machine
from tradewind.pack import Config

if TYPE_CHECKING:
    import torch

    from tradewind.workloads.contract import Data, Split

Held = tuple["torch.Tensor", "torch.Tensor"]  # inputs and targets
Batches = Callable[[int], Iterator["Held"]]  # of an epoch

VALIDATION_BATCH = 1024
SEEDING = threading.Lock()  # threads, as Optuna has them, share the generator from which weights are drawn


@dataclass(frozen=True)
class Sweep:
    """Which networks are trained, on what, for how long."""

    rates: tuple[float, ...]
    seeds: int = 1
    epochs: int = 2
    batch_size: int = 128
    train: int = 8192
    validation: int = 1024
    test: int = 1024
    workload: str = "storm"
    precision: str = "fp32"
    compiled: bool = False  # by torch.compile, with CUDA graphs where there is a GPU

    @property
    def networks(self) -> int:
        """How many."""
        return len(self.rates) * self.seeds

    @property
    def samples(self) -> int:
        """Over all networks and epochs."""
        return self.networks * self.epochs * self.train

    def trials(self) -> list[tuple[float, int]]:
        """The rate and the seed of each."""
        return [(rate, seed) for rate in self.rates for seed in range(self.seeds)]

    def splits(self) -> dict[str, int]:
        """How many samples there are of each kind, as a study says it."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def data(self) -> Data:
        """The samples, read from the cache where they have been made before."""
        return self.made().data({"data_seed": 0})  # type: ignore[no-any-return]

    def made(self) -> Any:
        """The workload."""
        from tradewind.workloads import find, make

        return make(find(self.workload, Path()), self.splits())

    def config(self) -> dict[str, Any]:
        """The workload's own hyperparameters, as they are by default."""
        return {name: known.default for name, known in self.made().defaults.items()}


@dataclass
class Trained:
    """What became of a sweep."""

    losses: dict[str, list[float]]  # of validation, by trial
    epoch_s: list[list[float]]  # of every trial, training alone
    at_once: int = 1  # networks that were in training during such an epoch
    times: dict[str, float] = field(default_factory=dict)  # beside: compile_s, warmup_s, …


Epochs = list[tuple[float, float]]  # seconds and validation loss


def name_of(rate: float, seed: int) -> str:
    """Under which a trial's losses are found."""
    return f"{rate:g}/{seed}"


def told(trials: list[tuple[float, int]], found: list[Epochs], at_once: int = 1) -> Trained:
    """What loops of our own have found."""
    losses = {name_of(*trial): [loss for _, loss in one] for trial, one in zip(trials, found, strict=True)}
    return Trained(losses, [[seconds for seconds, _ in one] for one in found], at_once)


def plain_trial(sweep: Sweep, trial: tuple[float, int], batches: Batches, held: Held) -> Epochs:
    """The seconds and the validation loss of every epoch of one network."""
    workload, config = sweep.made(), sweep.config()
    return [
        (seconds, workload.loss(outputs, held[1], config).item())
        for seconds, outputs in plain_epochs(sweep, {**config, "learning_rate": trial[0]}, trial[1], batches, held)
    ]


def plain_epochs(
    sweep: Sweep, config: Config, seed: int, batches: Batches, held: Held
) -> Iterator[tuple[float, torch.Tensor]]:
    """One network as the tutorials train it: Adam, a mean loss, a look at what is held back after every epoch."""
    import torch

    from tradewind.train.plain import clock
    from tradewind.train.precision import computing

    workload, inputs = sweep.made(), held[0]
    with SEEDING:
        torch.manual_seed(seed)
        model = workload.model(config).to(inputs.device)
    called = torch.compile(model, mode="reduce-overhead") if sweep.compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    for epoch in range(1, sweep.epochs + 1):
        began = clock(inputs.device)
        model.train()
        for x, y in batches(epoch):
            optimizer.zero_grad()
            with computing(sweep.precision, inputs.device):
                workload.loss(called(x.to(inputs.device)), y.to(inputs.device), config).backward()
            optimizer.step()
        seconds = clock(inputs.device) - began
        model.eval()
        with torch.no_grad(), computing(sweep.precision, inputs.device):
            outputs = torch.cat([model(x) for x in torch.split(inputs, VALIDATION_BATCH)])
        yield seconds, outputs


def tensors(split: Split, device: str = "cpu") -> Held:
    """Inputs and targets in memory, in torch's usual layout."""
    import numpy as np
    import torch

    inputs = torch.tensor(np.ascontiguousarray(split.inputs)).to(device)
    return inputs, torch.tensor(np.ascontiguousarray(split.targets)).to(device)


def indexed(sweep: Sweep, held: Held) -> Batches:
    """Batches picked by index from tensors that lie where the network is trained."""
    import torch

    from tradewind.train.batches import epoch_order

    inputs, targets = held

    def batches(epoch: int) -> Iterator[Held]:
        order = epoch_order(len(targets), 0, epoch).to(targets.device)
        for rows in torch.split(order, sweep.batch_size):
            yield inputs[rows], targets[rows]

    return batches


def loaded(sweep: Sweep, held: Held) -> Batches:
    """Batches of a DataLoader, sample by sample from memory."""
    from torch.utils.data import DataLoader, TensorDataset

    from tradewind.train.batches import epoch_order

    def batches(epoch: int) -> Iterator[Held]:
        order = epoch_order(len(held[1]), 0, epoch).tolist()
        loader = DataLoader(TensorDataset(*held), batch_size=sweep.batch_size, sampler=order)
        return iter(loader)

    return batches


def device_name() -> str:
    """Where networks are trained here."""
    return "cuda" if machine.gpus() else "cpu"
