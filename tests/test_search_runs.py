"""Searches as they run: every method in both schedules, killed, resumed, shared by jobs, paused and pruned."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from conftest import WriteStudy

import tradewind
from tradewind import machine
from tradewind.claims import Claims
from tradewind.errors import StudyError
from tradewind.extension import refusal
from tradewind.folder import RunFolder
from tradewind.journal import Journal, Reading, Record, new_owner, unfinished
from tradewind.pack import Outcome, Pack, Trial
from tradewind.results import Results
from tradewind.schedule.adaptive import Adaptive
from tradewind.schedule.ledger import Ledger
from tradewind.schedule.trials import Trials
from tradewind.study import Study, schema
from tradewind.train.trainer import Trainer

# `bowl` is f(config); `slope` trains by epochs, goes on from its own folder and says what it trains; both kill
# their process once, where a file named `fuse` says so
WORK = """
import json, os, signal, time
from pathlib import Path

def count(place):
    with open(place / "called", "a") as file:
        file.write("x")
    fuse = place / "fuse"
    try:
        if (place / "called").stat().st_size < int(fuse.read_text()):
            return
        fuse.unlink()  # of several processes that get here at once, one
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

def bowl(config):
    count(Path(config["place"]))
    time.sleep(config.get("sleep_s", 0.0))
    x, y = config["x"], config.get("y") or 0.0
    return {"loss": (x - 0.3) ** 2 + (y + 0.2) ** 2, "cost_s": abs(x)}

def slope(config, trial):
    at = trial.folder / "at"
    epoch = int(at.read_text()) if at.exists() else 0
    while epoch < config["epochs"]:
        epoch += 1
        loss = (config["x"] - 0.3) ** 2 + 1.0 / epoch
        count(Path(config["place"]))
        time.sleep(config.get("sleep_s", 0.0))
        trial.report(epoch, loss=loss)
        with open(Path(config["place"]) / "trained", "a") as file:
            file.write(f"{trial.number} {epoch}\\n")
        at.write_text(str(epoch))
        if trial.should_stop():
            break
    return {"loss": loss}
"""
RANGES = {"x": {"low": -1.0, "high": 1.0}, "y": {"low": -1.0, "high": 1.0}}
LISTED = {"x": [-0.9, -0.5, 0.0, 0.25], "y": [-1.0, -0.3, 0.7]}
ASHA = {"method": "random", "halving": "asha", "trials": 11, "metric": "loss"}
SCHEDULES: dict[str, dict[str, Any]] = {
    "dispatch": {"schedule": "dispatch"},
    "synchronous": {"schedule": "synchronous", "rank": 0, "of": 1},
}

Write = Callable[..., Study]
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def modules_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next test has a module of the same name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def study(tmp_path: Path, write_study: WriteStudy) -> Write:
    def write(search: dict[str, Any], function: str = "bowl", space: Any = RANGES, **fields: Any) -> Study:
        fixed = {"place": str(tmp_path), **({"epochs": 9} if function == "slope" else {}), **fields.pop("fixed", {})}
        space = {"x": RANGES["x"]} if function == "slope" and space is RANGES else space
        content = {"name": "s", "workload": f"work:{function}", "space": space, "fixed": fixed, "search": search}
        return Study.load(write_study({**content, **fields}, WORK))

    return write


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`start("dispatch", "out")`: a job of its own on the study that was written last."""

    def call(schedule: str, out: str, **options: Any) -> subprocess.Popen[bytes]:
        how = {**SCHEDULES[schedule], "engine": "serial", **options}
        code = f"import tradewind; tradewind.run(tradewind.Study.load('study.json'), {out!r}, **{how!r})"
        return subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.DEVNULL)

    return call


def serial(study: Study, out: Path, schedule: str = "dispatch", **options: Any) -> Results:
    return tradewind.run(study, out, engine="serial", **SCHEDULES[schedule], **options)


def tried(results: Results) -> list[tuple[int, float, float]]:
    """What was tried, by number."""
    return [(r["trial"], r["config"]["x"], r["config"].get("y", 0.0)) for r in results.records()]


