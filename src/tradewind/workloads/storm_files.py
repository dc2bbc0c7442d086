"""Synthetic storms as files in NCAR's layout: for each model run netCDF patches and a CSV of their storm steps.

The storms are those of `make_storms`, numbered on from run to run. Which of them follow each other in a track,
when and where, depends on the seed and the run's storms alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tradewind.errors import DataError
from tradewind.noise import uniforms
from tradewind.workloads.shapes import CENTRE, SIDE
from tradewind.workloads.storms import FIELDS, make_storms
from tradewind.workloads.supercell import CELL_M

Array = np.ndarray[Any, Any]

_RUN_DAYS = {
    "2010": "1024 1122",
    "2011": "0201 0308 0326 0404 0414 0420 0425 0509 0522 0527 0605 0610 0615 0620 0625 0704 0712 1116",
    "2012": "0218 0315 0323 0401 0409 0426 0503 0510 0529 0606 0622 0701 0706 0715 1225",
    "2013": "0318 0331 0411 0429 0513 0519 0527 0602 0613 0619 0625 0701 0708 0715",
    "2014": "0220 0328 0407 0425 0508 0514 0526 0604 0609 0617 0622 0628 0705 0710 1123",
    "2015": "0331 0416 0422 0505 0510 0523 0528 0605 0612 0620 0625 0630 0706 0712 1031 1227",
    "2016": "0224 0323 0401 0415 0429 0505 0511 0522 0528 0608 0616 0622 0628 0707 0712 1129",
    "2017": "0121 0228 0323 0329",
}
RUN_DATES = tuple(year + day for year, days in _RUN_DAYS.items() for day in days.split())
EARLY_SHARE = 76_377 / 121_137  # of NCAR's storms, before 2015
USUAL_STORMS = 1211  # in a run
FIRST_HOUR, LAST_HOUR = 12, 35  # of the forecasts
LONGEST_TRACK = 8
_TRACKS = 16  # this stream of random numbers; the storms' own come before it
_MARGIN = 60  # cells from a patch's centre to the grid's edge, at the least
_PERCENTILES = (10, 25, 50, 75, 90)
_STATISTICS = ("mean", "max", "min", "std", *(f"percentile_{q}" for q in _PERCENTILES))
_MODEL = ("REFL_COM_curr", "U10_curr", "V10_curr", "T2_curr", "RVORT1_MAX_future", "HAIL_MAXK1_future")
COLUMNS = (
    *("Step_ID", "Track_ID", "Ensemble_Name", "Ensemble_Member", "Run_Date", "Valid_Date", "Forecast_Hour"),
    *("Valid_Hour_UTC", "Duration", "Centroid_Lon", "Centroid_Lat", "Centroid_X", "Centroid_Y"),
    *("Storm_Motion_U", "Storm_Motion_V"),
    *(f"{name.replace('_curr', '').replace('_future', '-future')}_{what}" for name in _MODEL for what in _STATISTICS),
    *("area", "eccentricity", "major_axis_length", "minor_axis_length", "orientation"),
    *("Matched", "Max_Hail_Size", "Num_Matches", "Shape", "Location", "Scale"),
)


@dataclass(frozen=True)
class Run:
    """A model run: its date as YYYYMMDD, its first storm's number and how many it has."""

    date: str
    first: int
    count: int


@dataclass(frozen=True)
class _Tracks:
    """For each storm of a run: its track, its step from 0, the track's first and last hour, and its place."""

    track: Array
    step: Array
    starts: Array
    ends: Array
    i: Array  # of patch cell [16, 16] in the grid
    j: Array
    move_i: Array  # cells since the hour before
    move_j: Array

    @property
    def hours(self) -> Array:
        return self.starts + self.step


