"""Which names of a config a workload's code reads: what it made from them depends on these alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from tradewind.pack import Config, Value

Made = TypeVar("Made")
KEPT = 64  # the last ones: where every config differs in what is read, looking for one takes longer than making it
_ABSENT = object()


class TracedConfig(dict[str, Value]):
    """A config that notes the names that are read; iterating over it, copying or comparing it reads all of them.

    What is read later still counts: a workload may keep the config that its `data` was given.
    """

    def __init__(self, config: Mapping[str, Value]) -> None:
        super().__init__(config)
        self._given = dict(config)
        self._names: set[str] = set()

    @property
    def reads(self) -> dict[str, Value]:
        """The names read so far and their values; those that the config lacks among them."""
        return {name: self._given.get(name, _ABSENT) for name in sorted(self._names)}

    def agrees(self, config: Mapping[str, Value]) -> bool:
        """Whether another config has the same values of all that was read."""
        return all(_same(config.get(name, _ABSENT), value) for name, value in self.reads.items())

    def _read_all(self) -> None:
        self._names.update(self._given)

    def __getitem__(self, name: str) -> Value:
        self._names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Value:
        self._names.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._names.add(str(name))
        return super().__contains__(name)

    def pop(self, name: str, *default: Any) -> Value:
        self._names.add(name)
        return super().pop(name, *default)

    def setdefault(self, name: str, default: Any = None) -> Value:
        self._names.add(name)
        return super().setdefault(name, default)

    def __iter__(self) -> Iterator[str]:  # which `dict(config)`, `{**config}` and f(**config) go through
        self._read_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._read_all()
        return super().__len__()

    def __eq__(self, other: object) -> bool:
        self._read_all()
        return super().__eq__(other)

    __hash__ = None

    def __repr__(self) -> str:
        self._read_all()
        return super().__repr__()

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __reversed__(self) -> Iterator[str]:
        self._read_all()
        return super().__reversed__()

    def keys(self) -> Any:
        self._read_all()
        return super().keys()

    def values(self) -> Any:
        self._read_all()
        return super().values()

    def items(self) -> Any:
        self._read_all()
        return super().items()

    def copy(self) -> Config:
        return dict(self)

    def popitem(self) -> tuple[str, Value]:
        self._read_all()
        return super().popitem()

    def __reduce_ex__(self, protocol: Any) -> Any:  # a copy or a pickle of it is a plain config
        return dict, (dict(self),)


class ReadCache(Generic[Made]):
    """What was made from configs, each kept for all configs that agree in what was read of the first one."""

    def __init__(self) -> None:
        self._made: deque[tuple[TracedConfig, Made]] = deque(maxlen=KEPT)

    def find(self, config: Mapping[str, Value]) -> Made | None:
        """What was made from a config that agrees with this one; None: nothing yet."""
        return next((made for traced, made in self._made if traced.agrees(config)), None)

    def add(self, traced: TracedConfig, made: Made) -> Made:
        """Keep what was made from a config."""
        self._made.append((traced, made))
        return made


def _same(one: Value, other: Value) -> bool:
    """1, 1.0 and True are different values: code may divide by one and index by the other."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    return type(one) is type(other) and bool(one == other)
