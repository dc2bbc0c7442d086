"""What the longer commands do, between the command line and the library."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tradewind.best import Best
from tradewind.cleaning import clean_page, disk_usage, leftovers_of_cache, leftovers_of_run
from tradewind.engine.world import leading
from tradewind.errors import Interrupted, Mistake, RunError, nearest
from tradewind.folder import RunFolder, default_path
from tradewind.measures import Direction
from tradewind.quantities import printable, size
from tradewind.report.live import watcher
from tradewind.results import Results
from tradewind.run import finish
from tradewind.schedule.trials import Trials
from tradewind.studies import path_of
from tradewind.study import Study, schema
from tradewind.troubles import troubles
from tradewind.workloads.cache import cache_folder

UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def load(name: str, sets: Sequence[str]) -> Study:
    """A study by its file, or by the name of a bundled one."""
    return Study.load(path_of(name), sets)


def run_command(name: str, out: Path | None, quiet: bool, sets: list[str], *, max_time: str, **options: Any) -> int:
    """Run a study and say how it ended; the exit code."""
    quiet = quiet or not leading()
    study = load(name, sets)
    path, began = out or default_path(study.name), time.time()
    try:
        finish(study, path, watcher(quiet), max_time_s=seconds(max_time), **options)
    except Interrupted as stop:
        command = shlex.join(["tradewind", *(word for word in sys.argv[1:] if word != "--fresh")])
        print(f"tradewind: {stop}; nothing recorded is lost, go on with: {command}", file=sys.stderr)
        return stop.exit_code
    results = Results.load(path)
    if not quiet:
        trials = Trials(study)
        left = trials.count()[0] - len(results)
        shared = left > 0 and options["schedule"] != "dispatch" and not trials.searching
        others = f"\n{left} trials are left to other ranks" if shared else ""
        print(printable(ending(results, path) + others))
    show = f"tradewind show {path} {{trial}} tells why"
    for line in troubles(results, began, "--retry-failed", show) if leading() else []:
        print(printable(f"tradewind: {line}"), file=sys.stderr)
    return 1 if results.counts()["failed"] and leading() else 0


def ending(results: Results, path: Path) -> str:
    """The last words of a run: counts, the best trial, where it all is."""
    from tradewind.report.best import best_page

    counts = ", ".join(f"{count} {state}" for state, count in results.counts().items() if count or state == "done")
    try:
        best = f"best {best_page(results.best())}"
    except RunError as why:
        best = f"no best: {str(why).partition(': ')[2]}"
    return f"{counts}\n{best}\nrun folder {path}"


def check_command(name: str, workers: int | None, sets: list[str], as_json: bool) -> str:
    """Whether a study is valid and what it will be."""
    from tradewind.analysis.expectation import expectation
    from tradewind.report.check import packs_page
    from tradewind.report.pages import check_page

    found = expectation(Trials(load(name, sets)), workers)
    return json.dumps(found, indent=1) if as_json else f"{check_page(found)}\n{packs_page(found['packs'])}"


def status_command(run: Path) -> dict[str, Any]:
    """How far a run is, and its jobs in Slurm's queue."""
    from tradewind.analysis.status import status
    from tradewind.cluster.slurm import queue_state

    folder = RunFolder.open(run)
    room = {"bytes": disk_usage(folder.path), "free_bytes": shutil.disk_usage(folder.path).free}
    return {**status(folder), **room, "queue": queue_state(folder)}


def clean_command(run: Path | None, cache: bool, dry_run: bool, say: Callable[[str], None]) -> None:
    """Remove what is needed no more from a run folder or from the user's cache, whose size is told first."""
    if (run is None) == (not cache):
        raise Mistake("clean: say either a run folder or --cache")
    where = cache_folder() if run is None else run
    leftovers = leftovers_of_cache() if run is None else leftovers_of_run(RunFolder.open(run))
    if run is None:
        say(f"{where} holds {size(disk_usage(where))}")
    page = clean_page(leftovers, where, dry_run)  # while it can still be counted
    if not dry_run:
        for one in leftovers:
            one.remove()
    say(page)


def schema_text() -> str:
    """The JSON Schema of a study file."""
    return json.dumps(schema(), indent=1)


def save_weights(best: Best, path: Path) -> None:
    """Copy the weights of the best trial."""
    if path.suffix != ".safetensors":
        raise Mistake(f"--save {path}: found {path.suffix or 'no ending'!r}; allowed: .safetensors")
    try:
        shutil.copyfile(best.weights, path)
    except OSError as error:
        raise Mistake(f"--save {path}: can't be written: {error.strerror}") from None


