"""In which form a trial ran: the record says it, and why in no faster one; so do `show`, `check` and the page."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tradewind
from tradewind.dashboard.feed import Feed
from tradewind.dashboard.trial import trial_view
from tradewind.results import Results
from tradewind.train import profile, trainer

Write = Callable[..., Path]
RATES = [0.1, 0.03, 0.01, 0.003]

pytestmark = pytest.mark.usefixtures("one_thread")

OWN = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tradewind import Data, Hyperparameter, Split

class Forgetful(nn.Module):
    '''Is trained on what it was shown before.'''
    def __init__(self):
        super().__init__()
        self.one, self.calls = nn.Linear(4, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.one(x).squeeze(1)

class Own:
    metric = "validation_loss"
    defaults = {
        "rate": Hyperparameter(0.1, float, low=0.0, high=0.9),
        "drop": Hyperparameter(0.1, float, low=0.0, high=0.9, stacks=True),
        "counts": Hyperparameter(False, bool),
    }

    def data(self, config):
        rng = np.random.default_rng(config["data_seed"])
        inputs = rng.standard_normal((48, 4)).astype(np.float32)
        targets = inputs.sum(1)
        return Data(*(Split(inputs[a:b], targets[a:b]) for a, b in ((0, 32), (32, 40), (40, 48))))

    def model(self, config):
        if config["counts"]:
            return Forgetful()
        drops = nn.Dropout(config["rate"]), nn.Dropout(config["drop"])
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), *drops, nn.Linear(6, 1), nn.Flatten(0))

    def loss(self, outputs, targets, config):
        return F.mse_loss(outputs, targets)

    def scores(self, outputs, targets):
        return {}

def plain(config, trial):
    trial.report(1, loss=config["learning_rate"])
    return config["learning_rate"]
"""


