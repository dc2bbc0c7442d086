"""The engine `mpi`: every rank trains in a child process of its own; rank 0 hands out, and trains too.

Messages are pickled tuples, their first word says what they are. From rank 0: `task` (what to train and
where), `packs`, `end`. To rank 0: `hello` (seat, host, machine), `events`. Nobody waits inside MPI, where
waiting costs a whole core: all look, and sleep between looks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tradewind.engine import Ended, Event, Lost
from tradewind.engine.pace import Pace
from tradewind.engine.processes import Processes
from tradewind.engine.world import World
from tradewind.pack import Pack, Place, Task

SHORTEST_NAP_S, LONGEST_NAP_S = 0.0002, 0.003
AHEAD = 2  # bundles in a rank's hands, so that it need not wait for the next one while short trials last


class Mpi:
    """The workers of all ranks, seen from rank 0. Ranks without a place stay idle."""

    def __init__(
        self, world: World, places: Sequence[Place | None], trainer: str, task: Task, logs: Path, name: str
    ) -> None:
        self._world = world
        self._ranks = [rank for rank, place in enumerate(places) if place is not None and rank not in world.dead]
        self.workers = len(self._ranks)
        self._local: Processes | None = None
        for rank, place in enumerate(places):
            if place is not None and rank == 0:
                self._local = Processes(trainer, task, [place], logs, f"{name}-rank0")
            elif place is not None:
                world.send(rank, "task", trainer, task, place, str(logs), f"{name}-rank{rank}")
        self._hands: dict[int, deque[Pack]] = {rank: deque() for rank in self._ranks if rank}
        self._unsent: dict[int, list[Pack]] = {rank: [] for rank in self._hands}
        self._pace = Pace()
        self._nap_s = SHORTEST_NAP_S

    def free(self) -> int:
        """How many packs could be handed out now."""
        room = self._room()
        there = sum(max(0, room - len(packs)) for packs in self._hands.values())
        return there + (self._local.free() if self._local else 0)

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Give a pack to the rank with the least in hand."""
        rank = min(self._hands, key=lambda rank: len(self._hands[rank]), default=0)
        if self._local and self._local.free() and (not rank or self._hands[rank]):
            self._local.submit(pack)
            return self._ranks.index(0)
        self._hands[rank].append(pack)
        self._unsent[rank].append(pack)
        return self._ranks.index(rank)

    def poll(self, timeout_s: float) -> list[Event]:
        """What all ranks report, and what the dead ones had in hand."""
        until = time.monotonic() + timeout_s
        for rank, packs in self._unsent.items():
            if packs:
                self._world.send(rank, "packs", packs)
                self._unsent[rank] = []
        while True:
            events = self._heard()
            nap_s = min(self._nap_s, max(0.0, until - time.monotonic())) if not events else 0.0
            if self._local:
                events += [self._here(event) for event in self._local.poll(nap_s)]
            else:
                time.sleep(nap_s)
            self._nap_s = SHORTEST_NAP_S if events else min(LONGEST_NAP_S, self._nap_s * 1.3)
            if events or time.monotonic() >= until:
                return events

    def close(self) -> None:
        """Kill rank 0's worker; the others end when the world does, which follows."""
        if self._local:
            self._local.close()

    def _room(self) -> int:
        depth = self._pace.depth()
        return depth if depth == 1 else AHEAD * depth

    def _heard(self) -> list[Event]:
        events: list[Event] = []
        for rank, kind, *content in self._world.receive():
            if kind == "events" and rank in self._hands:
                events += [self._from(rank, event) for event in content[0]]
        for rank in [rank for rank in self._hands if rank in self._world.dead]:
            events += [Lost(self._ranks.index(rank), pack) for pack in self._hands.pop(rank)]
            self._unsent.pop(rank)
            self.workers -= 1
        return events

    def _from(self, rank: int, event: Event) -> Event:
        number = self._ranks.index(rank)
        if isinstance(event, Ended):
            self._hands[rank].remove(event.pack)
            self._pace.note(event.finished - event.started)
            return replace(event, worker=number, where=self._world.where(rank))
        return replace(event, worker=number)

    def _here(self, event: Event) -> Event:
        if isinstance(event, Ended):
            self._pace.note(event.finished - event.started)
        return replace(event, worker=self._ranks.index(0))


def follow(world: World, message: Sequence[Any]) -> None:
    """What a rank does that was sent a task: train pack after pack until rank 0 says that it is over."""
    trainer, task, place, logs, name = message
    local = Processes(trainer, task, [place], Path(logs), name)
    waiting: deque[Pack] = deque()
    nap_s = SHORTEST_NAP_S
    try:
        while True:
            for _, kind, *content in (heard := world.receive()):
                if kind == "end":
                    return
                waiting.extend(content[0])
            while waiting and local.free():
                local.submit(waiting.popleft())
            events = local.poll(nap_s)
            if events:
                world.send(0, "events", events)
            nap_s = SHORTEST_NAP_S if events or heard else min(LONGEST_NAP_S, nap_s * 1.3)
    finally:
        local.close()
