"""The storm network at small size, searched by TPE: a study as users run it, and Optuna over the tutorials' loop.

Both have the same number of workers, the same storms and the same first points. Run as a program it makes one
search in one way, as a script of the user's would.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from tradewind import machine
from tradewind.bench.search_functions import STARTS, range_of, suggested
from tradewind.bench.search_pairs import spread, worse
from tradewind.bench.sweep_trials import Batches, Held, Sweep, device_name, indexed, plain_epochs, tensors
from tradewind.errors import RunError
from tradewind.pack import Config
from tradewind.search.making import Settings, adaptive
from tradewind.search.points import Points

METRIC = "validation_auc"
SPACE = {
    "learning_rate": range_of(1e-4, 1e-1, log=True),
    "dropout": range_of(0.0, 0.6),
    "positive_weight": range_of(0.2, 5.0, log=True),
}
WAYS = ("ours", "Optuna")

Found = dict[str, Any]
Trained = tuple[float, float, float]  # when it began and ended, in seconds since 1970, and its score


@dataclass(frozen=True)
class Searched:
    """How many networks of which size, by how many workers."""

    trials: int
    workers: int
    network: Sweep

    def study(self, seed: int) -> Found:
        """As a study says it."""
        size = self.network
        return {
            "name": "search", "workload": size.workload, "data": size.splits(), "seed": seed,
            "fixed": {"epochs": size.epochs, "batch_size": size.batch_size, "precision": size.precision},
            "space": {name: one.model_dump(exclude_none=True) for name, one in SPACE.items()},
            "search": {"method": "tpe", "trials": self.trials, "metric": METRIC, "direction": "maximize"},
        }  # fmt: skip


def sizes() -> Searched:
    """For this machine: a search in about ten seconds; on a GPU so many networks that packs are of sixteen."""
    if machine.gpus():
        return Searched(128, 1, Sweep((), epochs=3, train=8192, validation=2048, test=64))
    return Searched(24, machine.cores(), Sweep((), epochs=3, batch_size=64, train=1024, validation=512, test=64))


def measure(seeds: int, say: Callable[[str], None]) -> Found:
    """Both ways in turns, each time in a process of its own."""
    from tradewind.workloads.storms import best_device, storms_cached

    here = sizes()
    storms_cached(sum(here.network.splits().values()), 0, best_device("auto"))  # made once, for both
    found: Found = {"searched": asdict(here), "ours": [], "Optuna": []}
    for seed in range(seeds):
        for way in WAYS if seed % 2 == 0 else WAYS[::-1]:
            found[way].append(in_way(way, seed, here))
        ends = [f"{way} {found[way][-1]['seconds']:.1f} s, {max(found[way][-1]['score']):.4f}" for way in WAYS]
        say(f"network, seed {seed}: {'; '.join(ends)}")
    return found


def in_way(way: str, seed: int, here: Searched) -> Found:
    """One search as a program: its seconds, those that workers trained, and the scores with when they were there."""
    command = [sys.executable, "-m", "tradewind.bench.search_network", way, str(seed), json.dumps(asdict(here))]
    began, started = time.perf_counter(), time.time()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if ended.returncode:
        raise RunError(f"bench search: {way} ended with {ended.returncode}: {ended.stderr[-500:]}")
    trials: list[Trained] = sorted(map(tuple, json.loads(ended.stdout.splitlines()[-1])), key=lambda one: one[1])
    if len(trials) != here.trials:
        raise RunError(f"bench search: {way} trained {len(trials)} of {here.trials} networks")
    packs = {start: end for start, end, _ in trials}  # the networks of one begin together; its end is the last one's
    return {
        "seconds": seconds, "trained_s": sum(end - start for start, end in packs.items()),
        "ended_s": [end - started for _, end, _ in trials], "score": [score for _, _, score in trials],
    }  # fmt: skip


def ours(seed: int, here: Searched) -> list[Trained]:
    """A search as users run it: every result durable, packs where they pay."""
    from tradewind.run import run
    from tradewind.study import Study

    with tempfile.TemporaryDirectory(prefix="tradewind-search-") as folder:
        results = run(Study(**here.study(seed)), Path(folder) / "run", workers=here.workers)
        return [(one["started"], one["finished"], one["last"][METRIC]) for one in results.records()]


def alone(seed: int, here: Searched) -> list[Trained]:
    """Optuna's TPE over the plain loop, in as many processes on one journal file, as its documentation says."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tradewind-search-") as folder:
        points = Points(SPACE)
        study = optuna.create_study(storage=_storage(folder), study_name="s", direction="maximize")
        first = adaptive(Settings("tpe", ("maximize",), seed, here.trials), points).ask(STARTS["tpe"])
        for proposal in first:
            study.enqueue_trial(points.picks(proposal.values))
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=work, args=(folder, seed, k, here)) for k in range(here.workers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        done: list[Any] = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    return [(one.datetime_start.timestamp(), one.datetime_complete.timestamp(), one.value) for one in done]


def work(folder: str, seed: int, number: int, here: Searched) -> None:
    """One of Optuna's processes: its share of the trials."""
    import optuna
    import torch

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    torch.set_num_threads(max(1, machine.cores() // here.workers))
    sampler = optuna.samplers.TPESampler(seed=1000 * seed + number, constant_liar=True)
    study = optuna.load_study(storage=_storage(folder), study_name="s", sampler=sampler)
    data, points, device = here.network.data(), Points(SPACE), device_name()
    assert data.validation is not None, "a search is judged by its validation scores"
    batches, held = indexed(here.network, tensors(data.train, device)), tensors(data.validation, device)

    def objective(trial: Any) -> float:
        values = points.config(lambda axis: suggested(trial, axis))
        return plain_score(here.network, {**here.network.config(), **values}, seed, batches, held)

    share = here.trials // here.workers + (number < here.trials % here.workers)
    study.optimize(objective, n_trials=share)


def plain_score(network: Sweep, config: Config, seed: int, batches: Batches, held: Held) -> float:
    """The last validation score of one network as the tutorials train it, with a look after every epoch."""
    workload, score = network.made(), 0.0
    for _, outputs in plain_epochs(network, config, seed, batches, held):
        score = float(workload.scores(outputs, held[1])[METRIC.removeprefix("validation_")])
    return score


def page(found: Found) -> list[str]:
    """Seconds and scores of both, the best score by seconds, and how that compares with training alone."""
    searched, ours_, theirs = found["searched"], found["ours"], found["Optuna"]
    seconds = {way: [one["seconds"] for one in found[way]] for way in WAYS}
    trained = {way: [one["trained_s"] / searched["trials"] for one in found[way]] for way in WAYS}
    best = {way: [max(one["score"]) for one in found[way]] for way in WAYS}
    lines = [
        f"storm network, {searched['network']['train']} storms × {searched['network']['epochs']} epochs, tpe, "
        f"{searched['trials']} trials, workers: {searched['workers']} each, n = {len(ours_)}; median (quartiles)",
        f"{'':14s} {'seconds in all':>24s} {'training s per trial':>24s} {'best ' + METRIC:>26s}",
    ]
    for way, name in zip(WAYS, ("ours", "Optuna alone"), strict=True):
        columns = f"{spread(seconds[way]):>24s} {spread(trained[way]):>24s} {spread(best[way]):>26s}"
        lines.append(f"{name:14s} {columns}")
    sooner = [reached(b, min(max(a["score"]), max(b["score"]))) / reached(a, min(max(a["score"]), max(b["score"])))
              for a, b in zip(ours_, theirs, strict=True)]  # fmt: skip
    marks = [round(part * median(seconds["Optuna"]), 1) for part in (0.25, 0.5, 0.75, 1.0)]
    for way, name in zip(WAYS, ("ours", "Optuna alone"), strict=True):
        shown = ", ".join(f"{mark:g} s {median(best_by(one, mark) for one in found[way]):.4f}" for mark in marks)
        lines.append(f"best score by seconds, {name}: {shown}")
    times = [b / a for a, b in zip(seconds["ours"], seconds["Optuna"], strict=True)]
    packs = [b / a for a, b in zip(trained["ours"], trained["Optuna"], strict=True)]
    p_slower, p_lower = worse(seconds["ours"], seconds["Optuna"]), worse(_gaps(best["ours"]), _gaps(best["Optuna"]))
    return [
        *lines,
        f"Optuna/ours: seconds in all {spread(times)}, p that ours is slower {p_slower:.3f}; training per trial "
        f"(packs and loop) {spread(packs)}; until both have the same score {spread(sooner)}; p that our score is "
        f"lower {p_lower:.3f}",
        f"better in seconds by what training gains: {'yes' if median(times) >= 0.9 * median(packs) > 0.9 else 'NO'}",
    ]


def best_by(one: Found, seconds: float) -> float:
    """The best score that was there by then; 0.5, a guess, before the first."""
    return max(
        (score for score, end in zip(one["score"], one["ended_s"], strict=True) if end <= seconds), default=0.5
    )


def reached(one: Found, score: float) -> float:
    """The seconds after which the best score was at least this."""
    best = accumulate(one["score"], max)
    return float(next(end for end, found in zip(one["ended_s"], best, strict=True) if found >= score))


def _gaps(scores: Sequence[float]) -> list[float]:
    return [1.0 - score for score in scores]


def _storage(folder: str) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(f"{folder}/optuna.log"))


def main() -> None:
    """One search in one way; prints when every trial began and ended, and its score."""
    way, seed, text = sys.argv[1:]
    plain = json.loads(text)
    here = replace(Searched(**plain), network=Sweep(**{**plain["network"], "rates": ()}))
    print(json.dumps((ours if way == "ours" else alone)(int(seed), here)))


if __name__ == "__main__":
    main()
