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
    if found["value"] != found["asked"]:
        lines.append(f"trials end at their target: {found['value']} stands for {found['asked']}")
    if found["without_target"]:
        lines.append(
            f"{found['without_target']} trials never reached the target and are not in the fit: it is hopeful"
        )
    for table in found["tables"][:MOST_TABLES]:
        grid = _measured(table["rows"]) if table["points"] < 2 else _grid(table["rows"])
        lines += ["", _pairs(table["config"]) or "all trials", *grid, _enough(table)]
    if len(found["tables"]) > MOST_TABLES:
        lines += ["", f"and {len(found['tables']) - MOST_TABLES} further configs: --json shows all"]
    for target in found["epochs_to_target"]:
        lines += ["", _target(target)]
    lines += ["", *map(_soonest, found["soonest_to_target"])] if found["soonest_to_target"] else []
    return "\n".join(lines)


def _grid(rows: list[dict[str, Any]]) -> list[str]:
    to_target = any("to_target_s" in row for row in rows)
    cells = [[*HEAD, *(["to target s", "interval s"] if to_target else [])]]
    for row in rows:
        measured = "" if row["measured_s"] is None else f"{row['measured_s']:.4g}"
        line = [
            str(row["devices"]), measured, f"{row['predicted_s']:.4g}", f"{row['low_s']:.4g} – {row['high_s']:.4g}",
            f"{row['speedup']:.2f}", f"{row['efficiency']:.0%}",
        ]  # fmt: skip
        cells.append([*line, *(_until(row) if to_target else [])])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]


def _measured(rows: list[dict[str, Any]]) -> list[str]:
    """One device count: what it took, nothing more."""
    return [f"{_devices(row['devices'])}: {row['measured_s']:.4g} s measured (n = {row['n']})" for row in rows]


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _until(row: dict[str, Any]) -> list[str]:
    if "to_target_s" not in row:
        return ["", ""]
    return [f"{row['to_target_s']:.4g}", f"{row['to_target_low_s']:.4g} – {row['to_target_high_s']:.4g}"]


def _enough(table: dict[str, Any]) -> str:
    if not table["verdict"]:
        more = " and ".join(map(str, table["measure_next"]))
        return f"{'one point' if table['points'] < 2 else 'two points'}: no verdict; measure {more} devices next"
    if table["enough_devices"] is None:
        return f"more devices pay up to {table['tried_to']} at least"
    enough = table["enough_devices"]
    return f"more than {_devices(enough)} {'does' if enough == 1 else 'do'} not pay: less than 5 % is gained"


def _target(target: dict[str, Any]) -> str:
    whose = _pairs({**target["config"], "scaling": "/".join(target["rules"])})
    start = f"epochs to the target ({whose}): {target['epochs_least']:.4g}"
    sizes = target["batch_sizes"]
    if sizes < 3:
        return f"{start} at {'the only batch size' if sizes == 1 else 'the smaller of two batch sizes'}"
    if target["critical_batch_size"] is None:
        return f"{start} at all {sizes} batch sizes"
    low, high = ("∞" if end is None else f"{end:.4g}" for end in (target["critical_low"], target["critical_high"]))
    return (
        f"{start} at small batches,\n  twice that at a batch of {target['critical_batch_size']:.4g} "
        f"({low} – {high}; {sizes} batch sizes, median error {target['median_error']:.0%})"
    )


def _soonest(one: dict[str, Any]) -> str:
    config = _pairs({**one["config"], "scaling": one["scaling"]})
    return (
        f"soonest to the target on {one['devices']}: {one['predicted_s']:.4g} s ({one['low_s']:.4g} – "
        f"{one['high_s']:.4g})\n  with a global batch of {one['global_batch_size']:g}  {config}"
        f"{'' if one['ran'] else ': never run'}"
    )


def _pairs(config: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {value:g}" if type(value) is float else f"{name} {value}" for name, value in config.items()
    )
