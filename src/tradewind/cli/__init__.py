"""The command line: one short function per command; the work is done elsewhere."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

from tradewind.cli import act, look, move  # noqa: F401 (they add their commands)
from tradewind.cli.app import TRACEBACK, app
from tradewind.cli.failure import exit_code, one_line


def program() -> None:
    """`main` in a process of its own, which leaves without tearing down: with torch loaded that takes 0.9 s."""
    code: int | str | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    if "mpi4py" in sys.modules or not isinstance(code, int | None):
        sys.exit(code)  # MPI is ended as the interpreter is
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code or 0)


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
            from tradewind.quantities import printable

            print("tradewind:", printable(one_line(error, code)), file=sys.stderr)
        sys.exit(code)
