"""Balance: dealing classes of cost to ranks, longest first, and what makespan to expect of it.

Costs are whole numbers and so is all arithmetic on them: every rank finds the same shares, whatever its host.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MOST_MOVES, LOOKED_AT = 200, 32  # moves, and ranks with little to do that one is tried with
WORTHWHILE_PERCENT = 3
MOST_PAIRS = 2_000_000  # classes × classes × ranks that a move may look at
DRAWS = 8
SIMULATED = 20_000  # trials; with more of them chance evens out and formulas do


@dataclass(frozen=True)
class Makespans:
    """What each schedule is expected to take, in the unit of the costs."""

    dispatch: float
    synchronous: float


def deal(costs: Array, counts: Array, ranks: int) -> Array:
    """How many trials of each class (row) every rank (column) gets.

    The next longest goes to the rank with the least so far. Then single trials are moved and swapped, if that
    shortens the longest share well: costs are foretold, and longest-first bears their errors better.
    """
    dealt = np.zeros((len(costs), ranks), dtype=np.int32)
    heap = [(0, rank) for rank in range(ranks)]
    for k in np.argsort(-costs, kind="stable").tolist():
        cost, left = int(costs[k]), int(counts[k])
        if left > ranks:
            loads = _loads(heap)
            given = _filled(loads, cost, left)
            dealt[k] = given
            left -= int(given.sum())
            heap = [(load, rank) for rank, load in enumerate((loads + cost * given).tolist())]
            heapq.heapify(heap)
        for _ in range(left):
            load, rank = heap[0]
            heapq.heapreplace(heap, (load + cost, rank))
            dealt[k, rank] += 1
    if len(costs) ** 2 * ranks > MOST_PAIRS:
        return dealt
    moved, loads = dealt.copy(), _loads(heap)
    before = int(loads.max())
    _improve(costs, moved, loads)
    return moved if 100 * (before - int(loads.max())) >= WORTHWHILE_PERCENT * before else dealt


def _loads(heap: list[tuple[int, int]]) -> Array:
    loads = np.empty(len(heap), dtype=np.int64)
    for load, rank in heap:
        loads[rank] = load
    return loads


def _filled(loads: Array, cost: int, count: int) -> Array:
    """How many of `count` equal trials every rank gets for sure when they are dealt one by one.

    Poured in like water they would fill the least loaded ranks to a level; whoever ends a whole trial
    below that level would have been given another.
    """
    ordered = np.sort(loads)
    levels = (count * cost + np.cumsum(ordered)) // np.arange(1, len(loads) + 1)  # with so many ranks under water
    level = int(levels[int(np.sum(levels >= ordered)) - 1])
    return np.asarray(np.maximum(0, (level - loads) // cost))


def _improve(costs: Array, dealt: Array, loads: Array) -> None:
    """Give trials of the longest share to others, or swap them for shorter ones, while that shortens it."""
    prices = np.append(costs, 0)  # against nothing: given
    gains = prices[:, None] - prices[None, :]
    for _ in range(MOST_MOVES):
        worst = int(np.argmax(loads))
        here = np.append(dealt[:, worst] > 0, False)
        best, move = int(loads[worst]), None
        for rank in np.argsort(loads, kind="stable")[:LOOKED_AT].tolist():
            if rank == worst:
                continue
            there = np.append(dealt[:, rank] > 0, True)
            after = np.maximum(loads[worst] - gains, loads[rank] + gains)
            after = np.where(here[:, None] & there[None, :], after, loads[worst])
            place = int(np.argmin(after))
            if int(after.flat[place]) < best:
                best, move = int(after.flat[place]), (rank, *divmod(place, len(prices)))
        if move is None:
            return
        rank, given, taken = move
        dealt[given, [worst, rank]] += [-1, 1]
        if taken < len(costs):
            dealt[taken, [worst, rank]] += [1, -1]
        loads[worst] -= gains[given, taken]
        loads[rank] += gains[given, taken]


def makespans(costs: Array, counts: Array, workers: int, spread: float) -> Makespans:
    """What to expect where true times lie around the costs, with this standard deviation of their logarithm."""
    total, longest, many = float(costs @ counts), float(costs.max(initial=0.0)), float(counts.sum())
    if not many:
        return Makespans(0.0, 0.0)
    if many > SIMULATED:
        even = max(total / workers, longest)
        # of that many sums of independent times, the largest
        by_chance = spread * math.sqrt(float((costs**2) @ counts) / workers * 2 * math.log(workers))
        return Makespans(even, even + by_chance)
    whole = np.maximum(1, np.rint(costs / costs.mean() * 1e6)).astype(np.int64)
    order = np.argsort(-costs, kind="stable")
    each = np.repeat(costs[order], counts[order])
    ranks = np.concatenate([np.repeat(np.arange(workers), row) for row in deal(whole, counts, workers)[order]])
    chance = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        times = each * np.exp(spread * chance.standard_normal(len(each)))
        times *= each.sum() / times.sum()  # it is the balance that is at stake
        found.append((_listed(times, workers), np.bincount(ranks, times).max()))
    dispatch, synchronous = np.mean(found, axis=0)
    return Makespans(float(dispatch), float(synchronous))


def _listed(times: Array, workers: int) -> float:
    """The end of trials that are handed out in this order to whoever gets free."""
    busy = [0.0] * min(workers, len(times))
    for time in times.tolist():
        heapq.heapreplace(busy, busy[0] + time)
    return max(busy)
