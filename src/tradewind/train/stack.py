"""Networks of one kind as one: parameters stacked in rows, one forward pass for all, a gradient for each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from tradewind.pack import Config
from tradewind.train.batches import Batch, Samples
from tradewind.train.dropout import KeyedDropout, keyed, set_samples
from tradewind.train.precision import computing
from tradewind.workloads.contract import Workload

# a gradient in the stack and alone may differ by this share of its largest element
CLOSE = {"fp64": 1e-9, "fp32": 2e-3, "tf32": 2e-2, "bf16": 1e-1}


class Unstackable(Exception):
    """Why networks can't be trained as one."""


class Stack:
    """Row m of `rows` holds all parameters of network m, and row m of every buffer its buffers."""

    def __init__(self, models: Sequence[nn.Module], seeds: Sequence[int], workload: Workload, precision: str) -> None:
        self._workload, self._precision = workload, precision
        layers = [keyed(model, seed) for model, seed in zip(models, seeds, strict=True)]
        parameters = [dict(model.named_parameters()) for model in models]
        buffers = [dict(model.named_buffers()) for model in models]
        self._shapes = {name: value.shape for name, value in parameters[0].items()}
        if any({name: value.shape for name, value in own.items()} != self._shapes for own in parameters):
            raise Unstackable("the networks differ in their parameters")
        if any(len(own) != len(layers[0]) for own in layers):
            raise Unstackable("the networks differ in their dropout layers")
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self.rows = torch.stack(
            [torch.cat([value.detach().reshape(-1) for value in own.values()]) for own in parameters]
        ).requires_grad_()
        self.buffers = {name: torch.stack([own[name] for own in buffers]) for name in buffers[0]}
        device, dtype = self.rows.device, self.rows.dtype
        self._words = torch.tensor([[layer.seed for layer in own] for own in layers], device=device)
        self._rates = torch.tensor([[layer.rate for layer in own] for own in layers], dtype=dtype, device=device)
        self._model = copy.deepcopy(models[0])
        self._layers = [layer for layer in self._model.modules() if isinstance(layer, KeyedDropout)]

    def __len__(self) -> int:
        return len(self.rows)

    def losses(self, batch: Batch, config: Config) -> torch.Tensor:
        """The loss of every network on a batch; the config holds a column wherever theirs differ."""
        self._model.train()
        set_samples(self._layers, batch.words)
        columns = {name: value for name, value in config.items() if isinstance(value, torch.Tensor)}

        def loss(outputs: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
            own = {name: value[row] for name, value in columns.items()}
            return self._workload.loss(outputs, batch.targets, {**config, **own})

        numbers = torch.arange(len(self), device=self.rows.device)
        losses: torch.Tensor = vmap(loss)(self._outputs(batch.inputs), numbers)
        return losses

    @torch.no_grad()
    def predict(self, samples: Samples, batch: int) -> torch.Tensor:
        """The outputs of every network for a whole split, (networks, samples, …)."""
        self._model.eval()
        pieces = [self._outputs(samples.rows(slice(k, k + batch))) for k in range(0, len(samples), batch)]
        return torch.cat(pieces, dim=1)

    def keep(self, numbers: Sequence[int]) -> None:
        """Go on with these networks only."""
        rows = torch.tensor(numbers, device=self.rows.device)
        self.rows = self.rows.detach()[rows].requires_grad_()
        self.buffers = {name: value[rows] for name, value in self.buffers.items()}
        self._words, self._rates = self._words[rows], self._rates[rows]

    def state(self, number: int) -> dict[str, torch.Tensor]:
        """The parameters and buffers of one network."""
        own = {name: value[number].detach() for name, value in self._parameters().items()}
        return {**own, **{name: value[number] for name, value in self.buffers.items()}}

    @torch.no_grad()
    def load(self, number: int, state: dict[str, torch.Tensor]) -> None:
        """Set one network to a state."""
        for name, value in {**self._parameters(), **self.buffers}.items():
            value[number].copy_(state[name])

    def split(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """What lies in rows as the parameters do, as one tensor for each parameter."""
        pieces = torch.split(rows, self._sizes, 1)
        return [piece.view(-1, *shape) for piece, shape in zip(pieces, self._shapes.values(), strict=True)]

    def check(self, model: nn.Module, batch: Batch, config: Config) -> None:
        """Compare the first network's gradient with its gradient alone; raises Unstackable where they differ."""
        kept = {name: value.clone() for name, value in self.buffers.items()}
        try:
            (stacked,) = torch.autograd.grad(self.losses(batch, config).sum(), self.rows)
        except Exception as error:
            raise Unstackable(f"{type(error).__name__}: {error}".splitlines()[0]) from error
        self.buffers = kept
        set_samples([layer for layer in model.train().modules() if isinstance(layer, KeyedDropout)], batch.words)
        own = {name: value[0] if isinstance(value, torch.Tensor) else value for name, value in config.items()}
        with computing(self._precision, self.rows.device):
            outputs = model(batch.inputs).to(self.rows.dtype)
        alone = torch.autograd.grad(self._workload.loss(outputs, batch.targets, own), list(model.parameters()))
        close = CLOSE[self._precision]
        for name, one, other in zip(self._shapes, alone, self.split(stacked), strict=True):
            if not (one - other[0]).abs().max() <= close * one.abs().max() + 1e-12:
                raise Unstackable(f"{name}: its gradient in the stack is not the one alone")

    def _parameters(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._shapes, self.split(self.rows), strict=True))

    def _outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        def one(state: dict[str, torch.Tensor], words: Any, rates: Any) -> torch.Tensor:
            for number, layer in enumerate(self._layers):
                layer.seed, layer.rate = words[number], rates[number]
            found: torch.Tensor = functional_call(self._model, state, (inputs,))
            return found

        state = {**self._parameters(), **self.buffers}
        with computing(self._precision, self.rows.device):
            if len(self) == 1:  # stacking a single one costs time and gives nothing
                alone = {name: value[0] for name, value in state.items()}
                return one(alone, self._words[0], self._rates[0])[None].to(self.rows.dtype)
            outputs: torch.Tensor = vmap(one, randomness="error")(state, self._words, self._rates)
            return outputs.to(self.rows.dtype)
