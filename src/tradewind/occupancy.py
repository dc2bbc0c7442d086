"""Whose turn it is to compute: while a trial is timed, no other trial of the same user runs on its cores or GPUs.

Who wants to compute takes a ticket: a file, locked for as long as its process needs it, in a folder of the user's.
Tickets are served in the order in which they were taken, so that those who wait go before whoever comes back. Two
tickets exclude each other where they name a core or GPU in common and one of them is to time. The kernel frees the
locks of a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tradewind.errors import Mistake

Holder = Mapping[str, Any]  # of a ticket: things, run, purpose, pid
_OURS: set[int] = set()  # handles of locked files; a forked child would keep what its parent has locked


def _close_in_child() -> None:
    while _OURS:
        with suppress(OSError):
            os.close(_OURS.pop())


os.register_at_fork(after_in_child=_close_in_child)


class Turn:
    """The right of one worker to compute on its cores or GPUs; `with turn:` waits for it.

    `run` is the run folder, for others to be told whom they wait for.
    """

    def __init__(self, things: Iterable[str], alone: bool, run: str = "") -> None:
        self._things, self._alone, self._run = frozenset(things), alone, run
        self._ticket: tuple[int, str] | None = None

    def __enter__(self) -> None:
        self.enter()

    def enter(self, told: Callable[[Holder], None] = lambda holder: None) -> None:
        """Wait for the turn; `told` hears of each one that is waited for."""
        try:
            self.take()
            with suppress(OSError), _lock_folder() as folder:
                for handle, holder in self._earlier(folder):
                    told(holder)
                    fcntl.flock(handle, fcntl.LOCK_SH)
        except BaseException:  # a signal's, while waiting: a ticket that is kept would stop everybody
            self.__exit__()
            raise

    def take(self) -> None:
        """Take a ticket, unless there is one; without room for a file better a disturbed run than none."""
        if self._ticket is None and self._things:
            with suppress(OSError), _lock_folder() as folder:
                self._take(folder)

    def ahead(self) -> Holder | None:
        """Who has to be waited for at this moment, if anybody."""
        try:
            with _lock_folder() as folder:
                return next((holder for _, holder in self._earlier(folder)), None)
        except OSError:
            return None

    def __exit__(self, *_: object) -> None:
        if self._ticket is not None:
            (handle, name), self._ticket = self._ticket, None
            with suppress(OSError), _lock_folder() as folder:
                os.unlink(name, dir_fd=folder)
            _release(handle)

    def _take(self, folder: int) -> None:
        """A file that shows who wants what, locked before it can be seen under its name."""
        with _locked(folder, f"{socket.gethostname()}.lock"):  # no later ticket is seen before an earlier one
            name = _name(self._alone)
            handle = _open(folder, f".{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL)
            _OURS.add(handle)
            self._ticket = handle, name
            fcntl.flock(handle, fcntl.LOCK_EX)
            about = {"run": self._run, "purpose": "time" if self._alone else "tune", "pid": os.getpid()}
            os.write(handle, json.dumps({**about, "things": sorted(self._things)}).encode())
            os.rename(f".{name}", name, src_dir_fd=folder, dst_dir_fd=folder)

    def _earlier(self, folder: int) -> Iterator[tuple[int, Holder]]:
        """The tickets to wait for: taken before, still held, of the same cores or GPUs, and one of the two to time.

        Each is open until the next one is asked for, and removed where its process has ended.
        """
        host, number, *_ = (self._ticket[1] if self._ticket else _name(self._alone)).rsplit(".", 3)
        for name in sorted(os.listdir(folder)):
            other, earlier, kind, pid = name.rsplit(".", 3) if name.count(".") > 2 else ("", "", "", "")
            if other != host or earlier >= number:
                continue
            excluded = self._alone or kind == "time"
            if not excluded and os.path.exists(f"/proc/{pid}"):
                continue
            try:
                handle = _open(folder, name, os.O_RDONLY)
            except FileNotFoundError:  # its turn has just ended
                continue
            try:
                if not _is_held(handle):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                elif excluded and not self._things.isdisjoint((holder := _content(handle))["things"]):
                    yield handle, holder
            finally:
                os.close(handle)


def check_lock_folder() -> None:
    """Refuse a folder for locks that is not this user's alone, before any work."""
    with suppress(OSError), _lock_folder():
        pass


def _name(alone: bool) -> str:
    """Host, place in the order, purpose and process; a folder may be shared by hosts."""
    purpose = "time" if alone else "tune"
    return f"{socket.gethostname()}.{time.monotonic_ns():020d}.{purpose}.{os.getpid()}"


@contextmanager
def _lock_folder() -> Iterator[int]:
    """This user's folder for locks, opened; never through a link, and never one that others can write to.

    It does not follow TMPDIR: jobs that have private ones must see each other.
    """
    path = os.environ.get("TRADEWIND_LOCKS") or f"/tmp/tradewind-{os.getuid()}"
    wanted = "allowed: a folder of your own with mode 0700, here or where TRADEWIND_LOCKS says"
    try:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if os.path.lexists(path) or os.environ.get("TRADEWIND_LOCKS"):
            why = "it is a symbolic link" if os.path.islink(path) else error.strerror
            raise Mistake(f"{path}: can't be used for locks: {why}; {wanted}") from None
        raise
    try:
        found = os.fstat(folder)
        if found.st_uid != os.getuid():
            raise Mistake(f"{path}: can't be used for locks: it belongs to user {found.st_uid}; {wanted}")
        if stat.S_IMODE(found.st_mode) & 0o077:
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            raise Mistake(f"{path}: can't be used for locks: its mode {mode} lets others in; {wanted}")
        yield folder
    finally:
        os.close(folder)


def _open(folder: int, name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)


@contextmanager
def _locked(folder: int, name: str) -> Iterator[None]:
    handle = _open(folder, name, os.O_RDWR | os.O_CREAT)
    _OURS.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        _release(handle)


def _content(handle: int) -> Holder:
    found: Holder = json.loads(os.read(handle, 1 << 20))
    return found


def _release(handle: int) -> None:
    _OURS.discard(handle)
    with suppress(OSError):  # a trial may have closed it
        os.close(handle)


def _is_held(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(handle, fcntl.LOCK_UN)
    return False
