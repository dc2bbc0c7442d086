"""Scrambled Sobol points by number: they fill the cube more evenly than chance does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tradewind.errors import StudyError
from tradewind.search.random import Cube

BLOCK = 1024  # points made at a time; a power of two keeps them balanced
MOST_COLUMNS = 21201  # what scipy has direction numbers for


def sobol(columns: int, seed: int) -> Cube:
    """The numbers of point k; k may come in any order, cheapest in rising."""
    if columns > MOST_COLUMNS:
        raise StudyError(f"search.method sobol: takes at most {MOST_COLUMNS} hyperparameters, found {columns}")
    engine: Any = None
    ready, points = -1, None  # the block that is at hand

    def cube(k: int) -> Sequence[float]:
        nonlocal engine, ready, points
        block, place = divmod(k, BLOCK)
        if block != ready:
            if engine is None or block < ready:
                from scipy.stats import qmc

                engine, ready = qmc.Sobol(columns, scramble=True, seed=seed), -1
            if block > ready + 1:
                engine.fast_forward((block - ready - 1) * BLOCK)
            ready, points = block, engine.random(BLOCK)
        assert points is not None
        return [float(x) for x in points[place]]

    return cube
