"""Beside each other on one GPU: graphs of networks that can't be one, each on a stream of its own.

A step of a small network is a chain of kernels that fill a few per cent of a GPU; streams run several at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

Run = Callable[[], None]


def at_once(runs: Sequence[Run], device: torch.device) -> None:
    """All of these at once; one that runs out of memory is left where it is."""
    torch.cuda.synchronize(device)
    with ThreadPoolExecutor(len(runs)) as pool:
        begun = [pool.submit(_on_stream, run, device) for run in runs]
    for one in begun:
        with suppress(torch.OutOfMemoryError):
            one.result()


def _on_stream(run: Run, device: torch.device) -> None:
    stream = _stream(device)
    with torch.cuda.stream(stream):
        run()
        stream.synchronize()


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
