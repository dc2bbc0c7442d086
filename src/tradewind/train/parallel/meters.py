"""What training together costs: seconds of exchange, bytes sent, seconds without data, and how busy a device is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

KINDS = ("model", "gradients", "samples", "outputs", "statistics")
SAMPLING_S = 0.05

Item = TypeVar("Item")


class Tally:
    """One member's exchange since the last `take`.

    `communication_s` is the time during which something of this member was under way, waiting for slower members
    included, and computing that goes on meanwhile. Bytes are those that this member sends.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []
        self._origin = self.mark()
        self.sent = dict.fromkeys(KINDS, 0.0)
        self.wait_s = 0.0

    def mark(self) -> Any:
        """Now; on a GPU, when it gets there."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def __deepcopy__(self, memo: dict[int, Any]) -> Tally:
        return self  # a copy of a network is measured with it

    def reduced(self, kind: str, size: int, of: int) -> None:
        """So many bytes were summed over all members: around a ring, a member sends all but its own piece twice."""
        self.sent[kind] += 2 * (of - 1) / of * size

    def under_way(self, began: Any) -> None:
        """Something was under way from that mark until now."""
        self._spans.append((began, self.mark()))

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """What is done inside is exchange."""
        began = self.mark()
        yield
        self.under_way(began)

    def waited(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items; the seconds until each is there count as waiting for data."""
        steps = iter(items)
        while True:
            began = time.perf_counter()
            try:
                item = next(steps)
            except StopIteration:
                return
            finally:
                self.wait_s += time.perf_counter() - began
            yield item

    def take(self) -> tuple[float, float, dict[str, float]]:
        """Seconds of exchange, seconds of waiting for data and bytes sent by kind; then all counts from nothing."""
        if self._cuda:
            torch.cuda.synchronize()
        covered, until = 0.0, 0.0
        for begin, end in sorted((self._since(begin), self._since(end)) for begin, end in self._spans):
            covered += max(0.0, end - max(begin, until))
            until = max(until, end)
        found = covered, self.wait_s, self.sent
        self._spans, self._origin, self.wait_s, self.sent = [], self.mark(), 0.0, dict.fromkeys(KINDS, 0.0)
        return found

    def _since(self, mark: Any) -> float:
        return float(self._origin.elapsed_time(mark) / 1000 if self._cuda else mark - self._origin)


class Busy:
    """Which share of an epoch a device computes: of a CPU its threads' time, of a GPU what its driver says."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._samples: list[float] | None = []
        self._began = time.perf_counter(), time.process_time()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True) if device.type == "cuda" else None
        if self._thread:
            self._thread.start()

    def share(self) -> float:
        """Since this was made; not a number where it can't be known."""
        wall_s, cpu_s = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        if self._thread is None:
            return cpu_s / wall_s / torch.get_num_threads()
        self._ended.set()
        self._thread.join()
        return sum(self._samples) / len(self._samples) if self._samples else float("nan")

    def _watch(self) -> None:
        assert self._samples is not None
        try:
            while not self._ended.is_set():
                self._samples.append(torch.cuda.utilization(self._device) / 100)
                self._ended.wait(SAMPLING_S)
        except Exception:  # no pynvml, or a driver that does not tell (a part of a GPU)
            self._samples.clear()
