"""Benchmarks: measure this machine, and Tradewind beside its peers, in one run."""

from __future__ import annotations

import importlib
import json
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from tradewind import machine
from tradewind.errors import Mistake, nearest

BENCHMARKS = {
    "overhead": "what an empty trial costs, beside ProcessPoolExecutor, joblib and Optuna",
    "augment": "images moved per second beside OpenCV and others, and live over ahead-of-time training",
    "dispatch": "empty trials per second over 4 MPI ranks, beside mpi4py.futures, Dask and Ray",
}


def installed(package: str) -> str:
    """The installed version of a peer, empty where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def listing() -> str:
    """The benchmarks with what they measure."""
    return "\n".join(f"{name:12s} {what}" for name, what in BENCHMARKS.items())


def measure(name: str, save: Path | None) -> str:
    """Run one benchmark; its table. `save` keeps raw samples, machine, versions and date as JSON."""
    if name not in BENCHMARKS:
        raise Mistake(f"no benchmark {name!r}; {nearest(name, BENCHMARKS)}")
    module: Any = importlib.import_module(f"tradewind.bench.{name}")
    facts = {key: value for key, value in machine.facts().items() if key != "host"}  # results are for others to read
    found = {"benchmark": name, "date": time.strftime("%Y-%m-%d"), "machine": facts, **module.measure()}
    if save is not None:
        save.write_text(json.dumps(found, indent=1) + "\n")
    return f"{module.page(found)}\n{machine.name()}, {found['date']}"