@contextmanager
def one_core() -> Iterator[None]:
    """With more threads torch is the faster."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def executions(
    folder: Path, write_study: Write, space: dict[str, Any], workload: str = "work:Own", **more: Any
) -> list[dict[str, Any]]:
    """Of every trial of a study, run in this process."""
    fixed = {"fixed": {"epochs": 2, "batch_size": 16}} if workload == "work:Own" else {}
    study = write_study({"name": "own", "workload": workload, "space": space, **fixed, **more}, OWN, folder)
    found = tradewind.run(study, folder / "run", engine="serial")
    return [record["execution"] for record in found.records()]


def test_networks_that_train_as_one_say_so_and_how_many(tmp_path: Path, write_study: Write) -> None:
    found = executions(tmp_path, write_study, {"learning_rate": [0.1, 0.01], "drop": [0.1, 0.5]})
    assert found == [{"backend": "ensemble", "networks": 4, "graph": False, "kernels": "", "why": ""}] * 4


def test_a_rate_of_dropout_that_was_not_declared_is_named_as_the_reason(tmp_path: Path, write_study: Write) -> None:
    found = executions(tmp_path, write_study, {"rate": [0.1, 0.2, 0.3]})
    assert [one["backend"] for one in found] == ["eager"] * 3
    why = "trials differ in rate, not declared with stacks=True; such networks can't train as one"
    assert [one["why"] for one in found] == [why] * 3


def test_networks_that_could_not_be_stacked_say_what_differs(tmp_path: Path, write_study: Write) -> None:
    found = executions(tmp_path, write_study, {"learning_rate": RATES, "counts": [True]})
    assert [one["backend"] for one in found] == ["eager"] * 4
    assert [one["why"] for one in found] == ["calls: changes as the network is called, and would be one for all"] * 4


def test_networks_that_would_be_slower_as_one_say_by_how_much(
    tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "PAYS", 0.0)
    (one, other) = executions(tmp_path, write_study, {"learning_rate": [0.1, 0.01]})
    assert one == other
    assert one["backend"] == "eager"
    assert one["why"].startswith("2 networks with dense layers of ")


def test_to_time_every_network_trains_alone_and_says_so(tmp_path: Path, write_study: Write) -> None:
    found = executions(tmp_path, write_study, {"learning_rate": [0.1, 0.01]}, purpose="time")
    assert {(one["backend"], one["why"]) for one in found} == {("eager", "to time, every network trains alone")}


@pytest.mark.parametrize("filters", [[8, 8], [2, 3]], ids=["our kernels", "torch's"])
def test_a_network_says_whether_kernels_of_our_own_did_its_front(
    filters: list[int], tmp_path: Path, write_study: Write
) -> None:
    fixed = {"filters": filters, "kernel": 3, "epochs": 1}
    data = {"train": 24, "validation": 16, "test": 16}
    content = {"name": "storm", "workload": "storm", "data": data, "space": {"learning_rate": [0.1]}, "fixed": fixed}
    with one_core():
        (record,) = tradewind.run(write_study(content), tmp_path / "run", engine="serial").records()
    ours = {"backend": "ensemble", "networks": 1, "graph": False, "kernels": "front", "why": ""}
    theirs = {"backend": "eager", "networks": 1, "graph": False, "kernels": "", "why": ""}
    assert record["execution"] == (ours if filters == [8, 8] else theirs)


def test_functions_and_commands_say_so(tmp_path: Path, write_study: Write) -> None:
    (one,) = executions(tmp_path / "function", write_study, {"learning_rate": [0.1]}, workload="work:plain")
    assert one["backend"] == "function"
    content = {"name": "c", "command": "echo '{{\"score\": {x}}}'", "space": {"x": [1]}}
    (record,) = tradewind.run(write_study(content), tmp_path / "command", engine="serial").records()
    assert record["execution"]["backend"] == "command"


def test_show_the_page_and_exports_say_the_form_and_the_reason(
    tmp_path: Path, write_study: Write, command: Callable[..., Any]
) -> None:
    executions(tmp_path, write_study, {"rate": [0.1, 0.2]})
    words = "eager; trials differ in rate, not declared with stacks=True; such networks can't train as one"
    assert f"\n  form     {words}\n" in command("show", tmp_path / "run", 0).stdout
    feed = Feed(tmp_path / "run", "run")
    feed.poll()
    assert trial_view(feed, 0)["facts"]["execution"] == words
    for name in ("all.csv", "all.json", "all.parquet"):
        assert command("export", tmp_path / "run", "--to", tmp_path / name).returncode == 0
    assert '"backend": "eager"' in (tmp_path / "all.json").read_text()
    assert command("query", tmp_path / "run", "select execution from results").returncode == 0
    frame = Results.load(tmp_path / "run").frame()
    assert [one["backend"] for one in frame["execution"]] == ["eager", "eager"]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"learning_rate": RATES}, "tried      4 networks train as one here"),
        ({"learning_rate": [0.1, 0.01]}, "tried      one by one: 2 networks with dense layers of "),
        ({"learning_rate": RATES, "counts": [True]}, "tried      one by one: calls: changes as the network"),
        ({"rate": [0.1, 0.2]}, "tried      one by one: trials differ in rate, not declared with stacks=True"),
    ],
)
def test_check_tries_whether_networks_train_as_one(
    space: dict[str, Any], said: str, tmp_path: Path, write_study: Write, command: Callable[..., Any]
) -> None:
    fixed = {"epochs": 2, "batch_size": 16}
    study = write_study({"name": "own", "workload": "work:Own", "space": space, "fixed": fixed}, OWN)
    assert said in command("check", study, "--workers", 1).stdout
    assert json.loads(command("check", study, "--workers", 1, "--json").stdout)["packs"]["tried"]


def test_the_most_memory_of_a_gpu_is_recorded_where_one_was_used(
    tmp_path: Path, write_study: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, with a GPU that only counts."""

    class Counts:
        peak = 7_000_000

        def max_memory_allocated(self) -> int:
            return self.peak

        def reset_peak_memory_stats(self) -> None:
            Counts.peak = 3_000_000

    executions(tmp_path / "cpu", write_study, {"learning_rate": [0.1]})
    assert "peak_gpu_memory_bytes" not in next(iter(Results.load(tmp_path / "cpu" / "run").records()))
    monkeypatch.setattr(trainer, "_cuda", Counts)
    executions(tmp_path / "gpu", write_study, {"learning_rate": [0.1]})
    found = Results.load(tmp_path / "gpu" / "run")
    assert found.column("peak_gpu_memory_bytes").tolist() == [3_000_000.0]
    assert math.isfinite(found.column("peak_memory_bytes")[0])
