"""Where the user's own modules and files are looked for."""

from __future__ import annotations

import os
from pathlib import Path

CODE = "TRADEWIND_CODE"  # names that folder for a study whose file lies in a run folder


def code_folder(study_file: Path) -> Path:
    """Beside the study's file; for a run folder's copy, which is data, where the caller says or stands."""
    beside = study_file.resolve().parent
    return Path(os.environ.get(CODE) or Path.cwd()) if (beside / "run.json").exists() else beside
