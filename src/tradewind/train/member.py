"""The networks of a pack, and how their states are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from tradewind.folder import RunFolder
from tradewind.pack import Config, Trial, network_of
from tradewind.train.checkpoint import (
    MOST_SHARE,
    Progress,
    random_states,
    read,
    save_tensors,
    set_random_states,
)
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.stack import Stack
from tradewind.train.stacked import Stacked
from tradewind.workloads.contract import Workload


@dataclass
class Member:
    """One network of a pack, and the trials that want it after different numbers of epochs."""

    config: Config  # of the longest
    seed: int
    trials: list[Trial]  # that have not ended, shortest first
    progress: Progress = field(default_factory=Progress)

    @property
    def key(self) -> str:
        """Under which its state is kept: the longest trial's."""
        return self.trials[-1].key

    @property
    def epochs_left(self) -> int:
        """How long it trains until the last of its trials has ended or is paused."""
        return max((trial.until or trial.config["epochs"]) - self.progress.epoch for trial in self.trials)


def members_of(trials: Sequence[Trial], folder: RunFolder, share: bool = True) -> list[Member]:
    """The networks that these trials need; one that is past the end of a trial already can't serve it any more.

    Those that differ in their epochs alone share one, unless the workload's code reads `epochs`.
    """
    found: list[Member] = []
    for member in _networks(trials, share):
        _, kept = read(folder.checkpoint(member.key), whole=False)
        past = [trial for trial in member.trials if trial.config["epochs"] < kept.epoch]
        if past:
            member.trials = member.trials[len(past) :]
            longest = {**member.config, "epochs": past[-1].config["epochs"]}
            found.append(Member(longest, member.seed, past))
        if member.trials:
            found.append(replace(member, progress=kept))
    return found


def _networks(trials: Sequence[Trial], share: bool) -> list[Member]:
    found: dict[str, Member] = {}
    for trial in sorted(trials, key=lambda trial: trial.config["epochs"]):
        config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
        member = found.setdefault(network_of(trial) if share else trial.key, Member(config, trial.seed, []))
        member.config = config
        member.trials.append(trial)
    return list(found.values())


def kind_of(config: Config, workload: Workload) -> str:
    """What networks that may be trained as one have in common: all that can't be stacked but their epochs."""
    known = {**TRAINING, **workload.defaults}
    return json.dumps({name: config[name] for name in sorted(known) if not known[name].stacks and name != "epochs"})


def going_on(member: Member) -> str:
    """How a network that has begun goes on: as it did, so that on a CPU it ends with the same bits."""
    return member.progress.way


class PackCheckpoints:
    """The states of the networks of a pack, each in a file as the plain loop would write it."""

    def __init__(self, folder: RunFolder, stack: Stack, optimizer: Stacked) -> None:
        self._folder, self._stack, self._optimizer = folder, stack, optimizer
        self._cost_s, self._since = 0.0, time.perf_counter()

    def save(self, members: Sequence[Member]) -> None:
        """Keep all states, unless that would take more than its share of the time."""
        began = time.perf_counter()
        if (began - self._since) * MOST_SHARE < self._cost_s:
            return
        for number, member in enumerate(members):
            if member.trials:
                self.keep(number, member)
        self._since = time.perf_counter()
        self._cost_s = self._since - began

    def keep(self, number: int, member: Member) -> None:
        """Keep the state of one network, whatever it takes."""
        tensors = {f"model.{name}": value for name, value in self._stack.state(number).items()}
        count = self._optimizer.count.to(torch.float32)
        for name, rows in self._optimizer.state().items():
            for parameter, piece in self._stack.split(rows).items():
                tensors[f"optimizer.{parameter}.{name}"] = piece[number]
                if name == "exp_avg":
                    tensors[f"optimizer.{parameter}.step"] = count
        tensors |= random_states(self._stack.rows.device)
        save_tensors(self._folder.checkpoint(member.key), tensors, member.progress.__dict__)

    def restore(self, number: int, member: Member) -> None:
        """Set one network to the state that was kept."""
        tensors, _ = read(self._folder.checkpoint(member.key))
        self._stack.load(number, {name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
        for name, rows in self._optimizer.state().items():
            for parameter, piece in self._stack.split(rows).items():
                if f"optimizer.{parameter}.{name}" in tensors:
                    piece[number].copy_(tensors[f"optimizer.{parameter}.{name}"])
        steps = [value for name, value in tensors.items() if name.startswith("optimizer.") and name.endswith(".step")]
        if steps:  # all of them have taken as many
            self._optimizer.count.copy_(steps[0])
        if len(self._stack) == 1:  # those of several can't draw from what they have in common
            set_random_states(tensors, self._stack.rows.device)
