"""A study: what to find out. A JSON file, or the same in Python; checked when it is made."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from tradewind.code_folder import code_folder
from tradewind.errors import StudyError, nearest
from tradewind.jsonfile import is_json, parse_json, read_json
from tradewind.measures import Direction
from tradewind.pack import Limits, Purpose, Value
from tradewind.study_search import GROWING, Search
from tradewind.where import Condition

RESERVED = {"seed": "the study's own `seed` and `repeats`", "data_seed": "the study's own `data_seed`"}


class Part(BaseModel):
    """A piece of a study; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Range(Part):
    """Numbers from low to high; with `steps` a list of them, without it continuous."""

    low: int | float
    high: int | float
    log: Annotated[bool, Field(strict=True)] = False
    steps: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None
    type: Literal["int", "float"] | None = Field(None, description="default: int if low and high are whole")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}; swap them")
        if self.log and self.low <= 0:
            raise ValueError(f"a log range needs low above 0, found {self.low}")
        if self.steps is not None:
            values = self.values()
            if len(set(values)) < len(values):
                raise ValueError(
                    f"{self.steps} steps from {self.low} to {self.high} give equal values; take fewer steps"
                )
        return self

    @property
    def whole(self) -> bool:
        """Whether the range holds whole numbers."""
        return self.type == "int" or (self.type is None and isinstance(self.low, int) and isinstance(self.high, int))

    def values(self) -> list[Value]:
        """The values of a range with steps, both ends included."""
        steps = self.steps or 0
        if steps == 1:
            return [self.low]
        ends = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        inner = [ends[0] + (ends[1] - ends[0]) * k / (steps - 1) for k in range(1, steps - 1)]
        middle = [math.exp(x) if self.log else x for x in inner]
        found = [self.low, *(float(f"{x:.12g}") for x in middle), self.high]
        return [round(x) for x in found] if self.whole else [float(x) for x in found]


def _plain_value(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"found {value}; allowed: finite numbers")
    if isinstance(value, (list, tuple)):
        return [_plain_value(one) for one in value]
    if isinstance(value, dict) and value.keys() == {"value", "space"}:
        return _choice(value)
    if not isinstance(value, (bool, int, float, str, dict, type(None))):
        raise ValueError(f"found {value!r:.60}, a {type(value).__name__}; allowed: what JSON can hold")
    return value


def _choice(value: dict[str, Any]) -> dict[str, Any]:
    """A value of a list that brings hyperparameters of its own."""
    if not isinstance(value["space"], Mapping):
        raise ValueError(
            f"found {_short(value['space'])} as the space of {_short(value['value'])}; allowed: an object"
        )
    brought = {}
    for name, spec in value["space"].items():
        try:
            found = _dimension(spec)
        except ValueError as error:
            raise ValueError(f"{_short(value['value'])}.{name}: {error}") from None
        brought[name] = found.model_dump(exclude_defaults=True) if isinstance(found, Range) else found
    return {"value": _plain_value(value["value"]), "space": brought}


def _dimension(spec: Any) -> Any:
    if isinstance(spec, Range):
        return spec
    if isinstance(spec, Mapping):
        try:
            return Range(**spec)
        except ValidationError as error:
            raise ValueError(complaint(error, Range)) from None
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        if not spec:
            raise ValueError("found an empty list; allowed: at least one value")
        return [_plain_value(value) for value in spec]
    raise ValueError(f'found {spec!r}; allowed: a list of values, or a range {{"low": …, "high": …}}')


Count = Annotated[int, Field(ge=1, strict=True)]
Keep = Literal["best", "all"] | Count
CountFrom0 = Annotated[int, Field(ge=0, strict=True)]
Dimension = Annotated[list[Any] | Range, BeforeValidator(_dimension)]


class Stop(Part):
    """When a trial ends before its last epoch."""

    max_epochs: Count | None = None
    target: dict[str, Annotated[float, Field(strict=True)]] = {}
    timeout_s: Annotated[float, Field(gt=0, strict=True)] | None = None

    def limits(self, directions: Mapping[str, Direction]) -> Limits:
        """The same as plain data."""
        lower = frozenset(name for name in self.target if directions[name] == "minimize")
        return Limits(self.max_epochs, dict(self.target), self.timeout_s, lower)


def _reference(workload: Any) -> Any:
    if not callable(workload):
        return workload
    name = getattr(workload, "__qualname__", "")
    if "<" in name or not name:
        raise ValueError(f"{name or workload!r} is defined inside another function; move it to the top of a module")
    module, source = workload.__module__, inspect.getsourcefile(workload)
    if module == "__main__" and source and Path(source).exists():
        return f"{Path(source).resolve()}:{name}"
    return f"{module}:{name}"


