"""Which trials are put into one pack, and what a run makes of packs: nothing lost, nothing twice, no false times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import tradewind
from tradewind import machine
from tradewind.claims import Claims
from tradewind.folder import RunFolder
from tradewind.pack import Pack, Trial, network_of
from tradewind.schedule.dispatch import Dispatch, History
from tradewind.schedule.packing import KINDS, LARGEST, LOOK_AHEAD, Packing
from tradewind.schedule.plan import fixed_order
from tradewind.schedule.trials import Trials
from tradewind.study import Study

TRADEWIND = Path(sys.executable).parent / "tradewind"

Write = Callable[..., Path]
Cli = Callable[..., subprocess.CompletedProcess[str]]


# Which trials are put together.


def storms(space: Mapping[str, Any], **study: Any) -> Trials:
    return Trials(Study(name="packing", workload="storm", space=space, **study))


def formed(trials: Trials, workers: int = 1, split: Callable[[Pack], bool] = lambda pack: False) -> list[Pack]:
    """All packs of a study in the order in which they are handed out; those that fail are split."""
    packing, left = Packing(trials, workers), iter(trials[k] for k in range(trials.size))
    found: list[Pack] = []
    while pack := packing.next(lambda: next(left, None)):
        found.append(pack)
        if split(pack):
            packing.split(pack)
    assert not packing
    assert next(left, None) is None
    return found


def positions(packs: Sequence[Pack]) -> list[list[int]]:
    return [sorted(trial.trial for trial in pack.trials) for pack in packs]


def test_rates_epochs_and_repeats_are_packed_together() -> None:
    trials = storms({"learning_rate": [0.1, 0.01], "epochs": [1, 2]}, repeats=2)
    assert positions(formed(trials)) == [[0, 1, 2, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize("name", ["learning_rate", "momentum", "beta1", "beta2", "weight_decay", "dropout",
                                  "positive_weight", "step_factor"])  # fmt: skip
def test_numbers_that_can_be_stacked_are_packed_together(name: str) -> None:
    assert positions(formed(storms({name: [0.1, 0.2, 0.3]}))) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("batch_size", [32, 64]), ("filters", [[4], [8]]), ("kernel", [3, 5]), ("optimizer", ["sgd", "adam"]),
        ("augment", ["none", "live"]), ("data_multiplier", [1, 2]), ("rotation_deg", [10.0, 20.0]),
        ("precision", ["fp32", "fp64"]), ("positive_copies", [1, 2]),
    ],
)  # fmt: skip
def test_what_can_not_be_stacked_is_never_packed(name: str, values: list[Any]) -> None:
    packs = formed(storms({"learning_rate": [0.1, 0.01], name: values}))
    assert sorted(map(len, positions(packs))) == [2, 2]
    for pack in packs:
        assert len({json.dumps(trial.config[name]) for trial in pack.trials}) == 1


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_trials_that_share_a_network_are_never_parted(workers: int) -> None:
    packs = formed(storms({"epochs": [5, 10], "batch_size": [64, 128], "learning_rate": [0.1, 0.01, 0.001]}), workers)
    networks = [{network_of(trial) for trial in pack.trials} for pack in packs]
    assert sum(map(len, networks)) == len(set.union(*networks)) == 6
    assert sum(len(pack.trials) for pack in packs) == 12


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch_sizes", [[64], [64, 128]], ids=["equal costs", "other costs"])
@pytest.mark.parametrize(("device", "epochs", "count"), [("cpu", 3, 300), ("cuda", 3, 300), ("cuda", 75, 20)])
def test_in_a_large_study_too_no_network_is_trained_twice(
    workers: int, batch_sizes: list[int], device: str, epochs: int, count: int, tmp_path: Path
) -> None:
    rates = [0.001 * k for k in range(1, count + 1)]
    space = {"epochs": list(range(1, epochs + 1)), "batch_size": batch_sizes, "learning_rate": rates}
    trials = storms(space, fixed={"device": device})
    results = tradewind.Results.load(RunFolder.create(tmp_path).path)
    claims = Claims(results.folder, trials.study.digest(), "one")
    schedule = Dispatch(trials, claims, History(results, "one"), False, fixed_order(trials, results))
    packing = Packing(trials, workers)
    packs = list(iter(lambda: packing.next(schedule.next), None))
    networks = [{network_of(trial) for trial in pack.trials} for pack in packs]
    assert sum(len(pack.trials) for pack in packs) == trials.size > LOOK_AHEAD
    assert sum(map(len, networks)) == len(set.union(*networks)) == trials.size // epochs
    batches = [trial.config["batch_size"] for pack in packs for trial in pack.trials]
    assert batches == sorted(batches)  # the dear ones first


def test_trials_on_other_data_are_never_packed() -> None:
    trials = storms({"learning_rate": [0.1, 0.01]})
    drawn = [trials[0], trials[1], *(Trial(2 + k, 0, f"k{k}", trials[k].config, 0, 1) for k in range(2))]
    packing, left = Packing(trials, 1), iter(drawn)
    found = [packing.next(lambda: next(left, None)) for _ in range(3)]
    assert [pack and [trial.data_seed for trial in pack.trials] for pack in found] == [[0, 0], [1, 1], None]


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: ("0",))


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(
    ("name", "values"), [("batch_size", [32, 64]), ("optimizer", ["sgd", "adam"]), ("data_multiplier", [1, 2])]
)
def test_on_a_gpu_kinds_that_differ_in_their_training_go_beside_each_other(name: str, values: list[Any]) -> None:
    assert positions(formed(storms({"learning_rate": [0.1, 0.01], name: values}))) == [[0, 1, 2, 3]]


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(
    ("name", "values"), [("filters", [[4], [8]]), ("kernel", [3, 5]), ("precision", ["fp32", "fp64"])]
)
def test_kinds_with_other_data_or_another_precision_never_go_beside_each_other(name: str, values: list[Any]) -> None:
    assert sorted(map(len, positions(formed(storms({"learning_rate": [0.1, 0.01], name: values}))))) == [2, 2]


@pytest.mark.usefixtures("on_a_gpu")
def test_a_pack_of_several_kinds_has_no_more_networks_or_kinds_than_pay() -> None:
    rates, sizes = [0.001 * k for k in range(1, 41)], [16, 32, 64]
    packs = formed(storms({"batch_size": sizes, "learning_rate": rates}))
    assert list(map(len, positions(packs))) == [LARGEST["cuda"], 120 - LARGEST["cuda"]]
    assert positions(packs)[0] == list(range(LARGEST["cuda"]))
    packs = formed(storms({"batch_size": list(range(1, 41))}))
    assert list(map(len, positions(packs))) == [KINDS["cuda"], KINDS["cuda"], 40 - 2 * KINDS["cuda"]]
    packs = formed(storms({"batch_size": sizes, "epochs": [1, 2]}), workers=2)
    assert sorted(map(len, positions(packs))) == [2, 4]


def test_companions_are_found_wherever_they_come_in_the_order() -> None:
    trials = storms({"learning_rate": [0.1, 0.01, 0.001], "kernel": [3, 5], "epochs": [1, 2]})
    packs = formed(trials)
    assert sorted(map(len, positions(packs))) == [6, 6]
    assert sorted(position for pack in positions(packs) for position in pack) == list(range(12))


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 5, 24, 60])
def test_a_pack_leaves_work_for_all_workers(workers: int, count: int) -> None:
    trials = storms({"learning_rate": [0.001 * k for k in range(1, count + 1)]})
    packs = formed(trials, workers)
    left = count
    for pack in packs:
        assert 1 <= len(pack.trials) <= min(LARGEST["cpu"], -(-left // workers))
        left -= len(pack.trials)
    assert len(packs) >= min(workers, count)
    assert sorted(position for pack in positions(packs) for position in pack) == list(range(count))


def test_no_pack_is_larger_than_pays() -> None:
    trials = storms({"learning_rate": [0.001 * k for k in range(1, 601)]})
    sizes = [len(pack.trials) for pack in formed(trials)]
    assert max(sizes) == LARGEST["cpu"]
    assert sum(sizes) == 600 > LOOK_AHEAD


def test_to_time_and_for_functions_trials_are_handed_out_one_by_one(tmp_path: Path, write_study: Write) -> None:
    timed = storms({"learning_rate": [0.1, 0.01]}, purpose="time")
    assert positions(formed(timed)) == [[0], [1]]
    content = {"name": "f", "workload": "work:f", "space": {"learning_rate": [0.1, 0.01]}}
    function = Trials(Study.load(write_study(content, "def f(config):\n    return 1.0\n")))
    assert positions(formed(function)) == [[0], [1]]
    command = Trials(Study(name="c", command="echo {learning_rate}", space={"learning_rate": [0.1, 0.01]}))
    assert positions(formed(command)) == [[0], [1]]


@pytest.mark.parametrize("guilty", [{3}, {0, 7}, set(range(8))], ids=["one", "two", "all"])
def test_a_pack_that_fails_is_split_until_only_the_guilty_are_left(guilty: set[int]) -> None:
    trials = storms({"learning_rate": [0.001 * k for k in range(1, 9)]})
    failed: list[list[int]] = []

    def fails(pack: Pack) -> bool:
        harmed = any(trial.trial in guilty for trial in pack.trials)
        if harmed:
            failed.extend(positions([pack]))
        return harmed and len(pack.trials) > 1

    packs = formed(trials, split=fails)
    assert sorted(pack[0] for pack in failed if len(pack) == 1) == sorted(guilty)
    ended = [place for pack in positions(packs) if len(pack) == 1 or pack not in failed for place in pack]
    assert sorted(ended) == list(range(8))


# The front door.

NETS = """
import os, pathlib, signal, time
import numpy as np
import torch
from torch import nn
from tradewind import Data, Hyperparameter, Split

