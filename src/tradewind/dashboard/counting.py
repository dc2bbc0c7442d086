"""How many trials the studies of run folders have, one JSON line each.

A process of its own: the workload must be imported for it, which is the user's code and many libraries.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Count for the folders on the command line."""
    os.nice(19)  # a run on this machine goes first; what is imported below takes a second of a core
    from tradewind.folder import RunFolder
    from tradewind.schedule.trials import Trials
    from tradewind.study import Study

    for run in sys.argv[1:]:
        edition = RunFolder.open(run).edition()
        found = {"run": run, "edition": edition["edition"], "trials": None, "exact": False}
        try:
            found["trials"], found["exact"] = Trials(Study.of_edition(edition)).count()
        except (Exception, SystemExit):
            pass  # the user's module is not here, or ends in an error; what has ended is still known
        print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
