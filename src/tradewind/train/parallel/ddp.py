"""Data parallel by torch's DistributedDataParallel: every member steps, gradients are summed around a ring.

The loss of a part is weighted by its share of the batch and gradients are summed, not averaged, so that uneven
parts give the gradient of the whole batch.
"""

# no postponed annotations here: torch reads those of the hook, and wants types

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from tradewind.train.batches import Batch, TrainingBatches
from tradewind.train.parallel.group import Group
from tradewind.train.parallel.meters import Tally
from tradewind.train.parallel.parts import Parts, batch_sizes, part_sizes
from tradewind.train.parallel.replica import Replica

# what torch calls it, newer versions first
BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)


class Ddp:
    """The epochs of a network whose every copy steps."""

    def __init__(
        self, replica: Replica, batches: TrainingBatches, group: Group, tally: Tally, unused: bool = False
    ) -> None:
        self._replica, self._group, self._tally = replica, group, tally
        self.parts = Parts.of_member(batches, group.rank, group.of)
        # batch normalisations share their statistics already, so that buffers need not be sent
        options: dict[str, Any] = {"gradient_as_bucket_view": True, "find_unused_parameters": unused, BUFFERS: False}
        self._model = DistributedDataParallel(replica.model, **options)
        self._model.register_comm_hook(tally, summed)

    def epoch(self, epoch: int) -> torch.Tensor:
        """Train on every batch; the sum of this member's losses over its samples."""
        total = torch.zeros((), device=self._replica.device, dtype=torch.float64)
        batches = self._tally.waited(self.parts.epoch(epoch))
        for whole, batch in zip(batch_sizes(self.parts), batches, strict=True):
            total += self.step(batch, whole)
        return total

    def agree(self) -> None:
        """Every copy has made the same steps."""

    def close(self) -> None:
        """Let go of the process group now, not when a collection of garbage finds this: others see it leave."""
        for name in ("logger", "reducer", "process_group"):
            setattr(self._model, name, None)

    def step(self, batch: Batch, whole: int) -> torch.Tensor:
        """Train on this member's part of a batch of so many samples."""
        replica, count = self._replica, part_sizes(whole, self._group.of)[self._group.rank]
        replica.optimizer.zero_grad()
        outputs = replica.outputs(batch, count > 0, self._model)
        if count:
            loss = replica.loss(outputs, batch.targets)
            replica.back(loss * (count / whole))
        else:
            loss = outputs.sum() * 0.0
            replica.back(loss)
        replica.optimizer.step()
        return loss.detach() * count


def summed(state: Tally, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum a bucket of gradients over all members, and note how long that is under way."""
    began, gradients = state.mark(), bucket.buffer()
    work = dist.all_reduce(gradients, async_op=True)
    assert work is not None
    state.reduced("gradients", gradients.nbytes, dist.get_world_size())

    def ended(future: torch.futures.Future[Any]) -> torch.Tensor:
        state.under_way(began)
        found: torch.Tensor = future.value()[0]
        return found

    found: torch.futures.Future[torch.Tensor] = work.get_future().then(ended)
    return found
