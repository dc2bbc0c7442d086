"""The rules by which a field of the next hour becomes a label: over the storm's cells, or over all."""

from __future__ import annotations

RULES = ("masked max", "masked mean", "patch max")
