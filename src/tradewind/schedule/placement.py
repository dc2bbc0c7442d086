"""Placement: which cores and GPUs each worker gets, on this host and across hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tradewind.pack import Place, Purpose, Seat

Thing = TypeVar("Thing", int, str)


def place(seats: Sequence[Seat], purpose: Purpose, on_gpus: bool, devices: int = 1) -> list[Place | None]:
    """A place for every seat, or None for one that must stay idle lest it disturb a timed trial.

    GPUs that the launcher has given to single ranks stay theirs; a pool that all ranks of a host see is dealt
    out: several GPUs to a rank where there are enough, several ranks to a GPU where there are not. To time,
    only one rank works on a GPU, and on a host without GPUs only one at all, or as many as train one network
    together. Cores likewise.
    """
    found: list[Place | None] = [None] * len(seats)
    for host in dict.fromkeys(seat.host for seat in seats):
        numbers = [number for number, seat in enumerate(seats) if seat.host == host]
        gpus = _dealt([seats[number].gpus if on_gpus else () for number in numbers])
        working = list(range(len(numbers)))
        seen = [seats[number].cores for number in numbers]
        if purpose == "time":  # what the idle ones leave is for those that work
            working = _undisturbed(gpus, devices)
            seen = [tuple(sorted(set().union(*seen)))] * len(working)
        cores = _dealt(seen)
        for k, own in zip(working, cores, strict=True):
            apart = sum(not set(own).isdisjoint(other) for other in cores) == 1
            pin = own if apart and set(own) != set(seats[numbers[k]].cores) else ()
            found[numbers[k]] = Place(len(own) if apart else 1, pin, gpus[k])
    return found


def _dealt(seen: Sequence[tuple[Thing, ...]]) -> list[tuple[Thing, ...]]:
    """What each gets of what it sees: those that see the same share it."""
    found = list(seen)
    for pool in dict.fromkeys(seen):
        sharers = [k for k, things in enumerate(seen) if things == pool]
        for place, k in enumerate(sharers):
            first, last = (n * len(pool) // len(sharers) for n in (place, place + 1))
            alone = place % len(pool) if pool else 0
            found[k] = pool[first:last] if len(pool) >= len(sharers) else pool[alone : alone + 1]
    return found


def taking_turns(places: Sequence[Place | None], seats: Sequence[Seat]) -> list[Place]:
    """Where every rank has work of its own, one that would stay idle takes turns with one that works on its host."""
    found, idle = list(places), Counter[str]()
    for number, seat in enumerate(seats):
        if places[number] is None:
            there = [place for place, other in zip(places, seats, strict=True) if place and other.host == seat.host]
            found[number] = there[idle[seat.host] % len(there)]
            idle[seat.host] += 1
    return [place or Place() for place in found]


def apart(places: Iterable[Place | None]) -> int:
    """How many of these could train one network together: no two on one GPU."""
    taken: set[str] = set()
    count = 0
    for place in places:
        if place is not None and taken.isdisjoint(place.gpus):
            taken.update(place.gpus)
            count += 1
    return count


def _undisturbed(gpus: Sequence[tuple[str, ...]], devices: int) -> list[int]:
    """The first rank of each GPU; where there are none, the first ones that stand in for so many devices."""
    taken: set[str] = set()
    found: list[int] = []
    for k, own in enumerate(gpus):
        if taken.isdisjoint(own) and (own or len(found) < devices):
            found.append(k)
            taken.update(own)
    return found
