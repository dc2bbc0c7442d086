"""What the commands print: status, check, one trial, the best trial."""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

from tradewind.analysis.status import whom
from tradewind.cluster.slurm import queue_lines
from tradewind.disturbance import MOST
from tradewind.folder import RunFolder
from tradewind.journal import Record
from tradewind.progress import portion
from tradewind.quantities import duration, size
from tradewind.report.best import mean_text, pairs_text, times_text
from tradewind.results import Results
from tradewind.space import names_of

MOST_LOG = 20_000


def check_page(found: dict[str, Any]) -> str:
    """The answer of `tradewind check`."""
    about = "" if found["exact"] else "≈"
    whole = found["whole"]
    sizes = " × ".join(f"{n} {_size(extent, whole.get(n))}" for n, extent in found["space"].items()) or "one config"
    many = found["combinations"]
    sizes += f" = {many:,} combinations" if many is not None else ", a continuum"
    search = ", ".join(f"{name} {value}" for name, value in found["search"].items())
    lines = [
        f"{found['name']}: valid",
        f"  workload   {found['workload']}, purpose {found['purpose']}",
        f"  space      {sizes}",
        *(f"  {name:<10} whole numbers; write {found['space'][name][0]}.0 for a real range" for name in whole),
        *([f"  search     {search}"] if search else []),
        f"  trials     {about}{found['trials']:,} (repeats {found['repeats']}), {found['done']:,} done already",
        *([f"  halving    {_finishing(found)}"] if found["finishing"] else []),
        f"  workers    {found['workers']} on {found['machine']}",
    ]
    expected = (
        duration(found["expected_s"]) if found["expected_s"] is not None else "not known before trials have run"
    )
    return "\n".join([*lines, f"  expected   {expected}", f"  makespan   {_makespans(found)}"])


def _finishing(found: dict[str, Any]) -> str:
    least, trials = found["finishing"], found["trials"]
    return f"at least {least:,} of {trials:,} trial{'s' * (trials > 1)} train to the end, the others are pruned"


def _size(extent: int | list[float], whole: int | None) -> str:
    if not isinstance(extent, list):
        return str(extent)
    return f"{extent[0]:g}–{extent[1]:g}" + (f" ({whole:,} value{'s' * (whole > 1)})" if whole else "")


def _makespans(found: dict[str, Any]) -> str:
    if not found["makespan"]["dispatch"]:
        return "nothing is left"
    in_s, many = found["makespan_s"], found["schedule_workers"]
    ends = {name: duration(end) if in_s else f"{end:,.4g} ×" for name, end in (in_s or found["makespan"]).items()}
    longest = duration(found["longest_s"]) if in_s else f"{found['longest']:.3g} ×"
    each = ", ".join(f"{name} {end} ({found['efficiency'][name]:.0%} busy)" for name, end in ends.items())
    unit = "" if in_s else " the mean trial"
    return f"{each}, the longest trial {longest}{unit}; what is left, with {many} worker{'s' * (many > 1)}"


def status_page(found: dict[str, Any]) -> str:
    """The answer of `tradewind status`."""
    about = "" if found["exact"] else "≈"
    eta = duration(found["eta_s"]) if found["eta_s"] is not None else "not known"
    lines = [
        f"{found['name'] or 'imported results'} in {found['folder']}",
        f"  trials   {about}{found['trials']:,}",
        f"  done     {found['done']:,}",
        f"  pruned   {found['pruned']:,}",
        f"  stopped  {found['stopped']:,}",
        f"  failed   {found['failed']:,}",
        f"  running  {found['running']:,} in {found['jobs']} jobs",
        f"  left     {found['left']:,}, expected {eta}",
        *([f"  epochs   {portion(**found['epochs'])}"] if found["epochs"] else []),
    ]
    for line in found["in_progress"][:16]:
        scores = " ".join(f"{name} {value:.4g}" for name, value in line["scores"].items() if value is not None)
        lines.append(
            f"    trial {line['trial']} for {duration(time.time() - line['at'])}, epoch {line['epoch']} {scores}"
        )
        if wait := line["waiting"]:
            lines.append(f"      waits for {duration(time.time() - wait['since'])} now for {whom(wait['for'])}")
    if found["queue"]:
        lines += ["  in Slurm's queue", *queue_lines(found["queue"])]
    if best := found["best"]:
        lower = best["direction"] == "minimize"
        mean = mean_text(best["metric"], best["score"], best["spread"], best["n"], best["planned"], lower)
        early = f" ({found['caveat']})" if found["caveat"] else ""
        lines.append(f"  best     {mean} in trial {best['trial']}{early}")
    elif found["no_best"]:
        lines.append(f"  best     {found['no_best']}")
    lines.append(f"  size     {size(found['bytes'])}, {size(found['free_bytes'])} free on its disk")
    if found["duplicates"]:
        lines.append(f"  {found['duplicates']} further records of trials that count once already: reported, not used")
    if found["skipped_lines"]:
        lines.append(f"  {found['skipped_lines']} damaged journal lines skipped")
    return "\n".join(lines)


