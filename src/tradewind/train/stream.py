"""Training samples that are too many for their device: brought there in large pieces, in the order of an epoch.

While one piece is trained on, a thread gathers the next on the host and a stream of its own carries it over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from queue import SimpleQueue

import torch

from tradewind.augment.overlap import overlapped

PIECE_BYTES = 256 << 20  # some 20,000 storms: what begins and ends a piece is nothing beside training on it

Gather = Callable[[torch.Tensor], torch.Tensor]  # rows, on the host
Event = torch.cuda.Event | None  # none on a CPU, where all is done in its turn


class Stream:
    """The piece that is trained on, always in one place, so that a graph can hold it; the next one waits beside."""

    def __init__(self, gather: Gather, like: torch.Tensor, device: torch.device, batch_size: int) -> None:
        self._gather, self._device = gather, device
        self._rows = batch_size * max(1, PIECE_BYTES // (batch_size * like.nbytes))
        shape, on_gpu = (self._rows, *like.shape), device.type == "cuda"
        self._hosts = [torch.empty(shape, dtype=like.dtype, pin_memory=on_gpu) for _ in range(2)]
        self._next = torch.empty(shape, dtype=like.dtype, device=device)
        self.piece = torch.empty_like(self._next)
        self.places = torch.arange(self._rows, device=device)
        self._carrier: torch.cuda.Stream | None = None
        if on_gpu:
            self._carrier = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._next.record_stream(self._carrier)

    def brought(self, index: torch.Tensor, rows: torch.Tensor) -> Iterator[torch.Tensor]:
        """Which samples lie in the piece now, in their order; they stay until the next are asked for."""
        cleared: SimpleQueue[Event] = SimpleQueue()
        cleared.put(None)
        for part, arrived in zip(
            torch.split(index, self._rows), overlapped(self._carried(rows, cleared)), strict=True
        ):
            if arrived is not None:
                torch.cuda.current_stream(self._device).wait_event(arrived)
            self.piece[: len(part)].copy_(self._next[: len(part)])
            cleared.put(self._now())
            yield part.to(self._device)

    def _carried(self, rows: torch.Tensor, cleared: SimpleQueue[Event]) -> Iterator[Event]:
        """When each piece is in the place beside, to which it goes as soon as that is cleared."""
        if self._carrier is not None:
            self._carrier.synchronize()  # of an epoch that was left early
        before: list[Event] = [None, None]  # of the last piece in each place on the host
        for number, part in enumerate(torch.split(rows, self._rows)):
            host = self._hosts[number % 2][: len(part)]
            if (gone := before[number % 2]) is not None:
                gone.synchronize()
            host.copy_(self._gather(part))
            free = cleared.get()
            with torch.cuda.stream(self._carrier) if self._carrier is not None else nullcontext():
                if free is not None:
                    torch.cuda.current_stream(self._device).wait_event(free)
                self._next[: len(part)].copy_(host, non_blocking=True)
                before[number % 2] = self._now()
            yield before[number % 2]

    def _now(self) -> Event:
        return torch.cuda.current_stream(self._device).record_event() if self._carrier is not None else None
