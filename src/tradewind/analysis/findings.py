"""The papers beside a run of one of their studies: number by number, and finding by finding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.analysis.evidence import Cell, Evidence, devices_of
from tradewind.analysis.papers import BESIDE, FINDINGS, WITH_CURVES, Finding
from tradewind.errors import RunError
from tradewind.folder import default_path
from tradewind.pack import Config
from tradewind.results import Results
from tradewind.studies.published import FRAMEWORKS, PLACES, Printed, PrintedTable, base, printed, study_of_source

BORNE_OUT, NOT_BORNE_OUT, CANNOT_BE_SAID = "borne out", "not borne out", "cannot be said"
OVERCOME = "overcome here"  # a finding about a tool that Tradewind does without
BY_DEFINITION, DISTURBED = "1 by definition", "disturbed"
NOT_MEASURED, MISSED, FAILED, UNSTABLE = "not measured", "target not reached", "failed", "not stable by the end"
CROWDED = "more processes than cores"
KINDS = {"cpu": "CPU", "cuda": "GPU"}
SAME = ("augment", "batch_size", "data_multiplier", "learning_rate")  # a ratio needs them equal
MOST_TRIALS = 20_000
UNSTEADY = 0.15  # a machine at rest gives about 0.05, one that does much else besides 0.2 and more


@dataclass(frozen=True)
class Difference:
    """In what a run differs from the paper, and what that decides: time, score or both; if grave, no ratio."""

    name: str
    text: str
    decides: str
    grave: bool = False


@dataclass(frozen=True)
class Verdict:
    """Whether a run bears a finding out, by which rule, why, and the numbers behind it.

    `differs` is what differs from the paper in what decides the finding.
    """

    claim: str
    rule: str
    verdict: str
    text: str
    numbers: dict[str, Any]
    differs: list[str]


@dataclass(frozen=True)
class Compared:
    """One published number beside ours; no ratio where it would mean nothing."""

    config: Config
    measure: str
    machine: str
    published: float | None
    measured: float | None
    n: int
    ratio: float | None  # measured / published
    note: str


@dataclass(frozen=True)
class PaperBeside:
    """A run of a paper's study beside the paper; `differs` says in what, and why there may be no ratio."""

    study: str
    title: str
    published_on: str
    measured_on: str
    differs: list[str]
    rows: list[Compared]
    verdicts: list[Verdict]


def study_of(results: Results) -> str:
    """The paper's study that a run is of, by its name or, if imported, by its source; nothing for others."""
    name = str(results.folder.edition().get("study", {}).get("name", ""))
    if name or not len(results):
        return name if base(name) in PLACES else ""
    return study_of_source(str(next(results.records()).get("source", "")))


def runs_beside(results: Results) -> list[Results]:
    """The runs in the same folder, under their usual names or those of their tables, that some findings need."""
    study = study_of(results)
    full = study.removeprefix(base(study))
    found = []
    for name in BESIDE.get(base(study), ()):
        for called in (default_path(name + full).name, Path(name + full).name):
            try:
                other = Results.load(results.folder.path.resolve().parent / called)
            except RunError:
                continue
            if study_of(other) == name + full:
                found.append(other)
                break
    return found


def paper_beside(results: Results, others: Sequence[Results] = ()) -> PaperBeside | None:
    """What the paper printed and found beside this run; None where the run is of no paper's study.

    Findings on two tables (live against ahead of time, CPU against GPU) look at those of the `others` as well that
    are of the tables they need.
    """
    study = study_of(results) if 0 < len(results) <= MOST_TRIALS else ""
    if not study:
        return None
    curves = base(study).startswith(WITH_CURVES)
    own = Evidence([results], curves)
    beside = [other for other in others if base(study_of(other)) in BESIDE.get(base(study), ())]
    pool = Evidence([results, *beside], curves) if beside else own
    table = printed(study)
    differences, trained_here = _differences(results, own, study, table), bool(results.folder.edition())
    verdicts = [
        _verdict(finding, pool if finding.pooled else own, differences, trained_here)
        for finding in FINDINGS[base(study)]
    ]
    rows = (
        [one for row in table.rows for one in _compared(row, own, table, differences, trained_here)] if table else []
    )
    return PaperBeside(
        study,
        PLACES[base(study)].title,
        table.machine if table else "",
        _measured_on(results, own),
        [one.text for one in differences],
        rows,
        verdicts,
    )


