"""One trial: config, times, curve, log, error, and the study that would run it again."""

from __future__ import annotations

from typing import Any

from tradewind.dashboard.feed import Feed
from tradewind.dashboard.views import Json, error_of
from tradewind.errors import RunError
from tradewind.journal import Record
from tradewind.report.pages import again, execution_words, trial_log, varied

STACKED = ("prepare_s", "data_s", "compile_s", "warmup_s", "train_s", "validation_s", "test_s")
MOST_CURVE = 2000


def trial_view(feed: Feed, trial: int) -> Json:
    """A trial that has ended, or what is known of one that runs."""
    results = feed.ready()
    with feed.lock:
        running = next((one for one in feed.running.values() if one.trial == trial), None)
    try:
        record = results.record(trial)
    except RunError:
        if running is None:
            raise
        points = [{"epoch": epoch, **scores} for epoch, scores in running.points]
        return {
            "trial": trial, "state": "running", "key": running.key, "attempt": running.attempt, "at": running.at,
            "epoch": running.epoch, "curve": points,
        }  # fmt: skip
    curve = feed.curves.curve(record["key"])
    chosen = varied(feed.folder, record)
    return {
        "trial": trial, "state": record["state"], "key": record["key"], "again_running": running is not None,
        "reason": record.get("reason") or "", "config": chosen,
        "defaults": {name: value for name, value in record["config"].items() if name not in chosen},
        "times": record["times"], "stacked": stacked(record), "scores": record["scores"], "last": record["last"],
        "facts": _facts(record), "curve": curve[:: max(1, len(curve) // MOST_CURVE)], "epochs_known": len(curve),
        "log": trial_log(feed.folder, record), "command": again(feed.folder, record), "study": as_study(feed, record),
        **error_of(results, trial),
    }  # fmt: skip


def stacked(record: Record) -> list[dict[str, Any]]:
    """Where the time went, part by part; what is neither of them is overhead."""
    times = {name: value for name, value in record["times"].items() if isinstance(value, int | float)}
    parts = [{"name": name, "seconds": times[name]} for name in STACKED if times.get(name)]
    begin, end = record.get("started"), record.get("finished")
    if isinstance(begin, int | float) and isinstance(end, int | float) and parts and not record.get("packed_with"):
        rest = end - begin - sum(float(part["seconds"]) for part in parts)
        parts += [{"name": "overhead", "seconds": rest}] if rest > 0 else []
    return parts


def as_study(feed: Feed, record: Record) -> Json | None:
    """The study of this one trial, to be copied; None where results were imported."""
    study = feed.edition.get("study")
    if not study:
        return None
    kept = {name: value for name, value in study.items() if name not in ("search", "where", "repeats", "retries")}
    space = {name: [record["config"][name]] for name in study.get("space", {}) if name in record["config"]}
    seeds = {"seed": record.get("seed", 0), "data_seed": record.get("data_seed", 0)}
    return {**kept, "name": f"{study.get('name', 'study')} trial {record['trial']}", "space": space, **seeds}


def _facts(record: Record) -> Json:
    left = (
        "key",
        "trial",
        "config",
        "times",
        "scores",
        "last",
        "error",
        "log",
        "state",
        "reason",
        "crc",
        "v",
        "kind",
    )
    found = {name: value for name, value in record.items() if name not in left}
    return found | ({"execution": words} if (words := execution_words(record)) else {})