def trial_page(folder: RunFolder, results: Results, record: Record) -> str:
    """The answer of `tradewind show`."""
    chosen = varied(folder, record)
    lines = [
        f"trial {record['trial']} (repeat {record['repeat']}, key {record['key']}): {record['state']}"
        + (f", {record['reason']}" if record["reason"] else ""),
        f"  config   {pairs_text(chosen)}",
        f"  defaults {pairs_text({k: v for k, v in record['config'].items() if k not in chosen})}",
        f"  seeds    seed {record['seed']}, data_seed {record['data_seed']}, attempt {record['attempt']}",
        f"  times    {times_text(record)}",
        f"  scores   {pairs_text(record['scores']) or 'none'}",
        f"  last     {pairs_text(record['last']) or 'none'}",
        *([f"  form     {words}"] if (words := execution_words(record)) else []),
        f"  where    {record.get('host', '')}, {record.get('machine', '')}, code {record.get('code', '')}",
    ]
    if record.get("waited_s"):
        lines.append(f"  waited   {duration(record['waited_s'])} for other runs on the same cores or GPUs")
    if (disturbed := record.get("disturbed")) is not None:
        decides = "; its times decide nothing" if disturbed > MOST else ""
        lines.append(f"  disturbed by {disturbed:.1%} of what it wanted of the machine{decides}")
    if parts := record.get("interruptions"):
        lost = f"without at least {duration(record['times']['lost_s'])} after the last write to its folder"
        lines.append(f"  cut off  {parts} {'time' if parts == 1 else 'times'}; its times are sums of parts, {lost}")
    curve = results.curve(record["key"])
    if curve:
        lines += ["  curve", *_curve(curve)]
    if record.get("error"):
        lines += ["  error", *_indented(record["error"].get("traceback") or record["error"].get("what", ""))]
        if record["error"].get("stderr"):
            lines += ["  its last output", *_indented(record["error"]["stderr"])]
    if text := trial_log(folder, record):
        lines += ["  log", *_indented(text)]
    lines.append(f"  run it again alone: {again(folder, record)}")
    return "\n".join(lines)


def execution_words(record: Record) -> str:
    """In which form a trial ran, and why in no faster one; empty where that is not recorded."""
    execution = record.get("execution")
    if not isinstance(execution, dict) or "backend" not in execution:
        return ""
    networks, kernels = execution.get("networks", 1), execution.get("kernels")
    parts = [
        str(execution["backend"]),
        *([f"{networks} networks as one"] if networks != 1 else []),
        *(["as a graph"] if execution.get("graph") else []),
        *([f"{kernels} kernels"] if kernels else []),
    ]
    return ", ".join(parts) + (f"; {execution['why']}" if execution.get("why") else "")


def varied(folder: RunFolder, record: Record) -> dict[str, Any]:
    """The part of a config that the study itself sets; all of it where results were imported."""
    study = folder.edition().get("study", {})
    names = [*study.get("space", {}), *study.get("fixed", {})] if study else list(record["config"])
    return {name: record["config"][name] for name in names if name in record["config"]}


def again(folder: RunFolder, record: Record) -> str:
    """The command that runs one trial alone, in the foreground."""
    edition = folder.edition()
    if not edition:
        return "not possible: the results were imported"
    study, config = edition["study"], record["config"]
    space, fixed = study.get("space", {}), study.get("fixed", {})
    sets = list(edition.get("sets", ())) if edition["file"] else []
    sets += [f"space.{name}={json.dumps([config.get(name)])}" for name in names_of(space)]
    sets += [f"fixed.{n}={json.dumps(config[n])}" for n in fixed if n in config and config[n] != fixed[n]]
    sets += [f"seed={record['seed']}", f"data_seed={record['data_seed']}", "repeats=1"]
    sets += ["search={}"] if study.get("search") else []
    words = ["tradewind", "run", str(edition["file"] or folder.study_file)]
    words += [word for text in sets for word in ("--set", text)]
    return shlex.join([*words, "--engine", "serial", "--out", f"again-{record['trial']}"])


def trial_log(folder: RunFolder, record: Record) -> str:
    """What the trial printed."""
    place = record.get("log") or {}
    name, start, end = (place.get(one) for one in ("file", "from", "to"))
    path = folder.log(name) if isinstance(name, str) else None
    if path is None or not isinstance(start, int) or not isinstance(end, int):
        return ""
    try:
        with open(path, "rb") as file:
            start = max(start, end - MOST_LOG, 0)  # the end of a long log says more than its beginning
            file.seek(start)
            return file.read(max(0, end - start)).decode(errors="replace").strip()
    except OSError:
        return ""


def _curve(curve: list[dict[str, float]]) -> list[str]:
    names = list(curve[-1])
    shown = curve if len(curve) <= 20 else [*curve[:10], *curve[-10:]]
    rows = [[f"{row[name]:.4g}" if row.get(name) is not None else "–" for name in names] for row in shown]
    widths = [max(len(name), *(len(row[k]) for row in rows)) for k, name in enumerate(names)]
    return ["    " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in [names, *rows]]


def _indented(text: str) -> list[str]:
    return ["    " + line for line in text.splitlines()]
