"""Training: the plain loop, its checkpoints and schedules, and the weights that a run keeps."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

import tradewind
from tradewind.folder import RunFolder
from tradewind.machine import cores
from tradewind.noise import start_word
from tradewind.pack import Outcome, Pack, Report, Task, Trial
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import checkpoint, member, plain
from tradewind.train.ahead import Stored
from tradewind.train.batches import Samples, TrainingBatches, batches_of, epoch_order, prepared
from tradewind.train.dropout import Places, keyed, set_places
from tradewind.train.trainer import Trainer
from tradewind.workloads import storms
from tradewind.workloads.networks import StormNetwork
from tradewind.workloads.storm import Storm

TRADEWIND = Path(sys.executable).parent / "tradewind"
DATA = {"train": 256, "validation": 64, "test": 64}
CPU = torch.device("cpu")

Write = Callable[..., Path]
Cli = Callable[..., subprocess.CompletedProcess[str]]
Tensors = dict[str, torch.Tensor]


pytestmark = pytest.mark.usefixtures("one_thread")


def plan(folder: Path, stop: Mapping[str, Any] | None = None, **fixed: Any) -> tuple[Task, Trial]:
    """The only trial of a study of storms, and what its worker is told."""
    study = Study(name="training", workload="storm", data=DATA, fixed=fixed, stop=stop or {})
    trials = Trials(study)
    return trials.task(str(RunFolder.create(folder).path), threads=1), trials[0]


def fit(
    folder: Path, stop: Mapping[str, Any] | None = None, report: Report = lambda *_: None, **fixed: Any
) -> Outcome:
    """Train that trial in this process."""
    task, trial = plan(folder, stop, **fixed)
    (outcome,) = Trainer(task).fit(Pack((trial,)), report)
    return outcome


def test_storms_that_had_to_be_made_first_do_not_count_as_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*about: Any) -> Any:
        time.sleep(0.5)
        return made(*about)

    made = storms.make_storms
    monkeypatch.setattr(storms, "make_storms", slow)
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / "cache"))
    first, second = (fit(tmp_path / name, epochs=1).times for name in ("first", "second"))
    assert first["warmup_s"] >= 0.5
    for times in (first, second):
        assert times["data_s"] < 0.25
        assert times["wall_s"] == pytest.approx(times["data_s"] + times["train_s"] + times["test_s"])


def weights(folder: Path, outcome: Outcome) -> Tensors:
    return load_file(RunFolder(folder).model(outcome.key))


def assert_equal(one: Tensors, other: Tensors) -> None:
    """Bit for bit."""
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert torch.equal(one[name], other[name]), name


def without_times(curve: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name != "elapsed_s"} for row in curve]


# An interrupted trial.


class Cut(Exception):
    """Ends a trial in the middle, as a fault of the machine would."""


def cut_after(last: int) -> Report:
    """A report that lets so many epochs pass."""

    def report(key: str, epoch: int, scores: Mapping[str, float]) -> None:
        if epoch > last:
            raise Cut

    return report


@pytest.fixture
def every_epoch_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints whatever they cost; otherwise epochs as short as these are kept only now and then."""
    for module in (checkpoint, member):
        monkeypatch.setattr(module, "MOST_SHARE", 1e9)


OPTIONS = {
    "adam": {"optimizer": "adam", "schedule": "cosine"},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.01},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "augment": "live", "data_multiplier": 2},
    "kernels of our own": {"filters": [8, 16], "augment": "live"},
    "and momentum": {"filters": [8, 16], "optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.01},
}


