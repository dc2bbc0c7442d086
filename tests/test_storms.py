"""The synthetic storms: like NCAR's in their statistics, as hard to tell apart, the same however they are made."""

from __future__ import annotations

import csv
import dataclasses
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tradewind import machine
from tradewind.errors import DataError
from tradewind.workloads import storms, supercell
from tradewind.workloads.networks import StormNetwork
from tradewind.workloads.scores import binary_scores
from tradewind.workloads.shapes import connected
from tradewind.workloads.storm_files import COLUMNS, RUN_DATES, plan_runs, write_runs
from tradewind.workloads.storms import FIELDS, INPUTS, make_storms

Array = np.ndarray[Any, Any]

# of NCAR's training storms, mean and spread: over all cells, and of the means over each storm's object
CELLS = {"REFL_COM": (22.69, 15.76), "U10": (-0.29, 4.67), "V10": (0.84, 5.03), "T2": (290.34, 7.61)}
OBJECTS = {"REFL_COM": (46.85, 3.98), "U10": (0.45, 4.35), "V10": (0.54, 4.46), "T2": (289.41, 6.93)}
EXPLAINED = {1: 0.443, 2: 0.528, 3: 0.600, 4: 0.651, 5: 0.691, 6: 0.728, 8: 0.760, 10: 0.786, 15: 0.835}
# first and last edge of 50 bins, and the share of cells in each, in 1/10,000
HISTOGRAMS = {
    "REFL_COM": (
        *(0.03, 80.53),
        "1951 118 129 150 161 182 193 214 225 247 257 268 279 289 300 311 332 354 375 397 418 429 439 418 364 289 "
        "225 161 129 96 64 54 43 32 32 21 21 11 11 11" + " 0" * 10,
    ),
    "U10": (
        *(-28.86, 33.84),
        "0 0 0 0 0 0 0 6 6 6 6 12 24 42 78 145 247 392 579 766 954 1098 1104 1044 935 754 585 428 296 193 121 72 42 "
        "24 12 6 6 6 6" + " 0" * 11,
    ),
    "V10": (
        *(-40.66, 31.85),
        "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 6 6 13 32 58 102 173 269 403 557 729 896 1024 1113 1171 1062 864 621 403 243 "
        "134 70 32 13 6" + " 0" * 10,
    ),
}
# how many patches have their greatest vorticity up to 0.000498 /s, and from there every 0.00049 /s
PATCH_MAXIMA = (0.0193, 0.0656, 0.1583, 0.2895, 0.4324, 0.5636, 0.6717, 0.7528, 0.8145, 0.857, 0.8917, 0.9188, 0.9381)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads beside another busy process wait for each other."""
    with machine.one_thread():
        yield


@pytest.fixture(scope="module")
def sample() -> dict[str, Array]:
    """Every field of 8,192 storms, and their labels."""
    values, labels = make_storms(8192, 0, fields=FIELDS)
    fields = {name.removesuffix("_curr"): values[..., place] for place, name in enumerate(FIELDS)}
    return {**fields, "labels": labels, "inside": fields["masks"] > 0}


class Comparison:
    """Generated and NCAR's numbers side by side; each may differ so far."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        print(f"\n{'':28}{'synthetic':>11}{'NCAR':>11}")

    def line(self, name: str, found: float, known: float, allowed: float) -> None:
        near = abs(found - known) <= allowed
        print(f"{name:28}{found:11.5g}{known:11.5g}{'' if near else '  <-- too far'}")
        self.wrong += [] if near else [f"{name}: {found:.5g}, not {known:.5g} ± {allowed:.2g}"]


def object_means(field: Array, inside: Array) -> Array:
    means: Array = (field * inside).sum(axis=(1, 2)) / inside.sum(axis=(1, 2))
    return means


def object_maxima(field: Array, inside: Array) -> Array:
    maxima: Array = np.where(inside, field, -np.inf).max(axis=(1, 2))
    return maxima