def _verdict(finding: Finding, evidence: Evidence, differences: Sequence[Difference], trained_here: bool) -> Verdict:
    agreed, text, numbers = finding.judge(evidence)
    kind = "time" if finding.timed else "score"
    differs = [one.text for one in differences if one.decides in (kind, "both")]
    forbidden = [one.text for one in differences if one.name in finding.forbids]
    if agreed is not None and finding.timed and evidence.unsteady > UNSTEADY:
        agreed, text = (
            None,
            f"{text}; but the machine was busy: {evidence.unsteady:.0%} between an epoch and the next",
        )
    if agreed is not True and finding.timed and evidence.disturbed:
        count = len(evidence.disturbed)
        agreed, text = None, f"{'a trial was' if count == 1 else f'{count} trials were'} disturbed; {text}"
    if agreed is not None and forbidden:
        agreed, text = None, f"the study differs in what decides it: {'; '.join(forbidden)}; seen: {text}"
    word = CANNOT_BE_SAID if agreed is None else BORNE_OUT if agreed else NOT_BORNE_OUT
    if agreed is False and finding.replaced and trained_here:
        word, text = OVERCOME, f"it is said of {finding.replaced}, which is not used here; {text}"
    return Verdict(finding.claim, finding.rule, word, text, numbers, differs)


def _measured_on(results: Results, evidence: Evidence) -> str:
    """Machine, purpose and how many trials, without which no time is shown."""
    facts = [
        f"{name} {', '.join(sorted({str(x) for x in results.items(name)}))}"
        for name in ("machine", "purpose")
        if name in results.names()
    ]
    ended = ", ".join(f"{count} {state}" for state, count in evidence.counts().items() if count)
    return " · ".join([*facts, f"trials: {ended}"])


def _differences(results: Results, evidence: Evidence, study: str, table: PrintedTable | None) -> list[Difference]:
    """In what a run differs from the paper, the grave differences first; nothing for imported results."""
    known = results.folder.edition().get("study")
    found = _of_the_machine(evidence, study, table) if table else []
    found += _of_the_data(known, table) if known else []
    found += _of_storm_scores(known, evidence) if known and known.get("workload") == "storm" else []
    found += _of_settings(evidence, table) if table else []
    return sorted(found, key=lambda one: not one.grave)


def _of_the_machine(evidence: Evidence, study: str, table: PrintedTable) -> list[Difference]:
    kinds = {str(cell.config.get("device")) for cell in evidence.cells}
    found = []
    if kinds != {table.device}:
        here = " and ".join(KINDS.get(kind, kind) for kind in sorted(kinds))
        found.append(Difference("device", f"{here} here, {KINDS[table.device]} there", "time", grave=True))
    models = {re.sub(r" [0-9a-f]{8}$", "", str(cell.config.get("machine", ""))) for cell in evidence.cells} - {""}
    if models:
        many = max(map(devices_of, evidence.cells))
        here = f"{many} × {' and '.join(sorted(models))}"
        found.append(Difference("machine", f"{here} here, {table.machine} there", "time"))
        framework = FRAMEWORKS.get(PLACES[base(study)].file, "")
        found += [Difference("framework", f"PyTorch here, {framework} there", "time")] if framework else []
    precisions = {str(cell.config.get("precision")) for cell in evidence.cells} - {"None", "fp32", "auto"}
    if precisions:
        found.append(Difference("precision", f"{', '.join(sorted(precisions))} here, fp32 there", "both"))
    return found


def _of_the_data(study: dict[str, Any], table: PrintedTable | None) -> list[Difference]:
    data, found = study.get("data", {}), []
    count = data.get("train", data.get("clips"))
    if data.get("source", "synthetic") == "synthetic":
        found.append(Difference("data", "synthetic data here", "score"))
    if table is None:
        return found
    note = PLACES[table.study].note
    found += [Difference("note", note, "time")] if note else []
    if table.samples is None:
        found.append(Difference("data", "other data than the paper's", "both", grave=True))
    elif count not in (None, table.samples) or (count is None and base(study["name"]) == study["name"]):
        here = f"{count:,}" if count else "fewer"
        found.append(
            Difference("samples", f"{here} training samples here, {table.samples:,} there", "both", grave=True)
        )
    return found


