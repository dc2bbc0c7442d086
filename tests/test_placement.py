"""Placement: who gets which cores and GPUs, and what this process may use at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, WriteStudy

from tradewind import machine
from tradewind.crew import Options, check_devices, local_places
from tradewind.errors import StudyError
from tradewind.pack import Place, Purpose, Seat
from tradewind.schedule.placement import apart, place
from tradewind.schedule.trials import Trials
from tradewind.study import Study

CORES = tuple(range(8))
GPUS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")


def hosts(count: int, cores: tuple[int, ...] = CORES, gpus: tuple[str, ...] = (), host: str = "h1") -> list[Seat]:
    """So many ranks on one host that all see the same."""
    return [Seat(host, cores, gpus)] * count


def gpus_of(found: list[Place | None]) -> list[tuple[str, ...] | None]:
    return [None if one is None else one.gpus for one in found]


def test_gpus_that_slurm_gave_to_single_ranks_stay_theirs() -> None:
    seats = [Seat("h1", CORES[2 * k : 2 * k + 2], (gpu,)) for k, gpu in enumerate(reversed(GPUS))]
    purposes: tuple[Purpose, ...] = ("tune", "time")
    for purpose in purposes:
        found = place(seats, purpose, on_gpus=True)
        assert gpus_of(found) == [("GPU-d",), ("GPU-c",), ("GPU-b",), ("GPU-a",)]
    # cores that differ already need no pinning
    assert place(seats, "tune", on_gpus=True) == [Place(2, (), (gpu,)) for gpu in reversed(GPUS)]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (1, [GPUS]),
        (2, [("GPU-a", "GPU-b"), ("GPU-c", "GPU-d")]),
        (3, [("GPU-a",), ("GPU-b",), ("GPU-c", "GPU-d")]),
        (4, [(gpu,) for gpu in GPUS]),
        (8, [(gpu,) for gpu in GPUS] * 2),
    ],
)
def test_a_pool_of_gpus_is_dealt_out(ranks: int, expected: list[tuple[str, ...]]) -> None:
    found = place(hosts(ranks, gpus=GPUS), "tune", on_gpus=True)
    assert gpus_of(found) == expected
    assert all(one is not None and one.threads == 8 // ranks for one in found if ranks != 3)
    dealt = [core for one in found if one for core in one.cores or CORES]
    assert sorted(dealt) == list(CORES)


def test_to_time_nobody_shares_a_gpu_and_those_that_would_stay_idle() -> None:
    found = place(hosts(8, gpus=GPUS), "time", on_gpus=True)
    assert gpus_of(found) == [*[(gpu,) for gpu in GPUS], None, None, None, None]
    # the cores of the idle ones serve those that work
    assert [one and one.cores for one in found[:4]] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [one and one.threads for one in found[:4]] == [2, 2, 2, 2]
    assert gpus_of(place(hosts(4, gpus=GPUS), "time", on_gpus=True)) == [(gpu,) for gpu in GPUS]


def test_to_time_on_a_host_without_gpus_one_rank_gets_all_its_cores() -> None:
    assert place(hosts(4), "time", on_gpus=True) == [Place(8), None, None, None]
    bound = [Seat("h1", CORES[2 * k : 2 * k + 2]) for k in range(4)]
    assert place(bound, "time", on_gpus=True) == [Place(8, CORES), None, None, None]


def test_to_time_on_a_host_without_gpus_as_many_ranks_work_as_train_one_network_together() -> None:
    assert place(hosts(4), "time", on_gpus=True, devices=2) == [Place(4, CORES[:4]), Place(4, CORES[4:]), None, None]
    both = place([*hosts(2, host="h1"), *hosts(2, host="h2")], "time", on_gpus=True, devices=3)
    assert [one and one.threads for one in both] == [4, 4, 4, 4]
    # where there are GPUs, they are the devices
    assert gpus_of(place(hosts(4, gpus=GPUS[:2]), "time", True, devices=3)) == [("GPU-a",), ("GPU-b",), None, None]


def test_two_on_one_gpu_can_not_train_one_network_together() -> None:
    assert apart(place(hosts(8, gpus=GPUS), "tune", on_gpus=True)) == 4
    assert apart(place(hosts(3, gpus=GPUS), "time", on_gpus=True)) == 3
    assert apart(place(hosts(4), "time", on_gpus=True, devices=2)) == 2


def test_hosts_are_placed_each_by_itself() -> None:
    seats = [*hosts(2, gpus=GPUS[:2], host="h1"), *hosts(2, cores=CORES[:4], host="h2")]
    found = place(seats, "tune", on_gpus=True)
    assert gpus_of(found) == [("GPU-a",), ("GPU-b",), (), ()]
    assert found[2:] == [Place(2, (0, 1)), Place(2, (2, 3))]
    timed = place([*hosts(2, host="h1"), *hosts(2, host="h2")], "time", on_gpus=True)
    assert timed == [Place(8), None, Place(8), None]


def test_ranks_of_two_hosts_never_get_a_gpu_of_the_other() -> None:
    mine, theirs = ("GPU-a", "GPU-b"), ("GPU-x", "GPU-y")
    seats = [Seat("h1", CORES, mine), Seat("h2", CORES, theirs)] * 2  # as --map-by node starts them
    assert gpus_of(place(seats, "tune", on_gpus=True)) == [("GPU-a",), ("GPU-x",), ("GPU-b",), ("GPU-y",)]


def test_nobody_gets_a_gpu_or_core_that_it_does_not_see() -> None:
    near, far = Seat("h1", CORES[:4], GPUS[:2]), Seat("h1", CORES[4:], GPUS[2:])
    seats = [near, far, near, far]  # Slurm deals tasks to sockets in turn, --gpu-bind=closest shows them what is near
    found = place(seats, "tune", on_gpus=True)
    assert gpus_of(found) == [("GPU-a",), ("GPU-c",), ("GPU-b",), ("GPU-d",)]
    assert [one and one.cores for one in found] == [(0, 1), (4, 5), (2, 3), (6, 7)]
    blind = [*hosts(2, gpus=GPUS[:2]), *hosts(1)]
    assert gpus_of(place(blind, "tune", on_gpus=True)) == [("GPU-a",), ("GPU-b",), ()]


def test_cores_that_the_launcher_gave_to_single_ranks_stay_theirs() -> None:
    seats = [Seat("h1", (0, 1, 2)), Seat("h1", (3,)), Seat("h1", (4, 5))]
    assert place(seats, "tune", on_gpus=True) == [Place(3), Place(1), Place(2)]


def test_cores_that_all_see_are_dealt_out_and_pinned() -> None:
    assert place(hosts(1), "tune", on_gpus=True) == [Place(8)]
    assert place(hosts(2), "tune", on_gpus=True) == [Place(4, (0, 1, 2, 3)), Place(4, (4, 5, 6, 7))]
    odd = place(hosts(3), "tune", on_gpus=True)
    assert sorted(core for one in odd if one for core in one.cores) == list(CORES)


def test_more_ranks_than_cores_get_one_thread_and_are_not_pinned() -> None:
    assert place(hosts(5, cores=(0, 1)), "tune", on_gpus=True) == [Place(1)] * 5


def test_a_study_without_networks_gets_no_gpus() -> None:
    found = place(hosts(2, gpus=GPUS), "tune", on_gpus=False)
    assert gpus_of(found) == [(), ()]


# What there is.

ONE = "GPU-1a2b, NVIDIA H200"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
    """Puts a program in the place of nvidia-smi, which answers and exits as told."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(answer: str, code: int = 0) -> None:
        program = tmp_path / "nvidia-smi"
        check = '[ "$*" = "--query-gpu=uuid,name --format=csv,noheader" ] || exit 9'
        program.write_text(f"#!/bin/sh\n{check}\ncat <<'ANSWER'\n{answer}\nANSWER\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        machine._gpus.cache_clear()

    yield install
    machine._gpus.cache_clear()


FOUR = "GPU-1a2b, NVIDIA H200\nGPU-3c4d, NVIDIA H200\nGPU-5e6f, NVIDIA A100, 80 GB\nGPU-7a8b, NVIDIA H200"
ALL = ("GPU-1a2b", "GPU-3c4d", "GPU-5e6f", "GPU-7a8b")


def test_the_driver_tells_which_gpus_there_are(driver: Callable[..., None]) -> None:
    driver(FOUR)
    assert machine.gpu_ids() == ALL
    assert machine.gpus() == ("NVIDIA H200", "NVIDIA H200", "NVIDIA A100, 80 GB", "NVIDIA H200")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("", ()),
        ("-1", ()),
        ("0", ALL[:1]),
        ("2,0", (ALL[2], ALL[0])),
        (" 1 , 3 ", (ALL[1], ALL[3])),
        ("GPU-3c4d", (ALL[1],)),
        ("GPU-5,GPU-1", (ALL[2], ALL[0])),  # CUDA takes the beginning of a name, too
        ("1,-1,0", (ALL[1],)),  # CUDA sees none of those behind one that is not there
        ("7", ()),
    ],
)
def test_what_cuda_may_see_is_what_is_used(
    driver: Callable[..., None], monkeypatch: pytest.MonkeyPatch, visible: str, expected: tuple[str, ...]
) -> None:
    driver(FOUR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.gpu_ids() == expected


def test_a_driver_without_gpus_or_that_does_not_work_has_none(driver: Callable[..., None]) -> None:
    driver("No devices were found")
    assert machine.gpu_ids() == ()
    driver("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver, alas", 9)
    assert machine.gpu_ids() == ()
    driver(FOUR, 3)
    assert machine.gpu_ids() == ()


# Devices of one network, against what there is.


def trials_on(*devices: int, purpose: Purpose = "tune", device: str = "auto", repeats: int = 1) -> Trials:
    return Trials(
        Study(
            name="devices", workload="storm", purpose=purpose, space={"devices": list(devices)},
            fixed={"device": device}, repeats=repeats,
        )
    )  # fmt: skip


def refused(trials: Trials, **options: Any) -> str:
    with pytest.raises(StudyError) as caught:
        check_devices(trials, Options(**options), None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_on_cpus_there_are_at_least_as_many_places_as_devices(driver: Callable[..., None]) -> None:
    driver("No devices were found")
    cores = machine.cores()
    for devices in (2, 3):
        for purpose in ("tune", "time"):
            check_devices(trials_on(1, devices, purpose=purpose), Options(), None)
        # all devices of a study are the same, also where a trial takes one of them
        timed = local_places(trials_on(1, devices, purpose="time", repeats=9), None)
        assert timed == [Place(max(1, cores // devices))] * devices
        assert len(local_places(trials_on(devices), None)) == devices
    assert local_places(trials_on(1, 2, repeats=9), 5) == [Place(max(1, cores // 5))] * 5
    assert len(local_places(trials_on(1, purpose="time", repeats=9), None)) == 1


def test_more_devices_than_gpus_are_refused_unless_processes_stand_in_for_them(driver: Callable[..., None]) -> None:
    driver(ONE)
    assert refused(trials_on(1, 4)) == (
        "devices: 4, but this host has 1 GPU; run it where there are 4, or let processes stand in for them "
        "by --set fixed.device=cpu"
    )
    check_devices(trials_on(1), Options(), None)
    check_devices(trials_on(1, 4, device="cpu"), Options(), None)
    assert (
        local_places(trials_on(1, 4, device="cpu", purpose="time"), None) == [Place(max(1, machine.cores() // 4))] * 4
    )
    driver(FOUR)
    check_devices(trials_on(1, 4), Options(), None)
    assert "has 4 GPUs" in refused(trials_on(5))
    assert [one.gpus for one in local_places(trials_on(4), None)] == [(gpu,) for gpu in ALL]


def test_several_devices_need_an_engine_with_as_many_workers(driver: Callable[..., None]) -> None:
    driver("No devices were found")
    both = trials_on(1, 2)
    for engine in ("serial", "dask"):
        line = f"devices: 2 needs --engine processes or mpi; {engine} trains a network on one device"
        assert refused(both, engine=engine) == line
    assert refused(both, workers=1) == "--workers 1: devices: 2 needs 2 workers or more"
    check_devices(both, Options(workers=2), None)
    check_devices(trials_on(1), Options(engine="serial", workers=1), None)


def test_a_driver_that_hangs_is_survived_and_said(
    command: Cli, write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "nvidia-smi"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "DRIVER_S", 0.2)
    for known in (machine._gpus, machine.facts, machine.name):
        known.cache_clear()
    write_study({"name": "s", "workload": "work:f", "space": {"x": [1]}}, "def f(config):\n    return 1.0\n")
    try:
        answer = command("run", "study.json", "--out", "run", "--engine", "serial", "--quiet")
    finally:
        for known in (machine._gpus, machine.facts, machine.name):
            known.cache_clear()
    assert answer.returncode == 0
    assert answer.stderr == "tradewind: nvidia-smi gives no answer within 0.2 s: going on without it\n"
