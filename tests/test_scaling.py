"""Speed-up, efficiency and epochs to a target, as measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_results import record, write_run

from tradewind import Results
from tradewind.analysis.scaling import scaling, timed
from tradewind.analysis.targets import critical_batch, epochs_to_target
from tradewind.errors import Mistake, RunError


def trial(number: int, wall_s: float, scores: dict[str, float] | None = None, **config: Any) -> dict[str, Any]:
    times = {"wall_s": wall_s, "epoch_s": [wall_s / 5] * 5}
    fields = {"scores": scores or {"auc": 0.5}, "last": {}, "times": times}
    return record(number, config={"epochs": 5, "batch_size": 32, **config}, **fields)


def results_of(folder: Path, *trials: dict[str, Any]) -> Results:
    return Results.load(write_run(folder / "run", a=trials))


def test_speed_up_and_efficiency_come_from_the_median_of_the_repeats(tmp_path: Path) -> None:
    alone = [trial(k, wall_s, devices=1) for k, wall_s in enumerate((8.0, 9.0, 100.0))]
    found = scaling(results_of(tmp_path, *alone, trial(3, 3.0, devices=4)))
    assert [(row.devices, row.seconds, row.n) for row in found] == [(1, 9.0, 3), (4, 3.0, 1)]
    assert (found[0].speedup, found[0].efficiency) == (1.0, 1.0)
    assert (found[1].speedup, found[1].efficiency) == (3.0, 0.75)
    assert found[1].config == {"batch_size": 32, "epochs": 5}


def test_without_one_device_there_is_no_speed_up(tmp_path: Path) -> None:
    found = scaling(results_of(tmp_path, trial(0, 8.0, devices=2), trial(1, 5.0, devices=4)))
    assert [(row.speedup, row.efficiency) for row in found] == [(None, None)] * 2


def test_what_changes_the_time_makes_a_group_and_the_learning_rate_does_not(tmp_path: Path) -> None:
    trials = [
        trial(4 * k + 2 * d + r, 8.0 / d - k, devices=d, precision=precision, learning_rate=0.1**r)
        for k, precision in enumerate(("fp32", "fp16"))
        for d in (1, 2)
        for r in (0, 1)
    ]
    found = scaling(results_of(tmp_path, *trials))
    assert [(row.config["precision"], row.devices, row.seconds, row.n) for row in found] == [
        ("fp16", 1, 7.0, 2), ("fp16", 2, 3.0, 2), ("fp32", 1, 8.0, 2), ("fp32", 2, 4.0, 2),
    ]  # fmt: skip


def test_a_time_to_target_is_shown_by_devices_and_rule(tmp_path: Path) -> None:
    trials = [trial(k, 10.0, devices=1 + k // 2, scaling=("strong", "linear")[k % 2]) for k in range(4)]
    for number, one in enumerate(trials):
        one["times"]["time_to_target_s"] = 3.0 + number
    found = scaling(results_of(tmp_path, *trials))
    assert [(row.config["scaling"], row.devices, row.to_target_s) for row in found] == [
        ("linear", 1, 4.0), ("linear", 2, 6.0), ("strong", 1, 3.0), ("strong", 2, 5.0),
    ]  # fmt: skip


def test_the_batch_of_a_step_grows_with_the_devices_only_under_weak_rules(tmp_path: Path) -> None:
    trials = [trial(k, 10.0, devices=4, scaling=rule) for k, rule in enumerate(("strong", "weak"))]
    assert [row.global_batch(row.devices) for row in timed(results_of(tmp_path, *trials), "wall_s")] == [32, 128]


def test_the_critical_batch_size_of_exact_epochs_is_recovered(tmp_path: Path) -> None:
    batches = (32, 64, 256, 1024)
    trials = [trial(k, 9.0, {"epochs_to_target": 20 * (1 + b / 500)}, batch_size=b) for k, b in enumerate(batches)]
    found = epochs_to_target(timed(results_of(tmp_path, *trials), "wall_s"))[(), "strong"].plain((0.1, 0.9))
    assert found["critical_batch_size"] == pytest.approx(500)
    assert found["epochs_least"] == pytest.approx(20)
    assert critical_batch([(32, 20.0), (64, 21.0)]) is None


def test_epochs_that_do_not_grow_have_no_critical_batch_size() -> None:
    found = critical_batch([(32, 21.0), (64, 20.0), (128, 19.0)])
    assert found is not None
    assert found["critical_batch_size"] is None
    assert found["epochs_least"] == pytest.approx(20, rel=0.01)


def test_a_packed_time_and_an_unknown_time_are_refused(tmp_path: Path) -> None:
    results = results_of(tmp_path, record(0, packed_with=3), record(1))
    with pytest.raises(Mistake, match="trained in a pack"):
        scaling(results)
    with pytest.raises(Mistake, match="wall"):
        scaling(results, "wal_s")
    with pytest.raises(RunError, match="no trial has ended"):
        scaling(Results.load(write_run(tmp_path / "empty")))


def test_every_rule_is_compared_with_any_of_them_on_one_device(tmp_path: Path) -> None:
    trials = [trial(0, 8.0, devices=1, scaling="strong"), trial(1, 4.0, devices=4, scaling="linear")]
    found = {row.config["scaling"]: row for row in scaling(results_of(tmp_path, *trials))}
    assert (found["linear"].speedup, found["linear"].efficiency) == (2.0, 0.5)


def test_one_wild_count_of_epochs_moves_the_critical_batch_size_little() -> None:
    rows = [(b, 20 * (1 + b / 500)) for b in (32, 64, 128, 256, 512, 1024)]
    found = critical_batch([*rows, (128, 200.0)])
    assert found is not None
    assert found["epochs_least"] == pytest.approx(20, rel=0.05)
    assert found["critical_batch_size"] == pytest.approx(500, rel=0.15)


def test_epochs_on_one_device_count_for_every_rule(tmp_path: Path) -> None:
    trials = [
        trial(k, 9.0, {"epochs_to_target": 20 * (1 + b * n / 500)}, batch_size=b, devices=n, scaling=rule)
        for k, (b, n, rule) in enumerate([(32, 1, "strong"), (64, 1, "strong"), (64, 4, "linear"), (128, 2, "weak")])
    ]
    found = epochs_to_target(timed(results_of(tmp_path, *trials), "wall_s"))
    assert {rule: law.batch_sizes for (_, rule), law in found.items()} == {
        "linear": [32, 64, 256], "strong": [32, 64, 256], "weak": [32, 64, 256],
    }  # fmt: skip
    assert found[(), "linear"].rules == ("linear",)
    assert found[(), "weak"].rules == ("strong", "weak")
    assert found[(), "linear"].plain((0.1, 0.9))["critical_batch_size"] == pytest.approx(500)