@pytest.mark.usefixtures("every_epoch_kept")
@pytest.mark.parametrize("name", OPTIONS)
def test_a_trial_cut_after_its_third_epoch_ends_as_if_undisturbed(name: str, tmp_path: Path) -> None:
    options = {"dropout": 0.5, "epochs": 6, "batch_size": 64, "filters": [4, 8], **OPTIONS[name]}
    undisturbed = fit(tmp_path / "whole", **options)
    with pytest.raises(Cut):
        fit(tmp_path / "cut", report=cut_after(3), **options)
    assert not list((tmp_path / "cut" / "models").iterdir())
    torch.manual_seed(99)  # whatever this process did in between
    reported: list[int] = []
    continued = fit(tmp_path / "cut", report=lambda key, epoch, scores: reported.append(epoch), **options)
    assert reported == [4, 5, 6]
    assert continued.facts["resumed_at_epoch"] == 3
    assert continued.facts["epochs_run"] == len(continued.times["epoch_s"]) == 6
    assert_equal(weights(tmp_path / "cut", continued), weights(tmp_path / "whole", undisturbed))
    assert without_times(continued.curve) == without_times(undisturbed.curve)
    assert continued.scores == undisturbed.scores
    assert continued.facts["learning_rates"] == undisturbed.facts["learning_rates"]


@pytest.mark.usefixtures("every_epoch_kept")
def test_a_trial_cut_many_times_ends_as_if_undisturbed(tmp_path: Path) -> None:
    options = {"dropout": 0.5, "epochs": 5, "batch_size": 128, "filters": [4, 8]}
    undisturbed = fit(tmp_path / "whole", **options)
    for last in (1, 2, 2, 4):
        with pytest.raises(Cut):
            fit(tmp_path / "cut", report=cut_after(last), **options)
    continued = fit(tmp_path / "cut", **options)
    assert continued.facts["resumed_at_epoch"] == 4
    assert_equal(weights(tmp_path / "cut", continued), weights(tmp_path / "whole", undisturbed))


def test_a_trial_without_dropout_state_would_end_differently(tmp_path: Path) -> None:
    """That the random state matters at all, so that the tests above would see it lost."""
    one, other = (fit(tmp_path / str(p), dropout=p, epochs=1, batch_size=64) for p in (0.5, 0.0))
    assert one.last["train_loss"] != other.last["train_loss"]


def epoch_kept(path: Path) -> int:
    """The epoch of a checkpoint, 0 where there is none."""
    try:
        with safe_open(path, framework="pt") as file:
            return int(json.loads(file.metadata()["progress"])["epoch"])
    except (FileNotFoundError, SafetensorError):
        return 0


