"""Norms and convolutions of stacked networks: what each network has alone, in any layout and type."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional

from tradewind.bench.sweep_module import Residual, ResidualNetwork
from tradewind.train.batches import Batch, Samples
from tradewind.train.folding import Folding
from tradewind.train.reference import CLOSE
from tradewind.train.stack import Differs, Stack, Unstackable

gpu = pytest.mark.gpu
SHAPES = {1: (6, 4), 2: (6, 4, 5, 3), 3: (6, 4, 2, 3, 2)}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def together(networks: list[nn.Module], x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """The outputs of networks for inputs that all see, and all that they hold in rows, as the outputs left it."""
    held = [{**dict(n.named_parameters()), **dict(n.named_buffers())} for n in networks]
    rows = {
        name: torch.stack([own[name].detach() for own in held]).requires_grad_(value.requires_grad)
        for name, value in held[0].items()
    }
    with Folding(None):
        return vmap(lambda state: functional_call(networks[0], state, (x,)))(rows), rows


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_norms_of_a_stack_are_those_of_each_network_alone(dims: int, training: bool, affine: bool) -> None:
    torch.manual_seed(0)
    norm = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dims]
    networks = [_randomised(nn.Sequential(norm(4, affine=affine), nn.Tanh(), norm(4))) for _ in range(3)]
    for network in networks:
        network.train(training)
    x = torch.randn(SHAPES[dims], dtype=torch.float64)
    for inputs in (x, x.contiguous(memory_format=LAST[x.ndim])) if dims > 1 else (x,):
        outputs, rows = together(networks, inputs)
        flow = torch.randn_like(outputs)
        trained = [name for name, value in rows.items() if value.requires_grad]
        gradients = torch.autograd.grad(outputs, [rows[name] for name in trained], flow)
        for number, network in enumerate(copy.deepcopy(networks)):
            alone = network(x)
            assert (outputs[number] - alone).abs().max() <= 1e-12
            found = torch.autograd.grad(alone, list(network.parameters()), flow[number])
            for one, other in zip(found, gradients, strict=True):
                assert (one - other[number]).abs().max() <= 1e-11
            for name, value in network.named_buffers():
                assert torch.allclose(rows[name][number].to(value.dtype), value, rtol=1e-12)


def test_a_norm_without_values_of_its_own_on_what_all_see_is_the_same_for_all() -> None:
    torch.manual_seed(0)
    layers = nn.BatchNorm2d(4, affine=False, track_running_stats=False), nn.Conv2d(4, 2, 1)
    networks = [_randomised(nn.Sequential(*copy.deepcopy(layers))) for _ in range(2)]
    x = torch.randn(SHAPES[2], dtype=torch.float64)
    outputs, rows = together(networks, x)
    (gradient,) = torch.autograd.grad(outputs.sum(), rows["1.weight"])
    for number, network in enumerate(networks):
        assert torch.allclose(outputs[number], network(x), rtol=1e-12)
        (alone,) = torch.autograd.grad(network(x).sum(), network[1].weight)  # type: ignore[union-attr, arg-type]
        assert torch.allclose(gradient[number], alone, rtol=1e-12)


LAYERS: list[tuple[type[nn.Module], dict[str, Any]]] = [
    (nn.Conv1d, {"kernel_size": 3}),
    (nn.Conv2d, {"kernel_size": (3, 1), "stride": (2, 1), "padding": (1, 0), "bias": False}),
    (nn.Conv2d, {"kernel_size": 3, "padding": "same", "dilation": 2}),
    (nn.Conv2d, {"kernel_size": 1, "groups": 2}),
    (nn.Conv3d, {"kernel_size": 2, "groups": 4}),
]


@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_convolutions_of_a_stack_are_those_of_each_network_alone(
    kind: type[nn.Module], options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    networks = [_randomised(nn.Sequential(kind(4, 4, **options), nn.Tanh(), kind(4, 8, **options))) for _ in range(3)]
    x = torch.randn(2, 4, *[7] * (networks[0][0].weight.ndim - 2), dtype=torch.float64)  # type: ignore[index]
    outputs, rows = together(networks, x)
    flow = torch.randn_like(outputs)
    gradients = torch.autograd.grad(outputs, list(rows.values()), flow)
    for number, network in enumerate(networks):
        alone = network(x)
        assert (outputs[number] - alone).abs().max() <= 1e-12
        for one, other in zip(
            torch.autograd.grad(alone, list(network.parameters()), flow[number]), gradients, strict=True
        ):
            assert (one - other[number]).abs().max() <= 1e-11


def test_what_differs_by_rounding_alone_is_no_reason_against_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    models: list[nn.Module] = [ResidualNetwork(4, 0.1) for _ in range(3)]
    batch = Batch(torch.randn(8, 3, 16, 16), torch.randint(10, (8,)), torch.arange(8), 0)
    configs: list[Any] = [{}] * 3
    monkeypatch.setitem(CLOSE, "fp32", 0.0)
    stack = Stack(models, range(3), Residual(), "fp32")
    with pytest.raises(Differs):
        stack._check(models, batch, configs, {})
    stack.check(models, batch, configs, {})


def test_a_prediction_leaves_no_trace() -> None:
    torch.manual_seed(0)
    stack = Stack([ResidualNetwork(4, 0.5) for _ in range(2)], range(2), Residual(), "fp32")
    samples = Samples(torch.randn(11, 3, 8, 8), torch.zeros(11), channels_last=False)
    before = {name: value.clone() for name, value in stack.buffers.items()}
    expected = stack.predict(samples, 4)
    assert all(torch.equal(before[name], value) for name, value in stack.buffers.items())
    assert torch.equal(stack.predict(samples, 4), expected)


CONVOLUTIONS = [  # networks, samples, channels in and out, size, kernel, stride, edge
    (32, 16, 16, 16, (32, 32), (3, 3), 1, 1),
    (3, 5, 16, 32, (9, 7), (3, 3), 2, 1),
    (2, 4, 8, 24, (8, 8), (1, 1), 2, 0),
    (2, 3, 40, 16, (6, 6), (5, 3), 1, 1),
    (5, 2, 128, 64, (7, 7), (3, 3), 3, 0),
]


@gpu
@pytest.mark.parametrize(("m", "b", "c", "n", "size", "kernel", "stride", "edge"), CONVOLUTIONS)
@pytest.mark.parametrize(
    ("dtype", "close"), [("ieee", 5e-6), ("tf32", 4e-3), (torch.bfloat16, 2e-2)], ids=["fp32", "tf32", "bf16"]
)
def test_convolutions_by_our_kernels_are_those_of_torch_in_float64(
    m: int, b: int, c: int, n: int, size: Any, kernel: Any, stride: int, edge: int, dtype: Any, close: float,
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from tradewind.train.narrow.grouped import Grouped

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", dtype == "tf32")
    kept = dtype if isinstance(dtype, torch.dtype) else torch.float32
    torch.manual_seed(0)
    x = torch.randn(b, m * c, *size, device=cuda, dtype=kept, requires_grad=True)
    weights = torch.randn(m, n, c, *kernel, device=cuda, dtype=kept, requires_grad=True)
    y = Grouped.apply(x, weights, stride, edge)
    exact = functional.conv2d(x.double(), weights.double().flatten(0, 1), None, stride, edge, groups=m)
    assert (y.shape, y.dtype) == (exact.shape, kept)
    flow = torch.randn_like(y)
    ours = torch.autograd.grad(y, (x, weights), flow)
    theirs = torch.autograd.grad(exact, (x, weights), flow.double())
    for one, other in zip((y, *ours), (exact, *theirs), strict=True):
        assert (one - other).norm() <= close * other.norm()


class Smooth(nn.Module):
    """A residual network without corners: what differs by rounding differs by little."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Tanh())
        self.body = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Tanh())
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        logits: torch.Tensor = self.head(torch.tanh(self.down(x + self.body(x))).mean((2, 3)))
        return logits