def lines(out: Path, kind: str) -> list[Record]:
    found = [line for path in sorted((out / "journal").glob("*.jsonl")) for _, line in Reading(path).lines()]
    return [line for line in found if line["kind"] == kind]


def trained(folder: Path) -> Counter[str]:
    """How often each epoch of each trial was trained."""
    return Counter((folder / "trained").read_text().splitlines())


@pytest.mark.parametrize("method", ["grid", "random", "sobol", "tpe", "gp", "cmaes", "nsga2"])
def test_every_method_gives_its_trials_in_both_schedules_and_the_same_with_one_worker(
    method: str, study: Write, tmp_path: Path
) -> None:
    search = {"method": method, "metric": "loss", **({} if method == "grid" else {"trials": 12})}
    this = study(search, space=LISTED if method == "grid" else RANGES)
    one, other = (serial(this, tmp_path / name, name) for name in SCHEDULES)
    assert one.counts() == {"done": 12, "pruned": 0, "stopped": 0, "failed": 0}
    assert len(set(one.keys())) == 12
    assert tried(one) == tried(other)
    assert (tmp_path / "called").stat().st_size == 24
    assert Trials(this).count() == (12, True)


@pytest.mark.parametrize(
    ("method", "halving"), [("grid", "asha"), ("sobol", "hyperband"), ("tpe", "asha"), ("gp", "hyperband")]
)
def test_halving_stands_on_any_method_in_both_schedules(
    method: str, halving: str, study: Write, tmp_path: Path
) -> None:
    grid = method == "grid"
    search = {"method": method, "halving": halving, "metric": "loss", **({} if grid else {"trials": 11})}
    space = {"x": [k / 10 - 0.5 for k in range(11)]} if grid else RANGES
    this = study(search, "slope", space)
    one, other = (serial(this, tmp_path / name, name) for name in SCHEDULES)
    assert len(one) == 11
    assert tried(one) == tried(other)
    assert [r["state"] for r in one.records()] == [r["state"] for r in other.records()]
    assert set(trained(tmp_path).values()) == {2}  # once in each run


def test_what_is_pruned_has_its_whole_record_and_nothing_is_trained_twice(study: Write, tmp_path: Path) -> None:
    this = study(ASHA, "slope", fixed={"sleep_s": 0.001})
    results = serial(this, tmp_path / "run")
    records = list(results.records())
    assert len(records) == 11
    assert {r["state"] for r in records} == {"done", "pruned"}
    assert sum(r["epochs_run"] for r in records) == sum(trained(tmp_path).values())
    assert set(trained(tmp_path).values()) == {1}
    for record in records:
        epochs = record["epochs_run"]
        if record["state"] == "pruned":
            assert record["reason"] == f"pruned after epoch {epochs}"
            assert epochs in (1, 3)
        else:
            assert epochs == 9
        curve = results.curve(record["key"])
        assert [row["epoch"] for row in curve] == list(range(1, epochs + 1))
        assert [row["elapsed_s"] for row in curve] == sorted(row["elapsed_s"] for row in curve)
        assert record["last"]["loss"] == pytest.approx((record["config"]["x"] - 0.3) ** 2 + 1 / epochs)
        assert 0.001 * epochs < record["times"]["train_s"] == record["times"]["wall_s"]
    rungs = [line for line in lines(tmp_path / "run", "epoch") if "rung" in line]
    assert len([line for line in rungs if line["epoch"] == 1]) == 11
    assert all(not unfinished(path) for path in (tmp_path / "run" / "journal").glob("*.jsonl"))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("search", [{"method": "tpe", "trials": 14, "metric": "loss"}, ASHA], ids=["tpe", "asha"])