def auc(labels: Array, values: Array) -> float:
    return binary_scores(torch.from_numpy(np.asarray(values, np.float64)), torch.from_numpy(labels))["auc"]


def test_cells_and_objects_have_ncars_means_and_spreads(sample: dict[str, Array]) -> None:
    table = Comparison()
    for name, (mean, spread) in CELLS.items():
        table.line(f"{name}, cells, mean", sample[name].mean(dtype=np.float64), mean, 0.4)
        table.line(f"{name}, cells, spread", sample[name].std(dtype=np.float64), spread, 0.35)
    for name, (mean, spread) in OBJECTS.items():
        means = object_means(sample[name], sample["inside"])
        table.line(f"{name}, objects, mean", means.mean(dtype=np.float64), mean, 0.4)
        table.line(f"{name}, objects, spread", means.std(dtype=np.float64), spread, 0.35)
    assert not table.wrong
    assert sample["REFL_COM"].min() == 0
    assert sample["REFL_COM"].max() <= 78


def test_cells_are_spread_over_their_range_as_ncars(sample: dict[str, Array]) -> None:
    table = Comparison()
    for name, (low, high, shares) in HISTOGRAMS.items():
        known = np.array(shares.split(), float) / sum(map(int, shares.split()))
        edges = np.array([-np.inf, *np.linspace(low, high, 51)[1:-1], np.inf])
        found = np.histogram(sample[name], edges)[0] / sample[name].size
        assert known.shape == (50,)
        for tenth in range(10):
            part = slice(5 * tenth, 5 * tenth + 5)
            edge = low + (high - low) * tenth / 10
            table.line(f"{name}, share from {edge:.1f}", found[part].sum(), known[part].sum(), 0.03)
        assert np.abs(found - known).sum() / 2 < 0.07, f"{name}: this share of cells is in other bins"
    assert not table.wrong


def test_reflectivity_has_ncars_principal_components(sample: dict[str, Array]) -> None:
    flat = sample["REFL_COM"].reshape(len(sample["labels"]), -1).astype(np.float64)
    powers = np.linalg.eigvalsh(np.cov(flat.T))[::-1]
    explained = np.cumsum(powers) / powers.sum()
    table = Comparison()
    for number, known in EXPLAINED.items():
        table.line(f"{number} components explain", explained[number - 1], known, 0.025)
    assert not table.wrong


def test_the_next_hours_vorticity_is_spread_as_ncars(sample: dict[str, Array]) -> None:
    field = sample["RVORT1_MAX_future"]
    inside, patch = object_maxima(field, sample["inside"]), field.max(axis=(1, 2))
    table = Comparison()
    table.line("share above 0.005 /s", sample["labels"].mean(), 0.0482, 0.008)
    table.line("object maxima, spread", inside.std(), 0.00152, 0.0002)
    table.line("object maxima, 90 %", np.quantile(inside, 0.9), 0.00385, 0.0003)
    table.line("object maxima, 95.448 %", np.quantile(inside, 0.95448), 0.005, 0.0004)
    table.line("patch maxima above 0.008 /s", (patch > 0.008).mean(), 0.0252, 0.008)
    table.line("patch maxima, greatest", patch.max(), 0.0245, 0.008)
    for number, known in enumerate(PATCH_MAXIMA):
        edge = 0.000498 + 0.00049 * number
        table.line(f"patch maxima up to {edge:.4f}", (patch <= edge).mean(), known, 0.035)
    assert not table.wrong
    assert field.min() >= 0


def test_the_label_is_that_of_the_masked_vorticity(sample: dict[str, Array]) -> None:
    expected = object_maxima(sample["RVORT1_MAX_future"], sample["inside"]) > 0.005
    np.testing.assert_array_equal(sample["labels"], expected.astype(np.float32))


