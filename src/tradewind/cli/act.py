"""Commands that run studies and watch over runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.app import JsonOption, RunArg, SetOption, StudyArg, app, say, show_found


@app.command(epilog="Example: tradewind run study.json --workers 4 --set repeats=3 --max-time 2h")
def run(
    study: StudyArg,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; default runs/<study name>.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="auto (mpi under mpiexec or srun, else processes), serial (in the foreground, for a debugger), "
            "processes, mpi, or dask (the cluster of DASK_SCHEDULER_ADDRESS, else one of its own)."
        ),
    ] = "auto",
    schedule: Annotated[
        str,
        typer.Option(
            help="dispatch: workers get trials as they get free. synchronous: every rank derives its own share."
        ),
    ] = "dispatch",
    rank: Annotated[int | None, typer.Option(metavar="I", help="synchronous without MPI: which share.")] = None,
    of: Annotated[int | None, typer.Option(metavar="N", help="synchronous without MPI: of how many.")] = None,
    probe: Annotated[
        int | None, typer.Option(metavar="N", help="Only the N trials that tell most about what the others cost.")
    ] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Default: one per core, or one per GPU.")] = None,
    set_: SetOption = [],  # noqa: B006
    max_time: Annotated[str, typer.Option(metavar="T", help="Stop, resumably, after e.g. 90s, 30m or 2h.")] = "",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew; an old run is moved aside.")] = False,
    rerun: Annotated[
        str,
        typer.Option(metavar="WHICH", help="Run trials again: disturbed, changed, or by number, such as 3,7."),
    ] = "",
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Wait for no timed trial of another run; what that disturbs is measured."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Run a study, or go on with it: what is done is never done again."""
    from tradewind.commands import run_command

    code = run_command(
        study, out, quiet, list(set_), engine=engine, schedule=schedule, rank=rank, of=of, probe=probe,
        workers=workers, max_time=max_time, retry_failed=retry_failed, fresh=fresh, rerun=rerun, no_wait=no_wait,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command(epilog="Example: tradewind check study.json --json")
def check(
    study: StudyArg,
    workers: Annotated[int | None, typer.Option(metavar="N", help="For how many workers.")] = None,
    set_: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Is the study valid? How many trials are there, and how long will they take?"""
    from tradewind.commands import check_command

    say(check_command(study, workers, list(set_), as_json))


@app.command(epilog="Example: tradewind status runs/quick")
def status(run: RunArg, as_json: JsonOption = False) -> None:
    """Done, running, pruned, stopped, failed, left, and the time to the end."""
    from tradewind.commands import status_command
    from tradewind.report.pages import status_page

    show_found(status_command(run), status_page, as_json)


@app.command(epilog="Example: tradewind submit study.json --nodes 4 --gpus-per-node 4 --time 2h --dry-run")
def submit(
    study: StudyArg,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder, which all nodes must see.")] = None,
    nodes: Annotated[int, typer.Option(metavar="N")] = 1,
    tasks_per_node: Annotated[int | None, typer.Option(metavar="N", help="MPI ranks on each node.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(metavar="N")] = None,
    cpus_per_task: Annotated[int | None, typer.Option(metavar="N")] = None,
    memory: Annotated[str, typer.Option(metavar="M", help="Per node, such as 64G.")] = "",
    time: Annotated[str, typer.Option(metavar="T", help="Such as 90m or 12h.")] = "",
    partition: Annotated[str, typer.Option(metavar="P")] = "",
    account: Annotated[str, typer.Option(metavar="A")] = "",
    set_up: Annotated[list[str], typer.Option(metavar="LINE", help="A line of shell before the run.")] = [],  # noqa: B006
    array: Annotated[int | None, typer.Option(metavar="K", help="K array tasks in place of MPI.")] = None,
    schedule: Annotated[str, typer.Option(help="dispatch or synchronous.")] = "dispatch",
    requeue: Annotated[bool, typer.Option(help="Go on in a new job at the time limit, or after a failure.")] = True,
    survive: Annotated[bool, typer.Option("--survive", help="Go on when a rank dies (mpiexec with ULFM).")] = False,
    chain: Annotated[str, typer.Option(metavar="K", help="K jobs one after another; auto: as many as needed.")] = "",
    sbatch: Annotated[list[str], typer.Option(metavar="OPTION", help="Any further option of sbatch.")] = [],  # noqa: B006
    set_: SetOption = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script, submit nothing.")] = False,
) -> None:
    """Write a batch script for a study and submit it to Slurm."""
    from tradewind.cluster.submission import Request, submit_command

    request = Request(
        nodes=nodes, tasks_per_node=tasks_per_node, gpus_per_node=gpus_per_node, cpus_per_task=cpus_per_task,
        memory=memory, time=time, partition=partition, account=account, set_up=tuple(set_up), array=array,
        schedule=schedule, requeue=requeue, survive=survive, chain=chain, sbatch=tuple(sbatch),
    )  # fmt: skip
    say(submit_command(study, out, list(set_), request, dry_run))


@app.command(epilog="Example: tradewind cancel runs/quick")
def cancel(run: RunArg) -> None:
    """Cancel the Slurm jobs of a run."""
    from tradewind.cluster.submission import cancel_command

    say(cancel_command(run))
