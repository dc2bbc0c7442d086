"""The crew of a run: this process alone, local processes, MPI ranks or a Dask cluster, each in its place."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tradewind import machine
from tradewind.engine import TRAINER, Engine
from tradewind.engine.executor import dask
from tradewind.engine.mpi import Mpi, follow
from tradewind.engine.processes import Processes
from tradewind.engine.serial import Serial
from tradewind.engine.world import RankZeroGone, World, launched, lonely_tasks, number_of
from tradewind.errors import Mistake, StudyError, nearest
from tradewind.folder import RunFolder
from tradewind.pack import Place, Seat, Share, Value
from tradewind.schedule.placement import apart, place, taking_turns
from tradewind.schedule.trials import Trials
from tradewind.space import Space
from tradewind.stopping import SIGNALS

ENGINES = ("auto", "serial", "processes", "mpi", "dask")
SCHEDULES = ("dispatch", "synchronous")


@dataclass(frozen=True)
class Options:
    """How a study is run: nothing here changes what a trial gives."""

    engine: str = "auto"
    workers: int | None = None
    schedule: str = "dispatch"
    rank: int | None = None
    of: int | None = None
    probe: int | None = None
    max_time_s: float | None = None
    retry_failed: bool = False
    fresh: bool = False
    rerun: str = ""
    no_wait: bool = False

    def check(self) -> None:
        """Refuse what can't be."""
        for name, value, known in (("engine", self.engine, ENGINES), ("schedule", self.schedule, SCHEDULES)):
            if value not in known:
                raise StudyError(f"--{name} {value}: {nearest(value, known)}")
        if self.workers is not None and self.workers < 1:
            raise StudyError(f"--workers {self.workers}: allowed: 1 or more")
        if (self.rank is None) != (self.of is None):
            raise Mistake("--rank and --of: say both, such as --rank 0 --of 4, or neither")
        if self.rank is not None and not 0 <= self.rank < (self.of or 0):
            raise Mistake(f"--rank {self.rank} --of {self.of}: allowed: ranks from 0 to one less than --of")
        if self.rank is not None and self.schedule != "synchronous":
            raise Mistake("--rank and --of deal out a synchronous share: add --schedule synchronous")
        if self.rank is not None and self.fresh:
            raise Mistake("--fresh with --rank: each rank would set aside what the others do; move the folder first")
        if self.rerun and (self.fresh or self.schedule != "dispatch"):
            raise Mistake(f"--rerun {self.rerun}: allowed: with --schedule dispatch, on a run that has results")
        if self.probe is not None and (self.probe < 1 or self.schedule != "dispatch"):
            raise Mistake(f"--probe {self.probe}: allowed: 1 or more, with --schedule dispatch")
        if self.engine == "dask" and self.schedule == "synchronous":
            raise Mistake("--engine dask hands work out by nature; --schedule synchronous needs mpi or processes")


@contextmanager
def joined(how: Options) -> Iterator[World | None]:
    """The MPI world that this process belongs to, if there is one; rank 0 ends it for all."""
    if how.engine == "mpi" or (how.engine == "auto" and launched()):
        world = World()
        if world.size == 1 and (tasks := lonely_tasks()):
            raise Mistake(_lonely(tasks))
        if world.rank:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # rank 0 decides
        try:
            yield world
        finally:
            world.leave()
        return
    if how.engine == "auto" and how.schedule == "dispatch" and (tasks := lonely_tasks()):
        raise Mistake(_lonely(tasks))
    yield None


def _lonely(tasks: int) -> str:
    return (
        f"SLURM_NTASKS is {tasks}, but this process is alone in its MPI world: Slurm has started {tasks} copies of "
        "the run; start them with srun --mpi=pmix or mpiexec, or say --schedule synchronous, or --engine processes "
        "for a single one"
    )


def followed(world: World | None) -> bool:
    """On another rank than the first: train what rank 0 hands out until all is over.

    False where a rank has work of its own, which rank 0 has prepared by then: to lead, or a synchronous share.
    """
    if world is None or not world.rank:
        return False
    world.hello()
    kind, *content = world.wait()
    if kind == "task":
        follow(world, content)
    elif kind == "share":
        world.place = content[0]
    return bool(kind != "share")


def share_of(how: Options, world: World | None) -> Share | None:
    """Which share of how many this process has; None where trials are handed out."""
    if how.schedule == "dispatch":
        return None
    if how.rank is not None and how.of is not None:
        return Share(how.rank, how.of)
    if world is not None:
        return Share(world.rank, world.size, watches=not world.rank)
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        first, count = number_of("SLURM_ARRAY_TASK_MIN", 0), number_of("SLURM_ARRAY_TASK_COUNT", 1)
        return Share(number_of("SLURM_ARRAY_TASK_ID", 0) - first, count)
    if "SLURM_PROCID" in os.environ:
        return Share(number_of("SLURM_PROCID", 0), number_of("SLURM_NTASKS", 1))
    raise Mistake(
        "--schedule synchronous: which share is this? start it by mpiexec or srun, in a Slurm array, "
        "or say --rank I --of N"
    )


@contextmanager
def others_of(world: World | None, how: Options) -> Iterator[Callable[[], bool]]:
    """Whether other ranks still work on their shares, for rank 0 to ask once the plan is there."""
    if world is None or how.schedule == "dispatch":
        yield lambda: False
        return
    if not world.rank:
        for rank, place in enumerate(world.places):
            if rank:
                world.send(rank, "share", place)
    try:
        yield world.at_work if not world.rank else world.called_off
        if world.rank and 0 in world.dead:
            raise RankZeroGone("rank 0 has died; the same command goes on with the run")
    finally:
        if world.rank:
            world.finish_share()