HERE = pathlib.Path(__file__).parent

def note(file, text):
    handle = os.open(HERE / file, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(handle, f"{text}\\n".encode())
    os.close(handle)

class Net(nn.Module):
    def __init__(self, pause_s):
        super().__init__()
        self.pause_s = pause_s
        self.layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8)), nn.Dropout(0.3), nn.Linear(4, 1))

    def forward(self, x):
        if self.training and self.pause_s:
            time.sleep(self.pause_s)
        return self.layers(x).squeeze(1)

class Nets:
    metric = "validation_loss"
    defaults = {
        "fatal": Hyperparameter("", str, choices=("", "kill", "raise")),
        "pause_s": Hyperparameter(0.0, float),
        "size": Hyperparameter(4, int),
    }

    def data(self, config):
        rng = np.random.default_rng(config["data_seed"])
        inputs = rng.standard_normal((64, 4)).astype(np.float32)
        targets = np.tanh(inputs.sum(1))
        return Data(*(Split(inputs[a:b], targets[a:b]) for a, b in ((0, 32), (32, 48), (48, 64))))

    def model(self, config):
        note("built", f"{config['learning_rate']:g} {config['seed']}")
        if config["learning_rate"] == 0.013:
            if config["fatal"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif config["fatal"] == "raise":
                raise ValueError("no network for this rate")
        return Net(config["pause_s"])

    def loss(self, outputs, targets, config):
        return nn.functional.mse_loss(outputs, targets)

    def scores(self, outputs, targets):
        return {"error": (outputs - targets).abs().mean().item()}
"""
FIVE = [0.001, 0.003, 0.013, 0.02, 0.03]


def nets(write_study: Write, space: Mapping[str, Any], purpose: str = "tune", repeats: int = 1, **fixed: Any) -> Path:
    """A study of small networks of one's own."""
    held = {"batch_size": 16, "epochs": 2, **fixed}
    content = {
        "name": "nets", "workload": "work:Nets", "space": space, "purpose": purpose, "repeats": repeats,
        "fixed": {name: value for name, value in held.items() if name not in space},
    }  # fmt: skip
    return write_study(content, NETS)


def ran(cli: Cli, study: Path, run: Path, engine: str = "processes", workers: int = 1, code: int = 0) -> Any:
    options = ["--workers", workers] if engine == "processes" else []
    found = cli("run", study, "--out", run, "--engine", engine, *options, "--quiet")
    assert found.returncode == code, found.stdout + found.stderr
    return tradewind.Results.load(run)


def finished(run: Path) -> Counter[int]:
    """How often every trial was recorded as ended; read without Tradewind's own reader."""
    lines = [line for path in (run / "journal").glob("*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    return Counter(content["trial"] for content in map(json.loads, lines) if content["kind"] == "finished")


@pytest.mark.parametrize("engine", ["processes", "serial"])
def test_a_run_packs_what_can_be_packed_and_says_so_in_its_records(
    engine: str, tmp_path: Path, write_study: Write, cli: Cli
) -> None:
    space = {"learning_rate": [0.001, 0.01], "epochs": [1, 3], "size": [1, 2]}
    results = ran(cli, nets(write_study, space, repeats=2), tmp_path / "run", engine)
    assert results.counts() == {"done": 16, "pruned": 0, "stopped": 0, "failed": 0}
    assert finished(tmp_path / "run") == Counter(range(16))
    together: dict[tuple[Any, ...], list[Any]] = {}
    for record in results.records():
        assert record["packed_with"] > 0
        assert 0 < record["times"]["share_s"] < record["times"]["pack_wall_s"]
        assert record["epochs_run"] == record["config"]["epochs"] == len(results.curve(record["key"]))
        assert record["purpose"] == "tune"
        together.setdefault((record["started"], record["log"]["from"]), []).append(record)
    for pack in together.values():
        assert len({record["config"]["size"] for record in pack}) == 1
        assert {record["packed_with"] for record in pack} == {len(pack) - 1}
    assert len(together) == 2


def test_a_table_refuses_to_show_the_time_of_a_packed_trial_as_its_own(
    tmp_path: Path, write_study: Write, command: Cli
) -> None:
    study, run = nets(write_study, {"learning_rate": [0.001, 0.01], "epochs": [1, 2]}), tmp_path / "run"
    assert command("run", study, "--out", run, "--engine", "serial", "--quiet").returncode == 0
    words = ["table", run, "--rows", "learning_rate", "--columns", "epochs", "--value"]
    refused = command(*words, "train_s")
    assert refused.returncode != 0
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "trained in a pack" in refused.stderr
    assert "share_s" in refused.stderr
    assert command(*words, "share_s").returncode == 0
    assert command(*words, "error").returncode == 0


def test_to_time_every_trial_is_alone(tmp_path: Path, write_study: Write, command: Cli) -> None:
    study = nets(write_study, {"learning_rate": [0.001, 0.01], "epochs": [1, 2]}, "time")
    assert command("run", study, "--out", tmp_path / "run", "--engine", "serial", "--quiet").returncode == 0
    results = tradewind.Results.load(tmp_path / "run")
    assert {record["packed_with"] for record in results.records()} == {0}
    assert not any("share_s" in record["times"] for record in results.records())
    assert len({record["started"] for record in results.records()}) == 4
    words = ["table", tmp_path / "run", "--rows", "learning_rate", "--columns", "epochs", "--value", "train_s"]
    assert command(*words).returncode == 0


def test_packed_or_alone_a_run_gives_the_same_scores(tmp_path: Path, write_study: Write, command: Cli) -> None:
    space = {"learning_rate": [0.001, 0.01, 0.02], "epochs": [1, 3]}
    content = {"name": "n", "workload": "work:Nets", "space": space, "fixed": {"precision": "fp64", "batch_size": 16}}
    found = {}
    for purpose in ("tune", "time"):
        study = write_study({**content, "purpose": purpose}, NETS, file=f"{purpose}.json")
        words = ["run", study, "--out", tmp_path / purpose, "--engine", "serial", "--quiet"]
        assert command(*words).returncode == 0
        found[purpose] = tradewind.Results.load(tmp_path / purpose)
    for one, other in zip(found["tune"].records(), found["time"].records(), strict=True):
        assert one["key"] == other["key"]
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-9)
        losses = [[row["train_loss"] for row in found[p].curve(one["key"])] for p in ("tune", "time")]
        assert losses[0] == pytest.approx(losses[1], abs=1e-9)
    assert max(record["packed_with"] for record in found["tune"].records()) > 0


@pytest.mark.parametrize(("fatal", "engine"), [("kill", "processes"), ("raise", "serial")])
def test_a_pack_that_crashes_is_split_until_only_the_guilty_trial_fails(
    fatal: str, engine: str, tmp_path: Path, write_study: Write, cli: Cli
) -> None:
    study = nets(write_study, {"learning_rate": FIVE}, fatal=fatal)
    results = ran(cli, study, tmp_path / "run", engine, code=1)
    assert results.counts() == {"done": 4, "pruned": 0, "stopped": 0, "failed": 1}
    assert finished(tmp_path / "run") == Counter(range(5))
    (guilty,) = [record for record in results.records() if record["state"] == "failed"]
    assert guilty["config"]["learning_rate"] == 0.013
    assert guilty["attempt"] == 1
    assert ("SIGKILL" if fatal == "kill" else "no network for this rate") in json.dumps(guilty["error"])
    built = Counter(line.split()[0] for line in (tmp_path / "built").read_text().splitlines())
    assert built["0.013"] <= 4  # five, then halves: 5, 3, 2 or 1, 1


def test_a_guilty_trial_with_a_second_try_harms_none(tmp_path: Path, write_study: Write, command: Cli) -> None:
    path, run = nets(write_study, {"learning_rate": FIVE}, fatal="raise"), tmp_path / "run"
    path.write_text(json.dumps({**json.loads(path.read_text()), "retries": 1}))
    assert command("run", path, "--out", run, "--engine", "serial", "--quiet").returncode == 1
    assert tradewind.Results.load(run).counts() == {"done": 4, "pruned": 0, "stopped": 0, "failed": 1}
    assert finished(run) == Counter([*range(5), 2])


class Jobs:
    """Jobs on one run folder, each in a process group of its own."""

    def __init__(self, study: Path, run: Path) -> None:
        self.study, self.run = study, run
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        words = [TRADEWIND, "run", self.study, "--out", self.run, "--workers", "1", "--quiet"]
        job = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, start_new_session=True)
        self.started.append(job)
        return job

    def clean_up(self) -> None:
        for job in self.started:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Callable[[Path], Jobs]]:
    made: list[Jobs] = []

    def make(study: Path) -> Jobs:
        made.append(Jobs(study, tmp_path / "run"))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