def test_a_run_killed_after_the_third_epoch_ends_as_if_undisturbed(
    tmp_path: Path, write_study: Write, cli: Cli
) -> None:
    optimizers = ["adam", "sgd"]
    fixed = {"dropout": 0.5, "epochs": 60, "batch_size": 64, "momentum": 0.9, "filters": [4, 8]}
    space = {"optimizer": optimizers}
    content = {"name": "killed", "workload": "storm", "data": DATA, "space": space, "fixed": fixed}
    path, run = write_study(content), tmp_path / "run"
    arguments = ["run", str(path), "--out", str(run), "--workers", str(cores()), "--quiet"]
    keys = [trial.key for trial in map(Trials(Study.load(path)).__getitem__, (0, 1))]
    job = subprocess.Popen([str(TRADEWIND), *arguments], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while max(epoch_kept(RunFolder(run).checkpoint(key)) for key in keys) < 3:
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    assert len(tradewind.Results.load(run)) == 0
    assert cli(*arguments).returncode == 0
    results = tradewind.Results.load(run)
    best = results.best()
    assert max(record["resumed_at_epoch"] for record in results.records()) >= 3
    for record, optimizer in zip(results.records(), optimizers, strict=True):
        undisturbed = fit(tmp_path / optimizer, optimizer=optimizer, **fixed)
        assert undisturbed.key == record["key"]
        assert without_times(results.curve(record["key"])) == without_times(undisturbed.curve)
        assert record["scores"] == undisturbed.scores
        if record["key"] == best.record["key"]:
            assert_equal(load_file(best.weights), weights(tmp_path / optimizer, undisturbed))
    assert not list(RunFolder(run).checkpoints.iterdir())


def damage(path: Path, how: str) -> None:
    """Spoil a checkpoint in one of several ways."""
    if how == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "garbage":
        path.write_bytes(os.urandom(5000))
    elif how == "foreign":
        save_file({"weight": torch.zeros(3)}, path)
    elif how == "of another network":
        tensors = load_file(path)
        tensors["model.layers.0.weight"] = torch.zeros(2, 3, 5, 5)
        with safe_open(path, framework="pt") as file:
            save_file(tensors, path, file.metadata())


@pytest.mark.usefixtures("every_epoch_kept")
@pytest.mark.parametrize("how", ["cut short", "empty", "garbage", "foreign", "of another network"])
def test_a_damaged_checkpoint_starts_a_trial_anew(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"epochs": 2, "batch_size": 128, "dropout": 0.5, "filters": [4, 8]}
    undisturbed = fit(tmp_path / "whole", **options)
    with pytest.raises(Cut):
        fit(tmp_path / "cut", report=cut_after(1), **options)
    damage(RunFolder(tmp_path / "cut").checkpoint(undisturbed.key), how)
    continued = fit(tmp_path / "cut", **options)
    assert continued.facts["resumed_at_epoch"] == 0
    assert "starting from the first epoch" in capsys.readouterr().err
    assert_equal(weights(tmp_path / "cut", continued), weights(tmp_path / "whole", undisturbed))


# The loop against one written by hand.


def by_hand(optimizer: Callable[[nn.Module], torch.optim.Optimizer], batch_size: int, dropout: float) -> nn.Module:
    """Two epochs of the storm network, as a newcomer would write them."""
    train = Storm(**DATA).data({"data_seed": 0}).train
    images, targets = torch.from_numpy(np.moveaxis(train.inputs, 1, -1)), torch.from_numpy(train.targets)
    torch.manual_seed(0)
    model = StormNetwork(dropout=dropout).to(memory_format=torch.channels_last)
    dropouts = keyed(model, 0)
    steps = optimizer(model)
    for epoch in (1, 2):
        for number, rows in enumerate(epoch_order(len(targets), 0, epoch).split(batch_size)):
            set_places(dropouts, Places(start_word(0, epoch), number * batch_size, len(rows)))
            steps.zero_grad()
            outputs = model(images[rows].movedim(-1, 1))
            loss = functional.binary_cross_entropy_with_logits(outputs, targets[rows], pos_weight=torch.ones(()))
            loss.backward()
            steps.step()
    return model


@pytest.mark.parametrize(
    ("options", "optimizer"),
    [
        ({"optimizer": "sgd"}, lambda m: torch.optim.SGD(m.parameters(), lr=0.01, fused=True)),
        (
            {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.01},
            lambda m: torch.optim.SGD(m.parameters(), lr=0.01, fused=True, momentum=0.9, weight_decay=0.01),
        ),
        ({"optimizer": "adam"}, lambda m: torch.optim.Adam(m.parameters(), lr=0.01, fused=True)),
        (
            {"optimizer": "adam", "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.01},
            lambda m: torch.optim.Adam(m.parameters(), lr=0.01, fused=True, betas=(0.8, 0.95), weight_decay=0.01),
        ),
        (
            {"optimizer": "adamw", "weight_decay": 0.1, "dropout": 0.4},
            lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, fused=True, weight_decay=0.1),
        ),
    ],
    ids=["sgd", "momentum", "adam", "betas", "adamw"],
)
def test_an_optimizer_takes_the_steps_of_a_loop_written_by_hand(
    options: dict[str, Any], optimizer: Callable[[nn.Module], torch.optim.Optimizer], tmp_path: Path
) -> None:
    """The plain loop's bit for bit; those of kernels of our own to rounding."""
    fixed = {"epochs": 2, "batch_size": 48, "learning_rate": 0.01, **options}
    task, trial = plan(tmp_path / "plain", **fixed)
    storm = Storm(**DATA)
    data = storm.data({**trial.config, "data_seed": 0})
    outcome = plain.train(trial, storm, data, task, lambda *_: None)
    expected = dict(by_hand(optimizer, 48, options.get("dropout", 0.0)).state_dict())
    assert_equal(weights(tmp_path / "plain", outcome), expected)
    ours = fit(tmp_path / "ours", **fixed)
    for row, its in zip(ours.curve, outcome.curve, strict=True):
        assert row["train_loss"] == pytest.approx(its["train_loss"], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "factors"),
    [
        ({"schedule": "constant"}, [1, 1, 1, 1, 1]),
        ({"schedule": "step", "step_epochs": 2, "step_factor": 0.5}, [1, 1, 0.5, 0.5, 0.25]),
        (
            {"schedule": "cosine"},
            [1, 0.9045084971874737, 0.6545084971874737, 0.34549150281252633, 0.09549150281252627],
        ),
    ],
    ids=["constant", "step", "cosine"],
)
def test_the_learning_rate_of_every_epoch_is_recorded(
    options: dict[str, Any], factors: list[float], tmp_path: Path
) -> None:
    outcome = fit(tmp_path, epochs=5, batch_size=256, learning_rate=0.004, **options)
    assert outcome.facts["learning_rates"] == pytest.approx([0.004 * f for f in factors], rel=1e-12)
    assert [row["learning_rate"] for row in outcome.curve] == outcome.facts["learning_rates"]


