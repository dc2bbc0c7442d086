"""Packs against the plain loop: whatever is trained together, every trial ends as if alone."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tradewind
from tradewind import machine
from tradewind.bench import profile as bench_profile
from tradewind.folder import RunFolder
from tradewind.pack import Outcome, Pack, Report, Task, Trial
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import beside, checkpoint, fitting, member, packs, plain, profile
from tradewind.train.batches import Batch, TrainingBatches
from tradewind.train.held import Remembered
from tradewind.train.member import members_of
from tradewind.train.optim import Optimizer
from tradewind.train.stacked import Stacked
from tradewind.train.steps import Steps
from tradewind.train.trainer import Trainer
from tradewind.workloads import find, make

STORMS = {"train": 24, "validation": 16, "test": 16}
SMALL = {"filters": [2, 3], "kernel": 3, "batch_size": 10, "precision": "fp64", "epochs": 3}

Write = Callable[..., Path]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def packs_always_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks this small, on a busy machine, would be packed or not by chance."""
    monkeypatch.setattr(profile, "PAYS", math.inf)


@pytest.fixture(autouse=True)
def modules_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next test has a module of the same name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@dataclass
class Plan:
    """The trials of a study, to be trained in this process."""

    folder: Path
    trials: list[Trial]
    tasks: Iterator[Task]

    def plain(self, report: Report = lambda *_: None) -> Trained:
        """Every trial alone, by the plain loop."""
        task = next(self.tasks)
        trainer = Trainer(task)
        return Trained(task, [trainer.fit(Pack((trial,)), report)[0] for trial in self.trials])

    def packed(self, order: Sequence[int] | None = None, report: Report = lambda *_: None) -> Trained:
        """All of them, or those named, in one pack."""
        task = next(self.tasks)
        chosen = [self.trials[k] for k in (range(len(self.trials)) if order is None else order)]
        return Trained(task, Trainer(task).fit(Pack(tuple(chosen)), report))


@dataclass
class Trained:
    """What became of trials."""

    task: Task
    outcomes: list[Outcome]

    def __getitem__(self, key: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.key == key)

    def weights(self, key: str) -> dict[str, torch.Tensor]:
        """The weights that a trial left."""
        return load_file(RunFolder(Path(self.task.run_folder)).model(key))


def plan(folder: Path, study: Study) -> Plan:
    trials = Trials(study)
    tasks = (trials.task(str(RunFolder.create(folder / f"run{k}").path), threads=1) for k in count())
    found = [trials[position] for position in range(trials.size)]
    return Plan(folder, found, tasks)


def storms(
    folder: Path, space: Mapping[str, Any], repeats: int = 1, stop: Mapping[str, Any] | None = None, seed: int = 0,
    **fixed: Any,
) -> Plan:  # fmt: skip
    """Trials of a small storm network."""
    held = {name: value for name, value in {**SMALL, **fixed}.items() if name not in space}
    content = {"name": "packs", "workload": "storm", "data": STORMS, "space": space, "fixed": held}
    return plan(folder, Study(**content, repeats=repeats, stop=stop or {}, seed=seed))


def assert_same(one: Outcome, other: Outcome, most: float) -> None:
    """Everything that a trial has measured but times, to within `most`."""
    assert (one.key, one.state, one.reason) == (other.key, other.state, other.reason)
    assert one.facts["epochs_run"] == other.facts["epochs_run"] == len(one.curve) == len(other.curve)
    assert one.facts["learning_rates"] == other.facts["learning_rates"]
    assert one.facts["parameters"] == other.facts["parameters"]
    pairs = [*zip(one.curve, other.curve, strict=True), (one.scores, other.scores), (one.last, other.last)]
    for mine, its in pairs:
        assert mine.keys() == its.keys()
        for name in mine:
            if name != "elapsed_s" and (math.isfinite(mine[name]) or math.isfinite(its[name])):
                assert abs(mine[name] - its[name]) <= most * max(1.0, abs(mine[name])), (name, mine, its)


def assert_all_same(plain: Trained, packed: Trained, most: float = 1e-9) -> None:
    """The outcomes of a pack, and the weights that they left, are those of the plain loop."""
    assert {o.key for o in packed.outcomes} <= {o.key for o in plain.outcomes}
    for outcome in packed.outcomes:
        assert_same(plain[outcome.key], outcome, most)
        if outcome.state == "done":
            mine, its = plain.weights(outcome.key), packed.weights(outcome.key)
            assert mine.keys() == its.keys()
            for name in mine:
                torch.testing.assert_close(its[name], mine[name], rtol=1e4 * most, atol=10 * most)


# Stacked optimisers.