def test_every_object_is_one_piece_of_at_least_4_cells_of_40_dbz(sample: dict[str, Array]) -> None:
    from scipy import ndimage

    inside = sample["inside"]
    assert inside.sum(axis=(1, 2)).min() >= 4
    assert inside[:, 15:17, 15:17].all()
    assert sample["REFL_COM"][inside].min() >= 40
    assert {ndimage.label(storm, np.ones((3, 3)))[1] for storm in inside[:1000]} == {1}


def test_cells_found_row_by_row_are_those_that_scipy_labels() -> None:
    from scipy import ndimage

    rng = np.random.default_rng(0)
    near = np.hypot(*np.mgrid[-16:16, -16:16]) < 7
    fields = (rng.random((300, 32, 32)) < rng.uniform(0.2, 0.9, (300, 1, 1))) & near
    fields[:, 15, 15] = True
    expected = []
    for field in fields:
        pieces, _ = ndimage.label(field, np.ones((3, 3)))
        expected.append(np.isin(pieces, np.setdiff1d(pieces[15:17, 15:17], 0)))
    found = connected(torch.from_numpy(fields)).numpy()
    same = (found == np.array(expected)).all(axis=(1, 2))
    assert same.mean() > 0.98  # paths of more than 20 steps wind through noise, not through storms
    assert not (found & ~np.array(expected)).any()


def test_storms_are_the_same_in_any_pieces_and_with_any_fields() -> None:
    inputs, labels = make_storms(700, 3)
    for first, count in ((0, 1), (1, 300), (255, 2), (301, 399)):
        part, part_labels = make_storms(count, 3, first=first)
        np.testing.assert_array_equal(part, inputs[first : first + count])
        np.testing.assert_array_equal(part_labels, labels[first : first + count])
    everything, same_labels = make_storms(700, 3, fields=FIELDS)
    np.testing.assert_array_equal(everything[..., :3], inputs)
    np.testing.assert_array_equal(same_labels, labels)
    assert np.abs(make_storms(300, 4)[0] - inputs[:300]).max(axis=(1, 2, 3)).min() > 1
    far, _ = make_storms(2, 3, first=10**9)
    assert np.abs(far - inputs[:2]).max() > 1


def test_storms_are_the_same_with_any_number_of_threads() -> None:
    alone, _ = make_storms(600, 3, fields=FIELDS)
    torch.set_num_threads(2)
    together, _ = make_storms(600, 3, fields=FIELDS)
    torch.set_num_threads(1)
    np.testing.assert_array_equal(together, alone)


def test_the_size_of_chunks_changes_no_more_than_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = make_storms(512, 5, fields=FIELDS)
    monkeypatch.setitem(storms._CHUNK, "cpu", 96)
    again, again_labels = make_storms(512, 5, fields=FIELDS)
    same = (inputs[..., 4] == again[..., 4]).all(axis=(1, 2))
    assert same.mean() > 0.99  # a cell at 40 dBZ may join or leave an object
    np.testing.assert_allclose(again[same], inputs[same], atol=2e-3)
    np.testing.assert_array_equal(again_labels[same], labels[same])


def test_inflow_and_vigour_feed_rotation_and_outflow_undercuts_it() -> None:
    state = supercell.hidden_state(0, torch.arange(256))
    state = dataclasses.replace(state, spin=state.spin.abs())
    echo = supercell.reflectivity(state)

    def later(**changes: torch.Tensor) -> torch.Tensor:
        return supercell.next_vorticity(dataclasses.replace(state, **changes), echo).amax(dim=(1, 2))

    usual = later()
    assert (later(inflow=state.inflow + 2) >= usual).all()
    assert (later(vigour=state.vigour + 1) > usual).all()
    assert (later(outflow=state.outflow * 2) <= usual).all()
    assert (later(spin=-state.spin) < usual).float().mean() > 0.8  # anticyclones turn the other way


