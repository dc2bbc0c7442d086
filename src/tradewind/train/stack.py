"""Networks of one kind as one: parameters stacked in rows, one forward pass for all, a gradient for each."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from tradewind.pack import Config
from tradewind.train.batches import Batch, Samples
from tradewind.train.dropout import KeyedDropout, keyed, set_places
from tradewind.train.folding import Convolve, Folding, foldable
from tradewind.train.narrow.fusing import fuse, has_kernels
from tradewind.train.precision import computing, products
from tradewind.train.random_states import RandomStates
from tradewind.train.reference import AFTER_EVALUATION, AFTER_STEP, GRADIENT, close, one_output, tried
from tradewind.workloads.contract import Workload


class Unstackable(Exception):
    """Why networks can't be trained as one."""


class Differs(Unstackable):
    """They give something else as one than alone."""


class Stack:
    """Row m of `rows` holds all parameters of network m, and row m of every buffer its buffers."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        seeds: Sequence[int],
        workload: Workload,
        precision: str,
        several: bool = False,  # the last of them is computed as they all were, to the bit
    ) -> None:
        self._workload, self._precision, self._several = workload, precision, several
        layers = [keyed(model, seed) for model, seed in zip(models, seeds, strict=True)]
        parameters = [{n: p for n, p in model.named_parameters() if p.requires_grad} for model in models]
        frozen = [{n: p.detach() for n, p in model.named_parameters() if not p.requires_grad} for model in models]
        buffers = [{**own, **dict(model.named_buffers())} for own, model in zip(frozen, models, strict=True)]
        first = {id(value): name for name, value in [*models[0].named_parameters(), *models[0].named_buffers()]}
        # of what is saved: a tied weight has two names, and some buffers are not saved at all
        self._saved = {name: first[id(value)] for name, value in models[0].state_dict(keep_vars=True).items()}
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
        device = self.rows.device
        self._words = torch.tensor([[layer.seed for layer in own] for own in layers], device=device)
        self._rates = torch.tensor(
            [[layer.rate for layer in own] for own in layers], dtype=torch.float64, device=device
        )
        self._model = copy.deepcopy(models[0])
        self._layers = [layer for layer in self._model.modules() if isinstance(layer, KeyedDropout)]
        began = time.perf_counter()
        self._front = fuse(self._model, device.type) if has_kernels(device, precision) else None
        self.compile_s = time.perf_counter() - began if self.fusable else 0.0
        self.foldable = len(models) > 1 and foldable(models[0], device, precision)
        self._convolve: Convolve | None = None
        self.why_torch = ""  # does what kernels of our own might do

    @property
    def fusable(self) -> bool:
        """Whether our own kernels can do the front of these networks."""
        return self._front is not None

    @property
    def fuses(self) -> bool:
        """Whether our own kernels do the front of these networks."""
        return self._front is not None and self._front.active

    @fuses.setter
    def fuses(self, active: bool) -> None:
        if self._front is not None:
            self._front.active = active

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def _plain(self) -> bool:
        return len(self) == 1 and not self._several

    def losses(self, batch: Batch, config: Config) -> torch.Tensor:
        """The loss of every network on a batch; the config holds a column wherever theirs differ."""
        return self._losses(self._trained(batch), batch, config)

    def _trained(self, batch: Batch) -> torch.Tensor:
        self._model.train()
        set_places(self._layers, batch.places)
        return self._outputs(batch.inputs)

    def _losses(self, outputs: torch.Tensor, batch: Batch, config: Config) -> torch.Tensor:
        columns = {name: value for name, value in config.items() if isinstance(value, torch.Tensor)}

        def loss(outputs: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
            own = {name: value[row] for name, value in columns.items()}
            return self._workload.loss(outputs, batch.targets, {**config, **own})

        if self._plain and not columns:  # as for its outputs
            return self._workload.loss(outputs.squeeze(0), batch.targets, config)[None]
        losses: torch.Tensor = vmap(loss)(outputs, torch.arange(len(self), device=self.rows.device))
        return losses

    def gradients(self, losses: torch.Tensor) -> torch.Tensor:
        """Of every network's loss, in rows as the parameters are."""
        with products(self._precision, self.rows.device):
            (found,) = torch.autograd.grad(losses.sum(), self.rows)
        return found

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """What is tried inside leaves the buffers as they were."""
        kept = {name: value.clone() for name, value in self.buffers.items()}
        try:
            yield
        finally:
            for name, value in kept.items():
                self.buffers[name].copy_(value)  # in place: graphs hold them

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
        own |= {name: value[number] for name, value in self.buffers.items()}
        return {name: own[source] for name, source in self._saved.items()}

    @torch.no_grad()
    def load(self, number: int, state: dict[str, torch.Tensor]) -> None:
        """Set one network to a state."""
        own = {**self._parameters(), **self.buffers}
        for name, source in self._saved.items():
            own[source][number].copy_(state[name])

    def split(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """What lies in rows as the parameters do, as one tensor for each parameter, by its name."""
        pieces = zip(self._shapes.items(), torch.split(rows, self._sizes, 1), strict=True)
        return {name: piece.view(-1, *shape) for (name, shape), piece in pieces}

    def check(self, models: Sequence[nn.Module], batch: Batch, configs: Sequence[Config], config: Config) -> None:
        """Compare networks with each alone, in training and evaluation; raises Unstackable where they differ."""
        about = models, batch, configs, config
        if self.fusable:
            try:
                self._check(*about)
                return
            except Unstackable as reason:
                self.unfuse(str(reason))
        try:
            self._check(*about)
        except Differs:
            if not self._agrees_exactly(*about):
                raise

    def _agrees_exactly(self, models: Sequence[nn.Module], batch: Batch, configs: Any, config: Config) -> bool:
        """Whether it was rounding: in float64 nothing falls on the other side of a ReLU. Two networks show it."""
        few = [copy.deepcopy(model).double() for model in models[:2]]
        columns = {name: _double(value[:2]) for name, value in config.items() if isinstance(value, torch.Tensor)}
        exact = replace(batch, inputs=_double(batch.inputs), targets=_double(batch.targets))
        try:
            stack = Stack(few, [0] * len(few), self._workload, "fp64")  # their dropout layers have their seeds
            stack._check(few, exact, configs[:2], {**config, **columns})
        except torch.OutOfMemoryError:
            raise
        except Exception:
            return False
        return True

    def unfuse(self, why: str) -> None:
        """Leave the front of the networks to torch, from here on."""
        self.fuses, self._front = False, None
        self._leave(why)

    def _leave(self, why: str) -> None:
        self.why_torch = f"without kernels of our own: {why}"
        print(self.why_torch)

    def fold(self, batch: Batch, config: Config) -> None:
        """Leave convolutions to our own kernels; raises Unstackable where they fail, or one gives something else."""
        from tradewind.train.narrow import grouped  # Triton is not everywhere

        self._convolve = grouped.compared
        try:
            with self.untouched():
                self.losses(batch, config)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.unfold()
            self._leave(f"{type(error).__name__}: {error}".splitlines()[0])
            raise Unstackable(self.why_torch) from error
        self._convolve = grouped.convolved

    def unfold(self) -> None:
        """Leave them to torch, from here on."""
        self._convolve, self.foldable = None, False

    @property
    def folds(self) -> bool:
        """Whether convolutions are by our own kernels."""
        return self._convolve is not None

    def _check(self, models: Sequence[nn.Module], batch: Batch, configs: Sequence[Config], config: Config) -> None:
        remembered = _remembered(self._model)
        try:
            with self.untouched(), RandomStates(self.rows.device) as random_states:
                ours = self._tried(batch, config)
                drawn = random_states.drawn()
            if drawn:
                raise Unstackable(f"it draws random numbers from {drawn}, which the networks alone would not share")
        except (torch.OutOfMemoryError, Unstackable):
            raise  # the first: the pack is too large, not unstackable
        except Exception as error:
            raise Unstackable(f"{type(error).__name__}: {error}".splitlines()[0]) from error
        for name, value in _remembered(self._model).items():
            if remembered.get(name) != value:
                raise Unstackable(f"{name}: changes as the network is called, and would be one for all")
        for number, (model, own) in enumerate(zip(models, configs, strict=True)):
            with RandomStates(self.rows.device):
                alone = tried(model, batch, partial(self._loss, batch, own), self._precision)
            for name in self._shapes:
                if GRADIENT.format(name) not in alone:  # torch's optimisers leave it; a row of zeros would decay
                    raise Unstackable(f"{name}: takes no part in the loss")
            for what, value in alone.items():
                if not close(value, ours[what][number], self._precision):
                    raise Differs(f"{what}: not the same in the stack as alone")

    def _loss(self, batch: Batch, config: Config, outputs: torch.Tensor) -> torch.Tensor:
        return self._workload.loss(outputs, batch.targets, config)

    def _tried(self, batch: Batch, config: Config) -> dict[str, torch.Tensor]:
        """What `tried` has of a network, of all networks."""
        outputs = self._trained(batch)
        losses = self._losses(outputs, batch, config)
        gradients = self.split(self.gradients(losses)).items()
        found = {"the outputs of a step": outputs.detach(), "its loss": losses.detach()}
        found |= {GRADIENT.format(name): gradient for name, gradient in gradients}
        found |= {AFTER_STEP.format(name): value.clone() for name, value in self.buffers.items()}
        self._model.eval()
        with torch.no_grad():
            found["the outputs of an evaluation"] = self._outputs(batch.inputs)
        return found | {AFTER_EVALUATION.format(name): value.clone() for name, value in self.buffers.items()}

    def _parameters(self) -> dict[str, torch.Tensor]:
        return self.split(self.rows)

    def _outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        def one(state: dict[str, torch.Tensor], words: Any, rates: Any) -> torch.Tensor:
            for number, layer in enumerate(self._layers):
                layer.seed, layer.rate = words[number], rates[number]
            return one_output(functional_call(self._model, state, (inputs,)))

        state = {**self._parameters(), **self.buffers}
        with computing(self._precision, self.rows.device):
            if self._plain:  # stacking a single one costs time and gives nothing
                alone = {name: value.squeeze(0) for name, value in state.items()}  # [0] fills a gradient with zeros
                return one(alone, self._words[0], self._rates[0])[None].to(self.rows.dtype)
            words, rates = self._words, self._rates
            if len(self) == 1:  # beside itself, since a product of one is rounded otherwise than those of several
                state, words, rates = {n: _twice(value) for n, value in state.items()}, _twice(words), _twice(rates)
            with Folding(self._convolve):
                outputs: torch.Tensor = vmap(one, randomness="error")(state, words, rates)
            if len(self) == 1:
                for name, value in self.buffers.items():
                    value.copy_(state[name][:1])
            return outputs[: len(self)].to(self.rows.dtype)


def _twice(value: torch.Tensor) -> torch.Tensor:
    return torch.cat([value, value])


def _double(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def _remembered(model: nn.Module) -> dict[str, Any]:
    """What modules keep as plain Python values."""
    return {
        f"{path}.{name}".lstrip("."): value
        for path, module in model.named_modules()
        if not isinstance(module, KeyedDropout)
        for name, value in vars(module).items()
        if name != "training" and isinstance(value, bool | int | float | str)
    }
