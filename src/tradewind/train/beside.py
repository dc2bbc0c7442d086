"""Beside each other on one GPU: graphs of networks that can't be one, each on a stream of its own.

A step of a small network is a chain of kernels that fill a few per cent of a GPU; streams run several at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import torch

from tradewind.train.steps import Steps

PAYS = 0.9  # of the time one after the other: less gained is not worth the memory
REHEARSED_S = 0.02  # of each

Run = Callable[[], None]


def pays(kinds: Sequence[Steps], device: torch.device) -> bool:
    """Whether steps of all kinds at once are measured to take less than one after the other; leaves no trace."""
    counts = [max(1, round(REHEARSED_S / steps.step_s)) for steps in kinds]
    with ExitStack() as kept:
        for steps in kinds:
            kept.enter_context(steps.rehearsal())
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for steps, count in zip(kinds, counts, strict=True):
            with torch.cuda.stream(_stream(device)):
                for _ in range(count):
                    steps.replay()
        torch.cuda.synchronize(device)
        together_s = time.perf_counter() - began
    alone_s = sum(count * steps.step_s for steps, count in zip(kinds, counts, strict=True))
    print(f"{len(kinds)} kinds of networks beside each other: {together_s / alone_s:.2f} of the time apart")
    return together_s <= PAYS * alone_s


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
