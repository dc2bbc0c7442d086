"""Kernels of our own: what torch gives, in every shape that they take, and the same networks in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from tradewind.folder import RunFolder
from tradewind.pack import Outcome, Pack
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import plain
from tradewind.train.narrow.layout import Layer, layers_of
from tradewind.train.stack import Stack
from tradewind.train.stacked import Stacked
from tradewind.train.trainer import Trainer
from tradewind.workloads.networks import StormNetwork
from tradewind.workloads.storm import Storm


def test_the_layers_of_the_storm_network_lie_in_memory_as_its_kernels_take_them() -> None:
    shapes = [value.shape for name, value in StormNetwork().named_parameters() if value.ndim == 4]
    low, middle, high = layers_of(32, 32, shapes, (True, True, False))
    assert low == Layer(3, 8, 5, True, 32, 32, first=True)
    assert (low.grid, middle.grid, high.grid) == ((16, 16), (8, 8), (4, 4))  # cells of 2 × 2
    assert (middle.frame, high.frame) == ((20, 20), (12, 12))
    assert (low.k, middle.k, high.k) == (36 * 3, 36 * 8, 36 * 16)
    assert (middle.kb, high.kb) == (36 * 16, 36 * 32)


def test_without_a_gpu_networks_are_trained_by_torch_alone() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    stack = Stack([StormNetwork(), StormNetwork()], [0, 1], Storm(train=8, validation=0, test=8), "bf16")
    assert not stack.fusable


gpu = pytest.mark.gpu
SHAPES = [
    (64, 128, (3, 32, 32), (8, 16, 32), (5, 5, 5), (True, True, False)),
    (1, 128, (3, 32, 32), (8, 16, 32), (5, 5, 5), (True, True, False)),
    (3, 5, (2, 7, 9), (3, 4), (3, 5), (True, True)),
    (2, 3, (3, 7, 5), (3, 4), (3, 5), (False, False)),
    (5, 17, (1, 28, 28), (12, 24, 64), (3, 3, 3), (True, False, True)),
    (2, 9, (4, 16, 16), (6,), (7,), (True,)),
]


def parameters(m: int, channels: int, widths: Any, sides: Any, device: torch.device) -> list[torch.Tensor]:
    found = []
    for width, side in zip(widths, sides, strict=True):
        found += [torch.randn(m, width, channels, side, side, device=device) / (channels * side * side) ** 0.5]
        found += [torch.randn(m, width, device=device) * 0.1]
        channels = width
    return found


def reference(x: torch.Tensor, params: list[torch.Tensor], pools: Any) -> torch.Tensor:
    for weight, bias, pool in zip(params[::2], params[1::2], pools, strict=True):
        x = F.relu(F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2))
        x = F.avg_pool2d(x, 2) if pool else x
    return x


def assert_exact(
    x: torch.Tensor, params: list[torch.Tensor], pools: Any, outputs: torch.Tensor, flow: torch.Tensor,
    gradients: list[torch.Tensor],
) -> None:  # fmt: skip
    """The outputs of every network, and the gradients of its parameters by this flow, are those of float64."""
    for network in range(len(outputs)):
        exact = [value[network].double().requires_grad_() for value in params]
        expected = reference(x.double(), exact, pools)
        assert (outputs[network] - expected).abs().max() <= 3e-6 * expected.abs().max()
        for one, other in zip(torch.autograd.grad(expected, exact, flow[network].double()), gradients, strict=True):
            assert (one - other[network]).abs().max() <= 2e-5 * one.abs().max()


@gpu
@pytest.mark.parametrize(("m", "b", "shape", "widths", "sides", "pools"), SHAPES)
def test_outputs_and_gradients_are_those_of_torch_in_float64(
    m: int, b: int, shape: Any, widths: Any, sides: Any, pools: Any, cuda: torch.device
) -> None:
    from tradewind.train.narrow.tower import Tower

    torch.manual_seed(0)
    x = torch.randn(b, *shape, device=cuda)
    params = parameters(m, shape[0], widths, sides, cuda)
    tower = Tower(pools, torch.float32)
    for _ in range(2):  # what is kept from the first time must not be seen in the second
        outputs, kept = tower.forward(x, params, keeps=True)
        flow = torch.randn_like(outputs)
        gradients = tower.backward(flow, kept)
    unkept, _ = tower.forward(x, params, keeps=False)
    assert torch.equal(unkept, outputs)
    assert_exact(x, params, pools, outputs, flow, gradients)


class Rounded(torch.autograd.Function):
    """Values as bf16 keeps them, on the way forth and back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.to(torch.bfloat16).to(gradient.dtype)


