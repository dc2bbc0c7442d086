"""A checkpoint is of a network, not of the form in which it trained: any form goes on from it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from tradewind.folder import RunFolder
from tradewind.pack import Outcome, Pack, Task, Trial
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import checkpoint, fitting, member, plain, profile
from tradewind.train.held import Remembered
from tradewind.train.member import members_of
from tradewind.train.trainer import Trainer
from tradewind.workloads import find, make

Write = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("one_thread")

OWN = """
import random
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tradewind import Data, Hyperparameter, Split

class Drawing(nn.Module):
    '''Draws from every generator there is, in every step.'''
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 1)

    def forward(self, x):
        if self.training:
            x = F.dropout(x, 0.3) * random.random() + random.gauss(0.0, 0.1) + float(np.random.rand())
        return self.one(x).squeeze(1)

class Own:
    metric = "validation_loss"
    defaults = {"kind": Hyperparameter("frozen", str)}

    def data(self, config):
        rng = np.random.default_rng(0)
        inputs = rng.standard_normal((48, 4)).astype(np.float32)
        targets = inputs.sum(1)
        return Data(*(Split(inputs[a:b], targets[a:b]) for a, b in ((0, 32), (32, 40), (40, 48))))

    def model(self, config):
        if config["kind"] == "drawing":
            return Drawing()
        layers = [nn.Linear(4, 4), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 6)]
        layers.append(nn.Linear(6, 1))
        for frozen in (layers[0], layers[4]):
            frozen.requires_grad_(False)
        return nn.Sequential(*layers, nn.Flatten(0))

    def loss(self, outputs, targets, config):
        return F.mse_loss(outputs, targets)

    def scores(self, outputs, targets):
        return {}
"""


class Cut(Exception):
    """What stands for an interrupt."""


class Four:
    """Trials of 4 epochs, whose every epoch is kept."""

    def __init__(self, folder: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch, **fixed: Any) -> None:
        monkeypatch.setattr(profile, "PAYS", float("inf"))
        monkeypatch.setattr(member, "MOST_SHARE", 1e9)
        monkeypatch.setattr(checkpoint, "MOST_SHARE", 1e9)
        monkeypatch.setattr(sys, "path", list(sys.path))
        sys.modules.pop("work", None)  # of another test
        held = {"epochs": 4, "batch_size": 8, "precision": "fp64", **fixed}
        space = {"learning_rate": [0.01, 0.02, 0.03]}
        study = Study.load(write_study({"name": "own", "workload": "work:Own", "space": space, "fixed": held}, OWN))
        self._folder, self._trials = folder, Trials(study)
        self.trials = [self._trials[k] for k in range(3)]
        self.workload = make(find("work:Own", study.folder), {})
        self.data = self.workload.data({"data_seed": 0})

    def task(self, name: str) -> Task:
        return self._trials.task(str(RunFolder.create(self._folder / name).path), threads=1)

    def alone(self, trial: Trial, task: Task, until: int = 9) -> Outcome | None:
        """By the plain loop; None where it was cut."""

        def report(key: str, epoch: int, scores: Any) -> None:
            if epoch == until + 1:
                raise Cut

        try:
            return plain.train(trial, self.workload, self.data, task, report)
        except Cut:
            return None

    def as_one(self, task: Task) -> dict[str, Outcome]:
        """Whatever they were before."""
        members = members_of(self.trials, RunFolder(Path(task.run_folder)))
        for one in members:
            one.progress.way = ""
        fit = fitting._Fitting(self.workload, self.data, task, lambda *_: None, lambda _: None, Remembered())
        training = fit._training(members)
        training.check()
        training.run(training.start())
        return fit.outcomes


def cut_after(epochs: int) -> Callable[..., None]:
    """A report that ends the pack when the next epoch has been trained."""

    def report(key: str, epoch: int, scores: Any) -> None:
        if epoch > epochs:
            raise Cut

    return report


def assert_equal(one: Outcome | None, other: Outcome) -> None:
    assert one is not None
    assert one.state == other.state == "done"
    assert one.facts["resumed_at_epoch"] == 2
    losses = [[row["train_loss"] for row in outcome.curve] for outcome in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-8)
    assert one.scores == pytest.approx(other.scores, rel=1e-8)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_pack_with_frozen_layers_goes_on_in_the_plain_loop_and_back(
    optimizer: str, tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Four(tmp_path, write_study, monkeypatch, optimizer=optimizer, momentum=0.9)
    undisturbed = [here.alone(trial, here.task("undisturbed")) for trial in here.trials]
    task = here.task("from a pack")
    with pytest.raises(Cut):
        Trainer(task).fit(Pack(tuple(here.trials)), cut_after(2))
    for trial, expected in zip(here.trials, undisturbed, strict=True):
        assert_equal(here.alone(trial, task), expected)
    back = here.task("from the plain loop")
    assert [here.alone(trial, back, until=2) for trial in here.trials] == [None] * 3
    found = here.as_one(back)
    for trial, expected in zip(here.trials, undisturbed, strict=True):
        assert found[trial.key].facts["execution"]["networks"] == 3
        assert_equal(found[trial.key], expected)


def test_a_checkpoint_has_the_names_of_parameters(
    tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Four(tmp_path, write_study, monkeypatch)
    names = []
    for task, alone in ((here.task("plain"), True), (here.task("pack"), False)):
        if alone:
            here.alone(here.trials[0], task, until=1)
        else:
            with pytest.raises(Cut):
                Trainer(task).fit(Pack(tuple(here.trials)), cut_after(1))
        with safe_open(RunFolder(Path(task.run_folder)).checkpoint(here.trials[0].key), framework="pt") as file:
            names.append(set(file.keys()))
    assert names[0] == names[1]
    trained = {name for name in names[0] if name.startswith("optimizer.")}
    states = ("exp_avg", "exp_avg_sq", "step")
    assert trained == {
        f"optimizer.{layer}.{part}.{state}" for layer in (1, 2, 5) for part in ("weight", "bias") for state in states
    }
    assert {name for name in names[0] if name.startswith("random.")} == {
        "random.cpu", "random.numpy", "random.python",
    }  # fmt: skip


def test_a_network_that_draws_from_every_generator_goes_on_as_if_undisturbed(
    tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Four(tmp_path, write_study, monkeypatch, kind="drawing")

    def seeded(task: Task, until: int) -> Outcome | None:
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)
        return here.alone(here.trials[0], task, until)

    expected, task = seeded(here.task("undisturbed"), 9), here.task("cut")
    assert expected is not None
    seeded(task, 2)
    random.gauss(0.0, 1.0)  # an odd one is waiting
    assert_equal(here.alone(here.trials[0], task), expected)
