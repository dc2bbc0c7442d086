"""Write the measured part of docs/findings.md from the files in bench/results.

    python bench/findings.py [--docs docs/findings.md] [--add NAME=RUN]…

Every number and verdict between the marks of that page comes from those files: a test writes them again and compares.
`--add basalyga/table6-full=runs/table6` first puts what such a run folder holds into studies-h200.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tradewind import Results, Study, studies
from tradewind.analysis.findings import PaperBeside, paper_beside, study_of
from tradewind.folder import RunFolder
from tradewind.journal import Journal, new_owner
from tradewind.quantities import duration, number
from tradewind.report.findings import findings_markdown, summary_markdown
from tradewind.studies.published import PLACES, base

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
RESULTS = Path(__file__).parent / "results"
ASIDE = ("times", "scores", "last", "code")  # what of a row is no setting


def as_run(folder: Path, name: str, kept: dict[str, Any]) -> Results:
    """A run folder of a bundled study that holds the trials of a results file."""
    study = Study.load(studies.path_of(name))
    run = RunFolder.create(folder / name.replace("/", "-"))
    run.keep_edition(study.digest(), study.edition([study.search.metric or "accuracy"], {}))
    journal = Journal(run, new_owner())
    for number_, row in enumerate(kept["rows"]):
        config = {**study.fixed, **{key: value for key, value in row.items() if key not in ASIDE}}
        about = {"key": f"{number_:016x}" * 2, "trial": number_, "repeat": 0, "seed": 0, "data_seed": 0, "attempt": 1}
        where = {"rank": 0, "host": "", "machine": kept["machine"], "code": row.get("code", "")}
        record = {
            **about, "config": config, "state": "done", "reason": "", "times": row["times"], "scores": row["scores"],
            "last": row["last"], "purpose": kept["purpose"], "device": "cuda", "precision": row["precision"], **where,
            "packed_with": len(kept["rows"]) - 1 if kept["purpose"] == "tune" else 0, "started": 0.0, "finished": 0.0,
            "error": {}, "log": {},
        }  # fmt: skip
        journal.finished(record, [])
    journal.settle()
    journal.close()
    return Results.load(run.path)


def sections(runs: list[Results]) -> list[PaperBeside]:
    """Every run beside its paper, in the order of the papers' tables."""
    order = list(PLACES)
    runs = sorted(runs, key=lambda results: order.index(base(study_of(results))))
    found = [paper_beside(results, [other for other in runs if other is not results]) for results in runs]
    return [one for one in found if one is not None]


def from_files(folder: Path = RESULTS) -> tuple[dict[str, Any], list[PaperBeside]]:
    """What was measured, and every study of it beside its paper."""
    kept = json.loads((folder / "studies-h200.json").read_text())
    with tempfile.TemporaryDirectory() as place:
        runs = [as_run(Path(place), name, each) for name, each in kept["studies"].items()]
        return kept, sections(runs)


def measured(kept: dict[str, Any], folder: Path = RESULTS) -> str:
    """What was run, where, and how long it took, as a list."""
    versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    lines = [
        f"Measured on one {kept['machine']} ({versions}) on {kept['date']}, every trial once (n = {kept['n']}):",
        "",
    ]
    for name, each in kept["studies"].items():
        rows = each["rows"]
        counts = Counter(row["precision"] for row in rows)
        precisions = ", ".join(f"{count} in {precision}" for precision, count in sorted(counts.items()))
        training = duration(sum(row["times"]["train_s"] for row in rows))
        times = "" if each["purpose"] == "tune" else f", {training} of training"
        whole = f", {duration(each['wall_s'])} for the whole run" if "wall_s" in each else ""
        note = f"; {each['note']}" if each.get("note") else ""
        lines.append(
            f"- `{name}`: {each['trials']} of {each['of']} trials on one device, purpose {each['purpose']} "
            f"({precisions}){times}{whole}{note}."
        )
    for each in json.loads((folder / "nodules-h200.json").read_text())["samples"]:
        took, epochs = each["times"].get("time_to_target_s"), len(each["times"]["epoch_s"])
        reached = f"reached after {epochs} epochs in {duration(took)}" if took else f"not reached in {epochs} epochs"
        lowest = number(each["last"]["validation_loss"])
        note = f"; {each['note']}" if each.get("note") else ""
        lines.append(
            f"- Nodules of real data, shrunk by {each['shrink']}, {each['precision']}: a validation loss of "
            f"{number(each['target'])} is {reached}; it was {lowest} at the end{note}."
        )
    for each in json.loads((folder / "table3-h200.json").read_text())["runs"]:
        took = duration(each["wall_s"])
        lines += [f"- Table 3 with purpose {each['purpose']}: {each['networks']} networks in {took}."]
    return "\n".join(lines)


def written(page: str, kept: dict[str, Any], found: list[PaperBeside]) -> str:
    """The page with what was measured written anew."""
    if BEGIN not in page or END not in page:
        raise SystemExit(f"the page needs the lines {BEGIN} and {END}")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    parts = [measured(kept), summary_markdown(found), *map(findings_markdown, found)]
    return f"{before}{BEGIN}\n\n" + "\n\n".join(part.rstrip() for part in parts) + f"\n\n{END}{after}"


def add(name: str, run: Path) -> None:
    """Put the trials of a run folder into the file."""
    path, results = RESULTS / "studies-h200.json", Results.load(run)
    if study_of(results) != name:
        raise SystemExit(f"{run}: holds {study_of(results) or 'no study of a paper'}; expected {name}")
    kept = json.loads(path.read_text())
    varied = list(results.folder.edition()["study"]["space"])
    rows, first = [], next(results.records())
    for record in results.records():
        settings = {key: record["config"][key] for key in varied}
        rows.append({**settings, **{key: record[key] for key in ("precision", *ASIDE) if key in record}})
    about = {"machine": first["machine"], "purpose": first["purpose"], "trials": len(rows)}
    kept["studies"][name] = {**about, "of": len(rows), "rows": rows}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs" / "findings.md")
    parser.add_argument("--add", action="append", default=[], metavar="NAME=RUN")
    chosen = parser.parse_args()
    for pair in chosen.add:
        name, _, run = pair.partition("=")
        add(name, Path(run))
    kept, found = from_files()
    chosen.docs.write_text(written(chosen.docs.read_text(), kept, found))
    print(f"{len(found)} studies in {chosen.docs}")


if __name__ == "__main__":
    main()
