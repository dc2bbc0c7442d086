"""The loop: plan > hand out > train > record. Everything else serves it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind import machine
from tradewind.claims import living_owners
from tradewind.crew import Options, check_devices, followed, joined, others_of, share_of, workers_of
from tradewind.engine import Ended, Engine, Epoch, Lost, Waiting
from tradewind.engine.world import World
from tradewind.errors import Interrupted, JournalError, RunError, TimeUp
from tradewind.folder import RunFolder, default_path, set_aside
from tradewind.journal import Journal, Record, new_owner
from tradewind.models import BestWeights
from tradewind.occupancy import check_lock_folder
from tradewind.pack import Outcome, Pack, Share, Trial
from tradewind.quantities import size
from tradewind.rerun import set_aside_again
from tradewind.results import Results
from tradewind.schedule.chosen import Way, schedule_of
from tradewind.schedule.dispatch import LOOK_AGAIN_S
from tradewind.schedule.edition import extend
from tradewind.schedule.packing import Packing
from tradewind.schedule.searching import Searching
from tradewind.schedule.trials import Trials
from tradewind.stopping import Stop
from tradewind.study import Study
from tradewind.troubles import troubles
from tradewind.watch import Quiet, Watch
from tradewind.workloads import being_imported

LOOK_AT_DISK_S = 10.0
LOW_BYTES, LOW_SHARE = 2e9, 0.1  # a disk with less than both left is nearly full
EPOCH_LINE_S = 1.0  # at most one progress line per trial in this time
POLL_S = 0.1
NEARLY_DURABLE_S = 0.002


def run(
    study: Study | str | Path, out: str | Path | None = None, watch: Watch | None = None, **options: Any
) -> Results:
    """Run what is left of a study and return all its results, or those that are there when `max_time_s` is up.

    Options: engine, workers, schedule, rank, of, probe, max_time_s, retry_failed, fresh, rerun, no_wait.
    """
    study = study if isinstance(study, Study) else Study.load(study)
    path, began = Path(out) if out is not None else default_path(study.name), time.time()
    with suppress(TimeUp):
        finish(study, path, watch, **options)
    results = Results.load(path)
    show = "results.record({trial})['error'] has its traceback"
    for line in [] if watch else troubles(results, began, "retry_failed=True", show):
        print(f"{study.name}: {line}", file=sys.stderr)
    return results


def finish(study: Study, path: Path, watch: Watch | None = None, **options: Any) -> None:
    """Run what is left of a study; raises where the time is up before that."""
    if module := being_imported():
        raise RunError(f"run() is called while {module} is imported; put it under: if __name__ == '__main__'")
    how = Options(**options)
    how.check()
    check_lock_folder()
    stop = Stop()
    with stop.in_time(), joined(how) as world:
        if followed(world):
            return
        lead(study, path, how, watch or Quiet(), world, stop)
        if not path.exists():
            raise JournalError(_gone(path))


def lead(study: Study, path: Path, how: Options, watch: Watch, world: World | None, stop: Stop) -> None:
    """Prepare the run folder, find workers, and turn the loop until all is done."""
    trials = Trials(study)
    check_devices(trials, how, world)
    share = share_of(how, world)
    first = world is None or not world.rank
    aside = _make_room(path) if how.fresh and first else None
    folder = RunFolder.create(path)
    if first:
        extend(folder, trials)
    folder.keep_machine(machine.name(), machine.facts())
    owner = new_owner()
    try:
        with stop.by_signals(), workers_of(trials, folder, how, owner, world) as engine:
            earlier = Results.load(aside) if aside else None  # what its trials cost is worth knowing
            if first:
                wait_for_older_jobs(folder, study.digest(), how.max_time_s)
            loop = Loop(trials, folder, engine, owner, how, watch, share, earlier)
            with others_of(world, how) as loop.others_work:
                loop.run()
        if first and not how.probe and (few := (loop.search or trials).too_few):
            print(f"{study.name}: {few}", file=sys.stderr)
    except TimeUp:
        raise
    except KeyboardInterrupt as why:
        raise Interrupted(str(why) or "interrupted") from None
    except (OSError, JournalError) as error:
        if path.exists():
            raise
        raise JournalError(_gone(path)) from error


def wait_for_older_jobs(folder: RunFolder, edition: str, max_time_s: float | None) -> None:
    """Hand out nothing while a job of an older edition is at work: it may have any trial in hand that is left."""
    began, said = time.monotonic(), False
    while older := [owner for owner in living_owners(folder) if owner.edition not in ("", edition)]:
        if not said:
            print(
                f"tradewind: {folder.path}: the study has changed since {older[0].who} began with it; waiting for "
                "the end of that job",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        said = True
        if max_time_s and time.monotonic() - began > max_time_s:
            raise TimeUp("time is up")
        time.sleep(LOOK_AGAIN_S)


def _make_room(path: Path) -> Path | None:
    """Move an old run aside, unless a job is at work there."""
    living = living_owners(RunFolder.open(path)) if path.exists() else []
    if living:
        raise RunError(
            f"{path}: --fresh: {living[0].who} is at work there; wait for its end, end it, or choose another --out"
        )
    return set_aside(path)


def _gone(path: Path) -> str:
    return f"{path}: the run folder was deleted or moved while the run went on; the same command starts anew there"


class Loop:
    """One job on a run folder."""

    others_work: Callable[[], bool] = staticmethod(lambda: False)  # ranks whose end this one waits for

    def __init__(
        self, trials: Trials, folder: RunFolder, engine: Engine, owner: str, how: Options, watch: Watch,
        share: Share | None = None, earlier: Results | None = None,
    ) -> None:  # fmt: skip
        self.trials, self.folder, self.engine, self.watch = trials, folder, engine, watch
        self.edition = trials.study.digest()
        self.rank = share.rank if share else 0
        self.journal = Journal(folder, owner)
        results = set_aside_again(self.journal, how.rerun)
        way = Way(share, engine.workers, how.retry_failed, how.probe, earlier)
        self.schedule, self.claims = schedule_of(trials, self.journal, results, way)
        self.search = self.schedule if isinstance(self.schedule, Searching) else None  # one that learns
        final = results.final_keys()
        for kept in folder.checkpoints.glob("*.safetensors"):
            if kept.stem in final:  # its job was killed before it could remove it
                kept.unlink(missing_ok=True)
        self.packing = Packing(trials, engine.workers)
        self.weights = BestWeights(folder, results, trials.study.keep) if trials.known else None
        self.deadline = time.monotonic() + how.max_time_s if how.max_time_s else float("inf")
        self.in_flight: dict[str, tuple[int, Trial]] = {}
        self.written: dict[str, tuple[int | None, Trial]] = {}  # finished or paused, not yet durable
        self.last_line: dict[str, float] = {}
        self.next_look, self.warned_at = 0.0, float("inf")  # at the disk
        self.named = False  # what the workload does not read
        self.machines: set[str] = set()  # of workers elsewhere, whose facts are kept
        self.watch.begin(self._plan(results, owner))

    def run(self) -> None:
        """Hand out, train, record, until every trial has ended."""
        try:
            while self.others_work() or not self.over:
                if time.monotonic() > self.deadline:
                    raise TimeUp("time is up")
                while self.engine.free() and (pack := self.packing.next(self.schedule.next)):
                    self._hand_out(pack)
                for trial, record, curve in self.search.pruned() if self.search else ():
                    self.written[trial.key] = None, trial
                    self.journal.finished(record, curve)
                self._collect(POLL_S if not self.written else NEARLY_DURABLE_S)
                self._count(self.journal.durable())
                self._look_at_disk()
                self.watch.turn(self.schedule.waiting_for_others)
        except KeyboardInterrupt:
            # what has ended well by now counts; a signal to the whole group may have ended workers too
            for event in self.engine.poll(0.0):
                if isinstance(event, Ended) and all(outcome.state != "failed" for outcome in event.outcomes):
                    self._record(event)
            raise
        finally:
            self.engine.close()
            self.journal.close()
            with suppress(JournalError, OSError):  # whatever failed before is what should be seen
                self._count(self.journal.durable())
                self.claims.leave()
            self.watch.end()

    @property
    def over(self) -> bool:
        """Whether nothing is left to hand out, to wait for or to make durable."""
        return self.schedule.over and not (self.packing or self.in_flight or self.written)

    def _collect(self, timeout_s: float) -> None:
        for event in self.engine.poll(timeout_s):
            if isinstance(event, Epoch):
                self._progress(event)
            elif isinstance(event, Ended):
                self._record(event)
            elif isinstance(event, Waiting):
                self._wait(event)
            else:
                self._take_back(event)

    def _look_at_disk(self) -> None:
        """Warn of a disk that is nearly full, each time that half of what was left is gone."""
        if time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + LOOK_AT_DISK_S
        with suppress(OSError):
            disk = shutil.disk_usage(self.folder.path)
            if disk.free < min(LOW_BYTES, disk.total * LOW_SHARE, self.warned_at / 2):
                self.warned_at = disk.free
                self.watch.warn(
                    f"{self.folder.path}: {size(disk.free)} are left on its disk; make room, for example by "
                    "tradewind clean RUN or tradewind clean --cache, before the run has to stop"
                )

    def _hand_out(self, pack: Pack) -> None:
        for trial in pack.trials:
            about = {"key": trial.key, "trial": trial.trial, "attempt": trial.attempt, "at": time.time()}
            self.journal.started(about if trial.until is None else {**about, "until": trial.until})
        worker = self.engine.submit(pack, self.packing.slots(pack))
        for trial in pack.trials:
            self.in_flight[trial.key] = worker, trial
            self.watch.started(worker, trial)

    def _progress(self, event: Epoch) -> None:
        now = time.monotonic()
        if now - self.last_line.get(event.key, 0.0) >= EPOCH_LINE_S:
            self.last_line[event.key] = now
            about = {"key": event.key, "epoch": event.epoch, "worker": event.worker}
            self.journal.epoch({**about, "scores": dict(event.scores)})
        self.watch.epoch(event.worker, event.epoch, event.scores)

    def _wait(self, event: Waiting) -> None:
        self.journal.waiting({"key": event.key, "since": event.since, "for": event.holder})
        self.watch.waiting(event.worker, event.since, event.holder)

    def _record(self, event: Ended) -> None:
        if len(event.pack.trials) > 1 and all(outcome.state == "failed" for outcome in event.outcomes):
            self.packing.split(event.pack)
            return
        if event.where and event.where["machine"] not in self.machines:
            self.folder.keep_machine(event.where["machine"], event.where["facts"])
            self.machines.add(event.where["machine"])
        for trial, outcome in zip(event.pack.trials, event.outcomes, strict=True):
            # a signal may have come between handing it out and noting that
            self.written[trial.key] = self.in_flight.pop(trial.key, (event.worker, trial))
            self.last_line.pop(trial.key, None)
            if (names := outcome.facts.pop("unread", [])) and not self.named:
                self.named, study = True, self.trials.study
                what = f"{study.workload or 'the command'} did not read {', '.join(names)} in its first trial"
                print(f"{study.name}: {what}", file=sys.stderr)
            whole = self.search.joined(outcome) if self.search else outcome
            write = self.journal.paused if whole.state == "paused" else self.journal.finished
            write(self._about(trial, whole, event), whole.curve)

    def _take_back(self, event: Lost) -> None:
        for trial in event.pack.trials:
            self.in_flight.pop(trial.key, None)
            self.schedule.take_back(trial)

    def _about(self, trial: Trial, outcome: Outcome, event: Ended) -> Record:
        """The record of a trial: what its worker saw, and who, where and when."""
        where = event.where or {"rank": self.rank, "host": machine.facts()["host"], "machine": machine.name()}
        return {
            "key": trial.key, "trial": trial.trial, "repeat": trial.repeat, "config": trial.config,
            "seed": trial.seed, "data_seed": trial.data_seed, "state": outcome.state, "reason": outcome.reason,
            "times": outcome.times, "scores": outcome.scores, "last": outcome.last,
            "purpose": self.trials.study.purpose, "rank": where["rank"], "host": where["host"],
            "machine": where["machine"], "code": machine.code(), "edition": self.edition, "started": event.started,
            "finished": event.finished, "attempt": trial.attempt, "error": outcome.error, "log": event.log,
            **outcome.facts,
        }  # fmt: skip

    def _count(self, records: list[Record]) -> None:
        for record in records:
            worker, trial = self.written.pop(record["key"])
            self.schedule.tell(trial, record)
            if record["state"] == "paused":
                continue
            if self.weights and record["state"] != "failed":
                self.weights.consider(record)
                self.folder.checkpoint(record["key"]).unlink(missing_ok=True)
            self.watch.finished(worker, record)
        while self.schedule.elsewhere:
            self.watch.finished(None, self.schedule.elsewhere.pop())

    def _plan(self, results: Results, owner: str) -> dict[str, Any]:
        count, exact = self.trials.count()
        return {
            "name": self.trials.study.name, "folder": self.folder.path, "trials": count, "exact": exact,
            "counts": results.counts(), "workers": self.engine.workers, "purpose": self.trials.study.purpose,
            "results": results, "owner": owner, "skipped_lines": results.skipped_lines,
            "space": list(self.trials.study.space),
        }  # fmt: skip
