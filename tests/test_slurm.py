"""Slurm, the real thing: jobs are submitted, signalled, preempted, killed and requeued, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import MAX_ARRAY_SIZE, SlurmCluster, wait_until

import tradewind
from tradewind.cluster.site import VARIABLE, duration_s, load_site, slurm_time
from tradewind.cluster.slurm import jobs, queue_lines, queue_state
from tradewind.cluster.submission import Request, cancel_command, submit_command
from tradewind.errors import Mistake
from tradewind.folder import RunFolder

MODULE = """
import os, pathlib, time

def trial(config, trial):
    handle = os.open(pathlib.Path(__file__).parent / "executions", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(handle, f"{trial.number}\\n".encode())
    os.close(handle)
    time.sleep(config["seconds"])
    return trial.number
"""
STORM = {
    "name": "preempted",
    "workload": "storm",
    "data": {"source": "synthetic", "train": 128, "validation": 32, "test": 32},
    "space": {"learning_rate": [0.001, 0.01], "epochs": [30]},  # two trials: one thread each
    "fixed": {"batch_size": 32, "device": "cpu"},
}

AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")

Write = Callable[..., Path]


@dataclass
class Submitted:
    """A study of sleeping trials, and its job."""

    run: Path
    trials: int
    job: str = ""

    def executed(self) -> list[int]:
        """The trials that were begun, by their own account."""
        path = self.run.parent / "executions"
        return list(map(int, path.read_text().split())) if path.exists() else []

    def recorded(self) -> Counter[int]:
        """How often each trial has a record, read without Tradewind's own reader."""
        lines = [line for path in (self.run / "journal").glob("*.jsonl") for line in path.read_text().splitlines()]
        return Counter(content["trial"] for line in lines if (content := json.loads(line))["kind"] == "finished")

    def complete(self) -> bool:
        """Whether every trial is done and counts once."""
        results = tradewind.Results.load(self.run)
        assert results.counts() == {"done": self.trials, "pruned": 0, "stopped": 0, "failed": 0}, self.log()
        return sorted(results.column("trial").tolist()) == list(range(self.trials)) and not results.duplicates

    def log(self) -> str:
        """What its jobs have said."""
        return "\n".join(path.read_text() for path in (self.run / "slurm").glob("*.log"))


@pytest.fixture(scope="module")
def no_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever runs these tests may have a site file of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


def sleeping(folder: Path, trials: int, seconds: float, **request: Any) -> Submitted:
    """Submit a study of so many trials of so many seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "work.py").write_text(MODULE)
    content = {"name": "sleep on it", "workload": "work:trial", "space": {"n": list(range(trials))}}
    (folder / "study.json").write_text(json.dumps({**content, "fixed": {"seconds": seconds}}))
    made = Submitted(folder / "run", trials)
    submit_command(str(folder / "study.json"), made.run, [], Request(**request), False)
    made.job = jobs(RunFolder.open(made.run))[0]
    return made


@pytest.fixture(scope="module")
def disturbed(slurm: SlurmCluster, no_site: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    """Three jobs at once, since most of their time is Slurm's waiting: one runs into its time limit, one is
    requeued by hand, one loses its node."""
    base, alone = tmp_path_factory.mktemp("disturbed"), ("--exclusive",)
    early = ("--signal=B:USR1@50", *alone)
    made = {
        # Slurm looks at time limits every 30 s: work for as long as that and more
        "limit": sleeping(base / "limit", 100, 1.0, array=1, time="1m", sbatch=early),
        "by hand": sleeping(base / "by hand", 24, 0.5, array=1, sbatch=alone),
        "node": sleeping(base / "node", 24, 0.5, array=1, sbatch=alone),
    }
    for name in ("by hand", "node"):
        wait_until(lambda n=name: len(made[n].executed()) >= 6, 30, f"{name} works", made[name].log)  # type: ignore[misc]
    node = slurm.job(f"{made['node'].job}_0")["NodeList"]
    slurm.kill_node(node)
    slurm.call("scontrol", "requeue", f"{made['by hand'].job}_0")
    wait_until(
        lambda: slurm.job(f"{made['node'].job}_0")["Restarts"] == "1", 90, "the dead node is noticed", slurm.log
    )
    slurm.start_node(node)
    return made


def test_four_array_tasks_share_a_folder_and_a_killed_one_costs_nothing(
    slurm: SlurmCluster, no_site: None, tmp_path: Path
) -> None:
    made = sleeping(tmp_path, 60, 0.4, array=4)
    wait_until(lambda: len(list((made.run / "owners").glob("*.json"))) == 4, 30, "four tasks work", made.log)
    wait_until(lambda: len(made.executed()) >= 8, 30, "eight trials are begun", made.log)
    slurm.call("scancel", "--signal=KILL", "--full", f"{made.job}_2")
    slurm.wait_for(f"{made.job}_2", "FAILED CANCELLED", 20)
    assert len(made.recorded()) < made.trials
    for task in (0, 1, 3):
        slurm.wait_for(f"{made.job}_{task}", "COMPLETED", 60)
    assert made.complete()
    assert set(made.recorded().values()) == {1}
    assert len(list((made.run / "journal").glob("*.jsonl"))) == 4


def test_a_job_requeued_by_hand_goes_on(slurm: SlurmCluster, disturbed: dict[str, Submitted]) -> None:
    made = disturbed["by hand"]
    slurm.wait_for(f"{made.job}_0", "COMPLETED", 60)
    assert slurm.job(f"{made.job}_0")["Restarts"] == "1"
    assert made.complete()
    assert len(made.executed()) <= made.trials + 2  # two workers were interrupted


def test_a_signal_before_the_time_limit_requeues_the_job_which_completes(
    slurm: SlurmCluster, disturbed: dict[str, Submitted]
) -> None:
    made = disturbed["limit"]
    slurm.wait_for(f"{made.job}_0", "COMPLETED", 120)
    assert int(slurm.job(f"{made.job}_0")["Restarts"]) >= 1
    assert made.complete()
    assert "stopped by SIGTERM; nothing recorded is lost" in made.log()
    assert len(made.executed()) <= made.trials + 2 * int(slurm.job(f"{made.job}_0")["Restarts"])


def test_a_job_whose_node_dies_is_requeued_and_completes(
    slurm: SlurmCluster, disturbed: dict[str, Submitted]
) -> None:
    made = disturbed["node"]
    slurm.wait_for(f"{made.job}_0", "COMPLETED", 120)
    assert slurm.job(f"{made.job}_0")["Restarts"] == "1"
    assert made.complete()


def test_a_preempted_trial_ends_with_the_weights_of_an_undisturbed_run(
    slurm: SlurmCluster, no_site: None, write_study: Write, tmp_path: Path
) -> None:
    study, run = write_study(STORM), tmp_path / "run"
    submit_command(str(study), run, [], Request(array=1, sbatch=("--exclusive",)), False)
    folder = RunFolder.open(run)
    job = f"{jobs(folder)[0]}_0"
    wait_until(lambda: any(folder.checkpoints.glob("*.safetensors")), 60, "an epoch is kept")
    slurm.call(
        "scancel", "--signal=STOP", "--full", job
    )  # or a fast machine is done too soon; Slurm wakes it to end it
    node = slurm.job(job)["NodeList"]
    words = ("--partition=urgent", f"--nodelist={node}", "--exclusive", "--output=/dev/null", "--wrap=true")
    urgent = slurm.call("sbatch", "--parsable", *words)
    slurm.wait_for(urgent, "COMPLETED", 30)
    assert any(folder.checkpoints.glob("*.safetensors"))
    slurm.wait_for(job, "COMPLETED", 90)
    assert slurm.job(job)["Restarts"] == "1"
    undisturbed = tradewind.run(study, tmp_path / "undisturbed", engine="processes")
    results = tradewind.Results.load(run)
    best = results.best()
    for trial in (0, 1):
        assert results.record(trial)["scores"] == undisturbed.record(trial)["scores"]
    assert best.weights.read_bytes() == undisturbed.best().weights.read_bytes()


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Open MPI wants to be told where root starts it."""
    pytest.importorskip("mpi4py")
    for name in AS_ROOT:
        monkeypatch.setenv(name, "1")
        monkeypatch.setenv(f"{name}_CONFIRM", "1")


def test_both_schedules_end_well_by_srun_over_several_nodes(
    slurm_mpi: SlurmCluster, no_site: None, as_root: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [
        sleeping(tmp_path / schedule, 16, 0.2, nodes=2, schedule=schedule) for schedule in ("synchronous", "dispatch")
    ]
    for each in made:
        slurm_mpi.wait_for(each.job, "COMPLETED FAILED REQUEUED", 60)
        about = slurm_mpi.job(each.job)
        assert (about["JobState"], about["ExitCode"], about["Restarts"]) == ("COMPLETED", "0:0", "0"), each.log()
        assert each.complete()
        assert "Killed" not in each.log()
        ran = tradewind.Results.load(each.run)
        assert set(ran.column("rank")) == {0, 1, 2, 3}, "a rank on each core of both nodes"
    assert capsys.readouterr().out.splitlines() == ["2 nodes × 2 cores, 2 workers each"] * 2


def test_jobs_run_the_run_folders_copy_of_the_study_whatever_becomes_of_the_file(
    slurm: SlurmCluster, no_site: None, tmp_path: Path
) -> None:
    tmp_path.mkdir(exist_ok=True)
    hold = slurm.call("sbatch", "--parsable", "--exclusive", "--nodes=4", "--output=/dev/null", "--wrap=sleep 60")
    made = sleeping(tmp_path, 4, 0.1, array=1)
    study = json.loads((tmp_path / "study.json").read_text())
    (tmp_path / "study.json").write_text(json.dumps({**study, "fixed": {"seconds": 9.0}, "space": {"n": [7]}}))
    slurm.call("scancel", hold)
    slurm.wait_for(f"{made.job}_0", "COMPLETED FAILED", 40)
    assert made.complete()
    assert set(tradewind.Results.load(made.run).column("seconds")) == {0.1}
    assert json.loads((made.run / "edition.json").read_text())["file"] == str(tmp_path / "study.json")


FAILING_ONCE = """#!/bin/bash
# a Python under which Tradewind fails by itself the first time, with some of the work done
[ "$SLURM_RESTART_COUNT" ] && exec {python} "$@"
{python} "$@" --max-time 4s
exit 3
"""


def test_a_job_that_tradewind_itself_failed_is_requeued(
    slurm: SlurmCluster, no_site: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, site = tmp_path / "python", tmp_path / "site.toml"
    python.write_text(FAILING_ONCE.format(python=sys.executable))
    python.chmod(0o755)
    site.write_text(f'python = "{python}"\n')
    monkeypatch.setenv(VARIABLE, str(site))
    made = sleeping(tmp_path, 12, 1.0, array=1)
    wait_until(lambda: slurm.job(f"{made.job}_0")["Restarts"] == "1", 40, "it is requeued", made.log)
    slurm.wait_for(f"{made.job}_0", "COMPLETED", 60)
    assert made.complete()


def test_array_tasks_fill_whole_nodes_where_tasks_are_confined(
    slurm: SlurmCluster, no_site: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sleeping(tmp_path, 6, 0.5, array=1)
    slurm.wait_for(f"{made.job}_0", "COMPLETED FAILED", 40)
    assert made.complete()
    logs = {record["log"]["file"] for record in tradewind.Results.load(made.run).records()}
    assert len(logs) == 2, "a worker on each core"
    assert capsys.readouterr().out.splitlines()[0] == "1 node × 2 cores, 2 workers each"


def test_an_mpi_job_that_is_signalled_lets_every_rank_end_and_goes_on(
    slurm_mpi: SlurmCluster, no_site: None, as_root: None, tmp_path: Path
) -> None:
    made = [sleeping(tmp_path / f"{survive}", 32, 0.5, nodes=2, survive=survive) for survive in (False, True)]
    for each in made:
        wait_until(lambda each=each: len(each.executed()) >= 8, 60, "ranks work", each.log)  # type: ignore[misc]
        slurm_mpi.call("scancel", "--batch", "--signal=USR1", each.job)
    for each in made:
        slurm_mpi.wait_for(each.job, "COMPLETED", 60)
        assert slurm_mpi.job(each.job)["Restarts"] == "1"
        assert "stopped by SIGUSR1; nothing recorded is lost" in each.log()
        assert each.complete()
        assert len(each.executed()) <= each.trials + 4


def test_a_job_that_gets_nowhere_is_not_requeued(slurm: SlurmCluster, no_site: None, tmp_path: Path) -> None:
    made = sleeping(tmp_path, 2, 60.0, array=1)
    wait_until(lambda: len(made.executed()) == 2, 30, "both trials are begun", made.log)
    slurm.call("scancel", "--batch", "--signal=USR1", f"{made.job}_0")
    slurm.wait_for(f"{made.job}_0", "FAILED", 20)
    assert slurm.job(f"{made.job}_0")["Restarts"] == "0"
    assert "ended no trial and kept no epoch; not requeued" in made.log()


def test_chained_jobs_wait_for_one_another_show_in_the_queue_and_can_be_cancelled(
    slurm: SlurmCluster, no_site: None, tmp_path: Path
) -> None:
    made = sleeping(tmp_path / "50 %j", 10, 30.0, array=1, chain="2", time="1h")
    folder = RunFolder.open(made.run)
    first, second = jobs(folder)
    wait_until(lambda: len(made.executed()) == 2, 30, "two trials are begun", made.log)
    running, waiting = queue_state(folder)
    assert (running["job"], running["state"], running["reason"]) == (f"{first}_0", "RUNNING", "")
    assert running["nodes"] in ("n1", "n2", "n3", "n4")
    assert 3500 < running["time_left_s"] <= 3600
    assert waiting["job"] == f"{second}_[0]"
    assert (waiting["state"], waiting["reason"], waiting["time_left_s"]) == ("PENDING", "Dependency", None)
    assert queue_lines([waiting]) == [f"    job {second}_[0] pending, Dependency"]
    said = cancel_command(made.run)
    assert said.startswith(f"cancelled {first}_0 (running), {second}_[0] (pending); nothing recorded is lost")
    for job in (first, second):
        slurm.wait_for(job, "CANCELLED", 20)
    assert {row["state"] for row in queue_state(folder)} == {"CANCELLED"}
    assert slurm.job(first)["Restarts"] == "0"
    assert cancel_command(made.run) == f"nothing to cancel: the jobs of {made.run} have ended"
    wait_until(lambda: all("slurm_script" not in p.name() for p in slurm.processes()), 20, "its processes end")


def test_a_job_that_finds_nothing_left_ends_at_once(slurm: SlurmCluster, no_site: None, tmp_path: Path) -> None:
    made = sleeping(tmp_path, 2, 0.1, array=1, chain="2", requeue=False)
    _, second = jobs(RunFolder.open(made.run))
    slurm.wait_for(second, "COMPLETED", 40)
    assert made.complete()
    assert sorted(made.executed()) == [0, 1]


def test_what_slurm_refuses_is_told_in_one_line(slurm: SlurmCluster, no_site: None, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"^sbatch: invalid partition specified: nowhere; ") as refused:
        sleeping(tmp_path, 1, 0.1, array=1, partition="nowhere")
    assert "\n" not in str(refused.value)
    too_many = rf"--array {MAX_ARRAY_SIZE + 1}: this Slurm's arrays have at most {MAX_ARRAY_SIZE} tasks"
    with pytest.raises(Mistake, match=too_many):
        sleeping(tmp_path, 1, 0.1, array=MAX_ARRAY_SIZE + 1)
    with pytest.raises(Mistake, match="no job was submitted for it"):
        cancel_command(tmp_path / "run")


def test_gpus_are_asked_for_as_the_site_says(slurm: SlurmCluster, no_site: None, tmp_path: Path) -> None:
    made = sleeping(tmp_path, 1, 0.1, array=1, gpus_per_node=2, memory="100M", cpus_per_task=2)
    slurm.wait_for(f"{made.job}_0", "COMPLETED", 30)
    assert "gres:gpu:2" in slurm.job(f"{made.job}_0")["TresPerNode"]
    assert slurm.job(f"{made.job}_0")["CPUs/Task"] == "2"


def test_srun_starts_mpi_ranks(slurm_mpi: SlurmCluster) -> None:
    pytest.importorskip("mpi4py")
    code = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    assert slurm_mpi.call("srun", "--mpi=pmix", "--ntasks=2", sys.executable, "-c", code).split() == ["2", "2"]


def test_a_dry_run_prints_the_script_and_writes_nothing(
    no_site: None, write_study: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site.toml"
    site.write_text('partition = "gpu"\ntime = "30m"\nset_up = ["module load cuda"]\ngpus = "--gres=gpu:h100:{n}"\n')
    monkeypatch.setenv(VARIABLE, str(site))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    study, run = write_study({**STORM, "name": "a b"}), tmp_path / "runs" / "a b"
    request = Request(nodes=2, gpus_per_node=4, cpus_per_task=8, account="me", time="2h", sbatch=("--exclusive",))
    text = submit_command(str(study), None, ["repeats=2"], request, True)
    assert [line for line in text.splitlines() if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=a-b",
        f"#SBATCH --chdir={tmp_path}",
        f"#SBATCH --output='{run}/slurm/%j.log'",
        "#SBATCH --open-mode=append",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=me",
        "#SBATCH --time=02:00:00",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --gres=gpu:h100:4",
        "#SBATCH --requeue",
        "#SBATCH --exclusive",
    ]
    words = '"$python" -m tradewind run "$out/study.json" --schedule dispatch --out "$out"'
    ranks = "--ntasks=$((SLURM_JOB_NUM_NODES * 4)) --ntasks-per-node=4 --cpus-per-task=8"
    assert f"\nsrun --mpi=pmix {ranks} {words} &\n" in text
    assert f"\nexport TRADEWIND_CODE={tmp_path}\n" in text
    assert text.endswith("\n# 2 nodes × 4 GPUs, 4 workers each")
    assert f"\nmodule load cuda\n\npython={sys.executable}\n" in text
    assert 'scontrol requeue "$job"' in text
    assert not (tmp_path / "runs").exists()
    timed = submit_command(str(study), None, ["purpose=time"], Request(), True)
    assert "#SBATCH --exclusive" in timed  # a measured trial has its node to itself
    whole = submit_command(str(study), None, [], Request(nodes=4), True)
    assert "#SBATCH --exclusive" in whole
    assert "--ntasks-per-node=$SLURM_CPUS_ON_NODE --cpus-per-task=1 " in whole
    assert whole.endswith("\n# 4 nodes, whole, a worker on each core")
    assert timed.endswith("\n# 1 node, whole, 1 worker each")
    assert "--ntasks-per-node=1 --cpus-per-task=$SLURM_CPUS_ON_NODE " in timed
    shared = submit_command(str(study), None, [], Request(nodes=4, cpus_per_task=8), True)
    assert "#SBATCH --exclusive" not in shared
    assert shared.endswith("\n# 4 nodes × 8 cores, 8 workers each")
    assert "--ntasks-per-node=8 --cpus-per-task=1 " in shared


@pytest.mark.parametrize(
    ("request_", "present", "absent"),
    [
        (Request(survive=True), ["mpiexec --with-ft ulfm", "#SBATCH --no-kill", "kill -USR1"], ["srun"]),
        (
            Request(array=4, schedule="synchronous"),
            ["#SBATCH --array=0-3", '--rank "$SLURM_ARRAY_TASK_ID" --of 4', "--engine processes", "%A_%a.log"],
            ["srun", "mpiexec"],
        ),
        (Request(requeue=False), ["#SBATCH --no-requeue", 'exit "$code"'], ["scontrol requeue"]),
        (Request(chain="3"), ["#SBATCH --requeue", "# 3 such jobs, one after another"], ["scontrol requeue"]),
    ],
    ids=["survive", "array", "no requeue", "chain"],
)
def test_a_script_holds_what_its_kind_of_job_needs(
    no_site: None, tmp_path: Path, request_: Request, present: list[str], absent: list[str]
) -> None:
    text = submit_command("quick", tmp_path / "run", [], request_, True)
    assert not [words for words in present if words not in text]
    assert not [words for words in absent if words in text]
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_length_of_a_chain_comes_from_what_trials_took(no_site: None, write_study: Write, tmp_path: Path) -> None:
    content = {"name": "chain", "workload": "work:trial", "fixed": {"seconds": 0.3}}
    study, run = write_study({**content, "space": {"n": [0, 1]}}, MODULE), tmp_path / "run"
    with pytest.raises(Mistake, match="--chain auto: no trial of this study has ended yet"):
        submit_command(str(study), run, [], Request(chain="auto", time="1m"), True)
    tradewind.run(study, run, engine="serial")
    larger = write_study({**content, "space": {"n": list(range(1002))}})  # 1000 are left: 300 s and 0.2 of that
    text = submit_command(str(larger), run, [], Request(chain="auto", time="2m", tasks_per_node=2), True)
    count = int(text.rpartition("\n# ")[2].split()[0])
    assert count in (2, 3)  # 180 s of work on two ranks, 100 s usable in each job
    assert submit_command(str(larger), run, [], Request(time="2m", nodes=4), True).count("one after another") == 0
    with pytest.raises(Mistake, match="--chain auto: no time limit is given"):
        submit_command(str(larger), run, [], Request(chain="auto"), True)


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (Request(nodes=0), "--nodes 0: allowed: 1 or more"),
        (Request(array=4, nodes=2), "--array: each task has one node"),
        (Request(array=4, tasks_per_node=2), "--tasks-per-node: is for MPI"),
        (Request(array=4, survive=True), "--survive: is for MPI"),
        (Request(schedule="synchronos"), "--schedule synchronos: did you mean 'synchronous'"),
        (Request(time="90"), "--time 90: allowed: a number with s, m, h or d"),
        (Request(chain="0"), "--chain 0: allowed: auto, or a number from 1"),
        (Request(sbatch=("constraint=x",)), "--sbatch 'constraint=x': allowed: an option such as"),
        (Request(set_up=("a\nb",)), r"--set-up 'a\\nb': allowed: one line of shell"),
    ],
    ids=lambda value: "" if isinstance(value, Request) else value.partition(":")[0],
)
def test_options_that_can_not_be_are_refused(
    no_site: None, tmp_path: Path, request_: Request, complaint: str
) -> None:
    with pytest.raises(Mistake, match=complaint):
        submit_command("quick", tmp_path / "run", [], request_, False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("partition = gpu", r"site.toml: not TOML: .*line 1"),
        ('partitoin = "gpu"', r"site.toml: partitoin: unknown key; did you mean 'partition'\?"),
        ('time = "soon"', r"site.toml: time: found 'soon'; allowed: a number with s, m, h or d"),
        ('gpus = "--gres=gpu"', r"site.toml: gpus: found '--gres=gpu'; allowed: an option of sbatch with \{n\}"),
        ('launcher = "mpirun"', r"site.toml: launcher: found 'mpirun'; input should be 'srun' or 'mpiexec'"),
        ('sbatch = ["exclusive"]', r"site.toml: sbatch: found 'exclusive'; allowed: options"),
        ("set_up = 3", r"site.toml: set_up: found 3"),
    ],
)
def test_a_faulty_site_file_is_told_where_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, complaint: str
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "site.toml"))
    with pytest.raises(Mistake, match=f"site.toml: no such file; {VARIABLE} names it"):
        load_site()
    (tmp_path / "site.toml").write_text(content)
    with pytest.raises(Mistake, match=complaint):
        load_site()


