"""The command line: one short function per command; the work is done elsewhere."""

from __future__ import annotations

import os
import sys

from tradewind.cli import act, look, move  # noqa: F401 (they add their commands)
from tradewind.cli.app import app
from tradewind.errors import TradewindError


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
