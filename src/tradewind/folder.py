"""A run is a folder; this class alone knows the names of the files in it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tradewind.errors import RunError, StudyError
from tradewind.study import Study, read_json

FORMAT = 1


class RunFolder:
    """The study as run, journals, curves, claims, logs, checkpoints, models and machine facts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journals = path / "journal"
        self.curves = path / "curves"
        self.logs = path / "logs"
        self.claims = path / "claims"
        self.owners = path / "owners"
        self.editions = path / "editions"
        self.machines = path / "machines"
        self.models = path / "models"
        self.cache = path / "cache"

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run folder."""
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise RunError(f"{path}: no such run folder; `tradewind run STUDY --out {path}` makes one")
        if not folder._mark.exists():
            raise RunError(f"{path}: not a run folder: it has no {folder._mark.name}")
        try:
            found = read_json(folder._mark).get("format")
        except (StudyError, AttributeError):
            raise RunError(f"{folder._mark}: can't be read; the folder may have been damaged") from None
        if found != FORMAT:
            raise RunError(f"{path}: run format {found}; this Tradewind reads format {FORMAT}")
        return folder

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """The run folder at a path, made if need be; several processes may do so at once."""
        folder = cls(Path(path))
        if folder._mark.exists():
            return cls.open(path)
        if folder.path.is_dir() and any(entry.name not in folder._names() for entry in folder.path.iterdir()):
            raise RunError(f"{path}: holds other files and is no run folder; choose another --out")
        try:
            for name in folder._names():
                if not name.endswith(".json"):
                    (folder.path / name).mkdir(parents=True, exist_ok=True)
            write_aside(folder._mark, json.dumps({"format": FORMAT, "created": timestamp()}).encode())
        except OSError as error:
            raise RunError(f"{path}: can't be made: {error.strerror}") from None
        return folder

    @property
    def _mark(self) -> Path:
        return self.path / "run.json"

    @property
    def study_file(self) -> Path:
        """The newest edition of the study."""
        return self.path / "study.json"

    def _names(self) -> set[str]:
        folders = {value.name for value in vars(self).values() if value != self.path}
        return folders | {"checkpoints", self._mark.name, self.study_file.name}

    def study(self) -> Study | None:
        """The newest edition of the study; None in a run that was imported."""
        if not self.study_file.exists():
            return None
        content = read_json(self.study_file)
        return Study(**content["study"]).at(Path(content["folder"]))

    def objective(self) -> tuple[str, str]:
        """The metric that `best` means and its direction; empty where the study leaves it open."""
        content = read_json(self.study_file) if self.study_file.exists() else {}
        return content.get("metric", ""), content.get("direction", "")

    def keep_study(self, study: Study, edition: str, metric: str = "", direction: str = "") -> None:
        """Make this the newest edition; earlier ones stay under editions/."""
        content = {"study": study.plain(), "folder": str(study.folder), "metric": metric, "direction": direction}
        text = json.dumps(content, indent=1).encode()
        write_aside(self.editions / f"{edition}.json", text)
        write_aside(self.study_file, text)

    def journal(self, owner: str) -> Path:
        """The journal of one process lifetime."""
        return self.journals / f"{owner}.jsonl"

    def curve_file(self, owner: str) -> Path:
        """The full curves beside a journal."""
        return self.curves / f"{owner}.jsonl"

    def owner(self, owner: str) -> Path:
        """Who a journal belongs to; its time of change is the owner's last sign of life."""
        return self.owners / f"{owner}.json"

    def checkpoint(self, key: str) -> Path:
        """Where a trial keeps what it needs to go on; also the folder a user's function may use."""
        return self.path / "checkpoints" / key

    def model(self, key: str) -> Path:
        """The trained weights of a trial."""
        return self.models / f"{key}.safetensors"

    def keep_machine(self, name: str, facts: dict[str, Any]) -> None:
        """Keep the facts behind a machine's name."""
        path = self.machines / f"{name.replace('/', '-')}.json"
        if not path.exists():
            write_aside(path, json.dumps(facts, indent=1).encode())

    def forget_checkpoint(self, key: str) -> None:
        """Remove what a finished trial no longer needs."""
        shutil.rmtree(self.checkpoint(key), ignore_errors=True)


def default_path(study: Study) -> Path:
    """Where a study runs unless told otherwise."""
    return Path("runs") / study.name.replace("/", "-").replace("\0", "").strip(". ")


def set_aside(path: Path) -> Path | None:
    """Move an old run out of the way for a fresh one; nothing recorded is ever deleted."""
    if not path.exists():
        return None
    RunFolder.open(path)
    aside = path.with_name(f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")
    path.rename(aside)
    return aside


def timestamp() -> str:
    """Now, in UTC, to the millisecond."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def write_aside(path: Path, content: bytes) -> None:
    """Write a whole file so that readers see the old or the new one, never a part, and it lasts."""
    with writing(path) as aside, open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A place to write beside `path`, renamed to it at the end, removed on failure."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
