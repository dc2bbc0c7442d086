"""The training loop of a gang: the plain loop's steps, each shared among the members. Read plain.py first."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tradewind.errors import WorkloadError
from tradewind.folder import RunFolder
from tradewind.pack import Config, Outcome, Report, Task, Trial
from tradewind.train.auto_precision import about_step, candidates, chosen, step_s
from tradewind.train.batches import Samples
from tradewind.train.checkpoint import Checkpoints, Progress, save_tensors
from tradewind.train.dropout import keyed
from tradewind.train.narrow.fusing import fuse, has_kernels
from tradewind.train.optim import Optimizer, global_batch_size, learning_rate
from tradewind.train.parallel.ddp import Ddp
from tradewind.train.parallel.dp import Dp
from tradewind.train.parallel.group import Group
from tradewind.train.parallel.meters import KINDS, Busy, Tally
from tradewind.train.parallel.parts import Parts, part_sizes
from tradewind.train.parallel.replica import Replica
from tradewind.train.parallel.statistics import share_statistics
from tradewind.train.plain import (
    Ending,
    Sets,
    choose_device,
    clock,
    facts_of,
    judged,
    load,
    place,
    predicted,
)
from tradewind.train.precision import kept_in, resolved
from tradewind.workloads.contract import Data, Workload

WAYS: dict[str, type[Ddp] | type[Dp]] = {"ddp": Ddp, "dp": Dp}
MEASURED = ("communication_s", "wait_s", "utilisation", *(f"{kind}_bytes" for kind in KINDS))


def train(trial: Trial, workload: Workload, data: Data, task: Task, report: Report, group: Group) -> Outcome:
    """Train one network together; times are rank 0's, and the outcome that counts is its own."""
    with contextlib.ExitStack() as held:
        return trained(trial, workload, data, task, report, group, held)


def trained(
    trial: Trial, workload: Workload, data: Data, task: Task, report: Report, group: Group, held: contextlib.ExitStack
) -> Outcome:
    """The loop itself; `held` ends what must not outlive it, whatever happens."""
    config: Config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
    device = choose_device(config["device"])
    tally = Tally(device)
    sets = loaded(data, config, device, group)
    config["precision"] = agreed_precision(workload, config, sets, task, group)
    replica = made(trial.seed, workload, config, sets, tally)
    folder = RunFolder(Path(task.run_folder))
    checkpoints = Checkpoints(folder.checkpoint(trial.key), device)
    way, sets.times["warmup_s"] = ready(replica, sets, group, tally, held)
    progress = restored(checkpoints, replica, group)
    resumed_at_epoch = progress.epoch

    ending = Ending(task.limits, config, trial.until)
    while not ending.reached(progress):
        epoch = progress.epoch + 1
        rate = replica.optimizer.rate = learning_rate(config, epoch)

        replica.model.train()
        group.wait()  # else another member would have begun before the clock
        tally.take()
        busy, began = Busy(device), clock(device)
        total = way.epoch(epoch)
        lost, *measured = group.summed([total.item(), *shares(tally, busy, group)])  # here all are at the end
        epoch_s = clock(device) - began
        way.agree()

        last = {"train_loss": lost / sets.train.count}
        if sets.validation is not None:
            found = evaluate(replica, sets.validation, group)
            last |= {f"validation_{name}": value for name, value in found.items()}
        said = json.loads(group.told(json.dumps([epoch_s, clock(device) - began, last]).encode()))
        progress.add(rate, *said)
        progress.curve[-1] |= {n: v for n, v in zip(MEASURED, measured, strict=True) if math.isfinite(v)}
        if group.rank == 0:
            report(trial.key, epoch, progress.last)
            checkpoints.save(progress, replica.model, replica.optimizer)

    if ending.state == "paused" and group.rank == 0:
        checkpoints.keep(progress, replica.model, replica.optimizer)
    began = clock(device)
    scores = evaluate(replica, sets.test, group) if ending.state == "done" else {}
    sets.times["test_s"] = clock(device) - began
    if ending.state == "done" and group.rank == 0:
        sets.times["test_samples_per_s"] = len(sets.test) / sets.times["test_s"]
        save_tensors(folder.model(trial.key), replica.model.state_dict(), {"config": config})
    facts = gang_facts(replica, progress, group) | {"packed_with": 0, "resumed_at_epoch": resumed_at_epoch}
    times = {"compile_s": replica.compile_s, **sets.times, **progress.times(), **ending.times}
    times["wall_s"] = times["data_s"] + times["train_s"] + times["test_s"]
    return Outcome(trial.key, ending.state, ending.reason, {}, times, scores, progress.last, facts, progress.curve)


def loaded(data: Data, config: Config, device: torch.device, group: Group) -> Sets:
    """The data on every member's device, in batches of the whole gang; the last member to have it ends `data_s`."""
    wide = {**config, "batch_size": global_batch_size(config)}
    sets = load(data, wide, device, kept_in(resolved(config["precision"], device)))
    began = time.perf_counter()
    group.wait()
    sets.times["data_s"] += time.perf_counter() - began
    return sets


def agreed_precision(workload: Workload, config: Config, sets: Sets, task: Task, group: Group) -> str:
    """The precision of all members: what rank 0 has chosen where the config leaves it to us."""
    if config["precision"] != "auto":
        return str(config["precision"])

    def measure(name: str) -> float:
        return step_s(workload, {**config, "precision": name}, sets)

    found = ""
    if group.rank == 0:
        folder, among = RunFolder(Path(task.run_folder)), candidates(choose_device(config["device"]))
        found = chosen(folder, about_step(config, workload), among, measure)
    return group.told(found.encode()).decode()