def test_a_killed_search_goes_on_as_one_that_was_not(
    search: dict[str, Any], schedule: str, study: Write, start: Start, tmp_path: Path
) -> None:
    function = "slope" if "halving" in search else "bowl"
    this = study(search, function)
    undisturbed = serial(this, tmp_path / "whole", schedule)
    (tmp_path / "called").unlink()
    (tmp_path / "trained").unlink(missing_ok=True)
    for fuse in (7, 13):
        (tmp_path / "fuse").write_text(str(fuse))
        assert start(schedule, "run").wait() == -9
    results = serial(this, tmp_path / "run", schedule)
    assert tried(results) == tried(undisturbed)
    assert results.duplicates == 0
    assert [r["state"] for r in results.records()] == [r["state"] for r in undisturbed.records()]
    asked = Counter((line["number"], line["until"]) for line in lines(tmp_path / "run", "asked"))
    assert set(asked.values()) == {1}
    if function == "slope":
        assert max(trained(tmp_path).values()) == 1  # each kill came before its epoch was kept
        assert sum(r["epochs_run"] for r in results.records()) == sum(trained(tmp_path).values())


@pytest.mark.parametrize("search", [{"method": "tpe", "trials": 16, "metric": "loss"}, ASHA], ids=["tpe", "asha"])
def test_two_jobs_search_in_one_folder_and_share_the_work(
    search: dict[str, Any], study: Write, start: Start, tmp_path: Path
) -> None:
    function = "slope" if "halving" in search else "bowl"
    study(search, function, fixed={"sleep_s": 0.02})
    jobs = [start("dispatch", "run") for _ in range(2)]
    assert [job.wait() for job in jobs] == [0, 0]
    results = Results.load(tmp_path / "run")
    assert [r["trial"] for r in results.records()] == list(range(search["trials"]))
    assert results.duplicates == 0
    if function == "slope":
        assert set(trained(tmp_path).values()) == {1}
        assert sum(r["epochs_run"] for r in results.records()) == sum(trained(tmp_path).values())
    else:
        assert (tmp_path / "called").stat().st_size == 16


def test_ranks_make_the_same_generations_and_the_members_of_a_dead_one_are_claimed(
    study: Write, start: Start, tmp_path: Path
) -> None:
    this = study({"method": "tpe", "trials": 13, "metric": "loss"}, fixed={"sleep_s": 0.02})
    whole = [start("synchronous", "whole", rank=rank, of=3) for rank in range(3)]
    assert [job.wait() for job in whole] == [0, 0, 0]
    (tmp_path / "called").unlink()
    (tmp_path / "fuse").write_text("5")
    ranks = [start("synchronous", "run", rank=rank, of=3) for rank in range(3)]
    assert sorted(job.wait() for job in ranks) == [-9, 0, 0]
    results = Results.load(tmp_path / "run")
    assert results.counts() == {"done": 13, "pruned": 0, "stopped": 0, "failed": 0}
    assert tried(results) == tried(Results.load(tmp_path / "whole"))
    assert results.duplicates == 0
    assert (tmp_path / "called").stat().st_size == 14  # one was killed and tried again
    assert len(serial(this, tmp_path / "run")) == 13  # nothing is left for the other schedule


class Job:
    """A job on a folder, as far as its schedule goes."""

    def __init__(self, study: Study, folder: RunFolder) -> None:
        trials, self.journal = Trials(study), Journal(folder, new_owner())
        self.claims = Claims(folder, study.digest(), self.journal.owner)
        ledger = Ledger(trials, folder, self.journal.owner)
        self.schedule = Adaptive(trials, self.claims, ledger, self.journal, workers=1, retry_failed=False)

    def next(self) -> Trial | None:
        """A trial, after a look at what the others have written."""
        self.journal.settle()
        self.schedule._next_look = 0.0
        return self.schedule.next()

    def end(self, trial: Trial, loss: float) -> None:
        """Record a trial."""
        about = {"key": trial.key, "trial": trial.trial, "state": "done", "config": trial.config, "reason": ""}
        record = {**about, "times": {}, "scores": {"loss": loss}, "last": {}, "attempt": 1, "finished": time.time()}
        self.journal.finished(record, [])
        assert self.journal.settle() == [record]
        self.schedule.tell(trial, record)


