"""The plain training loop: what every faster path must agree with. Read it top to bottom."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tradewind.folder import RunFolder
from tradewind.pack import Config, Limits, Outcome, Report, Task, Trial
from tradewind.train.batches import Samples, TrainingBatches, batches_of
from tradewind.train.checkpoint import Checkpoints, Progress, save_tensors
from tradewind.train.dropout import keyed, set_places
from tradewind.train.execution import Execution
from tradewind.train.held import Remembered, hold
from tradewind.train.judgement import all_finite, on_target
from tradewind.train.optim import Optimizer, learning_rate
from tradewind.train.parallel.meters import Busy, Tally
from tradewind.train.precision import computing, kept_in, products, resolved
from tradewind.train.random_states import RandomStates
from tradewind.train.reference import one_output
from tradewind.train.torch_faults import led_around
from tradewind.workloads.contract import Data, Workload

EVALUATION_BATCH = 2048


def train(trial: Trial, workload: Workload, data: Data, task: Task, report: Report, why: str = "") -> Outcome:
    """Train one network from its config: epochs of steps, validation, a test at the end; `why` in no faster form."""
    config: Config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
    device = choose_device(config["device"])
    precision = resolved(config["precision"], device)
    dtype = kept_in(precision)
    sets = load(data, config, device, dtype)

    torch.manual_seed(trial.seed)
    model = place(workload.model(config), device, dtype, sets.train.samples)
    dropouts = keyed(model, trial.seed)
    optimizer = Optimizer(model.parameters(), config)
    sets.times["warmup_s"] = warm_up(workload, model, sets.train, config)
    folder = RunFolder(Path(task.run_folder))
    checkpoints = Checkpoints(folder.checkpoint(trial.key), device)
    progress = checkpoints.restore(model, optimizer)
    progress.way, resumed_at_epoch = "plain", progress.epoch

    ending, tally = Ending(task.limits, config, trial.until), Tally(device)
    while not ending.reached(progress):
        epoch = progress.epoch + 1
        rate = optimizer.rate = learning_rate(config, epoch)

        model.train()
        total = torch.zeros((), device=device, dtype=torch.float64)
        busy, began = Busy(device), clock(device)
        for batch in tally.waited(sets.train.epoch(epoch)):
            set_places(dropouts, batch.places)
            optimizer.zero_grad()
            with computing(precision, device):
                outputs = one_output(model(batch.inputs))
            loss = workload.loss(outputs.to(dtype), batch.targets, config)
            with products(precision, device):
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach() * len(batch.targets)  # stays on the device: no waiting inside an epoch
        epoch_s = clock(device) - began
        measured = tally.take()[1], busy.share()

        last = {"train_loss": total.item() / sets.train.count}
        if sets.validation is not None:
            found = evaluate(workload, model, sets.validation, config, precision)
            last |= {f"validation_{name}": value for name, value in found.items()}
        progress.add(rate, epoch_s, clock(device) - began, last)
        progress.waited(*measured)
        report(trial.key, epoch, last)
        checkpoints.save(progress, model, optimizer)

    if ending.state == "paused":
        checkpoints.keep(progress, model, optimizer)
    began = clock(device)
    scores = evaluate(workload, model, sets.test, config, precision) if ending.state == "done" else {}
    sets.times["test_s"] = clock(device) - began
    if ending.state == "done":
        sets.times["test_samples_per_s"] = len(sets.test) / sets.times["test_s"]
        save_tensors(folder.model(trial.key), model.state_dict(), {"config": config})
    facts = facts_of(model, config, progress) | Execution("eager", why=why).facts() | {
        "device": device.type, "precision": precision, "packed_with": 0, "resumed_at_epoch": resumed_at_epoch,
    }  # fmt: skip
    times = {"compile_s": 0.0, **sets.times, **progress.times(), **ending.times}
    times["wall_s"] = times["data_s"] + times["train_s"] + times["test_s"]
    return Outcome(trial.key, ending.state, ending.reason, {}, times, scores, progress.last, facts, progress.curve)


def facts_of(model: nn.Module, config: Config, progress: Progress) -> dict[str, Any]:
    """What a record says of a network on one device, however it was trained; None: not measured."""
    shares = progress.shares
    return {
        "devices": 1, "global_batch_size": config["batch_size"], "learning_rates": list(progress.rates),
        "epochs_run": progress.epoch, "parameters": sum(p.numel() for p in model.parameters()),
        "communication_s": 0.0, "bytes_exchanged": 0, "wait_s": progress.wait_s,
        "utilisation": sum(shares) / len(shares) if shares else None,
    }  # fmt: skip


@dataclass
class Sets:
    """The samples of a trial on its device, and the seconds that took."""

    train: TrainingBatches
    validation: Samples | None
    test: Samples
    times: dict[str, Any]


def load(
    data: Data, config: Config, device: torch.device, dtype: torch.dtype, remembered: Remembered | None = None
) -> Sets:
    """Bring the data to the device, augmented ahead of time if the config says so; what is remembered is there."""
    held = (remembered.hold if remembered else hold)(data, config, device, dtype)
    train = batches_of(held.train, held.stored, data, config)
    return Sets(train, held.validation, held.test, {**held.times, "data_s": held.brought_s})


@dataclass
class Ending:
    """Whether a trial is at its end, and which end that is."""

    limits: Limits
    config: Config
    until: int | None = None
    state: Any = "done"
    reason: str = ""
    times: dict[str, float] = field(default_factory=dict)

    def reached(self, progress: Progress) -> bool:
        """Look at the last epoch: not finite, target reached, no epochs left, or far enough for now."""
        if not progress.epoch:
            return False
        last, target = progress.curve[-1], self.limits.target
        if not all_finite(last):
            self.state, self.reason = "stopped", f"loss not finite in epoch {progress.epoch}"
            return True
        if on_target(last, self.limits):
            self.reason, self.times["time_to_target_s"] = "target reached", progress.elapsed_s
            return True
        most = self.limits.max_epochs
        if most is not None and progress.epoch >= most and (target or most < self.config["epochs"]):
            self.state, self.reason = "stopped", f"max_epochs {most} without the target" if target else "max_epochs"
            return True
        if self.until is not None and self.until <= progress.epoch < self.config["epochs"]:
            self.state, self.reason = "paused", f"paused after epoch {progress.epoch}"
            return True
        return bool(progress.epoch >= self.config["epochs"])


def evaluate(
    workload: Workload, model: nn.Module, samples: Samples, config: Config, precision: str
) -> dict[str, float]:
    """Loss and scores over a whole split."""
    outputs = torch.cat(predicted(model, samples, range(len(samples)), precision))
    return judged(workload, outputs, samples.targets, config)


@torch.no_grad()
def predicted(model: nn.Module, samples: Samples, rows: range, precision: str) -> list[torch.Tensor]:
    """What a network says of some samples, piece by piece, computed as it is in training."""
    model.eval()
    pieces = [slice(k, min(k + EVALUATION_BATCH, rows.stop)) for k in rows[::EVALUATION_BATCH]]
    with computing(precision, samples.targets.device):
        return [one_output(model(samples.rows(piece))).to(samples.dtype) for piece in pieces]


@torch.no_grad()
def judged(workload: Workload, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> dict[str, float]:
    """What outputs for a whole split are worth."""
    return {"loss": workload.loss(outputs, targets, config).item(), **workload.scores(outputs, targets)}


def warm_up(workload: Workload, model: nn.Module, batches: TrainingBatches, config: Config) -> float:
    """One step on a copy, so that the first epoch pays for no set-up; leaves every random state as it was."""
    began = time.perf_counter()
    with RandomStates(next(model.parameters(), torch.empty(0)).device):
        throwaway = copy.deepcopy(model).train()
        batch = next(batches.epoch(0))
        outputs = one_output(throwaway(batch.inputs))
        workload.loss(outputs, batch.targets, config).backward()  # type: ignore[no-untyped-call]
    return clock(batch.targets.device) - began


def place(model: nn.Module, device: torch.device, dtype: torch.dtype, samples: Samples) -> nn.Module:
    """The model on its device; convolutions over channels-last images get weights of that layout."""
    model = model.to(device=device, dtype=dtype)
    if device.type == "cpu":
        led_around(model)
    if samples.channels_last and samples.inputs.ndim == 4:
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
    return model


def choose_device(name: str) -> torch.device:
    """The device that a config means by `auto`, `cpu` or `cuda`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def clock(device: torch.device) -> float:
    """Seconds, once the device has done all that this thread asked of it: waits for a GPU, so once per epoch."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return time.perf_counter()
