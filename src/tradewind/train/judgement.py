"""What an epoch's values say about going on; the same for networks and for functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tradewind.pack import Limits


def all_finite(values: Mapping[str, float]) -> bool:
    """Whether every loss is a number that training can go on from."""
    return all(math.isfinite(value) for name, value in values.items() if "loss" in name)


def on_target(values: Mapping[str, float], limits: Limits) -> bool:
    """Whether there is a target and every measure in it is reached."""
    reached = {name: values[name] <= goal if name in limits.lower else values[name] >= goal
               for name, goal in limits.target.items() if name in values}  # fmt: skip
    return bool(limits.target) and len(reached) == len(limits.target) and all(reached.values())
