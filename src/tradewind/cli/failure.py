"""What an error means to whoever called: whose it is, and the one line that says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from traceback import extract_tb

from tradewind.errors import TradewindError
from tradewind.folder import FULL

FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
MISNAMED = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)


def exit_code(error: Exception, words: Iterable[str]) -> int:
    """2 for what the user can mend in these words, 3 for a failure of Tradewind or of the machine."""
    if isinstance(error, TradewindError):
        return error.exit_code
    if isinstance(error, OSError) and isinstance(error.filename, str):
        named = {os.path.abspath(word.rpartition("=")[2]) for word in words}
        if error.errno in FORBIDDEN or (error.errno in MISNAMED and os.path.abspath(error.filename) in named):
            return 2
    return 3


def one_line(error: Exception, code: int) -> str:
    """What happened, and what to do about it."""
    if isinstance(error, TradewindError):
        text = str(error)
    elif isinstance(error, OSError) and (code == 2 or error.errno in FULL):
        again = "; nothing recorded is lost: make room, then run the same command" if code == 3 else ""
        text = f"{error.filename or 'a file'}: {error.strerror or error}{again}"
    else:
        steps = extract_tb(error.__traceback__)
        place = f" ({os.path.basename(steps[-1].filename)}:{steps[-1].lineno})" if steps else ""
        text = (
            f"internal error: {type(error).__name__}: {error}{place}; nothing recorded is lost. Please report it "
            "with the study and what the same command prints with --traceback; the same command goes on with a run"
        )
    return " ".join(text.split())
