"""The batch script: what Slurm is asked for, and what a job does, so that a person can read it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tradewind.cluster.site import slurm_time
from tradewind.code_folder import CODE
from tradewind.version import VERSION

SURVIVING = "mpiexec --with-ft ulfm --bind-to none"  # Tradewind places its own workers

CORES = "$SLURM_CPUS_ON_NODE"

STOP = """\
# Slurm sends USR1 to this script {lead_s} s before the time limit: the run ends at once, resumably.
# TERM (a preemption, a cancellation) goes to every process of the job by itself.
trap 'stopped=USR1; again=yes; kill -{signal} "$work" 2>/dev/null' USR1
trap 'again=yes' TERM
stopped= again=yes
while [ -n "$again" ]; do again=; wait "$work"; code=$?; done  # a signal interrupts wait
"""
REQUEUE = """\
# 0 all done, 1 done but some trials failed, 2 a mistake: nothing to go on with. 3 Tradewind itself failed, 130
# interrupted, all others a crash: work is left.
[ "$code" -ge 0 ] && [ "$code" -le 2 ] && exit "$code"
# Slurm itself is ending the job: cancelled, or preempted and requeued by Slurm.
[ "$(squeue --noheader --jobs="$job" --format=%T)" = RUNNING ] || exit "$code"
# Work is left, so the job goes back into the queue; but not for ever: a job that had all its time, or that
# crashed, must have ended a trial or kept an epoch of one.
kept() {
    find "$out/checkpoints" "$out/trials" -type f -newer "$0" -print -quit
    find "$out/journal" -type f -newer "$0" -exec grep -l '"kind":"finished"' {} +
}
if { [ -n "$stopped" ] || [ "$code" -ne 130 ]; } && [ -z "$(kept)" ]; then
    echo "tradewind: this job ended no trial and kept no epoch; not requeued: it needs more time, or its log says why"
    exit "$code"
fi
scontrol requeue "$job"
"""


@dataclass(frozen=True)
class Job:
    """A job, fully resolved: options over the site's defaults."""

    name: str
    run: Sequence[str]  # further words of `tradewind run`
    out: Path
    folder: Path  # of the script's logs
    start_in: Path
    python: str
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    code: Path = Path()  # where the study's own modules lie
    whole: bool = False  # takes whole nodes
    timed: bool = False  # one trial at a time on a host without GPUs
    gpus_per_node: int = 0
    gpus_option: str = ""
    memory: str = ""
    time_s: float | None = None
    partition: str = ""
    account: str = ""
    set_up: Sequence[str] = ()
    array: int | None = None
    synchronous: bool = False
    alone: bool = False  # nobody else on its nodes
    launcher: str = "srun"
    requeue: bool = True
    again: bool = True  # goes back into the queue by itself while work is left
    sbatch: Sequence[str] = ()

    @property
    def per_core(self) -> bool:
        """Whether a worker has one core."""
        return not (self.gpus_per_node or self.timed)

    @property
    def lead_s(self) -> int:
        """How long before the time limit a job is told to end."""
        return 120 if self.time_s is None else int(max(20, min(120, self.time_s / 10)))


def script(job: Job) -> str:
    """The whole batch script."""
    task = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if job.array else "$SLURM_JOB_ID"
    parts = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in options(job)),
        "",
        f"# Tradewind {VERSION}: study {_one_line(job.name)}, run folder {_one_line(str(job.out))}",
        f"# How it goes: tradewind status {shlex.quote(str(job.out))}",
        f"# To end it:   tradewind cancel {shlex.quote(str(job.out))}",
        "",
        *job.set_up,
        *([""] if job.set_up else []),
        f"python={shlex.quote(job.python)}",
        *([f"PATH={shlex.quote(str(Path(job.python).parent))}:$PATH"] if Path(job.python).is_absolute() else []),
        f"out={shlex.quote(str(job.out))}",
        f"export {CODE}={shlex.quote(str(job.code))}",
        *([f'job="{task}"'] if job.again else []),
        "",
        f"{command(job)} &",
        "work=$!",
        "",
        STOP.format(lead_s=job.lead_s, signal="TERM" if job.array else "USR1"),
        REQUEUE if job.again else 'exit "$code"',
    ]
    return "\n".join(parts).rstrip() + "\n"


def options(job: Job) -> list[str]:
    """What Slurm is asked for."""
    log = str(job.folder).replace("%", "%%") + ("/%A_%a.log" if job.array else "/%j.log")
    asked = {
        "--job-name": re.sub(r"[^\w.-]+", "-", job.name),
        "--chdir": str(job.start_in),
        "--output": log,
        "--open-mode": "append",
        "--partition": job.partition,
        "--account": job.account,
        "--time": slurm_time(job.time_s) if job.time_s else "",
        "--nodes": str(job.nodes),
        "--ntasks-per-node": "" if job.whole and not job.array else str(job.tasks_per_node),
        "--cpus-per-task": str(job.cpus_per_task or ""),
        "--mem": job.memory,
        "--array": f"0-{job.array - 1}" if job.array else "",
        "--signal": f"B:USR1@{job.lead_s}",
    }
    gpus = [job.gpus_option.replace("{n}", str(job.gpus_per_node))] if job.gpus_per_node else []
    flags = ["--requeue" if job.requeue else "--no-requeue", *(["--exclusive"] if job.alone or job.whole else [])]
    if job.array is None and job.launcher == "mpiexec":
        flags.append("--no-kill")  # the ranks on the other nodes go on when one node dies
    return [*(f"{name}={_quoted(value)}" for name, value in asked.items() if value), *gpus, *flags, *job.sbatch]


def command(job: Job) -> str:
    """What the job runs."""
    words = ' "$python" -m tradewind run "$out/study.json" ' + shlex.join(job.run) + ' --out "$out"'
    if job.array:
        share = f' --rank "$SLURM_ARRAY_TASK_ID" --of {job.array}' if job.synchronous else ""
        fill = f" --workers {job.cpus_per_task}" if job.cpus_per_task and job.per_core else ""
        return words.strip() + " --engine processes" + fill + share
    each, cpus = ranks(job)
    if job.launcher == "mpiexec":
        return f"{SURVIVING} --map-by ppr:{each}:node:oversubscribe{words}"
    count = f"--ntasks=$((SLURM_JOB_NUM_NODES * {each.removeprefix('$')})) --ntasks-per-node={each}"
    # Slurm's srun does not take over --cpus-per-task from its job since 22.05
    return f"srun --mpi=pmix {count}{f' --cpus-per-task={cpus}' if cpus else ''}{words}"


def ranks(job: Job) -> tuple[str, str]:
    """How many MPI ranks a node has, and cores a rank: one on each core, unless GPUs or timed trials decide."""
    if job.whole:
        return ("1", CORES) if job.timed else (CORES, "1")
    if job.per_core and job.cpus_per_task:
        return str(job.tasks_per_node * job.cpus_per_task), "1"
    return str(job.tasks_per_node), str(job.cpus_per_task or "")


def _quoted(value: str) -> str:
    return shlex.quote(value.replace("\n", " "))


def _one_line(text: str) -> str:
    return " ".join(text.split())
