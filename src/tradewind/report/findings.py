"""A paper beside a run: as text, as a section of the page, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tradewind.analysis.findings import (
    BORNE_OUT,
    CANNOT_BE_SAID,
    NOT_BORNE_OUT,
    OVERCOME,
    Compared,
    PaperBeside,
    Verdict,
)
from tradewind.quantities import MISSING, value_text
from tradewind.report.style import grid, words
from tradewind.studies.published import PLACES

MOST_LINES = 60  # of a table on a terminal
HEAD = ("measured", "n", "measured / published")
FINDING = ("verdict", "finding", "what was measured", "rule")
MARKS = {BORNE_OUT: "✓", NOT_BORNE_OUT: "✗", CANNOT_BE_SAID: "?", OVERCOME: "↷"}


def findings_page(found: PaperBeside) -> str:
    """The answer as plain text."""
    lines = [found.title, *(f"  {line}" for line in _about(found)), ""]
    for verdict in found.verdicts:
        said, _, text, rule = _line(verdict)
        lines += [f"{said[0]} {verdict.claim}: {verdict.verdict}", f"    {text}", f"    rule: {rule}"]
    cells = _cells(found)
    if len(cells) > MOST_LINES:
        lines += ["", f"{len(cells) - 1} numbers beside the paper's: `tradewind report` shows them"]
    elif cells:
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        aligned = [[cell.rjust(w) for cell, w in zip(line, widths, strict=True)] for line in cells]
        lines += ["", *("  ".join(line).rstrip() for line in aligned)]
    return "\n".join(lines) + "\n"


def findings_section(found: PaperBeside) -> tuple[str, str]:
    """Title and HTML of a section of the page."""
    parts = [words(line, "soft") for line in _about(found)]
    if found.verdicts:
        parts.append(_unbroken(grid(FINDING, [_line(verdict) for verdict in found.verdicts])))
    cells = _cells(found)
    if cells:
        parts.append(grid(cells[0], [[cell or MISSING for cell in line] for line in cells[1:]]))
    return f"Beside the paper: {found.title}", "\n".join(parts)


def _unbroken(table: str) -> str:
    """Verdicts on one line each; the words beside them have room to break."""
    for word, mark in MARKS.items():
        table = table.replace(f"<td>{mark} {word}<", f'<td style="white-space: nowrap">{mark} {word}<')
    return table


def findings_markdown(found: PaperBeside) -> str:
    """The same for a documentation page, compact."""
    parts = [f"### {found.title}", "\n".join(_about(found))]
    if found.verdicts:
        parts.append(_markdown(FINDING, [_line(verdict) for verdict in found.verdicts]))
    cells = _crossed(found) or _cells(found)
    if cells:
        parts.append(_markdown(cells[0], cells[1:]))
    return "\n\n".join(part for part in parts if part) + "\n"


def summary_markdown(found: Sequence[PaperBeside]) -> str:
    """Every finding of several runs with its verdict, and the middle of each table's ratios."""
    lines = []
    for one in found:
        ratios = [row.ratio for row in one.rows if row.ratio is not None]
        missing = sum(row.measured is None for row in one.rows)
        middle = (
            f"{median(ratios):.3g} ({min(ratios):.3g} – {max(ratios):.3g}), {len(ratios)} numbers" if ratios else ""
        )
        middle += f"{', ' if ratios else ''}{missing} not measured" if missing else ""
        for verdict in one.verdicts:
            lines.append([one.title, verdict.claim, _line(verdict)[0], middle])
            middle = ""  # said once for a table
    ran = {one.title for one in found}
    lines += [[place.title, MISSING, "not run", ""] for place in PLACES.values() if place.title not in ran]
    return _markdown(("published in", "finding", "verdict", "measured / published: median (range)"), lines)


def _about(found: PaperBeside) -> list[str]:
    """Where both were measured, and in what they differ: no number without it."""
    lines = [f"Published on: {found.published_on}."] if found.published_on else ["The paper prints no numbers here."]
    lines.append(f"Measured on: {found.measured_on}.")
    if found.differs:
        ratio = "" if any(row.ratio is not None for row in found.rows) else "; so there is no ratio"
        lines.append(f"Different: {'; '.join(found.differs)}{ratio}.")
    return lines


def _line(verdict: Verdict) -> tuple[str, str, str, str]:
    different = f" (different: {'; '.join(verdict.differs)})" if verdict.differs else ""
    return f"{MARKS[verdict.verdict]} {verdict.verdict}", verdict.claim, f"{verdict.text}{different}", verdict.rule


def _cells(found: PaperBeside) -> list[list[str]]:
    """The numbers side by side: the config, the measure where there are several, and the machine where there are."""
    if not found.rows:
        return []
    names = list(found.rows[0].config)
    several = len({row.measure for row in found.rows}) > 1
    machines = len({row.machine for row in found.rows}) > 1
    beside = [*(["measure"] if several else []), *(["machine"] if machines else [])]
    unit = "" if several else f"{found.rows[0].measure} "
    noted = any(row.note for row in found.rows)
    head = [*names, *beside, f"{unit}published", *HEAD, "note"]
    lines = [head, *(_row(row, names, several, machines) for row in found.rows)]
    return lines if noted else [line[:-1] for line in lines]


def _crossed(found: PaperBeside) -> list[list[str]]:
    """One measure over several hyperparameters, the last of them across: published → measured (ratio)."""
    names = list(found.rows[0].config) if found.rows else []
    if len(names) < 2 or len({row.measure for row in found.rows}) > 1:
        return []
    across = list(dict.fromkeys(value_text(row.config[names[-1]]) for row in found.rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in found.rows:
        *down, column = (value_text(row.config[name]) for name in names)
        lines.setdefault(tuple(down), {})[column] = _pair(row)
    corner = f"{names[-1]}: {found.rows[0].measure} published → measured (ratio)"
    head = [*names[:-1], *across]
    head[len(names) - 2] += f" \\ {corner}"
    return [head, *([*down, *(cells.get(column, "") for column in across)] for down, cells in lines.items())]


def _pair(row: Compared) -> str:
    if row.measured is None:
        return f"{_number(row.published)} → {row.note}"
    return f"{_number(row.published)} → {_number(row.measured)}" + (
        f" ({row.ratio:.3g})" if row.ratio else f" ({row.note})" if row.note else ""
    )


def _row(row: Compared, names: Sequence[str], several: bool, machines: bool) -> list[str]:
    beside = [*([row.measure] if several else []), *([row.machine] if machines else [])]
    ratio = MISSING if row.ratio is None else f"{row.ratio:.3g}"
    shown = [_number(row.published), _number(row.measured), str(row.n or MISSING), ratio, row.note]
    return [*(value_text(row.config[name]) for name in names), *beside, *shown]


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in rows)