ROWS: list[dict[str, Any]] = [
    {"learning_rate": 1e-3, "momentum": 0.0, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0},
    {"learning_rate": 1e-1, "momentum": 0.9, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1},
    {"learning_rate": 1e-2, "momentum": 0.5, "beta1": 0.0, "beta2": 0.5, "weight_decay": 0.01},
    {"learning_rate": 0.0, "momentum": 0.99, "beta1": 0.95, "beta2": 0.9999, "weight_decay": 1.0},
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_a_stacked_optimizer_takes_the_steps_of_torchs(kind: str, dtype: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(1)
    configs = [{**row, "optimizer": kind} for row in ROWS]
    start = torch.randn(len(ROWS), 30, dtype=dtype, generator=chance)
    alone = [torch.nn.ParameterList([row.clone()]) for row in start]
    optimizers = [Optimizer(model.parameters(), config) for model, config in zip(alone, configs, strict=True)]
    rows, numbers = start.clone(), list(range(len(ROWS)))
    stacked = Stacked(rows, configs)
    for step in range(20):
        gradients = torch.randn(len(ROWS), 30, dtype=dtype, generator=chance)
        gradients[:, :5] *= 1e-6  # where epsilon matters
        factor = 0.5 ** (step // 7)  # a schedule
        for number, optimizer in enumerate(optimizers):
            optimizer.rate = factor * configs[number]["learning_rate"]
            alone[number][0].grad = gradients[number].clone()
            optimizer.step()
        if step == 12:  # one leaves the pack
            numbers.remove(1)
            stacked.keep([0, 2, 3])
            rows = rows[[0, 2, 3]]
        rates = torch.tensor([[factor * ROWS[number]["learning_rate"]] for number in numbers], dtype=dtype)
        stacked.step(rows, gradients[numbers], rates)
        expected = torch.stack([alone[number][0].detach() for number in numbers])
        most = 1e-12 if dtype == torch.float64 else 1e-5
        torch.testing.assert_close(rows, expected, rtol=most, atol=most)
    assert not torch.equal(rows[0], start[0])
    assert torch.equal(rows[-1], start[-1])  # rate 0


# The storm network, packed and plain.

RATES = [1e-3, 3e-3, 1e-2, 3e-2]
MEMBERS: dict[int, dict[str, Any]] = {
    1: {"learning_rate": [3e-3]},
    3: {"learning_rate": RATES[:3]},
    16: {"learning_rate": RATES, "weight_decay": [0.0, 0.1], "beta1": [0.9, 0.7]},
}


@pytest.mark.parametrize(
    ("size", "augment"), [(1, "none"), (1, "live"), (3, "none"), (3, "pre"), (3, "live"), (16, "none"), (16, "live")]
)
def test_a_pack_gives_the_losses_of_the_plain_loop(size: int, augment: str, tmp_path: Path) -> None:
    here = storms(tmp_path, MEMBERS[size], augment=augment, data_multiplier=2)
    plain, packed = here.plain(), here.packed()
    assert_all_same(plain, packed)
    assert {o.facts["packed_with"] for o in packed.outcomes} == {size - 1}
    assert {o.facts["packed_with"] for o in plain.outcomes} == {0}
    assert len({o.last["train_loss"] for o in packed.outcomes}) == size


@pytest.mark.parametrize("rates", [[0.2, 0.5], [0.1, 0.3, 0.7, 0.9]], ids=["exact", "rounded"])
@pytest.mark.parametrize("augment", ["none", "live"])
def test_members_with_dropout_rates_of_their_own_are_as_alone(
    rates: list[float], augment: str, tmp_path: Path
) -> None:
    here = storms(tmp_path, {"dropout": rates, "learning_rate": RATES[1:3]}, augment=augment)
    plain, packed = here.plain(), here.packed()
    assert {o.facts["packed_with"] for o in packed.outcomes} == {2 * len(rates) - 1}
    assert_all_same(plain, packed)


def test_members_with_and_without_dropout_are_trained_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = storms(tmp_path, {"dropout": [0.0, 0.5]})
    assert_all_same(here.plain(), here.packed())
    assert "one by one: the networks differ in their " in capsys.readouterr().out


def test_members_with_class_weights_of_their_own_are_as_alone(tmp_path: Path) -> None:
    here = storms(tmp_path, {"positive_weight": [0.5, 1.0, 7.0], "learning_rate": RATES[1:3]})
    packed = here.packed()
    assert_all_same(here.plain(), packed)
    assert {o.facts["packed_with"] for o in packed.outcomes} == {5}


@pytest.mark.parametrize(
    ("optimizer", "space"),
    [
        ("sgd", {"learning_rate": [0.1, 0.01], "momentum": [0.0, 0.9], "weight_decay": [0.0, 0.1]}),
        ("adam", {"learning_rate": [0.01], "beta2": [0.9, 0.999], "weight_decay": [0.0, 0.1]}),
        ("adamw", {"learning_rate": [0.01], "beta1": [0.5, 0.9], "weight_decay": [0.0, 0.1]}),
    ],
    ids=["sgd", "adam", "adamw"],
)
def test_members_with_optimizer_options_of_their_own_are_as_alone(
    optimizer: str, space: dict[str, Any], tmp_path: Path
) -> None:
    here = storms(tmp_path, space, optimizer=optimizer)
    packed = here.packed()
    assert_all_same(here.plain(), packed)
    assert {o.facts["packed_with"] for o in packed.outcomes} == {len(here.trials) - 1}


def test_members_with_schedules_of_their_own_are_as_alone(tmp_path: Path) -> None:
    space = {"schedule": ["constant", "step", "cosine"], "step_factor": [0.1, 0.5]}
    here = storms(tmp_path, space, learning_rate=0.01, step_epochs=2)
    packed = here.packed()
    assert_all_same(here.plain(), packed)
    assert {o.facts["packed_with"] for o in packed.outcomes} == {5}


def test_repeats_are_packed_with_seeds_of_their_own(tmp_path: Path) -> None:
    here = storms(tmp_path, {"learning_rate": RATES[:2]}, repeats=3, dropout=0.3)
    packed = here.packed()
    assert_all_same(here.plain(), packed)
    assert {o.facts["packed_with"] for o in packed.outcomes} == {5}
    assert len({o.last["train_loss"] for o in packed.outcomes}) == 6


def test_in_single_precision_packs_agree_over_twenty_steps(tmp_path: Path) -> None:
    # of three seeds in eight Adam at a rate of 0.03 makes up to 5e-4 of a rounding error
    about = {"precision": "fp32", "epochs": 4, "batch_size": 5, "seed": 1}
    here = storms(tmp_path, {"learning_rate": RATES, "dropout": [0.3, 0.6]}, **about)
    packed = here.packed()
    assert_all_same(here.plain(), packed, 1e-4)
    assert len(packed.outcomes[0].curve) * math.ceil(24 / 5) == 20


def test_a_trial_is_the_same_in_any_pack_and_in_any_order(tmp_path: Path) -> None:
    here = storms(tmp_path, {"learning_rate": RATES[:3], "dropout": [0.3, 0.6]}, repeats=2, epochs=2)
    whole = here.packed()
    chance = np.random.default_rng(0)
    for size in (2, 5, 12):
        part = here.packed([int(k) for k in chance.permutation(12)[:size]])
        assert {o.facts["packed_with"] for o in part.outcomes} == {size - 1}
        assert_all_same(whole, part, 1e-12)


def test_outcomes_come_in_the_order_of_the_pack(tmp_path: Path) -> None:
    here = storms(tmp_path, {"epochs": [3, 1, 2], "learning_rate": RATES[:2]})
    order = [4, 1, 3, 0, 5, 2]
    assert [o.key for o in here.packed(order).outcomes] == [here.trials[k].key for k in order]


def test_a_pack_leaves_torchs_settings_and_no_gradient_graph(tmp_path: Path) -> None:
    here = storms(tmp_path, {"learning_rate": RATES[:3]})
    packed = here.packed()
    assert torch.is_grad_enabled()
    assert all(isinstance(value, float) for o in packed.outcomes for value in [*o.scores.values(), *o.last.values()])


# Endings.


def test_members_that_reach_the_target_leave_and_the_others_go_on_as_alone(tmp_path: Path) -> None:
    space = {"learning_rate": [1e-4, 1e-2, 3e-2, 0.1]}
    here = storms(tmp_path, space, stop={"max_epochs": 6, "target": {"train_loss": 0.3}}, epochs=6, dropout=0.3)
    plain, packed = here.plain(), here.packed()
    assert_all_same(plain, packed)
    assert len({o.facts["epochs_run"] for o in packed.outcomes}) > 2
    assert {(o.state, o.reason) for o in packed.outcomes} == {
        ("done", "target reached"), ("stopped", "max_epochs 6 without the target"),
    }  # fmt: skip
    for outcome in packed.outcomes:
        assert ("time_to_target_s" in outcome.times) == (outcome.state == "done")
        assert bool(outcome.scores) == (outcome.state == "done")


def test_a_limit_on_epochs_ends_a_pack(tmp_path: Path) -> None:
    here = storms(tmp_path, {"learning_rate": RATES[:2], "epochs": [1, 2, 5]}, stop={"max_epochs": 2})
    plain, packed = here.plain(), here.packed()
    assert_all_same(plain, packed)
    assert [(o.state, o.reason) for o in packed.outcomes[:3]] == [
        ("done", ""),
        ("done", ""),
        ("stopped", "max_epochs"),
    ]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_member_that_diverges_is_stopped_and_harms_none(optimizer: str, tmp_path: Path) -> None:
    rates = [1e-3, 1e300 if optimizer == "adam" else 1e60, 1e-2]
    space = {"learning_rate": rates, "epochs": [2, 4]}
    here = storms(tmp_path, space, optimizer=optimizer, dropout=0.3)
    plain, packed = here.plain(), here.packed()
    assert_all_same(plain, packed)
    diverged = [o for o in packed.outcomes if o.state == "stopped"]
    assert [o.reason.partition(" in ")[0] for o in diverged] == ["loss not finite"] * 2
    assert {o.key for o in diverged} == {t.key for t in here.trials if t.config["learning_rate"] == rates[1]}
    assert all(math.isfinite(row["train_loss"]) for o in packed.outcomes if o.state == "done" for row in o.curve)
    assert not any(Path(packed.task.run_folder, "models", f"{o.key}.safetensors").exists() for o in diverged)


# An interrupted pack.


class Cut(Exception):
    """Ends a pack in the middle, as a fault of the machine would."""


def cut_after(last: int) -> Report:
    def cut(key: str, epoch: int, scores: Mapping[str, float]) -> None:
        if epoch > last:
            raise Cut

    return cut


@pytest.mark.parametrize(
    ("space", "stop", "fixed"),
    [
        ({"learning_rate": RATES}, {}, {"epochs": 5}),
        ({"learning_rate": RATES[:2], "epochs": [1, 2, 5]}, {}, {"optimizer": "sgd", "momentum": 0.9}),
        ({"learning_rate": [1e-2, 1e60], "epochs": [3, 5]}, {}, {"optimizer": "sgd"}),
        (
            {"learning_rate": [1e-4, 1e-2, 3e-2, 0.1]},
            {"max_epochs": 5, "target": {"train_loss": 0.3}},
            {"epochs": 5},
        ),
    ],
    ids=["adam", "prefixes", "diverging", "target"],
)
@pytest.mark.parametrize("last", [1, 3])
def test_a_pack_that_is_cut_ends_as_if_undisturbed(
    space: dict[str, Any], stop: dict[str, Any], fixed: dict[str, Any], last: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(member, "MOST_SHARE", 1e9)  # every epoch is kept
    here = storms(tmp_path, space, stop=stop, **fixed)
    task = next(here.tasks)
    with pytest.raises(Cut):
        Trainer(task).fit(Pack(tuple(here.trials)), cut_after(last))
    begun: list[int] = []
    continued = Trainer(task).fit(Pack(tuple(here.trials)), lambda key, epoch, scores: begun.append(epoch))
    assert max(begun) == 5
    assert_all_same(here.plain(), Trained(task, continued))
    assert begun.count(5) <= len(here.trials)
    assert max(o.facts["resumed_at_epoch"] for o in continued) == last


@pytest.mark.parametrize("begins", ["alone", "one by one", "as one"])
@pytest.mark.parametrize("filters", [[2, 3], [8, 8]], ids=["torch's", "our kernels"])
def test_a_network_goes_on_as_it_began_and_ends_with_the_same_bits(
    begins: str, filters: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "MOST_SHARE", 1e9)  # every epoch is kept
    monkeypatch.setattr(checkpoint, "MOST_SHARE", 1e9)
    here = storms(tmp_path, {"learning_rate": RATES}, precision="fp32", epochs=4, filters=filters, dropout=0.3)
    undisturbed, task = next(here.tasks), next(here.tasks)
    begun = [here.trials] if begins != "alone" else [[trial] for trial in here.trials]
    monkeypatch.setattr(profile, "PAYS", math.inf if begins == "as one" else 0.0)
    whole = [
        outcome for trials in begun for outcome in Trainer(undisturbed).fit(Pack(tuple(trials)), lambda *_: None)
    ]
    if begins == "one by one":  # the first of each, but for the last, which would be alone
        begun = [here.trials[k:] for k in range(3)]
    for trials in begun:
        with pytest.raises(Cut):
            Trainer(task).fit(Pack(tuple(trials)), cut_after(1))
    count = 3 if begins == "one by one" else 4
    monkeypatch.setattr(profile, "PAYS", 0.0 if begins == "as one" else math.inf)  # it would now be the other way
    continued = []
    for first, last in ((0, 1), (1, count)):  # one of them alone
        continued += Trainer(task).fit(Pack(tuple(here.trials[first:last])), lambda *_: None)
    assert [outcome.facts["resumed_at_epoch"] for outcome in continued] == [1] * count
    for trial in here.trials[:count]:
        one, other = Trained(undisturbed, whole), Trained(task, continued)
        assert one[trial.key].last == other[trial.key].last
        for name, value in one.weights(trial.key).items():
            assert torch.equal(value, other.weights(trial.key)[name])


# Prefixes.


@pytest.fixture
def epochs_begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes every pass over the training data; epoch 0 is where packs are tried out."""
    begun: list[int] = []
    original = TrainingBatches.epoch

    def epoch(self: TrainingBatches, number: int) -> Iterator[Batch]:
        begun.append(number)
        return original(self, number)

    monkeypatch.setattr(TrainingBatches, "epoch", epoch)
    return begun


def test_trials_that_differ_in_epochs_share_a_network_and_are_read_off_on_the_way(
    tmp_path: Path, epochs_begun: list[int]
) -> None:
    here = storms(tmp_path, {"epochs": [4, 1, 2]}, dropout=0.4)
    plain = here.plain()
    assert len([epoch for epoch in epochs_begun if epoch]) == 7
    epochs_begun.clear()
    packed = here.packed()
    assert [epoch for epoch in epochs_begun if epoch] == [1, 2, 3, 4]
    assert_all_same(plain, packed)
    assert [o.facts["epochs_run"] for o in packed.outcomes] == [4, 1, 2]


def test_a_pack_trains_as_many_epochs_as_its_longest_trial(tmp_path: Path, epochs_begun: list[int]) -> None:
    here = storms(tmp_path, {"epochs": [1, 2, 5], "learning_rate": RATES[:2], "dropout": [0.2, 0.6]})
    packed = here.packed()
    assert [epoch for epoch in epochs_begun if epoch] == [1, 2, 3, 4, 5]
    assert len(members_of(here.trials, RunFolder.create(tmp_path / "empty"))) == 4
    assert_all_same(here.plain(), packed)


def test_a_step_schedule_is_shared_and_a_cosine_is_not(tmp_path: Path) -> None:
    here = storms(tmp_path, {"epochs": [1, 2, 3], "schedule": ["step", "cosine"]}, step_epochs=1, step_factor=0.5)
    networks = [
        sorted(t.config["epochs"] for t in member.trials)
        for member in members_of(here.trials, RunFolder.create(tmp_path / "empty"))
    ]
    assert sorted(networks) == [[1], [1, 2, 3], [2], [3]]
    assert_all_same(here.plain(), here.packed())


def test_what_a_shorter_trial_measured_ends_with_it(tmp_path: Path) -> None:
    here = storms(tmp_path, {"epochs": [1, 2, 4], "learning_rate": RATES[:2]})
    for trial, outcome in zip(here.trials, here.packed().outcomes, strict=True):
        epochs = trial.config["epochs"]
        assert outcome.facts["epochs_run"] == len(outcome.curve) == len(outcome.facts["learning_rates"]) == epochs
        assert len(outcome.times["epoch_s"]) == epochs
        assert outcome.times["train_s"] == pytest.approx(sum(outcome.times["epoch_s"]), rel=1e-12)
        assert outcome.last.items() <= outcome.curve[-1].items()


def test_epochs_are_reported_for_every_trial_that_goes_on(tmp_path: Path) -> None:
    here = storms(tmp_path, {"epochs": [1, 3], "learning_rate": RATES[:2]})
    seen: list[tuple[str, int]] = []
    here.packed(report=lambda key, epoch, scores: seen.append((key, epoch)))
    assert sorted(seen) == sorted((t.key, e) for t in here.trials for e in range(1, t.config["epochs"] + 1))


# Times.


def test_the_shares_of_a_pack_add_up_to_its_seconds(tmp_path: Path) -> None:
    here = storms(tmp_path, {"epochs": [1, 3], "learning_rate": RATES})
    outcomes = here.packed().outcomes
    wall_s = max(o.times["pack_wall_s"] for o in outcomes)
    for outcome in outcomes:
        times = outcome.times
        assert 0 < times["share_s"] < times["pack_wall_s"] <= wall_s
        assert times["wall_s"] == pytest.approx(times["data_s"] + times["train_s"] + times["test_s"], rel=1e-12)
    assert sum(o.times["share_s"] for o in outcomes) == pytest.approx(wall_s, rel=1e-9)
    short, long = ([o.times["share_s"] for o in outcomes if len(o.curve) == epochs] for epochs in (1, 3))
    assert max(short) < min(long)


def test_trials_that_share_a_network_are_known_to_have_been_together(tmp_path: Path) -> None:
    """Else a table would show the time of both, though one of them cost nothing."""
    here = storms(tmp_path, {"epochs": [1, 3]})
    assert [o.facts["packed_with"] for o in here.packed().outcomes] == [1, 1]


# When packing does not pay, or there is no room.


def test_a_pack_that_would_be_slower_is_trained_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "PAYS", 0.0)
    here = storms(tmp_path, {"learning_rate": RATES[:2], "epochs": [1, 2]}, dropout=0.3)
    packed = here.packed()
    assert_all_same(here.plain(), packed)
    assert "networks one by one: 2 networks with convolution layers of " in capsys.readouterr().out


def test_without_a_profile_of_the_machine_networks_are_trained_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "SHIPPED", tmp_path)
    packed = storms(tmp_path, {"learning_rate": RATES[:2]}, epochs=1).packed()
    assert {o.facts["packed_with"] for o in packed.outcomes} == {0}
    assert "networks one by one: no profile of " in capsys.readouterr().out


def test_the_profile_that_was_measured_on_this_machine_goes_before_the_one_that_comes_with_tradewind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(profile, "PAYS", 0.9)
    here = storms(tmp_path, {"learning_rate": RATES}, epochs=1)
    path = profile.profile_path(torch.device("cpu"))
    path.parent.mkdir(parents=True)
    for ratio, company in ((0.89, 3), (0.91, 0)):
        profile._read.cache_clear()
        row = {"layers": "convolution", "networks": 2, "threads": 1, "work": [1.0, 1e12], "ratio": [ratio, ratio]}
        path.write_text(json.dumps({"kind": "mine", "as_one": [row]}))
        assert {o.facts["packed_with"] for o in here.packed().outcomes} == {company}
    profile._read.cache_clear()


def test_bench_profile_writes_the_profile_that_runs_here_go_by(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bench_profile, "CASES", {"dense": ((4, 0, 8), (8, 0, 8)), "front": ((8, 4, 4),)})
    monkeypatch.setattr(machine, "cores", lambda: 1)
    said = command("bench", "profile")
    path = profile.profile_path(torch.device("cpu"))
    assert said.returncode == 0
    assert f"written to {path}: runs on this machine go by it from now on" in said.stdout
    found = profile.profile_of(torch.device("cpu"))
    assert found is not None
    assert found.kind == path.stem
    assert [(row.layers, row.networks, row.threads) for row in found.as_one] == [
        *(("dense", count, 1) for count in (2, 4, 8)), *(("front", count, 1) for count in (2, 4, 8)),
    ]  # fmt: skip
    assert [len(row.work) for row in found.as_one] == [2, 2, 2, 1, 1, 1]
    assert all(0 < ratio < 20 for row in found.as_one for ratio in row.ratio)


WIDE = """
import numpy as np
from torch import nn
from torch.nn import functional as F
from tradewind import Data, Split

class Wide:
    metric = "validation_loss"
    defaults = {}

    def data(self, config):
        rng = np.random.default_rng(0)
        inputs = rng.standard_normal((288, 128)).astype(np.float32)
        targets = inputs[:, :5]
        return Data(*(Split(inputs[a:b], targets[a:b]) for a, b in ((0, 256), (256, 272), (272, 288))))

    def model(self, config):
        return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 5))

    def loss(self, outputs, targets, config):
        return F.mse_loss(outputs, targets)

    def scores(self, outputs, targets):
        return {}
"""


def test_what_else_runs_on_the_machine_decides_nothing(
    tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks of a size at which a step of all takes as long as one after the other: a clock decides by chance."""
    monkeypatch.setattr(profile, "PAYS", 0.9)
    content = {"name": "wide", "workload": "work:Wide", "space": {"learning_rate": RATES}}
    fixed = {"batch_size": 32, "epochs": 1}
    here = plan(tmp_path / "runs", Study.load(write_study({**content, "fixed": fixed}, WIDE)))
    found = [outcome_of(here) for _ in range(8)]
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        found += [outcome_of(here) for _ in range(8)]
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert found == found[:1] * 16


def outcome_of(plan: Plan) -> list[Any]:
    """What every trial of a pack ends with, to the bit, and in which form it trained."""
    packed = plan.packed()
    return [
        (
            outcome.facts["packed_with"],
            outcome.facts.get("execution"),
            outcome.last,
            outcome.scores,
            bits_of(packed, outcome.key),
        )
        for outcome in packed.outcomes
    ]


def bits_of(trained: Trained, key: str) -> bytes:
    return RunFolder(Path(trained.task.run_folder)).model(key).read_bytes()


@pytest.mark.parametrize("features", ["avx2", "avx512"])
@pytest.mark.parametrize(
    ("shape", "batch_size", "networks", "as_one"),
    [
        (profile.Shape("dense", 3400, 3400, 2), 32, 8, True),  # 64–92–10
        (profile.Shape("dense", 3400, 3400, 2), 32, 2, False),
        (profile.Shape("dense", 4e6, 4e6, 3), 128, 8, False),  # of 12 million weights
        (profile.Shape("convolution", 4_000, 300, 3), 32, 8, True),
        (profile.Shape("convolution", 5e5, 4_000, 4), 128, 8, False),
        (profile.Shape("front", 2e4, 800, 3), 32, 8, True),
        (profile.Shape("front", 5e6, 4_000, 4), 128, 8, False),
    ],
)
def test_small_networks_pay_as_one_on_common_cpus_and_large_ones_do_not(
    features: str, shape: profile.Shape, batch_size: int, networks: int, as_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "PAYS", 0.9)
    found = profile._read(profile.SHIPPED / f"x86-64-{features}.json")
    assert found is not None
    for threads in (1, 4):
        assert (found.why_apart(shape, batch_size, networks, threads) == "") is as_one


def test_the_profile_of_an_h200_says_what_was_measured_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "PAYS", 0.9)
    found = profile._read(profile.SHIPPED / "nvidia-h200.json")
    assert found is not None
    assert any(model in "NVIDIA H100 80GB HBM3" for model in found.models)
    storm = profile.Shape("convolution", 562_500, 4_700, 4)
    assert found.ratio(storm, 128, 64, 16) == pytest.approx(0.19, abs=0.01)
    assert found.ratio(storm, 1024, 64, 16) == pytest.approx(0.59, abs=0.01)
    assert not found.beside_pays([storm.total * 65_536] * 3)
    assert found.beside_pays([storm.total * 128, storm.total * 256, storm.total * 65_536])
    assert found.building_saves_s(storm, 1e6) == pytest.approx(3 * storm.total * 1e6 / 8e12)


# Networks of one's own: nothing but what the guide for workloads asks for.

ZOO = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tradewind import Data, Hyperparameter, Split

CALLS = 0

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
                                  nn.Dropout(0.3), nn.Conv2d(4, 4, 3, padding=1))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        return self.head((x + self.body(x)).mean((2, 3)))

