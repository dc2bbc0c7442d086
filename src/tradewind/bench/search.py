"""How close a search comes to the best in so many trials, beside Optuna alone; and in seconds on a network."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from statistics import median
from typing import Any

from tradewind import machine
from tradewind.bench import installed, search_network
from tradewind.bench.search_functions import PROBLEMS, TRIALS, pair
from tradewind.bench.search_pairs import DOUBT, LEAST, spread, worse
from tradewind.errors import Mistake, nearest
from tradewind.search import Method

SEEDS = 10
PARTS = {**{name: problem.title for name, problem in PROBLEMS.items()}, "network": "the storm network, in seconds"}

Found = dict[str, Any]


def measure(parts: Sequence[str] = ()) -> Found:
    """The regret after every trial, of ours and Optuna's from the same start points; then a network in seconds."""
    for part in parts:
        if part not in PARTS:
            raise Mistake(f"--part {part}: {nearest(part, PARTS)}")
    began, names = time.perf_counter(), list(parts or PARTS)

    def told(line: str) -> None:
        print(f"{time.perf_counter() - began:5.0f} s  {line}", file=sys.stderr, flush=True)

    found: Found = {"seeds": SEEDS, "trials": dict(TRIALS)}
    found["versions"] = {name: installed(name) for name in ("optuna", "cmaes", "torch")}
    found["regret"] = regrets([name for name in names if name in PROBLEMS], told)
    found["network"] = search_network.measure(SEEDS, told) if "network" in names else None
    return found


def regrets(names: Sequence[str], say: Callable[[str], None]) -> dict[str, dict[str, list[Found]]]:
    """The pairs of every function and method, in as many processes as there are cores; the longest begin first."""
    found: dict[str, dict[str, list[Found]]] = {name: {method: [] for method in TRIALS} for name in names}
    longest: list[Method] = sorted(TRIALS, key=lambda method: method != "gp")
    # new processes: a copy of this one would have its locks, held by threads that it has not
    with ProcessPoolExecutor(machine.cores(), multiprocessing.get_context("spawn")) as pool:
        jobs = {
            pool.submit(pair, name, method, seed): (name, method)
            for method in longest
            for name in names
            for seed in range(SEEDS)
        }
        for done, job in enumerate(as_completed(jobs), 1):
            name, method = jobs[job]
            pairs = found[name][method]
            pairs.append(job.result())
            if len(pairs) == SEEDS:
                pairs.sort(key=lambda one: one["seed"])
                say(_row(name, method, pairs)[0])
            elif done % SEEDS == 0:
                say(f"{done} of {len(jobs)} pairs of searches")
    return found


def page(found: Found) -> str:
    """Median regret and quartiles at the end, who is better, and the network's seconds."""
    lines: list[str] = []
    if found["regret"]:
        head = f"{'regret, median (quartiles)':28s} {'trials':>6s} {'ours':>24s} {'Optuna alone':>24s}"
        lines.append(f"{head} {'ours/Optuna':>11s}   n  p that ours is worse")
        rows = [_row(name, method, pairs) for name, each in found["regret"].items() for method, pairs in each.items()]
        lines += [line for line, _ in rows]
        lines += _verdict([p for _, p in rows])
    if found["network"]:
        lines += ["", *search_network.page(found["network"])] if lines else search_network.page(found["network"])
    return "\n".join(lines)


def _row(name: str, method: str, pairs: Sequence[Found]) -> tuple[str, float]:
    """A line of the table and its p."""
    ends = {who: [one["regret"][who][-1] for one in pairs] for who in ("ours", "Optuna")}
    p, ratio = worse(ends["ours"], ends["Optuna"]), median(ends["ours"]) / max(median(ends["Optuna"]), LEAST)
    title, trials = f"{PROBLEMS[name].title}, {method}", len(pairs[0]["regret"]["ours"])
    left, right = (spread(ends[who]) for who in ("ours", "Optuna"))
    return f"{title:28s} {trials:6d} {left:>24s} {right:>24s} {ratio:11.2f}  {len(pairs):2d}  {p:.3f}", p


def _verdict(chances: Sequence[float]) -> list[str]:
    """What all rows say together: some are below 0.05 by chance."""
    from scipy.stats import binom

    below = sum(p < DOUBT for p in chances)
    chance = float(binom.sf(below - 1, len(chances), DOUBT))
    # Holm's first step: one row that no number of rows explains is enough
    worst = min(1.0, min(chances) * len(chances))
    fine = worst >= DOUBT and chance >= DOUBT
    return [
        "p: Wilcoxon's signed ranks, one-sided, of log regrets, paired by seed. Optuna begins with our first points: "
        "10 for tpe, gp and nsga2, 1 for cmaes (which then starts from the centre), none for random.",
        f"{below} of {len(chances)} rows have p < {DOUBT}, which equal searches give with probability {chance:.2f}; "
        f"the smallest p, times the rows, is {worst:.2f}.",
        f"regret against trials not worse than Optuna alone: {'yes' if fine else 'IN DOUBT'}",
    ]
