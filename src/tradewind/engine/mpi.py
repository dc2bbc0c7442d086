"""The engine `mpi`: every rank trains in a child process of its own; rank 0 hands out, and trains too.

Messages are pickled tuples, their first word says what they are. From rank 0: `task` (what to train and
where), `packs`, `ask` and `drop` (to a gang's member), `end`. To rank 0: `hello` (seat, host, machine),
`events`. Nobody waits inside MPI, where waiting costs a whole core: all look, and sleep between looks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tradewind.engine import Ended, Event, Lost
from tradewind.engine.gang import Answer, Gangs
from tradewind.engine.pace import Pace
from tradewind.engine.processes import Processes
from tradewind.engine.world import World
from tradewind.pack import Pack, Place, Task, Trial

SHORTEST_NAP_S, LONGEST_NAP_S = 0.0002, 0.003
GRACE_S = 5.0  # between the exception of a gang's member and the news that the rank of another one has died
AHEAD = 2  # bundles in a rank's hands, so that it need not wait for the next one while short trials last


class Mpi:
    """The workers of all ranks, seen from rank 0. Ranks without a place stay idle."""

    def __init__(
        self, world: World, places: Sequence[Place | None], trainer: str, task: Task, logs: Path, name: str
    ) -> None:
        self._world, self._places = world, places
        self._ranks = [rank for rank, place in enumerate(places) if place is not None and rank not in world.dead]
        self._numbers = {rank: number for number, rank in enumerate(self._ranks)}
        self.workers = len(self._ranks)
        self._local: Processes | None = None
        for rank, place in enumerate(places):
            if place is not None and rank == 0:
                self._local = Processes(trainer, task, [place], logs, f"{name}-rank0")
            elif place is not None:
                world.send(rank, "task", trainer, task, place, str(logs), f"{name}-rank{rank}")
        self._hands: dict[int, deque[Pack]] = {rank: deque() for rank in self._ranks if rank}
        self._unsent: dict[int, list[Pack]] = {rank: [] for rank in self._hands}
        self._alone = self._first_of_hosts() if task.purpose == "time" else set(self._ranks)
        self._gangs = Gangs(self, GRACE_S)
        self._dropping: set[int] = set()  # ranks that have not yet killed their worker
        self._pace = Pace()
        self._nap_s = SHORTEST_NAP_S

    def free(self) -> int:
        """How many packs could be handed out now."""
        if self._gangs.waiting:
            return 0
        room = self._room()
        there = sum(max(0, room - len(self._hands[rank])) for rank in self._open())
        return there + (self._local.free() if self._local and self._is_open(0) else 0)

    def submit(self, pack: Pack, slots: int = 1) -> int:
        """Give a pack to the rank with the least in hand."""
        if slots > 1:
            return self._gangs.submit(pack, slots)
        rank = min(self._open(), key=lambda rank: len(self._hands[rank]), default=0)
        here = self._local and self._is_open(0) and self._local.free()
        if self._local and here and (not rank or self._hands[rank]):
            self._local.submit(pack)
            return self._numbers[0]
        self._hands[rank].append(pack)
        self._unsent[rank].append(pack)
        return self._numbers[rank]

    def poll(self, timeout_s: float) -> list[Event]:
        """What all ranks report, and what the dead ones had in hand."""
        until = time.monotonic() + timeout_s
        while True:
            for rank, packs in self._unsent.items():
                if packs:
                    self._world.send(rank, "packs", packs)
                    self._unsent[rank] = []
            heard = self._heard()
            nap_s = min(self._nap_s, max(0.0, until - time.monotonic())) if not heard else 0.0
            if self._local:
                heard += [self._here(event) for event in self._local.hear(nap_s)]
            else:
                time.sleep(nap_s)
            events = self._gangs.heard(heard)
            self._nap_s = SHORTEST_NAP_S if heard else min(LONGEST_NAP_S, self._nap_s * 1.3)
            if events or time.monotonic() >= until:
                return events

    def living(self) -> Sequence[int]:
        """The workers of all ranks that live."""
        return [number for number, rank in enumerate(self._ranks) if rank in self._hands or not rank]

    def idle(self, number: int) -> bool:
        """Whether a rank has nothing in hand."""
        rank = self._ranks[number]
        if self._local and not rank:
            return self._local.idle(0)
        return not self._hands.get(rank) and rank not in self._dropping

    def seat(self, number: int) -> tuple[str, tuple[str, ...]]:
        """The host and the GPUs of a rank."""
        place = self._places[self._ranks[number]]
        return self._world.where(self._ranks[number])["host"], place.gpus if place else ()

    def ask(self, number: int, word: str, *content: Any) -> None:
        """Have a rank's worker gather or take turns with the rest of its gang."""
        if self._local and not self._ranks[number]:
            self._local.ask(0, word, *content)
        else:
            self._world.send(self._ranks[number], "ask", word, *content)

    def give(self, number: int, pack: Pack) -> None:
        """Give a pack to this very rank."""
        rank = self._ranks[number]
        if self._local and not rank:
            self._local.give(0, pack)
        else:
            self._hands[rank].append(pack)
            self._unsent[rank].append(pack)

    def drop(self, number: int) -> None:
        """Have a rank kill its worker; what that was doing has no outcome."""
        rank = self._ranks[number]
        if self._local and not rank:
            self._local.drop(0)
        elif rank in self._hands:
            self._hands[rank].clear()
            self._unsent[rank].clear()
            self._dropping.add(rank)
            self._world.send(rank, "drop")

    def close(self) -> None:
        """Kill rank 0's worker; the others end when the world does, which follows."""
        if self._local:
            self._local.close()

    def _room(self) -> int:
        depth = self._pace.depth()
        return depth if depth == 1 else AHEAD * depth

    def _first_of_hosts(self) -> set[int]:
        """To time on CPUs, one trial at a time on each host: the other ranks are there for gangs."""
        hosts: set[str] = set()
        found = set()
        for number, rank in enumerate(self._ranks):
            host, gpus = self.seat(number)
            if gpus or host not in hosts:
                found.add(rank)
                hosts.add(host)
        return found

    def _is_open(self, rank: int) -> bool:
        return rank in self._alone and self._numbers[rank] not in self._gangs.held and rank not in self._dropping

    def _open(self) -> list[int]:
        if not self._gangs.held and not self._dropping and len(self._alone) == len(self._ranks):
            return list(self._hands)  # asked for every trial, and many ranks have many short ones
        return [rank for rank in self._hands if self._is_open(rank)]

    def _heard(self) -> list[Event | Answer]:
        events: list[Event | Answer] = []
        for rank, kind, *content in self._world.receive():
            if kind == "events" and rank in self._hands:
                for event in content[0]:
                    events += self._from(rank, event)
        for rank in [rank for rank in self._hands if rank in self._world.dead]:
            number = self._numbers[rank]
            events += [Lost(number, pack) for pack in self._hands.pop(rank) if pack.gang is None]
            events.append(Answer(number, "lost"))
            self._unsent.pop(rank)
            self._dropping.discard(rank)
            self.workers -= 1
        return events

    def _from(self, rank: int, event: Event | Answer) -> list[Event | Answer]:
        number = self._numbers[rank]
        if rank in self._dropping:  # it has not heard yet that its gang is no more
            if isinstance(event, Answer) and event.word == "dropped":
                self._dropping.remove(rank)
            return []
        if isinstance(event, Ended):
            if not self._note(event, self._hands[rank]):
                return []
            return [replace(event, worker=number, where=self._world.where(rank))]
        return [replace(event, worker=number)]

    def _here(self, event: Event | Answer) -> Event | Answer:
        if isinstance(event, Ended) and not event.goes_on:
            self._pace.note(event.finished - event.started)
        return replace(event, worker=self._numbers[0])

    def _note(self, event: Ended, hand: deque[Pack]) -> bool:
        """What a rank has in hand after this; False where it was not asked for."""
        ended = event.pack.trials
        place = next((k for k, pack in enumerate(hand) if set(_keys(ended)) <= set(_keys(pack.trials))), None)
        if place is None or [outcome.key for outcome in event.outcomes] != _keys(ended):
            return False
        if event.goes_on:
            hand[place] = hand[place].parted(_keys(ended))[1]
        else:
            del hand[place]
            self._pace.note(event.finished - event.started)
        return True


def _keys(trials: Sequence[Trial]) -> list[str]:
    return [trial.key for trial in trials]


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
                if kind == "packs":
                    waiting.extend(content[0])
                elif kind == "ask":
                    local.ask(0, *content)
                elif kind == "drop":
                    waiting.clear()
                    local.drop(0)
                    world.send(0, "events", [Answer(0, "dropped")])
            while waiting and local.free():
                local.submit(waiting.popleft())
            events = local.hear(nap_s)
            if events:
                world.send(0, "events", events)
            nap_s = SHORTEST_NAP_S if events or heard else min(LONGEST_NAP_S, nap_s * 1.3)
    finally:
        local.close()
