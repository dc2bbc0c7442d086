"""The bundled studies."""

from __future__ import annotations

import json
from pathlib import Path

from tradewind.errors import StudyError, nearest

HERE = Path(__file__).parent
PAPERS = {  # a folder of studies, and the paper whose experiments they repeat
    "basalyga": "Basalyga, Barajas, Gobbert, Wang 2021; tables 2 to 7 are I to VI of Barajas, Gobbert, Wang 2019",
    "stevens": "Stevens: model architecture and batch size in data-parallel training",
    "cunha": "Cunha, Rodrigues, Viana, Oliveira 2018: strong scaling with small data sets",
    "nelson": "Nelson 2021: image classification on several GPUs",
}


def names() -> list[str]:
    """Every bundled study."""
    found = (path.relative_to(HERE) for path in HERE.rglob("*.json"))
    return sorted(str(path.with_suffix("")) for path in found if path.parts[0] != "papers")


def path_of(name: str) -> Path:
    """A study file: the path itself where there is one, else the bundled study of that name."""
    path = Path(name)
    if path.exists() or path.suffix or name not in names():
        return path
    return HERE / f"{name}.json"


def text(name: str) -> str:
    """A bundled study, to start one's own from."""
    if name not in names():
        raise StudyError(f"no bundled study {name!r}; {nearest(name, names())}")
    return (HERE / f"{name}.json").read_text()


def description(name: str) -> str:
    """What a bundled study shows, how many trials that takes, and about how long."""
    return str(json.loads(text(name)).get("description", ""))


def listing() -> str:
    """The bundled studies by paper, with what they show and about how long they take."""
    groups: dict[str, list[str]] = {}
    for name in names():
        groups.setdefault(name.rpartition("/")[0], []).append(f"  {name:22s} {description(name)}")
    order = ["", *PAPERS]
    parts = [[PAPERS.get(group, "To begin with"), *groups[group], ""] for group in order if group in groups]
    lines = [line for part in parts for line in part]
    return "\n".join([*lines, "run one with `tradewind run NAME`, read it with `tradewind studies NAME`"])
