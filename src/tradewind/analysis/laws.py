"""The time of work on devices: one law of devices, batch size and work, fitted with its uncertainty.

The law is a sum of non-negative costs, fitted as `sums` tells; where few measurements leave it open which costs a
machine has, the interval is wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tradewind.analysis.scaling import Group
from tradewind.analysis.sums import Draws, draw_sums
from tradewind.columns import Array
from tradewind.errors import RunError

TYPICAL_NOISE = 0.06  # what is believed of timing noise before any row
INTERVAL = (0.1, 0.9)
MOST_LENDERS = 12
# Collectives are trees or rings: a message per device and step is the exception
CHANCES = np.array([1, 1, 1, 1, 1, 1, 1, 1, 1 / 3, 1])


@dataclass(frozen=True)
class Measurement:
    """How long an amount of work took; `batch_size` is the global one, None where it is not known."""

    devices: int
    batch_size: float | None
    work: float
    seconds: float
    group: Group = ()


@dataclass(frozen=True)
class Prediction:
    """A time with its 80 % interval."""

    seconds: float
    low: float
    high: float


def costs(devices: Array, batch_size: Array, work: Array) -> Array:
    """What the work costs, one column per cost, up to its factor."""
    steps, several = work / batch_size, devices > 1
    return np.stack(
        [
            np.ones_like(work),  # once per job
            work,  # serial: reading and preparing samples
            work / devices,  # computing the share of a device
            work / np.sqrt(devices),  # shares that balance badly
            steps,  # launching a step
            steps * several,  # exchanging gradients at all: a saturated link, replication
            work * several,  # scattering samples
            steps * np.log2(devices),  # a tree of messages
            steps * (devices - 1),  # one message per device
            steps * (1 - 1 / devices),  # bytes around a ring
        ],
        axis=-1,
    )


@dataclass(frozen=True)
class Model:
    """The laws of all groups, each fitted when asked for.

    A group measured at one device count only borrows the shape of others.
    """

    groups: dict[Group, list[Measurement]]
    scaled: frozenset[Group]  # measured at several device counts
    _own: dict[Group, Draws] = field(default_factory=dict)

    def laws(self, group: Group) -> list[Draws]:
        """One law, or those of the groups that lend theirs."""
        if group not in self.groups:
            raise RunError(f"no measurement of {dict(group)}")
        if group in self.scaled or not self.scaled:
            return [self._law(group)]
        lenders = [one for one in self.groups if one in self.scaled][:MOST_LENDERS]
        return [_borrowed(self._law(lender), self.groups[group]) for lender in lenders]

    def counts(self, group: Group) -> list[int]:
        """The device counts that the law of a group stands on."""
        lenders = [group] if group in self.scaled or not self.scaled else [g for g in self.groups if g in self.scaled]
        return max((sorted({row.devices for row in self.groups[one]}) for one in lenders), key=len)

    def _law(self, group: Group) -> Draws:
        if group not in self._own:
            self._own[group] = _law(self.groups[group])
        return self._own[group]

    def draws(
        self, devices: int, batch_size: float | None, work: float = 1, group: Group = ()
    ) -> tuple[Array, Array]:
        """The time in every draw (a column per law), without noise, and the noise of one measurement."""
        parts = _parts(devices, batch_size, work)
        each = [(law.at(parts), law.noise) for law in self.laws(group)]
        draws, noise = np.stack(each, axis=1)
        return draws.T, noise.T

    def predict(self, devices: int, batch_size: float | None, work: float = 1, group: Group = ()) -> Prediction:
        """The time of one run that may never have been made."""
        return prediction(*self.draws(devices, batch_size, work, group))


def prediction(draws: Array, noise: Array) -> Prediction:
    """The middle of the draws, and where one measurement would lie."""
    low, high = np.quantile(draws * np.exp(noise), INTERVAL)
    return Prediction(float(np.median(draws)), float(low), float(high))


def fit(rows: Sequence[Measurement]) -> Model:
    """The model of these measurements."""
    if not rows:
        raise RunError("nothing to predict from: no trial that is done has this time")
    groups: dict[Group, list[Measurement]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    scaled = frozenset(group for group, members in groups.items() if len({row.devices for row in members}) > 1)
    return Model(groups, scaled)


def _borrowed(law: Draws, rows: Sequence[Measurement]) -> Draws:
    """The law of another group, made to fit the few rows of this one."""
    ratios = [row.seconds / np.median(law.at(_parts(row.devices, row.batch_size, row.work))) for row in rows]
    return Draws(law.factors * np.median(ratios), law.noise)


def _law(rows: Sequence[Measurement]) -> Draws:
    table = np.array([[row.devices, row.batch_size or 1.0, row.work, row.seconds] for row in rows], dtype=float)
    _, places = np.unique(table[:, :2], axis=0, return_inverse=True)
    return draw_sums(costs(*table[:, :3].T), table[:, 3], places.reshape(-1), TYPICAL_NOISE, CHANCES)


def _parts(devices: float, batch_size: float | None, work: float) -> Array:
    return np.asarray(costs(*np.array([[devices], [batch_size or 1], [work]], dtype=float))[0])
