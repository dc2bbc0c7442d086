"""Gangs: several workers train one network; they are kept, they fail as one, and they leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_mpi import AS_ROOT_ON_FEW_CORES, HOST_SHELL, MARK, MPIEXEC, hosts, needs_mpi  # noqa: F401

from tradewind import machine
from tradewind.crew import local_places
from tradewind.engine import Ended, Epoch, Lost, Waiting
from tradewind.engine.gang import Answer, Gangs
from tradewind.engine.processes import Processes
from tradewind.machine import core_numbers
from tradewind.occupancy import Turn
from tradewind.pack import Limits, Pack, Place, Purpose, Task, Trial
from tradewind.schedule.packing import Packing
from tradewind.schedule.trials import Trials
from tradewind.study import Study

# Members add up a number each, at every epoch; who waits for one that is not there waits for ever.
TRAINER = """
import json, os, signal, socket, subprocess, sys, time
from tradewind.pack import Outcome

class Adding:
    def __init__(self, task):
        self.met, self.links = "", []

    def meet(self):
        self.door = socket.create_server(("", 0))
        return f"somewhere:{self.door.getsockname()[1]}"

    def fit(self, pack, report, tell):
        [trial], gang = pack.trials, pack.gang
        rank, of = (gang.rank, gang.of) if gang else (0, 1)
        if gang and gang.meeting != self.met:
            host, port = gang.meeting.split(":")
            if rank:
                self.links = [socket.create_connection((host, int(port))).makefile("rw")]
            else:
                self.links = [self.door.accept()[0].makefile("rw") for _ in range(1, of)]
            self.met = gang.meeting
        links = self.links if gang else []
        for epoch in range(1, trial.config.get("epochs", 1) + 1):
            if trial.config.get("at", rank) == rank and epoch == trial.config.get("epochs", 1):
                globals()[trial.config.get("do", "nothing")]()
            found = self.added(links, rank, [rank + 1, [os.getpid()]])
            report(trial.key, epoch, {"total": found[0]})
        print("said by", rank)
        facts = {"pids": found[1], "meeting": gang.meeting if gang else ""}
        return [Outcome(trial.key, "done", scores={"total": found[0]}, facts=facts)]

    def added(self, links, rank, mine):
        if rank:
            self.say(links[0], mine)
            return self.heard(links[0])
        for link in links:
            total, pids = self.heard(link)
            mine = [mine[0] + total, mine[1] + pids]
        for link in links:
            self.say(link, mine)
        return mine

    def say(self, link, what):
        link.write(json.dumps(what) + "\\n")
        link.flush()

    def heard(self, link):
        if not (line := link.readline()):
            raise ConnectionError("a member is not there any more")
        return json.loads(line)

class Placeless(Adding):
    def meet(self):
        raise OSError("no port is left")

