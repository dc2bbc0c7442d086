"""Steps as CUDA graphs: the plain loop's numbers, replayed."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tradewind import Split, run
from tradewind.folder import RunFolder
from tradewind.pack import Outcome, Pack
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import beside, fitting, packs, profile
from tradewind.train.batches import Samples
from tradewind.train.plain import predicted
from tradewind.train.steps import Steps
from tradewind.train.trainer import Trainer

pytestmark = pytest.mark.gpu


def fit(folder: Path, space: dict[str, Any], alone: bool = False, **fixed: Any) -> list[Outcome]:
    data = {"train": 512, "validation": 64, "test": 128}
    trials = Trials(
        Study(
            name="steps",
            workload="storm",
            data=data,
            space=space,
            fixed={**({} if "batch_size" in space else {"batch_size": 48}), **fixed},
        )
    )
    trainer = Trainer(trials.task(str(RunFolder.create(folder).path), threads=2))
    packed = [trials[k] for k in range(trials.size)]
    groups = [[trial] for trial in packed] if alone else [packed]
    return [outcome for group in groups for outcome in trainer.fit(Pack(tuple(group)), lambda *_: None)]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_pack_as_a_graph_has_the_losses_of_the_plain_loop_on_a_cpu(
    optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured: list[bool] = []
    made = Steps._captured

    def noted(self: Steps) -> Any:
        captured.append((found := made(self)) is not None)
        return found

    monkeypatch.setattr(Steps, "_captured", noted)
    monkeypatch.setattr(profile, "PAYS", 100.0)
    space = {"learning_rate": [1e-3, 1e-2], "dropout": [0.2, 0.5], "epochs": [1, 3]}
    common = {"precision": "fp64", "optimizer": optimizer, "momentum": 0.9, "weight_decay": 0.01}
    fast = fit(tmp_path / "gpu", space, device="cuda", **common)
    plain = fit(tmp_path / "cpu", space, alone=True, device="cpu", **common)
    assert captured
    assert all(captured)
    for one, other in zip(fast, plain, strict=True):
        assert one.state == other.state == "done"
        for row, expected in zip(one.curve, other.curve, strict=True):
            assert row["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-9)
            assert row["validation_loss"] == pytest.approx(expected["validation_loss"], rel=1e-9)


KINDS = {"batch_size": [32, 48, 100], "learning_rate": [1e-3, 1e-2], "optimizer": ["adam", "sgd"], "epochs": [2, 4]}


def test_kinds_beside_each_other_have_the_losses_of_the_plain_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []

    def noted(runs: Any, device: torch.device) -> Any:
        at_once.append(len(runs))
        return beside.at_once(runs, device)

    monkeypatch.setattr(fitting, "at_once", noted)
    monkeypatch.setattr(profile, "PAYS", 100.0)
    common = {"precision": "fp64", "dropout": 0.3}
    fast = fit(tmp_path / "gpu", KINDS, device="cuda", **common)
    plain = fit(tmp_path / "cpu", KINDS, alone=True, device="cpu", **common)
    assert at_once == [6]
    for one, other in zip(fast, plain, strict=True):
        assert one.state == other.state == "done"
        assert one.last["validation_loss"] == pytest.approx(other.last["validation_loss"], rel=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kinds_beside_each_other_give_what_they_give_one_after_the_other(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "PAYS", 100.0)
    space = {**KINDS, "learning_rate": [5e-4, 1e-3]}
    common = {"precision": precision, "dropout": 0.3, "augment": "live", "device": "cuda"}
    monkeypatch.setattr(profile.Profile, "beside_pays", lambda *_: False)
    apart = fit(tmp_path / "apart", space, **common)
    monkeypatch.setattr(profile.Profile, "beside_pays", lambda *_: True)
    together = fit(tmp_path / "beside", space, **common)
    assert {outcome.facts["packed_with"] for outcome in apart} == {3}
    assert {outcome.facts["packed_with"] for outcome in together} == {23}
    tolerance = 1e-4 if precision == "fp32" else 1e-2  # kernels may add in another order, or be others
    for one, other in zip(together, apart, strict=True):
        assert one.last["train_loss"] == pytest.approx(other.last["train_loss"], rel=tolerance)


def test_a_kind_that_runs_out_of_memory_beside_others_is_trained_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: list[int] = []
    run = packs.PackTraining.run

    def once(self: packs.PackTraining, steps: Steps) -> None:
        if self.members[0].config["batch_size"] == 48 and not short:
            short.append(48)
            raise torch.OutOfMemoryError("CUDA out of memory")
        run(self, steps)

    monkeypatch.setattr(packs.PackTraining, "run", once)
    monkeypatch.setattr(profile, "PAYS", 100.0)
    found = fit(tmp_path, {"batch_size": [32, 48], "learning_rate": [1e-3, 1e-2]}, device="cuda")
    assert short == [48]
    assert [outcome.state for outcome in found] == ["done"] * 4


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_coarser_precisions_train_as_well_live_or_not(precision: str, tmp_path: Path) -> None:
    for augment in ("none", "live"):
        space = {"learning_rate": [1e-3, 2e-3]}
        fixed = {"precision": precision, "augment": augment, "epochs": 3, "device": "cuda"}
        fast = fit(tmp_path / augment, space, **fixed)
        plain = fit(tmp_path / f"{augment}-fp64", space, alone=True, **{**fixed, "precision": "fp64"})
        for one, other in zip(fast, plain, strict=True):
            assert one.facts["precision"] == precision
            tolerance = 1e-4 if precision == "fp32" else 2e-2
            assert one.last["train_loss"] == pytest.approx(other.last["train_loss"], rel=tolerance)


def test_auto_is_measured_once_in_a_run_folder_and_is_the_fastest(tmp_path: Path) -> None:
    fixed = {"precision": "auto", "epochs": 1, "device": "cuda"}
    first = fit(tmp_path, {"learning_rate": [1e-3]}, **fixed)
    (kept,) = (tmp_path / "plans").glob("precision-*.json")
    content = json.loads(kept.read_text())
    assert set(content["step_s"]) == {"fp32", "tf32", "bf16"}
    assert content["precision"] == min(content["step_s"], key=content["step_s"].get) == first[0].facts["precision"]
    second = fit(tmp_path, {"learning_rate": [2e-3]}, **fixed)
    assert second[0].facts["precision"] == first[0].facts["precision"]
    assert json.loads(kept.read_text()) == content


def test_a_network_is_judged_in_the_precision_in_which_it_trains() -> None:
    rng, device = np.random.default_rng(0), torch.device("cuda")
    torch.manual_seed(0)
    network = nn.Conv2d(64, 8, 3).to(device)
    split = Split(rng.standard_normal((32, 64, 8, 8)).astype(np.float32), np.zeros(32, np.float32))
    samples, exact = (Samples.of(split, device, dtype) for dtype in (torch.float32, torch.float64))
    (right,) = predicted(deepcopy(network).double(), exact, range(32), "fp64")
    off = {}
    for precision in ("fp32", "tf32", "bf16"):
        (found,) = predicted(network, samples, range(32), precision)
        assert found.dtype == torch.float32
        off[precision] = ((found - right).abs().max() / right.abs().max()).item()
    assert off["fp32"] < 1e-5
    assert off["tf32"] < 2e-3
    assert 1e-4 < off["bf16"] < 2e-2


def test_the_first_epoch_and_the_first_test_of_a_process_have_no_set_up_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))  # none are left from before
    study = Study(
        name="first", workload="storm", purpose="time", space={"batch_size": [128]},
        data={"train": 40_083, "validation": 0, "test": 5000},
        fixed={"epochs": 5, "device": "cuda", "precision": "bf16"},
    )  # fmt: skip
    times = run(study, tmp_path / "run", engine="processes").record(0)["times"]
    first, *others = times["epoch_s"]
    assert first <= 1.5 * median(others)  # the last batch is no whole one
    assert times["test_s"] <= median(others)  # a quarter of a second at the most, where building takes one