def test_a_schedule_sets_the_rate_that_the_steps_take(tmp_path: Path) -> None:
    """With factor 0 nothing moves after the drop."""
    common = {"batch_size": 256, "schedule": "step", "step_epochs": 2, "step_factor": 0.0}
    short, long = (fit(tmp_path / str(epochs), epochs=epochs, **common) for epochs in (2, 4))
    assert_equal(weights(tmp_path / "2", short), weights(tmp_path / "4", long))


# Batches.


def batches(folder: Path, **fixed: Any) -> tuple[TrainingBatches, float]:
    _, trial = plan(folder, **fixed)
    config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
    data = Storm(**DATA).data(config)
    split, times = prepared(data, config, torch.device("cpu"))
    samples = Samples.of(split, CPU, torch.float32)
    return batches_of(samples, isinstance(split, Stored), data, config), times["prepare_s"]


def whole_epoch(folder: Path, epoch: int, **fixed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    found, _ = batches(folder, **fixed)
    pieces = list(found.epoch(epoch))
    return torch.cat([batch.inputs for batch in pieces]), torch.cat([batch.targets for batch in pieces])


def test_live_augmentation_is_the_same_stream_whatever_the_batch_size(tmp_path: Path) -> None:
    inputs, targets = whole_epoch(tmp_path, 2, augment="live", batch_size=256)
    for batch_size in (1, 37, 128):
        other, labels = whole_epoch(tmp_path, 2, augment="live", batch_size=batch_size)
        torch.testing.assert_close(other, inputs, rtol=1e-5, atol=1e-5)
        assert torch.equal(labels, targets)


def test_live_augmentation_moves_every_sample_anew_in_every_epoch(tmp_path: Path) -> None:
    first, second = (whole_epoch(tmp_path, epoch, augment="live") for epoch in (1, 2))
    natural = whole_epoch(tmp_path, 1)
    assert torch.equal(first[1], natural[1])
    assert not any(torch.allclose(moved, still) for moved, still in zip(first[0], natural[0], strict=True))
    back = epoch_order(256, 0, 1).argsort(), epoch_order(256, 0, 2).argsort()
    assert not any(torch.allclose(a, b) for a, b in zip(first[0][back[0]], second[0][back[1]], strict=True))


@pytest.mark.parametrize("augment", ["none", "pre", "live"])
@pytest.mark.parametrize("multiplier", [1, 3])
def test_a_data_multiplier_shows_every_sample_that_many_times_an_epoch(
    augment: str, multiplier: int, tmp_path: Path
) -> None:
    found, _ = batches(tmp_path, augment=augment, data_multiplier=multiplier, batch_size=100)
    sizes = [len(batch.targets) for batch in found.epoch(1)]
    assert sum(sizes) == found.count == multiplier * 256
    assert sizes[:-1] == [100] * (len(sizes) - 1)
    shown = torch.cat([batch.targets for batch in found.epoch(1)]).sum()
    assert shown == multiplier * Storm(**DATA).data({"data_seed": 0}).train.targets.sum()


def test_copies_made_ahead_begin_with_the_natural_samples(tmp_path: Path) -> None:
    ahead, prepare_s = batches(tmp_path, augment="pre", data_multiplier=2)
    natural, none_s = batches(tmp_path)
    assert torch.equal(ahead.samples.rows(slice(0, 256)), natural.samples.rows(slice(0, 256)))
    assert not torch.allclose(ahead.samples.rows(slice(256, 512)), natural.samples.rows(slice(0, 256)))
    assert prepare_s > 0 == none_s
    assert (
        batches(tmp_path, augment="pre", data_multiplier=2)[1] == prepare_s
    )  # what it took, not what finding it took


@pytest.mark.parametrize("augment", ["pre", "live"])
def test_networks_learn_from_augmented_storms(augment: str, tmp_path: Path) -> None:
    outcome = fit(tmp_path, epochs=4, batch_size=32, data_multiplier=2, augment=augment)
    losses = [row["train_loss"] for row in outcome.curve]
    assert outcome.state == "done"
    assert losses[-1] < losses[0]
    assert (outcome.times["prepare_s"] > 0) == (augment == "pre")


# Times and endings.


def test_times_add_up(tmp_path: Path) -> None:
    outcome = fit(tmp_path, epochs=3, batch_size=64)
    times = outcome.times
    assert times["wall_s"] == pytest.approx(times["data_s"] + times["train_s"] + times["test_s"], rel=1e-12)
    assert len(times["epoch_s"]) == 3
    assert times["train_s"] == pytest.approx(sum(times["epoch_s"]), rel=1e-12)
    assert min(*times["epoch_s"], times["data_s"], times["test_s"], times["warmup_s"], times["validation_s"]) > 0
    elapsed = [row["elapsed_s"] for row in outcome.curve]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] == pytest.approx(times["train_s"] + times["validation_s"], rel=1e-9)
    assert "time_to_target_s" not in times


