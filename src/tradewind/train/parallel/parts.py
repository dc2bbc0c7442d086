"""The part of every batch that a member computes: contiguous, and as even as can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

from tradewind.train.batches import Batch, TrainingBatches


def part_sizes(whole: int, of: int) -> list[int]:
    """How many samples of a batch each member gets: the first ones may have one more, the last ones none."""
    return [whole // of + (rank < whole % of) for rank in range(of)]


def batch_sizes(batches: TrainingBatches) -> list[int]:
    """The sizes of all batches of an epoch."""
    full, rest = divmod(batches.count, batches.batch_size)
    return [batches.batch_size] * full + [rest] * (rest > 0)


def span(whole: int, rank: int, of: int) -> slice:
    """Where a member's part of a batch lies.

    A member without samples computes the first one, which then counts nothing: it must take part in every
    exchange, and few networks take a batch of none.
    """
    sizes = part_sizes(whole, of)
    start = sum(sizes[:rank])
    return slice(start, start + sizes[rank]) if sizes[rank] else slice(0, 1)


@dataclass
class Parts(TrainingBatches):
    """As the batches of the plain loop, but of each only the samples of one member are made."""

    rank: int = 0
    of: int = 1

    @classmethod
    def of_member(cls, batches: TrainingBatches, rank: int, of: int) -> Self:
        """One member's part of these batches."""
        same = {field.name: getattr(batches, field.name) for field in fields(TrainingBatches)}
        return cls(**same, rank=rank, of=of)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        order = self.order(epoch).to(self.samples.targets.device)
        for start in range(0, len(order), self.batch_size):
            index = order[start : start + self.batch_size]
            own = span(len(index), self.rank, self.of)
            yield self.batch(index[own], epoch, first=start + own.start)
