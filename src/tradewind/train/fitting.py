"""Fits what a worker is sent: networks of one kind as one, kinds beside each other on a GPU where that is faster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from tradewind.folder import RunFolder
from tradewind.pack import Config, Outcome, Report, Scores, Task, Tell, Trial, network_of, untold
from tradewind.train import plain
from tradewind.train.auto_precision import about_step, candidates, chosen, step_s
from tradewind.train.beside import at_once
from tradewind.train.config_reads import TracedConfig
from tradewind.train.held import Remembered
from tradewind.train.member import Member, going_on, kind_of, members_of
from tradewind.train.narrow.fusing import fusable, has_kernels
from tradewind.train.packs import PackTraining, Together
from tradewind.train.plain import choose_device, load, place
from tradewind.train.precision import computing, kept_in, resolved
from tradewind.train.profile import Profile, Shape, kind_of_machine, profile_of, shape_of
from tradewind.train.random_states import RandomStates
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
    tell: Tell = untold,
    remembered: Remembered | None = None,
    why: str = "",
) -> dict[str, Outcome]:
    """The outcome of every trial by its key; trials that differ only in their epochs share a network in any case.

    Every outcome is also told as soon as it is there: other trials may go on for hours. `why`: they are alone.
    """
    fitting = _Fitting(workload, data, task, report, tell, remembered or Remembered(), why)
    fitting.fit(trials)
    return fitting.outcomes


def why_apart(trials: Sequence[Trial], workload: Workload, data: Data, task: Task) -> str:
    """Why the networks of a pack would not train as one, tried on a batch; empty where they would."""
    fitting = _Fitting(workload, data, task, lambda *_: None, untold, Remembered())
    members = fitting._groups(trials)[0]
    if reason := fitting._why_apart(members):
        return reason
    try:
        fitting._training(members).check()
    except Unstackable as reason:
        return str(reason)
    return ""


@dataclass
class _Ready:
    group: Group
    training: PackTraining
    steps: Steps


class _Fitting:
    def __init__(
        self,
        workload: Workload,
        data: Data,
        task: Task,
        report: Report,
        tell: Tell,
        remembered: Remembered,
        why: str = "",
    ) -> None:
        self._workload, self._data, self._task = workload, data, task
        self._remembered, self._why = remembered, why
        self._reads_epochs: bool | None = None  # not known yet
        self.outcomes: dict[str, Outcome] = {}
        speaking = threading.Lock()  # kinds beside each other are threads

        def one_by_one(key: str, epoch: int, scores: Scores) -> None:
            with speaking:
                report(key, epoch, scores)

        def ended(outcome: Outcome) -> None:
            with speaking:
                self.outcomes[outcome.key] = outcome
                tell(outcome)

        self._report: Report = one_by_one
        self._ended: Tell = ended

    def fit(self, trials: Sequence[Trial]) -> None:
        """Kinds beside each other where that can be done and pays, what is left one kind after the other."""
        trials = [self._in_precision(trial) for trial in trials]
        groups = self._groups(trials)
        if len(groups) > 1 and choose_device(trials[0].config["device"]).type == "cuda":
            self._fit_beside(groups)
            groups = self._groups(trials)
        for group in groups:
            self._fit_group(group)

    def _in_precision(self, trial: Trial) -> Trial:
        """With the precision that `auto` means."""
        config: Config = {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}
        if config["precision"] != "auto":
            return trial
        device = choose_device(config["device"])

        def measure(name: str) -> float:
            sets = load(self._data, config, device, kept_in(name), self._remembered)
            return step_s(self._workload, {**config, "precision": name}, sets)

        folder, about = RunFolder(Path(self._task.run_folder)), about_step(config, self._workload)
        return replace(
            trial, config={**trial.config, "precision": chosen(folder, about, candidates(device), measure)}
        )

    def _is_plain(self, members: Group) -> bool:
        """Whether this is one network that nothing of ours makes faster: on a CPU, our kernels can't do its front."""
        way, device = going_on(members[0]), choose_device(members[0].config["device"])
        if way or len(members) > 1 or len(members[0].trials) > 1 or device.type != "cpu":
            return way == "plain"
        return not self._has_front(members[0].config, device)

    def _has_front(self, config: Config, device: torch.device) -> bool:
        """Whether kernels of our own can do the front of networks of this kind."""
        if not has_kernels(device, resolved(config["precision"], device)):
            return False
        found, fronts = self._remembered.fronts.find(config), self._remembered.fronts
        if found is None:
            traced = TracedConfig(config)
            with RandomStates(device):
                found = fronts.add(traced, fusable(self._workload.model(traced), device.type))
        return found

    def _shape(self, config: Config) -> Shape | None:
        """What networks of this kind compute; None where that can't be seen."""
        found, shapes = self._remembered.shapes.find(config), self._remembered.shapes
        if found is None:
            traced, front = TracedConfig(config), self._has_front(config, choose_device(config["device"]))
            try:
                with RandomStates(choose_device(config["device"])):
                    found = shapes.add(traced, (shape_of(self._workload.model(traced), self._data.train, front),))
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                print(f"a network can't be looked at: {type(error).__name__}: {error}".splitlines()[0])
                found = shapes.add(traced, ())
        return found[0] if found else None

    def _profile(self, device: torch.device) -> Profile | None:
        return self._remembered.profile or profile_of(device)

    def _why_apart(self, members: Group) -> str:
        """Why networks that might train as one do not, by the profile of this machine; empty where they do."""
        if len(members) == 1 or going_on(members[0]):
            return ""
        config = members[0].config
        device = choose_device(config["device"])
        if (profile := self._profile(device)) is None:
            return f"no profile of {kind_of_machine(device)}; tradewind bench profile measures one"
        if (shape := self._shape(config)) is None:
            return "what the network computes can't be seen from two samples"
        threads = torch.get_num_threads()
        return profile.why_apart(shape, config["batch_size"], len(members), threads)

    def _fit_plainly(self, trials: Sequence[Trial], why: str) -> None:
        for trial in trials:
            self._ended(plain.train(trial, self._workload, self._data, self._task, self._report, why))

    def _groups(self, trials: Sequence[Trial]) -> list[Group]:
        """Networks that may be trained as one: of one kind, and as far as each other, since only equals keep step."""
        found: dict[tuple[str, ...], Group] = {}
        left = [trial for trial in trials if trial.key not in self.outcomes]
        for member in members_of(left, RunFolder(Path(self._task.run_folder)), self._share_epochs(left)):
            kind, way = kind_of(member.config, self._workload), going_on(member)
            company = member.key if way in {"plain", "one"} else way
            found.setdefault((kind, str(member.progress.epoch), company), []).append(member)
        return list(found.values())

    def _share_epochs(self, trials: Sequence[Trial]) -> bool:
        """Whether trials that differ in their epochs alone share them: model and loss do not read `epochs`."""
        if len({network_of(trial) for trial in trials}) == len(trials):
            return True  # none of them do
        if self._reads_epochs is None:
            config: Config = {**trials[0].config, "seed": trials[0].seed, "data_seed": trials[0].data_seed}
            device, traced = choose_device(config["device"]), TracedConfig(config)
            dtype = kept_in(resolved(config["precision"], device))
            sets = load(self._data, config, device, dtype, self._remembered)
            with contextlib.suppress(Exception):  # whatever is wrong with it shows in training
                model, batch = self._workload.model(traced), next(sets.train.epoch(0))
                model = place(model, device, dtype, sets.train.samples)
                self._workload.loss(model(batch.inputs), batch.targets, traced)
            self._reads_epochs = "epochs" in traced.reads
        return not self._reads_epochs

    def _training(self, members: Group, why: str = "") -> PackTraining:
        config = members[0].config
        device = choose_device(config["device"])
        dtype = kept_in(resolved(config["precision"], device))
        sets = load(self._data, config, device, dtype, self._remembered)
        about = self._workload, sets, self._task, self._report, self._ended
        building_s = 0.0
        if device.type == "cuda" and (profile := self._profile(device)) and (shape := self._shape(config)):
            building_s = profile.building_saves_s(shape, 1)
        return PackTraining(members, *about, why, building_s)

    def _fit_group(self, members: Group, why: str = "") -> None:
        """As one where that can be done and pays; a pack too large for its device is halved; `why` it is as it is."""
        trials = [list(member.trials) for member in members]  # training takes out those that end
        if self._is_plain(members):
            self._fit_plainly(trials[0], why or self._why)
            return
        try:
            if reason := self._why_apart(members):
                raise Unstackable(reason)
            together = self._training(members, why or (self._why if len(members) == 1 else ""))
            together.check()
            together.run(together.start())
            return
        except Unstackable as reason:
            if not why:
                print(f"networks one by one: {reason}")
            if len(members) == 1:  # not even as a stack of one
                self._fit_plainly(members[0].trials, why or str(reason))
                return
            for member in members:
                self._fit_group([member], str(reason))
            return
        except torch.OutOfMemoryError:
            if len(members) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(members) // 2  # from what was kept on the way
        for part in (trials[:half], trials[half:]):
            for group in self._groups([*chain(*part)]):
                self._fit_group(group, f"{len(members)} networks at once were more than the memory holds")

    def _fit_beside(self, groups: list[Group]) -> None:
        """Those that can be: what is too large for that, or no graph, is left."""
        device, precision = self._where(groups)
        try:
            ready = self._ready(groups) if precision and self._beside_pays(groups, device) else []
        except torch.OutOfMemoryError:
            ready = []
        if len(ready) < 2:
            ready.clear()
            torch.cuda.empty_cache()
            return
        trials = sum(one.training.together.trials for one in ready)
        together = Together(trials, ready[0].training.together.began)
        for one in ready:
            one.training.together = together
        with computing(precision, device):  # a switch for all threads
            at_once([partial(one.training.run, one.steps) for one in ready], device)

    def _beside_pays(self, groups: list[Group], device: torch.device) -> bool:
        """Whether these kinds train faster beside each other, by the profile of this kind of machine."""
        works = [
            shape.total * group[0].config["batch_size"] * len(group)
            for group in groups
            if (shape := self._shape(group[0].config))
        ]
        profile = self._profile(device)
        return profile is not None and profile.beside_pays(works)

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
                if self._why_apart(group):
                    continue
                training = self._training(group)
                training.check()
                steps = training.start()
                if steps.captured:
                    found.append(_Ready(group, training, steps))
        return found
