"""Search: which trial next. Orders need nothing but a number; adaptive searches are asked and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from tradewind.pack import Config

Method = Literal["grid", "random", "sobol", "tpe", "gp", "cmaes", "nsga2"]
Halving = Literal["asha", "hyperband"]
Direction = Literal["minimize", "maximize"]
ToldState = Literal["started", "paused", "done", "pruned", "stopped", "failed"]


class Indexed(Protocol):
    """Configs by index, conditions not yet applied: a Space, Points, or the draws of a sequence."""

    size: int
    where: tuple[str, ...]

    def __getitem__(self, index: int, /) -> Config:
        """The config at an index; conditional values only where they are active."""
        ...

    def accepts(self, config: Config, /) -> bool:
        """Whether all conditions hold."""
        ...

    def indices(self, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """The accepted indexes from start to stop, in order."""
        ...


class Order(Protocol):
    """The order in which positions (index × repeats + repeat) are tried: places 0..size-1."""

    @property
    def size(self) -> int:
        """How many places there are, conditions not yet applied."""
        ...

    def positions(self, start: int, stop: int) -> Iterator[int]:
        """The positions at places start..stop-1 that are to be tried."""
        ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """A config to train; a promotion repeats the number of what goes on."""

    number: int  # 0, 1, 2 … in the order in which configs were first asked for
    values: Config  # the searched names; conditional ones only where they are active
    until: int | None = None  # pause after this epoch; None: train to the end


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a proposal, or that it began.

    `started` is for what the search did not hand out itself: on resuming, and what another job began. It
    makes the number pending; told of a paused number it is that number's promotion; with other values than
    those it was asked with, the told ones hold. A search need not be told of what it handed out itself.
    """

    number: int
    values: Config
    state: ToldState
    epoch: int | None = None  # how many epochs it has trained; None: not known
    objectives: tuple[float, ...] = ()  # in the order of the directions; empty: failed or not finite
    trained: int | None = None  # epochs of all its repeats together; None: each has trained `epoch`


class Search(Protocol):
    """Asks are a function of the study, its seed and all that was told, in its order: state is the journal.

    On resuming, tell what the journal holds in the order in which it happened, then take up what is `pending`
    and in nobody's hands.
    """

    def ask(self, n: int) -> list[Proposal]:
        """Up to n proposals, each at once pending; none: results are to be waited for, or the search is over."""
        ...

    def tell(self, told: Told) -> None:
        """Take note; what is told twice counts once."""
        ...

    @property
    def pending(self) -> list[Proposal]:
        """What was asked for or started and not yet told of, by number."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing will be asked any more, whatever is still told."""
        ...

    @property
    def epochs(self) -> int | None:
        """How many epochs all repeats will have trained, by what is known; None: it prunes nothing."""
        ...

    @property
    def why(self) -> str:
        """Why it is over before as many configs as were wanted were tried, or nothing."""
        ...
