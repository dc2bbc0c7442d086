"""The sweep benchmark: every way trains the same networks, and what is measured is kept and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tradewind.bench import installed
from tradewind.bench import sweep as bench
from tradewind.bench.sweep import Found, Sizes
from tradewind.bench.sweep_module import Residual
from tradewind.bench.sweep_trials import Sweep, indexed, plain_trial, tensors
from tradewind.bench.sweep_ways import WAYS, of_results, run_study
from tradewind.errors import Mistake

pytestmark = pytest.mark.bench

TINY = Sweep((1e-3, 4e-3), seeds=1, epochs=2, batch_size=64, train=256, validation=64, test=64)
FOREIGN = replace(TINY, workload=bench.FOREIGN, train=128)
SMALLEST = replace(TINY, rates=(1e-3,), epochs=1, train=64)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def tiny(**sizes: object) -> Sizes:
    one = replace(FOREIGN, rates=(1e-3,))
    here = Sizes(TINY, TINY, FOREIGN, one, SMALLEST, ("fp32",), ("fp32",), 1, 1, {}, engine="serial")
    return replace(here, **sizes)  # type: ignore[arg-type]


def test_all_ways_train_the_same_networks(tmp_path: Path) -> None:
    present = [name for name, (_, package) in WAYS.items() if not package or installed(package)]
    here = [name for name in present if name not in ("joblib", "Tradewind")]
    losses = {name: WAYS[name][0](TINY).losses for name in here}
    if "joblib" in present:  # as a program: its processes would outlive the test
        losses["joblib"] = bench.in_way("joblib", TINY, {})["losses"]
    assert {"DataLoader", "eager, data on the device"} <= losses.keys()
    losses["Tradewind"] = of_results(run_study(TINY, tmp_path / "run", engine="serial")).losses
    for name, trials in losses.items():
        assert sorted(trials) == ["0.001/0", "0.004/0"], name
        assert [len(trial) for trial in trials.values()] == [2, 2], name
    assert max(bench.differences(losses).values()) < 1e-4


def test_ways_are_measured_as_programs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "RIVAL", "eager, data on the device")
    monkeypatch.setattr(bench, "WAYS", {name: WAYS[name] for name in ("eager, data on the device", "Tradewind")})
    found = bench.ways(tiny())
    for name, (sample,) in found["samples"].items():
        assert sample["networks"] == 2
        assert [len(seconds) for seconds in sample["epoch_s"]] == [2, 2]
        assert 0 < sample["sweep_s"] < sample["wall_s"]
        assert sample["samples_per_s"] > 0
        assert found["difference"][name] < 1e-4
    kept = json.loads(json.dumps(found))
    text = "\n".join(bench.ways_page(kept))
    assert "2 storm networks (learning rate × seed), batch 64, 256 storms × 2 epochs" in text
    assert "× as fast as eager, data on the device (" in text
    assert "1 interleaved pair" in text


def test_losses_that_differ_are_told_apart() -> None:
    ours = {"0.001/0": [0.5, 0.4], "0.002/0": [0.3]}
    found = bench.differences({"Tradewind": ours, "other": {"0.001/0": [0.5, 0.5]}, "none": {"9/9": [1.0]}})
    assert found == pytest.approx({"Tradewind": 0.0, "other": 0.2, "none": 0.0})


def test_a_network_alone_is_timed_at_every_precision() -> None:
    found = bench.one(tiny())
    assert list(found["samples"]) == ["fp32"]
    assert len(found["samples"]["fp32"]["epoch_s"]) == 4
    assert "s/epoch" in bench.one_page(found)[0]
    assert "n 4" in bench.one_page(found)[1]


def test_the_cost_of_doubling_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "GROWTH_ROUNDS", 1)
    found = bench.growth(tiny())
    sizes = {name: [row["sweep"] for row in rows] for name, rows in found.items()}
    assert [len(each["rates"]) * each["seeds"] for each in sizes["networks"]] == [1, 2, 4]
    assert [each["train"] for each in sizes["data"]] == [64, 128, 256]
    assert [each["epochs"] for each in sizes["epochs"]] == [1, 2, 4]
    assert all(row["wall_s"][0] > 0 for rows in found.values() for row in rows)
    lines = bench.growth_page(found)
    assert len(lines) == 1 + 9
    first, second = (found["data"][k]["wall_s"][0] for k in (0, 1))
    assert f"{second / first:.2f}" in lines[5]


def test_a_module_of_a_users_own_is_swept_as_any_other(tmp_path: Path) -> None:
    results = run_study(FOREIGN, tmp_path / "run", engine="serial")
    trained = of_results(results)
    assert sorted(trained.losses) == ["0.001/0", "0.004/0"]
    assert all(np.isfinite(losses).all() and len(losses) == 2 for losses in trained.losses.values())
    data = Residual(train=20, validation=5, test=5).data({"data_seed": 1})
    assert data.train.inputs.shape == (20, 3, 32, 32)
    assert (data.train.inputs == Residual(train=20, validation=5, test=5).data({"data_seed": 1}).train.inputs).all()


def test_a_foreign_module_is_put_in_ratio_to_eager_and_compiled_torch_at_the_same_precision_in_the_same_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = iter([10.0, 20.0, 60.0, 9.0, 45.0, 90.0, 20.0, 25.0, 100.0, 20.0, 60.0, 180.0])
    times = {"compile_s": 2.0, "warmup_s": 0.5}

    def in_way(*_: object) -> Found:
        return {"samples_per_s": next(rates), "times": times, "losses": {}}

    monkeypatch.setattr(bench, "in_way", in_way)
    found = bench.foreign(tiny(foreign_precisions=("tf32", "bf16"), foreign_rounds=2))
    lines = [" ".join(line.split()) for line in bench.foreign_page(found)]
    built = "compiled 2.0 s, warm-up 0.5 s, not counted"
    eager, compiled = "eager, data on the device", "torch.compile, CUDA graphs"
    assert lines[1:] == [
        f"{eager} tf32 15 n 2",
        f"{compiled} tf32 22 n 2",
        "Tradewind tf32 80 n 2",
        f"Tradewind at tf32: 5.50 × (5.00 – 6.00) {eager}, 3.50 × (3.00 – 4.00) {compiled}; {built}",
        f"{eager} bf16 14 n 2",
        f"{compiled} bf16 52 n 2",
        "Tradewind bf16 135 n 2",
        f"Tradewind at bf16: 9.50 × (9.00 – 10.00) {eager}, 2.50 × (2.00 – 3.00) {compiled}; {built}",
    ]


def test_pages_of_ordinary_ways_on_fewer_networks_claim_no_ratio() -> None:
    sample = {"wall_s": 2.0, "samples_per_s": 10.0, "networks": 1, "times": {"compile_s": 3.0}}
    found: Found = {
        "sweep": {"rates": [1.0], "seeds": 4, "batch_size": 8, "train": 16, "epochs": 1}, "absent": ["Optuna"],
        "samples": {"joblib": [sample], "Tradewind": [{**sample, "networks": 4}]},
        "difference": {"joblib": 0.0, "Tradewind": 0.0},
    }  # fmt: skip
    text = "\n".join(bench.ways_page(found))
    assert "as fast as joblib" not in text
    assert "compiled for 3.0 s cold" in text
    assert "Optuna: not installed" in text


def test_an_unknown_part_is_refused_before_any_work() -> None:
    with pytest.raises(Mistake, match="--part groth"):
        bench.measure(["groth"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, while it compiles
def test_the_compiled_form_trains_the_same_network() -> None:
    losses = [
        plain_trial(sweep, (1e-3, 0), indexed(sweep, tensors(sweep.data().train)), tensors(sweep.data().validation))
        for sweep in (SMALLEST, replace(SMALLEST, compiled=True))
    ]
    assert [loss for _, loss in losses[1]] == pytest.approx([loss for _, loss in losses[0]], rel=1e-4)
