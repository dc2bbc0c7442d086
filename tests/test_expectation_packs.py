"""What `check` says of packs: as a run will form them, with what they share, and nothing that is not known."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tradewind import machine
from tradewind.analysis.expectation import expectation, networks_of, packs
from tradewind.folder import RunFolder
from tradewind.journal import Journal
from tradewind.report.check import packs_page
from tradewind.results import Results
from tradewind.schedule.packing import LARGEST, LOOK_AHEAD
from tradewind.schedule.trials import Trials
from tradewind.study import Study


def storms(space: Mapping[str, Any], **study: Any) -> Trials:
    return Trials(Study(name="packs", workload="storm", space=space, **study))


def finished(folder: RunFolder, trials: Trials, times: Mapping[int, dict[str, float]], where: str) -> Results:
    """The results once these positions are done; whoever has a share was one of two in a pack."""
    journal = Journal(folder, f"owner{time.monotonic_ns()}")
    for position, each in times.items():
        trial = trials[position]
        journal.finished(
            {
                "key": trial.key, "trial": trial.trial, "repeat": trial.repeat, "config": trial.config,
                "seed": trial.seed, "data_seed": trial.data_seed, "state": "done", "reason": "", "times": each,
                "scores": {}, "last": {}, "edition": trials.study.digest(), "machine": where,
                "packed_with": int("share_s" in each), "epochs_run": trial.config["epochs"],
                "started": 1000.0, "finished": 1001.0, "attempt": 1, "error": {},
            },
            [],
        )  # fmt: skip
    journal.close()
    return Results.load(folder.path)


def test_rates_and_seeds_are_one_pack_and_epochs_are_trained_once() -> None:
    found = packs(storms({"learning_rate": [0.1, 0.01], "epochs": [5, 10]}, repeats=2), None, 1)
    assert (found["looked_at"], found["packs"], found["networks"]) == (8, 1, 4)
    assert found["sizes"] == {"8": 1}
    assert (found["epochs_asked"], found["epochs_trained"]) == (60, 40)
    assert (found["together"], found["apart"]) == (["learning_rate", "epochs"], {})
    text = packs_page(found)
    assert "the next 8 trials: 1 pack of up to 8, 4 networks" in text
    assert "33% of the epochs, which are shared (40 trained for 60)" in text


def test_what_keeps_trials_apart_is_named() -> None:
    found = packs(storms({"learning_rate": [0.1, 0.01], "batch_size": [64, 128, 256], "kernel": [5]}), None, 1)
    assert found["apart"] == {"batch_size": 3}
    assert found["sizes"] == {"2": 3}
    assert "batch_size (3 values): trials that differ in these can't train as one" in packs_page(found)


def test_the_networks_are_those_of_training(tmp_path: Path) -> None:
    from tradewind.train.member import members_of

    space = {"schedule": ["constant", "cosine"], "epochs": [2, 4, 8], "dropout": [0.0, 0.5]}
    trials = storms(space, repeats=2)
    some = [trials[position] for position in range(trials.size)]
    members = members_of(some, RunFolder.create(tmp_path / "run"))
    trained = sorted(sorted(trial.trial for trial in member.trials) for member in members)
    assert sorted(sorted(trial.trial for trial in network) for network in networks_of(some)) == trained
    assert len(trained) == 4 + 12


@pytest.mark.parametrize(
    ("study", "why"),
    [
        ({"purpose": "time"}, "to time, every network trains alone"),
        ({"search": {"method": "tpe", "trials": 8}}, "formed as the search asks for trials"),
    ],
)
def test_where_nothing_is_packed_the_reason_is_said(study: dict[str, Any], why: str) -> None:
    found = packs(storms({"learning_rate": [0.1, 0.01]}, **study), None, 2)
    assert (found["why_not"], found["packs"]) == (why, 0)
    assert packs_page(found) == f"  packs      none: {why}"


def test_commands_run_one_by_one() -> None:
    trials = Trials(Study(name="c", command="true {x}", space={"x": [1, 2]}))
    assert packs(trials, None, 2)["why_not"] == "functions and commands run one by one"


def test_no_pack_is_foretold_that_leaves_a_worker_idle() -> None:
    found = packs(storms({"learning_rate": [0.001 * k for k in range(1, 9)]}), None, 4)
    assert found["packs"] >= 4
    assert found["looked_at"] == 8


def test_what_is_done_is_packed_no_more(tmp_path: Path) -> None:
    trials = storms({"learning_rate": [0.1, 0.01, 0.001]})
    results = finished(RunFolder.create(tmp_path / "run"), trials, {0: {"wall_s": 1.0}}, machine.name())
    assert packs(trials, results, 1)["looked_at"] == 2
    everything = {k: {"wall_s": 1.0} for k in range(3)}
    results = finished(RunFolder.create(tmp_path / "all"), trials, everything, machine.name())
    assert packs_page(packs(trials, results, 1)) == "  packs      nothing is left"


def test_time_saved_is_what_equal_trials_took_in_packs_and_alone_on_this_machine(tmp_path: Path) -> None:
    trials = storms({"batch_size": [64, 128], "learning_rate": [0.1, 0.01, 0.001, 0.002]}, fixed={"epochs": 5})
    alone, shared = {"wall_s": 20.0}, {"wall_s": 30.0, "share_s": 5.0}
    unlike = finished(RunFolder.create(tmp_path / "a"), trials, {0: alone, 4: shared}, machine.name())
    assert packs(trials, unlike, 1)["faster"] is None  # of two batch sizes
    elsewhere = finished(RunFolder.create(tmp_path / "b"), trials, {0: alone, 1: shared}, "another machine")
    assert packs(trials, elsewhere, 1)["faster"] is None
    found = packs(
        trials, finished(RunFolder.create(tmp_path / "c"), trials, {0: alone, 1: shared}, machine.name()), 1
    )
    assert (found["faster"], found["faster_n"]) == (4.0, 2)
    assert "in packs an epoch took 1/4 of its time alone (2 trials of this run)" in packs_page(found)


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    text = packs_page(packs(storms({"learning_rate": [0.1, 0.01]}), None, 1))
    assert "time by packs: not known before trials have run here both in packs and alone" in text


def test_a_large_study_is_looked_at_no_further_than_a_run_looks_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rates = {"low": 1e-4, "high": 1e-1, "log": True, "steps": 1000}
    space = {"learning_rate": rates, "weight_decay": rates, "beta1": {"low": 0.5, "high": 0.9, "steps": 1000}}
    found = expectation(storms(space), 1)["packs"]
    assert found["looked_at"] == LOOK_AHEAD
    assert max(map(int, found["sizes"])) == LARGEST["cuda" if machine.gpus() else "cpu"]
    assert json.loads(json.dumps(found)) == found
