"""ASHA beside the whole grid: 81 storm configurations, 2 workers, 10 seeds at small size.

    python bench/asha.py [--save bench/results/asha.json] [--seeds 10]

For each seed the grid is trained to its end, and then the same configurations under ASHA in another folder: how many
epochs that took, and how far the best validation AUC lies below the grid's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tradewind import Study, run
from tradewind.bench import about

SPACE = {
    "learning_rate": [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2],
    "weight_decay": [0.0, 1e-3, 1e-2],
    "dropout": [0.0, 0.25, 0.5],
}


def study(seed: int, search: dict[str, Any]) -> Study:
    """The same 81 networks on the same storms, by one search or another."""
    data = {"train": 1024, "validation": 1024, "test": 256}
    fixed = {"epochs": 9, "optimizer": "adamw", "batch_size": 32}
    return Study(
        name="asha", workload="storm", data=data, space=SPACE, fixed=fixed, search=search, seed=seed, data_seed=seed
    )


def measured(seed: int, search: dict[str, Any]) -> dict[str, float]:
    """Epochs trained in all, and the best validation AUC of a network trained to its end."""
    with tempfile.TemporaryDirectory(prefix="tradewind-asha-") as folder:
        results = run(study(seed, search), Path(folder) / "run", workers=2)
        records = list(results.records())
        best = results.best().value
    assert len(records) == 81
    return {"epochs": sum(record["epochs_run"] for record in records), "auc": best}


def main() -> None:
    """Seed after seed; the file is written after each."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--save", type=Path, default=Path("asha.json"))
    options.add_argument("--seeds", type=int, default=10)
    chosen = options.parse_args()
    found: dict[str, Any] = {**about(), "pairs": []}
    for seed in range(chosen.seeds):
        grid, asha = measured(seed, {}), measured(seed, {"halving": "asha", "min_epochs": 1, "eta": 3})
        found["pairs"].append({"seed": seed, "grid": grid, "asha": asha})
        chosen.save.write_text(json.dumps(found, indent=1) + "\n")
        share, below = asha["epochs"] / grid["epochs"], grid["auc"] - asha["auc"]
        print(f"seed {seed}: {share:.3f} of the grid's epochs, {below:+.4f} below its best AUC {grid['auc']:.4f}")
    shares = [pair["asha"]["epochs"] / pair["grid"]["epochs"] for pair in found["pairs"]]
    gaps = [pair["grid"]["auc"] - pair["asha"]["auc"] for pair in found["pairs"]]
    print(f"median of {len(shares)}: {median(shares):.3f} of the epochs, {median(gaps):+.4f} below the best AUC")


if __name__ == "__main__":
    main()
