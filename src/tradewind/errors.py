"""The exceptions that Tradewind raises.

TradewindError
├── Mistake            the user can mend it: one clear line, exit code 2
│   ├── StudyError     the study file
│   ├── WorkloadError  the workload: can't be found, imported or used like this
│   ├── RunError       the run folder: none, not one, or of another study
│   └── DataError      a data set or a results file
└── JournalError       a result could not be made durable: exit code 3

KeyboardInterrupt
└── Interrupted        stopped by the user or a signal; resumable: exit code 130
    └── TimeUp         stopped by max_time_s
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TradewindError(Exception):
    """Anything that Tradewind itself raises."""

    exit_code = 3  # no fault of the user's: the same command goes on once the cause is gone


class Mistake(TradewindError):
    """Something the user can mend; shown as one line without a traceback."""

    exit_code = 2


class StudyError(Mistake):
    """The study says something that it can't."""


class WorkloadError(Mistake):
    """The workload can't be found, imported or used."""


class RunError(Mistake):
    """The run folder is missing, is none, or belongs to another study."""


class DataError(Mistake):
    """A data set or a file of results can't be used."""


class JournalError(TradewindError):
    """A result could not be written; nothing already recorded is lost."""


class Interrupted(KeyboardInterrupt):
    """The run was stopped before its end and can be continued; no `except Exception` of a loop swallows it."""

    exit_code = 130


class TimeUp(Interrupted):
    """The run has taken the time that it was given."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint that ends an unknown-name message: the nearest known name, and what is allowed."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}allowed: {', '.join(names) if names else 'nothing'}"
