"""The trainer of a worker: knows how to fit any pack of its study."""

from __future__ import annotations

import copy
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import StudyError
from tradewind.pack import Config, Gang, Outcome, Pack, Report, Task, Tell, Trial, untold
from tradewind.train import command, function
from tradewind.workloads import find, is_network, make

if TYPE_CHECKING:
    from tradewind.train.config_reads import TracedConfig
    from tradewind.train.held import Remembered
    from tradewind.train.parallel.group import Group, Meeting
    from tradewind.train.unread import Watch
    from tradewind.workloads.contract import Data, Workload


class Trainer:
    """Built once per worker; keeps the workload and, to tune, the data from trial to trial."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._target = find(task.workload, Path(task.study_folder)) if task.workload else None
        self._network = task.workload != "" and is_network(self._target)
        self._kept: tuple[TracedConfig, Workload, Data] | None = None
        self._remembered: Remembered | None = None
        self._meeting: Meeting | None = None
        self._group: Group | None = None
        self._first = True  # no trial has ended well here: it is not known what the workload reads
        self._watch: Watch | None = None
        if self._network:
            import torch

            torch.set_num_threads(task.threads)

    def meet(self) -> str:
        """Open a meeting of which this worker is the leader; where the others find it, as host:port."""
        from tradewind.train.parallel.group import Meeting

        self._leave()
        self._meeting = Meeting()
        return self._meeting.address

    def fit(self, pack: Pack, report: Report, tell: Tell = untold) -> list[Outcome]:
        """Train every trial of the pack: by its gang, as one where they can be stacked, else one after the other."""
        _check_gang(pack, self._network)
        pack = replace(pack, trials=tuple(map(_copied, pack.trials)))
        if pack.gang is not None and pack.gang.of > 1:
            return [self._fit_together(trial, pack.gang, report) for trial in pack.trials]
        if not self._network:
            return [self._fit(trial, report) for trial in pack.trials]
        _forget_peak()
        found, left = dict[str, Outcome](), list(pack.trials)
        while left:
            group = self._fit_networks(replace(pack, trials=tuple(left)), report, tell)
            found |= group
            left = [trial for trial in left if trial.key not in group]
        return [found[trial.key] for trial in pack.trials]

    def _fit_networks(self, pack: Pack, report: Report, tell: Tell) -> dict[str, Outcome]:
        """Train the first trial of a pack, and with it all that have its data."""
        from tradewind.train.fitting import train_pack
        from tradewind.train.held import Remembered
        from tradewind.train.unread import unread

        workload, data, reads, took = self._timed_data(pack.trials[0])
        if self._remembered is None or self._task.purpose == "time":  # to time, every trial brings its own data
            self._remembered = Remembered()

        def ended(outcome: Outcome) -> None:
            _complete(outcome, took)
            if self._watch and outcome.state != "failed":
                self._watch.end()
                outcome.facts["unread"] = unread(self._task, workload, self._watch.read, reads.reads)
                self._watch, self._first = None, False
            tell(outcome)

        first = pack.trials[0]
        same = [trial for trial in pack.trials if trial is first or reads.agrees(_whole(trial))]
        return train_pack(same, workload, data, self._task, report, ended, self._remembered, pack.why)

    def _fit(self, trial: Trial, report: Report) -> Outcome:
        _forget_peak()
        if self._target is None:
            outcome = command.execute(trial, self._task)
            outcome.facts["unread"] = command.unread(self._task)
        else:
            outcome = function.call(self._target, trial, self._task, report, self._first)
            self._first = False
        outcome.facts |= _peaks()
        return outcome

    def _fit_together(self, trial: Trial, gang: Gang, report: Report) -> Outcome:
        from tradewind.train.parallel import loop

        _forget_peak()
        try:
            began = time.perf_counter()
            group = self._joined(gang)
            joined = time.perf_counter()
            workload, data, _, took = self._timed_data(trial)
            outcome = loop.train(trial, workload, data, self._task, report, group)
        except BaseException:
            self._leave()  # it is not known what the others have exchanged since
            raise
        outcome.times["warmup_s"] += joined - began
        _complete(outcome, took)
        return outcome

    def _joined(self, gang: Gang) -> Group:
        """The group of this gang, kept from trial to trial."""
        from tradewind.train.parallel.group import Group

        if self._group is not None and (self._group.gang != gang or not self._group.whole()):
            self._leave()
        if self._group is None:
            self._group = Group(gang, self._meeting)
        return self._group

    def _leave(self) -> None:
        if self._group is not None:
            group, self._group = self._group, None
            group.leave()

    def _timed_data(self, trial: Trial) -> tuple[Workload, Data, TracedConfig, dict[str, float]]:
        """Also what that took; what had to be made first, for all that come after, was no loading."""
        from tradewind.workloads.cache import making_s

        began, made_s = time.perf_counter(), making_s()
        reads, workload, data = self._data(trial)
        made_s = making_s() - made_s
        return workload, data, reads, {"data_s": time.perf_counter() - began - made_s, "warmup_s": made_s}

    def _data(self, trial: Trial) -> tuple[TracedConfig, Workload, Data]:
        """The data of a trial, and what `data()` read of its config: they serve all trials that agree in that."""
        from tradewind.train.config_reads import TracedConfig

        if self._kept is not None:
            if self._kept[0].agrees(_whole(trial)):
                return self._kept
            self._kept = None
            if self._remembered is not None:
                self._remembered.forget_data()
        config, workload = TracedConfig(_whole(trial)), make(self._target, self._task.data)
        if self._first:
            from tradewind.train.unread import Watch

            self._watch = Watch(workload, self._task.data)
        found = config, workload, workload.data(config)
        if self._task.purpose == "tune":  # to time, every trial loads its own, or data_s would be a lie
            self._kept = found
        return found


def _whole(trial: Trial) -> Config:
    """The config that a workload's code is given."""
    return {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}


def _copied(trial: Trial) -> Trial:
    """A trial whose lists and dicts are its own: code that changes them changes no other trial, and no record."""
    if any(isinstance(value, list | dict) for value in trial.config.values()):
        return replace(trial, config=copy.deepcopy(trial.config))
    return trial


def _complete(outcome: Outcome, took: dict[str, float]) -> None:
    for name, seconds in took.items():
        outcome.times[name] += seconds
    outcome.times["wall_s"] += took["data_s"]
    outcome.facts |= _peaks()


def _check_gang(pack: Pack, network: bool) -> None:
    of = pack.gang.of if pack.gang else 1
    devices = pack.trials[0].config["devices"] if network else 1
    if devices != of:
        raise StudyError(
            f"devices: found {devices}, and {of} worker{'s' * (of > 1)} to train this trial; "
            "take the engine processes or mpi, with at least as many workers as devices"
        )


def _forget_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(b"5")  # the kernel's peak starts anew
    except OSError:
        pass
    if cuda := _cuda():
        cuda.reset_peak_memory_stats()


def _peaks() -> dict[str, int]:
    """The most memory since it was forgotten: of this process, and on its GPU where torch has used one."""
    scale = 1 if sys.platform == "darwin" else 1024
    found = {"peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale}
    if cuda := _cuda():
        found["peak_gpu_memory_bytes"] = cuda.max_memory_allocated()
    return found


def _cuda() -> Any:
    """torch's, where something in this process has used a GPU; nothing is imported to see that."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
