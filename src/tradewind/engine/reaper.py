"""A worker's parent process: it outlives the worker and ends all that this has left behind."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from tradewind.machine import die_with_parent, inherit_orphans


def under_reaper(starter: int, handle: int) -> None:
    """Go on in a child process; this one waits for its end, ends its descendants and ends in the same way.

    The kernel makes it the parent of every orphan below it, whatever its environment and session. It is told to
    stop by SIGTERM, which also comes when `starter` dies. `handle` stays open in the child alone.
    """
    if sys.platform != "linux":
        die_with_parent(starter)
        return
    reaper = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    die_with_parent(starter, signal.SIGTERM)
    inherit_orphans()
    worker = os.fork()
    if worker:
        os.close(handle)
        _reap(worker)
    die_with_parent(reaper)
    inherit_orphans()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _reap(worker: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    ended, status = 0, 0
    while ended != worker:
        ended, status = os.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_children()
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def end_children() -> None:
    """Kill all children of this process; theirs become its own as they die."""
    while pids := children():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.wait()


def children() -> list[int]:
    """The children of this process, those among them that have ended and were not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # as a rule there are none: 1 µs
    except ChildProcessError:
        return []
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found += map(int, file.read().split())
        except OSError:  # a thread that has ended, or a kernel that does not say
            continue
    return found or _children_by_psutil()


def _children_by_psutil() -> list[int]:
    import psutil

    return [process.pid for process in psutil.Process().children()]
