"""Where a data set lies that a study names."""

from __future__ import annotations

import os
from pathlib import Path


def data_path(name: str) -> Path:
    """The path as given if something is there, else the same below the folder that TRADEWIND_DATA names."""
    shelf = os.environ.get("TRADEWIND_DATA")
    return Path(shelf, name) if shelf and not Path(name).exists() else Path(name)
