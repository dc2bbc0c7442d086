"""Benchmarks: measure this machine, and Tradewind beside its peers, in one run."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tradewind import machine
from tradewind.errors import Mistake, nearest

BENCHMARKS = {
    "calibration": "how often statements are true, by how sure they are, on simulated studies and real tables",
    "overhead": "what an empty trial costs, beside ProcessPoolExecutor, joblib and Optuna",
    "augment": "images moved per second beside OpenCV and others, and live over ahead-of-time training",
    "dispatch": "empty trials per second over 4 MPI ranks, beside mpi4py.futures, Dask and Ray",
    "parallel": "our data-parallel step over torch's bare DistributedDataParallel, 2 processes",
    "search": "regret against trials beside Optuna alone (parts: branin, hartmann, rosenbrock, mixed, network)",
    "profile": "which networks train faster as one here; writes the profile that runs on this machine go by",
    "watcher": "whether a run is slowed by the live page following it",
    "sweep": "learning rate × seed beside DataLoader, eager, joblib, Optuna (parts: ways, foreign, one, growth)",
}


def installed(package: str) -> str:
    """The installed version of a peer, empty where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def about() -> dict[str, Any]:
    """When and on what something is measured; without the host's name, since results are for others to read."""
    facts = {key: value for key, value in machine.facts().items() if key != "host"}
    return {"date": time.strftime("%Y-%m-%d"), "machine": facts}


def listing() -> str:
    """The benchmarks with what they measure."""
    return "\n".join(f"{name:12s} {what}" for name, what in BENCHMARKS.items())


def measure(name: str, save: Path | None, parts: Sequence[str] = ()) -> str:
    """Run one benchmark, or parts of it; its table. `save` keeps raw samples, machine, versions and date as JSON."""
    if name not in BENCHMARKS:
        raise Mistake(f"no benchmark {name!r}; {nearest(name, BENCHMARKS)}")
    module: Any = importlib.import_module(f"tradewind.bench.{name}")
    if parts and not hasattr(module, "PARTS"):
        raise Mistake(f"--part {parts[0]}: the benchmark {name} has no parts")
    measured = module.measure(parts) if parts else module.measure()
    found = {"benchmark": name, **about(), **measured}
    if save is not None:
        save.write_text(json.dumps(found, indent=1) + "\n")
    return f"{module.page(found)}\n{machine.name()}, {found['date']}"
