"""`tradewind submit` and `tradewind cancel`."""

from __future__ import annotations

import math
import secrets
import shlex
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tradewind.analysis.expectation import schedules
from tradewind.cluster.script import Job, script
from tradewind.cluster.site import TIMES, Site, duration_s, load_site
from tradewind.cluster.slurm import cancel, cores_per_node, max_array_size, submit
from tradewind.crew import SCHEDULES
from tradewind.errors import Mistake, RunError, nearest
from tradewind.folder import RunFolder, default_path, write_aside
from tradewind.quantities import duration
from tradewind.results import Results
from tradewind.schedule.edition import extend
from tradewind.schedule.trials import Trials
from tradewind.studies import path_of
from tradewind.study import Study

MARGIN = 1.2  # of the expected time, when jobs are chained: the last trials leave workers idle, and times vary
MOST_CHAINED = 1000


@dataclass(frozen=True)
class Request:
    """What the user asks Slurm for; what is left out comes from the site's file, or from Slurm."""

    nodes: int = 1
    tasks_per_node: int | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    memory: str = ""
    time: str = ""
    partition: str = ""
    account: str = ""
    set_up: tuple[str, ...] = ()
    array: int | None = None
    schedule: str = "dispatch"
    requeue: bool = True
    survive: bool = False
    chain: str = ""
    sbatch: tuple[str, ...] = ()


def submit_command(name: str, out: Path | None, sets: list[str], request: Request, dry_run: bool) -> str:
    """Write the batch script of a study and hand it to Slurm; what was done, or with `dry_run` the script."""
    site = load_site()
    check(request)
    study = Study.load(path_of(name), sets)
    trials = Trials(study)
    path = (out or default_path(study.name)).resolve()
    job = resolve(study, path, request, site)
    if job.array and not dry_run and job.array > (most := max_array_size()):
        raise Mistake(
            f"--array {job.array}: this Slurm's arrays have at most {most} tasks (MaxArraySize); take fewer, since "
            "each runs many trials, or submit again: several jobs on one folder share the work"
        )
    count, why = chained(request, job, trials)
    job = replace(job, again=request.requeue and count == 1)
    if dry_run:
        chain = f"\n# {count} such jobs, one after another: {why}" if count > 1 else ""
        return f"{script(job)}\n# {taken(job)}{chain}"
    folder = RunFolder.create(path)
    extend(folder, trials)
    folder.slurm.mkdir(exist_ok=True)  # one made by an earlier version has none
    file = folder.slurm / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}.sh"
    write_aside(file, script(job).encode())
    print(taken(job), flush=True)
    numbers: list[str] = []
    for _ in range(count):
        numbers.append(submit(folder, file, numbers[-1] if numbers else ""))
    return said(job, numbers, why, file)


def cancel_command(run: Path) -> str:
    """Cancel the jobs of a run; which they were."""
    ended = cancel(RunFolder.open(run))
    if not ended:
        return f"nothing to cancel: the jobs of {run} have ended"
    what = ", ".join(f"{row['job']} ({row['state'].lower()})" for row in ended)
    return f"cancelled {what}; nothing recorded is lost, `tradewind submit` goes on with it"


def check(request: Request) -> None:
    """Refuse what does not go together, before anything is written."""
    for name in ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "array"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise Mistake(f"--{name.replace('_', '-')} {value}: allowed: 1 or more")
    if request.schedule not in SCHEDULES:
        raise Mistake(f"--schedule {request.schedule}: {nearest(request.schedule, SCHEDULES)}")
    if request.array is not None:
        if request.nodes != 1:
            raise Mistake("--array: each task has one node; leave out --nodes, or leave out --array for MPI")
        if request.tasks_per_node is not None or request.survive:
            name = "--survive" if request.survive else "--tasks-per-node"
            raise Mistake(f"{name}: is for MPI; with --array each task runs its own workers")
    if request.chain not in ("", "auto") and not (
        request.chain.isdecimal() and 0 < int(request.chain) <= MOST_CHAINED
    ):
        raise Mistake(f"--chain {request.chain}: allowed: auto, or a number from 1 to {MOST_CHAINED}")
    for name, lines in (("--sbatch", request.sbatch), ("--set-up", request.set_up)):
        for line in lines:
            if not line.strip() or "\n" in line or (name == "--sbatch" and not line.startswith("-")):
                allowed = "an option such as --constraint=skylake" if name == "--sbatch" else "one line of shell"
                raise Mistake(f"{name} {line!r}: allowed: {allowed}")


