"""What else a machine did while a trial was timed: CPU time that is not ours, foreign processes on its GPUs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tradewind.machine import nvidia_smi
from tradewind.pack import Place

MOST = 0.05  # a trial disturbed by more than this share decides nothing
SHORTEST_S = 0.2  # in less, the ticks by which Linux counts are too coarse
ODD = 0.2  # where idle and busy time differ by more from the time that passed, these are not the counts of our cores
LAUNCHERS = (b"OMPI_COMM_WORLD_RANK=", b"PMIX_RANK=", b"PMI_RANK=")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """What Linux says about a process: CPU seconds with those of children that have ended."""

    parent: int
    cpu_s: float


@dataclass(frozen=True)
class Counts:
    """What was counted at one moment."""

    at: float
    busy_s: float  # on the cores of the trial, by anybody
    all_s: float  # there, idle time included
    ours_s: float
    waits_s: dict[int, float]  # our processes: how long they waited for a core


class Disturbance:
    """Counts from here on; `share()` says how much of what a trial wanted others took from it.

    `starter` has started this worker and all others of the run.
    """

    def __init__(self, place: Place, starter: int) -> None:
        self._place = place
        self._root = _root(starter)
        self._gpus = [self._foreign_on_gpus()] if place.gpus else []
        self._before = self._counts()

    def share(self) -> float | None:
        """From 0 to 1; None where it can't be measured."""
        shares = [self._cpu_share(self._before, self._counts())]
        if self._gpus:
            both = [*self._gpus, self._foreign_on_gpus()]
            known = [share for share in both if share is not None]
            shares.append(sum(known) / 2 if len(known) == 2 else None)
        measured = [share for share in shares if share is not None]
        most = max(measured, default=0.0)
        return round(most, 4) if len(measured) == len(shares) or most > MOST else None

    def _cpu_share(self, before: Counts | None, after: Counts | None) -> float | None:
        """Others' CPU time that idle cores could not carry, as a share of what the trial wanted."""
        if before is None or after is None:
            return None
        cores = len(self._cores())
        wall_s = after.at - before.at
        room_s = wall_s * cores
        if wall_s < SHORTEST_S or abs(after.all_s - before.all_s - room_s) > ODD * room_s:
            return None
        ours_s = max(0.0, after.ours_s - before.ours_s)
        waits_s = sum(max(0.0, s - before.waits_s.get(pid, 0.0)) for pid, s in after.waits_s.items())
        others_s = max(0.0, after.busy_s - before.busy_s - ours_s - (cores + 1) * _TICK_S)
        wanted_s = min(room_s, max(wall_s, ours_s + waits_s))  # one core at least: it may be of use at any moment
        return min(1.0, max(0.0, others_s - (room_s - wanted_s)) / wanted_s)

    def _counts(self) -> Counts | None:
        if _has_quota():
            return None  # idle cores of the machine are not ours to use
        try:
            found = _processes()
            family = self._family(found)
            busy_s, all_s = _core_times(self._cores())
            waits_s = {pid: _waits_s(pid) for pid in family}
            return Counts(time.monotonic(), busy_s, all_s, sum(found[pid].cpu_s for pid in family), waits_s)
        except (OSError, ValueError, IndexError):
            return None  # not Linux, or a /proc of another kind

    def _cores(self) -> set[int]:
        return os.sched_getaffinity(0)

    def _family(self, found: dict[int, Process]) -> set[int]:
        """All processes of this run here; with cores of its own, only those of this worker and who hands out."""
        children: dict[int, list[int]] = {}
        for pid, process in found.items():
            children.setdefault(process.parent, []).append(pid)
        family, new = {self._root} & found.keys(), [os.getpid() if self._place.cores else self._root]
        while new:
            family |= {*new} & found.keys()
            new = [child for pid in new for child in children.get(pid, [])]
        return family

    def _foreign_on_gpus(self) -> float | None:
        """The share of their time that the GPUs of this worker spend on other processes at this moment."""
        answer = nvidia_smi("pmon", "--count", "1", "--select", "u", "--id", ",".join(self._place.gpus))
        if not answer:
            return None
        rows = [line.split() for line in answer.splitlines() if not line.startswith("#")]
        busy = {int(row[1]): float(row[3]) if row[3] != "-" else 0.0 for row in rows if row[1].isdigit()}
        ours = self._family(_processes())
        if busy and not ours & busy.keys() and not all(Path(f"/proc/{pid}").exists() for pid in busy):
            return None  # the numbers of another PID namespace
        return min(1.0, sum(share for pid, share in busy.items() if pid not in ours) / 100)


def _root(starter: int) -> int:
    """The process from which all of this run on this host descend."""
    with suppress(OSError, ValueError, IndexError):
        if any(word.startswith(LAUNCHERS) for word in Path(f"/proc/{starter}/environ").read_bytes().split(b"\0")):
            return _process(str(starter)).parent  # ranks are siblings: what has started them
    return starter


def _processes() -> dict[int, Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):  # it has just ended
                found[int(name)] = _process(name)
    return found


def _process(pid: str) -> Process:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return Process(int(fields[1]), sum(map(int, fields[11:15])) * _TICK_S)


def _waits_s(pid: int) -> float:
    """How long the threads of a process have waited for a core."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(path.read_text().split()[1])
    return total / 1e9


def _core_times(cores: set[int]) -> tuple[float, float]:
    """Busy and all seconds of some cores."""
    busy, everything = 0, 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *rest = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, rest[:8])
            busy += user + nice + system + irq + softirq
            everything += user + nice + system + irq + softirq + idle + iowait + steal
    return busy * _TICK_S, everything * _TICK_S


def _has_quota() -> bool:
    """Whether a control group limits the CPU time of this process, as containers do that show the whole host."""
    top = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError, IndexError):
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":", 2)[2].strip("/")
        for folder in (top / own, *(top / own).parents):
            if (folder / "cpu.max").is_file() and (folder / "cpu.max").read_text().split()[0] != "max":
                return True
            if folder == top:
                break
    with suppress(OSError, ValueError):
        return int((top / "cpu" / "cpu.cfs_quota_us").read_text()) > 0
    return False