def test_the_curve_ends_with_what_the_record_calls_last(tmp_path: Path) -> None:
    outcome = fit(tmp_path, epochs=3, batch_size=64)
    assert [row["epoch"] for row in outcome.curve] == [1, 2, 3]
    assert {"train_loss", "validation_loss", "validation_auc"} <= outcome.last.keys()
    assert outcome.last.items() <= outcome.curve[-1].items()
    assert {"loss", "accuracy", "auc", "brier"} <= outcome.scores.keys()
    assert outcome.facts["parameters"] == 18_705


def test_a_network_that_reaches_its_target_is_done_and_knows_when(tmp_path: Path) -> None:
    outcome = fit(tmp_path, {"max_epochs": 9, "target": {"validation_loss": 100.0}}, batch_size=64)
    assert (outcome.state, outcome.reason, outcome.facts["epochs_run"]) == ("done", "target reached", 1)
    assert outcome.times["time_to_target_s"] == outcome.curve[0]["elapsed_s"]
    assert outcome.scores
    assert weights(tmp_path, outcome)


def test_a_network_that_misses_its_target_stops_after_max_epochs(tmp_path: Path) -> None:
    outcome = fit(tmp_path, {"max_epochs": 2, "target": {"validation_loss": 0.0}}, batch_size=128)
    assert (outcome.state, outcome.facts["epochs_run"]) == ("stopped", 2)
    assert outcome.reason == "max_epochs 2 without the target"
    assert "time_to_target_s" not in outcome.times
    assert not list((tmp_path / "models").iterdir())


def test_a_loss_that_is_not_finite_stops_a_network(tmp_path: Path) -> None:
    outcome = fit(tmp_path, epochs=5, batch_size=64, optimizer="sgd", learning_rate=1e30)
    assert (outcome.state, outcome.reason) == ("stopped", "loss not finite in epoch 1")
    assert not math.isfinite(outcome.last["train_loss"])
    assert outcome.scores == {}


# What a run keeps of its networks.

