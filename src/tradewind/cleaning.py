"""What a run folder or the user's cache holds that is needed no more; never records."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tradewind.claims import living_owners
from tradewind.errors import RunError
from tradewind.folder import RunFolder
from tradewind.quantities import size
from tradewind.results import Results
from tradewind.workloads.cache import cache_folder


@dataclass(frozen=True)
class Leftover:
    """Files or folders of one kind."""

    kind: str
    paths: list[Path]

    def bytes(self) -> int:
        """How much room they take."""
        return sum(map(disk_usage, self.paths))

    def remove(self) -> None:
        """Delete them; what is gone already is no matter."""
        for path in self.paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def leftovers_of_run(folder: RunFolder) -> list[Leftover]:
    """Checkpoints of trials that have ended, caches of results, and the weights of trials that are beaten."""
    results = Results.load(folder.path)
    if owners := living_owners(folder):
        raise RunError(f"{folder.path}: {owners[0].who} is at work there; clean it after its end")
    ended = results.final_keys()
    return [
        Leftover("checkpoints", [path for path in _files(folder.checkpoints) if path.stem in ended]),
        Leftover("caches", _files(folder.cache)),
        Leftover("weights", [path for path in _beaten_weights(folder, results) if path.stem in ended]),
    ]


def _beaten_weights(folder: RunFolder, results: Results) -> list[Path]:
    """Those that the study does not ask to keep."""
    keep = folder.edition().get("study", {}).get("keep", "best")
    standing = None if keep == "all" else results.standing(1 if keep == "best" else keep)
    if standing is None or not standing.goals:
        return []
    kept = standing.kept()
    return [path for path in _files(folder.models) if path.stem not in kept]


def leftovers_of_cache() -> list[Leftover]:
    """Data sets and augmented stores, but no store that a process is making, and no profile of a machine."""
    folder = cache_folder()
    stores = [path for path in folder.glob("augmented-*") if path.is_dir() and not living_owners(RunFolder(path))]
    data = [path for path in _files(folder) if ".npy" in path.suffixes or _is_aside(path)]
    return [Leftover("data sets", data), Leftover("augmented stores", stores)]


def disk_usage(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size if os.path.lexists(path) else 0
    found = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                found += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue  # removed meanwhile
    return found


def clean_page(leftovers: Iterable[Leftover], where: Path, dry_run: bool) -> str:
    """What is removed, or would be, and how much room that makes."""
    some = [(one.kind, len(one.paths), one.bytes()) for one in leftovers]
    lines = [f"  {kind:<17}{count:>6,}  {size(taken)}" for kind, count, taken in some]
    total = size(sum(taken for *_, taken in some))
    said = f"{where}: {total} would be removed" if dry_run else f"{where}: {total} removed"
    return "\n".join([said, *lines])


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_symlink() or path.is_file())


def _is_aside(path: Path) -> bool:
    """A data set that a process was killed while writing."""
    return len(path.suffix) == 33 and not path.suffix[1:].strip("0123456789abcdef")
