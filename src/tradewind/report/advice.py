"""The answer of `tradewind advise` as plain text."""

from __future__ import annotations

import textwrap

from tradewind.analysis.advice import Advice

WIDTH = 100


def advice_page(items: list[Advice]) -> str:
    """Topic by topic: what to choose, why, how sure."""
    if not items:
        return "nothing to advise on"
    parts = []
    for item in items:
        text = textwrap.fill(
            item.text,
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        parts.append(f"{item.topic} ({item.sure})\n{text}")
    return "\n\n".join(parts)
