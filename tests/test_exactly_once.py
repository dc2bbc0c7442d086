"""Exactly once: whatever is killed, every trial is recorded once, and what was recorded is never run again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import tradewind
import tradewind.claims
from tradewind.claims import LEASE_S, Claims
from tradewind.folder import RunFolder

TRADEWIND = Path(sys.executable).parent / "tradewind"
MARK = "TRADEWIND_TEST_MARK"
WORKERS = 2

Write = Callable[..., Path]

MODULE = """
import os, pathlib, time

def trial(config, trial):
    handle = os.open(pathlib.Path(__file__).parent / "executions", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(handle, f"{trial.number}\\n".encode())
    os.close(handle)
    time.sleep(config["seconds"])
    return trial.number
"""


class Jobs:
    """Jobs on one run folder, each in a process group of its own; all carry a mark."""

    def __init__(self, folder: Path, study: Path) -> None:
        self.folder, self.run, self.mark = folder, folder / "run", uuid.uuid4().hex
        self._study = study
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Start a job on what is left."""
        with open(self.folder / "stderr", "ab") as errors:
            job = subprocess.Popen(
                [str(TRADEWIND), "run", str(self._study), "--out", str(self.run), "--workers", str(WORKERS)],
                env={**os.environ, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        self._started.append(job)
        return job

    def finish(self, job: subprocess.Popen[bytes]) -> None:
        """Wait for a job, which must end well."""
        assert job.wait(timeout=40) == 0, (self.folder / "stderr").read_text()

    def kill(self, job: subprocess.Popen[bytes]) -> None:
        """SIGKILL to the whole process group of a job."""
        os.killpg(job.pid, signal.SIGKILL)
        assert job.wait(timeout=10) == -signal.SIGKILL

    def executed(self) -> list[int]:
        """The trials that were begun, by their own account, in order."""
        path = self.folder / "executions"
        return list(map(int, path.read_text().split())) if path.exists() else []

    def wait_for_executions(self, count: int, job: subprocess.Popen[bytes]) -> None:
        """Wait until so many trials were begun."""
        deadline = time.monotonic() + 20
        while len(self.executed()) < count:
            assert time.monotonic() < deadline, (self.folder / "stderr").read_text()
            assert job.poll() is None, "the job has ended before it could be killed"
            time.sleep(0.002)

    def lines(self, kind: str) -> list[tuple[str, int]]:
        """(journal, trial) of the whole journal lines of a kind; read without Tradewind's own reader."""
        found = []
        for path in (self.run / "journal").glob("*.jsonl"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                content = json.loads(line)
                if content["kind"] == kind:
                    found.append((path.name, content["trial"]))
        return found

    def recorded(self) -> set[int]:
        """The trials that have a whole record."""
        return {trial for _, trial in self.lines("finished")}

    def in_flight(self) -> int:
        """How many trials were started by a job that never wrote their end."""
        return len(set(self.lines("started")) - set(self.lines("finished")))

    def living(self) -> list[psutil.Process]:
        """The processes of all these jobs."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def none_left(self, within_s: float) -> bool:
        """Whether all processes end in time."""
        deadline = time.monotonic() + within_s
        while self.living() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.living()

    def clean_up(self) -> None:
        """End what a failed test has left."""
        for job in self._started:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
        for process in self.living():
            process.kill()


@pytest.fixture
def jobs(tmp_path: Path, write_study: Write) -> Iterator[Callable[[int, float], Jobs]]:
    """Makes a study of so many trials of so many seconds."""
    made: list[Jobs] = []

    def make(trials: int, seconds: float) -> Jobs:
        study = {
            "name": "once",
            "workload": "work:trial",
            "space": {"n": list(range(trials))},
            "fixed": {"seconds": seconds},
        }
        made.append(Jobs(tmp_path, write_study(study, MODULE)))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


def assert_recorded_once(jobs: Jobs, trials: int) -> None:
    results = tradewind.Results.load(jobs.run)
    assert results.counts() == {"done": trials, "pruned": 0, "stopped": 0, "failed": 0}
    assert sorted(results.items("trial")) == list(range(trials))
    assert sorted(results.items("score")) == [float(n) for n in range(trials)]
    assert results.duplicates == 0
    assert max(Counter(trial for _, trial in jobs.lines("finished")).values()) == 1


def test_twenty_kills_of_the_whole_group_lose_nothing_and_repeat_only_what_was_in_flight(
    jobs: Callable[[int, float], Jobs],
) -> None:
    trials, kills = 200, 20
    chance = random.Random(20)
    here = jobs(trials, 0.03)
    lost = 0
    for kill in range(kills + 1):
        before, recorded = len(here.executed()), here.recorded()
        job = here.start()
        if kill == kills:
            here.finish(job)
        else:
            if kill % 5 == 4:  # at any moment of its start
                time.sleep(chance.uniform(0.0, 0.8))
            else:
                here.wait_for_executions(before + chance.randint(1, 9), job)
                time.sleep(chance.uniform(0.0, 0.04))
            here.kill(job)
            assert len(here.recorded()) < trials  # so that every kill meets work
        assert here.none_left(2.0)
        begun, ended = here.executed()[before:], here.recorded() - recorded
        assert len(set(begun)) == len(begun)
        assert not set(begun) & recorded  # what counts is never run again
        assert ended <= set(begun)
        lost += len(begun) - len(ended)
    assert_recorded_once(here, trials)
    assert len(here.executed()) - trials == lost <= kills * (WORKERS + 1)


def test_of_two_jobs_on_one_folder_one_is_killed_and_the_other_completes(jobs: Callable[[int, float], Jobs]) -> None:
    here = jobs(120, 0.05)
    killed, survivor = here.start(), here.start()
    while len({name for name, _ in here.lines("finished")}) < 2:  # both are at work
        assert killed.poll() is None
        time.sleep(0.01)
    here.kill(killed)
    assert len(here.recorded()) < 120
    here.finish(survivor)
    assert_recorded_once(here, 120)
    assert len(here.executed()) - 120 <= WORKERS + 1
    assert here.none_left(2.0)


def test_two_jobs_on_one_folder_share_its_trials_and_run_none_twice(jobs: Callable[[int, float], Jobs]) -> None:
    here = jobs(120, 0.05)
    both = here.start(), here.start()
    for job in both:
        here.finish(job)
    assert_recorded_once(here, 120)
    assert sorted(here.executed()) == list(range(120))
    shares = Counter(name for name, _ in here.lines("finished"))
    assert len(shares) == 2


def test_a_third_job_on_a_finished_folder_runs_nothing(jobs: Callable[[int, float], Jobs]) -> None:
    here = jobs(6, 0.0)
    for _ in range(2):
        here.finish(here.start())
    assert sorted(here.executed()) == list(range(6))


def test_workers_die_with_their_parent(jobs: Callable[[int, float], Jobs]) -> None:
    here = jobs(2, 30.0)
    job = here.start()
    here.wait_for_executions(WORKERS, job)
    assert len(here.living()) == 1 + 2 * WORKERS  # each with its reaper
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert here.none_left(2.0)
    assert here.lines("finished") == []
    assert here.in_flight() == WORKERS


def at_once(count: int, act: Callable[[int], object]) -> list[object]:
    """What so many threads get that all begin at the same moment; an error is what they got, too."""
    start, found = threading.Barrier(count), [object()] * count

    def begin(k: int) -> None:
        start.wait()
        try:
            found[k] = act(k)
        except Exception as error:
            found[k] = error

    threads = [threading.Thread(target=begin, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_many_jobs_may_make_the_run_folder_at_once(tmp_path: Path) -> None:
    for k in range(40):
        path = tmp_path / str(k)
        found = at_once(6, lambda _, path=path: RunFolder.create(path).path)  # type: ignore[misc]
        assert found == [path] * 6


# Claims.

CLAIM = """
import os, sys
from pathlib import Path
from tradewind.claims import Claims
from tradewind.folder import RunFolder
print(Claims(RunFolder(Path(sys.argv[1])), "edition", "dead").take(3), flush=True)
os._exit(0)  # without a word to those that come after
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def claims(folder: RunFolder, owner: str) -> Claims:
    return Claims(folder, "edition", owner)


def test_a_block_has_one_owner_while_that_lives(folder: RunFolder) -> None:
    first, second = claims(folder, "first"), claims(folder, "second")
    assert first.take(3) == 0
    assert second.take(3) is None
    assert first.take(3) == 0  # who owns it may ask again
    assert second.take(4) == 0
    assert first.take(4) is None


def test_the_block_of_a_dead_owner_passes_to_the_next_generation(folder: RunFolder) -> None:
    ran = subprocess.run([sys.executable, "-c", CLAIM, folder.path], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
    heir, other = claims(folder, "heir"), claims(folder, "other")
    assert heir.take(3) == 1
    assert other.take(3) is None


def test_the_block_of_an_owner_that_has_left_passes_on_at_once(folder: RunFolder) -> None:
    owners = [claims(folder, f"owner{k}") for k in range(4)]
    for generation, owner in enumerate(owners):
        assert owner.take(0) == generation
        owner.leave()


def test_of_many_heirs_one_gets_the_block(folder: RunFolder) -> None:
    gone = claims(folder, "gone")
    blocks = range(40)
    assert all(gone.take(block) == 0 for block in blocks)
    gone.leave()
    heirs = [claims(folder, f"heir{k}") for k in range(4)]
    taken = at_once(len(heirs), lambda k: [heirs[k].take(block) for block in blocks])
    for found in zip(*taken, strict=True):  # type: ignore[call-overload]
        assert sorted(found, key=str) == [1, None, None, None]


def rewrite(folder: RunFolder, owner: str, age_s: float = 0.0, **changes: object) -> None:
    """Change what an owner's file says and when it was last touched; its claims are links to the same file."""
    path = folder.owner(owner)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    os.utime(path, (time.time() - age_s, time.time() - age_s))


@pytest.mark.parametrize(
    ("changes", "age_s", "generation"),
    [
        ({"host": "elsewhere"}, 0.0, None),
        ({"host": "elsewhere"}, LEASE_S / 2, None),
        ({"host": "elsewhere"}, LEASE_S + 1, 1),
        ({}, LEASE_S + 1, None),  # of this host it is known that it lives
        ({"boot": "another one"}, 0.0, None),  # rebooted, or a cloned image of the same name: the lease decides
        ({"boot": "another one"}, LEASE_S + 1, 1),
        ({"namespace": "pid:[1]"}, 0.0, None),  # in a container, where its number is another one
        ({"namespace": "pid:[1]"}, LEASE_S + 1, 1),
        ({"started": 1.0}, 0.0, 1),  # its number now belongs to another process
    ],
)
def test_when_an_owner_counts_as_gone(
    folder: RunFolder, changes: dict[str, object], age_s: float, generation: int | None
) -> None:
    assert claims(folder, "old").take(0) == 0
    rewrite(folder, "old", age_s, **changes)
    assert claims(folder, "new").take(0) == generation


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_a_lease_is_measured_by_the_clock_of_the_file_system(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    for number, age_s in enumerate((LEASE_S / 2, LEASE_S + 2)):
        assert claims(folder, f"old{number}").take(number) == 0
        rewrite(folder, f"old{number}", age_s, host="elsewhere")
    ours = time.time
    monkeypatch.setattr(time, "time", lambda: ours() + ahead_s)
    monkeypatch.setattr(tradewind.claims, "_clocks", {})
    new = claims(folder, "new")
    assert [new.take(block) for block in (0, 1)] == [None, 1]


def test_an_owner_whose_sign_of_life_lies_in_the_future_is_gone_when_no_new_one_comes(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claims(folder, "old").take(0) == 0
    rewrite(folder, "old", -3600.0, host="elsewhere")
    new = claims(folder, "new")
    assert new.take(0) is None
    later = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: later() + LEASE_S / 2)
    assert new.take(0) is None
    rewrite(folder, "old", -3700.0, host="elsewhere")
    assert new.take(0) is None, "a new one has come"
    monkeypatch.setattr(time, "monotonic", lambda: later() + 2 * LEASE_S)
    assert new.take(0) == 1


def test_signs_of_life_come_whatever_the_job_is_doing(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tradewind.claims, "BEAT_S", 0.01)
    job = claims(folder, "busy")
    path = folder.owner("busy")
    os.utime(path, (0, 0))
    deadline = time.monotonic() + 10.0
    while not path.stat().st_mtime:
        assert time.monotonic() < deadline, "no sign of life"
        time.sleep(0.01)  # as a trial in the foreground, a slow search or a slow disk does
    job.leave()


def test_a_claim_that_can_not_be_read_is_left_alone_until_its_lease_ends(folder: RunFolder) -> None:
    assert claims(folder, "old").take(0) == 0
    folder.owner("old").write_text("")
    assert claims(folder, "new").take(0) is None
    os.utime(folder.owner("old"), (0, 0))
    assert claims(folder, "new").take(0) == 1


def test_another_edition_of_a_study_has_claims_of_its_own(folder: RunFolder) -> None:
    assert claims(folder, "old").take(0) == 0
    assert Claims(folder, "extended", "new").take(0) == 0


def test_a_job_on_an_extended_study_hands_out_nothing_while_one_of_the_older_study_lives(
    jobs: Callable[[int, float], Jobs],
) -> None:
    here = jobs(6, 1.0)
    older = here.start()
    here.wait_for_executions(WORKERS, older)
    words = [
        "run",
        "study.json",
        "--out",
        "run",
        "--workers",
        "2",
        "--set",
        "space.n=[0,1,2,3,4,5,6]",
        "--quiet",
    ]
    newer = subprocess.run(
        [str(TRADEWIND), *words], cwd=here.folder, capture_output=True, text=True, timeout=60, check=False
    )
    here.finish(older)
    assert newer.returncode == 0, newer.stderr
    assert sorted(here.executed()) == list(range(7)), "no trial ran twice"
    assert newer.stderr.startswith("tradewind: run: the study has changed since process ")
    assert newer.stderr.endswith(" began with it; waiting for the end of that job\n")
