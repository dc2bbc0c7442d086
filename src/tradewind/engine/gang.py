"""Gangs: workers that train one network together, and what becomes of a trial when one of them fails.

A gang is gathered once: every member loads its trainer, the first one opens the meeting place. Before each
trial one member of every machine takes the turn for all that are there: if each took its own, a timed trial
could come between two of them and all three would wait for each other. Their order is the same everywhere.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tradewind.engine import Ended, Epoch, Event, Lost, Waiting
from tradewind.pack import Gang, Outcome, Pack

WORDS = ("gathered", "taken", "unready")  # what a worker answers about itself
TIMEOUT = "timeout: "  # how the cause of a trial begins that was ended by force; no member's fault


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker says about itself, not about a trial.

    `gathered` (meeting, its machine, what it computes on there), `taken`, `unready` (error); of its process
    `gone` (error) and `dropped`, of its whole rank `lost`.
    """

    worker: int
    word: str
    content: Any = None


class Members(Protocol):
    """The workers that gangs are made of, by number."""

    def living(self) -> Sequence[int]:
        """Those that could be taken, at work or not."""
        ...

    def idle(self, number: int) -> bool:
        """Whether one has nothing in hand."""
        ...

    def seat(self, number: int) -> tuple[str, tuple[str, ...]]:
        """Its host and its GPUs."""
        ...

    def ask(self, number: int, word: str, *content: Any) -> None:
        """`meet` or `gather`, answered by `gathered`; `take`, answered by `taken`; `leave`, not answered."""
        ...

    def give(self, number: int, pack: Pack) -> None:
        """Have it train a pack; its end is told like that of any."""
        ...

    def drop(self, number: int) -> None:
        """Kill it in the midst of what it does, of which nothing more is told."""
        ...


@dataclass(eq=False)
class Team:
    """Workers in the order of their ranks; kept from trial to trial while it has a meeting place."""

    slots: int
    members: tuple[int, ...]
    pack: Pack = field(default_factory=lambda: Pack(()))
    began: float = 0.0
    meeting: str = ""
    things: dict[int, list[Any]] = field(default_factory=dict)  # where and on what each computes
    heads: list[tuple[int, list[str]]] = field(default_factory=list)  # one of each machine, for all that are there
    turns: int = 0  # how many heads have taken theirs
    ended: dict[int, Ended] = field(default_factory=dict)
    verdict_at: float = float("inf")


