"""The steps of an epoch: one after the other, or on a GPU one CUDA graph replayed for every batch.

In a graph nothing may be decided on the host. So the order of the samples, the place in it, the epoch (as words
from which augmentation and dropout draw) and the rates lie in device memory, and the host only overwrites them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from tradewind.noise import signed, start_word
from tradewind.pack import Config
from tradewind.train.batches import Batch, TrainingBatches
from tradewind.train.plain import clock
from tradewind.train.stack import Stack
from tradewind.train.stacked import Stacked

WARM_UP_STEPS = 3  # libraries choose their kernels in the first steps, which no graph may hold


class Steps:
    """Trains the networks of a stack on the batches of an epoch."""

    def __init__(
        self, stack: Stack, optimizer: Stacked, batches: TrainingBatches, config: Config, compiled: bool = False
    ) -> None:
        self._stack, self._optimizer, self._batches, self._config = stack, optimizer, batches, config
        self._losses: Any = stack.losses
        self._optimize: Any = optimizer.step
        self.compiled, self.why_no_graph = compiled, ""
        if compiled:
            self._losses, self._optimize = (torch.compile(f, dynamic=False) for f in (stack.losses, optimizer.step))
        self._rates = torch.zeros(len(stack), 1, dtype=stack.rows.dtype, device=stack.rows.device)
        self._total = torch.zeros(len(stack), dtype=torch.float64, device=stack.rows.device)
        self._graph = self._graph_of_step() if self._capturable() else None

    @property
    def captured(self) -> bool:
        """Whether the steps are one graph, for as many networks as there were when it was made."""
        return self._graph is not None

    def replay(self) -> None:
        """One captured step."""
        assert self._graph is not None, "nothing was captured"
        self._graph.replay()

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Steps taken inside leave no trace."""
        stack = self._stack
        state = [stack.rows, *stack.buffers.values(), *self._optimizer.tensors(), self._total, self._place]
        kept = [tensor.detach().clone() for tensor in state]
        yield
        with torch.no_grad():
            for tensor, value in zip(state, kept, strict=True):
                tensor.copy_(value)

    def measured_s(self, batch: Batch, count: int) -> float:
        """Seconds of a step, in the mean of so many; they train the networks."""
        once = self.replay if self.captured else partial(self._step, batch)
        once()
        began = clock(self._stack.rows.device)
        for _ in range(count):
            once()
        return (clock(self._stack.rows.device) - began) / count

    def epoch(self, epoch: int, rates: torch.Tensor, waited: Callable[..., Iterable[Batch]] = iter) -> torch.Tensor:
        """Train on every batch; the sum of each network's losses over all samples. Batches pass through `waited`."""
        self._rates.copy_(rates)
        self._total.zero_()
        if self._graph is None:
            for batch in waited(self._batches.epoch(epoch)):
                self._step(batch)
            return self._total
        self._set(epoch)
        size, before = self._batches.batch_size, 0
        for order in self._batches.pieces(epoch):
            self._order[: len(order)].copy_(order)
            self._place.zero_()
            self._before.fill_(before)
            for _ in range(len(order) // size):
                self.replay()
            self._rest(order, epoch, before)
            before += len(order)
        return self._total

    def _rest(self, order: torch.Tensor, epoch: int, before: int = 0) -> None:
        """The step of what is left at the end, which is no whole batch."""
        if rest := len(order) % self._batches.batch_size:
            start = len(order) - rest
            places = self._batches.places(start, len(order))
            self._step(self._batches.batch(order[-rest:], epoch, places=places, first=before + start))

    def _step(self, batch: Batch) -> None:
        losses = self._losses(batch, self._config)
        self._optimize(self._stack.rows, self._stack.gradients(losses), self._rates)
        self._total += losses.detach() * len(batch.targets)

    def _capturable(self) -> bool:
        batches = self._batches
        return (
            self._stack.rows.is_cuda
            and batches.count >= batches.batch_size
            and (batches.live is None or batches.live.way == "triton")
        )

    def _graph_of_step(self) -> torch.cuda.CUDAGraph | None:
        """The graph of one step, with kernels of our own at the front of the networks where that can be one."""
        device, batches = self._stack.rows.device, self._batches
        held = batches.count if batches.stream is None else min(batches.count, len(batches.stream.piece))
        self._order = torch.zeros(held, dtype=torch.int64, device=device)
        self._place, self._before = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
        self._span = torch.arange(batches.batch_size, device=device)
        self._moves, self._drops = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        for fuses in (True, False) if self._stack.fusable and not self.compiled else (False,):
            self._stack.fuses = fuses
            if (graph := self._captured()) is not None:
                return graph
        return None

    def _captured(self) -> torch.cuda.CUDAGraph | None:
        """The graph of one step, or None where this network's step can't be one."""
        graph = torch.cuda.CUDAGraph()
        with self.rehearsal():
            try:
                self._set(0)
                self._order.copy_(self._batches.order(0)[: len(self._order)])
                self._place.zero_()
                aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
                aside.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(aside):
                    for _ in range(WARM_UP_STEPS):
                        self._device_step()
                torch.cuda.current_stream().wait_stream(aside)
                # of this thread alone: others may train beside it
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    self._device_step()
                graph.replay()
                self._rest(self._order, 0)  # so that no epoch pays for its kernels
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                lost = "not compiled" if self.compiled else "steps one by one, since they make no CUDA graph"
                self.why_no_graph = f"{lost}: {str(error).splitlines()[0]}"
                print(self.why_no_graph)
                return None
        return graph

    def _set(self, epoch: int) -> None:
        self._drops.fill_(signed(start_word(0, epoch)))
        if self._batches.live is not None:
            self._moves.copy_(self._batches.live.start(epoch))

    def _device_step(self) -> None:
        places = (self._place + self._span) % len(self._order)
        first = self._before + self._place
        self._step(self._batches.batch(self._order[places], self._moves, self._drops, places, first))
        self._place += len(self._span)
