"""Training by gangs: the same network however many devices share a batch, and what sharing costs."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tradewind.errors import StudyError
from tradewind.folder import RunFolder
from tradewind.pack import SCALING, Gang, Outcome, Pack, Task, Trial
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train.optim import global_batch_size, learning_rate
from tradewind.train.parallel import group
from tradewind.train.parallel.parts import part_sizes, span
from tradewind.train.trainer import Trainer
from tradewind.workloads.storm import Storm

DATA = {"train": 70, "validation": 21, "test": 20}
SMALL = {"filters": [4, 4], "kernel": 3, "dropout": 0.3, "batch_size": 16, "epochs": 1, "device": "cpu"}
EXACT = {**SMALL, "precision": "fp64", "augment": "live", "positive_weight": 3.0}

Tensors = dict[str, torch.Tensor]
Answer = tuple[list[Outcome], list[int]]

NETWORKS = '''
import numpy as np
import torch
from torch import nn
from tradewind.workloads.contract import Data, Split

class Normed:
    """A network with both kinds of batch normalisation, and a parameter that nothing depends on."""

    defaults, metric = {}, "validation_loss"

    def data(self, config):
        rng = np.random.default_rng(0)
        inputs = rng.normal(size=(40, 2, 5, 5)).astype(np.float32)
        part = Split(inputs, inputs.mean(axis=(1, 2, 3)) + 1)
        return Data(part, part, part)

    def model(self, config):
        layers = [nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4), nn.BatchNorm1d(4)]
        model = nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(4, 1), nn.Flatten(0))
        model[0].idle = nn.Parameter(torch.ones(2))
        return model

    def loss(self, outputs, targets, config):
        return (outputs - targets).square().mean()

    def scores(self, outputs, targets):
        return {}

class Weighted(Normed):
    """Its loss is a mean weighted by the targets: of a batch, not of samples."""

    def loss(self, outputs, targets, config):
        weights = torch.where(targets > 1, 3.0, 1.0)
        return (weights * (outputs - targets).square()).sum() / weights.sum()

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.all = nn.ModuleList([nn.Linear(50, 1) for _ in range(2)])

    def forward(self, inputs):
        rows = inputs.flatten(1)
        outputs = rows.new_zeros(len(rows))
        for expert, mine in zip(self.all, (rows[:, 0] > 0, rows[:, 0] <= 0)):
            if mine.any():
                outputs = outputs.masked_scatter(mine, expert(rows[mine])[:, 0])
        return outputs

class Choosing(Normed):
    """A sample chooses which layer computes: in some batches, on some members, one of them does nothing."""

    def model(self, config):
        return Experts()

class OwnNorm(nn.BatchNorm1d):
    pass

class OddlyNormed(Normed):
    def model(self, config):
        return nn.Sequential(nn.Flatten(), nn.Linear(50, 4), OwnNorm(4), nn.Linear(4, 1), nn.Flatten(0))

class Changing(nn.Module):
    """Says 5 of everything when it is evaluated; its front is one of those that our kernels do."""

    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU())
        self.rest = nn.Sequential(nn.Dropout(0.2), nn.Flatten(), nn.Linear(200, 1), nn.Flatten(0))

    def forward(self, inputs):
        found = self.rest(self.front(inputs))
        return found if self.training else found * 0 + 5

class Evaluated(Normed):
    def model(self, config):
        return Changing()
'''


def serve(connection: Connection) -> None:
    """A worker as engines have them: one trainer per task, told what to do."""
    trainer: Any = None
    while True:
        word, content = connection.recv()
        try:
            if word == "task":
                trainer, answer = Trainer(content), None
            else:
                answer = trainer.meet() if word == "meet" else fit(trainer, content)
            connection.send(("ok", answer))
        except Exception as error:
            connection.send(("error", f"{type(error).__name__}: {error}"))


def fit(trainer: Trainer, pack: Pack) -> Answer:
    """The outcomes and the epochs that were reported."""
    reports: list[int] = []
    return trainer.fit(pack, lambda key, epoch, scores: reports.append(epoch)), reports


class Workers:
    """Four processes that form gangs of any size up to theirs."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(4)]
        self.ends = [ours for ours, _ in pairs]
        self.processes = [context.Process(target=serve, args=(theirs,), daemon=True) for _, theirs in pairs]
        for process in self.processes:
            process.start()

    def ask(self, of: int, word: str, contents: list[Any]) -> list[tuple[str, Any]]:
        """The answers of the first so many; none ends, or all must be heard."""
        for end, content in zip(self.ends[:of], contents, strict=True):
            end.send((word, content))
        for end in self.ends[:of]:
            assert end.poll(120), f"no answer to {word}"
        return [end.recv() for end in self.ends[:of]]

    def gang(self, of: int, task: Task) -> str:
        """A new gang; where it meets."""
        self.ask(of, "task", [task] * of)
        ((_, meeting),) = self.ask(1, "meet", [None])
        return str(meeting)

    def fit(self, trial: Trial, of: int, meeting: str) -> list[tuple[str, Any]]:
        """What every member says of a trial."""
        return self.ask(of, "fit", [Pack((trial,), Gang(rank, of, meeting)) for rank in range(of)])


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers()
    yield found
    for process in found.processes:
        process.kill()
        process.join()


