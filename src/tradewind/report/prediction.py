"""What `tradewind predict` prints."""

from __future__ import annotations

from typing import Any

MOST_TABLES = 24
HEAD = ("devices", "measured s", "predicted s", "interval s", "speed-up", "efficiency")


def prediction_page(found: dict[str, Any]) -> str:
    """The predicted times of each config by devices, and from where on more devices do not pay."""
    counts = ", ".join(map(str, found["measured_devices"]))
    lines = [
        f"{found['value']} predicted from {found['measurements']} measured configs with {counts} devices; "
        f"{found['interval']:.0%} intervals"
    ]
    if len(found["measured_devices"]) < 3:
        lines.append("fewer than three device counts were measured: what communication costs is mostly a guess")
    for table in found["tables"][:MOST_TABLES]:
        lines += ["", _pairs(table["config"]) or "all trials", *_grid(table["rows"]), _enough(table)]
    if len(found["tables"]) > MOST_TABLES:
        lines += ["", f"and {len(found['tables']) - MOST_TABLES} further configs: --json shows all"]
    for target in found["epochs_to_target"]:
        lines += ["", _target(target)]
    return "\n".join(lines)


def _grid(rows: list[dict[str, Any]]) -> list[str]:
    to_target = any("to_target_s" in row for row in rows)
    cells = [[*HEAD, *(["to target s"] if to_target else [])]]
    for row in rows:
        measured = "" if row["measured_s"] is None else f"{row['measured_s']:.4g}"
        line = [
            str(row["devices"]), measured, f"{row['predicted_s']:.4g}", f"{row['low_s']:.4g} – {row['high_s']:.4g}",
            f"{row['speedup']:.2f}", f"{row['efficiency']:.0%}",
        ]  # fmt: skip
        cells.append([*line, *([f"{row['to_target_s']:.4g}"] if to_target else [])])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]


def _enough(table: dict[str, Any]) -> str:
    if table["enough_devices"] is None:
        return f"more devices pay up to {table['tried_to']} at least"
    enough = table["enough_devices"]
    return f"more than {enough} {'device does' if enough == 1 else 'devices do'} not pay: less than 5 % is gained"


def _target(target: dict[str, Any]) -> str:
    whose = _pairs(target["config"])
    start = f"epochs to the target{f' ({whose})' if whose else ''}: {target['epochs_least']:.4g}"
    if target["critical_batch_size"] is None:
        return f"{start} at all {target['batch_sizes']} batch sizes"
    return (
        f"{start} at small batches, twice that at a batch of {target['critical_batch_size']:.4g} "
        f"(from {target['batch_sizes']} batch sizes, median error {target['median_error']:.0%})"
    )


def _pairs(config: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {value:g}" if type(value) is float else f"{name} {value}" for name, value in config.items()
    )
