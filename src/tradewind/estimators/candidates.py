"""From a parameter grid to the space of a study and back: JSON stands for whatever the user's values are."""

from __future__ import annotations

import json
import math
import pickle
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from pydantic import ValidationError

from tradewind.errors import StudyError, nearest
from tradewind.pack import Config, Value
from tradewind.study import Range, complaint

GRID = "grid"  # which of several grids a candidate is from
OURS = {GRID, "candidate", "fold", "seed", "data_seed"}  # names that mean something else in a config
LONGEST_LABEL = 60
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "uniform": {"type": "float"},
    "loguniform": {"type": "float", "log": True},
    "reciprocal": {"type": "float", "log": True},
    "randint": {"type": "int"},
}

Params = dict[str, Any]


class Candidates:
    """The candidates of a search: as the space of a study, and as parameters again.

    A value that JSON can't hold, such as an estimator, has a label in its place, with a hash of its content.
    """

    def __init__(self, param_grid: Any) -> None:
        self.grids = [{name: _spec(name, grid[name]) for name in sorted(grid)} for grid in _grids(param_grid)]
        self._values: dict[str, dict[str, Any]] = {}  # by parameter, by what stands for a value

    @property
    def names(self) -> list[str]:
        """The parameters that are searched in any of the grids."""
        return list(dict.fromkeys(name for grid in self.grids for name in grid))

    def space(self) -> dict[str, Any]:
        """The space of a study that has every candidate once, in scikit-learn's order."""
        coded = [
            {
                in_config(name): spec if isinstance(spec, Range) else self.coded(name, spec)
                for name, spec in grid.items()
            }
            for grid in self.grids
        ]
        if len(coded) == 1 and coded[0]:
            return coded[0]
        return {GRID: [{"value": number, "space": grid} for number, grid in enumerate(coded)]}

    def params(self, config: Config) -> Params:
        """The parameters that a config stands for."""
        grid = self.grids[config.get(GRID) or 0]
        return {name: self._decoded(name, config[in_config(name)]) for name in grid}

    def coded(self, name: str, values: list[Any]) -> list[Value]:
        """What stands for the values of a parameter."""
        known, here = self._values.setdefault(name, {}), dict[str, Value]()
        for value in values:
            code = base = plain(value) if is_plain(value) else _label(value)
            number = 1
            while _mark(code) in here or (not is_plain(value) and known.get(_mark(code), value) is not value):
                number += 1
                code = f"{base} ({number})"
            here[_mark(code)] = code
            known.setdefault(_mark(code), value)
        return list(here.values())

    def _decoded(self, name: str, code: Value) -> Any:
        return self._values.get(name, {}).get(_mark(code), code)


def in_config(name: str) -> str:
    """What a parameter is called in a config."""
    return f"{name}_" if name.rstrip("_") in OURS else name


def plain(value: Any) -> Value:
    """A value as JSON has it: numpy's scalars as Python's, tuples as lists."""
    if isinstance(value, np.generic):
        value = value.item()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def is_plain(value: Any) -> bool:
    """Whether JSON can hold a value so that it is known again."""
    found = plain(value)
    if isinstance(found, list):
        return all(map(is_plain, found))
    return found is None or isinstance(found, bool | int | str) or (isinstance(found, float) and math.isfinite(found))


def _grids(param_grid: Any) -> list[Mapping[str, Any]]:
    grids = [param_grid] if isinstance(param_grid, Mapping) else list(param_grid)
    for grid in grids:
        if not isinstance(grid, Mapping):
            raise TypeError(f"param_grid: found {grid!r:.60}; allowed: a dict, or a list of dicts")
    if not grids:
        raise ValueError("param_grid: found an empty list; allowed: a dict, or a list of dicts")
    return grids


def _spec(name: str, spec: Any) -> list[Any] | Range:
    """A list of values, or a range; scipy's distributions over an interval are ranges."""
    if isinstance(spec, Range | Mapping):
        found = spec if isinstance(spec, Range) else _range(name, spec)
        return found.values() if found.steps else found
    if hasattr(spec, "rvs"):
        kind = getattr(getattr(spec, "dist", None), "name", type(spec).__name__)
        if kind not in DISTRIBUTIONS:
            raise StudyError(
                f"param_grid {name!r}: found the distribution {kind}; allowed: uniform, loguniform, randint, a list, "
                'or {"low": …, "high": …, "log": …}'
            )
        low, high = spec.support()
        return _range(name, {"low": low, "high": high, **DISTRIBUTIONS[kind]})
    # what is said of other mistakes is what GridSearchCV says
    if isinstance(spec, str) or not isinstance(spec, Iterable) or getattr(spec, "ndim", 1) != 1:
        raise TypeError(
            f"Parameter grid for parameter {name!r} needs to be a list or a numpy array, but got {spec!r} "
            f"(of type {type(spec).__name__}) instead."
        )
    values = list(spec)
    if not values:
        raise ValueError(f"Parameter grid for parameter {name!r} need a non-empty sequence, got: {spec!r}")
    return values


def _range(name: str, spec: Mapping[str, Any]) -> Range:
    for key in spec:
        if key not in Range.model_fields:
            hint = nearest(str(key), Range.model_fields)
            raise StudyError(
                f"param_grid {name!r}: a range has no {key!r}; {hint}; a dict that is a value goes in a list"
            )
    try:
        return Range(**{key: plain(value) for key, value in spec.items()})
    except ValidationError as error:
        raise StudyError(f"param_grid {name!r}: {complaint(error, Range)}") from None


def content_hash(value: Any) -> str:
    """The same for the same content, also in another process; of what can't be told apart, new each time."""
    import cloudpickle  # type: ignore[import-untyped]
    import joblib

    cannot = pickle.PicklingError, TypeError, AttributeError
    with suppress(*cannot):
        return str(joblib.hash(value))[:8]
    with suppress(*cannot):  # a lambda, or what a function has defined
        return str(joblib.hash(cloudpickle.dumps(value)))[:8]
    return secrets.token_hex(4)


def _label(value: Any) -> str:
    """What people read of a value, and the hash of its content, by which it is known."""
    name = getattr(value, "__qualname__", None)
    text = name if isinstance(name, str) else re.sub(r" at 0x[0-9a-f]+", "", " ".join(repr(value).split()))
    text = text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
    return f"{text} {content_hash(value)}"


def _mark(code: Value) -> str:
    """What stands for a code: 1 is 1.0, as in a space, and true is neither."""
    if type(code) is float and code.is_integer():
        code = int(code)
    return json.dumps(code)
