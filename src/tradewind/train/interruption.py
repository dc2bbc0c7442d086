"""The time of a function or command that was cut off and goes on from what it had left in its folder."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind.pack import Outcome


class Parts:
    """What the earlier parts of a trial took, each until it last wrote to the trial's folder; the rest is lost.

    A file beside the folder tells when a part began and, by its mtime, when it last gave a sign of life. All times
    are those of the file system.
    """

    def __init__(self, folder: Path) -> None:
        self.count, self.seconds, self.lost_s = 0, 0.0, 0.0
        self._file = folder.with_name(f"{folder.name}.json")
        with suppress(OSError, ValueError, KeyError, TypeError):  # none, or one that was being written
            self._add(json.loads(self._file.read_text()), self._file.stat().st_mtime, _last_write(folder))

    def begin(self, elapsed_s: float = 0.0) -> None:
        """A part has begun so long ago."""
        self._file.write_text("")
        content = {"count": self.count, "seconds": self.seconds, "lost_s": self.lost_s}
        self._file.write_text(json.dumps({**content, "began": self._file.stat().st_mtime - elapsed_s}))

    def alive(self) -> None:
        """Give a sign of life."""
        with suppress(OSError):
            os.utime(self._file)

    def end(self, outcome: Outcome) -> Outcome:
        """The outcome of the last part, which knows of the earlier ones; their times are in it already."""
        self._file.unlink(missing_ok=True)
        if self.count:
            outcome.facts["interruptions"] = self.count
            outcome.times["lost_s"] = self.lost_s
        return outcome

    def _add(self, before: dict[str, Any], died: float, written: float) -> None:
        began, written = float(before["began"]), max(written, float(before["began"]))
        went_on = written > began
        if before["count"] or went_on:  # else it left nothing, and the next one begins anew
            self.count = int(before["count"]) + went_on
            self.seconds = float(before["seconds"]) + written - began
            self.lost_s = float(before["lost_s"]) + max(0.0, died - written)


def _last_write(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.rglob("*") if path.is_file()), default=0.0)
