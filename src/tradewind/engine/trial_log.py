"""Trials leave their output in their worker's log; a record says where."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tradewind.pack import Pack

TAIL = 4000


def header(pack: Pack) -> str:
    """What stands above the output of a pack's trials."""
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    return "".join(
        f"── {when} trial {t.trial} repeat {t.repeat} attempt {t.attempt} key {t.key}\n   {json.dumps(t.config)}\n"
        for t in pack.trials
    )


def span(path: Path, start: int, end: int) -> dict[str, Any]:
    """The place of a trial's output, as it is recorded."""
    return {"file": path.name, "from": start, "to": end}


def tail(path: Path, start: int, most: int = TAIL) -> str:
    """The end of what was written since `start`, without the header lines."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - most))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.startswith(("── ", "   {"))).strip()