def test_a_number_belongs_to_one_job_and_passes_to_another_with_its_values(study: Write, tmp_path: Path) -> None:
    this = study({"method": "tpe", "trials": 4, "metric": "loss", "options": {"startup": 2}})
    folder = RunFolder.create(tmp_path / "run")
    one, other = Job(this, folder), Job(this, folder)
    first = one.next()
    assert first is not None
    assert one.next() is None  # its worker is busy
    second = other.next()
    assert second is not None
    assert (first.trial, second.trial) == (0, 1)
    assert first.config != second.config
    assert other.schedule.waiting_for_others == 1
    other.end(second, 0.5)
    third = other.next()
    assert third is not None
    assert third.trial == 2
    one.claims.leave()  # it is gone, its trial is not ended
    other.end(third, 0.25)
    again = other.next()
    assert again is not None
    assert (again.trial, again.config) == (0, first.config)
    other.end(again, 0.75)
    last = other.next()
    assert last is not None
    assert last.trial == 3
    other.end(last, 0.1)
    assert other.next() is None
    assert other.schedule.over
    late = Job(this, folder)
    assert late.next() is None
    assert late.schedule.over
    assert sorted(line["number"] for line in lines(folder.path, "asked")) == [0, 1, 2, 3]
    for job in (one, other, late):
        job.journal.close()


@pytest.mark.parametrize("method", ["tpe", "random"])
def test_more_trials_go_on_where_the_search_stopped_and_less_is_refused(
    method: str, study: Write, tmp_path: Path
) -> None:
    search = {"method": method, "metric": "loss"}
    first = serial(study({**search, "trials": 6}), tmp_path / "run")
    before = tried(first)
    more = serial(study({**search, "trials": 15}), tmp_path / "run")
    assert tried(more)[:6] == before
    assert len(more) == 15
    assert tried(more) == tried(serial(study({**search, "trials": 15}), tmp_path / "at once"))
    for change, why in (
        ({"trials": 5}, "search.trials was 15, is now 5; allowed: more"),
        ({"method": "gp", "trials": 15}, "search was"),
    ):
        new = study({**search, **change})
        assert why in refusal(study({**search, "trials": 15}), new, {})
        with pytest.raises(StudyError, match="holds another study: search"):
            serial(new, tmp_path / "run")
    wider = study({**search, "trials": 15}, space={**RANGES, "x": {"low": -2.0, "high": 1.0}})
    with pytest.raises(StudyError, match=r"space was .* which only a plain grid may"):
        serial(wider, tmp_path / "run")


def test_a_search_begun_by_one_schedule_is_ended_by_the_other(study: Write, start: Start, tmp_path: Path) -> None:
    this = study(ASHA, "slope")
    (tmp_path / "fuse").write_text("9")
    assert start("dispatch", "run").wait() == -9
    results = serial(this, tmp_path / "run", "synchronous")
    assert [r["trial"] for r in results.records()] == list(range(11))
    assert max(trained(tmp_path).values()) == 1


def test_a_choice_brings_its_own_hyperparameters(study: Write, tmp_path: Path) -> None:
    kinds = ["plain", {"value": "bent", "space": {"y": {"low": -1.0, "high": 1.0}}}]
    this = study({"method": "tpe", "trials": 12, "metric": "loss"}, space={"x": RANGES["x"], "kind": kinds})
    records = list(serial(this, tmp_path / "run").records())
    assert len(records) == 12
    assert {r["config"]["kind"] for r in records} == {"plain", "bent"}
    assert all((r["config"]["y"] is None) == (r["config"]["kind"] == "plain") for r in records)
    listed = ["plain", {"value": "bent", "space": {"y": [0.1, 0.2, 0.3]}}]
    grid = study({"method": "grid", "metric": "loss"}, space={"x": [0.0, 0.5], "kind": listed})
    assert Trials(grid).count() == (8, True)
    found = serial(grid, tmp_path / "grid")
    assert len(found) == 8
    assert tried(found) == tried(serial(grid, tmp_path / "grid2", "synchronous"))


def test_two_objectives_give_a_front_that_no_trial_beats(study: Write, tmp_path: Path) -> None:
    both = {"method": "nsga2", "trials": 24, "metric": ["loss", "cost_s"], "options": {"population": 8}}
    results = serial(study(both), tmp_path / "run")
    points = [(r["scores"]["loss"], r["scores"]["cost_s"]) for r in results.records()]
    front = [p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)]
    assert len(points) == 24
    assert len(front) >= 3
    assert results.objective() == ("loss", True)


