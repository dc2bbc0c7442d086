"""What an empty trial costs with 2 workers: the slope between a short and a long run, so that start-up drops out."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from tradewind.bench import installed
from tradewind.run import run
from tradewind.study import Study

WORKERS = 2
SHORT, LONG = 200, 2200
ROUNDS = 5
SLOW_FSYNC_S = 0.010
FEW = {"Optuna, journal file": (50, 350)}  # some 10 × as slow: fewer trials say as much


def empty(config: dict[str, Any]) -> float:
    """A trial that does nothing."""
    return 0.0


def tradewind(trials: int) -> None:
    """Our own run, every record durable."""
    space = {"x": {"low": 1, "high": trials, "steps": trials}}
    folder = tempfile.mkdtemp(prefix="tradewind-overhead-")
    try:
        study = Study(name="overhead", workload="tradewind.bench.overhead:empty", space=space)
        results = run(study, Path(folder) / "run", workers=WORKERS)
        assert results.counts()["done"] == trials
    finally:
        shutil.rmtree(folder)


def tradewind_slow_disk(trials: int) -> None:
    """The same while every fsync takes 10 ms longer, as on a busy network file system."""
    real = os.fsync

    def slow(handle: int) -> None:
        time.sleep(SLOW_FSYNC_S)
        real(handle)

    os.fsync = slow  # type: ignore[assignment]
    try:
        tradewind(trials)
    finally:
        os.fsync = real


def process_pool(trials: int) -> None:
    """The standard library's pool, nothing kept."""
    with ProcessPoolExecutor(WORKERS) as pool:
        for future in [pool.submit(empty, {"x": k}) for k in range(trials)]:
            future.result()


def joblib_parallel(trials: int) -> None:
    """joblib, nothing kept."""
    from joblib import Parallel, delayed

    Parallel(n_jobs=WORKERS)(delayed(empty)({"x": k}) for k in range(trials))


def optuna_journal(trials: int) -> None:
    """Optuna with its journal file."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = tempfile.mkdtemp(prefix="tradewind-overhead-")
    try:
        storage = JournalStorage(JournalFileBackend(f"{folder}/journal.log"))
        study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=trials, n_jobs=WORKERS)
    finally:
        shutil.rmtree(folder)


CONTENDERS: dict[str, tuple[Callable[[int], None], str]] = {
    "Tradewind, durable journal": (tradewind, ""),
    "Tradewind, every fsync + 10 ms": (tradewind_slow_disk, ""),
    "ProcessPoolExecutor, nothing kept": (process_pool, ""),
    "joblib, nothing kept": (joblib_parallel, "joblib"),
    "Optuna, journal file": (optuna_journal, "optuna"),
}


def measure() -> dict[str, Any]:
    """Milliseconds per trial of every contender, in interleaved rounds."""
    present = {name: work for name, (work, package) in CONTENDERS.items() if not package or installed(package)}
    samples: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(ROUNDS):
        for name, work in present.items():
            short, long = FEW.get(name, (SHORT, LONG))
            samples[name].append((_seconds(work, long) - _seconds(work, short)) / (long - short) * 1000)
    versions = {package: installed(package) for _, package in CONTENDERS.values() if package}
    return {"workers": WORKERS, "rounds": ROUNDS, "unit": "ms per trial", "versions": versions, "samples": samples}


def page(found: dict[str, Any]) -> str:
    """The figures, median and range."""
    lines = [f"{'ms per empty trial, 2 workers':36s} {'median':>8s} {'range':>16s}   n"]
    for name, values in found["samples"].items():
        spread = f"{min(values):.2f} – {max(values):.2f}"
        lines.append(f"{name:36s} {median(values):8.2f} {spread:>16s}   {len(values)}")
    absent = [name for name, (_, package) in CONTENDERS.items() if package and not found["versions"][package]]
    return "\n".join(lines + [f"{name}: not installed" for name in absent])


def _seconds(work: Callable[[int], None], trials: int) -> float:
    began = time.perf_counter()
    work(trials)
    return time.perf_counter() - began
