"""The ways to train a sweep: those that people write themselves, and Tradewind.

Each trains the same networks on the same batches, and tells the validation loss and the seconds of every epoch.
Run as a program it trains one sweep in one way, as a script of the user's would.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

from tradewind import machine
from tradewind.bench.sweep_trials import (
    Epochs,
    Sweep,
    Trained,
    device_name,
    indexed,
    loaded,
    name_of,
    plain_trial,
    tensors,
    told,
)
from tradewind.errors import RunError

if TYPE_CHECKING:
    from tradewind.results import Results
    from tradewind.workloads.contract import Data, Split

GPU_PROCESSES = 4


def dataloader(sweep: Sweep) -> Trained:
    """One network after the other, batches from a DataLoader: what a newcomer writes."""
    data, device = sweep.data(), device_name()
    batches, validation = loaded(sweep, tensors(data.train)), tensors(_validation(data), device)
    return told(sweep.trials(), [plain_trial(sweep, trial, batches, validation) for trial in sweep.trials()])


def eager(sweep: Sweep) -> Trained:
    """One network after the other, the data on the device."""
    data, device = sweep.data(), device_name()
    batches, validation = indexed(sweep, tensors(data.train, device)), tensors(_validation(data), device)
    return told(sweep.trials(), [plain_trial(sweep, trial, batches, validation) for trial in sweep.trials()])


def joblib(sweep: Sweep) -> Trained:
    """The same loop in as many processes as there are cores, or four on a GPU, one thread each."""
    from joblib import Parallel, delayed

    data, trials = sweep.data(), sweep.trials()
    jobs = min(len(trials), GPU_PROCESSES if device_name() == "cuda" else machine.cores())
    # joblib maps large arrays into its workers, so that the data is not sent anew for every trial
    arrays = [part for split in (data.train, _validation(data)) for part in (split.inputs, split.targets)]
    found = Parallel(n_jobs=jobs)(delayed(in_process)(sweep, trial, *arrays) for trial in trials)
    return told(trials, found, jobs)


def in_process(sweep: Sweep, trial: tuple[float, int], x: Any, y: Any, held_x: Any, held_y: Any) -> Epochs:
    """A trial in a process of joblib's."""
    import torch

    from tradewind.workloads.contract import Split

    torch.set_num_threads(1)
    device = device_name()
    batches = indexed(sweep, tensors(Split(x, y), device))
    return plain_trial(sweep, trial, batches, tensors(Split(held_x, held_y), device))


def optuna(sweep: Sweep) -> Trained:
    """The same loop under Optuna, over its grid, as many threads as there are cores."""
    import optuna as peer
    import torch

    torch.set_num_threads(1)
    peer.logging.set_verbosity(peer.logging.ERROR)
    data, device = sweep.data(), device_name()
    batches, validation = indexed(sweep, tensors(data.train, device)), tensors(_validation(data), device)
    space: dict[str, list[Any]] = {"rate": list(sweep.rates), "seed": list(range(sweep.seeds))}
    found: dict[tuple[float, int], Epochs] = {}

    def objective(trial: Any) -> float:
        each = (trial.suggest_categorical("rate", space["rate"]), trial.suggest_categorical("seed", space["seed"]))
        found[each] = plain_trial(sweep, each, batches, validation)
        return found[each][-1][1]

    study = peer.create_study(sampler=peer.samplers.GridSampler(space, seed=0))
    threads = 1 if device == "cuda" else min(sweep.networks, machine.cores())
    study.optimize(objective, n_trials=sweep.networks, n_jobs=threads)
    return told(list(found), list(found.values()), threads)


def tradewind(sweep: Sweep) -> Trained:
    """A study, run through the front door."""
    with tempfile.TemporaryDirectory(prefix="tradewind-sweep-") as folder:
        return of_results(run_study(sweep, Path(folder) / "run"))


def run_study(sweep: Sweep, folder: Path, engine: str = "auto", **study: Any) -> Results:
    """The results of the sweep as a study."""
    from tradewind.run import run
    from tradewind.study import Study

    fixed = {"epochs": sweep.epochs, "batch_size": sweep.batch_size, "precision": sweep.precision}
    whole = {
        "name": "sweep", "workload": sweep.workload, "data": sweep.splits(), "fixed": fixed,
        "space": {"learning_rate": list(sweep.rates)}, "repeats": sweep.seeds,
    }  # fmt: skip
    results = run(Study(**{**whole, **study}), folder, engine=engine)
    if results.counts()["done"] != len(results):
        raise RunError(f"bench sweep: not every trial is done: {results.counts()}")
    return results


def of_results(results: Results) -> Trained:
    """What a run has found; repeat r has seed r."""
    records = list(results.records())
    losses = {
        name_of(record["config"]["learning_rate"], record["repeat"]): [
            row["validation_loss"] for row in results.curve(record["key"])
        ]
        for record in records
    }
    packed = median_low(record["packed_with"] + 1 for record in records)
    workers = min(len(records), machine.cores()) if records[0]["device"] == "cpu" else 1
    times = {
        name: max(record["times"].get(name) or 0.0 for record in records)
        for name in ("compile_s", "warmup_s", "pack_wall_s")
    }
    epoch_s = [record["times"]["epoch_s"] for record in records]
    return Trained(losses, epoch_s, workers * packed, times)


WAYS: dict[str, tuple[Callable[[Sweep], Trained], str]] = {
    "DataLoader": (dataloader, ""),
    "eager, data on the device": (eager, ""),
    "joblib": (joblib, "joblib"),
    "Optuna": (optuna, "optuna"),
    "Tradewind": (tradewind, ""),
}


def _validation(data: Data) -> Split:
    assert data.validation is not None, "a sweep is judged by its validation losses"
    return data.validation


def main() -> None:
    """One sweep in one way; prints its losses and the seconds that the sweep itself took."""
    way, text = sys.argv[1:]
    sweep = Sweep(**{**json.loads(text), "rates": tuple(json.loads(text)["rates"])})
    began = time.perf_counter()
    trained = WAYS[way][0](sweep)
    print(json.dumps({**asdict(trained), "sweep_s": time.perf_counter() - began}))


def as_text(sweep: Sweep) -> str:
    """A sweep, to be handed to another process."""
    return json.dumps(asdict(sweep))


if __name__ == "__main__":
    main()
