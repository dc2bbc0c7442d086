"""A statement: in words, what it claims in values, on how many trials it rests, and how sure it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SURE, FAIR, WEAK, NONE = "sure", "fairly sure", "weak", "not enough data"


@dataclass(frozen=True)
class Claim:
    """That a value changes by so much from one value of these names (or one config) to another.

    `sign` is that of the change, 0 where chance may have made it, None where nothing is said of it. The interval is
    of the difference; of a time it is of the ratio.
    """

    names: Sequence[str] = ()
    start: Any = None
    end: Any = None
    sign: int | None = None
    interval: tuple[float, float] | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        between = None if self.interval is None else list(self.interval)
        names = list(map(plain_name, self.names))
        return {"names": names, "from": self.start, "to": self.end, "sign": self.sign, "interval": between}


NOTHING = Claim()


@dataclass(frozen=True)
class Answer:
    """One statement, without its topic; `numbers` are what figures and tests read."""

    text: str
    numbers: dict[str, Any] = field(default_factory=dict)
    sure: str = NONE
    n: int = 0
    claim: Claim = NOTHING


def plain_name(name: str) -> str:
    """A name without what tells a hyperparameter from a field of the record that has its name (devices, …)."""
    return name.removeprefix("config.")


def span(seconds: float) -> str:
    """A time in seconds and, where that is long, in minutes or hours."""
    text = f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"
    if seconds < 120:
        return text
    return f"{text} = {seconds / 60:.1f} min" if seconds < 7200 else f"{text} = {seconds / 3600:.1f} h"


def named(config: dict[str, Any]) -> str:
    """A config in words: batch_size 256, epochs 100."""
    pairs = [f"{k} {value_words(v)}" for k, v in config.items()]
    return ", ".join(pairs) or "the only config"


def value_words(value: Any) -> str:
    """One value of a hyperparameter, with 4 significant digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
