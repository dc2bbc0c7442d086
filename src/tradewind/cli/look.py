"""Commands that look at results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.app import JsonOption, RunArg, app, say, show_found


@app.command(epilog="Example: tradewind show runs/quick 7")
def show(run: RunArg, trial: Annotated[int, typer.Argument(metavar="TRIAL")], as_json: JsonOption = False) -> None:
    """One trial: config, times, curve, log, error, and how to run it again alone."""
    from tradewind.report.pages import trial_page
    from tradewind.results import Results

    results = Results.load(run)
    record = results.record(trial)
    show_found(
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

    say(Results.load(run).table(rows, columns, by, value, stat).render(format_))


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
    say(f"{out}")


@app.command(epilog="Example: tradewind report runs/quick --out quick.html")
def report(
    run: RunArg,
    out: Annotated[
        Path | None, typer.Option(metavar="F.html", help="Default: report.html in the run folder.")
    ] = None,
) -> None:
    """One self-contained page: tables, figures, advice, failures, machine."""
    from tradewind.commands import report_command

    say(report_command(run, out))


@app.command(epilog="Example: tradewind advise runs/quick")
def advise(run: RunArg, as_json: JsonOption = False) -> None:
    """What to choose, why, and how sure that is."""
    from tradewind.commands import advise_command

    say(advise_command(run, as_json))


@app.command(epilog="Example: tradewind predict runs/scaling --devices 1,2,4,8,16")
def predict(
    run: RunArg,
    devices: Annotated[str, typer.Option(metavar="N,…", help="For how many devices.")],
    value: Annotated[
        str, typer.Option(metavar="V", help="Which time; default the whole one, else what was recorded.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Times at device counts that were not run, with an interval, and where more devices stop paying."""
    from tradewind.commands import predict_command

    say(predict_command(run, devices, value, as_json))


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
    say(json.dumps(rows, indent=1, default=str) if as_json else query_text(rows).rstrip())


@app.command(epilog="Example: tradewind best runs/quick --save best.safetensors")
def best(
    run: RunArg,
    save: Annotated[
        Path | None, typer.Option(metavar="F", help="Copy the weights of its best trial to F.safetensors.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The config with the best mean over its repeats, its best trial, and the trained weights of that."""
    from tradewind.commands import save_weights
    from tradewind.report.best import best_page
    from tradewind.results import Results

    found = Results.load(run).best()
    if save is not None:
        save_weights(found, save)
    show_found(found.plain(), lambda _: best_page(found), as_json)


@app.command(epilog="Example: tradewind serve runs/quick")
def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Run folders; all under runs/ if none is named."),
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="P", help="Default: 8737, or a free one.")] = None,
) -> None:
    """The live page over run folders, until Ctrl-C."""
    from tradewind.dashboard.server import serve as serve_page

    serve_page(runs or [], port, say)
