"""Table 3 of Basalyga et al. (54 networks, 2,718 s published) on one GPU: tuned as a whole, and timed one by one.

    python bench/table3.py [--save bench/results/table3-h200.json] [--parts tune time]

The storms are made first, and that is not counted: whoever has storms of their own does not make any. `tune`:
seconds of the whole run, from its first trial to its last, with making the augmented data, compilation and
everything else; once with all to be compiled, once with what compilation has left behind. `time`: every network
alone, the sum of their training seconds, with what making the augmented data took beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tradewind import Study, run
from tradewind.bench import about, installed
from tradewind.studies import path_of
from tradewind.workloads.storms import best_device, storms_cached


def study(purpose: str, precision: str) -> Study:
    """The bundled study, once over, in this precision."""
    sets = [f"purpose={purpose}", "repeats=1", f"fixed.precision={precision}"]
    return Study.load(path_of("basalyga/table3-full"), sets)


def measured(purpose: str, precision: str) -> dict[str, Any]:
    """What a whole run took, and what its records say."""
    with tempfile.TemporaryDirectory(prefix="tradewind-table3-") as folder:
        began = time.perf_counter()
        results = run(study(purpose, precision), Path(folder) / "run", workers=1)
        wall_s = time.perf_counter() - began
        records = [results.record(trial) for trial in range(len(results))]
    times = [record["times"] for record in records]
    return {
        "purpose": purpose, "precision": precision, "networks": len(records), "wall_s": wall_s,
        "train_s": sum(one["train_s"] for one in times) if purpose == "time" else None,
        "prepare_s": sorted({one["prepare_s"] for one in times}),
        "compile_s": sum({one["compile_s"] for one in times}), "warmup_s": sum({one["warmup_s"] for one in times}),
        "states": sorted({record["state"] for record in records}),
        "accuracy": [min(r["scores"]["accuracy"] for r in records), max(r["scores"]["accuracy"] for r in records)],
        "each": [{**r["config"], "train_s": r["times"]["train_s"], "auc": r["scores"]["auc"]} for r in records],
    }  # fmt: skip


def main() -> None:
    """Run the parts that were asked for; the file is written after each."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--save", type=Path, default=Path("table3.json"))
    options.add_argument("--parts", nargs="+", default=["tune", "tune", "time"], choices=["tune", "time"])
    options.add_argument("--precision", default="auto")
    chosen = options.parse_args()
    versions = {name: installed(name) for name in ("torch", "triton")}
    found: dict[str, Any] = {**about(), "versions": versions, "runs": []}
    storms_cached(138_963 + 44_760, 0, best_device("auto"))
    for part in chosen.parts:
        found["runs"].append(measured(part, chosen.precision))
        chosen.save.write_text(json.dumps(found, indent=1))
        print({name: value for name, value in found["runs"][-1].items() if name != "each"}, flush=True)


if __name__ == "__main__":
    main()
