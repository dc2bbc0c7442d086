"""Kernels of our own on a CPU: what torch gives, in every shape that they take, and the same networks in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_narrow import Odd, assert_exact, fit, parameters, reference
from torch import nn

from tradewind.folder import RunFolder
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train.fitting import train_pack
from tradewind.train.narrow import fusing
from tradewind.train.narrow.cpu_tower import BLOCK, CpuTower
from tradewind.train.parallel.loop import made
from tradewind.train.parallel.meters import Tally
from tradewind.train.plain import load
from tradewind.train.stack import Stack
from tradewind.workloads.networks import StormNetwork
from tradewind.workloads.storm import Storm

CPU = torch.device("cpu")
SHAPES = [
    (3, 37, (3, 32, 32), (8, 16, 32), (5, 5, 5), (True, True, False)),
    (2, 5, (1, 28, 28), (24, 40), (3, 3), (True, False)),
    (1, 6, (3, 15, 13), (16, 8), (3, 5), (True, True)),  # odd sides: a pool leaves out a line
    (2, 3, (2, 9, 30), (8,), (7,), (False,)),
    (1, 4, (4, 3, 2), (8, 64), (1, 9), (False, True)),  # windows larger than the image
]


pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(
        torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"},
        reason="a CPU without AVX2 has no use for them",
    ),
]


@pytest.mark.parametrize(("m", "b", "shape", "widths", "sides", "pools"), SHAPES)
def test_outputs_and_gradients_are_those_of_torch_in_float64(
    m: int, b: int, shape: Any, widths: Any, sides: Any, pools: Any
) -> None:
    torch.manual_seed(0)
    x, params = torch.randn(b, *shape), parameters(m, shape[0], widths, sides, CPU)
    tower = CpuTower(pools)
    for size in (b, b - 1, b):  # what is kept from the first time must not be seen in the second
        outputs, kept = tower.forward(x[:size], params, keeps=True)
        flow = torch.randn_like(outputs)
        assert kept is not None
        gradients = tower.backward(flow, kept)
    assert_exact(x, params, pools, outputs, flow, gradients)


def test_what_is_not_kept_goes_in_blocks_and_is_the_same() -> None:
    torch.manual_seed(0)
    x, params = torch.randn(2 * BLOCK + 7, 3, 12, 12), parameters(2, 3, (8, 16), (3, 3), CPU)
    tower = CpuTower((True, False))
    whole, _ = tower.forward(x, params, keeps=True)
    blocks, kept = tower.forward(x, params, keeps=False)
    assert kept is None
    assert torch.equal(whole, blocks)


def test_a_way_back_belongs_to_the_last_way_forth() -> None:
    x, params = torch.randn(2, 1, 8, 8), parameters(1, 1, (8,), (3,), CPU)
    tower = CpuTower((False,))
    outputs, kept = tower.forward(x, params, keeps=True)
    tower.forward(x, params, keeps=True)
    assert kept is not None
    with pytest.raises(AssertionError, match="a way back for every way forth"):
        tower.backward(outputs, kept)


def test_what_is_not_a_number_stays_so() -> None:
    x, params = torch.randn(3, 3, 8, 8), parameters(1, 3, (8, 8), (3, 3), CPU)
    x[1, 0, 4, 4] = torch.nan
    outputs, _ = CpuTower((True, False)).forward(x, params, keeps=True)
    expected = reference(x, [value[0] for value in params], (True, False))
    assert torch.equal(outputs[0].isnan(), expected.isnan())
    assert outputs[0, 1].isnan().any()


class Eight(Odd):
    """The same odd network, with as many channels as lanes."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 5, 3, padding=1, stride=2)


def test_only_the_front_of_a_network_that_fits_is_replaced() -> None:
    storm = Storm(train=8, validation=0, test=8)
    assert Stack([StormNetwork()], [0], storm, "fp32").fusable
    assert Stack([Eight()], [0], storm, "fp32").fusable
    assert not Stack([Odd()], [0], storm, "fp32").fusable  # six channels are no multiple of eight
    assert not Stack([StormNetwork()], [0], storm, "fp64").fusable
    torch.set_num_threads(2)  # then torch's own are the faster on small batches
    assert not Stack([StormNetwork()], [0], storm, "fp32").fusable
    torch.set_num_threads(1)
    assert not Stack([nn.Sequential(nn.Flatten(), nn.Linear(3072, 1))], [0], storm, "fp32").fusable


def study(**changes: Any) -> Trials:
    fixed = {"device": "cpu", "epochs": 2, "batch_size": 64, "dropout": 0.2, "augment": "live"}
    data = {"train": 640, "validation": 128, "test": 128}  # 20 steps
    whole = {"name": "cpu", "workload": "storm", "data": data, "space": {"learning_rate": [1e-3]}, "fixed": fixed}
    return Trials(Study(**{**whole, **changes}))


