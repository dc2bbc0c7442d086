"""Keys of a study that its workload did not read in its first trial: an option that nobody reads changes nothing."""

from __future__ import annotations

from collections.abc import Collection
from types import CodeType
from typing import Any

from tradewind.pack import Task
from tradewind.train.hyperparameters import TRAINING


class Watch:
    """Notes which attributes of a workload are read, until its end; all where that can't be seen."""

    def __init__(self, workload: Any, names: Collection[str]) -> None:
        self.read: set[str] = set()
        self._workload, self._own = workload, type(workload)
        own, read, wanted = self._own, self.read, set(names)

        class Watched(own):  # type: ignore[misc, valid-type]
            def __getattribute__(self, name: str) -> Any:
                read.update(wanted if name == "__dict__" else {name} & wanted)
                return super().__getattribute__(name)

            def __reduce_ex__(self, protocol: Any) -> Any:  # a copy or a pickle of it is a plain one
                object.__setattr__(self, "__class__", own)
                try:
                    return self.__reduce_ex__(protocol)
                finally:
                    object.__setattr__(self, "__class__", Watched)

        Watched.__name__, Watched.__qualname__, Watched.__module__ = own.__name__, own.__qualname__, own.__module__
        self._become(Watched)

    def end(self) -> None:
        """Let the workload be as it was."""
        self._become(self._own)

    def _become(self, kind: type) -> None:
        try:
            object.__setattr__(self._workload, "__class__", kind)
        except TypeError:  # it has slots
            self.read.update(vars(self._own))


def unread(task: Task, workload: Any, attributes: Collection[str], config: Collection[str]) -> list[str]:
    """The keys that a network's workload did not read: of `data` by its attributes, of `fixed` by its config.

    What is read of the config after the data are there is not traced; what the code of the class mentions is read.
    """
    kept = getattr(workload, "__dict__", {})
    data = [f"data.{name}" for name in task.data if name in kept and name not in attributes]
    own = [name for name in task.fixed if name not in TRAINING and name not in config]
    mentioned = _mentioned(type(workload)) if own else set()
    return data + [f"fixed.{name}" for name in own if name not in mentioned]


def _mentioned(target: type) -> set[str]:
    """All text that the methods of a class, and what they define, hold."""
    found: set[str] = set()
    codes = [getattr(each, "__code__", None) for base in target.__mro__[:-1] for each in vars(base).values()]
    left = [code for code in codes if code is not None]
    while left:
        for constant in left.pop().co_consts:
            if isinstance(constant, CodeType):
                left.append(constant)
            found.update([constant] if isinstance(constant, str) else [])
    return found
