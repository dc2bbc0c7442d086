"""What a study may ask of augmentation, in words, and why it may not ask for more."""

from __future__ import annotations

from typing import Any, Literal

from tradewind.errors import nearest

Reflection = Literal["none", "east-west", "north-south"]
Edges = Literal["nearest", "zeros", "wrap"]
Interpolation = Literal["linear", "nearest", "cubic"]

REFLECTIONS: tuple[Reflection, ...] = ("none", "east-west", "north-south")
EDGES: tuple[Edges, ...] = ("nearest", "zeros", "wrap")
INTERPOLATIONS: tuple[Interpolation, ...] = ("linear", "nearest", "cubic")

_MIRRORS = {"mirror", "mirrored", "reflect", "reflection", "symmetric", "flip"}


def reflection_complaint(value: Any) -> str:
    """Why `reflection` can't be this, in one line, or nothing."""
    if isinstance(value, str) and value in REFLECTIONS:
        return ""
    return (
        f"found {value!r}; a mirror image turns cyclones the wrong way round, so it must be asked for by name: "
        "'east-west' or 'north-south' (vectors then change sign across the mirror); allowed: "
        + ", ".join(map(repr, REFLECTIONS))
    )


def edges_complaint(value: Any) -> str:
    """Why `edges` can't be this, in one line, or nothing."""
    if isinstance(value, str) and value in EDGES:
        return ""
    if isinstance(value, str) and value in _MIRRORS:
        allowed = ", ".join(map(repr, EDGES))
        return f"found {value!r}; a mirrored border turns cyclones into anticyclones; allowed: {allowed}"
    return f"found {value!r}; {nearest(str(value), EDGES)}"


def interpolation_complaint(value: Any) -> str:
    """Why `interpolation` can't be this, in one line, or nothing."""
    return "" if value in INTERPOLATIONS else f"found {value!r}; {nearest(str(value), INTERPOLATIONS)}"