def check_devices(trials: Trials, how: Options, world: World | None) -> None:
    """Refuse a study whose trials take more devices than the run has, or a GPU where there is none."""
    here = world is None and how.engine != "dask"
    if here and "device" in trials.known and "cuda" in _values(trials, "device") and not machine.gpu_ids():
        raise StudyError(
            "device: cuda, but this host has no GPU; run it where there is one, or on cores by --set fixed.device=cpu"
        )
    devices = most_devices(trials)
    if devices == 1 or (world is not None and world.rank):
        return
    if how.engine in {"serial", "dask"} or _at_prompt(trials):
        engine = how.engine if how.engine == "dask" else "serial"
        raise StudyError(
            f"devices: {devices} needs --engine processes or mpi; {engine} trains a network on one device"
        )
    if world is not None and how.schedule == "synchronous":
        raise StudyError(f"devices: {devices} needs --schedule dispatch; a rank with a share of its own trains alone")
    elsewhere = f"run it where there are {devices}, or let processes stand in for them by --set fixed.device=cpu"
    if world is not None:
        if world.size < devices:
            raise StudyError(
                f"devices: {devices}, but this run has {_count(world.size, 'rank')}; start it on {devices} or more"
            )
        if (able := apart(_places_of_ranks(trials, world.gather()))) < devices:
            raise StudyError(f"devices: {devices}, but this run's ranks have {_count(able, 'GPU')}; {elsewhere}")
        return
    gpus = machine.gpu_ids() if _on_gpus(trials) else ()
    if gpus and len(gpus) < devices:
        raise StudyError(f"devices: {devices}, but this host has {_count(len(gpus), 'GPU')}; {elsewhere}")
    if how.workers is not None and how.workers < devices:
        raise StudyError(f"--workers {how.workers}: devices: {devices} needs {devices} workers or more")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def most_devices(trials: Trials) -> int:
    """How many devices the largest trial of a study takes; what a function does with its own is its matter."""
    if "devices" not in trials.known:
        return 1
    space, counts = trials.space, sorted(map(int, _values(trials, "devices")), reverse=True)
    if "devices" not in space.dimensions or not space.where:
        return counts[0]
    some = (Space({**space.dimensions, "devices": [n]}, space.where, trials.defaults) for n in counts)
    return next((n for n, these in zip(counts, some, strict=True) if next(these.indices(), None) is not None), 1)


def _values(trials: Trials, name: str) -> Sequence[Value]:
    return trials.space.dimensions.get(name) or [trials.defaults[name]]


def _on_gpus(trials: Trials) -> bool:
    return not trials.known or any(device != "cpu" for device in _values(trials, "device"))


def _at_prompt(trials: Trials) -> bool:
    return trials.study.workload.startswith("__main__:")  # a notebook's own, which no worker can import


def _places_of_ranks(trials: Trials, seats: Sequence[Seat]) -> list[Place | None]:
    return place(seats, trials.study.purpose, _on_gpus(trials), most_devices(trials))


@contextmanager
def workers_of(trials: Trials, folder: RunFolder, how: Options, owner: str, world: World | None) -> Iterator[Engine]:
    """The engine that a study runs on, every worker in its place."""
    at_prompt = _at_prompt(trials)
    if at_prompt and how.engine not in {"auto", "serial"}:
        raise StudyError(f"workload {trials.study.workload}: put it into a file, or take the engine serial")
    engine: Engine
    task = trials.task(str(folder.path.resolve()), machine.cores(), not how.no_wait)
    if how.engine == "serial" or at_prompt:
        engine = Serial(TRAINER, task, folder.logs, owner)
    elif world is not None and world.rank:
        engine = Processes(TRAINER, task, [world.place], folder.logs, owner)
    elif world is not None:
        seats = world.gather()
        world.places = _places_of_ranks(trials, seats)
        if how.schedule == "synchronous":
            world.places = [*taking_turns(world.places, seats)]
        engine = (
            Mpi(world, world.places, TRAINER, task, folder.logs, owner)
            if how.schedule == "dispatch"
            else Processes(TRAINER, task, [world.places[0] or Place(machine.cores())], folder.logs, owner)
        )
    elif how.engine == "dask":
        local = local_places(trials, how.workers)
        task = replace(task, threads=local[0].threads)
        with dask(how.workers or len(local), TRAINER, task, folder.logs, owner) as pooled:
            yield pooled
        return
    else:
        engine = Processes(TRAINER, task, local_places(trials, how.workers), folder.logs, owner)
    try:
        yield engine
    finally:
        engine.close()


def local_places(trials: Trials, asked: int | None) -> list[Place]:
    """Places on this host for as many workers as were asked for, else one per GPU, else one per core.

    To time, one per GPU, or one alone; never fewer than train one network together. Networks on GPUs get one
    each in turn; cores are not pinned: other programs of the user's run here too.
    """
    gpus = machine.gpu_ids() if trials.known and _on_gpus(trials) else ()
    if trials.study.purpose == "time":
        count = min(asked or len(gpus) or 1, len(gpus) or 1)
    else:
        count = min(asked or len(gpus) or machine.cores(), max(1, trials.count()[0]) * most_devices(trials))
    count = max(count, most_devices(trials))
    if gpus:
        seats = [Seat("", machine.core_numbers(), gpus)] * count
        found = place(seats, trials.study.purpose, on_gpus=True)
        return [Place(one.threads, (), one.gpus) for one in found if one is not None]
    return [Place(max(1, machine.cores() // count))] * count


def choose_workers(trials: Trials, asked: int | None) -> int:
    """How many workers a study gets on this host."""
    return len(local_places(trials, asked))
