"""Finds the front of a network that our own kernels can do, and puts them in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from tradewind.train.dropout import KeyedDropout
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


class Front(nn.Module):
    """The front of a network; its parameters stay where they were and are handed in."""

    def __init__(self, tower: Any) -> None:
        super().__init__()
        self._tower = tower

    def forward(self, x: torch.Tensor, *params: torch.Tensor) -> torch.Tensor:
        """What the convolutions give for a batch."""
        found: torch.Tensor = _Narrow.apply(x, self._tower, False, torch.is_grad_enabled(), *params)  # type: ignore[no-untyped-call]
        return found


def has_kernels(device: torch.device, precision: str) -> bool:
    """Whether kernels of our own compute like this. Not a question of time: a trial must end as it did before."""
    if device.type == "cpu":  # with more threads torch is the faster on small batches
        avx2 = torch.backends.cpu.get_cpu_capability() in {"AVX2", "AVX512"}
        return precision == "fp32" and avx2 and torch.get_num_threads() == 1
    return precision == "bf16" and triton_is_there()


@dataclass(frozen=True)
class _Found:
    """The front of a network in its graph."""

    graph: fx.Graph
    start: fx.Node
    end: fx.Node
    convolutions: list[str]
    pools: list[bool]
    nodes: list[fx.Node]


def fusable(model: nn.Module, device: str) -> bool:
    """Whether a network has a front that our kernels can do on such a device."""
    return _found(model, device) is not None


def fused(model: nn.Module, device: str) -> nn.Module | None:
    """The same network, on the same parameters, with our kernels at its front; None where they do not apply."""
    found = _found(model, device)
    if found is None:
        return None
    try:
        tower = _tower(device, tuple(found.pools))
    except Exception as error:  # no compiler, or one that fails: slower, but no reason not to train
        print(f"without kernels of our own: {type(error).__name__}: {error}".splitlines()[0])
        return None
    graph = found.graph
    with graph.inserting_after(found.end):
        params = []
        for name in found.convolutions:
            params += [graph.get_attr(f"{name}.weight"), graph.get_attr(f"{name}.bias")]
        front = graph.call_module("_front", (found.start, *params))
    found.end.replace_all_uses_with(front)
    for param in params:
        front.prepend(param)
    for old in reversed(found.nodes):
        graph.erase_node(old)
    model.add_module("_front", Front(tower))
    network = fx.GraphModule(model, graph)
    del model._front
    return network


def _found(model: nn.Module, device: str) -> _Found | None:
    tracer = _Tracer()
    try:
        graph = tracer.trace(model)
    except Exception:  # whatever a user's own module does that can't be traced, it is trained as it is
        return None
    finally:
        tracer.root = nn.Module()  # else the network would stay until garbage is collected
    modules = dict(model.named_modules())
    start = next(node for node in graph.nodes if node.op == "placeholder")
    node, names, pools, nodes = start, list[str](), list[bool](), list[fx.Node]()
    while (after := _single(node)) is not None and _convolution(modules, after, not names, device):
        relu = _single(after)
        if relu is None or not _is(modules, relu, nn.ReLU):
            break
        names.append(str(after.target))
        nodes += [after, relu]
        node, pool = relu, _single(relu)
        pools.append(pool is not None and _halves(modules, pool))
        if pools[-1] and pool is not None:
            node = pool
            nodes.append(pool)
    return _Found(graph, start, node, names, pools, nodes) if names else None


def _tower(device: str, pools: tuple[bool, ...]) -> Any:
    if device == "cpu":
        from tradewind.train.narrow.cpu_tower import CpuTower  # compiles as it is imported

        return CpuTower(pools)
    from tradewind.train.narrow.tower import Tower  # Triton is not everywhere

    return Tower(pools)


def _single(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _is(modules: dict[str, nn.Module], node: fx.Node, kind: type[nn.Module]) -> bool:
    return node.op == "call_module" and type(modules[str(node.target)]) is kind


def _convolution(modules: dict[str, nn.Module], node: fx.Node, first: bool, device: str) -> bool:
    if not _is(modules, node, nn.Conv2d):
        return False
    layer: Any = modules[str(node.target)]
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


def _halves(modules: dict[str, nn.Module], node: fx.Node) -> bool:
    if not _is(modules, node, nn.AvgPool2d):
        return False
    pool: Any = modules[str(node.target)]
    sizes = (pool.kernel_size, pool.stride)
    return all(size in (2, (2, 2)) for size in sizes) and pool.padding in (0, (0, 0)) and not pool.ceil_mode
