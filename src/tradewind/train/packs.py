"""Packs: trials that differ only in what can be stacked train as one network, epoch by epoch on the same batches.

A member of a pack is a network. Trials that differ in nothing but their epochs share one: the shorter ones are
read off on the way. What a trial gives is what the plain loop gives, to rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from tradewind.folder import RunFolder
from tradewind.pack import Config, Outcome, Report, Task, Tell, Trial
from tradewind.train.batches import TrainingBatches
from tradewind.train.checkpoint import save_tensors
from tradewind.train.config_reads import TracedConfig
from tradewind.train.execution import Execution
from tradewind.train.member import Member, PackCheckpoints, going_on
from tradewind.train.optim import learning_rate
from tradewind.train.parallel.meters import Busy, Tally
from tradewind.train.plain import (
    EVALUATION_BATCH,
    Ending,
    Sets,
    choose_device,
    clock,
    facts_of,
    judged,
    place,
)
from tradewind.train.precision import kept_in, resolved
from tradewind.train.stack import Stack, Unstackable
from tradewind.train.stacked import Stacked
from tradewind.train.steps import Steps
from tradewind.workloads.contract import Workload

COMPILING_S, BUILDING_S = 25.0, 10.0  # about what torch.compile takes, and the kernels of our own convolutions
BUILT_SAVES = 0.35  # of the time of a step, at the least
MAKING = threading.Lock()  # of graphs, where packs train beside each other: what traces and compiles is one for all


class Together:
    """Trials in training at once, since when, and what each is allotted of the time: of every moment an equal share
    to all that are still in training, so that the shares of all add up to the time that passed."""

    def __init__(self, trials: int, began: float) -> None:
        self.trials, self.began = trials, began
        self._left, self._at, self._share_s = trials, began, 0.0
        self._one_by_one = threading.Lock()

    def share_s(self, now: float) -> float:
        """That of a trial which ends now."""
        with self._one_by_one:
            self._share_s += max(0.0, now - self._at) / self._left
            self._at, self._left = max(self._at, now), max(1, self._left - 1)
            return self._share_s


class PackTraining:
    """The networks of a pack in training."""

    def __init__(
        self,
        members: Sequence[Member],
        workload: Workload,
        sets: Sets,
        task: Task,
        report: Report,
        tell: Tell,
        why: str = "",  # it is of no faster form
        building_s: float = 0.0,  # of training that kernels could shorten if they were built
    ) -> None:
        self._workload, self._sets, self._task, self._report, self._tell = workload, sets, task, report, tell
        self._why, self._building_s = why, building_s
        self.members = list(members)
        config = self.members[0].config
        self._device = choose_device(config["device"])
        self._precision = resolved(config["precision"], self._device)
        self._models = [self._model(member) for member in self.members]
        self._goes_on = going_on(self.members[0]) == "several"
        self._way = "several" if self._goes_on or len(self.members) > 1 else "one"
        seeds, exact = [member.seed for member in self.members], self._device.type == "cpu"
        self._stack = Stack(self._models, seeds, workload, self._precision, exact and self._way == "several")
        self._optimizer = Stacked(self._stack.rows, [member.config for member in self.members])
        self._folder = RunFolder(Path(task.run_folder))
        self._checkpoints = PackCheckpoints(self._folder, self._stack, self._optimizer)
        self._resumed = self.members[0].progress.epoch
        self.together = Together(sum(len(member.trials) for member in self.members), clock(self._device))
        self._execution = Execution("ensemble", len(self.members))
        self._tested: torch.Tensor | None = None  # outputs for the test split after this epoch
        self._compile_s, self._warmup_s = self._stack.compile_s, 0.0

    def check(self) -> None:
        """Raises Unstackable unless these networks can be trained as one."""
        began = clock(self._device)
        batch = next(self._sets.train.epoch(0))
        own, config = [TracedConfig(member.config) for member in self.members], self._config()
        self._stack.check(self._models, batch, own, config)
        for name in sorted({name for traced in own for name in traced.reads}):
            values = [member.config.get(name) for member in self.members]
            if any(value != values[0] for value in values) and not isinstance(config.get(name), torch.Tensor):
                raise Unstackable(f"loss() reads {name!r}, in which they differ")
        took_s = clock(self._device) - began
        if self._device.type == "cuda":  # the first step builds our kernels
            self._compile_s += took_s
        else:
            self._warmup_s += took_s

    def start(self) -> Steps:
        """Take up what was kept, and make the steps."""
        for number, member in enumerate(self.members):
            if member.progress.epoch:
                self._checkpoints.restore(number, member)
        steps = self._steps()
        self._rehearse()
        return steps

    def _rehearse(self) -> None:
        """Judge once unheeded where times count: on a GPU the first call of a kernel loads it, or builds it."""
        if self._device.type != "cuda" or self._task.purpose != "time":
            return
        began = clock(self._device)
        for samples in (self._sets.validation, self._sets.test):
            if samples is not None and len(samples):
                outputs = self._stack.predict(samples, EVALUATION_BATCH)[0]
                with suppress(Exception):  # a user's scores may have no answer to what an untrained network says
                    self._scores(0, outputs, samples.targets)
        self._warmup_s += clock(self._device) - began

    def run(self, steps: Steps) -> None:
        """Train until every trial has ended; each is told of as it ends."""
        while True:  # what was kept may be at its end already
            alive = [number for number, member in enumerate(self.members) if not self._ended(number, member)]
            if not alive:
                return
            if len(alive) <= len(self.members) // 2 or (len(alive) < len(self.members) and not steps.captured):
                self.members = [self.members[number] for number in alive]
                self._stack.keep(alive)
                self._optimizer.keep(alive)
                with MAKING:
                    steps = self._steps()
            self._epoch(steps)
            self._checkpoints.save(self.members)

    def _steps(self) -> Steps:
        """The steps from here on; what takes long to build is built where that is expected to pay."""
        train, stack = self._sets.train, self._stack
        about = stack, self._optimizer, train, self._config()
        epochs = max(member.epochs_left for member in self.members)
        saved_s = BUILT_SAVES * self._building_s * epochs * train.count * len(self.members)
        began = clock(self._device)
        # what is left besides our kernels is little
        builds = not (stack.fuses or stack.folds) and saved_s >= (BUILDING_S if stack.foldable else COMPILING_S)
        steps = self._built(about) if builds else None
        if steps is None:
            steps = Steps(*about)
        took_s = clock(self._device) - began
        if builds:
            self._compile_s += took_s
        else:
            self._warmup_s += took_s
        kernels = "front" if stack.fuses else "grouped" if stack.folds else "compiled" if steps.compiled else ""
        why = "; ".join(reason for reason in (self._why, stack.why_torch, steps.why_no_graph) if reason)
        self._execution = replace(self._execution, graph=steps.captured, kernels=kernels, why=why)
        return steps

    def _built(self, about: tuple[Stack, Stacked, TrainingBatches, Config]) -> Steps | None:
        """The steps by kernels that are built for them, as a graph; None where they can't be."""
        stack, compiled = self._stack, not self._stack.foldable
        try:
            if not compiled:
                stack.fold(next(self._sets.train.epoch(0)), self._config())
            steps = Steps(*about, compiled=compiled)
        except Unstackable:
            return None
        if steps.captured:
            return steps
        stack.unfold()
        return None

    def _epoch(self, steps: Steps) -> None:
        self._tested = None
        epoch = 1 + max(member.progress.epoch for member in self.members)
        rates = [learning_rate(member.config, epoch) for member in self.members]
        watched = self._device.type == "cpu"  # a GPU's steps do not wait for the host
        tally, busy = (Tally(self._device), Busy(self._device)) if watched else (None, None)
        began = clock(self._device)
        total = steps.epoch(epoch, self._column(rates)[:, None], tally.waited if tally else iter)
        epoch_s = clock(self._device) - began
        measured = (tally.wait_s, busy.share()) if tally and busy else None
        lasts = [{"train_loss": loss} for loss in (total / self._sets.train.count).tolist()]
        if self._sets.validation is not None:
            outputs = self._stack.predict(self._sets.validation, EVALUATION_BATCH)
            for number, last in enumerate(lasts):
                if not self.members[number].trials:
                    continue
                found = self._scores(number, outputs[number], self._sets.validation.targets)
                last |= {f"validation_{name}": value for name, value in found.items()}
        elapsed_s = clock(self._device) - began
        for member, rate, last in zip(self.members, rates, lasts, strict=True):
            if not member.trials:
                continue  # it goes on in the graph, unheeded, until half of them have ended
            member.progress.add(rate, epoch_s, elapsed_s, last)
            member.progress.way = self._way
            if measured:
                member.progress.waited(*measured)
            for trial in member.trials:
                self._report(trial.key, epoch, last)

    def _ended(self, number: int, member: Member) -> bool:
        """Read off the trials of a network that have come to their end; whether all have."""
        for trial in list(member.trials):
            ending = Ending(self._task.limits, {**member.config, "epochs": trial.config["epochs"]}, trial.until)
            if ending.reached(member.progress):
                if ending.state == "paused":
                    self._checkpoints.keep(number, member)
                member.trials.remove(trial)
                self._tell(self._outcome(number, member, trial, ending))
        return not member.trials

    def _outcome(self, number: int, member: Member, trial: Trial, ending: Ending) -> Outcome:
        began = clock(self._device)
        scores: dict[str, float] = {}
        if ending.state == "done":
            if self._tested is None:
                self._tested = self._stack.predict(self._sets.test, EVALUATION_BATCH)
            scores = self._scores(number, self._tested[number], self._sets.test.targets)
        test_s = clock(self._device) - began
        if ending.state == "done":
            config = {**member.config, "epochs": trial.config["epochs"]}
            save_tensors(self._folder.model(trial.key), self._stack.state(number), {"config": config})
        progress, now = member.progress, clock(self._device)
        times = {
            "compile_s": self._compile_s,
            "warmup_s": self._warmup_s,
            **self._sets.times,
            **progress.times(),
            **ending.times,
            "test_s": test_s,
        }
        if ending.state == "done" and len(self.members) == 1:  # of a pack's networks all are tested at once
            times["test_samples_per_s"] = len(self._sets.test) / test_s
        if self.together.trials > 1:
            times["pack_wall_s"] = now - self.together.began
            times["share_s"] = self.together.share_s(now)  # allotted: alone it is not known
        times["wall_s"] = times["data_s"] + times["train_s"] + times["test_s"]
        facts = facts_of(self._models[0], member.config, progress) | {
            "device": self._device.type, "precision": self._precision, "packed_with": self.together.trials - 1,
            "resumed_at_epoch": self._resumed, **self._execution.facts(),
        }  # fmt: skip
        curve = [dict(row) for row in progress.curve]
        return Outcome(trial.key, ending.state, ending.reason, {}, times, scores, dict(progress.last), facts, curve)

    def _model(self, member: Member) -> nn.Module:
        torch.manual_seed(member.seed)
        return place(
            self._workload.model(member.config), self._device, kept_in(self._precision), self._sets.train.samples
        )

    def _column(self, values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self._device).to(self._stack.rows.dtype)

    def _config(self) -> Config:
        """The config of all networks: a column wherever the workload's own values differ."""
        config = dict(self.members[0].config)
        for name, known in self._workload.defaults.items():
            values = [member.config[name] for member in self.members]
            if known.stacks and known.kind is float and len(set(values)) > 1:
                config[name] = self._column(values)
        return config

    def _scores(self, number: int, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        return judged(self._workload, outputs, targets, self.members[number].config)