class Study(Part):
    """What to find out: a workload, the space of its hyperparameters, and how to go about it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str = ""
    workload: Annotated[str, BeforeValidator(_reference)] = Field("", description='bundled name or "module:name"')
    command: str = Field("", description='e.g. "python train.py --lr {learning_rate}"')
    purpose: Purpose = "tune"
    data: dict[str, Any] = {}
    space: dict[str, Dimension] = {}
    fixed: dict[str, Annotated[Any, BeforeValidator(_plain_value)]] = {}
    where: list[str] = []
    search: Search = Field(default_factory=lambda: Search.model_validate({}))
    repeats: Count = 1
    keep: Keep = Field("best", description="weights: of the best config, of so many of the best, or all")
    stop: Stop = Stop()
    seed: CountFrom0 = 0
    data_seed: CountFrom0 = 0
    vary: Annotated[list[Literal["seed", "data_seed"]], Field(min_length=1)] | None = None
    retries: CountFrom0 = 0

    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _file: Path | None = PrivateAttr(None)
    _sets: tuple[str, ...] = PrivateAttr(())  # what the command line has changed in the file

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise StudyError(f"study: {complaint(error, Study)}") from None

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        if not name.strip(". /\0"):
            raise ValueError(f"found {name!r}; allowed: a name that a folder can have")
        return name

    @field_validator("where")
    @classmethod
    def _conditions(cls, where: list[str]) -> list[str]:
        for text in where:
            try:
                Condition(text)
            except StudyError as error:
                raise ValueError(str(error)) from None
        return where

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.workload) == bool(self.command):
            found = "both" if self.workload else "neither"
            raise ValueError(f"found {found} of workload and command; allowed: one of them")
        for place, names in (("space", self.space), ("fixed", self.fixed)):
            for name in names:
                if name in RESERVED:
                    raise ValueError(f"{place}.{name}: comes from {RESERVED[name]}; leave it out here")
        if twice := set(self.space) & set(self.fixed):
            raise ValueError(f"{min(twice)!r} stands in both space and fixed; leave it in one")
        return self

    @property
    def varying(self) -> list[str]:
        """The seeds that grow with the repeat; the same split for all repeats unless times are compared."""
        return sorted(self.vary or (["seed", "data_seed"] if self.purpose == "time" else ["seed"]))

    @classmethod
    def load(cls, path: str | Path, sets: Sequence[str] = ()) -> Study:
        """Read a study file; `sets` are changes such as 'space.batch_size=[64,128]'."""
        content = read_json(path := Path(path))
        if not isinstance(content, dict):
            raise StudyError(f"{path}: found {_short(content)}; allowed: a JSON object with name, workload, space …")
        for text in sets:
            _set(content, text)
        try:
            study = cls(**content)
        except StudyError as error:
            raise StudyError(f"{path}: {str(error).removeprefix('study: ')}") from None
        study._folder, study._file, study._sets = code_folder(path), path, tuple(sets)
        return study

    @classmethod
    def of_edition(cls, edition: Mapping[str, Any]) -> Study:
        """The study as a run folder keeps it."""
        study = cls(**edition["study"])
        study._folder = Path(edition["folder"])
        return study

    @property
    def folder(self) -> Path:
        """Where the user's own modules and files are looked for."""
        return self._folder

    def dimensions(self) -> dict[str, list[Value]]:
        """The values of every dimension that can be listed."""
        listed = {n: spec.values() if isinstance(spec, Range) else spec for n, spec in self.space.items()}
        return {name: values for name, values in listed.items() if values}

    def edition(self, metrics: Sequence[str], directions: Mapping[str, Direction]) -> dict[str, Any]:
        """The study as a run folder keeps it, with what it takes to find the user's modules again."""
        beside = {
            "edition": self.digest(), "folder": str(self._folder), "file": str(self._file or ""),
            "sets": list(self._sets), "metrics": list(metrics), "directions": dict(directions),
        }  # fmt: skip
        return {**beside, "study": self.plain()}

    def digest(self) -> str:
        """The same for every job that runs the same study: positions mean the same within it."""
        plain = {k: v for k, v in self.plain().items() if k not in {"description", "retries", "name", "keep"}}
        moves_nothing = (*GROWING, "direction", *(("metric",) if self.search.plain_grid else ()))
        search = {k: v for k, v in plain.pop("search", {}).items() if k not in moves_nothing}
        plain |= {"search": search} if search else {}
        return hashlib.blake2b(json.dumps(plain).encode(), digest_size=6).hexdigest()

    def plain(self) -> dict[str, Any]:
        """The study as JSON: what was set, nothing else."""
        return dict(self.model_dump(mode="json", exclude_defaults=True))


def complaint(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault as one line: where, what was found, what is allowed."""
    faults = error.errors(include_url=False)
    first = faults[0]
    place = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("function-", "list[", "Range")))
    message = re.sub(r"^(Value error|Assertion failed), ", "", first["msg"])
    if first["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"stop": Stop, "search": Search}
        known = parts.get(str(first["loc"][0]), model) if len(first["loc"]) > 1 else model
        message = f"unknown key; {nearest(str(first['loc'][-1]), known.model_fields)}"
    elif first["type"] == "missing":
        message = "is missing; add it"
    elif first["type"] != "value_error":
        message = f"found {_short(first['input'])}; {message[0].lower()}{message[1:]}"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {message}{more}" if place else message + more


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _set(content: dict[str, Any], text: str) -> None:
    path, equals, value = text.partition("=")
    names = path.split(".")
    if not equals or not all(names):
        raise StudyError(f"--set {text}: found no KEY=VALUE; write e.g. --set space.batch_size=[64,128]")
    place = content
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise StudyError(f"--set {text}: {name!r} holds no keys, it is {_short(place)}")
    if re.fullmatch(r"\s*(True|False|None)\s*|\s*[\[{].*\b(True|False|None)\b.*", value) and not is_json(value):
        spelt = re.sub(r"\b(True|False|None)\b", lambda word: {"None": "null"}.get(word[0], word[0].lower()), value)
        raise StudyError(
            f"--set {text}: found Python's spelling; allowed: JSON's; write --set {path}={spelt.strip()}"
        )
    place[names[-1]] = parse_json(value, f"--set {path}") if is_json(value) else value


def schema() -> dict[str, Any]:
    """The JSON Schema of a study file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Study.model_json_schema()}
