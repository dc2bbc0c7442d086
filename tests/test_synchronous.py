"""Synchronous: every rank derives its own share from one plan, and nothing is lost or done twice."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import WriteStudy
from test_costs import PAPER, STORM, longest_first, needs_published

from tradewind.claims import Claims
from tradewind.errors import Mistake, RunError, StudyError
from tradewind.folder import RunFolder
from tradewind.journal import Journal, Record
from tradewind.pack import Trial, network_of
from tradewind.results import Results
from tradewind.schedule.dispatch import History
from tradewind.schedule.law import Law
from tradewind.schedule.plan import Plan, finished_positions, open_positions, probes_of
from tradewind.schedule.synchronous import Synchronous, share
from tradewind.schedule.trials import Trials
from tradewind.study import Study

Start = Callable[[int], subprocess.Popen[str]]

SPACE = {"epochs": [1, 2, 3, 8], "batch_size": [16, 64, 256], "lr": [0.1, 0.2, 0.3], "kind": ["a", "b"]}
CONDITIONS = ["batch_size > 16 or epochs < 8", "lr < 0.3 or kind == 'a'"]


def trials_of(space: dict[str, Any] = SPACE, **fields: Any) -> Trials:
    command = "true " + " ".join(f"{{{name}}}" for name in space)
    return Trials(Study(name="dealt", command=command, space=space, **fields))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def load(folder: RunFolder) -> Results:
    return Results.load(folder.path)


def record_of(trials: Trials, trial: Trial, state: str, took_s: float = 1.0) -> Record:
    return {
        "key": trial.key, "trial": trial.trial, "repeat": trial.repeat, "config": trial.config, "seed": trial.seed,
        "data_seed": trial.data_seed, "state": state, "reason": "", "times": {"wall_s": took_s}, "scores": {},
        "last": {}, "edition": trials.study.digest(), "started": time.time() - took_s, "finished": time.time(),
        "attempt": trial.attempt, "error": {},
    }  # fmt: skip


class Rank:
    """One rank as a process of a job is: a journal, claims, and the schedule."""

    def __init__(self, trials: Trials, folder: RunFolder, rank: int, of: int, **options: Any) -> None:
        self.owner = f"rank{rank}of{of}-{time.monotonic_ns()}"
        results = load(folder)
        self.trials = trials
        self.plan = Plan.fixed(trials, results, of, options.pop("whole_job", False))
        self.claims = Claims(folder, self.plan.name, self.owner)
        history = History(results, self.owner)
        self.schedule = Synchronous(
            trials, self.plan, rank, self.claims, history, **{"retry_failed": False, **options}
        )
        self.journal = Journal(folder, self.owner)
        self.ran: list[Trial] = []

    def step(self, state: str = "done") -> Trial | None:
        """Run one trial, if there is one now."""
        trial = self.schedule.next()
        if trial is not None:
            self.ran.append(trial)
            self.journal.finished(record_of(self.trials, trial, state), [])
            for record in self.journal.settle():
                self.schedule.tell(trial, record)
        return trial

    def finish(self) -> list[Trial]:
        """Run what is left of the share."""
        while not self.schedule.over:
            assert self.step() or self.schedule.over, "waits for somebody"
        self.leave()
        return self.ran

    def leave(self) -> None:
        """End as a process ends that was not killed."""
        self.journal.close()
        self.claims.leave()


def positions(trials: list[Trial]) -> list[int]:
    return [trial.trial for trial in trials]


# The shares.


@pytest.mark.parametrize("where", [[], CONDITIONS])
@pytest.mark.parametrize("purpose", ["tune", "time"])
@pytest.mark.parametrize(("of", "repeats", "done"), [(1, 1, 0), (4, 2, 0), (7, 3, 25), (16, 1, 10), (90, 1, 3)])
def test_the_shares_of_all_ranks_are_every_open_trial_once(
    folder: RunFolder, of: int, repeats: int, done: int, purpose: str, where: list[str]
) -> None:
    trials = trials_of(where=where, repeats=repeats, purpose=purpose)
    everything = open_positions(trials, np.empty(0, np.int64)).tolist()
    assert everything == [k * repeats + r for k in trials.space.indices() for r in range(repeats)]
    journal = Journal(folder, "before")
    finished = everything[:: max(1, len(everything) // done)][:done] if done else []
    for position in finished:
        journal.finished(record_of(trials, trials[position], "done"), [])
    journal.close()
    plan = Plan.fixed(trials, load(folder), of)
    assert plan.finished.tolist() == finished
    dealt = [share(trials, plan, rank).tolist() for rank in range(of)]
    assert sorted(position for each in dealt for position in each) == sorted(set(everything) - set(finished))
    assert plan.left == len(everything) - len(finished)


def test_heavy_and_light_work_is_spread_evenly(folder: RunFolder) -> None:
    trials = trials_of({"epochs": list(range(1, 41)), "batch_size": [8, 32, 128], "lr": [0.1, 0.2]})
    plan = Plan.fixed(trials, load(folder), 8)
    loads = []
    for rank in range(8):
        configs = [trials[int(position)].config for position in share(trials, plan, rank)]
        sizes = {name: np.array([config[name] for config in configs]) for name in ("epochs", "batch_size")}
        loads.append(Law().cost(sizes).sum())
    assert max(loads) / min(loads) < 1.01


@needs_published
@pytest.mark.parametrize("table", ["table2", "table3"])
def test_published_trials_are_dealt_well_before_any_has_run_in_whatever_order_a_study_names_them(
    folder: RunFolder, table: str
) -> None:
    rows = json.loads(STORM.read_text())["tables"][table]["rows"]
    times = {tuple(row[name] for name in PAPER): row["wall_s"] for row in rows}
    for names in itertools.permutations(PAPER):
        trials = trials_of({name: PAPER[name] for name in names})
        seconds = np.array([times[tuple(trials[p].config[name] for name in PAPER)] for p in range(54)])
        for of in (4, 8, 16):
            plan = Plan.fixed(trials, load(folder), of)
            longest = max(seconds[share(trials, plan, rank)].sum() for rank in range(of))
            best = max(seconds[each].sum() for each in longest_first(seconds, of))
            assert longest <= 1.25 * best, (names, of, longest / best)


@needs_published
@pytest.mark.parametrize("table", ["table2", "table3", "table4", "table5"])
def test_once_eight_published_trials_have_run_the_others_are_dealt_well(folder: RunFolder, table: str) -> None:
    rows = json.loads(STORM.read_text())["tables"][table]["rows"]
    trials = trials_of(PAPER)
    times = {tuple(row[name] for name in PAPER): row["wall_s"] for row in rows}
    seconds = np.array([times[tuple(trials[p].config[name] for name in PAPER)] for p in range(54)])
    seen = probes_of(trials, 8)
    journal = Journal(folder, "before")
    for position in seen:
        journal.finished(record_of(trials, trials[position], "done", seconds[position]), [])
    journal.close()
    left = np.setdiff1d(np.arange(54), seen)
    for of in (4, 8, 16):
        plan = Plan.fixed(trials, load(folder), of)
        longest = max(seconds[share(trials, plan, rank)].sum() for rank in range(of))
        best = max(seconds[left[each]].sum() for each in longest_first(seconds[left], of))
        assert longest <= 1.10 * best


def test_what_costs_do_not_know_is_spread_by_chance(folder: RunFolder) -> None:
    trials = trials_of({"a": list(range(40)), "secret": list(range(8))})
    plan = Plan.fixed(trials, load(folder), 8)
    assert plan.classes is None
    for rank in range(8):
        found = share(trials, plan, rank)
        assert len(found) == 40
        assert max(Counter((found % 8).tolist()).values()) < 15  # of 40; by turns one rank would get all of a kind
        assert len(set((found // 8).tolist())) > 15


def test_the_longest_come_first_to_tune_and_repeats_in_random_order_to_time(folder: RunFolder) -> None:
    tuned = trials_of(repeats=2)
    plan = Plan.fixed(tuned, load(folder), 3)
    costs = [
        float(Law().cost({name: tuned[p].config[name] for name in ("epochs", "batch_size")}))
        for p in share(tuned, plan, 1).tolist()
    ]
    assert costs == sorted(costs, reverse=True)
    timed = trials_of(repeats=2, purpose="time")
    found = share(timed, Plan.fixed(timed, load(folder), 3), 1)
    repeats = (found % 2).tolist()
    assert repeats == sorted(repeats)
    first = found[found % 2 == 0].tolist()
    assert first != sorted(first)


@pytest.mark.parametrize("where", [[], ["epochs < 20 or learning_rate > 0.003"]])
def test_trials_that_share_a_network_are_dealt_to_one_rank(where: list[str], folder: RunFolder) -> None:
    space = {"epochs": [1, 2, 20], "batch_size": [64, 16], "learning_rate": [0.001 * k for k in range(1, 8)]}
    trials = Trials(Study(name="dealt", workload="storm", space=space, where=where, repeats=2))
    done = {0, 5, 30}
    journal = Journal(folder, "before")
    for position in done:
        journal.finished(record_of(trials, trials[position], "done"), [])
    journal.close()
    plan = Plan.fixed(trials, load(folder), 3)
    shares = [[trials[int(position)] for position in share(trials, plan, rank)] for rank in range(3)]
    expected = set(open_positions(trials, plan.finished).tolist())
    assert sorted(trial.trial for each in shares for trial in each) == sorted(expected)
    assert not done & expected
    dealt = [[name for name, _ in itertools.groupby(each, key=network_of)] for each in shares]  # neighbours
    assert all(count == 1 for count in Counter(itertools.chain(*dealt)).values())
    assert {network_of(trials[position]) for position in expected} == set(itertools.chain(*dealt))
    assert plan.classes is not None
    assert plan.classes.names == ("batch_size",)
    costs = dict(zip(space["batch_size"], plan.classes.costs, strict=True))
    loads = [sum(costs[json.loads(name)[0]["batch_size"]] for name in each) for each in dealt]
    assert max(loads) - min(loads) <= max(costs.values())
    for one in shares:
        sizes = [trial.config["batch_size"] for trial in one]
        assert sizes == sorted(sizes)  # the dear ones first


def test_a_share_a_million_trials_is_found_in_seconds(folder: RunFolder) -> None:
    space = {
        "epochs": list(range(1, 11)),
        "batch_size": [8, 16, 32, 64],
        "a": list(range(250)),
        "b": list(range(100)),
    }
    trials = trials_of(space)
    start = time.perf_counter()
    plan = Plan.fixed(trials, load(folder), 64)
    found = share(trials, plan, 63)
    assert time.perf_counter() - start < 10.0
    assert 15_000 < len(found) < 16_200
    assert found.dtype == np.int64


def test_more_trials_than_can_be_dealt_and_wrong_ranks_are_refused(folder: RunFolder) -> None:
    with pytest.raises(
        StudyError, match=r"found 1,000,000,000 trials; allowed: up to 20,000,000.*--schedule dispatch"
    ):
        Plan.fixed(trials_of({name: list(range(1000)) for name in "abc"}), load(folder), 4)
    trials = trials_of()
    plan = Plan.fixed(trials, load(folder), 4)
    for rank in (-1, 4):
        with pytest.raises(Mistake, match=f"--rank {rank} --of 4: allowed: ranks from 0 to 3"):
            share(trials, plan, rank)
    with pytest.raises(Mistake, match="--of 0: allowed: 1 or more"):
        Plan.fixed(trials, load(folder), 0)


# The plan.

MAKE = """
import sys
from tradewind.results import Results
from tradewind.schedule.plan import Plan
from tradewind.schedule.synchronous import share
from tradewind.schedule.trials import Trials
from tradewind.study import Study
study, folder, rank = sys.argv[1:]
trials, results = Trials(Study.load(study)), Results.load(folder)
print("ready", flush=True)
sys.stdin.readline()
plan = Plan.fixed(trials, results, 8)
print(plan.name, *share(trials, plan, int(rank)))
"""


def test_eight_processes_at_once_get_one_plan(folder: RunFolder, write_study: WriteStudy) -> None:
    study = write_study(trials_of(repeats=2).study.plain())
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE, str(study), str(folder.path), str(rank)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(8)
    ]  # fmt: skip
    for job in jobs:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
    for job in jobs:
        assert job.stdin is not None
        job.stdin.write("\n")
        job.stdin.flush()
    found = [job.communicate(timeout=60)[0].split() for job in jobs]
    assert len({name for name, *_ in found}) == 1
    assert sorted(int(x) for _, *rest in found for x in rest) == list(range(trials_of(repeats=2).size))
    assert [path.name for path in folder.plans.iterdir()] == [f"{found[0][0]}.npz"]


def test_a_plan_stays_what_it_was_whatever_finishes(folder: RunFolder) -> None:
    trials = trials_of()
    first = Rank(trials, folder, 0, 4)
    path = folder.plans / f"{first.plan.name}.npz"
    content = path.read_bytes()
    first.finish()
    second = Rank(trials, folder, 1, 4)
    assert second.plan.name == first.plan.name
    assert path.read_bytes() == content
    assert len(second.plan.finished) == 0
    second.leave()


def test_a_damaged_plan_is_reported(folder: RunFolder) -> None:
    trials = trials_of()
    plan = Plan.fixed(trials, load(folder), 2)
    (folder.plans / f"{plan.name}.npz").write_bytes(b"torn")
    with pytest.raises(RunError, match=r"npz: can't be read; remove it while no job runs on this folder"):
        Plan.fixed(trials, load(folder), 2)


def test_a_folder_of_an_earlier_version_has_room_for_plans(folder: RunFolder) -> None:
    folder.plans.rmdir()
    assert Plan.fixed(trials_of(), load(folder), 2).left == 72


def test_another_number_of_ranks_is_dealt_what_is_left(folder: RunFolder) -> None:
    trials = trials_of()
    ran = Rank(trials, folder, 0, 4).finish()
    assert len(ran) < 36
    again = [Rank(trials, folder, rank, 2).finish() for rank in range(2)]
    assert sorted(positions(ran) + positions(again[0]) + positions(again[1])) == list(range(72))
    assert abs(len(again[0]) - len(again[1])) <= 12


def test_a_record_of_other_data_does_not_finish_a_trial(folder: RunFolder) -> None:
    trials = trials_of()
    journal = Journal(folder, "before")
    for position, key in ((0, trials[0].key), (1, "0" * 32)):
        journal.finished({**record_of(trials, trials[position], "done"), "key": key}, [])
    journal.close()
    assert finished_positions(trials, load(folder)).tolist() == [0]


def test_an_extended_study_is_planned_anew(folder: RunFolder) -> None:
    trials = trials_of({"epochs": [1, 2], "lr": [0.1, 0.2]})
    folder.keep_edition(trials.study.digest(), trials.study.edition([], {}))
    for rank in range(2):
        Rank(trials, folder, rank, 2).finish()
    longer = trials_of({"epochs": [1, 2, 3], "lr": [0.1, 0.2]})
    folder.keep_edition(longer.study.digest(), longer.study.edition([], {}))
    ran = [trial for rank in range(2) for trial in Rank(longer, folder, rank, 2).finish()]
    assert sorted(positions(ran)) == [4, 5]
    assert load(folder).counts() == {"done": 6, "pruned": 0, "stopped": 0, "failed": 0}


def test_a_whole_job_is_dealt_anew_only_once_no_rank_of_the_last_one_lives(folder: RunFolder) -> None:
    trials = trials_of()
    first = Rank(trials, folder, 0, 3)
    for _ in range(5):
        assert first.step()
    assert Rank(trials, folder, 1, 3, whole_job=True).plan.name == first.plan.name  # rank 0 lives
    first.leave()
    lone = Rank(trials, folder, 0, 3)  # started again alone, it goes on with its share
    assert lone.plan.name == first.plan.name
    lone.leave()
    whole = [Rank(trials, folder, rank, 3, whole_job=rank == 0) for rank in range(3)]
    assert {rank.plan.name for rank in whole} == {first.plan.name[:-1] + "1"}
    assert len(whole[0].plan.finished) == 5
    assert sorted(positions(first.ran) + [p for rank in whole for p in positions(rank.finish())]) == list(range(72))


def test_a_whole_job_that_finds_nothing_new_takes_the_plan_there_is(folder: RunFolder) -> None:
    trials = trials_of()
    names = {Plan.fixed(trials, load(folder), 3, whole_job=True).name for _ in range(3)}
    assert len(names) == 1


# Ranks at work.


def test_sixteen_ranks_complete_a_study_and_each_trial_counts_once(folder: RunFolder) -> None:
    trials = trials_of(repeats=2)
    ranks = [Rank(trials, folder, rank, 16) for rank in range(16)]
    while any(rank.step() for rank in ranks):
        pass
    assert all(rank.schedule.over for rank in ranks)
    assert ranks[0].schedule.left_to_others() == 0
    for rank in ranks:
        rank.leave()
    results = load(folder)
    assert results.counts() == {"done": 144, "pruned": 0, "stopped": 0, "failed": 0}
    assert results.duplicates == 0
    assert sorted(results.items("trial")) == list(range(144))


def test_what_other_ranks_have_not_done_is_told_and_not_touched(folder: RunFolder) -> None:
    trials = trials_of()
    one, other = Rank(trials, folder, 0, 2), Rank(trials, folder, 1, 2)
    other.step()
    ran = one.finish()
    assert one.schedule.left_to_others() == 72 - len(ran) - 1
    assert one.schedule.next() is None
    assert one.schedule.over
    assert [record["trial"] for record in one.schedule.elsewhere] == positions(other.ran)
    other.leave()


def test_a_rank_that_watches_hears_what_the_others_finish(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.schedule.synchronous.LOOK_AGAIN_S", 0.0)
    trials = trials_of()
    one, other = Rank(trials, folder, 0, 2, watches=True), Rank(trials, folder, 1, 2)
    assert one.step()
    while other.step():
        pass
    one.step()
    assert [record["trial"] for record in one.schedule.elsewhere] == positions(other.ran)
    assert len(other.schedule.elsewhere) == 1  # of what had ended when it began
    one.leave()
    other.leave()


def test_a_failed_trial_is_tried_again_by_the_same_rank_while_it_has_tries(folder: RunFolder) -> None:
    trials = trials_of({"epochs": [1, 2, 4]}, retries=1)
    rank = Rank(trials, folder, 0, 1)
    tried = [rank.step("failed") for _ in range(6)]
    assert [(t.config["epochs"], t.attempt) for t in tried if t] == [(4, 1), (4, 2), (2, 1), (2, 2), (1, 1), (1, 2)]
    assert rank.step() is None
    rank.leave()
    assert Rank(trials, folder, 0, 1).finish() == []
    again = Rank(trials, folder, 0, 1, retry_failed=True).finish()
    assert [(t.config["epochs"], t.attempt) for t in again] == [(4, 3), (2, 3), (1, 3)]


def test_a_trial_that_was_lost_with_its_worker_is_next(folder: RunFolder) -> None:
    rank = Rank(trials_of(), folder, 0, 2)
    lost = rank.schedule.next()
    assert lost is not None
    rank.schedule.take_back(lost)
    assert rank.schedule.next() == lost
    rank.leave()


def test_two_processes_of_one_rank_do_not_run_its_share_twice(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.schedule.synchronous.LOOK_AGAIN_S", 0.0)
    trials = trials_of()
    first, second = Rank(trials, folder, 1, 4), Rank(trials, folder, 1, 4)
    assert first.step()
    assert second.step() is None
    assert not second.schedule.over
    for _ in range(4):
        first.step()
    assert second.step() is None
    assert second.schedule.waiting_for_others == len(share(trials, first.plan, 1)) - 5
    first.leave()  # and now its share is free
    assert positions(first.ran + second.finish()) == share(trials, first.plan, 1).tolist()
    third = Rank(trials, folder, 1, 4)
    assert third.finish() == []


def test_who_waits_for_another_process_of_its_rank_ends_with_it(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.schedule.synchronous.LOOK_AGAIN_S", 0.0)
    trials = trials_of()
    first, second = Rank(trials, folder, 0, 4), Rank(trials, folder, 0, 4)
    while first.step():
        second.step()
    assert second.step() is None
    assert second.schedule.over
    assert second.ran == []
    first.leave()
    second.leave()


WORK = """
import sys, time
from tradewind.claims import Claims
from tradewind.journal import Journal, new_owner
from tradewind.results import Results
from tradewind.schedule.dispatch import History
from tradewind.schedule.plan import Plan
from tradewind.schedule.synchronous import Synchronous
from tradewind.schedule.trials import Trials
from tradewind.study import Study
study, folder, rank = sys.argv[1:]
trials, results, owner = Trials(Study.load(study)), Results.load(folder), new_owner()
plan = Plan.fixed(trials, results, 4)
claims, journal = Claims(results.folder, plan.name, owner), Journal(results.folder, owner)
schedule = Synchronous(trials, plan, int(rank), claims, History(results, owner), False)
while not schedule.over:
    if trial := schedule.next():
        print(trial.trial, flush=True)
        start = time.time()
        time.sleep(0.01)
        about = {"key": trial.key, "trial": trial.trial, "repeat": trial.repeat, "config": trial.config}
        about |= {"state": "done", "started": start, "finished": time.time(), "attempt": 1, "seed": trial.seed}
        about |= {"data_seed": trial.data_seed, "reason": "", "times": {}, "scores": {}, "last": {}, "error": {}}
        journal.finished(about | {"edition": trials.study.digest()}, [])
        for record in journal.settle():
            schedule.tell(trial, record)