class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.words((x.flatten(1) * 2 + 4).clamp(0, 8).long()).mean(1))

def channels():
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.Dropout2d(0.4), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))

def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 3))

def grouped():
    norm = nn.GroupNorm(2, 4)
    return nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3))

class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(32, 3), nn.Linear(32, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.large(x) + self.small(x) if len(x) >= 12 else self.small(x) - self.large(x)

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.back = nn.Linear(32, 32, bias=False), nn.Linear(32, 32)
        self.back.weight = self.into.weight
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.back(torch.tanh(self.into(x.flatten(1)))))

class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(32, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.two(F.dropout(F.relu(self.one(x.flatten(1))), 0.4, self.training))

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x.flatten(2).view(len(x), 4, 8))[0][:, -1])

class Asking(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        found = self.head(x.flatten(1))
        return found * 0.5 if found.abs().max().item() > 1.5 else found

class Cumulative(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(2, momentum=None), nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.norm(x).flatten(1))

class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x.flatten(2).view(len(x), 4, 8)).mean(1))

class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.fixed, self.head = nn.Linear(32, 8), nn.Linear(8, 3)
        self.fixed.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.fixed(x.flatten(1))))

class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.spare = nn.Linear(32, 3), nn.Linear(5, 5)

    def forward(self, x):
        return self.head(x.flatten(1))

