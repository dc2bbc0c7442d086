"""What an epoch's values say about going on; the same for networks and for functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tradewind.measures import reached


def all_finite(values: Mapping[str, float]) -> bool:
    """Whether every loss is a number that training can go on from."""
    return all(math.isfinite(value) for name, value in values.items() if "loss" in name)


def on_target(values: Mapping[str, float], target: Mapping[str, float]) -> bool:
    """Whether there is a target and every measure in it is reached."""
    return bool(target) and all(name in values and reached(name, values[name], goal) for name, goal in target.items())
