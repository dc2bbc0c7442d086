"""Commands that bring data and results in and out, and measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.app import RunArg, app, say
from tradewind.measures import Direction


@app.command(epilog="Example: tradewind export runs/quick --to results.csv")
def export(
    run: RunArg,
    to: Annotated[
        Path, typer.Option(metavar="F", help="F.csv, F.parquet or F.json; F.db: an Optuna study, for its dashboard.")
    ],
) -> None:
    """All results as a file."""
    from tradewind.commands import export_command

    say(f"{export_command(run, to)} results in {to}")


@app.command("import", epilog="Example: tradewind import published.json --at tables.table3 --out runs/table3")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="F", help="F.csv, F.json, or a bundled study whose paper printed its results.")
    ],
    out: Annotated[Path, typer.Option(metavar="RUN", help="The run folder to make.")],
    at: Annotated[str, typer.Option(metavar="PATH", help="Where in a nested file, e.g. tables.table8.")] = "",
    join: Annotated[
        str, typer.Option(metavar="PATH", help="A second place with further values of the same configs.")
    ] = "",
    values: Annotated[
        str, typer.Option(metavar="V,…", help="Which columns are measured; the others are config.")
    ] = "",
    rename: Annotated[list[str], typer.Option(metavar="A=B", help="Call column A of the file B.")] = [],  # noqa: B006
    minimize: Annotated[str, typer.Option(metavar="V,…", help="Measured columns of which lower is better.")] = "",
    maximize: Annotated[str, typer.Option(metavar="V,…", help="Measured columns of which higher is better.")] = "",
    labels: Annotated[
        str, typer.Option(metavar="L,…", help="Columns that only name something, as hardware or a model.")
    ] = "",
    scaling: Annotated[
        str, typer.Option(metavar="RULE", help="By which rule devices share a batch, or the column that says it.")
    ] = "",
) -> None:
    """Results from elsewhere as a run folder."""
    from tradewind.commands import renames
    from tradewind.imports import import_results
    from tradewind.studies.published import PLACES, base, import_printed

    if base(str(file)) in PLACES:
        say(f"{import_printed(str(file), out)} published results in {out}")
        return
    names, lower, higher = ([name for name in text.split(",") if name] for text in (values, minimize, maximize))
    directions: dict[str, Direction] = {**dict.fromkeys(lower, "minimize"), **dict.fromkeys(higher, "maximize")}
    told = [name for name in labels.split(",") if name]
    count = import_results(file, out, at, join, names, renames(rename), directions, told, scaling)
    say(f"{count} results in {out}")


@app.command(epilog="Example: tradewind data storms --from patches/ --look storms.png")
def data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which data set: storms or nodules.")],
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", help="A folder of netCDF patches and CSV steps; nodules: an .npz file."
        ),
    ] = None,
    synthetic: Annotated[int | None, typer.Option(metavar="N", help="Make N synthetic ones.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the synthetic storms.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the synthetic storms there as netCDF and CSV.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where synthetic storms are made: auto, cpu or cuda.")] = "auto",
    channels: Annotated[
        str, typer.Option(metavar="V,…", help="Which variables; default reflectivity and wind.")
    ] = "",
    label: Annotated[str, typer.Option(metavar="V", help="The next-hour variable.")] = "RVORT1_MAX_future",
    rule: Annotated[str, typer.Option(help="masked max, masked mean or patch max.")] = "masked max",
    threshold: Annotated[float, typer.Option(metavar="T", help="Above which a storm counts as rotating.")] = 0.005,
    before: Annotated[
        str, typer.Option(metavar="DATE", help="Storms before it train, the others test.")
    ] = "2015-01-01",
    validate_from: Annotated[
        str, typer.Option(metavar="DATE", help="Storms from it on, and before the other date, validate.")
    ] = "",
    look: Annotated[Path | None, typer.Option(metavar="F.png", help="Draw some of them.")] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Nodules: drawn again, and new ones, by its best network.")
    ] = None,
) -> None:
    """Import or make a data set once, and look at it."""
    from tradewind.commands import nodule_data, storm_data

    if name == "nodules":
        say(nodule_data(from_, synthetic, look, run))
        return
    options = {"channels": channels, "label": label, "rule": rule, "threshold": threshold, "before": before}
    options["validate_from"] = validate_from
    making = {"count": synthetic, "seed": seed, "out": out, "device": device}
    say(storm_data(name, from_, making, options, look))


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

    say(schema_text() if schema else text(name).rstrip() if name else listing())


@app.command(epilog="Example: tradewind bench overhead --save overhead.json")
def bench(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; without it, all are listed.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="F.json", help="Keep the raw samples.")] = None,
    part: Annotated[list[str], typer.Option(metavar="P", help="Only this part; may be repeated.")] = [],  # noqa: B006
) -> None:
    """Measure this machine, and Tradewind beside its peers."""
    from tradewind.bench import listing, measure

    say(measure(name, save, part) if name else listing())


@app.command(epilog="Example: tradewind clean runs/quick --dry-run")
def clean(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run folder.")] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Data sets and augmented stores in your cache folder instead.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove checkpoints, caches and weights that are needed no more; never records."""
    from tradewind.commands import clean_command

    clean_command(run, cache, dry_run, say)
