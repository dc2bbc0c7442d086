"""The storm workload: its storms, their split, the network, the loss and the scores."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tradewind.errors import DataError, WorkloadError
from tradewind.workloads.cache import cached
from tradewind.workloads.contract import Workload
from tradewind.workloads.networks import StormNetwork
from tradewind.workloads.scores import binary_scores
from tradewind.workloads.storm import Storm
from tradewind.workloads.storms import make_storms, storms_cached

CONFIG: dict[str, Any] = {name: known.default for name, known in Storm.defaults.items()}
CONFIG |= {"seed": 0, "data_seed": 0}


@pytest.fixture(autouse=True, scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRADEWIND_CACHE", str(folder))
        yield folder


def area(targets: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> float:
    """The AUC as it is defined: how often an event has the higher value, a tie counting half."""
    difference = values[targets > 0.5][:, None] - values[targets < 0.5]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def parameters(network: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_the_default_network_has_18705_parameters() -> None:
    network = Storm().model(CONFIG)
    assert parameters(network) == 18_705
    assert network(torch.zeros(7, 3, 32, 32)).shape == (7,)
    assert [type(layer).__name__ for layer in network.layers] == [
        *("Conv2d", "ReLU", "AvgPool2d", "Conv2d", "ReLU", "AvgPool2d", "Conv2d", "ReLU", "Flatten", "Linear")
    ]


def test_every_option_of_the_network_does_what_it_says() -> None:
    network = StormNetwork([4, 6], 3, "gelu", "max", 0.5, channels=2, side=16)
    assert [type(layer).__name__ for layer in network.layers] == [
        *("Conv2d", "GELU", "MaxPool2d", "Conv2d", "GELU", "Dropout", "Flatten", "Linear")
    ]
    assert parameters(network) == (2 * 9 + 1) * 4 + (4 * 9 + 1) * 6 + 6 * 8 * 8 + 1
    assert network(torch.zeros(5, 2, 16, 16)).shape == (5,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filters": []}, r"filters: found \[\]; allowed: a list of whole numbers from 1"),
        ({"filters": [8, 0]}, "allowed: a list of whole numbers from 1"),
        ({"filters": [8] * 7}, "found 7 layers.* images of side 32 allow 6"),
        ({"kernel": 4}, "kernel: found 4; allowed: odd numbers"),
        ({"activation": "rely"}, "activation: found 'rely'; did you mean 'relu'"),
        ({"pool": "mean"}, "pool: found 'mean'; .*allowed: average, max"),
    ],
)
def test_a_network_that_cannot_be_says_why(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        StormNetwork(**options)


def test_a_storm_is_the_same_whatever_the_count() -> None:
    inputs, labels = make_storms(600, seed=3)
    fewer, fewer_labels = make_storms(300, seed=3)
    np.testing.assert_array_equal(inputs[:300], fewer)
    np.testing.assert_array_equal(labels[:300], fewer_labels)
    assert np.abs(make_storms(300, seed=4)[0] - fewer).max(axis=(1, 2, 3)).min() > 1


def test_stored_storms_are_mapped_and_made_once(cache_folder: Path) -> None:
    inputs, labels = storms_cached(40, 8)
    stored = sorted(cache_folder.glob("storms-8-40-*"))
    assert [path.name.split(".")[1] for path in stored] == ["inputs", "labels"]
    assert isinstance(inputs, np.memmap)
    made = [path.stat().st_mtime_ns for path in stored]
    again, _ = storms_cached(40, 8)
    assert [path.stat().st_mtime_ns for path in stored] == made
    np.testing.assert_array_equal(again, make_storms(40, 8)[0])
    np.testing.assert_array_equal(labels, make_storms(40, 8)[1])


@pytest.mark.parametrize("kept_bytes", [0, 50, 1000])
def test_a_file_cut_short_is_made_anew(cache_folder: Path, kept_bytes: int) -> None:
    def make() -> tuple[np.ndarray[Any, Any], ...]:
        return (np.arange(1000.0),)

    cached("cut", ["numbers"], make)
    path = cache_folder / "cut.numbers.npy"
    path.write_bytes(path.read_bytes()[:kept_bytes])
    np.testing.assert_array_equal(cached("cut", ["numbers"], make)[0], np.arange(1000.0))
    assert [file.name for file in cache_folder.glob("cut*")] == ["cut.numbers.npy"]


def test_processes_that_store_at_once_all_read_the_same(tmp_path: Path) -> None:
    program = (
        "from tradewind.workloads.storms import storms_cached;"
        "a, b = storms_cached(500, 1); print(float(a.sum(dtype='f8')), len(b))"
    )
    environment = os.environ | {"TRADEWIND_CACHE": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = {process.communicate(timeout=60)[0] for process in started}
    assert said == {f"{make_storms(500, 1)[0].sum(dtype='f8')} 500\n"}
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"data can't be kept there .*TRADEWIND_CACHE"):
        storms_cached(10, 0)


def test_the_split_is_disjoint_whole_and_drawn_by_the_data_seed() -> None:
    storm = Storm(train=300, validation=100, test=112)
    first, again = storm.data(CONFIG), storm.data(CONFIG)
    other = storm.data(CONFIG | {"data_seed": 1})
    assert first.validation is not None
    splits = (first.train, first.validation, first.test)
    assert [len(split) for split in splits] == [300, 100, 112]
    np.testing.assert_array_equal(first.train.inputs, again.train.inputs)
    assert not np.array_equal(first.train.targets, other.train.targets)
    # back in m/s, u names a storm: all 512 storms are there, each once
    u = np.concatenate([split.inputs[:, 1, 16, 16] for split in splits])
    everything = storms_cached(512, 0)[0][:, 16, 16, 1]
    scale = np.abs(everything).max() / np.abs(u).max()
    np.testing.assert_allclose(np.sort(u) * scale, np.sort(everything), rtol=1e-5, atol=1e-5)


def test_inputs_are_standardised_by_the_training_part_and_wind_stays_a_vector() -> None:
    data = Storm(train=700, validation=0, test=200).data(CONFIG)
    assert data.validation is None
    assert data.vectors == ((1, 2),)
    echo, wind = data.train.inputs[:, 0], data.train.inputs[:, 1:]
    assert echo.mean() == pytest.approx(0, abs=1e-4)
    assert echo.std() == pytest.approx(1, abs=1e-4)
    assert np.square(wind).mean() == pytest.approx(1, abs=1e-4)
    natural = storms_cached(900, 0)[0]
    kept = np.sort(np.random.default_rng(0).permutation(900)[:700])
    speed = np.sqrt(np.square(natural[kept][..., 1:]).mean(dtype=np.float64))
    # one scale for u and v, and calm stays 0
    np.testing.assert_allclose(np.moveaxis(wind, 1, 3) * speed, natural[kept][..., 1:], rtol=1e-5, atol=1e-5)


def test_torch_sees_channels_last_without_a_copy() -> None:
    inputs = Storm(train=64, validation=0, test=8).data(CONFIG).train.inputs
    assert inputs.shape == (64, 3, 32, 32)
    assert inputs.dtype == np.float32
    tensor = torch.from_numpy(inputs)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert tensor.data_ptr() == inputs.ctypes.data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "syntetic"}, "source: found 'syntetic'; did you mean 'synthetic'. allowed: files, synthetic"),
        ({"train": 0}, "train: found 0; allowed: whole numbers from 1"),
        ({"test": -1}, "test: found -1; allowed: whole numbers from 1"),
        ({"validation": -1}, "validation: found -1; allowed: whole numbers from 0"),
        ({"train": 10.5}, r"train: found 10\.5"),
        ({"train": True}, "train: found True"),
        ({"seed": -1}, "seed: found -1; allowed: whole numbers from 0"),
    ],
)
def test_data_that_cannot_be_says_what_is_allowed(data: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Storm(**data)


def test_the_defaults_are_allowed_by_themselves() -> None:
    workload: Workload = Storm()
    assert workload.metric == "validation_auc"
    assert {name: known.complaint(known.default) for name, known in workload.defaults.items()} == dict.fromkeys(
        ("filters", "kernel", "activation", "pool", "dropout", "positive_weight"), ""
    )


def test_the_loss_is_the_weighted_mean_cross_entropy() -> None:
    logits, targets = torch.tensor([0.3, -1.2, 2.0]), torch.tensor([1.0, 0.0, 1.0])
    p = torch.sigmoid(logits)
    expected = -(3.0 * p[0].log() + (1 - p[1]).log() + 3.0 * p[2].log()) / 3
    loss = Storm().loss(logits, targets, CONFIG | {"positive_weight": 3.0})
    torch.testing.assert_close(loss, expected)
    double = Storm().loss(logits.double(), targets.double(), CONFIG)
    assert double.dtype == torch.float64


@pytest.mark.parametrize("digits", [0, 1, 8])
def test_the_auc_with_ties_equals_the_share_of_ordered_pairs(digits: int) -> None:
    rng = np.random.default_rng(digits)
    targets = (rng.random(400) < 0.2).astype(np.float32)
    logits = np.round(rng.standard_normal(400) + targets, digits)
    scores = binary_scores(torch.from_numpy(logits), torch.from_numpy(targets))
    assert scores["auc"] == pytest.approx(area(targets, logits), abs=1e-12)
    probability = 1 / (1 + np.exp(-logits))
    assert scores["brier"] == pytest.approx(np.mean((probability - targets) ** 2), abs=1e-12)


def test_the_scores_of_a_small_forecast_are_those_counted_by_hand() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, -0.5, -1.0, -2.0, -3.0, 3.0])
    targets = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    brier = sum((1 / (1 + math.exp(-z)) - t) ** 2 for z, t in zip(logits.tolist(), targets.tolist(), strict=True)) / 8
    expected = {"accuracy": 6 / 8, "auc": 14 / 16, "brier": brier, "pod": 3 / 4, "far": 1 / 4, "csi": 3 / 5}
    assert binary_scores(logits, targets) == pytest.approx(expected)


def test_a_score_that_the_samples_leave_undefined_is_left_out() -> None:
    no, yes = torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 2.0])
    assert set(binary_scores(no, torch.zeros(2))) == {"accuracy", "brier"}
    assert set(binary_scores(no, torch.ones(2))) == {"accuracy", "brier", "pod", "csi"}
    assert set(binary_scores(yes, torch.zeros(2))) == {"accuracy", "brier", "far", "csi"}
    assert binary_scores(torch.tensor([float("nan"), 1.0]), torch.tensor([0.0, 1.0])) == {}


def test_importing_the_workload_imports_neither_torch_nor_numpy() -> None:
    program = "import sys, tradewind.workloads.storm; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.usefixtures("one_thread")
def test_a_little_training_tells_rotating_storms_from_others() -> None:
    workload = Storm(train=2000, validation=0, test=1000)
    data = workload.data(CONFIG)
    torch.manual_seed(0)
    network = workload.model(CONFIG).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    inputs, targets = torch.from_numpy(data.train.inputs), torch.from_numpy(data.train.targets)
    for _ in range(4):
        for batch in torch.randperm(2000).split(64):
            optimizer.zero_grad()
            workload.loss(network(inputs[batch]), targets[batch], CONFIG).backward()
            optimizer.step()
    with torch.no_grad():
        outputs = network(torch.from_numpy(data.test.inputs))
    scores = workload.scores(outputs, torch.from_numpy(data.test.targets))
    assert scores["auc"] > 0.8
    assert scores["brier"] < 0.08


@pytest.mark.gpu
def test_scores_and_loss_are_the_same_on_a_gpu() -> None:
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))
    targets = (logits + logits.flip(0) > 1).float()
    assert binary_scores(logits.cuda(), targets.cuda()) == pytest.approx(binary_scores(logits, targets))
    there = Storm().loss(logits.cuda(), targets.cuda(), CONFIG | {"positive_weight": 3.0}).cpu()
    torch.testing.assert_close(there, Storm().loss(logits, targets, CONFIG | {"positive_weight": 3.0}))