class Gangs:
    """Forms teams of workers, and makes one event of what their members tell."""

    def __init__(self, members: Members, grace_s: float) -> None:
        self.held: set[int] = set()  # workers that no other pack may be given to
        self._members, self._grace_s = members, grace_s
        self._waiting: deque[Team] = deque()
        self._working: dict[int, Team] = {}  # by member
        self._kept: list[Team] = []
        self._refused: list[Event] = []
        self._dropped: set[int] = set()  # just now: what they have told besides is of no interest

    @property
    def waiting(self) -> bool:
        """Whether a pack waits for its workers to get free; if others went before it, it might wait for ever."""
        return bool(self._waiting)

    def submit(self, pack: Pack, slots: int) -> int:
        """Take a pack that so many workers train; the number of the one that leads them."""
        team = self._chosen(slots)
        team.pack = pack
        self._waiting.append(team)
        self._begin()
        return team.members[0] if team.members else 0

    def due_s(self) -> float:
        """How long nothing need be looked at if nobody tells anything."""
        if self._refused:
            return 0.0
        soonest = min((team.verdict_at for team in self._working.values()), default=float("inf"))
        return max(0.0, soonest - time.monotonic())

    def heard(self, events: Iterable[Event | Answer]) -> list[Event]:
        """What workers have told, that of gangs put together."""
        found: list[Event] = []
        self._dropped.clear()
        for event in events:
            team = self._working.get(event.worker)
            self._part_with(event)
            if event.worker in self._dropped:
                continue
            if isinstance(event, Answer):
                found += self._answered(team, event)
            elif isinstance(event, Waiting):
                found.append(replace(event, key=team.pack.trials[0].key) if team else event)
            elif team is None or isinstance(event, Epoch):
                found.append(event)
            else:
                found += self._ended(team, event) if isinstance(event, Ended) else self._lost(team)
        if self._working:
            now = time.monotonic()
            for team in dict.fromkeys(self._working.values()):
                found += self._judged(team) if now >= team.verdict_at else []
        self._begin()
        refused, self._refused = self._refused, []
        return [*found, *refused]

    def _chosen(self, slots: int) -> Team:
        """A team that is kept, unless only others are idle."""
        kept = [team for team in self._kept if team.slots == slots]
        team = next((team for team in kept if self._idle(team)), None)
        if team is None:
            living = self._members.living()
            fresh = Team(
                slots, self._apart([n for n in living if n not in self.held and self._members.idle(n)], slots)
            )
            if len(fresh.members) == slots:
                return fresh
            team = kept[0] if kept else Team(slots, self._apart(living, slots))
        if team.meeting:
            self._kept.remove(team)
        return team

    def _apart(self, numbers: Sequence[int], slots: int) -> tuple[int, ...]:
        """So many of them, on as few hosts as can be, no two on one GPU."""
        seats = {number: self._members.seat(number) for number in numbers}
        room = Counter(host for host, _ in seats.values())
        found: list[int] = []
        taken: set[str] = set()
        for number in sorted(numbers, key=lambda n: (-room[seats[n][0]], seats[n][0], n)):
            if len(found) < slots and taken.isdisjoint(seats[number][1]):
                found.append(number)
                taken.update(seats[number][1])
        return tuple(found)

    def _idle(self, team: Team) -> bool:
        return all(number not in self.held and self._members.idle(number) for number in team.members)

    def _begin(self) -> None:
        """Set those to work whose members are idle, in the order in which they came."""
        while self._waiting and self._idle(self._waiting[0]):
            team = self._waiting.popleft()
            team.began = time.time()
            if len(team.members) < team.slots:
                self._refuse(team)
                continue
            self.held.update(team.members)
            self._working.update(dict.fromkeys(team.members, team))
            if team.meeting:
                self._take_turns(team)
            else:
                self._gather(team)

    def _gather(self, team: Team) -> None:
        for number in team.members:
            self._forget(number)  # who meets elsewhere does not come back to where it was
        far = len({self._members.seat(number)[0] for number in team.members}) > 1
        leader, *others = team.members
        self._members.ask(leader, "meet", far)
        for number in others:
            self._members.ask(number, "gather")

    def _take_turns(self, team: Team) -> None:
        if team.turns < len(team.heads):
            head, things = team.heads[team.turns]
            self._members.ask(head, "take", things)
            return
        for rank, number in enumerate(team.members):
            self._members.give(number, replace(team.pack, gang=Gang(rank, team.slots, team.meeting)))

    def _answered(self, team: Team | None, answer: Answer) -> list[Event]:
        if team is None:
            return []
        if answer.word == "gathered":
            meeting, *team.things[answer.worker] = answer.content
            team.meeting = meeting or team.meeting
            if len(team.things) == team.slots:
                team.heads = _heads(team)
                self._take_turns(team)
        elif answer.word == "taken":
            team.turns += 1
            self._take_turns(team)
        elif answer.word == "lost":
            return self._lost(team)
        else:
            return self._failed(team, answer.worker, answer.content)
        return []

    def _ended(self, team: Team, event: Ended) -> list[Event]:
        team.ended[event.worker] = event
        now = time.monotonic()
        if (error := _error(event)) is not None:
            # when one dies, others raise because it is not there any more, and may be heard first
            team.verdict_at = min(team.verdict_at, now if "traceback" not in error else now + self._grace_s)
        if len(team.ended) == team.slots:
            team.verdict_at = now
        return self._judged(team) if team.verdict_at <= now else []

    def _judged(self, team: Team) -> list[Event]:
        errors = {number: error for number, event in team.ended.items() if (error := _error(event)) is not None}
        if errors:
            first = min(errors, key=lambda n: ("traceback" in errors[n], team.ended[n].finished))
            return self._failed(team, first, errors[first])
        for head, _ in team.heads:
            self._members.ask(head, "leave")
        ended = replace(team.ended[team.members[0]], pack=team.pack)
        self._release(team)
        self._kept.append(team)
        team.ended, team.turns, team.verdict_at = {}, 0, float("inf")
        return [ended]

    def _failed(self, team: Team, guilty: int, error: dict[str, str]) -> list[Event]:
        """The trial has failed through one member; the others would wait for it for ever."""
        what = error["what"]
        if not what.startswith(TIMEOUT):
            what = f"device {team.members.index(guilty)} of {team.slots}: {what}"
        outcomes = [Outcome(t.key, "failed", what, {**error, "what": what}) for t in team.pack.trials]
        seen = team.ended.get(guilty) or Ended(guilty, team.pack, [], team.began, time.time())
        self._disband(team)
        return [replace(seen, worker=team.members[0], pack=team.pack, outcomes=outcomes)]

    def _lost(self, team: Team) -> list[Event]:
        self._disband(team)
        return [Lost(team.members[0], team.pack)]

    def _refuse(self, team: Team) -> None:
        what = f"devices: {team.slots}, but the run has {len(team.members)} workers that could train together"
        outcomes = [Outcome(t.key, "failed", what, {"what": what}) for t in team.pack.trials]
        self._refused.append(Ended(0, team.pack, outcomes, team.began, time.time()))

    def _disband(self, team: Team) -> None:
        for number in team.members:
            self._members.drop(number)
        self._dropped.update(team.members)
        self._release(team)

    def _release(self, team: Team) -> None:
        self.held.difference_update(team.members)
        for number in team.members:
            del self._working[number]

    def _forget(self, number: int) -> None:
        """A worker is another process now, or meets elsewhere: where it met before, the others would wait for it."""
        self._kept = [team for team in self._kept if number not in team.members]
        for team in self._waiting:
            if number in team.members:
                team.meeting, team.things, team.heads = "", {}, []

    def _part_with(self, event: Event | Answer) -> None:
        """Told of members of a gang that is no more, too: another one may wait for them."""
        word = event.word if isinstance(event, Answer) else ""
        if word in {"gone", "lost"}:
            self._forget(event.worker)
        for team in self._waiting if word == "lost" else ():
            if event.worker in team.members:
                team.members = self._apart(self._members.living(), team.slots)


def _error(event: Ended) -> dict[str, str] | None:
    """Why a member has no result, if it has none."""
    return next((o.error or {"what": o.reason} for o in event.outcomes if o.state == "failed"), None)


def _heads(team: Team) -> list[tuple[int, list[str]]]:
    on: dict[str, list[int]] = {}
    for number in team.members:
        on.setdefault(team.things[number][0], []).append(number)
    return [
        (there[0], sorted({thing for number in there for thing in team.things[number][1]}))
        for _, there in sorted(on.items())
    ]