def gradients_of(stack: Stack, batch: Batch) -> list[torch.Tensor]:
    config: Any = {}
    return list(stack.split(stack.gradients(stack.losses(batch, config))).values())


@gpu
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("precision", "close"), [("fp32", 1e-5), ("tf32", 5e-3), ("bf16", 5e-2)])
def test_on_a_gpu_a_stack_has_the_gradients_of_each_network_in_float64(
    precision: str, close: float, last: bool, cuda: torch.device
) -> None:
    torch.manual_seed(0)
    workload, models = Residual(), [Smooth().to(cuda) for _ in range(4)]
    x, y = torch.randn(64, 3, 32, 32, device=cuda), torch.randint(10, (64,), device=cuda)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    batch, config = Batch(x, y, torch.arange(64, device=cuda), 0), dict[str, Any]()
    exact = [
        torch.autograd.grad(workload.loss(model(x.double()), y, config), list(model.parameters()))
        for model in [copy.deepcopy(model).double() for model in models]
    ]
    stack = Stack(models, range(4), workload, precision)
    assert stack.foldable == (precision != "fp32")
    found = [gradients_of(stack, batch)]
    if stack.foldable:
        buffers = {name: value.clone() for name, value in stack.buffers.items()}
        stack.fold(batch, config)
        assert stack.folds
        assert all(torch.equal(buffers[name], value) for name, value in stack.buffers.items())
        found.append(gradients_of(stack, batch))
    for gradients in found:
        for number, alone in enumerate(exact):
            for one, other in zip(alone, gradients, strict=True):
                assert (one - other[number]).norm() <= close * one.norm()


@gpu
def test_a_convolution_that_gives_something_else_is_left_to_torch(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tradewind.train.narrow import grouped

    right = grouped._weigh
    monkeypatch.setattr(grouped, "_weigh", lambda *about: right(*about) * 1.05)
    stack = Stack([Smooth().to(cuda) for _ in range(2)], range(2), Residual(), "bf16")
    x, y = torch.randn(8, 3, 16, 16, device=cuda), torch.zeros(8, dtype=torch.int64, device=cuda)
    with pytest.raises(Unstackable, match="that of weights differ"):
        stack.fold(Batch(x, y, torch.arange(8, device=cuda), 0), {})
    assert not stack.folds


@gpu
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_networks_whose_gradients_differ_by_rounding_are_trained_as_one(precision: str, cuda: torch.device) -> None:
    torch.manual_seed(0)
    models: list[nn.Module] = [ResidualNetwork(16, 0.1).to(cuda) for _ in range(4)]
    stack = Stack(models, range(4), Residual(), precision)
    x, y = torch.randn(64, 3, 32, 32, device=cuda), torch.randint(10, (64,), device=cuda)
    stack.check(models, Batch(x, y, torch.arange(64, device=cuda), 0), [{}] * 4, {})


def _randomised(network: nn.Module) -> nn.Module:
    """In float64, with values that differ from network to network."""
    network = network.double()
    with torch.no_grad():
        for value in [*network.parameters(), *network.buffers()]:
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.5)
    return network