def seconds(text: str) -> float | None:
    """A time such as 90, 90s, 30m or 2h."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if not match or match[2] not in UNITS_S or not float(match[1]):
        raise Mistake(f"--max-time {text}: allowed: a number with s, m, h or d, such as 90s, 30m or 2h")
    return float(match[1]) * UNITS_S[match[2]]


def renames(pairs: list[str]) -> dict[str, str]:
    """The --rename options."""
    for pair in pairs:
        if not all(pair.partition("=")):
            raise Mistake(f"--rename {pair}: write it as A=B: column A of the file is called B")
    return {old: new for old, _, new in (pair.partition("=") for pair in pairs)}


def nodule_data(file: Path | None, many: int | None, picture: Path | None, run: Path | None) -> str:
    """Read or make nodules; what they are like. The best network of a run draws them again, and new ones."""
    from tradewind.report.nodules import look, redraw, summary
    from tradewind.workloads.nodules import Nodules

    if (file is None) == (many is None):
        raise Mistake("data nodules: say either --from FILE.npz or --synthetic N")
    if many is not None and many < 8:
        raise Mistake(f"--synthetic {many}: allowed: 8 or more")
    if run is not None and picture is None:
        raise Mistake("--run: what its best network draws is a picture; say also --look F.png")
    if file is not None:
        nodules = Nodules("file", str(file))
    else:
        assert many is not None
        nodules = Nodules(train=many * 3 // 4, validation=many // 8, test=many - many * 3 // 4 - many // 8)
    best = Results.load(run).best() if run is not None else None
    config = best.record["config"] if best else {name: known.default for name, known in Nodules.defaults.items()}
    data = nodules.data({**config, "data_seed": 0})
    if best is not None and picture is not None:
        redraw(best.model(), data, picture)  # type: ignore[arg-type]
    elif picture is not None:
        look(data, picture)
    return summary(data)


def storm_data(
    name: str, folder: Path | None, making: dict[str, Any], options: dict[str, Any], picture: Path | None
) -> str:
    """Import or make storms; what they are like."""
    from tradewind.report.storms import look, summary
    from tradewind.workloads.storm import CHANNELS, Storm
    from tradewind.workloads.storms import best_device, storms_cached

    many, out = making["count"], making["out"]
    if name != "storms":
        raise Mistake(f"no data set {name!r}; {nearest(name, ['storms', 'nodules'])}")
    if (folder is None) == (many is None) or (out is not None and many is None):
        raise Mistake(
            "data storms: say either --from FOLDER or --synthetic N, the latter with --out FOLDER if you like"
        )
    if picture is not None and picture.suffix != ".png":
        raise Mistake(f"--look {picture}: found {picture.suffix or 'no ending'!r}; allowed: .png")
    if many is not None and many < 8:
        raise Mistake(f"--synthetic {many}: allowed: 8 or more")
    written = ""
    if folder is not None or out is not None:
        if out is not None:
            from tradewind.workloads.storm_files import write_runs

            runs = write_runs(out, many, making["seed"], device=best_device(making["device"]))
            written = f"\n{many:,} storms of {len(runs)} model runs written to {out}"
        channels = options["channels"].split(",") if options["channels"] else CHANNELS
        storm = Storm(source="files", folder=str(folder or out), **{**options, "channels": channels})
    else:
        storms_cached(many, making["seed"], best_device(making["device"]))
        train, validation = many * 3 // 4, many // 16
        storm = Storm(train=train, validation=validation, test=many - train - validation, seed=making["seed"])
    data = storm.data({"data_seed": 0})
    if picture is not None:
        look(data, storm.channels, picture)
    return summary(data, storm.channels) + written


def export_command(run: Path, to: Path) -> int:
    """All results as a file, or as a study of Optuna's; how many there are."""
    from tradewind.imports import export_results

    results = Results.load(run)
    if to.suffix != ".db":
        return export_results(results, to)
    from tradewind.search.optuna_export import export, points_of

    edition = results.folder.edition()
    if not edition:
        raise RunError(f"{run}: imported results have no space to search, so they make no study of Optuna's")
    study = Study.of_edition(edition)
    records = list(results.records())
    goals: dict[str, Direction] = {
        name: "minimize" if lower else "maximize" for name, lower in results.goals(["score"])
    }
    return export(records, points_of(study, records[0]["config"] if records else {}), goals, to, study.name)


def advise_command(run: Path, as_json: bool) -> str:
    """What a run says about how to train."""
    from tradewind.analysis.advice import advise
    from tradewind.analysis.findings import paper_beside, runs_beside
    from tradewind.report.advice import advice_page
    from tradewind.report.findings import findings_page

    results = Results.load(run)
    items = advise(results)
    if as_json:
        return json.dumps([item.plain() for item in items], indent=1)
    beside = paper_beside(results, runs_beside(results))
    return "\n\n".join([advice_page(items).rstrip(), *([findings_page(beside).rstrip()] if beside else [])])


def report_command(run: Path, out: Path | None) -> str:
    """Write the page of a run; where it is."""
    from tradewind.analysis.advice import advise
    from tradewind.report.advice import advice_page
    from tradewind.report.page import report

    results = Results.load(run)
    path = out or results.folder.report_file
    report(results, path, [("Advice", advice_page(advise(results)))])
    return str(path)


def predict_command(run: Path, devices: str, value: str, as_json: bool) -> str:
    """Times at device counts that were not run."""
    from tradewind.analysis.prediction import predict
    from tradewind.report.prediction import prediction_page

    counts = devices.split(",")
    if not all(count.strip().isdigit() and int(count) > 0 for count in counts):
        raise Mistake(f"--devices {devices}: allowed: whole numbers from 1 with commas, such as 1,2,4,8")
    found = predict(Results.load(run), [int(count) for count in counts], value)
    return json.dumps(found, indent=1) if as_json else prediction_page(found).rstrip()