LINE = """
import numpy as np
import torch
from torch import nn
from tradewind import Data, Hyperparameter, Split

class Line:
    metric = "validation_skill"
    direction = "maximize"
    defaults = {
        "width": Hyperparameter(4, int, low=1),
        "silent": Hyperparameter("no", str, choices=("no", "nan", "absent")),
    }

    def __init__(self, samples: int = 100):
        self.samples = samples

    def data(self, config):
        rng = np.random.default_rng(config["data_seed"])
        inputs = rng.standard_normal((self.samples, 3)).astype(np.float32)
        targets = np.tanh(inputs @ np.array([1.0, -2.0, 0.5], np.float32))
        parts = [Split(i, t) for i, t in zip(np.split(inputs, [60, 80]), np.split(targets, [60, 80]))]
        return Data(*parts)

    def model(self, config):
        self.silent = config["silent"]
        width = config["width"]
        return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 1), nn.Flatten(0))

    def loss(self, outputs, targets, config):
        return nn.functional.mse_loss(outputs, targets)

    def scores(self, outputs, targets):
        skill = 1.0 - ((outputs - targets) ** 2).mean().item()
        if self.silent == "absent":
            return {}
        return {"skill": skill if self.silent == "no" else float("nan")}
"""
AGAIN = """
import json, sys, torch, tradewind
best = tradewind.Results.load(sys.argv[1]).best()
model, record = best.model(), best.record
sys.path.insert(0, sys.argv[2])
from work import Line
test = Line(**json.loads(sys.argv[3])).data({**record["config"], "data_seed": record["data_seed"]}).test
loss = torch.nn.functional.mse_loss(model(torch.from_numpy(test.inputs)), torch.from_numpy(test.targets)).item()
print(json.dumps({"loss": loss, "training": model.training, "width": model[0].out_features}))
"""
LINES = {
    "name": "lines",
    "workload": "work:Line",
    "data": {"samples": 120},
    "space": {"width": [1, 8], "learning_rate": [0.001, 0.1]},
    "fixed": {"epochs": 4, "batch_size": 20},
}


def kept(run: Path) -> list[str]:
    """The keys of the networks whose weights a run has kept."""
    return [path.stem for path in RunFolder(run).models.glob("*.safetensors")]


