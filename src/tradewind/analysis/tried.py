"""Whether the networks of a study train as one: built and tried on a batch, not assumed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

from tradewind import machine
from tradewind.pack import Pack, network_of
from tradewind.schedule.packing import Packing
from tradewind.schedule.searching import batch_size
from tradewind.schedule.trials import Trials
from tradewind.workloads import find, make

FEW = 64  # samples of a bundled workload that makes its own: as good as all for trying
SIZES = ("train", "validation", "test", "clips", "images")


def tried(trials: Trials, formed: Sequence[Pack], workers: int) -> dict[str, Any]:
    """How many networks of the largest pack train as one, and why not where they don't; fault where that fails."""
    packs = [*formed] or _searched(trials, workers)
    if not packs:
        return {}
    pack = max(packs, key=lambda one: len(_networks(one)))
    networks = len(_networks(pack))
    if networks == 1:
        return {"networks": 1, "why": pack.why, "fault": ""}
    threads = max(1, machine.cores() // workers)
    try:
        why = _why_apart(trials, pack, threads)
    except Exception as error:  # whatever the user's data or network do
        return {"networks": networks, "why": "", "fault": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"networks": 1 if why else networks, "why": why, "fault": ""}


def _why_apart(trials: Trials, pack: Pack, threads: int) -> str:
    import torch

    from tradewind.train.fitting import why_apart

    study, first = trials.study, pack.trials[0]
    few = {name: min(value, FEW) for name, value in study.data.items() if name in SIZES and type(value) is int}
    bundled = ":" not in study.workload
    workload = make(find(study.workload, study.folder), {**study.data, **few} if bundled else study.data)
    data = workload.data({**first.config, "seed": first.seed, "data_seed": first.data_seed})
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with tempfile.TemporaryDirectory(prefix="tradewind-") as folder, torch.random.fork_rng():
            return why_apart(pack.trials, workload, data, trials.task(folder, threads))
    finally:
        torch.set_num_threads(before)


def _searched(trials: Trials, workers: int) -> list[Pack]:
    """The first packs of a search, as it asks for trials before it has learned anything."""
    if not trials.searching or not trials.known or trials.study.purpose == "time":
        return []
    proposals = trials.search().ask(batch_size(trials, workers) * workers)
    coming = iter([trial for one in proposals for trial in trials.of_config(one.number, one.values)])
    packing = Packing(trials, workers)
    return list(iter(lambda: packing.next(lambda: next(coming, None)), None))


def _networks(pack: Pack) -> set[str]:
    return set(map(network_of, pack.trials))
