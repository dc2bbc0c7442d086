"""In which form a trial ran, as its record says it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Execution:
    """The form, and why it is not a faster one; empty where there is none that was looked for."""

    backend: str  # eager, ensemble, ddp, dp, average, function, command
    networks: int = 1  # that trained as one when it began
    graph: bool = False  # whether a step is one CUDA graph
    kernels: str = ""  # of our own: front, grouped; or compiled, by torch.compile
    why: str = ""

    def facts(self) -> dict[str, Any]:
        """The field of the record."""
        return {"execution": asdict(self)}