def test_times_are_read_as_people_and_slurm_write_them() -> None:
    times = {"90s": 90, "30m": 1800, "1.5h": 5400, "2d": 172_800, "5:30": 330, "2:00:00": 7200, "1-02:00:00": 93_600}
    assert {text: duration_s(text) for text in times} == times
    assert [slurm_time(seconds) for seconds in (1, 90, 7200, 93_600)] == [
        "00:01:00", "00:02:00", "02:00:00", "1-02:00:00",
    ]  # fmt: skip


def test_without_slurm_there_is_no_queue_and_submitting_says_so(
    no_site: None, write_study: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    study = write_study({**STORM, "space": {"epochs": [1]}})
    with pytest.raises(Mistake, match="sbatch: not on this machine"):
        submit_command(str(study), tmp_path / "run", [], Request(), False)
    assert queue_state(RunFolder.open(tmp_path / "run")) == []
    (tmp_path / "run" / "slurm" / "jobs.jsonl").write_text('{"job": "7"}\n{"job"')
    assert jobs(RunFolder.open(tmp_path / "run")) == ["7"]
    assert queue_state(RunFolder.open(tmp_path / "run")) == []


def test_a_slurm_that_does_not_answer_is_told_in_the_queue(
    no_site: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (tmp_path / "run" / "slurm" / "jobs.jsonl").write_text('{"job": "7"}\n')
    for name in ("sbatch", "squeue"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'squeue: error: Unable to contact slurm controller' >&2; exit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    (found,) = queue_state(folder)
    assert (found["job"], found["state"]) == ("7", "UNKNOWN")
    assert found["reason"] == "squeue: Unable to contact slurm controller"
