"""Fits what a worker is sent: networks of one kind as one, kinds beside each other on a GPU where that is faster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from tradewind.folder import RunFolder
from tradewind.pack import Config, Outcome, Report, Scores, Task, Trial
from tradewind.train import plain
from tradewind.train.beside import at_once, pays
from tradewind.train.held import Remembered
from tradewind.train.member import Member, going_on, kind_of, members_of
from tradewind.train.narrow.fusing import fusable, has_kernels
from tradewind.train.packs import PackTraining, Together
from tradewind.train.plain import choose_device, load
from tradewind.train.precision import computing, kept_in, resolved
from tradewind.train.stack import Unstackable
from tradewind.train.steps import Steps
from tradewind.workloads.contract import Data, Workload

Group = list[Member]


def train_pack(
    trials: Sequence[Trial],
    workload: Workload,
    data: Data,
    task: Task,
    report: Report,
    remembered: Remembered | None = None,
) -> dict[str, Outcome]:
    """The outcome of every trial by its key; trials that differ only in their epochs share a network in any case."""
    fitting = _Fitting(workload, data, task, report, remembered or Remembered())
    return {outcome.key: outcome for outcome in fitting.fit(trials)}


@dataclass
class _Ready:
    group: Group
    training: PackTraining
    steps: Steps


class _Fitting:
    def __init__(self, workload: Workload, data: Data, task: Task, report: Report, remembered: Remembered) -> None:
        self._workload, self._data, self._task = workload, data, task
        self._remembered = remembered
        speaking = threading.Lock()

        def one_by_one(key: str, epoch: int, scores: Scores) -> None:
            with speaking:
                report(key, epoch, scores)

        self._report: Report = one_by_one

    def fit(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Kinds beside each other where that can be done and pays, what is left one kind after the other."""
        groups, found = self._groups(trials), list[Outcome]()
        if len(trials) == 1 and not going_on(groups[0][0]) and self._is_plain(trials[0]):
            return self._fit_plainly(trials)
        if len(groups) > 1 and choose_device(trials[0].config["device"]).type == "cuda":
            groups, found = self._fit_beside(groups)
        return found + [outcome for group in groups for outcome in self._fit_group(group)]

    def _is_plain(self, trial: Trial) -> bool:
        """Whether nothing of ours makes a network faster: on a CPU, none of our kernels can do its front."""
        config: Config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
        device = choose_device(config["device"])
        if device.type != "cpu":
            return False
        if not has_kernels(device, resolved(config["precision"], device)):
            return True
        kind, fronts = kind_of(config, self._workload), self._remembered.fronts
        if kind not in fronts:
            fronts[kind] = fusable(self._workload.model(config), device.type)
        return not fronts[kind]

    def _fit_plainly(self, trials: Sequence[Trial]) -> list[Outcome]:
        about = self._workload, self._data, self._task, self._report
        return [plain.train(trial, *about) for trial in trials]

    def _groups(self, trials: Sequence[Trial]) -> list[Group]:
        """Networks that may be trained as one: of one kind, and as far as each other, since only equals keep step."""
        found: dict[tuple[str, ...], Group] = {}
        for member in members_of(trials, RunFolder(Path(self._task.run_folder))):
            kind, way = kind_of(member.config, self._workload), going_on(member)
            company = member.key if way in {"plain", "one"} else way
            found.setdefault((kind, str(member.progress.epoch), company), []).append(member)
        return list(found.values())

    def _training(self, members: Group) -> PackTraining:
        config = members[0].config
        device = choose_device(config["device"])
        dtype = kept_in(resolved(config["precision"], device))
        sets = load(self._data, config, device, dtype, self._remembered)
        return PackTraining(members, self._workload, sets, self._task, self._report, self._remembered.slower)

    def _fit_group(self, members: Group, said: bool = False) -> list[Outcome]:
        """As one where that can be done and pays; a pack too large for its device is halved."""
        trials = [list(member.trials) for member in members]  # training takes out those that end
        if going_on(members[0]) == "plain":
            return self._fit_plainly(trials[0])
        try:
            together = self._training(members)
            together.check()
            return together.run(together.start())
        except Unstackable as reason:
            if not said:
                print(f"networks one by one: {reason}")
            if len(members) == 1:  # not even as a stack of one
                return self._fit_plainly(members[0].trials)
            return [outcome for member in members for outcome in self._fit_group([member], said=True)]
        except torch.OutOfMemoryError:
            if len(members) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(members) // 2  # from what was kept on the way
        return self._fit_apart([*chain(*trials[:half])]) + self._fit_apart([*chain(*trials[half:])])

    def _fit_apart(self, trials: Sequence[Trial]) -> list[Outcome]:
        return [outcome for group in self._groups(trials) for outcome in self._fit_group(group)]

    def _fit_beside(self, groups: list[Group]) -> tuple[list[Group], list[Outcome]]:
        """The groups that are left for later, and what has come of the others."""
        device, precision = self._where(groups)
        try:
            ready = self._ready(groups) if precision else []
        except torch.OutOfMemoryError:
            ready = []
        if len(ready) < 2 or not pays([one.steps for one in ready], device):
            ready.clear()
            torch.cuda.empty_cache()
            return groups, []
        trials = [[trial for member in one.group for trial in member.trials] for one in ready]
        together = Together(sum(map(len, trials)), ready[0].training.together.began)
        for one in ready:
            one.training.together = together
        with computing(precision, device):  # a switch for all threads
            found = at_once([partial(one.training.run, one.steps) for one in ready], device)
        short = [trial for one, given in zip(trials, found, strict=True) if given is None for trial in one]
        begun = [one.group for one in ready]
        left = self._groups(short) + [group for group in groups if group not in begun]
        return left, [outcome for given in found if given is not None for outcome in given]

    def _where(self, groups: list[Group]) -> tuple[torch.device, str]:
        """The device of all groups, and the precision of all, if they have it in common."""
        device = choose_device(groups[0][0].config["device"])
        found = {resolved(group[0].config["precision"], device) for group in groups}
        return device, found.pop() if len(found) == 1 else ""

    def _ready(self, groups: list[Group]) -> list[_Ready]:
        """Those whose steps are graphs: others would wait for each other in the interpreter."""
        found = []
        for group in groups:
            with contextlib.suppress(Unstackable):  # said in its turn
                training = self._training(group)
                training.check()
                steps = training.start()
                if steps.captured:
                    found.append(_Ready(group, training, steps))
        return found
