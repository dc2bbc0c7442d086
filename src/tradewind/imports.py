"""Results from elsewhere as a run folder, and a run's results as a file for elsewhere."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.csv_records import plain, read_csv, write_csv
from tradewind.errors import DataError, Mistake, RunError, nearest
from tradewind.folder import RunFolder, writing
from tradewind.foreign import Foreign, ForeignResult, read_rows
from tradewind.journal import Journal, Record, is_record, new_owner
from tradewind.jsonfile import read_json
from tradewind.measures import Direction, is_time
from tradewind.pack import FINAL, SCALING
from tradewind.results import Results
from tradewind.soundness import sound


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


# What an exported record says of itself is kept where it can be what it says
KEPT: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("trial", "repeat", "seed", "data_seed", "packed_with", "attempt"), _whole),
    **dict.fromkeys(("reason", "purpose", "machine"), lambda value: isinstance(value, str)),
    "key": lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None,
    "state": lambda value: value in (*FINAL, "failed"),
}
EXPORTS = (".csv", ".parquet", ".json")


def import_results(
    path: Path,
    out: Path,
    at: str = "",
    join: str = "",
    values: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    directions: Mapping[str, Direction] | None = None,
    labels: Sequence[str] = (),
    scaling: str = "",
) -> int:
    """Make a run folder from a file of results; how many records it holds now.

    `labels` only name something, such as hardware; `scaling` is a rule, or the column that holds it.
    """
    directions, rename = dict(directions or {}), dict(rename or {})
    if scaling and scaling not in SCALING:
        rename[scaling] = "scaling"
    own = None if at or join or values or rename or labels else _exported(path)
    if own is not None:
        return _take_back(own, out, directions)
    foreign = read_rows(path, at, join, values, rename, list(directions))
    labels = [rename.get(name, name) for name in labels]
    _label(foreign, labels)
    if scaling in SCALING:
        _rule(foreign, scaling)
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out}: exists already; import into a new folder")
    folder = RunFolder.create(out)
    journal = Journal(folder, new_owner())
    try:
        for number, row in enumerate(foreign.rows):
            journal.finished(_record(number, row, path, at), [])
        journal.settle()
        if directions or labels:
            folder.keep_imported({"directions": directions, "labels": labels})
    finally:
        journal.close()
    return len(foreign.rows)


def _exported(path: Path) -> dict[str, Any] | None:
    """What `export` has written, if every record of it is whole; None for any other file."""
    try:
        if path.suffix.lower() == ".csv":
            records = read_csv(path)
            return None if records is None else {"results": records, "machines": {}}
        found: Any = json.loads(path.read_bytes()) if path.suffix.lower() == ".json" else None
        known = isinstance(found, dict) and found.keys() == {"results", "machines"}
        whole = known and found["results"] and all(is_record(one) and sound(one) for one in found["results"])
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, csv.Error):
        return None  # read_rows says what is wrong
    return found if whole else None


def _take_back(exported: dict[str, Any], out: Path, directions: Mapping[str, Direction]) -> int:
    """Make a run folder of exported records, each with everything that it has."""
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out}: exists already; import into a new folder")
    folder = RunFolder.create(out)
    journal = Journal(folder, new_owner())
    try:
        for record in exported["results"]:
            journal.finished(record, [])
        journal.settle()
        for name, facts in exported["machines"].items():
            folder.keep_machine(name, facts)
        if directions:
            folder.keep_imported({"directions": dict(directions)})
    finally:
        journal.close()
    return len(exported["results"])


def _label(foreign: Foreign, labels: Sequence[str]) -> None:
    """Make text of labels, so that model 6 is no number above 5."""
    known = foreign.columns()
    for name in labels:
        if name not in known:
            raise DataError(f"--labels: there is no column {name!r}; {nearest(name, known)}")
        for row in foreign.rows:
            if name in row.values:
                raise DataError(f"--labels: {name} is measured; allowed: other columns")
            if row.config.get(name) is not None:
                row.config[name] = str(row.config[name])


def _rule(foreign: Foreign, rule: str) -> None:
    """The rule by which all these trials chose batch size and rate for their devices."""
    for row in foreign.rows:
        if row.config.get("scaling", rule) != rule:
            raise DataError(
                f"--scaling {rule}: the column scaling says {row.config['scaling']!r}; leave one of them out"
            )
        row.config["scaling"] = rule


def _record(number: int, row: ForeignResult, path: Path, at: str) -> Record:
    config, values = row.config, row.values
    text = json.dumps([path.name, at, config, number], sort_keys=True)
    times: dict[str, Any] = {name: value for name, value in values.items() if is_time(name)}
    if times.get("epoch_s") is not None:
        times["epoch_s"] = [times["epoch_s"]]
    scores = {name: value for name, value in values.items() if not is_time(name)}
    missing = all(value is None for value in values.values())
    return {
        "key": hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), "trial": number, "repeat": 0,
        "config": config, "seed": 0, "data_seed": 0, "state": "stopped" if missing else "done",
        "reason": "no value in the source" if missing else "", "times": times, "scores": scores, "last": {},
        "purpose": "imported", "machine": str(config.get("device") or config.get("gpu") or "imported"),
        "started": time.time(), "finished": time.time(), "attempt": 1, "error": {},
        "source": f"{path.name}{f' at {at}' if at else ''}",
        **{name: row.facts[name] for name, fits in KEPT.items() if name in row.facts and fits(row.facts[name])},
    }  # fmt: skip


def export_results(results: Results, path: Path) -> int:
    """Write all results to a CSV, Parquet or JSON file; how many there are."""
    if path.suffix not in EXPORTS:
        raise Mistake(f"--to {path}: found {path.suffix or 'no ending'!r}; allowed: {', '.join(EXPORTS)}")
    try:
        with writing(path) as aside:
            if path.suffix == ".json":
                _export_json(results, aside)
            elif path.suffix == ".csv":
                write_csv(results, aside)
            else:
                _export_parquet(results, aside)
    except OSError as error:
        raise DataError(f"--to {path}: can't be written: {error.strerror}") from None
    return len(results)


def _export_json(results: Results, path: Path) -> None:
    with open(path, "w") as file:
        before = '{"results": [\n'
        for record in results.records():
            file.write(before + json.dumps(plain(record)))
            before = ",\n"
        machines = {one.stem: read_json(one) for one in results.folder.files(results.folder.machines, "json")}
        end = "\n]" if before == ",\n" else f"{before}]"
        file.write(f'{end}, "machines": {json.dumps(machines)}}}\n')


def _export_parquet(results: Results, path: Path) -> None:
    import duckdb

    frame = results.frame()
    mixed = [name for name in frame if frame[name].map(type).nunique() > 1 and frame[name].dtype == object]
    for name in mixed:  # a column of a Parquet file has one type
        frame[name] = frame[name].map(lambda x: x if x is None or isinstance(x, str) else json.dumps(x))
    quoted = os.fspath(path).replace("'", "''")
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        try:
            connection.execute(f"copy frame to '{quoted}' (format parquet)")
        except duckdb.Error as error:
            raise OSError(errno.EIO, str(error)) from None
