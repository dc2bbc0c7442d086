"""What all commands share: the program itself, and the arguments that many of them take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

TRACEBACK = "--traceback"  # of any command, wherever it stands in its line

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


def say(text: str) -> None:
    """Print, without what names and logs of others may hold to steer a terminal."""
    from tradewind.quantities import printable

    typer.echo(printable(text))


def show_found(found: dict[str, Any], page: Any, as_json: bool) -> None:
    say(json.dumps(found, indent=1, default=str) if as_json else page(found))


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
    traceback: Annotated[
        bool, typer.Option(TRACEBACK, help="Show what a one-line error hides; or set TRADEWIND_TRACEBACK=1.")
    ] = False,
) -> None:
    pass
