"""Every Triton kernel against plain torch, without a GPU: Triton's interpreter runs them on tensors of the CPU.

It must be asked for before Triton is imported, and Triton is no part of the development environment, so these run in
a session of their own: PYTHONPATH=FOLDER TRITON_INTERPRET=1 pytest -m kernels tests/test_kernels.py, with Triton
installed by pip install --no-deps --target FOLDER triton==3.9.0. Speed and races can't be seen like this.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from test_augment import CASES as MOVES
from test_folding import Smooth
from test_narrow import Rounded, assert_exact, parameters, reference
from torch import nn
from torch.nn import functional

from tradewind.augment.affine import transform
from tradewind.bench.sweep_module import Residual
from tradewind.noise import signed, start_word
from tradewind.train.batches import Batch
from tradewind.train.narrow import fusing
from tradewind.train.stack import Stack
from tradewind.train.stacked import Stacked

if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs Triton on PYTHONPATH, and TRITON_INTERPRET=1", allow_module_level=True)

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("one_thread")]

CPU = torch.device("cpu")
BF16 = 2e-3  # of the norm: what is rounded at the same places differs by few roundings, of 2⁻⁹ of a value


@pytest.fixture(autouse=True)
def bf16_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.9's interpreter multiplies the bits of bf16 as whole numbers, and cuts where a GPU rounds."""
    from triton import language
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    product, cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def widened(value: Any) -> Any:
        if value.dtype.scalar != language.bfloat16:
            return value
        return TensorHandle((value.data.astype(np.uint32) << 16).view(np.float32), language.float32)

    def create_dot(self: Any, a: Any, b: Any, *more: Any) -> Any:
        return product(self, widened(a), widened(b), *more)

    def cast_impl(self: Any, value: Any, kind: Any) -> Any:
        if (value.dtype.scalar, kind.scalar) != (language.float32, language.bfloat16):
            return cast(self, value, kind)
        rounded = torch.from_numpy(np.ascontiguousarray(value.data)).bfloat16().view(torch.int16)
        return TensorHandle(rounded.numpy().view(np.uint16), language.bfloat16)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    monkeypatch.setattr(InterpreterBuilder, "cast_impl", cast_impl)


def coarse(value: torch.Tensor) -> torch.Tensor:
    """What bf16 keeps of a value, in float32: bf16 products kill some CPUs."""
    return value.bfloat16().float()


# Convolution, ReLU and pool of many networks on shared inputs.

FRONTS = [  # networks, samples, inputs, widths, sides of windows, pools: odd sizes, last tiles, one and many
    (3, 5, (2, 7, 9), (3, 4), (3, 5), (True, True)),
    (2, 3, (3, 7, 5), (3, 4), (3, 5), (False, False)),
    (1, 2, (3, 8, 8), (8, 16, 32), (5, 5, 5), (True, True, False)),
    (9, 2, (1, 10, 6), (12,), (3,), (True,)),
    (1, 3, (4, 8, 9), (6,), (7,), (False,)),
    (2, 1, (2, 2, 3), (17, 5), (1, 3), (False, True)),
]


@pytest.mark.parametrize(("m", "b", "shape", "widths", "sides", "pools"), FRONTS)
def test_fronts_and_their_gradients_are_those_of_torch(
    m: int, b: int, shape: Any, widths: Any, sides: Any, pools: Any
) -> None:
    from tradewind.train.narrow.tower import Tower

    torch.manual_seed(0)
    x, params = torch.randn(b, *shape), parameters(m, shape[0], widths, sides, CPU)
    tower = Tower(pools, torch.float32)
    for _ in range(2):  # what is kept from the first time must not be seen in the second
        outputs, kept = tower.forward(x, params, keeps=True)
        flow = torch.randn_like(outputs)
        gradients = tower.backward(flow, kept)
    unkept, _ = tower.forward(x, params, keeps=False)
    assert torch.equal(unkept, outputs)
    assert_exact(x, params, pools, outputs, flow, gradients)