@pytest.fixture(autouse=True)
def own_threads() -> Iterator[None]:
    """A trainer sets their number for its process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def plan(
    folder: Path, workload: str = "storm", stop: Mapping[str, Any] | None = None, **fixed: Any
) -> tuple[Task, Trial]:
    """The only trial of a study, and what its workers are told."""
    folder.mkdir(exist_ok=True)
    (folder / "networks.py").write_text(NETWORKS)
    data = DATA if workload == "storm" else {}
    study = {"name": "together", "workload": workload, "data": data, "fixed": fixed, "stop": stop or {}}
    (folder / "study.json").write_text(json.dumps(study))
    trials = Trials(Study.load(folder / "study.json"))
    return trials.task(str(RunFolder.create(folder / "run").path), threads=1), trials[0]


def weights(folder: Path, outcome: Outcome) -> Tensors:
    assert outcome.state == "done"
    return load_file(RunFolder(folder / "run").model(outcome.key))


def alone(folder: Path, workload: str = "storm", stop: Mapping[str, Any] | None = None, **fixed: Any) -> Outcome:
    """One process, by the plain loop."""
    task, trial = plan(folder, workload, stop, **fixed)
    (outcome,) = Trainer(task).fit(Pack((trial,)), lambda *_: None)
    return outcome


def together(
    workers: Workers, of: int, folder: Path, workload: str = "storm", stop: Mapping[str, Any] | None = None,
    **fixed: Any,
) -> list[Outcome]:  # fmt: skip
    """The outcomes of all members of a gang."""
    task, trial = plan(folder, workload, stop, devices=of, **fixed)
    answers = workers.fit(trial, of, workers.gang(of, task))
    assert [word for word, _ in answers] == ["ok"] * of, answers
    return [outcomes[0] for _, (outcomes, _) in answers]


def furthest(one: Tensors, other: Tensors) -> float:
    """The largest difference between two networks."""
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


# The same network.


@pytest.mark.parametrize("of", [2, 3, 4])
@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_devices_that_share_a_batch_train_the_network_of_one_device(
    parallel: str, of: int, workers: Workers, tmp_path: Path
) -> None:
    one = alone(tmp_path / "one", **EXACT)
    outcome, *others = together(workers, of, tmp_path / "more", parallel=parallel, **EXACT)
    assert furthest(weights(tmp_path / "one", one), weights(tmp_path / "more", outcome)) < 1e-10
    for found in (outcome, *others):
        assert found.last["train_loss"] == pytest.approx(one.last["train_loss"], rel=1e-10)
    assert outcome.last == pytest.approx(one.last, rel=1e-9)
    assert outcome.scores == pytest.approx(one.scores, rel=1e-9)


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_batches_with_fewer_samples_than_devices_train_the_same_network(
    parallel: str, workers: Workers, tmp_path: Path
) -> None:
    options = {**EXACT, "batch_size": 3, "optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9}
    one = alone(tmp_path / "one", **options)
    outcome, *_ = together(workers, 4, tmp_path / "four", parallel=parallel, **options)
    assert furthest(weights(tmp_path / "one", one), weights(tmp_path / "four", outcome)) < 1e-10


@pytest.mark.parametrize("of", [2, 3])
@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_batch_normalisation_sees_the_whole_batch(parallel: str, of: int, workers: Workers, tmp_path: Path) -> None:
    options = {"batch_size": 19, "epochs": 2, "precision": "fp64", "device": "cpu", "weight_decay": 0.1}
    one = alone(tmp_path / "one", "networks.py:Normed", **options)
    outcome, *_ = together(workers, of, tmp_path / "more", "networks.py:Normed", parallel=parallel, **options)
    before, after = weights(tmp_path / "one", one), weights(tmp_path / "more", outcome)
    assert {name for name in before if "running" in name} == {
        f"{k}.running_{v}" for k in "15" for v in ("mean", "var")
    }
    assert furthest(before, after) < 1e-10
    assert outcome.facts["exchanged"]["statistics"] > 0


def test_a_batch_of_one_sample_has_no_statistics_on_any_number_of_devices(workers: Workers, tmp_path: Path) -> None:
    options = {"batch_size": 39, "epochs": 1, "device": "cpu"}  # of 40 samples
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training") as told:
        alone(tmp_path / "one", "networks.py:Normed", **options)
    task, trial = plan(tmp_path / "two", "networks.py:Normed", devices=2, **options)
    assert workers.fit(trial, 2, workers.gang(2, task)) == [("error", f"ValueError: {told.value}")] * 2


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_layers_that_only_some_members_use_train_as_on_one_device(
    parallel: str, workers: Workers, tmp_path: Path
) -> None:
    options = {"batch_size": 4, "epochs": 2, "precision": "fp64", "device": "cpu", "weight_decay": 0.1}
    one = alone(tmp_path / "one", "networks.py:Choosing", **options)
    outcome, *_ = together(workers, 3, tmp_path / "more", "networks.py:Choosing", parallel=parallel, **options)
    assert furthest(weights(tmp_path / "one", one), weights(tmp_path / "more", outcome)) < 1e-10


def test_a_normalisation_that_can_not_be_shared_is_refused(workers: Workers, tmp_path: Path) -> None:
    options = {"batch_size": 19, "epochs": 1, "device": "cpu"}
    assert alone(tmp_path / "one", "networks.py:OddlyNormed", **options).state == "done"
    task, trial = plan(tmp_path / "two", "networks.py:OddlyNormed", devices=2, **options)
    for answer in workers.fit(trial, 2, workers.gang(2, task)):
        assert answer == (
            "error",
            "WorkloadError: devices: found several, and a network whose OwnNorm keeps statistics of batches in its "
            "own way; allowed: BatchNorm1d, BatchNorm2d, BatchNorm3d, or devices 1",
        )


@pytest.mark.parametrize("filters", [[4, 4], [8, 16]], ids=["torch", "kernels of our own"])
@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_the_gradients_of_a_step_agree_in_single_precision(
    parallel: str, filters: list[int], workers: Workers, tmp_path: Path
) -> None:
    # a rate so large that the weights after a step are the gradient: rounding hides none of it
    options = {**SMALL, "batch_size": 70, "optimizer": "sgd", "learning_rate": 2.0**20, "augment": "live"}
    options["filters"] = filters
    one = weights(tmp_path / "one", alone(tmp_path / "one", **options))
    outcome, *_ = together(workers, 3, tmp_path / "more", parallel=parallel, **options)
    three = weights(tmp_path / "more", outcome)
    for name in one:
        assert float((one[name] - three[name]).norm() / one[name].norm()) < 1e-5


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_a_member_without_samples_does_not_disturb_kernels_of_our_own(
    parallel: str, workers: Workers, tmp_path: Path
) -> None:
    options = {**SMALL, "filters": [8, 16], "batch_size": 3, "optimizer": "sgd", "learning_rate": 0.05}
    one = alone(tmp_path / "one", **options)
    outcome, *_ = together(workers, 4, tmp_path / "four", parallel=parallel, **options)
    assert furthest(weights(tmp_path / "one", one), weights(tmp_path / "four", outcome)) < 1e-5
    assert outcome.times["compile_s"] > 0


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_a_network_that_evaluates_otherwise_than_it_trains_is_scored_as_it_evaluates(
    parallel: str, workers: Workers, tmp_path: Path
) -> None:
    options = {"batch_size": 20, "epochs": 2, "device": "cpu"}
    one = alone(tmp_path / "one", "networks.py:Evaluated", **options)
    outcome, *_ = together(workers, 2, tmp_path / "two", "networks.py:Evaluated", parallel=parallel, **options)
    inputs = np.random.default_rng(0).normal(size=(40, 2, 5, 5)).astype(np.float32)  # as the workload draws them
    expected = np.square(4 - inputs.mean(axis=(1, 2, 3))).mean()
    for found in (one, outcome):
        assert found.times["compile_s"] > 0  # by our kernels
        assert found.scores["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_loss_that_is_no_mean_over_samples_is_refused_by_ddp_and_right_by_dp(
    workers: Workers, tmp_path: Path
) -> None:
    # Adam makes much of the rounding of gradients that are next to nothing
    options = {"batch_size": 19, "epochs": 1, "precision": "fp64", "device": "cpu", "optimizer": "sgd"}
    task, trial = plan(tmp_path / "ddp", "networks.py:Weighted", devices=2, parallel="ddp", **options)
    for word, what in workers.fit(trial, 2, workers.gang(2, task)):
        assert (word, what.split(" (")[0]) == (
            "error",
            "WorkloadError: parallel: found 'ddp', but the loss of Weighted is not the mean over samples",
        )
    one = alone(tmp_path / "one", "networks.py:Weighted", **options)
    outcome, *_ = together(workers, 2, tmp_path / "dp", "networks.py:Weighted", parallel="dp", **options)
    assert furthest(weights(tmp_path / "one", one), weights(tmp_path / "dp", outcome)) < 1e-12


def test_parts_are_contiguous_and_as_even_as_can_be() -> None:
    assert part_sizes(16, 3) == [6, 5, 5]
    assert part_sizes(2, 4) == [1, 1, 0, 0]
    assert [span(16, rank, 3) for rank in range(3)] == [slice(0, 6), slice(6, 11), slice(11, 16)]
    assert span(2, 3, 4) == slice(0, 1)


# Rules of scaling, worked by hand for B = 32, η = 0.1.

RATES = {  # on 4 devices, with a warm-up of 5 epochs: a line from 0.1 before epoch 1 to 0.4 after epoch 5
    "strong": (32, [0.1] * 7),
    "weak": (128, [0.1] * 7),
    "linear": (128, [0.4] * 7),
    "linear-warmup": (128, [0.1, 0.16, 0.22, 0.28, 0.34, 0.4, 0.4]),
    "sqrt": (128, [0.2] * 7),
}


def config(**values: Any) -> dict[str, Any]:
    plain = {"batch_size": 32, "learning_rate": 0.1, "schedule": "constant", "epochs": 7, "warmup_epochs": 5}
    return {**plain, "step_epochs": 3, "step_factor": 0.5, "devices": 4, **values}


@pytest.mark.parametrize("rule", RATES)
def test_a_rule_sets_the_batch_and_the_rate_of_every_epoch(rule: str) -> None:
    size, rates = RATES[rule]
    found = config(scaling=rule)
    assert global_batch_size(found) == size
    assert [learning_rate(found, epoch) for epoch in range(1, 8)] == pytest.approx(rates, rel=1e-12)


def test_every_rule_is_worked_by_hand() -> None:
    assert set(RATES) == set(SCALING)


@pytest.mark.parametrize("rule", RATES)
def test_one_device_trains_as_if_there_were_no_rule(rule: str) -> None:
    found = config(scaling=rule, devices=1)
    assert global_batch_size(found) == 32
    assert [learning_rate(found, epoch) for epoch in range(1, 8)] == [0.1] * 7


def test_a_schedule_acts_on_the_scaled_rate() -> None:
    steps = config(scaling="linear-warmup", warmup_epochs=2, schedule="step")  # 1, 2.5, 4, 4 … times 1, 1, 1, ½ …
    assert [learning_rate(steps, epoch) for epoch in range(1, 8)] == pytest.approx(
        [0.1, 0.25, 0.4, 0.2, 0.2, 0.2, 0.1], rel=1e-12
    )
    assert learning_rate(config(scaling="sqrt", schedule="cosine", epochs=4), 3) == pytest.approx(0.1, rel=1e-12)


def test_a_warm_up_of_no_epochs_is_none() -> None:
    assert learning_rate(config(scaling="linear-warmup", warmup_epochs=0), 1) == pytest.approx(0.4)


def test_weak_scaling_is_one_device_with_the_larger_batch_and_is_recorded(workers: Workers, tmp_path: Path) -> None:
    options = {**EXACT, "epochs": 2, "learning_rate": 0.002}
    one = alone(tmp_path / "one", **{**options, "batch_size": 32, "learning_rate": 0.004})
    outcome, *_ = together(workers, 2, tmp_path / "two", scaling="linear", **options)
    assert furthest(weights(tmp_path / "one", one), weights(tmp_path / "two", outcome)) < 1e-10
    assert (outcome.facts["devices"], outcome.facts["global_batch_size"]) == (2, 32)
    assert outcome.facts["learning_rates"] == [0.004, 0.004]
    assert [row["learning_rate"] for row in outcome.curve] == [0.004, 0.004]


# What sharing costs.


def test_dp_moves_the_model_twice_per_batch_and_device(workers: Workers, tmp_path: Path) -> None:
    of, batches, epochs = 3, 5, 2
    outcome, *_ = together(workers, of, tmp_path, parallel="dp", **{**SMALL, "epochs": epochs})
    model = 4 * outcome.facts["parameters"]
    exchanged = outcome.facts["exchanged"]
    assert exchanged["model"] == exchanged["gradients"] == (of - 1) * epochs * batches * model
    # of 70 samples in batches of 16, 16, 16, 16 and 6, the others get 10, 10, 10, 10 and 4
    assert exchanged["samples"] == 44 * epochs * (3 * 32 * 32 * 4 + 8)
    assert exchanged["outputs"] == 44 * epochs * 2 * 4
    assert outcome.facts["bytes_exchanged"] == sum(exchanged.values())
    assert sum(row["model_bytes"] for row in outcome.curve) == exchanged["model"]


def test_ddp_sends_the_gradients_around_a_ring(workers: Workers, tmp_path: Path) -> None:
    outcome, *_ = together(workers, 3, tmp_path, **SMALL)
    gradients = 4 * outcome.facts["parameters"]
    assert outcome.facts["exchanged"] == {"gradients": 5 * 3 * (2 * 2 / 3) * gradients}


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_a_record_tells_what_the_devices_did(parallel: str, workers: Workers, tmp_path: Path) -> None:
    outcome, *_ = together(workers, 2, tmp_path, parallel=parallel, **{**SMALL, "epochs": 3, "augment": "live"})
    facts, times = outcome.facts, outcome.times
    assert (facts["device"], facts["devices"], facts["stand_in"]) == ("cpu", 2, True)
    assert facts["execution"]["backend"] == parallel
    assert 0 < facts["communication_s"] < times["train_s"]
    assert 0 < facts["wait_s"] < times["train_s"]
    assert 0 < facts["utilisation"] < 2
    assert facts["communication_s"] == pytest.approx(sum(row["communication_s"] for row in outcome.curve))
    assert facts["peak_memory_bytes"] > 1e7
    assert len(times["epoch_s"]) == facts["epochs_run"] == 3
    assert times["test_samples_per_s"] == pytest.approx(DATA["test"] / times["test_s"])


# Endings.


@pytest.mark.parametrize("parallel", ["ddp", "dp"])
def test_all_members_stop_at_the_target(parallel: str, workers: Workers, tmp_path: Path) -> None:
    options = {**EXACT, "epochs": 6, "learning_rate": 0.01}
    curve = alone(tmp_path / "one", **options).curve
    goal = 1.000001 * curve[2]["train_loss"]
    at = next(k for k, row in enumerate(curve, 1) if row["train_loss"] <= goal)
    stop = {"target": {"train_loss": goal}}
    found = together(workers, 3, tmp_path / "three", stop=stop, parallel=parallel, **options)
    assert [(o.state, o.reason, o.facts["epochs_run"]) for o in found] == [("done", "target reached", at)] * 3
    assert found[0].times["time_to_target_s"] == pytest.approx(found[0].curve[-1]["elapsed_s"])


def test_all_members_stop_when_the_loss_is_not_finite_and_after_max_epochs(workers: Workers, tmp_path: Path) -> None:
    wild = {**SMALL, "epochs": 4, "learning_rate": 1e38, "optimizer": "sgd"}
    found = together(workers, 2, tmp_path / "wild", **wild)
    assert {(o.state, o.reason) for o in found} == {("stopped", f"loss not finite in epoch {len(found[0].curve)}")}
    found = together(workers, 2, tmp_path / "few", stop={"max_epochs": 2}, **{**SMALL, "epochs": 4})
    assert [(o.state, o.facts["epochs_run"]) for o in found] == [("stopped", 2)] * 2


def test_a_trial_paused_on_two_devices_goes_on_with_three_as_if_undisturbed(workers: Workers, tmp_path: Path) -> None:
    options = {**EXACT, "epochs": 4, "optimizer": "adamw", "weight_decay": 0.1, "schedule": "cosine"}
    one = alone(tmp_path / "one", **options)
    task, trial = plan(tmp_path / "more", devices=2, **options)
    answers = workers.fit(replace(trial, until=2), 2, workers.gang(2, task))
    assert [answer[0][0].state for _, answer in answers] == ["paused", "paused"]
    on_three = replace(trial, config={**trial.config, "devices": 3, "parallel": "dp"})
    answers = workers.fit(on_three, 3, workers.gang(3, task))
    (outcome,), reports = answers[0][1]
    assert reports == [3, 4]
    assert [answer[1] for _, answer in answers[1:]] == [[], []]
    assert (outcome.facts["resumed_at_epoch"], len(outcome.curve)) == (2, 4)
    assert furthest(weights(tmp_path / "one", one), weights(tmp_path / "more", outcome)) < 1e-10


def test_after_an_error_of_all_members_the_same_gang_trains_the_next(workers: Workers, tmp_path: Path) -> None:
    task, trial = plan(tmp_path, devices=3, **{**SMALL, "epochs": 2})
    meeting = workers.gang(3, task)
    bad = replace(trial, key="bad", config={**trial.config, "kernel": 2})
    for word, what in workers.fit(bad, 3, meeting):
        assert (word, what[:30]) == ("error", "WorkloadError: kernel: found 2")
    for _ in range(2):
        assert [word for word, _ in workers.fit(trial, 3, meeting)] == ["ok"] * 3


def test_members_that_fail_together_are_free_for_the_next_trial_every_time(workers: Workers, tmp_path: Path) -> None:
    """A group that ended while gloo freed a tensor took the interpreter with it, about once in twenty times."""
    options = {"batch_size": 39, "epochs": 1, "device": "cpu"}  # of 40 samples: the last batch has no statistics
    task, trial = plan(tmp_path, "networks.py:Normed", devices=3, **options)
    for _ in range(25):
        answers = workers.fit(trial, 3, workers.gang(3, task))
        assert [word for word, _ in answers] == ["error"] * 3


LEAVES = """
import time
from contextlib import suppress
from pathlib import Path
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tradewind.pack import Gang
from tradewind.train.parallel.group import Group, Meeting

