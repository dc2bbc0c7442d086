"""What a trial has left behind in its worker that can't be put back, so that the next trial needs another worker."""

from __future__ import annotations

import multiprocessing
import os
import site
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakSet

from tradewind.engine.reaper import children

OURS = str(Path(__file__).parent.parent)
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (os.path.dirname(os.__file__), OURS, *site.getsitepackages()))
SOCKET_CLOSED = 113  # exit code of a worker that can't speak to its engine any more


class Leftovers:
    """Watches which descriptors a worker has, and which threads and processes its trials start."""

    def __init__(self, handles: Iterable[int]) -> None:
        self._files = {handle: file_of(handle) for handle in handles}
        self._threads: WeakSet[threading.Thread] = WeakSet()
        self._processes: WeakSet[BaseProcess] = WeakSet()
        self._children = set(children())
        _note_starts(threading.Thread, self._threads)
        _note_starts(BaseProcess, self._processes)

    def found(self) -> str:
        """What is left that no other trial may meet; empty: nothing."""
        if any(file_of(handle) != file for handle, file in self._files.items()):
            return "the trial closed its worker's descriptors"
        if any(thread.is_alive() for thread in self._threads):
            return "the trial left threads behind"
        if new := set(children()) - self._children:
            known = {process.pid: process for process in multiprocessing.active_children()}
            pools = {pid for pid in new & known.keys() if known[pid] not in self._processes}
            pools |= {pid for pid in new - known.keys() if _has_ended(pid) or _runs_a_library(pid)}
            self._children |= pools
            return "the trial left processes behind" if new - pools else ""
        return ""


def _note_starts(kind: Any, started: WeakSet[Any]) -> None:
    """Have every thread or process noted that a trial starts by itself."""
    start = kind.start

    def noted(one: Any) -> None:
        if _is_trials(sys._getframe(1)):
            started.add(one)
        start(one)

    kind.start = noted


def file_of(handle: int) -> tuple[int, int] | None:
    """Which file a descriptor stands for; None: for none."""
    try:
        found = os.fstat(handle)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_trials(frame: FrameType | None) -> bool:
    """Whether the code of this frame is the user's, and not in the midst of being imported."""
    own = frame is not None and not frame.f_code.co_filename.startswith(LIBRARIES)
    while own and frame is not None:
        own = not frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return own


def _has_ended(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


def _runs_a_library(pid: int) -> bool:
    """Whether a child was started to serve a library, as the processes of joblib are."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return True
    return any(word.startswith((*LIBRARIES, "from multiprocessing", "from joblib", "joblib.")) for word in words)