def test_a_search_ends_at_its_target_when_it_stands_still_or_when_its_epochs_are_spent(
    study: Write, tmp_path: Path
) -> None:
    base = {"method": "random", "trials": 60, "metric": "loss"}
    target = serial(study({**base, "target": 0.1}), tmp_path / "target")
    losses = [r["scores"]["loss"] for r in target.records()]
    assert min(losses) <= 0.1
    assert min(losses[:-1]) > 0.1
    patience = serial(study({**base, "patience": 5}), tmp_path / "patience")
    losses = [r["scores"]["loss"] for r in patience.records()]
    assert losses.index(min(losses)) == len(losses) - 6
    repeated = serial(study({**base, "epochs": 20}, "slope", repeats=4, fixed={"epochs": 5}), tmp_path / "repeated")
    assert sum(r["epochs_run"] for r in repeated.records()) == 20
    spent = serial(study({**base, "epochs": 30}, "slope"), tmp_path / "epochs")
    assert len(spent) == 4  # of 9 epochs each
    assert Trials(study({**base, "epochs": 30}, "slope")).count() == (60, False)


def test_repeats_of_a_config_are_one_result_for_the_search(study: Write, tmp_path: Path) -> None:
    this = study({**ASHA, "trials": 6}, "slope", repeats=2)
    one, other = (serial(this, tmp_path / name, name) for name in SCHEDULES)
    assert [r["trial"] for r in one.records()] == list(range(12))
    assert tried(one) == tried(other)
    epochs = [r["epochs_run"] for r in one.records()]
    assert epochs[::2] == epochs[1::2]


def test_a_failed_trial_counts_and_is_tried_again_where_it_may_be(study: Write, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "def f(config):\n    if config['x'] > 0:\n        raise ValueError\n    return 1.0\n"
    )
    this = study({"method": "tpe", "trials": 8}, workload="bad:f", retries=1)
    results = serial(this, tmp_path / "run")
    assert len(results) == 8
    assert 0 < results.counts()["failed"] < 8
    assert {r["attempt"] for r in results.records() if r["state"] == "failed"} == {2}
    assert len(serial(this, tmp_path / "run", retry_failed=True)) == 8


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"search": {"method": "tpa"}}, "search.method: found 'tpa'; did you mean 'tpe'?"),
        ({"search": {"method": "tpe"}}, "search.trials: is missing; tpe has no end of its own"),
        ({"search": {"method": "tpe", "trials": 4, "options": {"startupp": 3}}}, "did you mean 'startup'?"),
        ({"search": {"method": "grid", "trials": 4}}, "search: a grid tries all of its space"),
        ({"search": {"trails": 4}}, "search.trails: unknown key; did you mean 'trials'?"),
        ({"search": {"method": "nsga2", "trials": 9, "metric": ["a", "b"], "direction": "minimize"}}, "two metrics"),
        ({"search": {**ASHA, "eta": 1}}, "search.eta: found 1"),
        ({"search": ASHA, "command": "true {config}", "workload": ""}, "a command can't be paused"),
        ({"search": ASHA, "fixed": {"epochs": 9}}, "work:bowl can't be paused; write f(config, trial)"),
        ({"space": {"x": [{"value": 1, "space": {"y": []}}]}}, "space.x: 1.y: found an empty list"),
    ],
)
def test_a_search_that_can_not_be_is_refused_in_one_line(fields: dict[str, Any], why: str, study: Write) -> None:
    with pytest.raises(StudyError) as error:
        Trials(
            study({"method": "random", "trials": 3}, **fields) if "search" not in fields else _written(study, fields)
        )
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def _written(study: Write, fields: dict[str, Any]) -> Study:
    rest = {name: value for name, value in fields.items() if name != "search"}
    return study(fields["search"], **rest)


def test_a_metric_that_no_trial_has_is_named_with_the_nearest_one(study: Write, tmp_path: Path) -> None:
    this = study({"method": "tpe", "trials": 4, "metric": "lost", "direction": "minimize"})
    with pytest.raises(StudyError, match=r"search.metric: trial 0 has no 'lost'; did you mean 'loss'\?"):
        serial(this, tmp_path / "run")


