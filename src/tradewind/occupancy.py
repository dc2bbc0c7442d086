"""Whose turn it is to compute: while a trial is timed, no other trial of Tradewind runs on its cores or GPUs.

Every core and GPU has a lock file on its host, taken for the time of a trial: together with others to tune,
alone to time. Who comes passes a gate first, so that a timed trial waits for those that run, and those that
come later wait for it. The kernel frees the locks of a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Turn:
    """The right of one worker to compute on its cores or GPUs; `with turn:` waits for it."""

    def __init__(self, things: Iterable[str], alone: bool) -> None:
        self._kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        # in one order everywhere, so that two workers never wait for each other
        self._locks = [lock for thing in sorted(things) if (lock := _open(thing)) is not None]

    def __enter__(self) -> None:
        try:
            for gate, lock in self._locks:
                fcntl.flock(gate, self._kind)
                fcntl.flock(lock, self._kind)
                fcntl.flock(gate, fcntl.LOCK_UN)
        except BaseException:  # a signal's, while waiting: a gate that stays closed would stop everybody
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for pair in self._locks:
            for handle in pair:
                fcntl.flock(handle, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the locks back for good."""
        while self._locks:
            for handle in self._locks.pop():
                os.close(handle)

    def at_once(self) -> bool:
        """Whether nobody has to be waited for at this moment."""
        try:
            for handle in (handle for pair in self._locks for handle in pair):
                fcntl.flock(handle, self._kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            self.__exit__()
        return True


def _open(thing: str) -> tuple[int, int] | None:
    """The gate and the lock of a core or GPU, which every user of the host may open; None where that can't be."""
    folder = Path(tempfile.gettempdir()) / "tradewind-occupied"
    thing = f"{socket.gethostname()}-{thing}"  # a folder for temporary files may be shared by hosts
    handles = []
    try:
        folder.mkdir(exist_ok=True)
        with suppress(OSError):
            folder.chmod(0o1777)
        for path in (folder / f"{thing}.gate", folder / thing):
            handles.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
            with suppress(OSError):
                os.fchmod(handles[-1], 0o666)  # or the mask keeps other users out
    except OSError:
        return None  # a host without room for an empty file: better a disturbed run than none
    return handles[0], handles[1]