@pytest.mark.parametrize(("purpose", "networks"), [("time", 1), ("tune", 1), ("tune", 3)])
def test_a_trial_by_our_kernels_is_the_plain_loops_within_1e_4(tmp_path: Path, purpose: str, networks: int) -> None:
    trials = study(purpose=purpose, repeats=networks)
    ours = fit(tmp_path / "ours", trials, alone=False, threads=1)
    expected = fit(tmp_path / "plain", trials, alone=True, threads=1)
    for one, other in zip(ours, expected, strict=True):
        assert one.facts["epochs_run"] == 2
        for row, its in zip(one.curve, other.curve, strict=True):
            for name in ("train_loss", "validation_loss"):
                assert row[name] == pytest.approx(its[name], abs=1e-4)
        assert one.scores["loss"] == pytest.approx(other.scores["loss"], abs=1e-4)
        assert 0 <= one.facts["wait_s"] <= one.times["train_s"]
        assert one.facts["utilisation"] > 0
        if one.facts["packed_with"] == 0:
            assert one.times["test_samples_per_s"] > 0
        assert one.facts.keys() - {"peak_memory_bytes", "unread"} == other.facts.keys()


def test_without_a_compiler_torch_trains_alone_and_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(device: str, pools: Any) -> Any:
        raise OSError("no LLVM here")

    expected = fit(tmp_path / "plain", study(), alone=True, threads=1)
    monkeypatch.setattr(fusing, "_tower", broken)
    (found,) = fit(tmp_path / "ours", study(), alone=False, threads=1)
    assert "without kernels of our own: OSError: no LLVM here" in capsys.readouterr().out
    assert found.scores["loss"] == pytest.approx(expected[0].scores["loss"], abs=1e-4)
    assert found.times["compile_s"] == 0


class Evaluated(nn.Module):
    """Says something of its own when it is evaluated; its front, shared ReLU and pool are ours."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu, self.pool, self.head = nn.ReLU(), nn.AvgPool2d(2), nn.Linear(8 * 8 * 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.high(self.pool(self.relu(self.low(x))))))
        found = self.head(self.relu(x).flatten(1)).squeeze(1)
        return found if self.training else found * 0 + 5


class EvaluatedStorm(Storm):
    def model(self, config: Any) -> nn.Module:
        return Evaluated()


@pytest.mark.parametrize("networks", [1, 3])
def test_a_network_that_evaluates_otherwise_than_it_trains_is_scored_as_it_evaluates(
    networks: int, tmp_path: Path
) -> None:
    """The loss of a logit of 5 for everything is known: no training leads to it."""
    trials = study(repeats=networks)
    workload = EvaluatedStorm(**trials.study.data)
    data = workload.data({**trials[0].config, "seed": 0, "data_seed": 0})
    task = trials.task(str(RunFolder.create(tmp_path / "run").path), threads=1)
    found = train_pack([trials[k] for k in range(networks)], workload, data, task, lambda *_: None)
    targets = torch.from_numpy(data.test.targets).float()
    expected = nn.functional.binary_cross_entropy_with_logits(torch.full_like(targets, 5.0), targets)
    for outcome in found.values():
        assert outcome.times["compile_s"] > 0  # by our kernels
        assert outcome.scores["loss"] == pytest.approx(expected.item(), rel=1e-6)


def wrong_in(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels give one per cent too much in training, or in evaluation."""
    right = CpuTower.forward

    def forward(self: CpuTower, x: torch.Tensor, params: Any, keeps: bool) -> Any:
        out, kept = right(self, x, params, keeps)
        return (out * 1.01 if keeps == training else out), kept

    monkeypatch.setattr(CpuTower, "forward", forward)


WRONG = [(True, "the outputs of a step"), (False, "the outputs of an evaluation")]


@pytest.mark.parametrize("networks", [1, 3])
@pytest.mark.parametrize(("training", "what"), WRONG)
def test_kernels_that_give_something_else_are_found_out_and_left(
    training: bool, what: str, networks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    wrong_in(training, monkeypatch)
    trials = study(repeats=networks)
    ours = fit(tmp_path / "ours", trials, alone=False, threads=1)
    assert f"without kernels of our own: {what}: not the same" in capsys.readouterr().out
    for one, other in zip(ours, fit(tmp_path / "plain", trials, alone=True, threads=1), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


@pytest.mark.parametrize(("training", "what"), WRONG)
def test_kernels_that_give_something_else_are_found_out_by_a_member_of_a_group(
    training: bool, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = study()
    config = {**trials[0].config, "seed": 0, "data_seed": 0}
    workload = Storm(**trials.study.data)
    sets = load(workload.data(config), config, CPU, torch.float32)
    replica = made(0, workload, config, sets, Tally(CPU))
    assert replica.difference(sets.train) == ""
    wrong_in(training, monkeypatch)
    assert replica.difference(sets.train) == what