def test_the_schema_names_every_method() -> None:
    methods = schema()["$defs"]["Search"]["properties"]["method"]["enum"]
    assert methods == ["grid", "random", "sobol", "tpe", "gp", "cmaes", "nsga2"]


STORMS = {"train": 24, "validation": 16, "test": 16}
SMALL = {"filters": [2, 3], "kernel": 3, "batch_size": 8, "precision": "fp64", "epochs": 4, "device": "cpu"}


@pytest.fixture
def packs_always_pay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Networks this small, on a busy machine, would be packed or not by chance."""
    import torch

    from tradewind.train import profile

    monkeypatch.setattr(profile, "PAYS", math.inf)
    monkeypatch.setattr(machine, "cores", lambda: 1)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def storms(search: dict[str, Any]) -> Study:
    space: dict[str, Any] = {"learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}
    return Study(name="storms", workload="storm", data=STORMS, space=space, fixed=SMALL, search=search)


@pytest.mark.usefixtures("packs_always_pay")
def test_paused_networks_go_on_in_packs_and_end_as_if_never_paused(tmp_path: Path) -> None:
    search = {"method": "sobol", "halving": "asha", "eta": 2, "trials": 16, "metric": "validation_loss"}
    results = serial(storms(search), tmp_path / "halved")
    plain = serial(storms({"method": "sobol", "trials": 16, "metric": "validation_loss"}), tmp_path / "plain")
    assert len(results) == len(plain) == 16
    assert results.counts()["pruned"] > 8
    assert results.counts()["done"] >= 1
    assert max(r["packed_with"] for r in results.records()) > 0
    whole = {r["key"]: plain.curve(r["key"]) for r in plain.records()}
    for record in results.records():
        curve = results.curve(record["key"])
        assert len(curve) == record["epochs_run"] == len(record["times"]["epoch_s"]) == len(record["learning_rates"])
        times = record["times"]
        assert times["train_s"] == pytest.approx(sum(times["epoch_s"]))
        assert times["wall_s"] == pytest.approx(times["data_s"] + times["train_s"] + times["test_s"])
        assert [r["train_loss"] for r in curve] == pytest.approx(
            [r["train_loss"] for r in whole[record["key"]][: len(curve)]], rel=1e-9
        )
        assert bool(record["scores"]) == (record["state"] == "done")
    assert not any(RunFolder(tmp_path / "halved").checkpoints.iterdir())


@pytest.mark.usefixtures("packs_always_pay")
@pytest.mark.parametrize("together", [1, 3])
def test_a_network_that_is_paused_by_one_worker_goes_on_in_another(together: int, tmp_path: Path) -> None:
    trials = Trials(storms({"method": "sobol", "trials": 3, "metric": "validation_loss"}))
    pack = [trials[k] for k in range(together)]

    def fit(run: str, until: int | None) -> list[Outcome]:
        task = trials.task(str(RunFolder.create(tmp_path / run).path), threads=1)
        return Trainer(task).fit(Pack(tuple(replace(trial, until=until) for trial in pack)), lambda *_: None)

    straight = fit("straight", None)
    for until in (1, 3):
        for outcome in fit("halted", until):
            assert (outcome.state, outcome.reason) == ("paused", f"paused after epoch {until}")
            assert outcome.facts["epochs_run"] == len(outcome.curve) == until
            assert not outcome.scores
    kept = {path.stem for path in RunFolder(tmp_path / "halted").checkpoints.iterdir()}
    assert kept == {trial.key for trial in pack}
    assert [outcome.state for outcome in fit("halted", 2)] == [
        "paused"
    ] * together  # it is past that, and does nothing
    ended = {outcome.key: outcome for outcome in fit("halted", None)}
    for before in straight:
        after = ended[before.key]
        assert after.state == "done"
        assert after.facts["resumed_at_epoch"] == 3
        assert after.scores == pytest.approx(before.scores, rel=1e-12)
        assert [row["validation_loss"] for row in after.curve] == pytest.approx(
            [row["validation_loss"] for row in before.curve], rel=1e-12
        )
        assert len(after.times["epoch_s"]) == 4


def test_status_tells_how_many_trials_a_search_has(study: Write, command: Any, tmp_path: Path) -> None:
    serial(study({"method": "tpe", "trials": 7, "metric": "loss"}), tmp_path / "run")
    found = json.loads(command("status", tmp_path / "run", "--json").stdout)
    assert (found["trials"], found["exact"], found["done"], found["left"], found["running"]) == (7, True, 7, 0, 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_search_with_halving_ends_with_an_answer_within_its_budget(
    schedule: str, study: Write, tmp_path: Path
) -> None:
    few = {"method": "tpe", "halving": "asha", "trials": 5, "metric": "loss", "eta": 4, "min_epochs": 2}
    results = serial(study(few, "slope", repeats=2), tmp_path / "few", schedule)
    assert results.counts() == {"done": 2, "pruned": 8, "stopped": 0, "failed": 0}
    pruned = [r["last"]["loss"] for r in results.records() if r["state"] == "pruned"]
    assert min(pruned) > results.best().value
    budget = {**few, "trials": 20, "epochs": 24}
    results = serial(study(budget, "slope", repeats=2), tmp_path / "budget", schedule)
    assert results.counts() == {"done": 2, "pruned": 2, "stopped": 0, "failed": 0}
    assert sum(r["epochs_run"] for r in results.records()) == 22  # another config would take 4


@pytest.mark.parametrize("method", ["tpe", "random"])
def test_a_function_that_reports_no_epochs_is_refused_or_counts_as_its_epochs(
    method: str, study: Write, tmp_path: Path
) -> None:
    search = {"method": method, "trials": 60, "metric": "loss", "epochs": 20}
    with pytest.raises(
        StudyError, match=r"search.epochs: work:bowl can't report its epochs; write f\(config, trial\)"
    ):
        serial(study(search), tmp_path / "refused")
    results = serial(study(search, fixed={"epochs": 5}), tmp_path / "counted")
    assert len(results) == 4
    (tmp_path / "mute.py").write_text("def f(config, trial):\n    return {'loss': config['x']}\n")
    with pytest.raises(StudyError, match=r"search.epochs: trial 0 reported no epochs, so there is nothing to count"):
        serial(study(search, workload="mute:f"), tmp_path / "mute")


def test_failures_do_not_go_on_for_ever_on_a_budget_of_epochs(study: Write, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(config, trial):\n    raise ValueError\n")
    results = serial(study({"method": "tpe", "epochs": 3, "metric": "loss"}, workload="bad:f"), tmp_path / "run")
    assert results.counts()["failed"] == 3


@pytest.mark.parametrize("method", ["tpe", "random", "sobol"])
def test_a_search_that_ends_before_its_trials_says_why(
    method: str, study: Write, command: Any, tmp_path: Path
) -> None:
    search = {"method": method, "trials": 12, "metric": "loss"}
    study(search, space={"x": {"low": 0, "high": 1}})
    checked = command("check", "study.json").stdout
    assert "  space      x 0–1 (2 values) = 2 combinations\n" in checked
    assert "  x          whole numbers; write 0.0 for a real range\n" in checked
    ended = command("run", "study.json", "--engine", "serial", "--quiet")
    assert ended.stderr == "s: 2 of 12 configs were tried: the space has no more than 2 configs\n"
    study({**search, "target": 5.0}, space={"x": {"low": 0.0, "high": 1.0}})
    assert "values" not in command("check", "study.json").stdout
    ended = command("run", "study.json", "--engine", "serial", "--out", "target", "--quiet")
    assert ended.stderr == "s: 1 of 12 configs were tried: search.target is reached\n"


def test_halving_on_a_metric_that_networks_have_only_at_their_end_is_refused_by_check(
    write_study: WriteStudy, command: Any
) -> None:
    search = {"method": "random", "trials": 3, "halving": "asha", "metric": "accuracy"}
    write_study({"name": "s", "workload": "digits", "space": {"batch_size": [16, 32]}, "search": search})
    refused = command("check", "study.json")
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "tradewind: search.metric: 'accuracy' is measured at a trial's end, and halving compares after some epochs; "
        "take one of the training or validation data, such as validation_accuracy"
    ]
    allowed = command("check", "study.json", "--set", "search.metric=validation_accuracy")
    assert (allowed.returncode, allowed.stderr) == (0, "")


def test_a_function_that_does_not_report_what_halving_compares_is_told_where(study: Write, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"trial 0 has no 'lost' after epoch 1, where halving compares; did"):
        serial(study({**ASHA, "metric": "lost", "direction": "minimize"}, "slope"), tmp_path / "run")


def test_the_sampler_and_its_version_are_recorded_and_a_change_is_said(
    study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Optuna 5.0 proposes other trials than 4.x did, from the same seed."""
    first = study({"method": "tpe", "trials": 2, "metric": "loss"})
    tradewind.run(first, tmp_path / "run", engine="serial")
    kept = json.loads((tmp_path / "run" / "edition.json").read_text())
    assert kept["sampler"] == f"the tpe of optuna {version('optuna')}"
    (tmp_path / "run" / "edition.json").write_text(json.dumps({**kept, "sampler": "the tpe of optuna 4.9.0"}))
    tradewind.run(study({"method": "tpe", "trials": 3, "metric": "loss"}), tmp_path / "run", engine="serial")
    assert "proposed by the tpe of optuna 4.9.0, now the tpe of optuna" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "edition.json").read_text())["sampler"] == kept["sampler"]
    tradewind.run(study({"method": "tpe", "trials": 3, "metric": "loss"}), tmp_path / "run", engine="serial")
    assert "optuna" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "schedule"),
    [("tpe", "dispatch"), ("tpe", "synchronous"), ("random", "dispatch"), ("cmaes", "dispatch")],
)
def test_more_repeats_of_a_search_run_only_what_is_new(
    method: str, schedule: str, study: Write, tmp_path: Path
) -> None:
    search = {"method": method, "trials": 4, "metric": "loss"}
    once = tried(serial(study(search), tmp_path / "run"))
    results = serial(study(search, repeats=3), tmp_path / "run", schedule)
    assert (tmp_path / "called").stat().st_size == 12
    assert tried(results) == sorted((3 * trial + repeat, x, y) for trial, x, y in once for repeat in range(3))
    assert [(r["trial"], r["repeat"], r["seed"]) for r in results.records()] == [(k, k % 3, k % 3) for k in range(12)]
    assert results.duplicates == 0
    with pytest.raises(StudyError, match="repeats was 3, is now 2; allowed: more"):
        serial(study(search, repeats=2), tmp_path / "run")


