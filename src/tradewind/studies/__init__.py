"""The bundled studies."""

from __future__ import annotations

import json
from pathlib import Path

from tradewind.errors import StudyError, nearest

HERE = Path(__file__).parent


def names() -> list[str]:
    """Every bundled study."""
    return sorted(str(path.relative_to(HERE).with_suffix("")) for path in HERE.rglob("*.json"))


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


def listing() -> str:
    """The bundled studies with what they show."""
    lines = [f"{name:16s} {json.loads(text(name)).get('description', '')}" for name in names()]
    return "\n".join([*lines, "", "run one with `tradewind run NAME`, read it with `tradewind studies NAME`"])
