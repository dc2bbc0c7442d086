"""The command line: one short function per command; the work is done elsewhere."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tradewind.errors import TradewindError

app = typer.Typer(
    name="tradewind",
    help="How should I train this? Tune and time many networks from one study file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StudyArg = Annotated[str, typer.Argument(metavar="STUDY", help="A study file, or the name of a bundled study.")]
RunArg = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change the study, e.g. space.batch_size=[64,128].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _version(asked: bool) -> None:
    if asked:
        from tradewind import __version__

        typer.echo(f"tradewind {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: tradewind run quick && tradewind table runs/quick --rows batch_size --columns augment")
def _app(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


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
    workers: Annotated[int | None, typer.Option(metavar="N", help="Default: one per core, or one per GPU.")] = None,
    set_: SetOption = [],  # noqa: B006
    max_time: Annotated[str, typer.Option(metavar="T", help="Stop, resumably, after e.g. 90s, 30m or 2h.")] = "",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew; an old run is moved aside.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Run a study, or go on with it: what is done is never done again."""
    from tradewind.commands import run_command

    code = run_command(
        study, out, quiet, list(set_), engine=engine, schedule=schedule, rank=rank, of=of,
        workers=workers, max_time=max_time, retry_failed=retry_failed, fresh=fresh,
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

    typer.echo(check_command(study, workers, list(set_), as_json))


@app.command(epilog="Example: tradewind status runs/quick")
def status(run: RunArg, as_json: JsonOption = False) -> None:
    """Done, running, stopped, failed, left, and the time to the end."""
    from tradewind.analysis.status import status as look
    from tradewind.folder import RunFolder
    from tradewind.report.pages import status_page

    _print(look(RunFolder.open(run)), status_page, as_json)


@app.command(epilog="Example: tradewind show runs/quick 7")
def show(run: RunArg, trial: Annotated[int, typer.Argument(metavar="TRIAL")], as_json: JsonOption = False) -> None:
    """One trial: config, times, curve, log, error, and how to run it again alone."""
    from tradewind.report.pages import trial_page
    from tradewind.results import Results

    results = Results.load(run)
    record = results.record(trial)
    _print(
        {**record, "curve": results.curve(record["key"])},
        lambda _: trial_page(results.folder, results, record),
        as_json,
    )


@app.command(epilog="Example: tradewind table runs/quick --rows batch_size --columns data_multiplier --by augment")
def table(
    run: RunArg,
    rows: Annotated[str, typer.Option(metavar="A", help="The hyperparameter down the side.")],
    columns: Annotated[str, typer.Option(metavar="B", help="The hyperparameter across the top.")],
    by: Annotated[str | None, typer.Option(metavar="C", help="One block for each of its values.")] = None,
    value: Annotated[str, typer.Option(metavar="V", help="What to show.")] = "wall_s",
    stat: Annotated[str, typer.Option(help="mean, median, min, max, std or n.")] = "median",
    format_: Annotated[str, typer.Option("--format", help="text, markdown, csv, json or latex.")] = "text",
) -> None:
    """Results as a table: any hyperparameter in any place."""
    from tradewind.results import Results

    typer.echo(Results.load(run).table(rows, columns, by, value, stat).render(format_))


@app.command(epilog="Example: tradewind plot runs/quick --x batch_size --y train_s --color augment --out time.svg")
def plot(
    run: RunArg,
    x: Annotated[str, typer.Option(metavar="A", help="Along the bottom.")],
    y: Annotated[str, typer.Option(metavar="V", help="What to show.")],
    color: Annotated[str | None, typer.Option(metavar="B", help="One line for each of its values.")] = None,
    out: Annotated[Path, typer.Option(metavar="F", help="F.png, F.svg or F.html.")] = Path("plot.png"),
) -> None:
    """One figure: medians with their range."""
    from tradewind.report.figures import plot as draw
    from tradewind.results import Results

    draw(Results.load(run), x, y, color, out)
    typer.echo(f"{out}")


@app.command(epilog="Example: tradewind report runs/quick --out quick.html")
def report(
    run: RunArg,
    out: Annotated[
        Path | None, typer.Option(metavar="F.html", help="Default: report.html in the run folder.")
    ] = None,
) -> None:
    """One self-contained page: tables, figures, advice, failures, machine."""
    from tradewind.commands import report_command

    typer.echo(report_command(run, out))


@app.command(epilog="Example: tradewind advise runs/quick")
def advise(run: RunArg, as_json: JsonOption = False) -> None:
    """What to choose, why, and how sure that is."""
    from tradewind.commands import advise_command

    typer.echo(advise_command(run, as_json))


@app.command(epilog="Example: tradewind predict runs/scaling --devices 1,2,4,8,16")
def predict(
    run: RunArg,
    devices: Annotated[str, typer.Option(metavar="N,…", help="For how many devices.")],
    value: Annotated[str, typer.Option(metavar="V", help="Which time.")] = "wall_s",
    as_json: JsonOption = False,
) -> None:
    """Times at device counts that were not run, with an interval, and where more devices stop paying."""
    from tradewind.commands import predict_command

    typer.echo(predict_command(run, devices, value, as_json))


@app.command(
    epilog='Example: tradewind query runs/quick "select augment, median(train_s) from results group by augment"'
)
def query(
    run: RunArg,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A statement over the table results.")],
    as_json: JsonOption = False,
) -> None:
    """Ask in SQL."""
    from tradewind.analysis.query import query as ask
    from tradewind.analysis.query import query_text
    from tradewind.results import Results

    rows = ask(Results.load(run), sql)
    typer.echo(json.dumps(rows, indent=1, default=str) if as_json else query_text(rows).rstrip())


@app.command(epilog="Example: tradewind best runs/quick --save best.safetensors")
def best(
    run: RunArg,
    save: Annotated[Path | None, typer.Option(metavar="F", help="Copy its trained weights to F.safetensors.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The best trial, and its trained weights."""
    from tradewind.commands import save_weights
    from tradewind.report.pages import best_page
    from tradewind.results import Results

    found = Results.load(run).best()
    if save is not None:
        save_weights(found, save)
    _print({**found.record, "metric": found.metric, "value": found.value}, lambda _: best_page(found), as_json)


@app.command(epilog="Example: tradewind export runs/quick --to results.csv")
def export(run: RunArg, to: Annotated[Path, typer.Option(metavar="F", help="F.csv, F.parquet or F.json.")]) -> None:
    """All results as a file."""
    from tradewind.imports import export_results
    from tradewind.results import Results

    typer.echo(f"{export_results(Results.load(run), to)} results in {to}")


@app.command("import", epilog="Example: tradewind import published.json --at tables.table3 --out runs/table3")
def import_(
    file: Annotated[Path, typer.Argument(metavar="F", help="F.csv or F.json.")],
    out: Annotated[Path, typer.Option(metavar="RUN", help="The run folder to make.")],
    at: Annotated[str, typer.Option(metavar="PATH", help="Where in a nested file, e.g. tables.table8.")] = "",
    join: Annotated[
        str, typer.Option(metavar="PATH", help="A second place with further values of the same configs.")
    ] = "",
    values: Annotated[
        str, typer.Option(metavar="V,…", help="Which columns are measured; the others are config.")
    ] = "",
    rename: Annotated[list[str], typer.Option(metavar="A=B", help="Call column A of the file B.")] = [],  # noqa: B006
) -> None:
    """Results from elsewhere as a run folder."""
    from tradewind.commands import renames
    from tradewind.imports import import_results

    names = [name for name in values.split(",") if name]
    typer.echo(f"{import_results(file, out, at, join, names, renames(rename))} results in {out}")


@app.command(epilog="Example: tradewind data storms --from patches/ --look storms.png")
def data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which data set: storms.")],
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Read netCDF patches and CSV steps.")
    ] = None,
    synthetic: Annotated[int | None, typer.Option(metavar="N", help="Make N synthetic storms.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the synthetic storms.")] = 0,
    channels: Annotated[
        str, typer.Option(metavar="V,…", help="Which variables; default reflectivity and wind.")
    ] = "",
    label: Annotated[str, typer.Option(metavar="V", help="The next-hour variable.")] = "RVORT1_MAX_future",
    rule: Annotated[str, typer.Option(help="masked max, masked mean or patch max.")] = "masked max",
    threshold: Annotated[float, typer.Option(metavar="T", help="Above which a storm counts as rotating.")] = 0.005,
    before: Annotated[
        str, typer.Option(metavar="DATE", help="Storms before it train, the others test.")
    ] = "2015-01-01",
    look: Annotated[Path | None, typer.Option(metavar="F.png", help="Draw sample storms.")] = None,
) -> None:
    """Import or make a data set once, and look at it."""
    from tradewind.commands import storm_data

    options = {"channels": channels, "label": label, "rule": rule, "threshold": threshold, "before": before}
    typer.echo(storm_data(name, from_, synthetic, seed, options, look))


@app.command(epilog="Example: tradewind studies quick > mine.json")
def studies(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one.")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of study files, for editors.")
    ] = False,
) -> None:
    """The bundled studies, and the form of a study file."""
    from tradewind.commands import schema_text
    from tradewind.studies import listing, text

    typer.echo(schema_text() if schema else text(name).rstrip() if name else listing())


@app.command(epilog="Example: tradewind bench overhead --save overhead.json")
def bench(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; without it, all are listed.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="F.json", help="Keep the raw samples.")] = None,
) -> None:
    """Measure this machine, and Tradewind beside its peers."""
    from tradewind.bench import listing, measure

    typer.echo(measure(name, save) if name else listing())


def _print(found: dict[str, Any], page: Any, as_json: bool) -> None:
    typer.echo(json.dumps(found, indent=1, default=str) if as_json else page(found))


def main() -> None:
    """The program; errors become one line and an exit code."""
    try:
        app()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        sys.exit(1)
    except TradewindError as error:
        from tradewind.engine.world import leading

        if leading() or error.exit_code != 2:  # all ranks see the same mistake; one line says it
            print("tradewind:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # no room, no permission: the machine's trouble, and no bug to show a traceback for
        print(f"tradewind: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("tradewind: interrupted", file=sys.stderr)
        sys.exit(130)
