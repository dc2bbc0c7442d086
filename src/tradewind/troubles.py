"""What went wrong in a run, in one line each: trials that failed, and functions that returned nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tradewind.quantities import label_text
from tradewind.results import Results

LONGEST_REASON = 200


def troubles(results: Results, since: float, again: str, show: str) -> list[str]:
    """Lines for people; `since` is when this run began, `again` and `show` how its caller retries and looks."""
    if not len(results):
        return []
    states, total = results.column("state"), len(results)
    lines = []
    failed = np.flatnonzero(states == "failed")
    if len(failed):
        reasons = Counter(label_text(reason) for reason in results.column("reason")[failed])
        (reason, count), *others = reasons.most_common()
        causes = "1 other cause" if len(others) == 1 else f"{len(others)} other causes"
        more = f" ({count} times, and {causes})" if others else ""
        trial = int(results.column("trial")[failed[0]])
        lines.append(
            f"{len(failed)} of {total} trials failed: {reason[:LONGEST_REASON]}{more}; {show.format(trial=trial)}"
        )
        if earlier := int(np.sum(results.column("finished")[failed] < since)):
            kept = "trial is kept as it" if earlier == 1 else "trials are kept as they"
            lines.append(f"{earlier} failed {kept} ended in an earlier run; {again} runs them again")
    done = int(np.sum(states == "done"))
    if done and not results.names("scores", "last"):
        what = "a function returns a number or a dict of numbers, a command prints one as its last line"
        lines.append(f"{done} of {total} trials are done, and none has a score: {what}")
    return lines