def test_the_wind_turns_around_rotating_storms_but_does_not_give_them_away() -> None:
    inputs, labels = make_storms(6000, 1)
    vorticity = np.gradient(inputs[..., 2], 3000.0, axis=2) - np.gradient(inputs[..., 1], 3000.0, axis=1)
    assert 0.75 < auc(labels, vorticity.max(axis=(1, 2))) < 0.88
    assert auc(labels, -vorticity.min(axis=(1, 2))) < 0.75
    assert auc(labels, inputs[..., 0].max(axis=(1, 2))) < 0.88


def test_what_cannot_be_made_says_what_is_allowed() -> None:
    with pytest.raises(DataError, match="fields: found 'U10_cur'; did you mean 'U10_curr'"):
        make_storms(1, 0, fields=["U10_cur"])
    if not torch.cuda.is_available():
        with pytest.raises(DataError, match="device: found 'cuda', but there is no CUDA device"):
            make_storms(1, 0, device="cuda")


def standardised(values: Array, train: int) -> Array:
    axes = tuple(range(values.ndim - 1))
    scaled: Array = (values - values[:train].mean(axis=axes)) / values[:train].std(axis=axes)
    return scaled


def logistic_auc(means: Array, labels: Array, train: int) -> float:
    """Of logistic regression on a few means, on the storms after the first `train`."""
    inputs, targets = torch.from_numpy(standardised(means, train)).float(), torch.from_numpy(labels)
    model = torch.nn.Linear(means.shape[1], 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = functional.binary_cross_entropy_with_logits(model(inputs[:train])[:, 0], targets[:train])
        value.backward()
        return value

    optimizer.step(loss)
    return auc(labels[train:], model(inputs[train:])[:, 0].detach().numpy())


def network_auc(inputs: Array, labels: Array, train: int, epochs: int, lr: float = 0.001) -> float:
    """Of the storm network at batch 128, on the storms after the first `train`."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images = torch.from_numpy(standardised(inputs, train)).permute(0, 3, 1, 2).to(device)
    targets = torch.from_numpy(labels).to(device)
    network = StormNetwork(channels=inputs.shape[3]).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    for _ in range(epochs):
        for batch in torch.randperm(train).to(device).split(128):
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(network(images[batch]), targets[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        outputs = torch.cat([network(part) for part in images[train:].split(2048)])
    return auc(labels[train:], outputs.cpu().numpy())


def four_means(values: Array) -> Array:
    """Of reflectivity, wind and temperature over each storm's object, as the course's small network has them."""
    inside = values[..., 4] > 0
    return np.stack([object_means(values[..., channel], inside) for channel in range(4)], axis=1)


def test_a_little_training_beats_what_four_means_tell() -> None:
    train = 10_000
    values, labels = make_storms(train + 6000, 11, fields=FIELDS[:5])
    logistic = logistic_auc(four_means(values), labels, train)
    network = network_auc(values[..., :3], labels, train, epochs=4, lr=0.002)
    print(f"AUC: four means {logistic:.3f}, network {network:.3f}")
    assert 0.85 < logistic < 0.91
    assert logistic + 0.01 < network < 0.97


@pytest.mark.slow
def test_full_size_storms_are_as_hard_as_ncars() -> None:
    train, test = 76_377, 44_760
    began = time.perf_counter()
    make_storms(train + test, 0)
    made_s = (time.perf_counter() - began) * 183_723 / (train + test)
    values, labels = make_storms(train + test, 0, fields=FIELDS[:5])
    logistic = logistic_auc(four_means(values), labels, train)
    network = network_auc(values[..., :3], labels, train, epochs=6)
    reflectivity = network_auc(values[..., :1], labels, train, epochs=6)
    print(f"{made_s:.1f} s; AUC: four means {logistic:.4f}, network {network:.4f}, without wind {reflectivity:.4f}")
    assert made_s < 60
    assert 0.86 < logistic < 0.90
    assert 0.93 < network < 0.97
    assert reflectivity < network - 0.02


@pytest.mark.gpu
def test_a_gpu_makes_the_same_storms() -> None:
    here, labels = make_storms(9000, 2, fields=FIELDS)
    there, there_labels = make_storms(9000, 2, device="cuda", fields=FIELDS)
    same = (here[..., 4] == there[..., 4]).all(axis=(1, 2))
    assert same.mean() > 0.99  # a cell at 40 dBZ may join or leave an object
    np.testing.assert_allclose(there[..., [0, 1, 2, 3, 5, 6]], here[..., [0, 1, 2, 3, 5, 6]], atol=5e-3)
    near = np.abs(object_maxima(here[..., 5], here[..., 4] > 0) - 0.005) < 1e-6
    np.testing.assert_array_equal(there_labels[same & ~near], labels[same & ~near])
    np.testing.assert_array_equal(make_storms(300, 2, "cuda", 8000, FIELDS)[0], there[8000:8300])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 storms in 3 runs."""
    pytest.importorskip("netCDF4")
    folder = tmp_path_factory.mktemp("runs")
    written = write_runs(folder, 300, seed=7, runs=3)
    assert sorted(written) == sorted(folder.iterdir())
    return folder


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_runs_are_spread_over_the_years_as_ncars() -> None:
    runs = plan_runs(121_137)
    assert [run.date for run in runs] == list(RUN_DATES)
    assert len(RUN_DATES) == 100
    assert sum(run.count for run in runs if run.date < "2015") == 76_377
    assert [run.first for run in runs[1:]] == np.cumsum([run.count for run in runs])[:-1].tolist()
    assert [(run.date[:4] < "2015", run.count) for run in plan_runs(10, 3)] == [(True, 3), (True, 3), (False, 4)]
    assert sum(run.count for run in plan_runs(2)) == 2
    with pytest.raises(DataError, match="runs: found 3 for 2 storms; allowed: 1 to 100, a storm in each"):
        plan_runs(2, 3)


def test_files_hold_the_storms_that_arrays_hold(runs: Path) -> None:
    import netCDF4

    values, labels = make_storms(300, 7, fields=FIELDS)
    files = sorted(runs.glob("*.nc"))
    assert [path.name[:19] for path in files] == ["NCARSTORM_20110625-", "NCARSTORM_20140328-", "NCARSTORM_20160415-"]
    first = 0
    found = []
    for path in files:
        with netCDF4.Dataset(path) as file:
            here = slice(first, first + len(file.dimensions["p"]))
            for place, name in enumerate(FIELDS):
                np.testing.assert_array_equal(file[name][:], values[here, ..., place])
        rows = table_of(runs / f"track_step_NCARSTORM_d01_{path.name[10:23]}.csv")
        assert len(rows) == here.stop - here.start
        found += [float(row["RVORT1_MAX-future_max"]) for row in rows]
        first = here.stop
    assert first == 300
    exact = object_maxima(values[..., 5], values[..., 4] > 0)
    np.testing.assert_allclose(found, exact, atol=5.01e-6)
    clear = np.abs(exact - 0.005) > 5e-6  # the five digits of the table do not tell others from 0.005
    np.testing.assert_array_equal((np.array(found) > 0.005)[clear], labels[clear] > 0)
    assert labels.sum() > 5


def test_the_storm_workload_reads_the_files_as_it_reads_the_arrays(runs: Path) -> None:
    from tradewind.workloads.patches import load_patches
    from tradewind.workloads.storm import CHANNELS, Storm

    inputs, labels = make_storms(300, 7)
    patches = load_patches(runs, CHANNELS, "RVORT1_MAX_future")
    np.testing.assert_array_equal(patches.inputs, inputs)
    np.testing.assert_array_equal(patches.labels("masked max", 0.005), labels)
    data = Storm(source="files", folder=str(runs), validation=9).data({"data_seed": 0})
    assert data.validation is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (180, 9, 111)
    parts = (data.train, data.validation, data.test)
    assert sum(part.targets.sum() for part in parts) == labels.sum()


def test_a_files_variables_are_ncars(runs: Path) -> None:
    import netCDF4

    cells = ("lon", "lat", "i", "j", "x", "y", "masks", *FIELDS[:4], *FIELDS[5:])
    whole = {"p", "row", "col", "i", "j", "masks", "time", "track_id", "track_step"}
    with netCDF4.Dataset(min(runs.glob("*.nc"))) as file:
        assert (file.Conventions, file.object_variable, file.data_model) == ("CF-1.6", "REFL_COM", "NETCDF4")
        assert file.title == "NCARSTORM Storm Patches for run 20110625-0000 member d01"
        assert " ".join(file.variables) == (
            "p row col lon lat i j x y masks time centroid_lon centroid_lat centroid_i centroid_j track_id "
            "track_step REFL_COM_curr U10_curr V10_curr T2_curr RVORT1_MAX_future HAIL_MAXK1_future"
        )
        for name, variable in file.variables.items():
            assert variable.dtype == (np.int32 if name in whole else np.float32)
            assert (
                variable.dimensions
                == ((name,) if name in ("p", "row", "col") else ("p", "row", "col"))[: 3 if name in cells else 1]
            )
            packed = (variable.filters()["zlib"], variable.filters()["shuffle"], variable.filters()["complevel"])
            assert packed == ((False, False, 0) if name in ("p", "row", "col") else (True, True, 1))
            assert variable.ncattrs() == ([] if name in ("p", "row", "col") else ["long_name", "units"])
        assert file["RVORT1_MAX_future"].long_name == "RVORT1_MAX"
        assert (file["time"].units, file["x"].units) == ("hours since 2011-06-25 00:00:00", "m")
        assert file["p"][:].tolist() == list(range(len(file.dimensions["p"])))
        for name in ("lon", "lat", "i", "j"):
            np.testing.assert_array_equal(file[f"centroid_{name}"][:], file[name][:, 16, 16])


def test_places_lie_on_the_models_lambert_grid(runs: Path) -> None:
    import netCDF4

    from tradewind.workloads.storm_files import _grid

    x, y, longitude, latitude = _grid()
    assert (longitude[0, 0], latitude[0, 0]) == pytest.approx((-120.81058, 23.159264), abs=1e-5)
    assert (longitude[-1, -1], latitude[-1, -1]) == pytest.approx((-65.02124, 46.88567), abs=1e-4)
    # a storm of the real run of 27 April 2011: -93.07239 E, 33.72106 N at x = 729,842.66 m, y = -478,284.43 m
    column, row = (729_842.66 - x[0]) / 3000, (-478_284.43 - y[0]) / 3000
    i, j = int(row), int(column)
    assert latitude[i, j] <= 33.72106 <= latitude[i + 1, j]
    assert longitude[i, j] <= -93.07239 <= longitude[i, j + 1]
    with netCDF4.Dataset(min(runs.glob("*.nc"))) as file:
        i, j = file["i"][:], file["j"][:]
        assert (np.diff(i, axis=1) == 1).all()
        assert (np.diff(j, axis=2) == 1).all()
        assert i.min() >= 0
        assert j.min() >= 0
        np.testing.assert_allclose(file["x"][:], x[j], rtol=1e-6)
        np.testing.assert_allclose(file["y"][:], y[i], rtol=1e-6)
        np.testing.assert_array_equal(file["lat"][:], latitude[i, j])


def test_tracks_go_on_hour_by_hour_and_carry_their_names(runs: Path) -> None:
    import netCDF4

    path = min(runs.glob("*.nc"))
    rows = table_of(runs / "track_step_NCARSTORM_d01_20110625-0000.csv")
    with netCDF4.Dataset(path) as file:
        facts = [file[name][:].tolist() for name in ("time", "track_id", "track_step", "centroid_i", "centroid_j")]
    ends = {track: hour for hour, track in zip(*facts[:2], strict=True)}
    before: tuple[Any, ...] = (0, -1, 0, 0, 0)
    for row, now in zip(rows, zip(*facts, strict=True), strict=True):
        hour, track, step, i, j = now
        assert 12 <= hour <= 35
        name = f"d01_REFL_COM_20110625-0000_{hour - step + 1:02d}_{ends[track]:02d}_{track:03d}"
        assert (row["Track_ID"], row["Step_ID"]) == (name, f"{name}_{step - 1:02d}")
        assert (int(row["Forecast_Hour"]), int(row["Valid_Hour_UTC"]), int(row["Duration"])) == (
            hour,
            hour % 24,
            step,
        )
        valid = datetime.fromisoformat(row["Valid_Date"]) - datetime.fromisoformat(row["Run_Date"])
        assert valid.total_seconds() == 3600 * hour
        if step == 1:
            assert track == before[1] + 1
        else:
            assert (hour, track, step) == (before[0] + 1, before[1], before[2] + 1)
            assert float(row["Storm_Motion_U"]) == 3000 * (j - before[4])
            assert float(row["Storm_Motion_V"]) == 3000 * (i - before[3])
        before = now
    assert max(facts[2]) > 1


def test_the_tables_columns_are_what_numpy_says_of_each_object(runs: Path) -> None:
    path = runs / "track_step_NCARSTORM_d01_20110625-0000.csv"
    header, first, *_ = path.read_text().splitlines()
    assert header.split(",") == list(COLUMNS)
    assert len(COLUMNS) == 80
    assert first.endswith(",0,0,0,0,0,0")
    assert all(len(value.split(".")[1]) == 5 for value in first.split(",")[9:69])
    values, _ = make_storms(40, 7, fields=FIELDS)
    names = ("REFL_COM", "U10", "V10", "T2", "", "RVORT1_MAX-future", "HAIL_MAXK1-future")
    for row, storm in zip(table_of(path), values, strict=False):
        inside = storm[..., 4] > 0
        for channel, name in enumerate(names):
            cells = storm[..., channel][inside].astype(np.float64)
            expected = {"mean": cells.mean(), "max": cells.max(), "min": cells.min(), "std": cells.std()}
            expected |= {f"percentile_{q}": np.percentile(cells, q) for q in (10, 25, 50, 75, 90)}
            if name:
                assert {what: float(row[f"{name}_{what}"]) for what in expected} == pytest.approx(expected, abs=6e-6)
        assert int(row["area"]) == inside.sum()
        spread = np.linalg.eigvalsh(np.cov(np.nonzero(inside), bias=True))
        assert float(row["minor_axis_length"]) == pytest.approx(4 * np.sqrt(spread[0]), abs=1e-4)
        assert float(row["major_axis_length"]) == pytest.approx(4 * np.sqrt(spread[1]), abs=1e-4)
        assert float(row["eccentricity"]) == pytest.approx(np.sqrt(1 - spread[0] / spread[1]), abs=1e-4)


def test_the_same_seed_writes_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    write_runs(tmp_path / "again", 300, seed=7, runs=3)
    write_runs(tmp_path / "other", 300, seed=8, runs=3)
    for path in runs.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
        assert (tmp_path / "other" / path.name).read_bytes() != path.read_bytes()


def test_a_folder_of_other_storms_is_left_alone(tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    (tmp_path / "SSEF_20150604-0000_model_patches.nc").write_bytes(b"")
    with pytest.raises(DataError, match=r"holds other storms, such as SSEF_20150604-0000_model_patches\.nc"):
        write_runs(tmp_path, 10, seed=0)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"file: the run of \d+ can't be written"):
        write_runs(tmp_path / "file", 10, seed=0)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_inputs_are_those_of_the_storm_workload() -> None:
    from tradewind.workloads.storm import CHANNELS

    assert INPUTS == CHANNELS
