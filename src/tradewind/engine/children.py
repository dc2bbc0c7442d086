"""Child processes: what they inherit, what they died of, and how nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from tradewind.engine.leftovers import SOCKET_CLOSED
from tradewind.pack import Place

# Large freed blocks stay with the process: without this every batch pays for fresh pages, 1.5–2 × slower.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
REAPING_S = 5.0
CLOSED = "the trial closed descriptors that it had not opened, the worker's socket among them"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
MPI_PREFIXES = ("OMPI_", "PMIX_", "PRTE_", "PMI_")  # a child that inherits them takes itself for a rank


def worker_environment(place: Place, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker."""
    kept = {name: value for name, value in base.items() if not name.startswith(MPI_PREFIXES)}
    path = os.pathsep.join(entry for entry in sys.path if entry)  # what could be imported here can be there
    own = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **dict.fromkeys(THREADS, str(place.threads))}
    if place.gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
    return {**ALLOCATOR, **kept, **own}


def cause_of_death(code: int) -> dict[str, str]:
    """What a worker died of, as its trial's error."""
    if code == SOCKET_CLOSED:
        return {"what": CLOSED}
    if code >= 0:
        return {"what": f"the worker ended with exit code {code}"}
    name = signal_name(-code)
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return {"what": f"the worker died of {name}{hint}", "signal": name}


def signal_name(number: int) -> str:
    """The name of a signal; real-time signals have only numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end(worker: subprocess.Popen[bytes]) -> None:
    """End a worker and all that it started; its reaper sees to that, and is itself ended where it can't."""
    worker.terminate()
    try:
        worker.wait(REAPING_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
