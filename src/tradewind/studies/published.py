"""The papers' numbers: which table or figure a bundled study repeats, and what is printed there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tradewind.errors import StudyError, nearest
from tradewind.foreign import read_rows
from tradewind.imports import import_results
from tradewind.pack import Config

PAPERS = Path(__file__).parent / "papers"
STORM, DIGITS, NODULES, IMAGES = (
    "storm_basalyga2021.json", "digits_stevens.json", "nodules_cunha2018.json", "images_nelson2021.json",
)  # fmt: skip
STORMS, CLIPS = 138_963, 2000
READING = "the paper's times include reading WAV files"
FRAMEWORKS = {STORM: "Keras on TensorFlow", NODULES: "TensorFlow", IMAGES: "Keras with Horovod"}
SHARES = {"accuracy_percent": "accuracy", "efficiency_percent": "efficiency"}
NOT_SET = ("device", "gpu", "model")  # told of a row, but nothing that a study sets


@dataclass(frozen=True)
class Place:
    """Where the numbers of a study stand, and how many samples they were trained on, if ours are as many."""

    title: str
    file: str = ""
    at: str = ""
    samples: int | None = None
    nested: bool = False  # by rule and devices, not as rows
    settings: Config = field(default_factory=dict)  # that the paper tells in its text
    note: str = ""  # what else tells its numbers from ours


PLACES: dict[str, Place] = {
    "basalyga/table2": Place("Basalyga 2021, Table 2 (Barajas 2019, Table I)", STORM, "tables.table2", STORMS),
    "basalyga/table3": Place("Basalyga 2021, Table 3 (Barajas 2019, Table II)", STORM, "tables.table3", STORMS),
    "basalyga/table4": Place("Basalyga 2021, Table 4 (Barajas 2019, Table III)", STORM, "tables.table4", STORMS),
    "basalyga/table5": Place("Basalyga 2021, Table 5 (Barajas 2019, Table IV)", STORM, "tables.table5", STORMS),
    "basalyga/table6": Place("Basalyga 2021, Table 6 (Barajas 2019, Table V)", STORM, "tables.table6", STORMS),
    "basalyga/table7": Place("Basalyga 2021, Table 7 (Barajas 2019, Table VI)", STORM, "tables.table7", STORMS),
    "basalyga/table8": Place("Basalyga 2021, Table 8", STORM, "tables.table8", STORMS),
    "basalyga/table9": Place("Basalyga 2021, Table 9", STORM, "tables.table9", STORMS),
    "basalyga/figure2": Place("Basalyga 2021, Figure 2 (Barajas 2019, Figure 1)"),
    "basalyga/figure6": Place("Basalyga 2021, Figure 6"),
    "basalyga/figure7": Place("Basalyga 2021, Figure 7"),
    "basalyga/figure8": Place("Basalyga 2021, Figure 8"),
    "stevens/linear": Place("Stevens, Figures 3–6 and 11", DIGITS, "linear", CLIPS, note=READING),
    "stevens/conv": Place("Stevens, Figures 7–10 and 12"),
    "cunha/scaling": Place(
        "Cunha 2018, Tables I and II", NODULES, "efficiency_percent", nested=True, settings={"warmup_epochs": 5}
    ),
    "nelson/fruit": Place("Nelson 2021, parts 1 and 2", IMAGES, "fruit"),
    "nelson/caltech": Place("Nelson 2021, parts 3 and 4", IMAGES, "caltech256"),
}


@dataclass(frozen=True)
class Printed:
    """One row of a paper: its config and its numbers, None where it has none; scores are shares of 1."""

    config: Config
    values: dict[str, float | None]
    machine: str


@dataclass(frozen=True)
class PrintedTable:
    """The numbers of one table; `varied` are the hyperparameters that tell its rows apart."""

    study: str
    title: str
    machine: str
    device: str
    samples: int | None
    varied: list[str]
    rows: list[Printed]


def base(name: str) -> str:
    """The study whose small and full size share one table."""
    return name.removesuffix("-full")


def kind_of(machine: str) -> str:
    """Whether a paper's machine is a cpu or, by its GPUs, cuda."""
    return "cpu" if any(word in machine.lower() for word in ("cpu", "xeon", "core")) else "cuda"


def printed(study: str) -> PrintedTable | None:
    """The numbers beside a bundled study of either size; None where the paper prints none."""
    place = PLACES.get(base(study))
    if place is None or not place.file:
        return None
    found = read_rows(PAPERS / place.file, place.at, rename=_rename(place)).rows
    machines = [str(row.config.get("device") or row.config.get("gpu")) for row in found]
    told = [{**place.settings, **row.config} for row in found]
    configs = [{name: value for name, value in config.items() if name not in NOT_SET} for config in told]
    rows = [
        Printed(config, _shares(row.values), machine)
        for config, row, machine in zip(configs, found, machines, strict=True)
    ]
    names = dict.fromkeys(name for row in rows for name in row.config)
    varied = [name for name in names if len({row.config.get(name) for row in rows}) > 1]
    machine = ", ".join(dict.fromkeys(machines))
    return PrintedTable(base(study), place.title, machine, kind_of(machine), place.samples, varied, rows)


def import_printed(study: str, out: Path) -> int:
    """Make a run folder of the paper's own numbers; how many results it holds."""
    place = PLACES.get(base(study))
    if place is None or not place.file:
        known = [name for name, some in PLACES.items() if some.file]
        raise StudyError(f"no published numbers of {study!r}; {nearest(study, known)}")
    return import_results(PAPERS / place.file, out, place.at, rename=_rename(place))


def study_of_source(source: str) -> str:
    """The study that imported numbers belong to, by what their records say of themselves; else nothing."""
    at = {f"{place.file} at {place.at}": name for name, place in PLACES.items() if place.file}
    return at.get(source, "")


def _rename(place: Place) -> dict[str, str]:
    return {"level1": "scaling", "level2": "devices"} if place.nested else {}


def _shares(values: dict[str, float | None]) -> dict[str, float | None]:
    return {
        SHARES.get(name, name): round(value / 100, 6) if name in SHARES and value is not None else value
        for name, value in values.items()
    }
