"""The schedule that a study and the way it is run call for."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.claims import Claims
from tradewind.errors import Mistake
from tradewind.journal import Journal
from tradewind.pack import Share
from tradewind.results import Results
from tradewind.schedule.adaptive import Adaptive
from tradewind.schedule.dispatch import Dispatch, History
from tradewind.schedule.generations import Generations
from tradewind.schedule.ledger import Ledger
from tradewind.schedule.plan import Plan, fixed_order, generation_size, probes_of
from tradewind.schedule.searching import batch_size
from tradewind.schedule.synchronous import Synchronous
from tradewind.schedule.trials import Trials

Schedule = Dispatch | Synchronous | Adaptive | Generations


@dataclass(frozen=True)
class Way:
    """How a study is run: in which share of how many, by how many workers."""

    share: Share | None
    workers: int
    retry_failed: bool = False
    probe: int | None = None
    earlier: Results | None = None  # of a run before this one: what its trials cost is worth knowing


def schedule_of(trials: Trials, journal: Journal, results: Results, way: Way) -> tuple[Schedule, Claims]:
    """Who runs what, and the claims by which jobs on one folder keep apart."""
    folder, owner, edition = journal.folder, journal.owner, trials.study.digest()
    if trials.searching:
        claims = Claims(folder, edition, owner)
        return _searching(trials, journal, claims, way, results.set_aside()), claims
    history = History(results, owner)
    if way.share is None:
        claims = Claims(folder, edition, owner)
        order = fixed_order(trials, results, way.earlier)
        schedule = Dispatch(trials, claims, history, way.retry_failed, order)
        if way.probe:
            schedule.only(probes_of(trials, way.probe))
        return schedule, claims
    rank, watches = way.share.rank, way.share.watches
    plan = Plan.fixed(trials, results, way.share.of, watches, way.earlier)
    claims = Claims(folder, plan.name, owner)
    return Synchronous(trials, plan, rank, claims, history, way.retry_failed, watches), claims


def _searching(
    trials: Trials, journal: Journal, claims: Claims, way: Way, aside: set[tuple[str, float]]
) -> Adaptive | Generations:
    if way.probe:
        raise Mistake(f"--probe {way.probe}: a search chooses its own trials; leave it out")
    ledger = Ledger(trials, journal.folder, journal.owner, aside)
    if way.share is None:
        return Adaptive(trials, claims, ledger, journal, way.workers, way.retry_failed)
    if way.retry_failed:
        raise Mistake("--retry-failed: later generations have counted on the failures; take --schedule dispatch")
    workers = way.share.of * way.workers
    size = -(-workers * batch_size(trials, workers) // trials.study.repeats)
    size = generation_size(trials, journal.folder, way.share.of, size)
    return Generations(trials, claims, ledger, journal, way.share, size)
