"""Which results are better: by value, or by Pareto front where there are several objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tradewind.search import Direction

Objectives = tuple[float, ...]


def costs(objectives: Objectives, directions: Sequence[Direction]) -> Objectives:
    """The objectives as what is to be made small."""
    return tuple(v if d == "minimize" else -v for v, d in zip(objectives, directions, strict=True))


def dominates(a: Objectives, b: Objectives) -> bool:
    """Whether costs a are nowhere above costs b and somewhere below."""
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def ranked(results: Mapping[int, Objectives], directions: Sequence[Direction]) -> list[int]:
    """The numbers from best to worst: by front, then the first objective, then number; empty results last."""
    cost = {number: costs(found, directions) for number, found in results.items() if found}
    order: list[int] = []
    left = sorted(cost, key=lambda number: (cost[number][0], number))
    while left:
        front = [n for n in left if not any(dominates(cost[other], cost[n]) for other in left)]
        order += front if len(directions) > 1 else left
        left = [n for n in left if n not in front] if len(directions) > 1 else []
    return order + sorted(results.keys() - cost.keys())