def made(seed: int, workload: Workload, config: Config, sets: Sets, tally: Tally) -> Replica:
    """The network, the same on every member."""
    device = choose_device(config["device"])
    precision = resolved(config["precision"], device)
    torch.manual_seed(seed)
    model = place(workload.model(config), device, kept_in(precision), sets.train.samples)
    dropouts, norms = keyed(model, seed), share_statistics(model, tally)
    optimizer, began = Optimizer(model.parameters(), config), time.perf_counter()
    kernels = device.type == "cpu" and has_kernels(device, precision)  # as a single one would have it
    front = fuse(model, device.type) if kernels else None
    compile_s = time.perf_counter() - began if front is not None else 0.0
    return Replica(workload, config, model, optimizer, dropouts, norms, device, precision, front, compile_s)


def ready(
    replica: Replica, sets: Sets, group: Group, tally: Tally, held: contextlib.ExitStack
) -> tuple[Ddp | Dp, float]:
    """The way that the config names, with all connections made; and the seconds that took."""
    began, mine = time.perf_counter(), Parts.of_member(sets.train, group.rank, group.of)
    if replica.front is not None and group.summed([float(bool(difference := replica.difference(mine)))])[0]:
        replica.why = f"without kernels of our own: {difference or 'another member has found a difference'}"
        print(replica.why)
        replica.front.active = False
    unused, buffers = replica.warm_up(mine)
    check_buffers(buffers, group)
    unused = any(group.summed([float(unused)]))  # members must exchange alike
    if replica.config["parallel"] == "ddp":
        replica.check_mean(sets.train)
    way = WAYS[replica.config["parallel"]](replica, sets.train, group, tally, unused)
    held.callback(way.close)
    group.gathered(torch.zeros(1, device=replica.device), [1] * group.of)  # NCCL connects pairs when first asked to
    group.wait()
    return way, clock(replica.device) - began


def check_buffers(buffers: dict[str, torch.Tensor], group: Group) -> None:
    """Whether a step leaves the same buffers on all members: else none would be those of the whole batch."""
    if not buffers:
        return
    own = [value.double().flatten().cpu() for value in buffers.values()]
    leaders = torch.frombuffer(bytearray(group.told(torch.cat(own).numpy().tobytes())), dtype=torch.float64)
    pairs = zip(own, torch.split(leaders, [len(value) for value in own]), strict=True)
    differ = group.summed([float(not torch.allclose(one, other, equal_nan=True)) for one, other in pairs])
    if name := next((name for name, count in zip(buffers, differ, strict=True) if count), ""):
        raise WorkloadError(
            f"devices: found several, and a network whose buffer {name} becomes another on each of them, by its part "
            "of a batch; allowed: buffers that do not depend on the samples, those of nn.BatchNorm, or devices 1"
        )


def restored(checkpoints: Checkpoints, replica: Replica, group: Group) -> Progress:
    """Go back to the last state that rank 0 finds, on every member, whether it sees that file or not."""
    path, content = checkpoints.path, b""
    if group.rank == 0 and path.exists():
        content = path.read_bytes()
    content = group.told(content)
    if not content or group.rank == 0:
        return checkpoints.restore(replica.model, replica.optimizer) if group.rank == 0 else Progress()
    with tempfile.TemporaryDirectory(prefix="tradewind-resume-") as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(content)
        return Checkpoints(copy, replica.device).restore(replica.model, replica.optimizer)


def evaluate(replica: Replica, samples: Samples, group: Group) -> dict[str, float]:
    """Loss and scores over a whole split, of which every member computes a part; on rank 0 alone."""
    rows = part_sizes(len(samples), group.of)
    start = sum(rows[: group.rank])
    mine = range(start, start + rows[group.rank])
    pieces = predicted(replica.model, samples, mine, replica.precision)
    outputs = group.gathered(torch.cat(pieces) if pieces else torch.empty(0), rows)
    return {} if outputs is None else judged(replica.workload, outputs, samples.targets, replica.config)


def shares(tally: Tally, busy: Busy, group: Group) -> list[float]:
    """What a member adds to MEASURED: seconds are those of rank 0, utilisation is the mean, bytes are the sum."""
    communication_s, wait_s, sent = tally.take()
    mine = [communication_s, wait_s] if group.rank == 0 else [0.0, 0.0]
    return [*mine, busy.share() / group.of, *(sent[kind] for kind in KINDS)]


def gang_facts(replica: Replica, progress: Progress, group: Group) -> dict[str, Any]:
    """What a record says of a network that several devices trained, over all its epochs."""
    shown = [row["utilisation"] for row in progress.curve if "utilisation" in row]
    sums = {name: sum(row.get(name, 0.0) for row in progress.curve) for name in MEASURED}
    exchanged = {kind: round(sums[f"{kind}_bytes"]) for kind in KINDS}
    return facts_of(replica.model, replica.config, progress) | {
        "devices": group.of, "global_batch_size": global_batch_size(replica.config),
        "communication_s": sums["communication_s"], "wait_s": sums["wait_s"],
        "utilisation": sum(shown) / len(shown) if shown else None,
        "bytes_exchanged": sum(exchanged.values()), "exchanged": {k: v for k, v in exchanged.items() if v},
        "device": replica.device.type, "precision": replica.precision,
        "stand_in": replica.device.type == "cpu",  # processes in place of devices: their times say nothing of GPUs
        **replica.execution().facts(),
    }  # fmt: skip