def _of_storm_scores(study: dict[str, Any], evidence: Evidence) -> list[Difference]:
    """What decides the scores of storm networks, and where no document or study is the paper's."""
    dropouts = {cell.config.get("dropout") for cell in evidence.cells} | {study.get("fixed", {}).get("dropout")}
    found = []
    if not any(dropouts - {None, 0}):
        found.append(Difference("dropout", "no dropout here, by which the paper explains its curves", "score"))
    found.append(Difference("wind", "wind vectors turn with the grid here, not there", "score"))
    balance = "storms as they occur here; the paper can be read so, or as with rotating storms 19 times"
    return [*found, Difference("balance", balance, "score")]


def _of_settings(evidence: Evidence, table: PrintedTable) -> list[Difference]:
    found = []
    printed_once = {name: table.rows[0].config[name] for name in table.rows[0].config if name not in table.varied}
    for name, there in printed_once.items():
        used = {cell.config.get(name) for cell in evidence.cells if name in cell.config}
        if used and used != {there} and (name in SAME or name == "devices"):
            here = ", ".join(str(value) for value in sorted(used, key=str))
            found.append(Difference(name, f"{name} {here} here, {there} there", "both", grave=name in SAME))
    return found


def _compared(
    row: Printed, evidence: Evidence, table: PrintedTable, differences: Sequence[Difference], trained_here: bool
) -> list[Compared]:
    config = {name: row.config[name] for name in table.varied}
    cells = [cell for cell in evidence.cells if _same(cell, config)]
    cells = [cell for cell in cells if cell.config.get("gpu", row.machine) == row.machine]
    cell = min(cells, key=lambda cell: _unlike(cell, row.config), default=None)
    found = []
    for measure, published in row.values.items():
        measured = _measured(measure, cell, evidence) if cell else None
        note = _missing(measure, cell) if measured is None else _aside(measure, cell) if cell and trained_here else ""
        timed = measure == "efficiency" or measure.endswith("_s")
        comparable = not any(one.grave or (not timed and one.name == "data") for one in differences)
        comparable = comparable and note not in (BY_DEFINITION, DISTURBED)
        ratio = measured / published if comparable and measured is not None and published else None
        n = cell.n if cell and measured is not None else 0
        found.append(Compared(config, measure, row.machine, published, measured, n, ratio, note))
    return found


def _aside(measure: str, cell: Cell) -> str:
    """What must be said beside a number."""
    if measure == "efficiency" and devices_of(cell) == 1:
        return BY_DEFINITION
    if measure == "efficiency" or measure.endswith("_s"):
        return CROWDED if cell.crowded else DISTURBED if cell.disturbed else ""
    return ""


def _missing(measure: str, cell: Cell | None) -> str:
    """Why a number of ours is not there."""
    if cell is None or (cell.n and measure != "epochs_to_stable"):
        return NOT_MEASURED
    return UNSTABLE if cell.n else MISSED if cell.missed else FAILED


def _same(cell: Cell, config: Config) -> bool:
    """Whether a cell is of this config; on one device all rules of scaling are the same."""
    alone = config.get("devices") == 1
    known = {"devices": devices_of(cell), "scaling": cell.config.get("scaling", "strong")}
    return all(
        {**cell.config, **known}.get(name) == value
        for name, value in config.items()
        if not (alone and name == "scaling")
    )


def _unlike(cell: Cell, config: Config) -> int:
    return sum(name in cell.config and cell.config[name] != value for name, value in config.items())


def _measured(measure: str, cell: Cell, evidence: Evidence) -> float | None:
    if measure != "efficiency":
        return cell.values.get(measure)
    to_target = "time_to_target_s"
    alone = [c.values[to_target] for c in evidence.cells if devices_of(c) == 1 and to_target in c.values]
    own = cell.values.get(to_target)
    return alone[0] / (devices_of(cell) * own) if alone and own else None
