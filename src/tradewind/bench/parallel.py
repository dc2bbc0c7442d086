"""What our data-parallel step costs over torch's bare DistributedDataParallel: two processes, interleaved pairs."""

from __future__ import annotations

import copy
import multiprocessing
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from tradewind.bench.augment import interval
from tradewind.pack import Config, Gang
from tradewind.train.batches import TrainingBatches
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.optim import Optimizer
from tradewind.train.parallel.ddp import Ddp
from tradewind.train.parallel.group import Group, Meeting
from tradewind.train.parallel.loop import loaded, made
from tradewind.train.parallel.meters import Tally
from tradewind.train.parallel.replica import Replica
from tradewind.workloads.contract import Data, Split
from tradewind.workloads.storm import Storm

MEMBERS = 2
PAIRS = 60
STEPS = 16  # of each contender in each pair: one epoch
BATCH = 128


def measure() -> dict[str, Any]:
    """Milliseconds per step of both, in interleaved pairs, as rank 0 sees them."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(MEMBERS)]
    members = [context.Process(target=_member, args=(k, end), daemon=True) for k, (_, end) in enumerate(pipes)]
    for member in members:
        member.start()
    try:
        meeting = pipes[0][0].recv()
        for pipe, _ in pipes:
            pipe.send(meeting)
        samples, parameters = pipes[0][0].recv()
    finally:
        for member in members:
            member.join(10)
            member.kill()
    return {
        "members": MEMBERS, "pairs": PAIRS, "steps": STEPS, "batch_size": BATCH, "parameters": parameters,
        "device": "cpu", "unit": "ms per step", "versions": {"torch": torch.__version__}, "samples": samples,
    }  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """Both medians, and that of the pairs' ratios with its interval."""
    samples = found["samples"]
    lines = [f"{'ms per step, 2 CPU processes, storm CNN':40s} {'median':>8s} {'range':>16s}   n"]
    for name, values in samples.items():
        spread = f"{min(values):.2f} – {max(values):.2f}"
        lines.append(f"{name:40s} {median(values):8.2f} {spread:>16s}  {len(values):2d}")
    ratios = [ours / bare for ours, bare in zip(*samples.values(), strict=True)]
    low, high, held = interval(ratios)
    lines.append(
        f"Tradewind / bare: {median(ratios):.3f} ({low:.3f} – {high:.3f}, {held:.0%} interval of the median)"
    )
    return "\n".join(lines)


def _member(rank: int, parent: Connection) -> None:
    torch.set_num_threads(1)
    meeting = Meeting() if rank == 0 else None
    if meeting:
        parent.send(meeting.address)
    group = Group(Gang(rank, MEMBERS, parent.recv()), meeting)
    tally = Tally(torch.device("cpu"))
    config = {name: known.default for name, known in {**TRAINING, **Storm.defaults}.items()}
    config |= {"device": "cpu", "batch_size": BATCH, "devices": MEMBERS, "seed": 0, "data_seed": 0}
    sets = loaded(_storms(), config, torch.device("cpu"), group)
    replica = made(0, Storm(), config, sets, tally)
    bare = _bare(copy.deepcopy(replica.model), config, sets.train, rank)
    ours = _ours(replica, sets.train, group, tally)
    pairs = _pairs(group, ours, bare)
    if rank == 0:
        names = "Tradewind, timed, weighted and counted", "torch DistributedDataParallel, bare"
        parameters = sum(p.numel() for p in replica.model.parameters())
        parent.send(({name: [pair[k] for pair in pairs] for k, name in enumerate(names)}, parameters))


def _pairs(group: Group, *contenders: Callable[[int], None]) -> list[list[float]]:
    """The seconds of each contender's epochs in milliseconds per step, whichever goes first."""
    for work in contenders:
        work(0)
    found = []
    for pair in range(PAIRS):
        seconds = [0.0] * len(contenders)
        for k in (0, 1) if pair % 2 else (1, 0):
            group.wait()
            began = time.perf_counter()
            contenders[k](pair + 1)
            group.wait()
            seconds[k] = (time.perf_counter() - began) / STEPS * 1000
        found.append(seconds)
    return found


def _ours(replica: Replica, batches: TrainingBatches, group: Group, tally: Tally) -> Callable[[int], None]:
    way = Ddp(replica, batches, group, tally)
    replica.model.train()

    def work(epoch: int) -> None:
        way.epoch(epoch)
        tally.take()

    return work


def _bare(model: torch.nn.Module, config: Config, batches: TrainingBatches, rank: int) -> Callable[[int], None]:
    """What one would write without us, for batches that divide: the same samples, the same network."""
    wrapped = DistributedDataParallel(model.train())
    optimizer = Optimizer(model.parameters(), config)
    inputs, targets = batches.samples.rows(slice(None)), batches.samples.targets

    def work(epoch: int) -> None:
        parts: Iterable[torch.Tensor] = torch.split(batches.order(epoch), BATCH // MEMBERS)[rank::MEMBERS]
        for index in parts:
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(wrapped(inputs[index]), targets[index])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return work


def _storms() -> Data:
    """Samples in the form of storms: what they show is all the same to a clock."""
    rng = np.random.default_rng(0)
    inputs = np.moveaxis(rng.standard_normal((BATCH * STEPS, 32, 32, 3)).astype(np.float32), 3, 1)
    part = Split(inputs, rng.integers(0, 2, len(inputs)).astype(np.float32))
    return Data(part, None, Split(part.inputs[:8], part.targets[:8]))
