"""Storms from files in NCAR's layout: what is read, how it is labelled and split, and what is refused."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli

from tradewind.errors import DataError
from tradewind.workloads.patches import load_patches
from tradewind.workloads.storm import CHANNELS, Storm

netCDF4 = pytest.importorskip("netCDF4")  # noqa: N816 (its own name)
LABEL = "RVORT1_MAX_future"
SIDE = 32
SHARED = Path(os.environ.get("TRADEWIND_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
SSEF = SHARED / "SSEF_20150604-0000_wrf-s3cn_arw_model_patches.nc"

Change = Callable[[Path, Path], None]


def write_run(folder: Path, day: str, count: int = 24, **fields: Any) -> tuple[Path, Path]:
    """One model run: patches and steps, as NCAR's files name and lay them out."""
    rng = np.random.default_rng(int(day))
    path = folder / f"NCARSTORM_{day}-0000_d01_model_patches.nc"
    date = f"{day[:4]}-{day[4:6]}-{day[6:]}"
    masks = np.zeros((count, SIDE, SIDE), np.int32)
    masks[:, 12:20, 12:20] = 1
    values = {name: rng.normal(5, 2, (count, SIDE, SIDE)).astype(np.float32) for name in CHANNELS}
    values[LABEL] = rng.uniform(0, 0.006, (count, SIDE, SIDE)).astype(np.float32)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("p", count), ("row", SIDE), ("col", SIDE)):
            file.createDimension(name, size)
        time = file.createVariable("time", "i4", ("p",))
        time.units, time[:] = f"hours since {date} 00:00:00", 12 + np.arange(count) % 24
        file.createVariable("masks", "i4", ("p", "row", "col"))[:] = masks
        for name, value in {**values, **fields}.items():
            file.createVariable(name, "f4", ("p", "row", "col"), zlib=True, shuffle=True)[:] = value
    steps = folder / f"track_step_NCARSTORM_d01_{day}-0000.csv"
    with open(steps, "w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["Step_ID", "Valid_Date"])
        for k in range(count):
            days, hour = divmod(12 + k % 24, 24)
            writer.writerow([f"s{k}", f"{date[:8]}{int(date[8:]) + days:02d} {hour:02d}:00:00"])
    return path, steps


def test_every_patch_is_read_in_order_with_its_channels_and_hours(tmp_path: Path) -> None:
    first, _ = write_run(tmp_path, "20110427")
    write_run(tmp_path, "20160505", count=10)
    patches = load_patches(tmp_path, CHANNELS, LABEL)
    assert patches.inputs.shape == (34, SIDE, SIDE, 3)
    with netCDF4.Dataset(first) as file:
        for channel, name in enumerate(CHANNELS):
            np.testing.assert_array_equal(patches.inputs[:24, :, :, channel], file[name][:])
    assert (patches.hours[1] - patches.hours[0], patches.hours[24] - patches.hours[0]) == (1.0, 1835 * 24.0)


def test_a_label_follows_its_rule(tmp_path: Path) -> None:
    field = np.full((4, SIDE, SIDE), 0.001, np.float32)
    field[0, 0, 0] = 0.009  # outside the storm
    field[1, 15, 15] = 0.006  # one cell inside
    field[2, 12:20, 12:20] = 0.0085  # the whole storm
    write_run(tmp_path, "20110427", count=4, **{LABEL: field})
    patches = load_patches(tmp_path, CHANNELS, LABEL)
    assert patches.labels("masked max", 0.005).tolist() == [0, 1, 1, 0]
    assert patches.labels("masked mean", 0.008).tolist() == [0, 0, 1, 0]
    assert patches.labels("patch max", 0.008).tolist() == [1, 0, 1, 0]


def test_storms_before_the_date_train_and_are_what_standardises(tmp_path: Path) -> None:
    write_run(tmp_path, "20110427")
    later = np.random.default_rng(1).normal(100, 2, (24, SIDE, SIDE)).astype(np.float32)
    write_run(tmp_path, "20160505", REFL_COM_curr=later)
    data = Storm(source="files", folder=str(tmp_path), validation=4).data({"data_seed": 0})
    assert data.validation is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (20, 4, 24)
    assert data.vectors == ((1, 2),)
    means = data.train.inputs.mean(axis=(0, 2, 3))
    assert abs(means[0]) < 1e-4  # reflectivity is centred
    assert means[1] > 0.5  # wind keeps its zero
    assert data.test.inputs[:, 0].mean() > 40  # by the training part's mean and spread


def test_a_users_own_date_says_which_storms_validate(tmp_path: Path) -> None:
    for day, level in (("20110427", 0.0), ("20130601", 50.0), ("20160505", 90.0)):
        write_run(
            tmp_path, day, REFL_COM_curr=np.full((24, SIDE, SIDE), level, np.float32) + np.eye(SIDE, dtype="f4")
        )
    options = {"source": "files", "folder": str(tmp_path), "validate_from": "2013-01-01"}
    data = Storm(**options).data({"data_seed": 3})
    assert data.validation is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (24, 24, 24)
    assert data.train.inputs[:, 0].mean() < data.validation.inputs[:, 0].min() < data.test.inputs[:, 0].min()
    few = Storm(**options, validation=5).data({"data_seed": 3})
    assert few.validation is not None
    assert (len(few.train), len(few.validation)) == (24, 5)
    with pytest.raises(DataError, match=r"validate_from: found '2015-06-01'; allowed: a date earlier than before"):
        Storm(**{**options, "validate_from": "2015-06-01"})


def test_what_was_read_once_comes_from_the_cache_until_a_file_changes(tmp_path: Path) -> None:
    path, _ = write_run(tmp_path, "20110427")
    before = load_patches(tmp_path, CHANNELS, LABEL).inputs.filename
    assert load_patches(tmp_path, CHANNELS, LABEL).inputs.filename == before
    path.unlink()
    write_run(tmp_path, "20110427", count=30)
    assert len(load_patches(tmp_path, CHANNELS, LABEL).inputs) == 30


def _hole(path: Path, _: Path) -> None:
    with netCDF4.Dataset(path, "a") as file:
        file["U10_curr"][3, 5, 7] = np.nan


def _truncate(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _rows(_: Path, steps: Path) -> None:
    steps.write_text("".join(steps.read_text().splitlines(keepends=True)[:-1]))


def _date(_: Path, steps: Path) -> None:
    steps.write_text(steps.read_text().replace("2011-04-27 14:00:00", "2011-04-27 15:00:00"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_hole, ["model_patches.nc: U10_curr: 1 values are missing, the first at (3, 5, 7)"]),
        (_truncate, ["model_patches.nc: can't be read, it may be truncated"]),
        (_rows, ["track_step", "23 rows, but", "holds 24 patches"]),
        (_date, ["track_step", "row 2: Valid_Date 2011-04-27 15:00:00, but", "says 2011-04-27 14:00:00"]),
    ],
)
def test_a_fault_is_named_with_its_file_and_variable(tmp_path: Path, change: Change, said: list[str]) -> None:
    change(*write_run(tmp_path, "20110427"))
    with pytest.raises(DataError) as refused:
        load_patches(tmp_path, CHANNELS, LABEL)
    for words in said:
        assert words in str(refused.value)


def test_a_missing_variable_is_named_with_the_nearest(cli: Cli, tmp_path: Path) -> None:
    write_run(tmp_path, "20110427")
    answer = cli("data", "storms", "--from", tmp_path, "--channels", "REFL_COMM_curr")
    assert answer.returncode == 2
    assert "no variable 'REFL_COMM_curr'; did you mean 'REFL_COM_curr'?" in answer.stderr


def test_the_command_imports_and_draws(cli: Cli, tmp_path: Path) -> None:
    write_run(tmp_path, "20110427")
    write_run(tmp_path, "20160505")
    answer = cli("data", "storms", "--from", tmp_path, "--look", "storms.png")
    assert answer.returncode == 0, answer.stderr
    assert [line.split()[:2] for line in answer.stdout.splitlines()[1:4]] == [
        ["train", "21"], ["validation", "3"], ["test", "24"],
    ]  # fmt: skip
    assert (tmp_path / "storms.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.skipif(not SSEF.exists(), reason=f"no {SSEF}")
def test_the_real_patches_of_ssef_are_read() -> None:
    storm = Storm(
        source="files", folder=str(SHARED), channels=["REFL_COM_curr"], label="UP_HELI_MAX_future",
        threshold=75.0, before="2015-06-04 18:30", validation=0,
    )  # fmt: skip
    data = storm.data({"data_seed": 0})
    assert (len(data.train), len(data.test), data.validation) == (1468, 981, None)
    assert 0.03 < data.train.targets.mean() < 0.05


@pytest.mark.slow
@pytest.mark.skipif(not SSEF.exists(), reason=f"no {SSEF}")
def test_the_storm_network_beats_logistic_regression_on_real_patches(tmp_path: Path) -> None:
    import tradewind

    data = {"source": "files", "folder": str(SHARED), "channels": ["REFL_COM_curr"], "label": "UP_HELI_MAX_future"}
    split = {"threshold": 74.99, "before": "2015-06-04 18:30", "validation": 0}
    fixed = {"epochs": 25, "batch_size": 64, "dropout": 0.5, "weight_decay": 0.0001}
    study = tradewind.Study(name="ssef", workload="storm", data={**data, **split}, fixed=fixed, repeats=3)
    aucs = tradewind.run(study, tmp_path / "run").column("auc")
    assert np.median(aucs) >= 0.888  # 40 principal components and logistic regression on the same split
