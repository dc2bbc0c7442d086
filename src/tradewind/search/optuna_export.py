"""A run as an Optuna study, so that Optuna's dashboard and plots open it."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tradewind.column_names import measured
from tradewind.errors import DataError
from tradewind.pack import Config, Value
from tradewind.search import Direction
from tradewind.search.points import Points, is_choice
from tradewind.study import Range, Study

STATES = {"done": "COMPLETE", "pruned": "PRUNED", "stopped": "PRUNED", "failed": "FAIL"}
NOTED = ("key", "trial", "repeat", "reason", "host")


def export(
    records: Sequence[Mapping[str, Any]], points: Points, goals: Mapping[str, Direction], target: str | Path,
    name: str = "tradewind",
) -> int:  # fmt: skip
    """Write what has ended to a storage, as a study of this name; how many trials it holds.

    `goals` are the metrics with their directions. `target` is a database URL such as sqlite:///F.db, a path
    that ends in .db, or else that of an Optuna journal file.
    """
    import optuna

    ended = [record for record in records if record["state"] in STATES]
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(
                storage=_storage(str(target)), study_name=name, directions=list(goals.values())
            )
            study.set_metric_names(list(goals))
        known = _distributions(ended, points)
        study.add_trials([_trial(record, points, list(goals), known) for record in ended])
    except optuna.exceptions.DuplicatedStudyError:
        raise DataError(f"{target}: holds a study {name!r} already; choose another file") from None
    finally:
        optuna.logging.set_verbosity(before)
    return len(ended)


def points_of(study: Study, config: Config) -> Points:
    """The space of a study by itself, without its workload, which may be anybody's; other names as in this config."""
    return Points(_specs(study.space), study.where, {**config, **study.fixed})


def _specs(space: Mapping[str, Any]) -> dict[str, list[Value] | Range]:
    return {name: _spec(spec) for name, spec in space.items()}


def _spec(spec: Any) -> list[Value] | Range:
    if isinstance(spec, list):
        return [{**item, "space": _specs(item["space"])} if is_choice(item) else item for item in spec]
    found = spec if isinstance(spec, Range) else Range(**spec)
    return found.values() if found.steps else found


def _storage(target: str) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    if "://" in target:
        return optuna.storages.RDBStorage(target)
    if Path(target).suffix in {".db", ".sqlite", ".sqlite3"}:
        return optuna.storages.RDBStorage(f"sqlite:///{Path(target).resolve()}")
    return optuna.storages.JournalStorage(JournalFileBackend(target))


def _distributions(records: Sequence[Mapping[str, Any]], points: Points) -> dict[str, Any]:
    """One per name, as Optuna wants it: numbers as a range that holds all of them, the rest as choices."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for name in {axis.name: None for axis in points.axes}:
        ranges = [axis.range for axis in points.axes if axis.name == name and axis.range]
        listed = [value for axis in points.axes if axis.name == name for value in axis.values]
        ends = [end for one in ranges for end in (one.low, one.high)]
        tried = [r["config"][name] for r in records if any(axis.name == name for axis in points.active(r["config"]))]
        everything = [*listed, *ends, *tried]
        if all(type(value) in {int, float} for value in everything):
            whole = all(type(value) is int for value in everything)
            kind: Any = IntDistribution if whole else FloatDistribution
            log = bool(ranges) and all(one.log for one in ranges) and min(everything) > 0
            found[name] = kind(min(everything), max(everything), log=log)
        else:
            found[name] = CategoricalDistribution(list(dict.fromkeys(map(_plain, [*listed, *tried]))))
    return found


def _trial(record: Mapping[str, Any], points: Points, metrics: Sequence[str], known: Mapping[str, Any]) -> Any:
    from optuna.trial import TrialState, create_trial

    config, epochs = record["config"], len(record["times"].get("epoch_s") or ())
    found = [measured(dict(record), metric) for metric in metrics]
    values = [value for value in found if value is not None and math.isfinite(value)]
    complete = record["state"] == "done" and len(values) == len(metrics)
    pruned = record["state"] in ("pruned", "stopped") and len(metrics) == len(values) == 1
    names = [axis.name for axis in points.active(config)]
    trial = create_trial(
        state=TrialState[STATES[record["state"]]] if complete or record["state"] != "done" else TrialState.FAIL,
        values=values if complete else None,
        params={name: _plain(config[name]) for name in names},
        distributions={name: known[name] for name in names},
        intermediate_values={epochs: values[0]} if pruned else {},
        user_attrs={key: record[key] for key in NOTED if record.get(key) not in ("", None)},
    )
    trial.datetime_start = datetime.fromtimestamp(record["started"])
    trial.datetime_complete = datetime.fromtimestamp(record["finished"])
    return trial


def _plain(value: Value) -> Value:
    """A value as Optuna can hold it: lists and dicts as their JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value
