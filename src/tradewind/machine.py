"""What ran where: facts about this machine, and whether a process somewhere is still alive."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any

from tradewind.version import VERSION

DRIVER_S = 10.0  # in which a driver that works has answered


def cores() -> int:
    """How many cores this process may use, which a container or Slurm may have narrowed."""
    return len(core_numbers())


def core_numbers() -> tuple[int, ...]:
    """Which cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@contextmanager
def one_thread() -> Iterator[None]:
    """With one of torch's threads for a while: between small operations several would wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def nvidia_smi(*words: str) -> str:
    """What nvidia-smi prints; nothing where it is not there, fails or does not answer, as when a driver hangs."""
    if not shutil.which("nvidia-smi"):
        return ""
    process = subprocess.Popen(
        ["nvidia-smi", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        answer, _ = process.communicate(timeout=DRIVER_S)
    except subprocess.TimeoutExpired:
        print(f"tradewind: nvidia-smi gives no answer within {DRIVER_S:g} s: going on without it", file=sys.stderr)
        process.kill()
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):  # in the hands of a driver that hangs it can't even be killed
            process.wait(1.0)
        return ""
    return answer if process.returncode == 0 else ""


@cache
def _gpus() -> tuple[tuple[str, str], ...]:
    """Identity and name of the GPUs this process may use; asks the driver, since importing torch costs seconds."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in {"", "-1"}:
        return ()
    answer = nvidia_smi("--query-gpu=uuid,name", "--format=csv,noheader")
    lines = [line.split(", ", 1) for line in answer.splitlines() if ", " in line]
    there = [(uuid.strip(), name.strip()) for uuid, name in lines]
    if visible is None:
        return tuple(there)
    wanted = [word.strip() for word in visible.split(",")]
    by_number = {str(number): gpu for number, gpu in enumerate(there)}
    by_name = {word: gpu for word in wanted for gpu in there if gpu[0].startswith(word)}
    known = {**by_name, **by_number}
    # as CUDA does: none of those behind one that is not there
    return tuple(known[word] for word in takewhile(known.__contains__, wanted))


def gpus() -> tuple[str, ...]:
    """The names of the GPUs this process may use."""
    return tuple(name for _, name in _gpus())


def gpu_ids() -> tuple[str, ...]:
    """What tells those GPUs from all others in the world, and is understood by CUDA_VISIBLE_DEVICES."""
    return tuple(uuid for uuid, _ in _gpus())


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


@cache
def facts() -> dict[str, Any]:
    """What a time measured here depends on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "host": socket.gethostname(),
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gb": round(pages / 2**30, 1),
        "gpus": list(gpus()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "numpy": metadata.version("numpy"),
    }


@cache
def name() -> str:
    """A short identity of this machine and its software: the same facts, the same name."""
    text = json.dumps(facts(), sort_keys=True)
    what = facts()["gpus"][0] if gpus() else f"{_cpu()} {cores()}-core"
    return f"{what} {hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


@cache
def code() -> str:
    """Version and hash of this Tradewind, as kept with every record."""
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{VERSION}+{digest.hexdigest()}"


@cache
def boot() -> str:
    """Changes with every boot of the host, so that a reused process number does not deceive."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace() -> str:
    """The PID namespace that process numbers are counted in: each container has its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@dataclass(frozen=True)
class Process:
    """A process, so described that another host or container can tell whether it may still be alive."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: float

    @classmethod
    def this(cls) -> Process:
        """The calling process."""
        return cls(socket.gethostname(), boot(), namespace(), os.getpid(), _start_time(os.getpid()) or 0.0)

    def gone(self) -> bool | None:
        """True or False where that can be known; None for one of another host or container, or before a reboot.

        Cloned images share a host's name, and containers a host's boot: only the three together name a process.
        """
        if (self.host, self.boot, self.namespace) != (socket.gethostname(), boot(), namespace()):
            return None
        started = _start_time(self.pid)
        return started is None or abs(started - self.started) > 0.05


def _start_time(pid: int) -> float | None:
    """When a process started, in whatever unit does not change when the clock is set; None if it has ended."""
    if sys.platform == "linux":
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state == "Z" else float(fields[18])
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def die_with_parent(parent: int, by: int = 9) -> None:
    """Have the kernel kill this process, or signal it otherwise, when its parent ends, however that ends (Linux)."""
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    _prctl(pr_set_pdeathsig, by)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


def inherit_orphans() -> None:
    """Ask the kernel to make this process the parent of all descendants whose own parent ends (Linux)."""
    pr_set_child_subreaper = 36
    _prctl(pr_set_child_subreaper, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value)
