"""The next batch is made while the present one is trained on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Batch = TypeVar("Batch")


def overlapped(batches: Iterator[Batch]) -> Generator[Batch, None, None]:
    """The same batches in the same order, one ahead, in one thread of its own.

    An error in making a batch is raised where that batch would have come. A consumer that stops early waits for the
    batch in the making, no longer; then the thread is gone and `batches`, if a generator, is closed.
    """
    end: Any = object()
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="tradewind-batches") as thread:
            ahead = thread.submit(next, batches, end)
            while (batch := ahead.result()) is not end:
                ahead = thread.submit(next, batches, end)
                yield batch
    finally:
        if isinstance(batches, Generator):
            batches.close()