def gloo():
    found = False
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread that has just ended
            found |= path.read_text().startswith("pt_gloo")
    return found

meeting = Meeting()
group = Group(Gang(0, 1, meeting.address), meeting)
network = DistributedDataParallel(nn.Linear(2, 1))
assert gloo()
del network
group.leave()
deadline = time.monotonic() + 10
while gloo():
    assert time.monotonic() < deadline, "the group and its connections are still there"
    time.sleep(0.001)  # so that the process exits while the group is just ending
"""


def test_a_group_that_is_left_ends_and_with_it_its_connections() -> None:
    """Torch imports a module when it first shares a network, and that kept whatever group was there for ever."""
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr


def test_a_trial_on_several_devices_is_refused_by_a_lone_worker(tmp_path: Path) -> None:
    task, trial = plan(tmp_path, devices=2, **SMALL)
    with pytest.raises(StudyError, match=r"devices: found 2, and 1 worker to train this trial; take the engine proc"):
        Trainer(task).fit(Pack((trial,)), lambda *_: None)


def test_parameters_are_those_of_the_workload(workers: Workers, tmp_path: Path) -> None:
    outcome, *_ = together(workers, 2, tmp_path, **SMALL)
    _, trial = plan(tmp_path / "other", **SMALL)
    model = Storm(**DATA).model(trial.config)
    assert outcome.facts["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_meeting_opens_though_the_name_of_its_host_leads_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "192.0.2.1")  # an address that nobody has
    began = time.monotonic()
    monkeypatch.setattr(group, "JOINING", timedelta(seconds=2))
    opened = group.Meeting()
    assert opened.address == f"127.0.0.1:{opened.store.port}"
    assert time.monotonic() - began < 2


def test_gloo_listens_where_the_meeting_is_reached_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(group.GLOO, raising=False)
    with group._gloo_towards("127.0.0.1"):
        assert os.environ[group.GLOO] == "lo"
    assert group.GLOO not in os.environ
    monkeypatch.setenv(group.GLOO, "theirs")
    with group._gloo_towards("127.0.0.1"):
        assert os.environ[group.GLOO] == "theirs"
    assert os.environ[group.GLOO] == "theirs"


def test_when_the_leader_dies_the_others_fail_at_once(workers: Workers, tmp_path: Path) -> None:
    """The last test: what it kills stays dead."""
    task, trial = plan(tmp_path, devices=3, **{**SMALL, "epochs": 100_000})
    meeting = workers.gang(3, task)
    for rank in range(3):
        workers.ends[rank].send(("fit", Pack((trial,), Gang(rank, 3, meeting))))
    checkpoint = RunFolder(tmp_path / "run").checkpoint(trial.key)
    until = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < until:
        time.sleep(0.05)
    workers.processes[0].kill()
    killed = time.monotonic()
    assert [end.poll(30) and end.recv()[0] for end in workers.ends[1:3]] == ["error", "error"]
    assert time.monotonic() - killed < 30