def resolve(study: Study, out: Path, request: Request, site: Site) -> Job:
    """The job that a request and a site's defaults make."""
    limit = request.time or site.time
    try:
        time_s = duration_s(limit) if limit else None
    except ValueError:
        raise Mistake(f"--time {limit}: {TIMES}") from None
    return Job(
        name=study.name, run=["--schedule", request.schedule], out=out, code=study.folder,
        folder=RunFolder(out).slurm, start_in=Path.cwd(),
        python=site.python or sys.executable, nodes=request.nodes,
        tasks_per_node=1 if request.array else request.tasks_per_node or request.gpus_per_node or 1,
        cpus_per_task=request.cpus_per_task, gpus_per_node=request.gpus_per_node or 0, gpus_option=site.gpus,
        memory=request.memory or site.memory, time_s=time_s, partition=request.partition or site.partition,
        account=request.account or site.account, set_up=[*site.set_up, *request.set_up], array=request.array,
        whole=not (request.gpus_per_node or request.tasks_per_node or request.cpus_per_task),
        timed=study.purpose == "time" and not request.gpus_per_node,
        alone=study.purpose == "time", synchronous=request.schedule == "synchronous",
        launcher="mpiexec" if request.survive else site.launcher,
        requeue=request.requeue, sbatch=[*site.sbatch, *request.sbatch],
    )  # fmt: skip


def chained(request: Request, job: Job, trials: Trials) -> tuple[int, str]:
    """How many jobs follow one another, and why so many."""
    if request.chain.isdecimal():
        return int(request.chain), "as asked for"
    if not request.chain and request.requeue:
        return 1, "it goes back into the queue while work is left"
    work_s = expected_s(job, trials)
    if work_s is None or job.time_s is None:
        if request.chain:
            missing = "no trial of this study has ended yet" if work_s is None else "no time limit is given"
            raise Mistake(f"--chain auto: {missing}, so that jobs can't be counted; say how many: --chain K")
        return 1, "how many it takes is not known yet; --chain K chains more"
    usable_s = max(60.0, job.time_s - job.lead_s)
    count = min(MOST_CHAINED, max(1, math.ceil(work_s * MARGIN / usable_s)))
    return count, f"expected {duration(work_s)} of work, {duration(job.time_s)} each"


def expected_s(job: Job, trials: Trials) -> float | None:
    """How long what is left takes on all workers of a job; None where nothing has ended yet."""
    try:
        results = Results.load(job.out)
    except RunError:
        return None
    ends = schedules(trials, results, workers(job))["makespan_s"]
    return float(ends["synchronous" if job.synchronous else "dispatch"]) if ends else None


def workers(job: Job) -> int:
    """How many trials run at once."""
    return (job.array or job.nodes) * workers_per_node(job, cores_per_node(job.partition))


def workers_per_node(job: Job, cores: int | None) -> int:
    """How many of them on each node, which has so many cores."""
    if job.gpus_per_node:
        return job.gpus_per_node if job.array else job.tasks_per_node
    if job.timed:
        return 1 if job.array or job.whole else job.tasks_per_node
    return cores or 1 if job.whole else job.tasks_per_node * (job.cpus_per_task or 1)


def taken(job: Job) -> str:
    """What the job takes and how it is filled, for people."""
    nodes = job.array or job.nodes
    what = f"{nodes} node{'' if nodes == 1 else 's'}"
    cores = cores_per_node(job.partition) if job.whole else job.tasks_per_node * (job.cpus_per_task or 1)
    each = workers_per_node(job, cores)
    workers = f"{each} worker{'' if each == 1 else 's'} each"
    if job.gpus_per_node:
        return f"{what} × {job.gpus_per_node} GPU{'' if job.gpus_per_node == 1 else 's'}, {workers}"
    if cores is None:
        return f"{what}, whole, {'1 worker each' if job.timed else 'a worker on each core'}"
    return f"{what} × {cores} core{'' if cores == 1 else 's'}, {workers}"


def said(job: Job, numbers: list[str], why: str, file: Path) -> str:
    """What was submitted, where it is, and what can be done with it."""
    what = f"an array of {job.array}" if job.array else "MPI"
    run = shlex.quote(str(job.out))
    return (
        f"submitted {', '.join(numbers)}: {what}; {why}\nscript {file}\n"
        f"`tradewind status {run}` tells how it goes, `tradewind cancel {run}` ends it"
    )