@gpu
@pytest.mark.parametrize(("m", "b", "shape", "widths", "sides", "pools"), SHAPES)
def test_in_bf16_they_are_those_of_float64_rounded_where_bf16_is_written(
    m: int, b: int, shape: Any, widths: Any, sides: Any, pools: Any, cuda: torch.device
) -> None:
    from tradewind.train.narrow.tower import Tower

    torch.manual_seed(0)
    x, params = torch.randn(b, *shape, device=cuda), parameters(m, shape[0], widths, sides, cuda)
    tower = Tower(pools)
    outputs, kept = tower.forward(x, params, keeps=True)
    flow = torch.randn_like(outputs)
    ours = tower.backward(flow, kept)
    for network in range(m):
        exact = [value[network].double().requires_grad_() for value in params]
        y = x.double()
        for weight, bias, pool in zip(exact[::2], exact[1::2], pools, strict=True):
            coarse = weight + (weight.bfloat16().double() - weight).detach()
            y = reference(Rounded.apply(y), [coarse, bias], [pool])
        pairs = zip(torch.autograd.grad(y, exact, flow[network].double()), ours, strict=True)
        for one, other in pairs:  # what lies next to a rounding or to zero may fall on the other side
            assert (one - other[network]).norm() <= 0.02 * one.norm()


@gpu
@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_a_step_as_one_kernel_is_the_step_by_torch(kind: str, cuda: torch.device) -> None:
    torch.manual_seed(0)
    configs = [
        {"optimizer": kind, "momentum": 0.9, "weight_decay": decay, "beta1": 0.8, "beta2": 0.99}
        for decay in (0.0, 0.01, 0.1)
    ]
    rows, rates = torch.randn(3, 5000, device=cuda), torch.tensor([[1e-3], [1e-2], [1e-1]], device=cuda)
    fast, slow = rows.clone(), rows.clone()
    ours, theirs = Stacked(fast, configs), Stacked(slow, configs)
    assert ours.fuses
    theirs.fuses = False
    for _ in range(5):
        gradients = torch.randn_like(rows)
        ours.step(fast, gradients, rates)
        theirs.step(slow, gradients.clone(), rates)
    assert (fast - slow).abs().max() <= 2e-6 * slow.abs().max()


class Odd(nn.Module):
    """A network whose front is ours and whose rest is not."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Conv2d(3, 6, 3, padding=1)
        self.high = nn.Conv2d(6, 5, 3, padding=1, stride=2)
        self.relu, self.drop = nn.ReLU(), nn.Dropout(0.2)
        self.rest = nn.Linear(5 * 16 * 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.relu(self.low(x))
        return self.rest(self.drop(torch.tanh(self.high(low))).flatten(1)).squeeze(1)


@gpu
def test_only_the_front_of_a_network_that_fits_is_replaced(cuda: torch.device) -> None:
    storm = Storm(train=8, validation=0, test=8)
    assert Stack([StormNetwork().to(cuda)], [0], storm, "bf16").fusable
    assert Stack([Odd().to(cuda)], [0], storm, "bf16").fusable
    assert not Stack([StormNetwork().to(cuda)], [0], storm, "fp32").fusable
    assert not Stack([nn.Sequential(nn.Flatten(), nn.Linear(3072, 1)).to(cuda)], [0], storm, "bf16").fusable


def fit(folder: Path, trials: Trials, alone: bool, threads: int = 2) -> list[Outcome]:
    task = trials.task(str(RunFolder.create(folder).path), threads=threads)
    chosen = [trials[k] for k in range(trials.size)]
    if not alone:
        return list(Trainer(task).fit(Pack(tuple(chosen)), lambda *_: None))
    storm = Storm(**trials.study.data)
    data = storm.data({**chosen[0].config, "seed": 0, "data_seed": 0})
    return [plain.train(trial, storm, data, task, lambda *_: None) for trial in chosen]


@gpu
def test_over_16_seeds_a_pack_by_our_kernels_scores_as_the_plain_loop_does(
    tmp_path: Path, cuda: torch.device
) -> None:
    """Stated: means within 3 standard errors of their difference, and no Kolmogorov–Smirnov distance beyond 1 %."""
    from scipy.stats import ks_2samp

    def scores(precision: str, alone: bool) -> np.ndarray[Any, Any]:
        study = Study(
            name="seeds", workload="storm", data={"train": 16_384, "validation": 0, "test": 8192}, repeats=16,
            space={"learning_rate": [1e-3]}, fixed={"device": "cuda", "epochs": 4, "precision": precision},
        )  # fmt: skip
        found = fit(tmp_path / precision, Trials(study), alone)
        assert all(outcome.facts["precision"] == precision for outcome in found)
        return np.array([outcome.scores["auc"] for outcome in found])

    packed, single = scores("bf16", alone=False), scores("fp32", alone=True)
    spread = np.sqrt(packed.var(ddof=1) / 16 + single.var(ddof=1) / 16)
    print(f"AUC packed {packed.mean():.4f} ± {packed.std():.4f}, plain {single.mean():.4f} ± {single.std():.4f}")
    assert abs(packed.mean() - single.mean()) <= 3 * spread
    assert ks_2samp(packed, single).pvalue > 0.01