class Averaging(nn.Module):
    '''Keeps a mean of what it saw, in a buffer that it sets anew.'''
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(32))
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.mean = 0.7 * self.mean + 0.3 * x.detach().mean(0)
        return self.head(x - self.mean)

class Counting(nn.Module):
    '''Warms up over its first steps, counted in Python.'''
    def __init__(self):
        super().__init__()
        self.head, self.steps = nn.Linear(32, 3), 0

    def forward(self, x):
        if self.training:
            self.steps += 1
        return self.head(x.flatten(1)) * min(1.0, self.steps / 5)

class Projecting(nn.Module):
    '''Its projection is drawn with its weights, and is neither parameter nor buffer.'''
    def __init__(self):
        super().__init__()
        self.order, self.head = torch.randperm(32), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(x.flatten(1)[:, self.order[:16]])

class Fleeting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 32), persistent=False)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(x.flatten(1) * self.scale)

def sharing():
    drop = nn.Dropout(0.4)
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 8), drop, nn.Linear(8, 8), drop, nn.Linear(8, 3))

class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.head = nn.Dropout(0.4), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.drop(x.flatten(2).view(len(x), 4, 8).transpose(0, 1)).mean(0))

class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.utils.parametrizations.weight_norm(nn.Linear(32, 8))
        self.two = nn.utils.parametrizations.orthogonal(nn.Linear(8, 3))

    def forward(self, x):
        return self.two(F.relu(self.one(x.flatten(1))))

