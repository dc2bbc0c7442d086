"""Everyday searches beside Optuna: whole commands, from the shell's prompt to the answer.

    python bench/everyday.py [--pairs 5] [--cases digits,…] [--save bench/results/everyday-cpu.json]

60 TPE trials of a small network of one's own, with and without halving; 1,000 trials of a trivial function by TPE,
CMA-ES and NSGA-II. Tradewind with 2 workers, Optuna as its users run it, in one process; in turn, so that what
else the machine does slows both. The ratio is the median of the pairs. For quiet machines.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from tradewind.bench import about

HERE = Path(__file__).parent
NETWORK: dict[str, Any] = {
    "workload": "everyday_networks:Digits",
    "space": {
        "learning_rate": {"low": 1e-4, "high": 0.3, "log": True},
        "width": {"low": 4, "high": 256, "log": True, "type": "int"},
        "dropout": {"low": 0.0, "high": 0.7},
        "optimizer": ["adam", "sgd"],
    },
    "fixed": {"epochs": 12, "batch_size": 32, "device": "cpu"},
}
FUNCTION: dict[str, Any] = {
    "workload": "everyday_function:score",
    "space": {
        "a": {"low": 0.0, "high": 1.0}, "b": {"low": 0.0, "high": 1.0},
        "c": {"low": 1, "high": 100, "type": "int"},
    },
}  # fmt: skip
# study, search, Optuna's arguments, and what is to be reached: (times Optuna's, seconds more)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], tuple[float, float]]] = {
    "digits": (NETWORK, {"method": "tpe", "trials": 60}, ["digits"], (0.9, 0.0)),
    "digits-halving": (
        NETWORK, {"method": "tpe", "trials": 60, "halving": "asha"}, ["digits", "--halving"], (1.0, 0.0),
    ),
    "function-tpe": (FUNCTION, {"method": "tpe", "trials": 1000}, ["function"], (1.2, 0.0)),
    "function-cmaes": (
        FUNCTION, {"method": "cmaes", "trials": 1000}, ["function", "--sampler", "cmaes"], (1.0, 1.0),
    ),
    "function-nsga2": (
        FUNCTION, {"method": "nsga2", "trials": 1000}, ["function", "--sampler", "nsga2"], (1.0, 1.0),
    ),
}  # fmt: skip


def main() -> None:
    """Measure all cases and print them, or keep them."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--cases", default=",".join(CASES))
    arguments.add_argument("--save", type=Path)
    how = arguments.parse_args()
    found = {
        **about(), "date": time.strftime("%Y-%m-%d"), "optuna": version("optuna"), "workers": 2, "n": how.pairs,
        "cases": {name: measured(name, how.pairs) for name in how.cases.split(",")},
    }  # fmt: skip
    if how.save:
        how.save.write_text(json.dumps(found, indent=1) + "\n")
    for name, case in found["cases"].items():
        ours, theirs = case["tradewind_s"], case["optuna_s"]
        reached = "reached" if case["reached"] else "NOT REACHED"
        print(
            f"{name:16} {median(ours):6.2f} s, Optuna {median(theirs):6.2f} s: {case['ratio']:.2f} × (CPU "
            f"{median(case['tradewind_cpu_s']):.1f} and {median(case['optuna_cpu_s']):.1f} s), {reached}"
        )


def measured(name: str, pairs: int) -> dict[str, Any]:
    """One case: seconds of every command, in turn."""
    study, search, words, (times, more_s) = CASES[name]
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            content = {"name": name, "seed": pair, "search": search, **study}
            file = Path(folder) / f"{name}-{pair}.json"
            file.write_text(json.dumps(content))
            out = file.with_suffix("")
            run = [sys.executable, "-m", "tradewind", "run", file, "--out", out, "--workers", "2", "--quiet"]
            asked = [*words[:1], str(pair), str(search["trials"]), *words[1:]]
            optuna = [sys.executable, HERE / "everyday_optuna.py", *asked]
            for kept, command in sorted(
                ((ours, run), (theirs, optuna)), key=lambda one: (one[0] is ours) == pair % 2
            ):
                kept.append(seconds([str(word) for word in command]))
    ratios = [one[0] / other[0] for one, other in zip(ours, theirs, strict=True)]
    within = [one[0] <= times * other[0] + more_s for one, other in zip(ours, theirs, strict=True)]
    return {
        "tradewind_s": [one[0] for one in ours], "optuna_s": [one[0] for one in theirs],
        "tradewind_cpu_s": [one[1] for one in ours], "optuna_cpu_s": [one[1] for one in theirs],
        "ratio": median(ratios), "to_reach": {"times": times, "more_s": more_s},
        "reached": sum(within) > len(within) / 2,
    }  # fmt: skip


def seconds(command: list[str]) -> tuple[float, float]:
    """What a command takes, on the clock and of all processors."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
