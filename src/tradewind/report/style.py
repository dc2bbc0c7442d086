"""How pages look: one style sheet for light, dark and paper, and figures that follow it."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.errors import Mistake
from tradewind.folder import write_aside
from tradewind.quantities import label_text, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TEXT = 20_000
LONG = 30  # rows of a table that is shown folded
INK = "#24292e"  # of text and axes; a page puts its own text colour in its place
Tips = dict[str, list[str]]  # what hovering shows: by the id of a group, one text for each mark in it

CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --back: #fff; --card: #f6f8fa;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --back: #0d1117;
  --card: #161b22; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
p { margin: .4rem 0; } .soft, figcaption, caption, .table > p { color: var(--soft); font-size: .875rem; }
nav { font-size: .875rem; margin: 1rem 0; } nav a { margin-right: 1rem; } a { color: var(--accent); }
.cards { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem 1rem; min-width: 7rem; }
.card b { display: block; font-size: 1.5rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .8rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } .table { overflow-x: auto; margin: 1rem 0 1.5rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; margin: .5rem 0; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { font-weight: 600; } .words th, .words td { text-align: left; overflow-wrap: anywhere; }
.words td.number { text-align: right; white-space: nowrap; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem 1rem; overflow-x: auto;
  font: .8125rem/1.5 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
pre.flow { white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1.25rem 0 2rem; break-inside: avoid; } figure svg { width: 100%; height: auto; max-height: 80vh; }
figcaption { margin-top: .35rem; overflow-wrap: anywhere; } figcaption b { color: var(--ink); }
use:hover, .tip:hover { opacity: .6; } summary { cursor: pointer; }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --back: #fff; --card: #fff; --accent: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; } h2 { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
  pre { white-space: pre-wrap; } section, table { break-inside: auto; } tr { break-inside: avoid; } }
"""


def whole_page(title: str, body: str) -> str:
    """An HTML file that needs nothing else."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    top = f"{head}<title>{html.escape(title)}</title><style>{CSS}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{top}</head>\n<body>\n{body}\n</body></html>\n'


def words(text: str, kind: str = "") -> str:
    """A paragraph."""
    return f'<p class="{kind}">{html.escape(label_text(text))}</p>'


def preformatted(text: str) -> str:
    """Lines as they are, up to a length."""
    more = f"\n… {len(text) - MOST_TEXT:,} more characters" if len(text) > MOST_TEXT else ""
    return f'<pre class="flow">{html.escape(printable(text[:MOST_TEXT]) + more)}</pre>'


def grid(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of words; a long one is folded, but not on paper."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    cells = [[f"<td>{html.escape(label_text(cell))}</td>" for cell in line] for line in lines]
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in cells)
    table = f'<div class="wide"><table class="words"><tr>{head}</tr>{body}</table></div>'
    return table if len(lines) <= LONG else f"<details><summary>{len(lines):,} rows</summary>{table}</details>"


def safe(text: str, most: int = 60) -> str:
    """Text that matplotlib shows as it is: no formulas, nothing endless."""
    text = label_text(text)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def with_unit(name: str) -> str:
    """A measure's name with its unit."""
    units = {"_s": "seconds", "_gb": "GB", "_bytes": "bytes", "_deg": "degrees"}
    unit = next((unit for end, unit in units.items() if name.endswith(end)), "")
    return safe(name) + (f" ({unit})" if unit else "")


def image(figure: Figure, kind: str) -> bytes:
    """A figure as a PNG or SVG file, on white."""
    import matplotlib

    out = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tradewind"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks
        about = {"Date": None} if kind == "svg" else None  # the same results, the same file
        figure.savefig(out, format=kind, dpi=150, metadata=about)
    return out.getvalue()


def inline(figure: Figure, tips: Tips, name: str, about: str) -> str:
    """A figure as SVG within a page: its text and axes in the page's colour, hovering by titles alone."""
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    text = image(figure, "svg").decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = text.replace("xlink:href", "href").replace(INK, "currentColor")
    for group, texts in tips.items():
        text = _with_titles(text, group, texts)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)  # ids of other figures on the page
    box = re.search(r'viewBox="[^"]*"', text[: text.index(">")])
    opening = f'<svg {box[0] if box else ""} role="img" aria-label="{html.escape(about)}">'
    return opening + text[text.index(">") + 1 :]


def _with_titles(text: str, group: str, titles: list[str]) -> str:
    mark = f'<g id="{group}">'
    before, found, after = text.partition(mark)
    if not found:
        return text
    if group.startswith("patch"):
        return f'{before}<g id="{group}" class="tip"><title>{html.escape(titles[0])}</title>{after}'
    rest = iter(titles)
    marks = re.compile(r"(<use [^>]*?)/>")
    after = marks.sub(lambda m: f"{m[1]}><title>{html.escape(next(rest))}</title></use>", after, count=len(titles))
    return before + found + after


def save(path: Path, content: bytes) -> None:
    """Write a file whole, or say why not."""
    try:
        write_aside(path, content)
    except OSError as error:
        raise Mistake(f"{path}: can't be written: {error.strerror}") from None