@pytest.mark.parametrize(("m", "b", "shape", "widths", "sides", "pools"), FRONTS)
def test_fronts_in_bf16_are_those_of_float32_on_rounded_values(
    m: int, b: int, shape: Any, widths: Any, sides: Any, pools: Any
) -> None:
    from tradewind.train.narrow.tower import Tower

    torch.manual_seed(0)
    x, params = coarse(torch.randn(b, *shape)), parameters(m, shape[0], widths, sides, CPU)
    params = [value if value.ndim == 2 else coarse(value) for value in params]  # biases are kept in float32
    outputs, kept = (tower := Tower(pools)).forward(x, params, keeps=True)
    assert outputs.dtype == torch.bfloat16
    flow = coarse(torch.randn(outputs.shape))
    found = tower.backward(flow.bfloat16(), kept)
    for network in range(m):
        own = [value[network].clone().requires_grad_() for value in params]
        y = x
        for weight, bias, pool in zip(own[::2], own[1::2], pools, strict=True):
            y = Rounded.apply(reference(y, [weight, bias], [pool]))
        assert (outputs[network].float() - y).norm() <= BF16 * y.norm()
        for one, other in zip(torch.autograd.grad(y, own, flow[network]), found, strict=True):
            assert (one - other[network]).norm() <= BF16 * one.norm() + 1e-6