journal.close()
claims.leave()
"""


@pytest.fixture
def started(folder: RunFolder, write_study: WriteStudy) -> Iterator[Start]:
    jobs: list[subprocess.Popen[str]] = []
    study = write_study(trials_of().study.plain())

    def start(rank: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORK, str(study), str(folder.path), str(rank)]
        jobs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.poll() is None:
            job.kill()
        job.communicate()


def test_a_killed_rank_that_is_started_again_goes_on_with_its_share(folder: RunFolder, started: Start) -> None:
    jobs = [started(rank) for rank in range(4)]
    assert jobs[2].stdout is not None
    begun = [int(jobs[2].stdout.readline()) for _ in range(4)]
    os.kill(jobs[2].pid, signal.SIGKILL)
    begun += map(int, jobs[2].communicate(timeout=30)[0].split())
    others = [list(map(int, jobs[rank].communicate(timeout=60)[0].split())) for rank in (0, 1, 3)]
    assert [jobs[rank].returncode for rank in (0, 1, 3)] == [0, 0, 0]
    before = load(folder).counts()["done"]
    assert before < 72
    job = started(2)
    again = list(map(int, job.communicate(timeout=60)[0].split()))
    assert job.returncode == 0
    assert len(again) == 72 - before
    assert set(begun) | set(again) | {position for ran in others for position in ran} == set(range(72))
    assert len(set(begun) & set(again)) <= 1  # what was in flight
    assert not {position for ran in others for position in ran} & set(again)
    results = load(folder)
    assert results.counts() == {"done": 72, "pruned": 0, "stopped": 0, "failed": 0}
    assert results.duplicates == 0
    assert len(list(folder.plans.iterdir())) == 1
