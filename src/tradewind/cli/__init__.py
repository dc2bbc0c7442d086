"""The command line: one short function per command; the work is done elsewhere."""

from __future__ import annotations

import os
import sys

from tradewind.cli import act, look, move  # noqa: F401 (they add their commands)
from tradewind.cli.app import TRACEBACK, app
from tradewind.cli.failure import exit_code, one_line


def main() -> None:
    """The program; errors become one line and an exit code."""
    words = [word for word in sys.argv[1:] if word != TRACEBACK]
    try:
        app(words)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        sys.exit(1)
    except KeyboardInterrupt:
        print("tradewind: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        from tradewind.engine.world import leading

        if len(words) < len(sys.argv) - 1 or os.environ.get("TRADEWIND_TRACEBACK"):
            import traceback

            traceback.print_exception(error)
        code = exit_code(error, words)
        if leading() or code != 2:  # all ranks see the same mistake; one line says it
            print("tradewind:", one_line(error, code), file=sys.stderr)
        sys.exit(code)
