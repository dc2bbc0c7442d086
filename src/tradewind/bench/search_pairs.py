"""Pairs of one seed each: whether one side is worse than chance makes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, quantiles

DOUBT = 0.05  # a one-sided paired rank test below this doubts that ours is as good
LEAST = 1e-12  # what is below this is rounding


def worse(a: Sequence[float], b: Sequence[float]) -> float:
    """How likely chance alone makes a at least this much larger than b, pair by pair: a one-sided rank test."""
    from scipy.stats import wilcoxon

    ratios = [math.log(max(x, LEAST) / max(y, LEAST)) for x, y in zip(a, b, strict=True)]
    return float(wilcoxon(ratios, alternative="greater").pvalue) if any(ratios) else 1.0


def spread(values: Sequence[float]) -> str:
    """Median and quartiles."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return f"{median(values):.3g} ({low:.3g} – {high:.3g})"
