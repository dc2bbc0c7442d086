"""What a trial does to its process stays with the trial."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def no_return_from_forks() -> Iterator[None]:
    """End a process that the code inside forked, where it would go on as its parent."""
    owner = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != owner:
            _leave(error)
        raise
    if os.getpid() != owner:
        _leave(None)


def _leave(error: BaseException | None) -> None:
    """What the interpreter does at its end, but for the exit hooks: they are the parent's."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
