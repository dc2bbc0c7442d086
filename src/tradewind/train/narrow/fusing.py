"""Finds the front of a network that our own kernels can do, and lets them do it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import fx, nn

from tradewind.train.dropout import KeyedDropout
from tradewind.train.random_states import RandomStates
from tradewind.train.stacked import triton_is_there

MOST_CHANNELS = 64  # wider convolutions are what the library's own kernels are made for
MOST_WINDOW = 256  # values of the first window: all of it is one piece of a product
LANES, MOST_SIDE = 8, 7  # on a CPU: channels come by eights, and torch is the faster with larger windows


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, KeyedDropout) or super().is_leaf_module(m, module_qualified_name)


class _Narrow(torch.autograd.Function):
    """Outputs of the front of every network; networks are stacked by vmap, the inputs are shared."""

    @staticmethod
    def forward(x: torch.Tensor, tower: Any, stacked: bool, keeps: bool, *params: torch.Tensor) -> torch.Tensor:
        if not stacked:
            params = tuple(value[None] for value in params)
        out, tower.kept = tower.forward(x, params, keeps)
        found: torch.Tensor = out if stacked else out[0]
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.tower, ctx.stacked = inputs[1], inputs[2]
        ctx.kept = ctx.tower.kept

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        found = ctx.tower.backward(gradient if ctx.stacked else gradient[None], ctx.kept)
        return None, None, None, None, *(found if ctx.stacked else [value[0] for value in found])

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, tower: Any, stacked: Any, keeps: Any, *params: Any) -> Any:
        assert in_dims[0] is None, "all networks see the same inputs"
        moved = [value.movedim(dim, 0) for value, dim in zip(params, in_dims[4:], strict=True)]
        return _Narrow.apply(x, tower, True, keeps, *moved), 0  # type: ignore[no-untyped-call]


class Front:
    """The front of a network, which our kernels do as one where it begins; the layers that follow let that pass.

    The network stays what it was: its parameters, its state, and all that is not of the front. `active` switches
    between our kernels and its own layers.
    """

    def __init__(self, tower: Any, length: int) -> None:
        self.active = True
        self._tower, self._length = tower, length
        self._at = 0
        self._out: torch.Tensor | None = None

    def begin(self, x: torch.Tensor, params: Sequence[torch.Tensor]) -> torch.Tensor:
        """What the whole front gives for a batch."""
        found: torch.Tensor = _Narrow.apply(x, self._tower, False, torch.is_grad_enabled(), *params)  # type: ignore[no-untyped-call]
        self._at, self._out = 1, found
        return found

    def passes(self, x: torch.Tensor, places: tuple[int, ...]) -> bool:
        """Whether this call is that of a layer of the front, at one of its places: a ReLU may be called elsewhere."""
        if not self.active or x is not self._out or self._at not in places:
            return False
        self._at += 1
        if self._at == self._length:
            self._out = None
        return True

    def end(self, *_: Any) -> None:
        """After a pass through the network, which must have called all layers of the front, as when it was traced."""
        if self._out is not None:
            self._out = None
            raise RuntimeError("the network called its first layers in another order than before")


class _Layer(nn.Module):
    """A layer of a front; mixed into the class that it had."""

    _front: Front
    _places: tuple[int, ...]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._front.passes(x, self._places):
            return x
        found: torch.Tensor = super().forward(x)
        return found


class _First(_Layer):
    """The convolution with which a front begins."""

    _others: tuple[nn.Module, ...]  # a tuple, so that they are not its children

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self._front.active:
            return super().forward(x)
        params: list[Any] = [value for layer in (self, *self._others) for value in (layer.weight, layer.bias)]
        return self._front.begin(x, params)


class _FirstConvolution(_First, nn.Conv2d):
    pass


class _Convolution(_Layer, nn.Conv2d):
    pass


class _ReLU(_Layer, nn.ReLU):
    pass


class _Pool(_Layer, nn.AvgPool2d):
    pass


_CLASSES: dict[type[nn.Module], type[_Layer]] = {nn.Conv2d: _Convolution, nn.ReLU: _ReLU, nn.AvgPool2d: _Pool}


def has_kernels(device: torch.device, precision: str) -> bool:
    """Whether kernels of our own compute like this. Not a question of time: a trial must end as it did before."""
    if device.type == "cpu":  # with more threads torch is the faster on small batches
        avx2 = torch.backends.cpu.get_cpu_capability() in {"AVX2", "AVX512"}
        return precision == "fp32" and avx2 and torch.get_num_threads() == 1
    return precision == "bf16" and triton_is_there()


@dataclass(frozen=True)
class _Block:
    """A convolution, a ReLU and perhaps a pool, by the names of the layers."""

    convolution: str
    relu: str
    pool: str = ""

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.convolution, self.relu, self.pool) if self.pool else (self.convolution, self.relu)


def fusable(model: nn.Module, device: str) -> bool:
    """Whether a network has a front that our kernels can do on such a device."""
    return bool(_found(model, device))


def fuse(model: nn.Module, device: str) -> Front | None:
    """Put our kernels at the front of a network, where they apply; on the same parameters, under the same names."""
    found = _found(model, device)
    if not found:
        return None
    try:
        tower = _tower(device, tuple(bool(block.pool) for block in found))
    except Exception as error:  # no compiler, or one that fails: slower, but no reason not to train
        print(f"without kernels of our own: {type(error).__name__}: {error}".splitlines()[0])
        return None
    layers: list[Any] = [model.get_submodule(name) for block in found for name in block.layers]
    front = Front(tower, len(layers))
    for layer in set(layers):
        layer.__class__ = _FirstConvolution if layer is layers[0] else _CLASSES[type(layer)]
        layer._front, layer._places = front, tuple(k for k, one in enumerate(layers) if one is layer)
    layers[0]._others = tuple(model.get_submodule(block.convolution) for block in found[1:])
    model.register_forward_hook(front.end)
    return front


def _found(model: nn.Module, device: str) -> list[_Block]:
    """The front of a network, as far as it is the same in training and in evaluation."""
    if not any(_convolution(layer, first=True, device=device) for layer in model.modules()):
        return []
    aside = copy.deepcopy(model)  # which tracing calls
    with RandomStates(torch.device(device)):
        ways = [_blocks(aside.train(training), device) for training in (True, False)]
    same = takewhile(lambda pair: pair[0] == pair[1], zip(*ways, strict=False))
    return [block for block, _ in same]


def _blocks(model: nn.Module, device: str) -> list[_Block]:
    tracer = _Tracer()
    try:
        graph = tracer.trace(model)
    except Exception:  # whatever a user's own module does that can't be traced, it is trained as it is
        return []
    finally:
        tracer.root = nn.Module()  # else the network would stay until garbage is collected
    modules = dict(model.named_modules())
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")

    def layer(node: fx.Node | None) -> nn.Module | None:
        return modules[str(node.target)] if node is not None and node.op == "call_module" else None

    node, found = next(node for node in graph.nodes if node.op == "placeholder"), list[_Block]()
    while (after := _single(node)) is not None and _convolution(layer(after), not found, device):
        relu = _single(after)
        if relu is None or not _is(layer(relu), nn.ReLU) or calls[after.target] > 1:
            break
        node, pool = relu, _single(relu)
        if pool is not None and _halves(layer(pool)):
            node = pool
        found.append(_Block(str(after.target), str(relu.target), str(pool.target) if node is pool else ""))
    return found


def _tower(device: str, pools: tuple[bool, ...]) -> Any:
    if device == "cpu":
        from tradewind.train.narrow.cpu_tower import CpuTower  # compiles as it is imported

        return CpuTower(pools)
    from tradewind.train.narrow.tower import Tower  # Triton is not everywhere

    return Tower(pools)


def _single(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _is(layer: nn.Module | None, kind: type[nn.Module]) -> bool:
    """Whether a layer is just that: hooks, as those of weight_norm, do something of their own."""
    return type(layer) is kind and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


def _convolution(layer: Any, first: bool, device: str) -> bool:
    if not _is(layer, nn.Conv2d):
        return False
    side = layer.kernel_size[0]
    return (
        layer.kernel_size == (side, side)
        and side % 2 == 1
        and layer.padding == (side // 2, side // 2)
        and layer.padding_mode == "zeros"
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.bias is not None
        and layer.weight.requires_grad
        and layer.out_channels <= MOST_CHANNELS
        and (device != "cpu" or (layer.out_channels % LANES == 0 and side <= MOST_SIDE))
        and ((side + 1) ** 2 * layer.in_channels <= MOST_WINDOW if first else layer.in_channels <= MOST_CHANNELS)
    )


def _halves(pool: Any) -> bool:
    if not _is(pool, nn.AvgPool2d):
        return False
    sizes = (pool.kernel_size, pool.stride)
    return all(size in (2, (2, 2)) for size in sizes) and pool.padding in (0, (0, 0)) and not pool.ceil_mode
