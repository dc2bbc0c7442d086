"""Whether a run is slowed by being watched: the same study with and without the live page following it."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from tradewind.errors import Mistake
from tradewind.machine import cores
from tradewind.results import Results

PAIRS = 11
TRIALS_PER_CORE = 300
BLOCKS = 24  # of a megabyte: about 15 ms of hashing
EPOCHS = 4

SERVE = """
import sys
from pathlib import Path
from tradewind.dashboard.server import serve
serve([], 0, lambda text: print(text, flush=True))
"""


def work(config: dict[str, Any], trial: Any) -> float:
    """A trial that computes, and reports as a network does."""
    block = bytes(1 << 20)
    for epoch in range(1, EPOCHS + 1):
        for _ in range(BLOCKS // EPOCHS):
            hashlib.sha256(block).digest()
        trial.report(epoch, score=float(config["x"]))
    return float(config["x"])


def measure() -> dict[str, Any]:
    """Seconds from the first start to the last end of a run, alone and watched, in interleaved pairs."""
    samples: dict[str, list[float]] = {"alone": [], "watched": []}
    heard = []
    with tempfile.TemporaryDirectory(prefix="tradewind-watcher-") as name:
        place = Path(name)
        _run(place / "first")  # files are read for the first time
        for pair in range(PAIRS):
            for what in ("alone", "watched") if pair % 2 else ("watched", "alone"):
                folder = place / f"{what}{pair}"
                if what == "alone":
                    samples[what].append(_run(folder))
                else:
                    with _watching(folder) as events:
                        samples[what].append(_run(folder))
                        heard.append(len(events))
    ratios = [b / a for a, b in zip(samples["alone"], samples["watched"], strict=True)]
    return {"pairs": PAIRS, "trials": TRIALS_PER_CORE * cores(), "unit": "seconds", "samples": samples,
            "ratios": ratios, "events_heard": heard}  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """The times, and the ratio that matters."""
    lines = [f"{'a run of ' + str(found['trials']) + ' trials':28s} {'median':>9s} {'range':>18s}   n"]
    for name, values in found["samples"].items():
        lines.append(f"{name:28s} {median(values):7.2f} s {min(values):7.2f} – {max(values):6.2f} s   {len(values)}")
    ratios = found["ratios"]
    spread = f"{min(ratios):.3f} – {max(ratios):.3f}"
    lines.append(f"watched / alone: median {median(ratios):.3f} ({spread}, n = {len(ratios)} interleaved pairs)")
    return "\n".join(lines)


def _run(folder: Path) -> float:
    folder.mkdir(exist_ok=True)
    trials = TRIALS_PER_CORE * cores()
    space = {"x": {"low": 1, "high": trials, "steps": trials}}
    study = folder / "study.json"
    study.write_text(json.dumps({"name": "work", "workload": "tradewind.bench.watcher:work", "space": space}))
    out = folder / "runs" / "work"
    call = [
        sys.executable,
        "-m",
        "tradewind",
        "run",
        str(study),
        "--out",
        str(out),
        "--engine",
        "processes",
        "--quiet",
    ]
    ended = subprocess.run(call, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Mistake(f"bench watcher: the run ended with {ended.returncode}: {ended.stderr[-500:]}")
    results = Results.load(out)
    return float(results.column("finished").max() - results.column("started").min())


@contextmanager
def _watching(folder: Path) -> Iterator[list[bytes]]:
    """A server over the run that is to come, and a page that listens to it; what it heard."""
    folder.mkdir()
    server = subprocess.Popen([sys.executable, "-c", SERVE], cwd=folder, stdout=subprocess.PIPE, text=True)
    events: list[bytes] = []
    try:
        assert server.stdout is not None
        with server.stdout as lines:
            address = urlsplit(lines.readline().split()[-1])
            listening = threading.Thread(target=_listen, args=(address.netloc, address.query, events), daemon=True)
            listening.start()
            _wait(lambda: bool(events))
            yield events
    finally:
        server.terminate()
        server.wait()
        listening.join(5)


def _listen(place: str, query: str, events: list[bytes]) -> None:
    connection = http.client.HTTPConnection(place, timeout=30)
    connection.request("GET", f"/?{query}")
    first = connection.getresponse()
    first.read()
    cookie = str(first.getheader("set-cookie")).partition(";")[0]
    connection.request("GET", "/api/events?run=work", headers={"Cookie": cookie})
    stream = connection.getresponse()
    while line := stream.readline():
        if line.startswith(b"data:"):
            events.append(line)


def _wait(true: Any, within_s: float = 30.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            raise Mistake("bench watcher: the live page does not answer")
        time.sleep(0.05)