def write_runs(folder: Path, count: int, seed: int, runs: int | None = None, device: str = "cpu") -> list[Path]:
    """Write so many storms as model runs, and name the files; 63 % of the storms come before 2015."""
    planned = plan_runs(count, runs)
    names = [_names(run) for run in planned]
    strange = sorted({path.name for path in folder.rglob("*_model_patches.nc")} - {patches for patches, _ in names})
    if strange:
        raise DataError(f"{folder}: holds other storms, such as {strange[0]}; choose an empty folder")
    written = []
    for run, (patches, steps) in zip(planned, names, strict=True):
        values, _ = make_storms(run.count, seed, device, run.first, FIELDS)
        fields = {name: np.ascontiguousarray(values[..., place]) for place, name in enumerate(FIELDS)}
        tracks = _tracks(seed, run)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _whole(folder / patches) as aside:
                _write_patches(aside, run, tracks, fields)
            with _whole(folder / steps) as aside:
                aside.write_text(_steps(run, tracks, fields))
        except (OSError, RuntimeError) as error:  # the netCDF library says RuntimeError where a disk is full
            raise DataError(f"{folder}: the run of {run.date} can't be written: {error}") from error
        written += [folder / patches, folder / steps]
    return written


def plan_runs(count: int, runs: int | None = None) -> list[Run]:
    """Dates spread over NCAR's, by default as many as NCAR's runs would need for so many storms."""
    if runs is None:
        runs = min(max(round(count / USUAL_STORMS), min(count, 2)), len(RUN_DATES))
    if not 1 <= runs <= min(count, len(RUN_DATES)):
        raise DataError(f"runs: found {runs} for {count} storms; allowed: 1 to {len(RUN_DATES)}, a storm in each")
    dates = [RUN_DATES[(2 * k + 1) * len(RUN_DATES) // (2 * runs)] for k in range(runs)]
    early = sum(date < "2015" for date in dates)
    late = runs - early
    before = min(max(round(EARLY_SHARE * count), early), count - late) if late else count
    sizes = [*_shares(before, early), *_shares(count - before, late)]
    firsts = np.cumsum([0, *sizes]).tolist()
    return [Run(*facts) for facts in zip(dates, firsts[:-1], sizes, strict=True)]


def _shares(count: int, parts: int) -> list[int]:
    return [count * (k + 1) // parts - count * k // parts for k in range(parts)]


def _names(run: Run) -> tuple[str, str]:
    return f"NCARSTORM_{run.date}-0000_d01_model_patches.nc", f"track_step_NCARSTORM_d01_{run.date}-0000.csv"


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Write aside and rename: a reader finds a whole file or none."""
    aside = path.with_name(path.name + ".part")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _tracks(seed: int, run: Run) -> _Tracks:
    """Storms one after the other in tracks of 1 to 8 hours that stay on the grid."""
    draws = uniforms(seed, _TRACKS, torch.arange(run.first, run.first + run.count), 6).numpy().astype(np.float64).T
    numbers = np.arange(run.count)
    begins = (draws[0] < 0.4) | (numbers == 0)
    begins |= (numbers - np.maximum.accumulate(np.where(begins, numbers, 0))) % LONGEST_TRACK == 0
    heads, track = np.flatnonzero(begins), np.cumsum(begins) - 1
    lengths = np.diff([*heads, run.count])
    starts = FIRST_HOUR + np.floor(draws[1, heads] * (LAST_HOUR - FIRST_HOUR + 2 - lengths)).astype(np.int64)
    moves = [np.floor(24.0 * draws[2] - 6.0).astype(np.int64), np.floor(20.0 * draws[3] - 7.0).astype(np.int64)]
    places = []
    x, y, _, _ = _grid()
    for move, size, draw in zip(moves, (len(x), len(y)), draws[4:, heads], strict=True):
        way = np.cumsum(move) - np.cumsum(move)[heads][track]
        low, high = np.minimum.reduceat(way, heads), np.maximum.reduceat(way, heads)
        room = size - 2 * _MARGIN - (high - low)
        places.append((_MARGIN - low + np.floor(draw * room).astype(np.int64))[track] + way)
    return _Tracks(
        track=track,
        step=numbers - heads[track],
        starts=starts[track],
        ends=(starts + lengths - 1)[track],
        j=places[0],
        i=places[1],
        move_j=moves[0],
        move_i=moves[1],
    )


@lru_cache
def _grid() -> tuple[Array, Array, Array, Array]:
    """The model's Lambert grid on a sphere: x of the columns, y of the rows in m; longitudes and latitudes."""
    earth, origin, middle = 6_370_000.0, np.radians(38.33643), -101.0
    first, second = np.radians(32.0), np.radians(46.0)

    def stretch(latitude: Any) -> Any:
        return np.tan(np.pi / 4 + latitude / 2)

    cone = np.log(np.cos(first) / np.cos(second)) / np.log(stretch(second) / stretch(first))
    scale = earth * np.cos(first) * stretch(first) ** cone / cone
    pole = scale / stretch(origin) ** cone
    corners = np.radians([[23.159264, -120.81058 - middle], [46.88567, -65.02124 - middle]])
    reach, turn = scale / stretch(corners[:, 0]) ** cone, cone * corners[:, 1]
    ends = np.stack([reach * np.sin(turn), pole - reach * np.cos(turn)], axis=1)
    columns, rows = np.rint((ends[1] - ends[0]) / CELL_M).astype(int) + 1
    x, y = ends[0, 0] + CELL_M * np.arange(columns), ends[0, 1] + CELL_M * np.arange(rows)
    south = pole - y[:, None]
    longitude = middle + np.degrees(np.arctan2(x, south)) / cone
    latitude = np.degrees(2 * np.arctan((scale / np.hypot(x, south)) ** (1 / cone)) - np.pi / 2)
    return x, y, longitude.astype(np.float32), latitude.astype(np.float32)


def _write_patches(path: Path, run: Run, tracks: _Tracks, fields: dict[str, Array]) -> None:
    import netCDF4

    x, y, longitude, latitude = _grid()
    i = np.broadcast_to((tracks.i[:, None] + np.arange(SIDE) - CENTRE)[:, :, None], (run.count, SIDE, SIDE))
    j = np.broadcast_to((tracks.j[:, None] + np.arange(SIDE) - CENTRE)[:, None, :], (run.count, SIDE, SIDE))
    since = f"hours since {_date(run):%Y-%m-%d %H:%M:%S}"
    here = (tracks.i, tracks.j)
    cells: list[tuple[str, str, str, Array]] = [
        ("lon", "f4", "degrees_east", longitude[i, j]),
        ("lat", "f4", "degrees_north", latitude[i, j]),
        *(("i", "i4", "", i), ("j", "i4", "", j), ("x", "f4", "m", x[j]), ("y", "f4", "m", y[i])),
        ("masks", "i4", "", fields["masks"]),
        ("time", "i4", since, tracks.hours),
        ("centroid_lon", "f4", "degrees_east", longitude[here]),
        ("centroid_lat", "f4", "degrees_north", latitude[here]),
        *(("centroid_i", "f4", "", tracks.i), ("centroid_j", "f4", "", tracks.j)),
        *(("track_id", "i4", "", tracks.track), ("track_step", "i4", "", tracks.step + 1)),
        *((name, "f4", "", fields[name]) for name in _MODEL),
    ]
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.6"
        file.title = f"NCARSTORM Storm Patches for run {run.date}-0000 member d01"
        file.object_variable = "REFL_COM"
        for name, size in (("p", run.count), ("row", SIDE), ("col", SIDE)):
            file.createDimension(name, size)
        for name in ("p", "row", "col"):
            file.createVariable(name, "i4", (name,))[:] = np.arange(len(file.dimensions[name]))
        for name, kind, units, values in cells:
            place = ("p", "row", "col")[: values.ndim]
            variable = file.createVariable(name, kind, place, zlib=True, complevel=1, shuffle=True)
            variable.long_name, variable.units = name.removesuffix("_curr").removesuffix("_future"), units
            variable[:] = values


def _date(run: Run) -> datetime:
    return datetime.strptime(run.date, "%Y%m%d")


def _steps(run: Run, tracks: _Tracks, fields: dict[str, Array]) -> str:
    """The CSV: a line for each storm."""
    x, y, longitude, latitude = _grid()
    place = [longitude[tracks.i, tracks.j], latitude[tracks.i, tracks.j], x[tracks.j], y[tracks.i]]
    inside = fields["masks"] > 0
    numbers = [*place, tracks.move_j * CELL_M, tracks.move_i * CELL_M, *_statistics(inside, fields)]
    area, shape = _shape(inside)
    line = ",".join([*["%s"] * 3, *["%d"] * 3, *["%.5f"] * len(numbers), "%d", *["%.5f"] * 4, *"000000"])
    line = line.replace("%s,%s,%s", f"%s,%s,NCARSTORM,d01,{_date(run)},%s", 1)
    valid = [str(_date(run) + timedelta(hours=hour)) for hour in range(LAST_HOUR + 1)]
    tracked = zip(*(part.tolist() for part in (tracks.starts, tracks.ends, tracks.track, tracks.step)), strict=True)
    floats, shapes = np.stack(numbers, axis=1).tolist(), shape.tolist()
    lines = [",".join(COLUMNS)]
    for row, (start, end, track, step) in enumerate(tracked):
        name, hour = f"d01_REFL_COM_{run.date}-0000_{start:02d}_{end:02d}_{track:03d}", start + step
        words = (f"{name}_{step:02d}", name, valid[hour], hour, hour % 24, step + 1)
        lines.append(line % (*words, *floats[row], area[row], *shapes[row]))
    return "\n".join(lines) + "\n"


def _statistics(inside: Array, fields: dict[str, Array]) -> list[Array]:
    """Of each field over each storm's cells, in the order of the columns: sorted once, storm after storm."""
    storm, cell = np.nonzero(inside.reshape(len(inside), -1))
    counts = np.bincount(storm)
    first = np.cumsum(counts) - counts
    found: list[Array] = []
    for name in _MODEL:
        values = fields[name].reshape(len(inside), -1)[storm, cell].astype(np.float64)
        values = values[np.lexsort((values, storm))]
        mean = np.add.reduceat(values, first) / counts
        spread = np.sqrt(np.add.reduceat((values - mean[storm]) ** 2, first) / counts)
        found += [mean, values[first + counts - 1], values[first], spread]
        for percentile in _PERCENTILES:
            part, whole = np.modf((counts - 1) * (percentile / 100))
            low = first + whole.astype(np.int64)
            high = np.minimum(low + 1, first + counts - 1)
            found.append(values[low] + part * (values[high] - values[low]))
    return found


def _shape(inside: Array) -> tuple[list[int], Array]:
    """Areas in cells, and eccentricity, axes and orientation of the ellipse with the same second moments."""
    area = inside.sum(axis=(1, 2))
    axis, cells = np.arange(SIDE) - CENTRE, inside.astype(np.float64)
    rows, columns = cells.sum(axis=2), cells.sum(axis=1)
    row, column = rows @ axis / area, columns @ axis / area
    row_power, column_power = rows @ axis**2 / area - row**2, columns @ axis**2 / area - column**2
    both = np.einsum("nij,i,j->n", cells, axis, axis, optimize=True) / area - row * column
    middle, half = (row_power + column_power) / 2, np.hypot((row_power - column_power) / 2, both)
    long, short = middle + half, np.maximum(middle - half, 0.0)
    angle = 0.5 * np.arctan2(2 * both, row_power - column_power)
    return area.tolist(), np.stack([np.sqrt(1 - short / long), 4 * np.sqrt(long), 4 * np.sqrt(short), angle], axis=1)
