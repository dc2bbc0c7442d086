"""From what a study says to what searches: an order over an index, or an adaptive search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from tradewind.errors import StudyError
from tradewind.pack import Purpose, Value
from tradewind.search import Direction, Halving, Indexed, Method, Order, Search
from tradewind.search.budget import Budget, Limited
from tradewind.search.grid import Grid
from tradewind.search.halving import Halved, Ladder, ladder
from tradewind.search.in_order import InOrder
from tradewind.search.options import settled
from tradewind.search.points import Axis, Listing, Points
from tradewind.search.random import Draws, Sample, Wanted, hashed
from tradewind.search.sobol import sobol

ADAPTIVE: tuple[Method, ...] = ("tpe", "gp", "cmaes", "nsga2")


@dataclass(frozen=True, slots=True)
class Settings:
    """The `search` of a study as plain data; `seed` is the study's."""

    method: Method = "grid"
    directions: tuple[Direction, ...] = ("maximize",)
    seed: int = 0
    trials: int | None = None  # configs; None: all of a listed space
    halving: Halving | None = None
    min_epochs: int = 1
    eta: int = 3
    options: Mapping[str, Value] = field(default_factory=dict)
    epochs: int | None = None  # budgets: epochs in all,
    target: float | None = None  # a value of the first objective that ends the search,
    patience: int | None = None  # trials without improvement
    repeats: int = 1  # of each config, which all count

    @property
    def adaptive(self) -> bool:
        """Whether it has to be told results; else trial k is a function of k alone."""
        return self.method in ADAPTIVE or self.halving is not None


def sampler_of(method: Method) -> str:
    """What proposes the trials of a search that learns, and its version, on which they depend; else nothing."""
    return f"the {method} of optuna {version('optuna')}" if method in ADAPTIVE else ""


def check(settings: Settings, points: Points) -> None:
    """A StudyError if the settings do not fit each other or the space; loads nothing heavy."""
    settled(settings.method, settings.options)
    if settings.method == "grid":
        _check_grid(settings, points)
    elif not points.axes:
        raise StudyError(f"search.method {settings.method}: found nothing in `space`; name what is to be searched")
    elif settings.trials is None and not (settings.method == "random" and points.even):
        ends = settings.method in ADAPTIVE and (settings.epochs or settings.patience)
        if not ends:
            raise StudyError(f"search.trials: is missing; {settings.method} has no end of its own, say how many")
    if settings.method == "cmaes":
        if len(settings.directions) > 1:
            raise StudyError("search.method cmaes: takes one objective; take nsga2, tpe or gp for several")
        if not any(_is_number(axis) for axis in points.axes):
            raise StudyError("search.method cmaes: found no numbers in `space`, only names; take tpe")
    if settings.halving:
        _check_halving(settings, points)


def indexed(settings: Settings, points: Points) -> Indexed:
    """What the positions of a search that is not adaptive count: `indexed(…)[position // repeats]` is a config.

    A Space where all is listed and nothing conditional; a Listing where something is; else a sequence's Draws.
    """
    if settings.method == "sobol":
        return Draws(points, sobol(len(points.axes), settings.seed))
    if settings.method == "random" and not points.even:
        return Draws(points, hashed(len(points.axes), settings.seed))
    plain = not points.conditional and all(axis.range is None for axis in points.axes)
    return points.space() if plain else Listing(points)


def order(settings: Settings, index: Indexed, repeats: int, purpose: Purpose) -> Order:
    """The order in which a search that is not adaptive tries the positions of its index."""
    if settings.method == "grid":
        return Grid(index, repeats, purpose, settings.seed)
    trials = index.size if settings.trials is None else settings.trials
    return Sample(index, Wanted(trials, repeats, purpose, settings.seed))


def adaptive(settings: Settings, points: Points) -> Search:
    """The search that is asked and told, with halving and budgets on top where the settings say so."""
    check(settings, points)
    search: Search
    if settings.method in ADAPTIVE:
        from tradewind.search.optuna_adapter import Sampled

        options = settled(settings.method, settings.options)
        search = Sampled(points, settings.method, options, settings.directions, settings.seed, settings.trials)
    else:
        index = indexed(settings, points)
        # in its natural order a grid may grow better and better, and halving would let nearly all go on
        mixed = settings.method == "grid" and settings.halving
        search = InOrder(index, order(settings, index, 1, "time" if mixed else "tune"))
    epochs = points.constants.get("epochs")
    budget = Budget(settings.directions, settings.epochs, settings.target, settings.patience, settings.repeats)
    if settings.halving:
        wanted = [each for each in (settings.trials, points.combinations) if each is not None]
        steps, configs = steps_of(settings, points), min(wanted, default=None)
        return Halved(search, steps, settings.directions, epochs, budget, configs)
    return Limited(search, budget, epochs) if budget.limits else search


def steps_of(settings: Settings, points: Points) -> Ladder:
    """The rungs of a search with halving."""
    return ladder(settings.min_epochs, points.most_epochs() or 1, settings.eta, settings.halving == "hyperband")


def _check_grid(settings: Settings, points: Points) -> None:
    for axis in points.axes:
        if axis.range is not None:
            raise StudyError(f'space.{axis.path}: a range without steps is continuous; a grid needs "steps": N')
    if settings.trials is not None:
        raise StudyError("search.trials: a grid tries all combinations; leave it out, or take random")


def _check_halving(settings: Settings, points: Points) -> None:
    most = points.most_epochs()
    if settings.eta < 2 or settings.min_epochs < 1:
        found = f"eta {settings.eta} and min_epochs {settings.min_epochs}"
        raise StudyError(f"search.halving: found {found}; allowed: eta from 2, min_epochs from 1")
    if most is None:
        raise StudyError("search.halving: needs a number of epochs to divide; set `epochs` in `fixed` or `space`")
    if most <= settings.min_epochs:
        raise StudyError(
            f"search.halving: found {most} epochs at most and min_epochs {settings.min_epochs}, "
            "which leaves nothing to divide; take fewer min_epochs"
        )
    if settings.epochs is not None and settings.epochs < (needed := most * settings.repeats):
        each = f"{most} epochs" + (f" × {settings.repeats} repeats" if settings.repeats > 1 else "")
        raise StudyError(
            f"search.epochs: found {settings.epochs}; allowed with halving: from {needed} ({each}), "
            "so that one config is trained to its end"
        )


def _is_number(axis: Axis) -> bool:
    return axis.range is not None or all(type(value) in {int, float} for value in axis.values)
