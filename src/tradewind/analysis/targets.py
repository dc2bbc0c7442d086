"""Epochs to a target by batch size: steps = least·(1 + critical/B), so epochs are linear in the batch B.

Fitted by the procedure that fits times (`sums`): constant epochs, epochs in proportion to the batch, or both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tradewind.analysis.scaling import Group, Timed
from tradewind.analysis.sums import DRAWS, OUTLYING, Draws, draw_sums
from tradewind.columns import Array

TYPICAL_NOISE = 0.1  # of epochs to a target between repeats
FEWEST_SIZES = 3  # batch sizes that tell a critical one
# With a rate that stays, a global batch learns the same on any devices; the other rules change the rate with them
SAME_RATE = ("strong", "weak")


@dataclass(frozen=True)
class EpochsToTarget:
    """What some configs that learn alike say about the epochs to their target."""

    config: dict[str, Any]
    rules: tuple[str, ...]
    pairs: list[tuple[float, float]]  # global batch size, epochs
    draws: Draws

    def at(self, batch_size: float) -> Array:
        """The epochs in every draw, without noise."""
        return self.draws.at(np.array([1.0, batch_size]))

    @property
    def batch_sizes(self) -> list[float]:
        """The global batch sizes that reached the target."""
        return sorted({batch for batch, _ in self.pairs})

    def plain(self, interval: tuple[float, float]) -> dict[str, Any]:
        """As numbers: the middle, and how sure the critical batch size is."""
        found = critical_batch(self.pairs) or {"epochs_least": float(np.median(self.at(self.batch_sizes[0])))}
        facts = {"config": self.config, "rules": list(self.rules), "batch_sizes": len(self.batch_sizes), **found}
        if facts.get("critical_batch_size") is None:
            return {"critical_batch_size": None, **facts}
        least, slope = self.draws.factors.T
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = np.quantile(np.where(slope > 0, least / slope, np.inf), interval, method="nearest")
        ends = {"critical_low": float(low), "critical_high": float(high)}
        return {**facts, **{name: end if np.isfinite(end) else None for name, end in ends.items()}}


def epochs_to_target(rows: Sequence[Timed]) -> dict[tuple[Group, str], EpochsToTarget]:
    """By what is learned from and by rule; what ran on one device counts for every rule, for there all are one."""
    groups: dict[Group, list[Timed]] = {}
    for row in rows:
        if row.epochs_to_target and row.global_batch(row.devices):
            groups.setdefault(row.learning, []).append(row)
    found = {}
    for group, members in groups.items():
        for rule in sorted({row.rule for row in members}):
            same = [row for row in members if row.devices == 1 or _alike(row.rule) == _alike(rule)]
            pairs = [(row.global_batch(row.devices) or 0.0, row.epochs_to_target or 0.0) for row in same]
            rules = tuple(sorted({row.rule for row in same if _alike(row.rule) == _alike(rule)}))
            found[group, rule] = EpochsToTarget(dict(group), rules, pairs, _draws(pairs))
    return found


def _alike(rule: str) -> str:
    return SAME_RATE[0] if rule in SAME_RATE else rule


def _draws(pairs: Sequence[tuple[float, float]]) -> Draws:
    batches, epochs = np.array(pairs, dtype=float).T
    parts = np.stack([np.ones_like(batches), batches], axis=1)
    found = draw_sums(parts, epochs, np.unique(batches, return_inverse=True)[1], TYPICAL_NOISE, np.ones(2))
    # Draws of times come from the same random numbers: in another order the two are independent
    other = np.random.default_rng(1).permutation(DRAWS)
    return Draws(found.factors[other], found.noise[other])


def critical_batch(pairs: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """Epochs at small batches and the batch that doubles them; None with fewer than three batch sizes.

    Least squares in relative error with both parts non-negative; a row that lies far off loses weight.
    """
    batches, epochs = np.array(pairs, dtype=float).T
    if len(np.unique(batches)) < FEWEST_SIZES:
        return None
    shares, weights = np.stack([1 / epochs, batches / epochs], axis=1), np.ones(len(epochs))
    for _ in range(5):
        parts = _both(shares, weights)
        missed = np.abs(shares @ parts - 1)
        spread = max(float(np.median(missed)) * 1.5, 1e-9)
        weights = np.minimum(1.0, OUTLYING * spread / np.maximum(missed, 1e-12))
    least, per_sample = (float(part) for part in parts)
    return {
        "epochs_least": least,
        "epochs_per_batch_sample": per_sample,
        "critical_batch_size": least / per_sample if per_sample > 0 else None,
        "median_error": float(np.median(missed)),
    }


def _both(shares: Array, weights: Array) -> Array:
    """The two factors, or the better one alone where a factor would be negative."""
    root = np.sqrt(weights)
    weighted = shares * root[:, None]
    both = np.linalg.lstsq(weighted, root, rcond=None)[0]
    if np.all(both >= 0):
        return np.asarray(both)
    alone = (weighted * root[:, None]).sum(axis=0) / np.sum(weighted**2, axis=0)
    better = int(np.argmin(np.sum((root[:, None] - weighted * alone) ** 2, axis=0)))
    return np.where(np.arange(2) == better, alone, 0.0)
