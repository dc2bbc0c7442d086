"""A run is a folder; this class alone knows the names of the files in it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tradewind.errors import RunError, StudyError
from tradewind.jsonfile import read_json

FORMAT = 2
FULL = (errno.ENOSPC, errno.EDQUOT)


class RunFolder:
    """The study as run, journals, curves, claims, plans, logs, checkpoints, models and machine facts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journals = path / "journal"
        self.curves = path / "curves"
        self.logs = path / "logs"
        self.claims = path / "claims"
        self.plans = path / "plans"
        self.owners = path / "owners"
        self.editions = path / "editions"
        self.machines = path / "machines"
        self.checkpoints = path / "checkpoints"
        self.trials = path / "trials"
        self.models = path / "models"
        self.cache = path / "cache"
        self.slurm = path / "slurm"

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
        for part in (*folder._folders(), *folder._files()):
            if part.is_symlink():
                raise RunError(f"{part}: is a symbolic link; a run folder holds none: put there what it stands for")
        return folder

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """The run folder at a path, made if need be; several processes may do so at once."""
        folder = cls(Path(path))
        if folder._mark.exists():
            return cls.open(path)
        # another job may be writing its first files aside at this moment
        if folder.path.is_dir() and any(
            entry.name not in folder._names() and entry.name[1:].rpartition(".")[0] not in folder._names()
            for entry in folder.path.iterdir()
        ):
            raise RunError(f"{path}: holds other files and is no run folder; choose another --out")
        try:
            for part in folder._folders():
                part.mkdir(parents=True, exist_ok=True)
            write_aside(folder._mark, json.dumps({"format": FORMAT, "created": timestamp()}).encode())
        except OSError as error:
            if error.errno in FULL:  # room can be made, and a batch job may try again
                raise
            raise RunError(f"{path}: can't be made: {error.strerror}") from None
        return folder

    @property
    def _mark(self) -> Path:
        return self.path / "run.json"

    @property
    def study_file(self) -> Path:
        """The study as run, in its newest edition."""
        return self.path / "study.json"

    @property
    def report_file(self) -> Path:
        """The page of the run, unless it is written elsewhere."""
        return self.path / "report.html"

    @property
    def _beside(self) -> Path:
        return self.path / "edition.json"

    @property
    def _imported(self) -> Path:
        return self.path / "imported.json"

    def _folders(self) -> list[Path]:
        return [value for value in vars(self).values() if value != self.path]

    def _files(self) -> list[Path]:
        return [self._mark, self.study_file, self._beside, self._imported]

    def _names(self) -> set[str]:
        return {part.name for part in (*self._folders(), *self._files(), self.report_file)}

    def edition(self) -> dict[str, Any]:
        """The newest edition: `study` itself, and the `folder`, `file`, `metrics` and `directions` beside it."""
        if not self.study_file.exists():
            return {}
        beside, study = read_json(self._beside), read_json(self.study_file)
        if not isinstance(beside, dict) or not isinstance(study, dict):
            raise RunError(f"{self.study_file}: holds no study; the folder may have been damaged")
        return {**beside, "study": study}

    def known_editions(self) -> set[str]:
        """The names of all editions of the study that ran here; empty where results were imported."""
        return {str(self.edition().get("edition")), *(path.stem for path in self.files(self.editions, "json"))}

    @staticmethod
    def files(part: Path, ending: str) -> list[Path]:
        """The files of one of the folders by their ending, without links and folders, which nobody put there."""
        return [path for path in sorted(part.glob(f"*.{ending}")) if path.is_file() and not path.is_symlink()]

    @staticmethod
    def odd(part: Path, ending: str) -> int:
        """How many links, folders and the like stand there in place of files."""
        return len(list(part.glob(f"*.{ending}"))) - len(RunFolder.files(part, ending))

    def log(self, name: str) -> Path | None:
        """A log by its name; None where that is no file of this folder."""
        path = self.logs / name
        return path if path.name == name and path.is_file() and not path.is_symlink() else None

    def keep_edition(self, name: str, edition: dict[str, Any]) -> None:
        """Make this the newest edition; earlier ones stay under editions/."""
        study = json.dumps(edition["study"], indent=1).encode()
        beside = {key: value for key, value in edition.items() if key != "study"}
        write_aside(self.editions / f"{name}.json", study)
        write_aside(self._beside, json.dumps(beside, indent=1).encode())
        write_aside(self.study_file, study)

    def keep_imported(self, about: dict[str, Any]) -> None:
        """Keep what an import said about its columns: `directions` of measures."""
        write_aside(self._imported, json.dumps(about, indent=1).encode())

    def imported(self) -> dict[str, Any]:
        """What an import said about its columns; empty where nothing was."""
        found: dict[str, Any] = read_json(self._imported) if self._imported.exists() else {}
        return found

    def journal(self, owner: str) -> Path:
        """The journal of one process lifetime."""
        return self.journals / f"{owner}.jsonl"

    def curve_file(self, owner: str) -> Path:
        """The full curves beside a journal."""
        return self.curves / f"{owner}.jsonl"

    def owner(self, owner: str) -> Path:
        """Who a journal belongs to; its time of change is the owner's last sign of life."""
        return self.owners / f"{owner}.json"

    def order(self, edition: str) -> Path:
        """In which order all jobs on an edition go through it."""
        return self.plans / f"{edition}.order.npz"

    def plan(self, edition: str, of: int, generation: int) -> Path:
        """How an edition was dealt to so many ranks."""
        return self.plans / f"{edition}.of{of}.{generation}.npz"

    def precision(self, about: str) -> Path:
        """In which precision networks train that leave it to us."""
        return self.plans / f"precision-{about}.json"

    def checkpoint(self, key: str) -> Path:
        """What an interrupted trial needs to go on."""
        return self.checkpoints / f"{key}.safetensors"

    def trial(self, key: str) -> Path:
        """The folder that a user's function or command may use as it likes."""
        return self.trials / key

    def model(self, key: str) -> Path:
        """The trained weights of a trial."""
        return self.models / f"{key}.safetensors"

    def keep_machine(self, name: str, facts: dict[str, Any]) -> None:
        """Keep the facts behind a machine's name."""
        path = self.machines / f"{name.replace('/', '-')}.json"
        if not path.exists():
            write_aside(path, json.dumps(facts, indent=1).encode())


def default_path(name: str) -> Path:
    """Where the study of this name runs unless told otherwise."""
    return Path("runs") / name.replace("/", "-").replace("\0", "").strip(". ")


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
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)  # else the new name may be lost with the power
        finally:
            os.close(handle)
    finally:
        aside.unlink(missing_ok=True)
