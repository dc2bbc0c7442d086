"""What several answers about the same results need is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from tradewind.results import Results

P = ParamSpec("P")
T = TypeVar("T")


def once(function: Callable[Concatenate[Results, P], T]) -> Callable[Concatenate[Results, P], T]:
    """Keep what a function of results and names returned while the results live; nobody may change it."""
    kept: WeakKeyDictionary[Results, dict[Any, T]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(results: Results, /, *names: P.args, **named: P.kwargs) -> T:
        found, asked = kept.setdefault(results, {}), (names, tuple(sorted(named.items())))
        if asked not in found:
            found[asked] = function(results, *names, **named)
        return found[asked]

    return remembered
