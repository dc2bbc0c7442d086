"""What the names of measured things mean: which way is better, and which are times."""

from __future__ import annotations

LOWER_IS_BETTER = ("loss", "error", "brier", "far", "mse", "mae", "rmse", "perplexity")


def is_time(name: str) -> bool:
    """Whether a measure is in seconds; a rate per second is none."""
    return name.endswith("_s") and not name.endswith("_per_s")


def lower_is_better(name: str) -> bool:
    """True for losses, errors and times; scores such as accuracy and AUC are better when higher."""
    return is_time(name) or any(part in LOWER_IS_BETTER for part in name.lower().split("_"))


def better(name: str, a: float, b: float) -> bool:
    """Whether value a of this measure is better than value b."""
    return a < b if lower_is_better(name) else a > b


def reached(name: str, value: float, target: float) -> bool:
    """Whether a value is at least as good as its target."""
    return value <= target if lower_is_better(name) else value >= target
