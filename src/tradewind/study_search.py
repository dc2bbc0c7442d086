"""The `search` of a study: which trial next, what counts as best, and when to end."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tradewind.errors import nearest
from tradewind.measures import Direction

METHODS = ("grid", "random", "sobol", "tpe", "gp", "cmaes", "nsga2")
LEARNING = ("tpe", "gp", "cmaes", "nsga2")  # choose by what the trials before have given
GROWING = ("trials", "epochs", "patience")  # budgets: with more of them a search goes on

Count = Annotated[int, Field(ge=1, strict=True)]
Directions = Annotated[list[Direction], Field(min_length=2, max_length=2)]
Metrics = Annotated[list[str], Field(min_length=1, max_length=2)]


def _method(name: Any) -> Any:
    if name not in METHODS:
        raise ValueError(f"found {name!r:.60}; {nearest(str(name), METHODS)}")
    return name


class Search(BaseModel):
    """Which trial next, what counts as best, and when to end."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: Annotated[Literal["grid", "random", "sobol", "tpe", "gp", "cmaes", "nsga2"], BeforeValidator(_method)] = (
        "grid"
    )
    trials: Count | None = Field(None, description="how many configs; default: all of a listed space")
    metric: str | Metrics | None = Field(None, description="what `best` means; default: the workload's own")
    direction: (
        Direction | Annotated[list[Direction], Field(min_length=2, max_length=2)] | dict[str, Direction] | None
    ) = Field(None, description="minimize or maximize, or by name of a metric; default: what its name says by itself")
    halving: Literal["asha", "hyperband"] | None = Field(None, description="train on only what is worth it")
    min_epochs: Count = Field(1, description="of halving: epochs before the first choice")
    eta: Annotated[int, Field(ge=2, strict=True)] = Field(3, description="of halving: one in so many goes on")
    epochs: Count | None = Field(None, description="end after so many epochs of training in all")
    target: Annotated[float, Field(strict=True)] | None = Field(None, description="end once the metric is this good")
    patience: Count | None = Field(None, description="end after so many trials without a better one")
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if isinstance(self.direction, list) and len(self.metrics) < 2:
            raise ValueError(f"found {len(self.direction)} directions for one metric; allowed: one")
        if isinstance(self.direction, str) and len(self.metrics) == 2:
            raise ValueError("found one direction for two metrics; allowed: a list of two, a map by name, or none")
        if self.method == "grid" and self.trials is not None:
            raise ValueError("a grid tries all of its space; leave `trials` out, or take the method random")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is searched for; empty: the workload's own metric."""
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric or ())

    def direction_of(self, name: str, metric: str) -> Direction | None:
        """What the study says of a measure: a map of any, a list of its metrics, a word of its (first) metric."""
        if isinstance(self.direction, dict):
            return self.direction.get(name)
        if isinstance(self.direction, list):
            return dict(zip(self.metrics, self.direction, strict=True)).get(name)
        return self.direction if name == metric else None

    @property
    def plain_grid(self) -> bool:
        """Whether every combination is tried to its end, whatever comes out."""
        return self.method == "grid" and not self.searches

    @property
    def searches(self) -> bool:
        """Whether results are needed to know what comes next; else trial k depends on k alone."""
        budgets = (self.halving, self.epochs, self.target, self.patience)
        return self.method in LEARNING or any(each is not None for each in budgets)
