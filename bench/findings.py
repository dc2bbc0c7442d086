"""Write the tables of docs/findings.md from run folders of the papers' studies.

    python bench/findings.py runs/basalyga-table3-full runs/basalyga-table5-full … [--docs docs/findings.md]

Each run is read beside the others that are given, so that findings on two tables can be judged.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tradewind import Results
from tradewind.analysis.findings import PaperBeside, paper_beside, study_of
from tradewind.report.findings import findings_markdown, summary_markdown
from tradewind.studies.published import PLACES, base

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def sections(folders: list[Path]) -> list[PaperBeside]:
    """Every run beside its paper, in the order of the papers' tables."""
    runs = [Results.load(folder) for folder in folders]
    strange = [str(results.folder.path) for results in runs if not study_of(results)]
    if strange:
        raise SystemExit(f"{', '.join(strange)}: no run of a paper's study")
    order = list(PLACES)
    runs.sort(key=lambda results: order.index(base(study_of(results))))
    found = [paper_beside(results, [other for other in runs if other is not results]) for results in runs]
    return [one for one in found if one is not None]


def written(page: str, found: list[PaperBeside]) -> str:
    """The page with its tables made anew."""
    if BEGIN not in page or END not in page:
        raise SystemExit(f"the page needs the lines {BEGIN} and {END}")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    parts = [f"Written by `bench/findings.py` on {time.strftime('%Y-%m-%d')}.", summary_markdown(found)]
    parts += [findings_markdown(one) for one in found]
    return f"{before}{BEGIN}\n\n" + "\n\n".join(part.rstrip() for part in parts) + f"\n\n{END}{after}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of the papers' studies")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs" / "findings.md")
    chosen = parser.parse_args()
    found = sections(chosen.runs)
    chosen.docs.write_text(written(chosen.docs.read_text(), found))
    print(f"{len(found)} runs in {chosen.docs}")


if __name__ == "__main__":
    main()
