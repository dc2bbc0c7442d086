"""One member's copy of the network, and how it is made ready."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from tradewind.errors import WorkloadError
from tradewind.pack import Config
from tradewind.train.batches import Batch, TrainingBatches
from tradewind.train.dropout import KeyedDropout, set_places
from tradewind.train.execution import Execution
from tradewind.train.narrow.fusing import Front
from tradewind.train.optim import Optimizer
from tradewind.train.parallel.statistics import SharedBatchNorm
from tradewind.train.precision import computing, kept_in, products
from tradewind.train.random_states import RandomStates
from tradewind.train.reference import close, one_output, tried
from tradewind.workloads.contract import Workload

TRIED = 64  # samples by which a loss is looked at
OFF = 1e-4  # relative: rounding is far below, weights of classes are far above


@dataclass
class Replica:
    """A network on its device, with all that a step needs."""

    workload: Workload
    config: Config
    model: nn.Module
    optimizer: Optimizer
    dropouts: list[KeyedDropout]
    norms: list[SharedBatchNorm]
    device: torch.device
    precision: str
    front: Front | None = None  # which kernels of our own do
    compile_s: float = 0.0  # of these kernels
    why: str = ""  # they do not

    def execution(self) -> Execution:
        """In which form it trains."""
        front = self.front is not None and self.front.active
        return Execution(self.config["parallel"], kernels="front" if front else "", why=self.why)

    def outputs(self, batch: Batch, counts: bool, through: nn.Module | None = None) -> torch.Tensor:
        """What the network says of these samples, as the plain loop has it; they may count nothing."""
        set_places(self.dropouts, batch.places)
        for layer in self.norms:
            layer.absent = not counts
        with computing(self.precision, self.device):
            found = one_output((through or self.model)(batch.inputs))
        return found.to(kept_in(self.precision))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of some samples."""
        return self.workload.loss(outputs, targets, self.config)

    def back(self, outputs: torch.Tensor, slopes: torch.Tensor | None = None) -> None:
        """The gradients of all that trains, from a loss or from its slopes by some outputs."""
        with products(self.precision, self.device):
            outputs.backward(slopes)  # type: ignore[no-untyped-call]

    def difference(self, batches: TrainingBatches) -> str:
        """What our kernels give otherwise than torch does, in training or evaluation; nothing if all is the same."""
        assert self.front is not None
        batch, found = next(batches.epoch(0)), {}
        for active in (False, True):
            self.front.active = active
            loss = partial(self.loss, targets=batch.targets)
            with RandomStates(self.device):
                found[active] = tried(copy.deepcopy(self.model), batch, loss, self.precision)
        pairs = ((name, value, found[True][name]) for name, value in found[False].items())
        return next((name for name, one, other in pairs if not close(one, other, self.precision)), "")

    def warm_up(self, batches: TrainingBatches) -> tuple[bool, dict[str, torch.Tensor]]:
        """One step on a copy, random states left alone: whether an output may not depend on all that trains, and the
        buffers after it.

        A sample alone shows the first of networks that choose by sample which of their layers compute.
        """
        with RandomStates(self.device):
            return self._warmed_up(batches)

    def _warmed_up(self, batches: TrainingBatches) -> tuple[bool, dict[str, torch.Tensor]]:
        throwaway = copy.deepcopy(self.model).train()
        batch = next(batches.epoch(0))
        self.loss(self.outputs(batch, True, throwaway), batch.targets).backward()  # type: ignore[no-untyped-call]
        unused = _untouched(throwaway)
        buffers = {name: value.clone() for name, value in throwaway.named_buffers()}
        throwaway.zero_grad(set_to_none=True)
        one = batches.batch(batches.order(0)[:1].to(self.device), 0)
        self.outputs(one, True, throwaway).sum().backward()  # type: ignore[no-untyped-call]
        return unused or _untouched(throwaway), buffers

    @torch.no_grad()
    def check_mean(self, batches: TrainingBatches) -> None:
        """Whether the loss of a batch is the mean over its samples: else parts of it can't be put together."""
        batch = batches.batch(batches.order(0)[:TRIED].to(self.device), 0)
        count = len(batch.targets)
        if count < 3:
            return
        outputs = self.outputs(batch, True, copy.deepcopy(self.model).eval())
        cut = count // 3
        whole = float(self.loss(outputs, batch.targets))
        parts = [float(self.loss(outputs[some], batch.targets[some])) for some in (slice(cut), slice(cut, None))]
        together = (cut * parts[0] + (count - cut) * parts[1]) / count
        if abs(whole - together) > OFF * max(abs(whole), abs(together)):
            raise WorkloadError(
                f"parallel: found 'ddp', but the loss of {type(self.workload).__name__} is not the mean over samples "
                f"({whole:.6g} of {count}, {together:.6g} by parts); allowed: 'dp', where device 0 computes it"
            )


def _untouched(model: nn.Module) -> bool:
    """Whether something that trains has got no gradient."""
    return any(p.requires_grad and p.grad is None for p in model.parameters())