class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.utils.parametrizations.spectral_norm(nn.Linear(32, 8)), nn.Linear(8, 3)

    def forward(self, x):
        return self.two(F.relu(self.one(x.flatten(1))))

class Moody(nn.Module):
    '''Its gradient depends on how often any network was called.'''
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        global CALLS
        CALLS += 1
        found = self.head(x.flatten(1))
        return found + (found - found.detach()) * (CALLS % 3)

KINDS = {
    "residual": Residual, "embedded": Embedded, "channels": channels, "dense": dense, "grouped": grouped,
    "branching": Branching, "tied": Tied, "functional": Functional, "recurrent": Recurrent, "asking": Asking,
    "cumulative": Cumulative, "attending": Attending, "frozen": Frozen, "unused": Unused, "averaging": Averaging,
    "counting": Counting, "projecting": Projecting, "fleeting": Fleeting, "sharing": sharing, "time first": TimeFirst,
    "weighted": Weighted, "spectral": Spectral, "moody": Moody,
}

class Zoo:
    metric = "validation_accuracy"
    defaults = {"kind": Hyperparameter("dense", str, choices=tuple(KINDS))}

    def data(self, config):
        rng = np.random.default_rng(config["data_seed"])
        inputs = rng.standard_normal((60, 2, 4, 4)).astype(np.float32)
        targets = inputs.reshape(60, 2, 16).sum(2).argmax(1) + (inputs[:, 0, 0, 0] > 1)
        return Data(*(Split(inputs[a:b], targets[a:b]) for a, b in ((0, 28), (28, 44), (44, 60))))

    def model(self, config):
        return KINDS[config["kind"]]()

    def loss(self, outputs, targets, config):
        return F.cross_entropy(outputs, targets)

    def scores(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).double().mean().item()}
