"""Times at device counts that were not run, tried on published tables and on laws that are known."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pytest
from test_results import record, write_run
from typer.testing import CliRunner

from tradewind import Results
from tradewind.analysis.advice import advise
from tradewind.analysis.laws import Measurement, Prediction, fit
from tradewind.analysis.prediction import predict
from tradewind.cli import app
from tradewind.errors import Mistake, RunError
from tradewind.imports import import_results
from tradewind.report.prediction import prediction_page

PUBLISHED = Path(os.environ.get("TRADEWIND_PUBLISHED", Path(__file__).parents[2] / "shared" / "published"))
STORM, DIGITS = PUBLISHED / "storm_basalyga2021.json", PUBLISHED / "digits_stevens.json"
needs_published = pytest.mark.skipif(not (STORM.exists() and DIGITS.exists()), reason=f"nothing in {PUBLISHED}")

EFFICIENCY = {1: 1.0, 2: 1.0517, 4: 0.8681, 8: 0.9009, 16: 0.5808, 32: 0.4625}  # paper 003, Table I
NODULES = [Measurement(n, 32, 1, 1 / (n * efficiency)) for n, efficiency in EFFICIENCY.items()]

Pair = tuple[Prediction, float]


def left_out(rows: Sequence[Measurement], leave: Callable[[Measurement], bool]) -> list[Pair]:
    """Predictions of the rows that the model has not seen, beside what was measured."""
    model = fit([row for row in rows if not leave(row)])
    return [(model.predict(r.devices, r.batch_size, r.work, r.group), r.seconds) for r in rows if leave(r)]


def errors(pairs: Sequence[Pair]) -> list[float]:
    return [abs(found.seconds / seconds - 1) for found, seconds in pairs]


def table_7() -> list[Measurement]:
    rows = json.loads(STORM.read_text())["tables"]["table7"]["rows"]
    return [Measurement(r["gpus"], 128, r["epochs"] * r["data_multiplier"], r["wall_s"]) for r in rows]


def stevens() -> list[Measurement]:
    rows = json.loads(DIGITS.read_text())["linear"]
    return [Measurement(r["gpus"], r["batch_size"], 2000, r["epoch_s"]) for r in rows]


def test_strong_scaling_to_32_gpus_is_predicted_from_up_to_16_within_25_percent() -> None:
    assert errors(left_out(NODULES, lambda row: row.devices == 32))[0] < 0.25


@needs_published
@pytest.mark.parametrize("rows", [table_7, stevens])
def test_four_gpus_are_predicted_from_up_to_three_with_a_median_error_of_5_percent(
    rows: Callable[[], list[Measurement]],
) -> None:
    assert median(errors(left_out(rows(), lambda row: row.devices == 4))) <= 0.05


@needs_published
def test_the_intervals_cover_what_was_left_out_and_are_not_wide(
    record_property: Callable[[str, object], None],
) -> None:
    pairs = left_out(NODULES, lambda row: row.devices == 32)
    for rows in (table_7(), stevens()):
        pairs += left_out(rows, lambda row: row.devices == 4)
    covered = mean(found.low <= seconds <= found.high for found, seconds in pairs)
    width = mean((found.high - found.low) / found.seconds for found, _ in pairs)
    record_property("covered", covered)
    record_property("mean_relative_width", width)
    assert covered >= 0.7
    assert width < 0.3


@needs_published
@pytest.mark.parametrize("devices", [2, 3])
def test_a_device_count_between_measured_ones_is_predicted_too(devices: int) -> None:
    for rows in (table_7(), stevens()):
        assert median(errors(left_out(rows, lambda row: row.devices == devices))) <= 0.05


@needs_published
def test_a_batch_size_that_was_not_run_is_predicted() -> None:
    assert median(errors(left_out(stevens(), lambda row: row.batch_size in (20, 50, 100, 200, 400)))) <= 0.03


LAWS: dict[str, Callable[[float], float]] = {
    "Amdahl": lambda n: 1 + 9 / n,
    "logarithmic": lambda n: 10 / n + 0.3 * np.log2(n),
    "linear": lambda n: 10 / n + 0.1 * (n - 1),
    "saturating": lambda n: 10 / n + 2 * (n > 1),
    "ring": lambda n: 10 / n + 3 * (1 - 1 / n),
    "perfect": lambda n: 10 / n,
}


@pytest.mark.parametrize("law", LAWS)
def test_known_laws_are_predicted_at_twice_the_devices(law: str) -> None:
    found, covered = [], []
    for seed in range(5):
        random = np.random.default_rng(seed)
        noisy = [LAWS[law](n) * float(np.exp(0.03 * random.standard_normal())) for n in (1, 2, 4, 8, 16, 32)]
        rows = [Measurement(2**k, None, 1, seconds) for k, seconds in enumerate(noisy)]
        pairs = left_out(rows, lambda row: row.devices == 32)
        found += errors(pairs)
        covered += [pair.low <= seconds <= pair.high for pair, seconds in pairs]
    assert median(found) < 0.2
    assert sum(covered) >= 3


def test_the_intervals_cover_about_as_often_as_they_say() -> None:
    covered = []
    for seed, law in enumerate([law for law in LAWS.values() for _ in range(10)]):
        random = np.random.default_rng(seed)
        noise = np.exp(random.choice([0.02, 0.06]) * random.standard_normal(4))
        rows = [Measurement(n, None, 1, float(law(n) * e)) for n, e in zip((1, 2, 4, 8), noise, strict=True)]
        covered += [found.low <= seconds <= found.high for found, seconds in left_out(rows, lambda r: r.devices == 8)]
    assert 0.65 <= mean(covered) <= 0.97


def test_compute_steps_and_start_up_are_told_apart() -> None:
    def seconds(n: int, batch: int, epochs: int) -> float:
        return 4 + epochs * (2 / n + 50 / batch * (1 + 0.5 * (n > 1)))

    rows = [
        Measurement(n, batch, epochs, seconds(n, batch, epochs))
        for n in (1, 2, 4)
        for batch in (32, 128, 512)
        for epochs in (1, 5, 20)
    ]
    model = fit(rows)
    for n, batch, epochs in ((8, 64, 10), (4, 1024, 100), (1, 32, 2)):
        assert model.predict(n, batch, epochs).seconds == pytest.approx(seconds(n, batch, epochs), rel=0.05)


def test_one_wild_measurement_does_not_move_the_rest() -> None:
    rows = [Measurement(n, None, work, work * (1 + 9 / n)) for n in (1, 2, 4) for work in (1, 2, 3, 4, 5)]
    rows[7] = Measurement(2, None, rows[7].work, 3 * rows[7].seconds)
    assert fit(rows).predict(8, None, 1).seconds == pytest.approx(1 + 9 / 8, rel=0.12)


def test_the_interval_widens_with_the_distance_from_what_was_measured() -> None:
    model = fit([row for row in NODULES if row.devices <= 8])
    widths = [(p.high - p.low) / p.seconds for p in (model.predict(n, 32) for n in (8, 32, 128))]
    assert widths[0] < widths[1] < widths[2]


def test_a_group_measured_on_one_device_borrows_the_shape_of_the_others() -> None:
    a, b = (("precision", "fp32"),), (("precision", "fp16"),)
    rows = [Measurement(n, None, 1, 2 + 8 / n, a) for n in (1, 2, 4, 8)] + [Measurement(1, None, 1, 5.0, b)]
    assert fit(rows).predict(8, None, 1, b).seconds == pytest.approx(1.5, rel=0.1)
    with pytest.raises(RunError, match="no measurement of"):
        fit(rows).predict(8, None, 1, (("precision", "fp8"),))


def a_run(folder: Path, seconds: Callable[[int], float]) -> Results:
    configs = [(n, batch) for n in (1, 2, 4) for batch in (32, 64, 128)]
    records = [
        record(
            k, config={"epochs": 10, "batch_size": batch, "devices": n}, last={}, times={"wall_s": seconds(n)},
            scores={"epochs_to_target": 20 * (1 + batch / 100)},
        )
        for k, (n, batch) in enumerate(configs)
    ]  # fmt: skip
    return Results.load(write_run(folder / "run", a=records))


def test_a_run_is_predicted_where_nobody_ran_it(tmp_path: Path) -> None:
    found: dict[str, Any] = predict(a_run(tmp_path, lambda n: 10 + 90 / n), [1, 8])
    assert json.loads(json.dumps(found)) == found
    assert [table["config"]["batch_size"] for table in found["tables"]] == [32, 64, 128]
    one, eight = found["tables"][0]["rows"]
    assert (one["measured_s"], eight["measured_s"]) == (100.0, None)
    assert eight["predicted_s"] == pytest.approx(10 + 90 / 8, rel=0.1)
    assert eight["low_s"] < eight["predicted_s"] < eight["high_s"]
    assert eight["efficiency"] == pytest.approx(eight["speedup"] / 8)
    assert found["epochs_to_target"][0]["critical_batch_size"] == pytest.approx(100)
    assert eight["to_target_s"] == pytest.approx(20 * 1.32 * eight["predicted_s"] / 10, rel=0.1)
    assert found["tables"][0]["enough_devices"] is None


def test_devices_stop_paying_where_the_time_stops_falling(tmp_path: Path) -> None:
    found = predict(a_run(tmp_path, lambda n: 100 + 10 * n), [1, 2, 4, 8])
    assert {table["enough_devices"] for table in found["tables"]} == {1}
    page = prediction_page(found)
    assert "more than 1 device does not pay" in page
    assert "twice that at a batch of 100 (" in page
    assert max(map(len, page.splitlines())) <= 118


def test_no_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="whole numbers from 1"):
        predict(a_run(tmp_path, lambda n: 1.0), [0, 2])
    with pytest.raises(RunError, match="nothing to predict from"):
        fit([])


def test_one_measurement_gives_that_time_and_little_beyond() -> None:
    model = fit([Measurement(2, 64, 10, 8.0)])
    here, far = model.predict(2, 64, 10), model.predict(16, 64, 10)
    assert here.seconds == pytest.approx(8, rel=0.05)
    assert far.low < 2 < 8 < far.high


@needs_published
def test_the_labs_16_gpus_lie_in_the_interval(tmp_path: Path) -> None:
    import_results(PUBLISHED / "images_nelson2021.json", tmp_path / "run", "caltech256")
    found = predict(Results.load(tmp_path / "run"), [16], "epoch_s")
    v100 = next(table["rows"][0] for table in found["tables"] if table["config"]["gpu"] == "V100")
    assert v100["low_s"] < 22 < v100["high_s"]  # paper 004's own extrapolation


def to_a_target(folder: Path, devices: Sequence[int], batches: Sequence[int], noise: float, seed: int = 0) -> Results:
    """Trials that end at their target: 30·(1 + B/400) epochs of 8/n + 64/B seconds, B the global batch."""
    random, records = np.random.default_rng(seed), []
    for rule in ("strong", "weak"):
        for n in devices:
            for batch in batches:
                whole = batch * n if rule == "weak" else batch
                epoch_s = true_epoch_s(n, whole) * float(np.exp(0.03 * random.standard_normal()))
                epochs = 30 * (1 + whole / 400) * float(np.exp(noise * random.standard_normal()))
                times = {"wall_s": epochs * epoch_s + 1, "epoch_s": [epoch_s], "time_to_target_s": epochs * epoch_s}
                config = {"epochs": 1000, "batch_size": batch, "devices": n, "scaling": rule}
                records.append(record(len(records), config=config, times=times, scores={}, last={}))
    return Results.load(write_run(folder / f"target{seed}", a=records))


def true_epoch_s(devices: int, batch: float) -> float:
    return 8 / devices + 64 / batch


def true_to_target_s(devices: int, batch: float) -> float:
    return 30 * (1 + batch / 400) * true_epoch_s(devices, batch)


def test_the_time_to_a_target_is_epochs_times_epoch_where_nobody_ran_it(tmp_path: Path) -> None:
    found = predict(to_a_target(tmp_path, (1, 2, 4), (32, 64, 128, 256), 0.0), [4, 8])
    assert (found["value"], found["asked"]) == ("time_to_target_s", "wall_s")
    tables = {(t["config"]["scaling"], t["config"]["batch_size"]): t["rows"] for t in found["tables"]}
    assert len(tables) == 8
    for (rule, batch), (four, eight) in tables.items():
        whole = [batch * n if rule == "weak" else batch for n in (4, 8)]
        assert four["measured_s"] == pytest.approx(true_to_target_s(4, whole[0]), rel=0.15)
        assert eight["measured_s"] is None
        assert eight["predicted_s"] == pytest.approx(true_to_target_s(8, whole[1]), rel=0.2)
        assert eight["low_s"] < eight["predicted_s"] < eight["high_s"]
    (law,) = found["epochs_to_target"]  # a rate that stays learns alike under both rules
    assert law["rules"] == ["strong", "weak"]
    assert law["critical_batch_size"] == pytest.approx(400, rel=0.01)
    assert law["critical_low"] < 400 < law["critical_high"]
    assert predict(to_a_target(tmp_path / "again", (1, 2), (32, 64), 0.0), [4], "epoch_s")["value"] == "epoch_s"
    four, eight = found["soonest_to_target"]
    best = min((true_to_target_s(8, 2**k), 2**k) for k in range(5, 12))
    assert eight["global_batch_size"] in (best[1] / 2, best[1], best[1] * 2)
    assert eight["predicted_s"] == pytest.approx(best[0], rel=0.2)
    assert (four["ran"], eight["ran"]) == (True, False)
    page = prediction_page(found)
    assert "trials end at their target: time_to_target_s stands for wall_s" in page
    assert "soonest to the target on 8" in page
    assert max(map(len, page.splitlines())) <= 118
    assert json.loads(json.dumps(found)) == found


def test_the_intervals_of_times_to_a_target_cover_what_was_left_out(tmp_path: Path) -> None:
    covered, missed = [], []
    for seed in range(6):
        found = predict(to_a_target(tmp_path, (1, 2, 4), (64, 128, 256), 0.1, seed), [8])
        random = np.random.default_rng(100 + seed)
        for table in found["tables"]:
            (row,), config = table["rows"], table["config"]
            whole = config["batch_size"] * (8 if config["scaling"] == "weak" else 1)
            seconds = true_to_target_s(8, whole) * float(np.exp(0.1 * random.standard_normal()))
            covered.append(row["low_s"] <= seconds <= row["high_s"])
            missed.append(abs(row["predicted_s"] / true_to_target_s(8, whole) - 1))
    assert 0.65 <= mean(covered) <= 0.97
    assert median(missed) < 0.1


def test_what_a_job_costs_once_is_not_counted_for_every_epoch(tmp_path: Path) -> None:
    configs = [(n, epochs, batch) for n in (1, 2, 4) for epochs in (5, 20) for batch in (32, 64, 128)]
    records = [
        record(
            k, config={"epochs": epochs, "batch_size": batch, "devices": n}, scores={"epochs_to_target": 40.0},
            times={"wall_s": 50 + epochs * 8 / n}, last={},
        )
        for k, (n, epochs, batch) in enumerate(configs)
    ]  # fmt: skip
    found = predict(Results.load(write_run(tmp_path / "run", a=records)), [2])
    for table in found["tables"]:
        assert table["rows"][0]["to_target_s"] == pytest.approx(50 + 40 * 4, rel=0.08)


def test_with_one_batch_size_epochs_are_known_there_and_wide_open_elsewhere(tmp_path: Path) -> None:
    found = predict(to_a_target(tmp_path, (1, 2), (64,), 0.0), [1, 16])
    tables = {t["config"].get("scaling", "strong"): t["rows"] for t in found["tables"]}
    wide = [(row["high_s"] - row["low_s"]) / row["predicted_s"] for row in tables["weak"]]
    assert wide[0] < 0.7
    assert wide[1] > 2 * wide[0]


def test_trials_that_never_reached_the_target_are_told(tmp_path: Path) -> None:
    results = to_a_target(tmp_path, (1, 2), (32, 64), 0.0)
    lost = record(90, state="stopped", reason="max_epochs 9 without the target", times={"epoch_s": [1.0]}, scores={})
    write_run(results.folder.path, b=[lost])
    found = predict(Results.load(results.folder.path), [4])
    assert found["without_target"] == 1
    assert "1 trials never reached the target" in prediction_page(found)


def by_devices(path: Path, counts: Sequence[int], time: str = "wall_s") -> Results:
    rows = [
        record(
            k,
            config={"devices": n},
            last={},
            scores={},
            times={time: [90 / n + 10] if time == "epoch_s" else 90 / n + 10},
        )
        for k, n in enumerate(counts)
    ]
    return Results.load(write_run(path / "run", a=rows))


@pytest.mark.parametrize("time", ["epoch_s", "train_s"])
def test_the_time_that_is_there_is_predicted(tmp_path: Path, time: str) -> None:
    by_devices(tmp_path, (1, 2, 4), time)
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), "--devices", "4", "--json"])
    found = json.loads(done.stdout)
    assert (found["value"], found["tables"][0]["rows"][0]["measured_s"]) == (time, 32.5)
    with pytest.raises(Mistake, match="pack_wall_s: found no such time"):
        predict(Results.load(tmp_path / "run"), [4], "pack_wall_s")


def test_two_device_counts_are_two_points_with_an_interval_and_no_verdict(tmp_path: Path) -> None:
    results = by_devices(tmp_path, (1, 2))
    (table,) = predict(results, [1, 2, 4, 8])["tables"]
    assert (table["points"], table["verdict"], table["enough_devices"]) == (2, False, None)
    widths = [(row["high_s"] - row["low_s"]) / row["predicted_s"] for row in table["rows"]]
    assert widths[3] > widths[2] > widths[1] > 0
    page = prediction_page(predict(results, [1, 2, 4, 8]))
    assert "two points: no verdict; measure 4 devices next" in page
    assert "pay" not in page
    told = {item.topic: item for item in advise(results)}["devices per network"]
    assert "2 are 1.82 times as fast as 1" in told.text
    assert "Two points are no law: measure 4 devices too" in told.text
    assert (told.sure, "beat" in told.text) == ("weak", False)


def test_of_one_device_count_only_what_was_measured_is_said(tmp_path: Path) -> None:
    results = by_devices(tmp_path, (1, 1))
    found = predict(results, [1, 2, 8])
    assert [
        (row["devices"], row["measured_s"], row["predicted_s"], row["n"]) for row in found["tables"][0]["rows"]
    ] == [(1, 100.0, None, 2)]
    page = prediction_page(found)
    assert "1 device: 100 s measured (n = 2)" in page
    assert "one point: no verdict; measure 2 and 4 devices next" in page


def test_a_difference_within_the_noise_of_single_times_is_no_verdict(tmp_path: Path) -> None:
    rows = [
        record(k, config={"devices": n}, last={}, scores={}, times={"epoch_s": [seconds]})
        for k, (n, seconds) in enumerate([(1, 0.24), (2, 0.215), (4, 0.23)])
    ]
    told = {item.topic: item for item in advise(Results.load(write_run(tmp_path / "run", a=rows)))}
    assert (told["devices per network"].sure, told["devices per network"].claim.sign) == ("weak", 0)
    low, high = told["devices per network"].claim.interval or (0, 0)
    assert low < 1 < high
    assert "No config is quicker than another beyond chance" in told["most networks per hour"].text