def nothing(): pass
def naps(): time.sleep(0.15)
def sleeps(): time.sleep(60)
def raises(): raise ValueError("a bad number")
def leaves(): os._exit(3)
def is_killed():
    subprocess.Popen(["sleep", "60"])
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Crew:
    """Engines of one test, and what they have told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: list[Processes] = []
        self.mark = uuid.uuid4().hex
        self.ended: dict[int, Ended] = {}
        self.epochs: list[Epoch] = []
        self._count = 0

    def engine(
        self, workers: int, purpose: Purpose = "tune", timeout_s: float | None = None, trainer: str = "Adding"
    ) -> Processes:
        """Processes with a trainer of these tests."""
        task = Task("", "", {}, purpose, Limits(timeout_s=timeout_s), str(self.folder), str(self.folder))
        name = f"gangs-{len(self.engines)}"
        self.engines.append(Processes(f"adding:{trainer}", task, [Place()] * workers, self.folder, name))
        return self.engines[-1]

    def pack(self, **config: Any) -> Pack:
        """A trial of its own."""
        self._count += 1
        return Pack((Trial(self._count, 0, f"key{self._count}", config, 0, 0),))

    def trained(self, engine: Processes, slots: int, **config: Any) -> Ended:
        """Train one trial to its end."""
        pack = self.pack(**config)
        assert engine.free() > 0
        engine.submit(pack, slots)
        self.poll_until(lambda: pack.trials[0].trial in self.ended)
        return self.ended[pack.trials[0].trial]

    def poll_until(self, holds: Callable[[], bool], within_s: float = 20.0) -> None:
        """Listen to all engines in turn."""
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, "nothing happens any more"
            for engine in self.engines:
                for event in engine.poll(0.05 / len(self.engines)):
                    if isinstance(event, Ended):
                        self.ended[event.pack.trials[0].trial] = event
                    else:
                        assert isinstance(event, Epoch | Waiting)
                        self.epochs.append(event)

    def living(self) -> list[int]:
        """Workers of these engines, and all that they have started."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if (
                    process.environ().get(MARK) == self.mark
                    and process.pid != os.getpid()
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process.pid)
        return found


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    (tmp_path / "adding.py").write_text(TRAINER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TRADEWIND_LOCKS", str(tmp_path / "locks"))  # turns of this test alone
    found = Crew(tmp_path)
    monkeypatch.setenv(MARK, found.mark)
    yield found
    for engine in found.engines:
        engine.close()
    assert found.living() == []


def facts(event: Ended) -> dict[str, Any]:
    assert [outcome.state for outcome in event.outcomes] == ["done"], event.outcomes
    return event.outcomes[0].facts


def cause(event: Ended) -> str:
    assert [outcome.state for outcome in event.outcomes] == ["failed"]
    assert event.outcomes[0].reason == event.outcomes[0].error["what"]
    return event.outcomes[0].reason


def test_a_gang_trains_and_is_kept_for_the_next_trial_of_its_size(crew: Crew) -> None:
    engine = crew.engine(3)
    first = crew.trained(engine, 2, epochs=4)
    assert first.outcomes[0].scores == {"total": 3}
    assert first.pack.gang is None
    assert len(set(facts(first)["pids"])) == 2
    # one member speaks for all, in the log as well
    assert [(epoch.worker, epoch.epoch) for epoch in crew.epochs] == [(0, n) for n in (1, 2, 3, 4)]
    text = (crew.folder / first.log["file"]).read_bytes()[first.log["from"] : first.log["to"]]
    assert text == b"said by 0\n"
    assert facts(crew.trained(engine, 1))["pids"][0] in facts(first)["pids"]
    again = crew.trained(engine, 2)
    assert facts(again) == facts(first)
    # a gang of another size meets elsewhere, in processes that are there already
    three = crew.trained(engine, 3)
    assert three.outcomes[0].scores == {"total": 6}
    assert set(facts(three)["pids"]) > set(facts(first)["pids"])
    assert facts(three)["meeting"] != facts(first)["meeting"]
    assert facts(crew.trained(engine, 3)) == facts(three)
    assert len(crew.living()) == 2 * 3  # each with its reaper


def test_two_gangs_train_side_by_side_and_both_are_kept(crew: Crew) -> None:
    engine = crew.engine(4)
    met = []
    for _ in range(2):
        packs = [crew.pack(do="naps") for _ in range(2)]
        for pack in packs:
            assert engine.free() > 0
            engine.submit(pack, 2)
        assert engine.free() == 0
        crew.poll_until(lambda packs=packs: all(p.trials[0].trial in crew.ended for p in packs))  # type: ignore[misc]
        met.append(sorted(tuple(facts(crew.ended[p.trials[0].trial])["pids"]) for p in packs))
    assert met[0] == met[1]
    assert len({pid for pids in met[0] for pid in pids}) == 4


def test_small_and_large_trials_mix_and_none_is_overtaken_for_ever(crew: Crew) -> None:
    engine = crew.engine(2)
    sizes = [1, 2, 1, 1, 2, 2, 1, 1, 1, 2, 1, 2]
    packs = [(crew.pack(do="naps" if size == 1 else "nothing"), size) for size in sizes]
    left = iter(packs)

    def go_on() -> bool:
        while engine.free() and (following := next(left, None)):
            engine.submit(*following)
            if following[1] == 2:
                assert engine.free() == 0  # those that come later do not go before it
        return len(crew.ended) == len(packs)

    crew.poll_until(go_on)
    assert [crew.ended[number].outcomes[0].scores["total"] for number in range(1, 13)] == [
        3 if size == 2 else 1 for size in sizes
    ]
    starts = [crew.ended[number].started for number in range(1, 13)]
    for k, size in enumerate(sizes):
        assert size == 1 or all(starts[k] < later for later in starts[k + 1 :])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_member_fails_the_trial_with_the_cause_and_leaves_nothing(crew: Crew, victim: int) -> None:
    engine = crew.engine(2)
    before = facts(crew.trained(engine, 2))
    began = time.monotonic()
    event = crew.trained(engine, 2, epochs=3, do="is_killed", at=victim)
    assert time.monotonic() - began < 5.0
    assert cause(event) == f"device {victim} of 2: the worker died of SIGKILL (out of memory?)"
    assert event.outcomes[0].error["signal"] == "SIGKILL"
    assert crew.living() == []
    after = facts(crew.trained(engine, 2))
    assert set(after["pids"]).isdisjoint(before["pids"])


def test_a_member_that_ends_or_raises_is_named_and_the_others_do_not_wait_for_it(crew: Crew) -> None:
    engine = crew.engine(3)
    began = time.monotonic()
    raised = crew.trained(engine, 3, do="raises", at=2)
    assert cause(raised) == "device 2 of 3: ValueError: a bad number"
    assert 'raise ValueError("a bad number")' in raised.outcomes[0].error["traceback"]
    assert crew.living() == []
    ended = crew.trained(engine, 3, do="leaves", at=1)
    assert cause(ended) == "device 1 of 3: the worker ended with exit code 3"
    assert time.monotonic() - began < 10.0
    assert facts(crew.trained(engine, 3))["meeting"]


def test_a_gang_without_a_meeting_place_fails_and_single_trials_go_on(crew: Crew) -> None:
    engine = crew.engine(2, trainer="Placeless")
    assert cause(crew.trained(engine, 2)) == "device 0 of 2: OSError: no port is left"
    assert len(facts(crew.trained(engine, 1))["pids"]) == 1
    broken = crew.engine(2, trainer="Nobody")
    assert "has no attribute 'Nobody'" in cause(crew.trained(broken, 2))


def test_a_gang_that_overruns_is_ended_at_its_timeout(crew: Crew) -> None:
    engine = crew.engine(2, timeout_s=0.5)
    event = crew.trained(engine, 2, do="sleeps", at=1)
    assert cause(event) == "timeout: ran longer than 0.5 s"
    assert 0.4 < event.finished - event.started < 2.5
    assert crew.living() == []
    assert facts(crew.trained(engine, 2))["meeting"]


def test_a_gang_whose_member_died_while_idle_meets_anew(crew: Crew) -> None:
    engine = crew.engine(2)
    first = facts(crew.trained(engine, 2))
    os.kill(first["pids"][1], signal.SIGKILL)
    assert engine.poll(5.0) == []  # it notices
    second = facts(crew.trained(engine, 2))
    assert second["pids"][0] == first["pids"][0]
    assert second["meeting"] != first["meeting"]
    # and so it does after a trial of its own has cost one its life
    assert "SIGKILL" in cause(crew.trained(engine, 1, do="is_killed"))
    third = facts(crew.trained(engine, 2))
    assert third["meeting"] != second["meeting"]
    assert len({*third["pids"]} & {*second["pids"]}) == 1


def test_gangs_that_tune_and_gangs_that_time_take_turns_on_a_host(crew: Crew) -> None:
    timed, tuned, others = crew.engine(2, "time"), crew.engine(2, "tune"), crew.engine(1, "tune")
    for engine, slots, purpose in ((timed, 2, "time"), (tuned, 2, "tune"), (others, 1, "tune")):
        crew.trained(engine, slots, purpose=purpose)  # all are set up, so that they meet
    crew.ended.clear()
    plan = [
        *[(timed, 2, "time"), (timed, 1, "time")] * 3,
        *[(tuned, 2, "tune")] * 6,
        *[(others, 1, "tune")] * 6,
    ]
    left = {engine: [step for step in plan if step[0] is engine] for engine in crew.engines}

    def go_on() -> bool:
        for engine, steps in left.items():
            while steps and engine.free():
                _, slots, purpose = steps.pop(0)
                engine.submit(crew.pack(do="naps", purpose=purpose), slots)
        return len(crew.ended) == len(plan)

    crew.poll_until(go_on)
    spans = [(event.started, event.finished, event.pack.trials[0].config["purpose"]) for event in crew.ended.values()]
    assert {outcome.state for event in crew.ended.values() for outcome in event.outcomes} == {"done"}
    for start, end, purpose in spans:
        if purpose == "time":
            assert sum(a < end and start < b for a, b, _ in spans) == 1


def test_to_time_on_cpus_single_trials_run_one_at_a_time_on_the_same_worker(crew: Crew) -> None:
    engine = crew.engine(3, "time", timeout_s=5.0)
    gang = facts(crew.trained(engine, 3))
    assert engine.free() == 1
    assert {facts(crew.trained(engine, 1, do="naps"))["pids"][0] for _ in range(2)} == {gang["pids"][0]}


@pytest.mark.parametrize("slots", [1, 2])
def test_waiting_for_a_turn_does_not_count_against_a_timeout(
    crew: Crew, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = crew.engine(2, timeout_s=0.4)
    crew.trained(engine, slots)
    turn = Turn([f"core-{number}" for number in core_numbers()], alone=True)
    with turn:
        engine.submit(crew.pack(), slots)
        until = time.monotonic() + 0.8
        crew.poll_until(lambda: time.monotonic() > until)
        assert 2 not in crew.ended
    crew.poll_until(lambda: 2 in crew.ended)
    assert facts(crew.ended[2])["pids"] == facts(crew.ended[1])["pids"]


class Ranks:
    """Workers that a test speaks for."""

    def __init__(self, count: int) -> None:
        self.alive = list(range(count))
        self.asked: list[tuple[int, str]] = []

    def living(self) -> list[int]:
        return self.alive

    def idle(self, number: int) -> bool:
        return True

    def seat(self, number: int) -> tuple[str, tuple[str, ...]]:
        return "host", ()

    def ask(self, number: int, word: str, *content: Any) -> None:
        self.asked.append((number, word))

    def give(self, number: int, pack: Pack) -> None:
        raise AssertionError("none is ready")

    def drop(self, number: int) -> None:
        pass


def test_a_gang_does_not_wait_for_a_rank_that_was_lost_together_with_its_last_gang(crew: Crew) -> None:
    ranks = Ranks(5)
    gangs = Gangs(ranks, 0.5)
    first, second = crew.pack(), crew.pack()
    gangs.submit(first, 4)  # 0 to 3
    gangs.submit(second, 3)  # waits for 0 to 2
    ranks.alive = [0, 3, 4]
    ranks.asked.clear()
    lost = gangs.heard([Answer(1, "lost"), Answer(2, "lost")])
    assert lost == [Lost(0, first)]
    assert ranks.asked == [(0, "meet"), (3, "gather"), (4, "gather")]
    # and here the one that it waits for is not the first of which is told
    ranks = Ranks(4)
    gangs = Gangs(ranks, 0.5)
    gangs.submit(first, 4)
    gangs.submit(second, 2)  # waits for 0 and 1
    ranks.alive = [2, 3]
    ranks.asked.clear()
    assert gangs.heard([Answer(3, "gone", {"what": "died"}), Answer(0, "lost"), Answer(1, "lost")])
    assert ranks.asked == [(2, "meet"), (3, "gather")]


def test_there_are_places_for_gangs_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    study = Study(
        name="s", workload="storm", space={"learning_rate": [0.1, 0.2]}, fixed={"devices": 2, "device": "cpu"}
    )
    assert local_places(Trials(study), None) == [Place(2)] * 4
    assert local_places(Trials(study), 3) == [Place(2)] * 3


def test_a_network_on_several_devices_is_never_packed_with_others() -> None:
    study = Study(name="s", workload="storm", space={"devices": [1, 2], "learning_rate": [0.1, 0.2, 0.3]})
    trials = Trials(study)
    packing, left = Packing(trials, 1), iter(range(trials.size))

    def draw() -> Trial | None:
        return next((trials[position] for position in left), None)

    found = []
    while pack := packing.next(draw):
        found.append((packing.slots(pack), len(pack.trials)))
    assert sorted(found) == [(1, 3), (2, 1), (2, 1), (2, 1)]


# Across ranks.

DRIVER = """
import json, os, pathlib, signal, sys, time
from tradewind.engine import Ended, Lost
from tradewind.engine.mpi import Mpi, follow
from tradewind.engine.world import World
from tradewind.pack import Limits, Pack, Task, Trial
from tradewind.schedule.placement import place

folder, steps = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
world = World()
if world.rank:
    (folder / f"rank{world.rank}").write_text(str(os.getpid()))
    world.hello()
    kind, *content = world.wait()
    if kind == "task":
        follow(world, content)
    world.leave()
    sys.exit()
purpose = sys.argv[3]
task = Task("", "", {}, purpose, Limits(timeout_s=20.0), str(folder), str(folder))
engine = Mpi(world, place(world.gather(), purpose, True, 3), "adding:Adding", task, folder, "ranks")
for number, (slots, config) in enumerate(steps):
    pack = Pack((Trial(number, 0, f"key{number}", config, 0, 0),))
    engine.submit(pack, slots)
    told, began = 0, time.monotonic()
    while told < 1:
        assert time.monotonic() - began < 30, "nothing happens any more"
        for event in engine.poll(0.1):
            if isinstance(event, Ended):
                [outcome] = event.outcomes
                about = [outcome.state, outcome.reason, outcome.scores, outcome.facts, event.where.get("rank", 0)]
                print(json.dumps([number, *about]), flush=True)
                told += 1
            elif isinstance(event, Lost):
                print(json.dumps([number, "lost", "", {}, {}, event.worker]), flush=True)
                assert event.pack == pack
                told += 1
            elif config.get("kill_rank"):
                os.kill(int((folder / f"rank{config['kill_rank']}").read_text()), signal.SIGKILL)
engine.close()
world.leave()
"""


def mpi(
    crew: Crew, steps: list[tuple[int, dict[str, Any]]], *launch: object, purpose: Purpose = "tune"
) -> list[list[Any]]:
    """What three ranks make of these trials, one after the other: number, state, reason, scores, facts, rank."""
    (crew.folder / "driver.py").write_text(DRIVER)
    command = [
        str(MPIEXEC),
        "--bind-to",
        "none",
        *map(str, launch),
        "-n",
        "3",
        sys.executable,
        "driver.py",
        str(crew.folder),
    ]
    answer = subprocess.run(
        [*command, json.dumps(steps), purpose], cwd=crew.folder, env={**os.environ, **AS_ROOT_ON_FEW_CORES},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    found = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("[")]
    assert len(found) == len(steps), answer.stdout + answer.stderr
    return found


@needs_mpi
def test_workers_of_ranks_form_gangs_that_are_kept_and_fail_as_one(crew: Crew) -> None:
    steps: list[tuple[int, dict[str, Any]]] = [
        (2, {}), (1, {}), (2, {"epochs": 3}), (2, {"do": "is_killed", "at": 1}), (3, {}),
    ]  # fmt: skip
    first, single, again, killed, three = mpi(crew, steps)
    assert [first[1], first[3], again[1], again[3]] == ["done", {"total": 3}, "done", {"total": 3}]
    assert again[4] == first[4]
    assert first[4]["meeting"].startswith("127.0.0.1:")
    assert single[3] == {"total": 1}
    assert killed[1:3] == ["failed", "device 1 of 2: the worker died of SIGKILL (out of memory?)"]
    assert killed[5] == 1
    assert three[3] == {"total": 6}
    assert {*three[4]["pids"]}.isdisjoint(first[4]["pids"])


@needs_mpi
def test_a_gang_that_loses_a_rank_loses_its_trial_which_others_can_train(crew: Crew) -> None:
    steps: list[tuple[int, dict[str, Any]]] = [
        (2, {}), (2, {"epochs": 2, "do": "sleeps", "at": 1, "kill_rank": 1}), (2, {}), (3, {}),
    ]  # fmt: skip
    first, lost, again, three = mpi(crew, steps, "--with-ft", "ulfm")
    assert first[1] == "done"
    assert lost[1] == "lost"
    assert again[3] == {"total": 3}
    assert {*again[4]["pids"]}.isdisjoint(first[4]["pids"])
    assert three[1:3] == ["failed", "devices: 3, but the run has 2 workers that could train together"]


@needs_mpi
def test_a_gang_over_two_hosts_meets_where_both_can_reach(crew: Crew, hosts: tuple[str, str]) -> None:  # noqa: F811
    shell = crew.folder / "host_shell"
    shell.write_text(HOST_SHELL)
    shell.chmod(0o755)
    steps: list[tuple[int, dict[str, Any]]] = [(2, {}), (3, {})]
    launch = ("--prtemca", "plm_ssh_agent", shell, "--host", f"{hosts[0]}:2,{hosts[1]}:1")
    two, three = mpi(crew, steps, *launch, purpose="time")
    assert two[3] == {"total": 3}
    assert two[4]["meeting"].startswith("127.0.0.1:")  # both are on the host with room for them
    assert three[3] == {"total": 6}
    assert not three[4]["meeting"].startswith("127.")
