"""Numbers as people read them: four significant digits, units that fit. Exact values belong into JSON and CSV."""

from __future__ import annotations

import json
import math
from typing import Any

from tradewind.measures import is_time

MISSING = "–"
LONGEST_TEXT = 48


def number(value: float | None) -> str:
    """A measured number: 0.02671, 138,963, 1.235e-07."""
    if value is None or value != value:
        return MISSING
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e15 else f"{value:.4g}"


def duration(seconds: float | None) -> str:
    """A time span: 14.9 µs, 2.35 s, 5 min 19 s, 1 h 12 min, 2.3 days."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    for below, factor, unit in ((0.9995e-3, 1e6, "µs"), (0.9995, 1e3, "ms"), (59.95, 1, "s")):
        if abs(seconds) < below and seconds:
            return f"{seconds * factor:.3g} {unit}"
    if not seconds:
        return "0 s"
    if seconds < 172_800:
        large, small, units = (round(seconds), 60, ("min", "s")) if seconds < 3599.5 else (
            round(seconds / 60), 60, ("h", "min"))  # fmt: skip
        rest = f" {large % small} {units[1]}" if large % small else ""
        return f"{large // small} {units[0]}{rest}"
    return f"{seconds / 86_400:.1f} days"


def size(count: float | None) -> str:
    """An amount of memory: 50.3 MB."""
    if count is None or not math.isfinite(count):
        return MISSING
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} PB"


def quantity(name: str, value: float | None) -> str:
    """A measure with its unit, which its name ends in: `train_s` is a time, `peak_memory_bytes` an amount."""
    if is_time(name):
        return duration(value)
    return size(value) if name.endswith("_bytes") else number(value)


def value_text(value: Any) -> str:
    """The value of a hyperparameter: whole numbers and words as they are, others with four digits."""
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    text = label_text(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def label_text(label: Any) -> str:
    """A name or label as shown: 128, 0.001, true, [64, 64]; without anything that steers a terminal."""
    if not isinstance(label, str):
        return MISSING if label is None else json.dumps(label, ensure_ascii=False)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in label) or '""'


def printable(text: str) -> str:
    """Lines without anything that steers a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