HOUSE = "house, step (d): results outside the study as it stands are kept and shown apart"


@pytest.mark.xfail(strict=True, raises=StudyError, reason=HOUSE)
def test_a_range_may_be_narrowed_and_what_lies_outside_is_no_trial_of_the_study(study: Write, tmp_path: Path) -> None:
    search = {"method": "tpe", "trials": 8, "metric": "loss"}
    wide = serial(study(search), tmp_path / "run")
    narrow = {**RANGES, "x": {"low": 0.0, "high": 0.5}}
    inside = [x for _, x, _ in tried(wide) if 0.0 <= x <= 0.5]
    results = serial(study(search, space=narrow), tmp_path / "run")
    assert results.counts()["done"] == 8
    assert all(0.0 <= x <= 0.5 for _, x, _ in tried(results))
    assert {x for _, x, _ in tried(results)} >= set(inside)
    assert (tmp_path / "called").stat().st_size == 16 - len(inside)


@pytest.mark.xfail(strict=True, raises=StudyError, reason=HOUSE)
def test_values_of_a_grid_may_be_taken_away_and_their_results_are_not_counted(study: Write, tmp_path: Path) -> None:
    serial(study({}, space={"x": [0.1, 0.2, 0.3]}, repeats=2), tmp_path / "run")
    results = serial(study({}, space={"x": [0.2, 0.4]}), tmp_path / "run")
    assert [(r["config"]["x"], r["repeat"]) for r in results.records()] == [(0.2, 0), (0.4, 0)]
    assert results.counts()["done"] == 2
    assert (tmp_path / "called").stat().st_size == 7