class Small(nn.Module):
    """A network whose front is that of the kernels, on a ReLU and a pool that it has but once."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu, self.pool, self.head = nn.ReLU(), nn.AvgPool2d(2), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.high(self.pool(self.relu(self.low(x))))))
        found: torch.Tensor = self.head(x.flatten(1))
        return found if self.training else found + 1


@pytest.mark.parametrize("networks", [1, 3])
def test_networks_with_the_front_of_a_gpu_are_what_they_are_alone(
    networks: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tradewind.train.narrow.tower import Tower

    monkeypatch.setattr(fusing, "_tower", lambda device, pools: Tower(pools, torch.float32))
    monkeypatch.setattr("tradewind.train.stack.has_kernels", lambda device, precision: True)
    torch.manual_seed(0)
    models: list[nn.Module] = [Small() for _ in range(networks)]
    stack = Stack(models, range(networks), Residual(), "fp32")
    batch = Batch(torch.randn(5, 3, 8, 8), torch.randint(10, (5,)), torch.arange(5), 0)
    stack.check(models, batch, [{}] * networks, {})
    assert stack.fuses
    assert capsys.readouterr().out == ""


# Convolutions of many networks, each over its own images.

CONVOLUTIONS = [  # networks, samples, channels in and out, size, kernel, stride, edge
    (3, 5, 16, 32, (9, 7), (3, 3), 2, 1),
    (2, 4, 8, 24, (8, 8), (1, 1), 2, 0),
    (2, 3, 40, 16, (6, 6), (5, 3), 1, 1),
    (5, 2, 9, 17, (5, 7), (3, 3), 3, 0),
    (1, 3, 8, 8, (1, 1), (1, 1), 1, 0),
]


@pytest.mark.parametrize(("m", "b", "c", "n", "size", "kernel", "stride", "edge"), CONVOLUTIONS)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 5e-6), (torch.bfloat16, BF16)], ids=["fp32", "bf16"])
def test_convolutions_of_stacks_are_those_of_torch(
    m: int, b: int, c: int, n: int, size: Any, kernel: Any, stride: int, edge: int, dtype: torch.dtype, close: float
) -> None:
    from tradewind.train.narrow.grouped import Grouped

    torch.manual_seed(0)
    x = torch.randn(b, m * c, *size).to(dtype).requires_grad_()
    weights = torch.randn(m, n, c, *kernel).to(dtype).requires_grad_()
    y = Grouped.apply(x, weights, stride, edge)
    plain = [value.detach().float().requires_grad_() for value in (x, weights)]
    expected = functional.conv2d(plain[0], plain[1].flatten(0, 1), None, stride, edge, groups=m)
    assert (y.shape, y.dtype) == (expected.shape, dtype)
    flow = torch.randn(y.shape).to(dtype)
    ours, theirs = torch.autograd.grad(y, (x, weights), flow), torch.autograd.grad(expected, plain, flow.float())
    for one, other in zip((y, *ours), (expected, *theirs), strict=True):
        assert (one.float() - other.to(dtype).float()).norm() <= close * other.norm()


def test_a_stack_that_leaves_its_convolutions_to_kernels_has_the_gradients_of_torch() -> None:
    torch.manual_seed(0)
    models: list[nn.Module] = [Smooth() for _ in range(2)]
    stack = Stack(models, range(2), Residual(), "fp32")
    batch = Batch(torch.randn(2, 3, 5, 5), torch.randint(10, (2,)), torch.arange(2), 0)
    config: dict[str, Any] = {}
    plain = stack.gradients(stack.losses(batch, config))
    stack.fold(batch, config)
    assert stack.folds
    found = stack.gradients(stack.losses(batch, config))
    for name, one in stack.split(plain).items():
        assert (one - stack.split(found)[name]).norm() <= 1e-4 * one.norm()


# Steps of optimisers.


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("length", [1, 1023, 1025, 2500])
@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_a_step_as_one_kernel_is_the_step_by_torch(kind: str, length: int, rows: int) -> None:
    torch.manual_seed(0)
    configs = [
        {"optimizer": kind, "momentum": 0.9, "weight_decay": decay, "beta1": 0.8, "beta2": 0.99}
        for decay in (0.0, 0.01, 0.1)[:rows]
    ]
    start, rates = torch.randn(rows, length), torch.tensor([[1e-3], [1e-2], [1e-1]])[:rows]
    fast, slow = start.clone(), start.clone()
    ours, theirs = Stacked(fast, configs), Stacked(slow, configs)
    assert not ours.fuses
    ours.fuses = True
    for _ in range(4):
        gradients = torch.randn_like(start)
        ours.step(fast, gradients, rates)
        theirs.step(slow, gradients.clone(), rates)
    assert (fast - slow).abs().max() <= 2e-6 * slow.abs().max()
    for name, state in theirs.state().items():
        assert (ours.state()[name] - state).abs().max() <= 2e-6 * state.abs().max()


# Augmentation.


def moved(stored: torch.Tensor, augmentation: Any, vectors: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch by the kernel, and by torch in float64; samples out of order, some twice."""
    from tradewind.augment import gpu

    generator = torch.Generator().manual_seed(3)
    rows, index = (torch.randint(0, high, (7,), generator=generator) for high in (len(stored), 1 << 40))
    word = torch.tensor([signed(start_word(-3, 4))])
    found = gpu.augmented_rows(stored, rows, index, word, augmentation, vectors)
    plain = transform(stored.double()[rows].movedim(-1, 1), index, 4, -3, augmentation, vectors)
    return found.movedim(-1, 1), plain


@pytest.mark.parametrize(("shape", "augmentation", "vectors"), MOVES)
def test_moves_are_those_of_torch(shape: tuple[int, int, int], augmentation: Any, vectors: Any) -> None:
    stored = torch.rand(5, *shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    found, plain = moved(stored, augmentation, vectors)
    torch.testing.assert_close(found.double(), plain, atol=2e-6 * max(shape[:2]) * 2, rtol=0)


def test_a_store_of_bf16_is_moved_as_its_values_in_float32() -> None:
    shape, augmentation, vectors = MOVES[0]
    stored = (torch.rand(5, *shape, generator=torch.Generator().manual_seed(1)) * 2 - 1).bfloat16()
    found, plain = moved(stored, augmentation, vectors)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), plain, atol=1e-5, rtol=2.0**-8)


def test_a_batch_of_no_samples_is_one() -> None:
    from tradewind.augment import gpu

    nothing, (_, augmentation, vectors) = torch.zeros(0, dtype=torch.int64), MOVES[0]
    word = torch.zeros(1, dtype=torch.int64)
    stored = torch.zeros(2, 6, 5, 3)
    assert gpu.augmented_rows(stored, nothing, nothing, word, augmentation, vectors).shape == (0, 6, 5, 3)