def test_a_network_of_ones_own_is_trained_kept_and_made_again_in_a_new_process(
    tmp_path: Path, write_study: Write, cli: Cli
) -> None:
    study, run = write_study(LINES, LINE, tmp_path / "mine"), tmp_path / "run"
    (tmp_path / "elsewhere").mkdir()
    ran = cli("run", study, "--out", run, "--workers", 1, cwd=tmp_path / "elsewhere")
    assert ran.returncode == 0, ran.stderr
    results = tradewind.Results.load(run)
    assert results.counts() == {"done": 4, "pruned": 0, "stopped": 0, "failed": 0}
    best = results.best()
    assert best.metric == "validation_skill"
    assert best.value == max(record["last"]["validation_skill"] for record in results.records())
    assert kept(run) == [best.record["key"]]

    saved = cli("best", run, "--save", tmp_path / "best.safetensors", "--json")
    assert json.loads(saved.stdout)["trial"] == best.record["trial"]
    assert_equal(load_file(tmp_path / "best.safetensors"), load_file(best.weights))

    arguments = [str(run), str(tmp_path / "mine"), json.dumps(LINES["data"])]
    made = subprocess.run(
        [sys.executable, "-c", AGAIN, *arguments],
        cwd=tmp_path / "mine",  # a run folder names no place to import code from: the caller stands there
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(made.stdout) == {
        "loss": best.record["scores"]["loss"],
        "training": False,
        "width": best.record["config"]["width"],
    }


@pytest.mark.usefixtures("every_epoch_kept")
def test_the_running_means_of_a_network_survive_an_interruption(tmp_path: Path, write_study: Write) -> None:
    study = write_study({**LINES, "workload": "work.py:Line", "space": {}}, LINE)
    trials = Trials(Study.load(study))
    for name, lasts in (("whole", []), ("cut", [3])):
        task = trials.task(str(RunFolder.create(tmp_path / name).path), threads=1)
        for last in lasts:
            with pytest.raises(Cut):
                Trainer(task).fit(Pack((trials[0],)), cut_after(last))
        (outcome,) = Trainer(task).fit(Pack((trials[0],)), lambda *_: None)
    assert outcome.facts["resumed_at_epoch"] == 3
    assert_equal(weights(tmp_path / "cut", outcome), weights(tmp_path / "whole", outcome))


def test_the_best_weights_stay_when_a_run_goes_on(tmp_path: Path, write_study: Write) -> None:
    content, run = {**LINES, "workload": "work.py:Line", "space": {"width": [8]}}, tmp_path / "run"
    for widths in ([8], [8, 1], [8, 1, 2, 16]):
        path = write_study({**content, "space": {"width": widths}}, LINE)
        best = tradewind.run(path, run, engine="serial").best()
        assert kept(run) == [best.record["key"]]
        assert best.value == max(r["last"]["validation_skill"] for r in tradewind.Results.load(run).records())


@pytest.mark.parametrize("silent", ["nan", "absent"])
@pytest.mark.parametrize("order", [["silent", "no"], ["no", "silent"]], ids=["first", "last"])
def test_a_network_without_a_value_of_the_metric_is_never_the_best(
    silent: str, order: list[str], tmp_path: Path, write_study: Write
) -> None:
    space = {"silent": [silent if name == "silent" else "no" for name in order]}
    path = write_study({**LINES, "workload": "work.py:Line", "space": space}, LINE)
    best = tradewind.run(path, tmp_path / "run", engine="serial").best()
    assert best.record["config"]["silent"] == "no"
    assert kept(tmp_path / "run") == [best.record["key"]]


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_the_best_network_reproduces_its_recorded_test_score(
    precision: str, tmp_path: Path, write_study: Write
) -> None:
    fixed = {"epochs": 2, "batch_size": 64, "precision": precision}
    content = {"name": "storms", "workload": "storm", "data": DATA, "space": {"kernel": [3, 5]}, "fixed": fixed}
    best = tradewind.run(write_study(content), tmp_path / "run", engine="serial").best()
    workload = Storm(**DATA)
    test = workload.data({"data_seed": 0}).test
    model = best.model()
    dtype = {"fp32": torch.float32, "fp64": torch.float64}[precision]
    assert {tensor.dtype for tensor in model.state_dict().values()} == {dtype}
    with torch.no_grad():
        outputs = model(torch.from_numpy(np.ascontiguousarray(test.inputs)).to(dtype))
    again = workload.scores(outputs, torch.from_numpy(test.targets))
    assert again["brier"] == pytest.approx(best.record["scores"]["brier"], rel=1e-5 if precision == "fp32" else 1e-12)
    assert again["auc"] == pytest.approx(best.record["scores"]["auc"], abs=1e-3)


TIE = """
import numpy as np
import torch
from torch import nn
from tradewind import Data, Hyperparameter, Split

class Tie:
    metric = "validation_accuracy"
    defaults = {"width": Hyperparameter(1, int)}

    def data(self, config):
        split = Split(np.ones((8, 2), np.float32), np.zeros(8, np.int64))
        return Data(split, split, split)

    def model(self, config):
        return nn.Linear(2, 2)

    def loss(self, outputs, targets, config):
        return nn.functional.cross_entropy(outputs, targets)

    def scores(self, outputs, targets):
        return {"accuracy": 1.0}
"""


def test_of_equally_good_trials_the_first_counts_and_keeps_its_weights(
    tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = {"name": "tie", "workload": "work:Tie", "space": {"width": [5, 3, 4, 1, 2]}, "purpose": "time"}
    path = write_study({**study, "fixed": {"epochs": 1}, "seed": 1}, TIE)
    results = tradewind.run(path, tmp_path / "run", engine="serial")
    order = np.argsort(results.column("finished"))
    assert order[0] != 0, "the random order of timing must not be the natural one"
    best = results.best()
    assert (best.record["trial"], best.record["config"]["width"]) == (0, 5)
    assert [file.stem for file in (tmp_path / "run" / "models").iterdir()] == [best.record["key"]]
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(best.model(), nn.Linear)
