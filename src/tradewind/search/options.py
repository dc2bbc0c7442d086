"""What can be set about each method, and whether a study sets it rightly; loads none of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.errors import StudyError, nearest
from tradewind.pack import Value


@dataclass(frozen=True, slots=True)
class Option:
    """A number that can be set: whole from 1, or a chance between 0 and 1; None: the method's own choice."""

    default: int | float | None
    chance: bool = False

    def complaint(self, value: Value) -> str:
        """What is wrong with a value, or nothing."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.chance:
            return "" if number and 0 <= value <= 1 else f"found {value!r}; allowed: a number from 0 to 1"
        return "" if type(value) is int and value >= 1 else f"found {value!r}; allowed: a whole number from 1"


OPTIONS: dict[str, dict[str, Option]] = {
    "grid": {},
    "random": {},
    "sobol": {},
    "tpe": {"startup": Option(10), "candidates": Option(24)},
    "gp": {"startup": Option(10)},
    "cmaes": {"startup": Option(1), "population": Option(None)},
    "nsga2": {
        "population": Option(None),
        "mutation": Option(None, chance=True),
        "crossover": Option(0.9, chance=True),
    },
}


def settled(method: str, options: Mapping[str, Value]) -> dict[str, Value]:
    """All options of a method, those of the study in place of the defaults."""
    if method not in OPTIONS:
        raise StudyError(f"search.method: there is no {method!r}; {nearest(method, OPTIONS)}")
    known = OPTIONS[method]
    for name, value in options.items():
        if name not in known:
            raise StudyError(f"search.options: {method} has no option {name!r}; {nearest(name, known)}")
        if complaint := known[name].complaint(value):
            raise StudyError(f"search.options.{name}: {complaint}")
    return {name: options.get(name, option.default) for name, option in known.items()}
