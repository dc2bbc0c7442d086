"""`precision: auto`: chosen by a step that is measured once in a run folder. What needs a GPU is in test_steps.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tradewind
from tradewind.folder import RunFolder
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import auto_precision, fitting
from tradewind.train.auto_precision import about_step, candidates, chosen, step_s
from tradewind.train.plain import load
from tradewind.workloads.storm import Storm

Write = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("one_thread")

STORMS = {"train": 24, "validation": 16, "test": 16}
AMONG = ("fp32", "tf32", "bf16")


def measures(found: dict[str, float]) -> tuple[list[str], Callable[[str], float]]:
    """What was asked for, and who answers."""
    asked: list[str] = []

    def measure(name: str) -> float:
        asked.append(name)
        return found[name]

    return asked, measure


def test_a_step_is_measured_once_and_the_fastest_counts_for_all(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    asked, measure = measures({"fp32": 3e-3, "tf32": 1e-3, "bf16": 2e-3})
    assert chosen(folder, {"batch_size": 8}, AMONG, measure) == "tf32"
    _, other = measures({"fp32": 3e-3, "tf32": 2e-3, "bf16": 1e-3})
    assert chosen(folder, {"batch_size": 8}, AMONG, other) == "tf32"
    assert asked == list(AMONG)
    assert chosen(folder, {"batch_size": 16}, AMONG, other) == "bf16"
    kept = [json.loads(path.read_text()) for path in folder.plans.glob("precision-*.json")]
    assert sorted(one["precision"] for one in kept) == ["bf16", "tf32"]


def test_of_two_that_are_as_fast_the_more_exact_one_is_taken(tmp_path: Path) -> None:
    _, measure = measures({"fp32": 1e-3, "tf32": 1e-3, "bf16": 1e-3})
    assert chosen(RunFolder.create(tmp_path / "run"), {}, AMONG, measure) == "fp32"


def test_of_two_workers_that_measure_at_once_the_first_one_decides(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    _, first = measures({"fp32": 3e-3, "tf32": 1e-3, "bf16": 2e-3})

    def late(name: str) -> float:
        assert chosen(folder, {}, AMONG, first) == "tf32"  # while this one measures
        return {"fp32": 3e-3, "tf32": 2e-3, "bf16": 1e-3}[name]

    assert chosen(folder, {}, AMONG, late) == "tf32"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"precision": "fp8"}'])
def test_what_can_not_be_read_is_measured_anew(content: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    _, measure = measures({"fp32": 3e-3, "tf32": 1e-3, "bf16": 2e-3})
    chosen(folder, {}, AMONG, measure)
    (path,) = folder.plans.glob("precision-*.json")
    path.write_text(content)
    _, other = measures({"fp32": 3e-3, "tf32": 2e-3, "bf16": 1e-3})
    assert chosen(folder, {}, AMONG, other) == "bf16"
    assert json.loads(path.read_text())["precision"] == "bf16"


def test_nothing_is_measured_where_there_is_no_choice(tmp_path: Path) -> None:
    asked, measure = measures({})
    cpu = candidates(torch.device("cpu"))
    assert chosen(RunFolder.create(tmp_path / "run"), {}, cpu, measure) == "fp32"
    assert (asked, cpu) == ([], ("fp32",))


def config_of(**fixed: Any) -> dict[str, Any]:
    trial = Trials(Study(name="storms", workload="storm", data=STORMS, fixed={"device": "cpu", **fixed}))[0]
    return {**trial.config, "seed": trial.seed, "data_seed": trial.data_seed}


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("learning_rate", 0.5, True), ("epochs", 3, True), ("batch_size", 16, False), ("filters", [4], False),
        ("optimizer", "sgd", False), ("augment", "live", False), ("weight_decay", 0.1, True),
    ],
)  # fmt: skip
def test_it_is_measured_for_each_architecture_and_batch_size(name: str, value: Any, same: bool) -> None:
    workload = Storm(**STORMS)
    one, other = (about_step(config, workload) for config in (config_of(), config_of(**{name: value})))
    assert (one == other) is same


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_a_step_takes_time_and_leaves_no_trace(precision: str) -> None:
    config = config_of(filters=[2], kernel=3, batch_size=8, precision=precision)
    workload = Storm(**STORMS)
    dtype = torch.float64 if precision == "fp64" else torch.float32
    sets = load(workload.data(config), config, torch.device("cpu"), dtype)
    before = torch.get_rng_state()
    assert 0 < step_s(workload, config, sets) < 10
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def two_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU has no choice; here it has one between the two precisions that it can compute in."""
    for module in (auto_precision, fitting):
        monkeypatch.setattr(module, "candidates", lambda _: ("fp64", "fp32"))


def test_all_trials_of_a_run_and_its_resumes_train_in_the_precision_that_was_chosen(
    tmp_path: Path, write_study: Write, two_candidates: None
) -> None:
    fixed = {"filters": [2], "kernel": 3, "batch_size": 8, "epochs": 1, "precision": "auto"}
    content = {"name": "storms", "workload": "storm", "data": STORMS, "fixed": fixed}
    space = {"learning_rate": [1e-3, 2e-3, 3e-3]}
    found = tradewind.run(write_study({**content, "space": space}), tmp_path / "run", engine="serial")
    (path,) = (tmp_path / "run" / "plans").glob("precision-*.json")
    kept = json.loads(path.read_text())
    assert set(kept["step_s"]) == {"fp64", "fp32"}
    assert {record["precision"] for record in found.records()} == {kept["precision"]}
    assert {record["config"]["precision"] for record in found.records()} == {"auto"}
    other = {"fp64": "fp32", "fp32": "fp64"}[kept["precision"]]
    path.write_text(json.dumps({**kept, "precision": other}))  # so that a second measurement would be seen
    more = {**content, "space": {"learning_rate": [1e-3, 2e-3, 3e-3, 4e-3]}}
    found = tradewind.run(write_study(more), tmp_path / "run", engine="serial")
    precisions = {record["config"]["learning_rate"]: record["precision"] for record in found.records()}
    assert precisions == {1e-3: kept["precision"], 2e-3: kept["precision"], 3e-3: kept["precision"], 4e-3: other}


def test_repeats_in_two_precisions_are_two_groups(tmp_path: Path, write_study: Write, two_candidates: None) -> None:
    fixed = {"filters": [2], "kernel": 3, "batch_size": 8, "epochs": 1, "precision": "auto"}
    content = {
        "name": "storms",
        "workload": "storm",
        "data": {"train": 24, "validation": 200, "test": 200},
        "fixed": fixed,
        "space": {"learning_rate": [1e-3]},
    }
    tradewind.run(write_study({**content, "repeats": 2}), tmp_path / "run", engine="serial")
    (path,) = (tmp_path / "run" / "plans").glob("precision-*.json")
    kept = json.loads(path.read_text())
    first, other = kept["precision"], {"fp64": "fp32", "fp32": "fp64"}[kept["precision"]]
    path.write_text(json.dumps({**kept, "precision": other}))
    found = tradewind.run(write_study({**content, "repeats": 5}), tmp_path / "run", engine="serial")
    assert sorted(record["precision"] for record in found.records()) == sorted([first] * 2 + [other] * 3)
    best = found.best()
    assert best.n == (3 if best.record["precision"] == other else 2)
    assert best.apart == {"precision": best.record["precision"]}