"""
STACKED = ["residual", "embedded", "channels", "dense", "grouped", "branching", "tied", "fleeting"]
ODD = ["functional", "recurrent", "asking", "cumulative", "attending", "frozen", "unused", "averaging", "counting",
       "projecting", "sharing", "time first", "weighted", "spectral"]  # fmt: skip


def zoo(folder: Path, write_study: Write, kind: str, space: Mapping[str, Any], repeats: int = 1) -> Plan:
    """Trials of a network of one's own."""
    fixed = {"kind": kind, "batch_size": 12, "precision": "fp64", "optimizer": "adamw", "weight_decay": 0.1}
    fixed |= {} if "epochs" in space else {"epochs": 3}
    content = {"name": "zoo", "workload": "work:Zoo", "space": space, "fixed": fixed, "repeats": repeats}
    return plan(folder, Study.load(write_study(content, ZOO)))


def together(packed: Trained, said: str) -> bool:
    """Whether trials were trained as one; if not, the reason must have been said, once."""
    alone = said.count("networks one by one: ")
    assert alone <= 1
    assert not alone or said.partition("one by one: ")[2].splitlines()[0]
    return not alone and max(o.facts["packed_with"] for o in packed.outcomes) > 0


def assert_weights_load(plan: Plan, packed: Trained) -> None:
    """A fresh network takes the weights that a pack left."""
    for trial in plan.trials:
        target = find(packed.task.workload, Path(packed.task.study_folder))
        model = make(target, {}).model({**trial.config, "seed": trial.seed, "data_seed": trial.data_seed})
        model.double().load_state_dict(packed.weights(trial.key))


