"""Data parallel as torch's DataParallel has it, and Stevens measures it: device 0 leads, the others serve.

For every batch, device 0 scatters the samples, broadcasts the model, gathers the outputs, computes the loss,
scatters its gradient, and gathers and sums the gradients of all parameters; it alone steps. So the whole model
crosses the link of every other device twice per batch: that is the network choke. DataParallel does this with
threads of one process; here the same messages go between processes, one GPU or stand-in each, on one host or
several. The loss is computed over whole batches, whatever it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from tradewind.noise import start_word
from tradewind.train.batches import Batch, TrainingBatches
from tradewind.train.parallel.group import Group
from tradewind.train.parallel.meters import Tally
from tradewind.train.parallel.parts import batch_sizes, part_sizes, span
from tradewind.train.parallel.replica import Replica

Tensors = list[torch.Tensor]


class Dp:
    """The epochs of a network that lives on device 0."""

    def __init__(
        self, replica: Replica, batches: TrainingBatches, group: Group, tally: Tally, unused: bool = False
    ) -> None:
        self._replica, self._batches, self._group, self._links = replica, batches, group, Links(tally)
        self._tally, self._last = tally, batches.samples.channels_last
        self._state = [*replica.model.parameters(), *replica.model.buffers()]
        self._trained = [p for p in replica.model.parameters() if p.requires_grad]
        self._unused = unused
        one = batches.batch(batches.order(0)[:1].to(replica.device), 0)
        self._like = self._stored(one.inputs)

    def epoch(self, epoch: int) -> torch.Tensor:
        """Train on every batch; on device 0 the sum of the losses over all samples, elsewhere nothing."""
        total = torch.zeros((), device=self._replica.device, dtype=torch.float64)
        if self._group.rank:
            first = 0
            for whole in batch_sizes(self._batches):
                self._serve(whole, epoch, first)
                first += whole
            return total
        for batch in self._tally.waited(self._batches.epoch(epoch)):
            total += self._lead(batch)
        return total

    def agree(self) -> None:
        """Bring every copy to the state of device 0, so that all can evaluate; not part of an epoch."""
        for row in (rows := flattened(self._state)):
            dist.broadcast(row, 0)
        spread(rows, self._state)

    def close(self) -> None:
        """It holds no process group of its own."""

    def _lead(self, batch: Batch) -> torch.Tensor:
        replica, whole, others = self._replica, len(batch.index), range(1, self._group.of)
        sizes = part_sizes(whole, self._group.of)
        with self._tally.exchanging():
            for rank in others:
                part = span(whole, rank, self._group.of)
                self._links.send([self._stored(batch.inputs[part]), batch.index[part]], rank, "samples")
                self._links.send(flattened(self._state), rank, "model")
            self._links.wait()
        own = slice(sizes[0])
        mine = batch.inputs[own], batch.targets[own], batch.index[own]
        outputs = replica.outputs(Batch(*mine, batch.drops, batch.first), True)
        with self._tally.exchanging():
            pieces = [outputs.detach(), *(outputs.new_empty(max(1, n), *outputs.shape[1:]) for n in sizes[1:])]
            for rank in others:
                self._links.receive([pieces[rank]], rank)
            self._links.wait()
        gathered = torch.cat([piece[:n] for piece, n in zip(pieces, sizes, strict=True)]).requires_grad_()
        loss = replica.loss(gathered, batch.targets)
        (slopes,) = torch.autograd.grad(loss, gathered)
        with self._tally.exchanging():
            for rank, slope in enumerate(torch.split(slopes, sizes)):
                if rank:
                    self._links.send([slope if len(slope) else torch.zeros_like(pieces[rank])], rank, "outputs")
            self._links.wait()
        replica.optimizer.zero_grad()
        replica.back(outputs, slopes[own])
        self._reduce()
        replica.optimizer.step()
        return loss.detach() * whole

    def _reduce(self) -> None:
        """Add the gradients of all others, in the order of their ranks, to those of device 0."""
        totals = self._gradients()
        found = [[torch.empty_like(row) for row in totals] for _ in range(1, self._group.of)]
        with self._tally.exchanging():
            for rank, gradients in enumerate(found, 1):
                self._links.receive(gradients, rank)
            self._links.wait()
        for gradients in found:
            for total, more in zip(totals, gradients, strict=True):
                total += more
        used = totals.pop().tolist() if self._unused else [1] * len(self._trained)
        summed = [torch.empty_like(p) if p.grad is None else p.grad for p in self._trained]
        spread(totals, summed)
        for parameter, gradient, by in zip(self._trained, summed, used, strict=True):
            parameter.grad = gradient if by else None  # so that the optimiser leaves alone what no output depends on

    def _gradients(self) -> Tensors:
        """Of all that trains; where some of it may be unused, zeros for that, and last whether each was used."""
        rows = flattened([torch.zeros_like(p) if p.grad is None else p.grad for p in self._trained])
        used = [p.grad is not None for p in self._trained]
        return [*rows, torch.tensor(used).to(rows[0].device, torch.int64)] if self._unused else rows

    def _serve(self, whole: int, epoch: int, first: int) -> None:
        replica, rank = self._replica, self._group.rank
        size, first = part_sizes(whole, self._group.of)[rank], first + span(whole, rank, self._group.of).start
        stored = self._like.new_empty(max(1, size), *self._like.shape[1:])
        index = torch.empty(len(stored), dtype=torch.int64, device=replica.device)
        state = empty_like(self._state)
        with self._tally.exchanging():
            self._links.receive([stored, index, *state], 0)
            self._links.wait()
        spread(state, self._state)
        inputs = stored.movedim(-1, 1) if self._last else stored
        outputs = replica.outputs(Batch(inputs, index, index, start_word(0, epoch), first), size > 0)
        slopes = torch.empty_like(outputs)
        with self._tally.exchanging():
            self._links.send([outputs.detach()], 0, "outputs")
            self._links.receive([slopes], 0)
            self._links.wait()
        replica.optimizer.zero_grad()
        replica.back(outputs, slopes)
        with self._tally.exchanging():
            self._links.send(self._gradients(), 0, "gradients")
            self._links.wait()

    def _stored(self, inputs: torch.Tensor) -> torch.Tensor:
        """The samples with their axes in the order of memory: no copy on their way."""
        return inputs.movedim(1, -1) if self._last else inputs


class Links:
    """Messages between device 0 and one other; what is sent is counted."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._under_way: list[tuple[dist.Work | None, torch.Tensor]] = []

    def send(self, tensors: Sequence[torch.Tensor], to: int, kind: str) -> None:
        """Begin to send tensors, which are kept until they are gone."""
        for tensor in tensors:
            dense = tensor.contiguous()
            self._under_way.append((dist.isend(dense, to), dense))
            self._tally.sent[kind] += dense.nbytes

    def receive(self, tensors: Sequence[torch.Tensor], source: int) -> None:
        """Begin to receive tensors, in the order in which they are sent."""
        self._under_way += [(dist.irecv(tensor, source), tensor) for tensor in tensors]

    def wait(self) -> None:
        """Until all that has begun has ended."""
        for work, _ in self._under_way:
            if work is not None:
                work.wait()
        self._under_way.clear()


def flattened(tensors: Sequence[torch.Tensor]) -> Tensors:
    """All values in a row, one for each type of numbers: a few large messages in place of many small ones."""
    return [torch.cat([tensor.detach().reshape(-1) for tensor in some]) for some in _by_type(tensors)]


def empty_like(tensors: Sequence[torch.Tensor]) -> Tensors:
    """Room for what `flattened` makes of these."""
    return [some[0].detach().new_empty(sum(tensor.numel() for tensor in some)) for some in _by_type(tensors)]


@torch.no_grad()
def spread(rows: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
    """Write what was flattened back into such tensors."""
    for row, some in zip(rows, _by_type(tensors), strict=True):
        for tensor, values in zip(some, torch.split(row, [tensor.numel() for tensor in some]), strict=True):
            tensor.copy_(values.view(tensor.shape))


def _by_type(tensors: Sequence[torch.Tensor]) -> list[Tensors]:
    found: dict[torch.dtype, Tensors] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype, []).append(tensor)
    return list(found.values())
