"""The lazy space: every combination of hyperparameter values, by index, never written out."""

from __future__ import annotations

import copy
import math
import operator
import random
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import overload

from tradewind.errors import StudyError, nearest
from tradewind.pack import Config, Value
from tradewind.where import Condition

COUNTED = 200_000  # steps of a walk that count() affords: about 0.15 s
SAMPLED = 2_000

_EMPTY = range(0)


class Space:
    """All combinations of the dimensions' values, the first dimension the most significant.

    An index, `len` and slices are those of the unfiltered space; iteration, `in` and `count` obey `where`.
    So it is no collections.abc.Sequence: there may be fewer configs to iterate over than `len` says.
    """

    def __init__(
        self,
        dimensions: Mapping[str, Sequence[Value]],
        where: Sequence[str] = (),
        constants: Mapping[str, Value] | None = None,
    ) -> None:
        if isinstance(where, str):
            raise StudyError(f"where must be a list of conditions, found the text {where!r}")
        self.dimensions = {name: _values(name, values) for name, values in dimensions.items()}
        self.where = tuple(where)
        self._digits = {name: _digits(name, values) for name, values in self.dimensions.items()}
        self._nested = [
            name for name, values in self.dimensions.items() if any(map(_is_nested, values))
        ]
        conditions = [Condition(text) for text in self.where]
        known = dict(constants or {})
        for condition in conditions:
            for name in sorted(condition.names - self.dimensions.keys() - known.keys()):
                raise StudyError(
                    f"where {condition.text!r}: there is no {name!r}; {nearest(name, {*self.dimensions, *known})}"
                )
        used = frozenset().union(*(condition.names for condition in conditions)) - self.dimensions.keys()
        self._tree = _Tree(self.dimensions, conditions, {name: known[name] for name in used})