@pytest.mark.parametrize("kind", [*STACKED, *ODD])
def test_a_network_of_ones_own_is_packed_or_trained_one_by_one_and_always_as_alone(
    kind: str, tmp_path: Path, write_study: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    here = zoo(tmp_path, write_study, kind, {"learning_rate": [0.003, 0.03]}, repeats=2)
    plain = here.plain()
    assert {o.state for o in plain.outcomes} == {"done"}
    capsys.readouterr()
    packed = here.packed()
    as_one = together(packed, capsys.readouterr().out)
    assert as_one or kind in ODD
    assert_all_same(plain, packed)
    assert_weights_load(here, packed)


@pytest.mark.parametrize("kind", [*STACKED, *ODD])
def test_a_network_of_ones_own_is_read_off_on_the_way_as_alone(kind: str, tmp_path: Path, write_study: Write) -> None:
    here = zoo(tmp_path, write_study, kind, {"epochs": [1, 3]})
    packed = here.packed()
    assert_all_same(here.plain(), packed)
    assert_weights_load(here, packed)


def test_a_network_whose_gradient_is_another_in_the_stack_is_found_out(
    tmp_path: Path, write_study: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    here = zoo(tmp_path, write_study, "moody", {"learning_rate": [0.003, 0.03]})
    packed = here.packed()
    assert "networks one by one: head." in (said := capsys.readouterr().out)
    assert "its gradient: not the same in the stack as alone" in said
    assert {(o.state, o.facts["packed_with"]) for o in packed.outcomes} == {("done", 0)}


# What a user's hyperparameters may be.

OWN = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tradewind import Data, Hyperparameter, Split

class Slope(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope, self.one, self.two = slope, nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, x):
        return self.two(F.leaky_relu(self.one(x), self.slope)).squeeze(1)

FORWARDS = 0

class Tired(nn.Module):
    '''Runs out of memory in the middle of its training, once.'''
    def __init__(self, after):
        super().__init__()
        self.after, self.one = after, nn.Linear(4, 1)

    def forward(self, x):
        global FORWARDS
        FORWARDS += 1
        if FORWARDS == self.after:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.one(x).squeeze(1)

class Own:
    metric = "validation_loss"
    defaults = {
        "smoothing": Hyperparameter(0.0, float, stacks=True),
        "power": Hyperparameter(2, int, stacks=True),
        "slope": Hyperparameter(0.1, float, stacks=True),
        "tired_after": Hyperparameter(0, int),
    }

    def data(self, config):
        rng = np.random.default_rng(config["data_seed"])
        inputs = rng.standard_normal((80, 4)).astype(np.float32)
        targets = np.tanh(inputs.sum(1))
        return Data(*(Split(inputs[a:b], targets[a:b]) for a, b in ((0, 48), (48, 64), (64, 80))))

    def model(self, config):
        return Tired(config["tired_after"]) if config["tired_after"] else Slope(config["slope"])

    def loss(self, outputs, targets, config):
        return ((outputs - (1 - config["smoothing"]) * targets).abs() ** config["power"]).mean()

    def scores(self, outputs, targets):
        return {"error": (outputs - targets).abs().mean().item()}
"""


def own(folder: Path, write_study: Write, space: Mapping[str, Any], **fixed: Any) -> Plan:
    held = {"batch_size": 12, "precision": "fp64", "learning_rate": 0.01, "epochs": 3, **fixed}
    held = {name: value for name, value in held.items() if name not in space}
    content = {"name": "own", "workload": "work:Own", "space": space, "fixed": held}
    return plan(folder, Study.load(write_study(content, OWN, folder)))


@pytest.mark.parametrize("space", [
    {"smoothing": [0.0, 0.1, 0.5]}, {"power": [2, 4]}, {"slope": [0.1, 0.5]},
    {"slope": [0.1, 0.5], "smoothing": [0.0, 0.3], "power": [2, 3]},
], ids="-".join)  # fmt: skip
def test_hyperparameters_of_ones_own_that_stack_are_as_alone(
    space: dict[str, Any], tmp_path: Path, write_study: Write
) -> None:
    """A number in the loss, a whole number there, one that the network keeps: packed or not, never another's."""
    here = own(tmp_path, write_study, space)
    assert_all_same(here.plain(), here.packed())


@pytest.mark.parametrize("after", [1, 9, 14, 17])
def test_a_pack_that_runs_out_of_memory_is_halved_and_ends_as_alone(
    after: int, tmp_path: Path, write_study: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """At any moment: while it is tried out, in an epoch, at a test on the way."""
    space = {"learning_rate": [0.003, 0.01, 0.03], "epochs": [1, 2, 4]}
    patient = own(tmp_path / "patient", write_study, space, tired_after=1_000_000).plain()
    here = own(tmp_path / "tired", write_study, space, tired_after=after)
    packed = here.packed()
    assert after < sys.modules["work"].FORWARDS
    assert "one by one" not in capsys.readouterr().out
    assert max(o.facts["packed_with"] for o in packed.outcomes) > 2
    for trial, expected, found in zip(here.trials, patient.outcomes, packed.outcomes, strict=True):
        assert found.state == "done"
        assert found.facts["epochs_run"] == len(found.curve) == trial.config["epochs"]
        losses = [row["train_loss"] for row in found.curve]
        assert losses == pytest.approx([row["train_loss"] for row in expected.curve], abs=1e-9)
        assert found.scores == pytest.approx(expected.scores, abs=1e-9)


# The front door.


@pytest.mark.parametrize("kind", ["tied", "fleeting", "residual"])
def test_the_best_network_of_a_pack_is_made_again_from_its_weights(
    kind: str, tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where its code is
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "work", raising=False)
    fixed = {"kind": kind, "batch_size": 12, "precision": "fp64", "epochs": 2}
    content = {"name": "zoo", "workload": "work:Zoo", "space": {"learning_rate": [1e-4, 0.003, 0.03]}, "fixed": fixed}
    study = write_study(content, ZOO)
    best = tradewind.run(study, tmp_path / "run", engine="serial").best()
    assert best.record["packed_with"] == 2
    alone = plan(tmp_path, Study.load(study)).plain()
    expected = alone.weights(best.record["key"])
    for name, value in best.model().state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-8, atol=1e-9)


def test_on_a_slow_disk_a_test_takes_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(path: Path, *_: Any) -> None:
        time.sleep(0.5)

    monkeypatch.setattr(packs, "save_tensors", slow)
    monkeypatch.setattr(plain, "save_tensors", slow)
    trials = storms(tmp_path, {"learning_rate": [1e-3, 1e-2]}, epochs=1)
    for outcome in (*trials.packed().outcomes, *trials.plain().outcomes):
        assert outcome.times["test_s"] < 0.25


@pytest.mark.parametrize("short", [False, True], ids=["all at once", "one out of memory"])
def test_kinds_beside_each_other_tell_each_trial_once_and_what_is_short_of_memory_goes_on_later(
    short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, the streams left out: what is tested is who is told when."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(beside, "_stream", lambda _: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(profile.Profile, "beside_pays", lambda *_: True)
    monkeypatch.setattr(Steps, "captured", True)
    monkeypatch.setattr(member, "MOST_SHARE", 1e9)  # every epoch is kept
    trained, left = packs.PackTraining._epoch, [short]

    def epoch(self: packs.PackTraining, steps: Steps) -> None:
        if left[0] and (self.members[0].config["batch_size"], self.members[0].progress.epoch) == (8, 2):
            left[0] = False
            raise torch.OutOfMemoryError
        trained(self, steps)

    monkeypatch.setattr(packs.PackTraining, "_epoch", epoch)
    here = storms(tmp_path, {"batch_size": [6, 8, 12], "epochs": [1, 2, 3]})
    task, told = next(here.tasks), list[Outcome]()
    workload = make(find("storm", tmp_path), STORMS)
    data = workload.data({**here.trials[0].config, "seed": 0, "data_seed": 0})
    kinds = fitting._Fitting(workload, data, task, lambda *_: None, told.append, Remembered())
    kinds._fit_beside(kinds._groups(here.trials))
    assert len(told) == len(here.trials) - short
    for group in kinds._groups(here.trials):
        kinds._fit_group(group)
    assert Counter(outcome.key for outcome in told) == Counter(trial.key for trial in here.trials)
    assert sorted(outcome.facts["resumed_at_epoch"] for outcome in told) == [0] * 8 + [2 if short else 0]
    assert_all_same(here.plain(), Trained(task, list(kinds.outcomes.values())))
