"""The names of columns: each has a full one with its group, and the bare one belongs to one column of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PLAIN = (
    "trial", "repeat", "seed", "data_seed", "state", "reason", "global_batch_size", "communication_s",
    "bytes_exchanged", "wait_s", "waited_s", "disturbed", "utilisation", "execution", "device", "devices",
    "precision", "purpose", "packed_with", "peak_memory_bytes", "peak_gpu_memory_bytes", "epochs_run", "rank", "host",
    "machine", "code", "edition", "started", "finished", "attempt", "interruptions",
)  # fmt: skip
GROUPS = ("config", "times", "scores", "last")  # as they stand side by side
FIRST = ("config", "scores", "last", "times")  # the first of these that has a bare name anywhere in a run owns it
MEASURES = FIRST[1:]


def group_of(column: str) -> str:
    """The group of a full name; fields of a record have no group in front."""
    group, dot, _ = column.partition(".")
    return group if dot and group in GROUPS else "record"


def bare(column: str) -> str:
    """A full name without its group."""
    return column if group_of(column) == "record" else column.partition(".")[2]


def measured(record: Mapping[str, Any], name: str) -> float | None:
    """The measure of this name in one record, None where it has none."""
    full = [group for group in MEASURES if name.startswith(f"{group}.") and bare(name) in record[group]]
    if full:
        name = bare(name)
    found: float | None = next((record[group][name] for group in full or MEASURES if name in record[group]), None)
    return found


@dataclass(frozen=True)
class Names:
    """What each name means in a run: `meant` from any name to its column, `shown` from a column to its name."""

    meant: dict[str, str]
    shown: dict[str, str]

    @classmethod
    def of(cls, columns: Iterable[str]) -> Names:
        """The names of these columns, which are given by their full ones."""
        meant = {column: column for column in columns}
        for group in FIRST:
            for column in list(meant.values()):
                if group_of(column) == group:
                    meant.setdefault(bare(column), column)
        shown = {column: bare(column) if meant[bare(column)] == column else column for column in meant.values()}
        return cls(meant, shown)

    def measure(self, name: str) -> str | None:
        """The column of a measure: a bare name is the measure's, whatever else has it."""
        full = (f"{group}.{name}" for group in MEASURES)
        return next((self.meant[one] for one in full if one in self.meant), self.meant.get(name))