def until(holds: Callable[[], bool], job: subprocess.Popen[bytes], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert job.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_of_packs_that_is_killed_goes_on_and_counts_every_trial_once(
    tmp_path: Path, write_study: Write, jobs: Callable[[Path], Jobs]
) -> None:
    space = {"learning_rate": [0.001 * k for k in range(1, 9)], "epochs": [2, 5], "size": [1, 2]}
    here = jobs(nets(write_study, space, pause_s=0.02))
    job = here.start()
    until(lambda: here.run.exists() and len(finished(here.run)) >= 8, job)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    before = finished(here.run)
    assert 8 <= len(before) < 32
    assert here.start().wait(timeout=60) == 0
    assert finished(here.run) == Counter(range(32))
    results = tradewind.Results.load(here.run)
    assert results.counts() == {"done": 32, "pruned": 0, "stopped": 0, "failed": 0}
    assert results.duplicates == 0
    assert {record["epochs_run"] - record["config"]["epochs"] for record in results.records()} == {0}


@pytest.fixture
def amid_a_pack(write_study: Write, jobs: Callable[[Path], Jobs]) -> tuple[Jobs, subprocess.Popen[bytes]]:
    """A job that trains a pack of three trials, of which two have ended."""
    here = jobs(nets(write_study, {"epochs": [1, 3, 60]}, pause_s=0.02))
    job = here.start()
    until(lambda: here.run.exists() and len(finished(here.run)) >= 2, job)
    return here, job


def test_a_trial_that_ends_before_its_pack_is_recorded_at_once_and_outlives_a_kill(
    amid_a_pack: tuple[Jobs, subprocess.Popen[bytes]],
) -> None:
    here, job = amid_a_pack
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert finished(here.run) == Counter([0, 1])
    before = {record["trial"]: record for record in tradewind.Results.load(here.run).records()}
    assert here.start().wait(timeout=60) == 0
    assert finished(here.run) == Counter(range(3))
    after = {record["trial"]: record for record in tradewind.Results.load(here.run).records()}
    assert {trial: after[trial] for trial in before} == before
    assert {record["packed_with"] for record in before.values()} == {2}
    # the longest goes on from what was kept of the network that served all three
    assert (after[2]["resumed_at_epoch"] >= 1, after[2]["epochs_run"]) == (True, 60)


def test_a_worker_that_dies_takes_nothing_with_it_that_had_ended_in_its_pack(
    amid_a_pack: tuple[Jobs, subprocess.Popen[bytes]],
) -> None:
    here, job = amid_a_pack
    (worker,) = [one for one in psutil.Process(job.pid).children() if "tradewind.engine.worker" in one.cmdline()]
    worker.kill()
    assert job.wait(timeout=60) == 1
    assert finished(here.run) == Counter(range(3))
    found = {record["trial"]: record for record in tradewind.Results.load(here.run).records()}
    assert [found[trial]["state"] for trial in range(3)] == ["done", "done", "failed"]
    assert "SIGKILL" in found[2]["reason"]
    assert found[0]["epochs_run"] == 1


def test_two_jobs_on_one_folder_share_its_packs_and_run_none_twice(
    tmp_path: Path, write_study: Write, jobs: Callable[[Path], Jobs]
) -> None:
    space = {"learning_rate": [0.001 * k for k in range(1, 9)], "epochs": [2, 6], "size": [1, 2, 3, 4]}
    here = jobs(nets(write_study, space, pause_s=0.02))
    both = here.start(), here.start()
    assert [job.wait(timeout=60) for job in both] == [0, 0]
    assert finished(here.run) == Counter(range(64))
    results = tradewind.Results.load(here.run)
    assert results.counts() == {"done": 64, "pruned": 0, "stopped": 0, "failed": 0}
    assert results.duplicates == 0
    shares = Counter(
        path.name for path in (here.run / "journal").glob("*.jsonl") if b'"finished"' in path.read_bytes()
    )
    assert len(shares) == 2, "one of the jobs found nothing to do"
