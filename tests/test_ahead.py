"""Samples that stand in the training data more than once: balanced, and augmented ahead of time on disk."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tradewind
from tradewind.augment.affine import Augmentation, transform
from tradewind.errors import DataError, WorkloadError
from tradewind.machine import cores, one_thread
from tradewind.train import ahead, batches, recipe
from tradewind.train.ahead import Stored, checksum, stored
from tradewind.train.batches import Samples, TrainingBatches, balanced_rows, batches_of, prepared
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.recipe import Recipe
from tradewind.workloads.contract import Data, Split

WIND = ((1, 2),)
CPU = torch.device("cpu")
DEFAULTS = {name: known.default for name, known in TRAINING.items()}

Write = Callable[..., Path]
Cli = Callable[..., subprocess.CompletedProcess[str]]
Config = dict[str, Any]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of each test, small chunks, and one thread, since sums in parallel may round differently."""
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ahead, "CHUNK_BYTES", 64 << 10)
    monkeypatch.setattr(recipe, "PIECE_BYTES", 16 << 10)
    with one_thread():
        yield tmp_path / "cache"


def some_data(count: int = 200, side: int = 8, last: bool = True, seed: int = 0) -> Data:
    """Random fields with wind, one in ten positive."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, side, side, 3), np.float32)
    fields = np.moveaxis(inputs, 3, 1)
    targets = (np.arange(count) % 10 == 3).astype(np.float32)
    train = Split(fields if last else np.ascontiguousarray(fields), targets)
    return Data(train, None, Split(fields[:4], targets[:4]), WIND)


def config(**given: Any) -> Config:
    return {**DEFAULTS, "data_seed": 0, "batch_size": 64, **given}


def ahead_of_time(data: Data, **given: Any) -> Stored:
    found, _ = prepared(data, config(augment="pre", **given), CPU)
    assert isinstance(found, Stored)
    return found


def batches_from(split: Split, data: Data, chosen: Config, dtype: torch.dtype) -> TrainingBatches:
    return batches_of(Samples.of(split, CPU, dtype), isinstance(split, Stored), data, chosen)


def seen(data: Data, dtype: torch.dtype = torch.float32, **given: Any) -> TrainingBatches:
    chosen = config(**given)
    return batches_from(prepared(data, chosen, CPU)[0], data, chosen, dtype)


def whole_epoch(found: TrainingBatches, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
    pieces = list(found.epoch(epoch))
    return torch.cat([batch.inputs for batch in pieces]), torch.cat([batch.targets for batch in pieces])


# Balancing.


def tiny(count: int, positives: int) -> Data:
    """Samples of one number, their own position."""
    inputs = np.arange(count, dtype=np.float32).reshape(-1, 1, 1, 1)
    targets = np.zeros(count, np.float32)
    targets[np.linspace(0, count - 1, positives).astype(int)] = 1
    return Data(Split(inputs, targets), None, Split(inputs[:2], targets[:2]))


def test_nineteen_copies_of_positives_give_the_papers_number_of_samples() -> None:
    found = seen(tiny(76_377, 3_477), positive_copies=19, batch_size=10_000)
    inputs, targets = whole_epoch(found, 1)
    assert found.count == len(inputs) == 138_963
    assert targets.sum() == 19 * 3_477
    times = Counter(inputs.flatten().int().tolist())
    assert Counter(times.values()) == {1: 76_377 - 3_477, 19: 3_477}


@pytest.mark.parametrize("augment", ["none", "pre", "live"])
def test_copies_and_multiplier_multiply(augment: str) -> None:
    found = seen(some_data(), augment=augment, positive_copies=4, data_multiplier=3)
    targets = whole_epoch(found, 1)[1]
    assert found.count == len(targets) == 3 * (200 + 3 * 20)
    assert targets.sum() == 3 * 4 * 20


def test_rows_are_the_natural_order_and_then_the_positives() -> None:
    assert balanced_rows(np.array([0, 1, 0, 1]), 3).tolist() == [0, 1, 2, 3, 1, 3, 1, 3]
    assert balanced_rows(np.zeros(3), 5).tolist() == [0, 1, 2]


@pytest.mark.parametrize("augment", ["none", "live"])
def test_one_copy_is_the_stream_without_balancing(augment: str) -> None:
    data = some_data()
    found = seen(data, augment=augment, data_multiplier=2)
    inputs, targets = whole_epoch(found, 3)
    order = batches.epoch_order(400, 0, 3)
    expected = torch.from_numpy(np.array(data.train.inputs))[order % 200]
    if augment == "live":
        expected = transform(expected, order, 3, 0, Augmentation(), WIND)
    torch.testing.assert_close(inputs, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(targets, torch.from_numpy(data.train.targets)[order % 200])


def test_every_copy_of_a_positive_is_moved_in_its_own_way() -> None:
    data = some_data()
    inputs, _ = whole_epoch(seen(data, augment="live", positive_copies=3), 2)
    by_index = inputs[batches.epoch_order(240, 0, 2).argsort()]
    rows = torch.from_numpy(balanced_rows(data.train.targets, 3))
    natural = torch.from_numpy(np.array(data.train.inputs))
    expected = transform(natural[rows], torch.arange(240), 2, 0, Augmentation(), WIND)
    torch.testing.assert_close(by_index, expected, rtol=1e-5, atol=1e-5)
    assert (by_index[200:220] - by_index[220:]).abs().amax(dim=(1, 2, 3)).min() > 0.1


@pytest.mark.parametrize(
    ("targets", "what"),
    [
        (np.zeros((5, 2)), "targets of shape (5, 2)"),
        (np.arange(5), "targets other than 0 and 1"),
        (np.array([0.0, 0.5]), "targets other than 0 and 1"),
        (np.array([0.0, np.nan]), "targets other than 0 and 1"),
    ],
)
def test_only_targets_of_0_and_1_can_be_balanced(targets: Any, what: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        balanced_rows(targets, 19)
    assert str(refused.value).startswith(f"positive_copies: found 19, and {what}; only samples")
    assert len(balanced_rows(targets, 1)) == len(targets)


# What a store holds.


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_a_store_has_the_natural_samples_and_then_those_that_transform_gives_one_by_one(last: bool) -> None:
    data = some_data(last=last)
    found = ahead_of_time(data, data_multiplier=2, positive_copies=3, data_seed=7)
    rows = np.tile(balanced_rows(data.train.targets, 3), 2)
    assert len(found) == len(rows) == 480
    assert recipe.memory_order(found.inputs)[1] == last
    np.testing.assert_array_equal(found.inputs[:200], data.train.inputs)
    np.testing.assert_array_equal(found.targets, data.train.targets[rows])
    images = torch.from_numpy(np.array(data.train.inputs))
    for index in range(200, 480):
        source = int(rows[index])
        expected = transform(images[source : source + 1], torch.tensor([index]), 0, 7, Augmentation(), WIND)
        np.testing.assert_allclose(found.inputs[index], expected[0].numpy(), atol=1e-5)


def test_the_size_of_chunks_does_not_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    for size in (16 << 10, 64 << 10, 1 << 30):
        monkeypatch.setattr(ahead, "CHUNK_BYTES", size)
        monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / str(size)))
        found = ahead_of_time(some_data(), data_multiplier=3)
        contents.append(found.path.read_bytes())
        assert (len(notes(found)) == 1) == (size == 1 << 30)
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) == 600 * 8 * 8 * 3 * 4


def test_the_number_of_threads_does_not_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / str(threads)))
        found = ahead_of_time(some_data(), data_multiplier=3)
        contents.append(found.path.read_bytes())
        assert torch.get_num_threads() == threads
        assert [note["start"] for note in notes(found)] == sorted({note["start"] for note in notes(found)})
    assert contents[0] == contents[1]


def test_batches_from_a_store_are_those_of_the_same_samples_in_memory() -> None:
    data = some_data()
    found = ahead_of_time(data, data_multiplier=2)
    in_memory = Split(np.moveaxis(np.array(np.moveaxis(found.inputs, 1, -1)), -1, 1), found.targets)
    for dtype in (torch.float32, torch.float64):
        chosen = config(augment="pre", data_multiplier=2)
        mapped, plain = (batches_from(split, data, chosen, dtype) for split in (found, in_memory))
        assert mapped.samples.inputs.dtype == torch.float32
        for one, other in zip(whole_epoch(mapped, 1), whole_epoch(plain, 1), strict=True):
            assert one.dtype == other.dtype == dtype
            assert torch.equal(one, other)
            assert one.stride() == other.stride()


def test_a_store_is_named_by_what_its_samples_depend_on() -> None:
    data = some_data()
    given: list[Config] = [
        {}, {"data_multiplier": 2}, {"positive_copies": 2}, {"data_seed": 1}, {"zoom": 0.2}, {"vectors": "ignore"},
    ]  # fmt: skip
    paths = [ahead_of_time(data, **one).path for one in given]
    paths += [ahead_of_time(some_data(seed=1)).path, ahead_of_time(some_data(last=False)).path]
    assert len(set(paths)) == len(paths)
    assert ahead_of_time(some_data(), batch_size=7).path == paths[0]


def test_what_making_took_is_told_to_every_trial() -> None:
    data = some_data()
    first, second = (prepared(data, config(augment="pre", data_multiplier=2), CPU)[1] for _ in range(2))
    assert first == second
    assert first["prepare_s"] > 0
    assert first["prepare_bytes"] == 400 * 8 * 8 * 3 * 4
    assert first["prepare_mb_per_s"] == pytest.approx(first["prepare_bytes"] / 1e6 / first["prepare_s"])
    assert prepared(data, config(augment="live"), CPU)[1] == {"prepare_s": 0.0}


def test_a_store_is_brought_to_a_device_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ahead_of_time(some_data(), data_multiplier=2)
    monkeypatch.setattr(batches, "TO_DEVICE_BYTES", 100_000)  # 130 samples
    brought = batches._brought(found, CPU, torch.float64)
    assert brought.dtype == torch.float64
    np.testing.assert_array_equal(brought.numpy(), np.moveaxis(found.inputs, 1, -1))


@pytest.mark.gpu
def test_a_gpu_gets_the_samples_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ahead_of_time(some_data(), data_multiplier=2)
    monkeypatch.setattr(batches, "TO_DEVICE_BYTES", 100_000)
    samples = Samples.of(found, torch.device("cuda"), torch.float32)
    assert samples.inputs.is_cuda
    assert samples.stored is None
    index = torch.tensor([399, 0, 131, 130])
    np.testing.assert_array_equal(samples.rows(index.cuda()).cpu().numpy(), found.inputs[index.numpy()])


@pytest.mark.gpu
def test_a_gpu_makes_the_store_of_a_trial_on_it_and_moves_samples_as_a_cpu_does() -> None:
    data, chosen = some_data(), config(augment="pre", data_multiplier=3)
    by_cpu, by_gpu = (prepared(data, chosen, torch.device(name))[0] for name in ("cpu", "cuda"))
    assert isinstance(by_cpu, Stored)
    assert isinstance(by_gpu, Stored)
    assert by_cpu.path != by_gpu.path
    np.testing.assert_array_equal(by_gpu.inputs[:200], data.train.inputs)
    np.testing.assert_allclose(by_gpu.inputs, by_cpu.inputs, atol=2e-4)
    np.testing.assert_array_equal(by_gpu.targets, by_cpu.targets)


# Several processes, and their deaths.

MAKER = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from test_ahead import ahead, recipe, some_data, ahead_of_time
ahead.CHUNK_BYTES, recipe.PIECE_BYTES = 64 << 10, 16 << 10
last, how = int(sys.argv[1]), sys.argv[2]
write, writes = os.pwrite, 0

def cut(file, content, offset):
    global writes
    writes += 1
    if writes > last:
        write(file, content[:1000], offset)
        os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    return write(file, content, offset)

os.pwrite = cut
print(ahead_of_time(some_data(), data_multiplier=4).path, os.getpid(), flush=True)
"""


def maker(last: int = 10**9, how: str = "none") -> subprocess.Popen[str]:
    """A process that makes or opens the store of `some_data`, 4 times; may end in the middle of a later chunk."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    words = [sys.executable, "-c", MAKER, str(last), how]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)


def notes(found: Stored) -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = json.loads((found.path.parent / "manifest.json").read_bytes())["chunks"]
    return chunks


def makers(found: Stored) -> list[int]:
    """The process that made each chunk."""
    return [int(note["by"].rpartition(":")[2]) for note in notes(found)]


def test_of_processes_that_come_at_once_one_makes_the_store() -> None:
    processes = [maker() for _ in range(2)]
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert len({path for path, _ in answers}) == 1
    found = ahead_of_time(some_data(), data_multiplier=4)
    assert str(found.path) == answers[0][0]
    made_by = makers(found)
    assert len(set(made_by)) == 1
    assert made_by[0] in {int(pid) for _, pid in answers}
    assert [note["start"] for note in notes(found)] == sorted(note["start"] for note in notes(found))
    # who looks just before the store is complete has a turn after its maker, and finds nothing left to make
    assert len(notes(found)) == len({note["start"] for note in notes(found)})


def undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    with monkeypatch.context() as patch:
        patch.setenv("TRADEWIND_CACHE", str(tmp_path / "undisturbed"))
        return ahead_of_time(some_data(), data_multiplier=4).path.read_bytes()


def test_after_a_kill_whole_chunks_are_kept_and_the_rest_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = maker(4, "kill")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    found = ahead_of_time(some_data(), data_multiplier=4)
    assert makers(found) == [killed.pid] * 4 + [os.getpid()] * (len(notes(found)) - 4)
    assert len(notes(found)) > 6
    assert found.path.read_bytes() == undisturbed(tmp_path, monkeypatch)


def test_a_chunk_that_was_noted_and_lost_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = maker(4, "kill")
    killed.communicate(timeout=60)
    (folder,) = (tmp_path / "cache").iterdir()
    with open(folder / "samples.f32", "r+b") as file:
        file.seek(70_000)
        file.write(bytes(4096))  # as a power cut would leave it
    with open(folder / "chunks.jsonl", "ab") as file:
        file.write(b'\n{"start": 99')
    found = ahead_of_time(some_data(), data_multiplier=4)
    assert makers(found)[:5] == [killed.pid, os.getpid(), killed.pid, killed.pid, os.getpid()]
    assert found.path.read_bytes() == undisturbed(tmp_path, monkeypatch)


def test_one_that_waits_takes_over_from_a_maker_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = maker(3, "stop")
    os.waitpid(first.pid, os.WUNTRACED)
    (folder,) = (tmp_path / "cache").iterdir()
    second = maker()
    try:
        wait_for(lambda: len(list((folder / "owners").glob("*.json"))) == 2)
        assert second.poll() is None
        assert not (folder / "manifest.json").exists()
    finally:
        first.kill()
        first.communicate()
    second.communicate(timeout=60)
    found = ahead_of_time(some_data(), data_multiplier=4)
    assert makers(found) == [first.pid] * 3 + [second.pid] * (len(notes(found)) - 3)
    assert found.path.read_bytes() == undisturbed(tmp_path, monkeypatch)


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Damage.


def test_a_flipped_byte_is_found_and_that_chunk_made_anew(capsys: pytest.CaptureFixture[str]) -> None:
    found = ahead_of_time(some_data(), data_multiplier=4)
    before, content = notes(found), found.path.read_bytes()
    with open(found.path, "r+b") as file:
        file.seek(100_000)
        file.write(bytes([content[100_000] ^ 4]))
    again = ahead_of_time(some_data(), data_multiplier=4)
    assert again.path.read_bytes() == content
    assert f"1 of {len(before)} chunks are damaged" in capsys.readouterr().err
    after = notes(again)
    assert [old != new for old, new in zip(before, after, strict=True)].index(True) == 1
    assert before[:1] + before[2:] == after[:1] + after[2:]


@pytest.mark.parametrize("how", ["cut short", "no samples", "no manifest", "torn manifest", "empty manifest"])
def test_a_store_that_is_not_whole_is_mended(how: str) -> None:
    found = ahead_of_time(some_data(), data_multiplier=2)
    content, manifest = found.path.read_bytes(), found.path.parent / "manifest.json"
    if how == "cut short":
        os.truncate(found.path, 50_000)
    elif how == "no samples":
        found.path.unlink()
    elif how == "no manifest":
        manifest.unlink()
    else:
        manifest.write_bytes(manifest.read_bytes()[:100] if how == "torn manifest" else b"{}")
    assert ahead_of_time(some_data(), data_multiplier=2).path.read_bytes() == content


def test_a_store_cut_short_in_use_is_told_and_not_read_as_zeros() -> None:
    found = ahead_of_time(some_data(), data_multiplier=2)
    os.truncate(found.path, 50_000)
    with pytest.raises(DataError, match="was cut short while in use"):
        found.read(torch.tensor([1, 399]))


def test_a_checksum_sees_flips_swaps_and_lengths() -> None:
    content = np.random.default_rng(0).integers(0, 256, 300_003, np.uint8)
    known = {checksum(content), checksum(content[:-1]), checksum(content[:-8]), checksum(content[:0])}
    for place in (0, 150_000, 299_999, 300_002):
        other = content.copy()
        other[place] ^= 128
        known.add(checksum(other))
    swapped = content.copy()
    swapped[:4096], swapped[8192:12288] = content[8192:12288], content[:4096]
    assert len(known | {checksum(swapped)}) == 9


# A disk that is full.


def free_bytes(count: int) -> Callable[[Any], SimpleNamespace]:
    return lambda path: SimpleNamespace(total=count, used=0, free=count)


def test_no_room_is_told_before_anything_is_written(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", free_bytes(300_000))
    with pytest.raises(DataError) as refused:
        ahead_of_time(some_data(), data_multiplier=4)
    (folder,) = own_cache.iterdir()
    assert str(refused.value) == (
        f"{folder}: no room for samples augmented ahead of time: 0.000614 GB needed, 0.0003 GB free; set "
        "TRADEWIND_CACHE to a folder with more room, or augment live"
    )
    assert {path.name for path in folder.iterdir()} == {"claims", "owners"}
    monkeypatch.undo()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() or libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=1m"):
        pytest.skip("needs to mount a small file system")
    yield folder
    libc.umount2(os.fsencode(folder), 2)


def test_a_disk_that_fills_up_meanwhile_is_told_and_left_clean(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_CACHE", str(small_disk))
    monkeypatch.setattr(shutil, "disk_usage", free_bytes(10**9))
    with pytest.raises(DataError, match=r"no room for samples augmented ahead of time: 0\.00123 GB needed"):
        ahead_of_time(some_data(), data_multiplier=8)
    assert not [path for path in small_disk.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    small = ahead_of_time(some_data(), data_multiplier=2)  # what fits can still be made
    assert len(small) == 400


def test_a_quota_that_is_reached_is_no_room_either(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DataError, match="no room for samples"):
            ahead_of_time(some_data())
    assert not list(own_cache.rglob("samples.f32"))
    assert len(ahead_of_time(some_data())) == 200  # the one that failed does not keep its claim


def test_a_cache_that_is_no_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"samples can't be kept there \(.*Not a directory.*\); set TRADEWIND_CACHE"):
        ahead_of_time(some_data())


# Whole runs.

FIELDS = """
import numpy as np
from torch import nn
from tradewind import Data, Split

class Fields:
    metric = "validation_error"
    defaults = {}

    def data(self, config):
        rng = np.random.default_rng(config["data_seed"])
        parts = [np.moveaxis(rng.standard_normal((n, 32, 32, 3), np.float32), 3, 1) for n in (COUNT, 64, 64)]
        return Data(*(Split(part, np.linspace(0, 1, len(part), dtype=np.float32)) for part in parts), ((1, 2),))

    def model(self, config):
        return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 1), nn.Flatten(0))

    def loss(self, outputs, targets, config):
        return nn.functional.mse_loss(outputs, targets)

    def scores(self, outputs, targets):
        return {"error": nn.functional.mse_loss(outputs, targets).item()}
"""


def run(cli: Cli, path: Path, out: Path) -> list[dict[str, Any]]:
    answer = cli("run", path, "--out", out, "--workers", cores(), "--quiet")
    assert answer.returncode == 0, answer.stderr
    return list(tradewind.Results.load(out).records())


def test_four_times_the_samples_take_no_more_memory(tmp_path: Path, write_study: Write, cli: Cli) -> None:
    count, peaks = 6_144, {}
    for multiplier in (1, 4):
        fixed = {"augment": "pre", "data_multiplier": multiplier, "epochs": 1, "batch_size": 512}
        content = {"name": "fields", "workload": "work:Fields", "fixed": fixed}
        path = write_study(content, FIELDS.replace("COUNT", str(count)), tmp_path / str(multiplier))
        (record,) = run(cli, path, tmp_path / f"run{multiplier}")
        assert record["times"]["prepare_bytes"] == multiplier * count * 12_288
        peaks[multiplier] = record["peak_memory_bytes"]
    assert peaks[4] < 1.5 * peaks[1]
    assert peaks[4] - peaks[1] < 40e6  # loaded, it would take 3 × 75 MB more


def test_a_study_of_every_way_to_multiply_samples_is_done(tmp_path: Path, write_study: Write, cli: Cli) -> None:
    space = {"augment": ["none", "pre", "live"], "data_multiplier": [1, 2], "positive_copies": [1, 3]}
    fixed = {"epochs": 1, "filters": [2], "kernel": 1}
    data = {"train": 256, "validation": 32, "test": 32}
    path = write_study({"name": "ways", "workload": "storm", "data": data, "space": space, "fixed": fixed})
    records = run(cli, path, tmp_path / "run")
    assert [record["state"] for record in records] == ["done"] * 12
    sizes = set()
    for record in records:
        ways, times = record["config"], record["times"]
        assert (times["prepare_s"] > 0) == ("prepare_bytes" in times) == (ways["augment"] == "pre")
        if ways["augment"] == "pre":
            sizes.add((ways["data_multiplier"], ways["positive_copies"], times["prepare_bytes"]))
            assert times["prepare_mb_per_s"] == pytest.approx(times["prepare_bytes"] / 1e6 / times["prepare_s"])
    balanced = {size for multiplier, copies, size in sizes if (multiplier, copies) == (1, 3)}.pop()
    assert balanced > 256 * 12_288
    assert sizes == {
        (multiplier, copies, multiplier * (balanced if copies == 3 else 256 * 12_288))
        for multiplier in (1, 2)
        for copies in (1, 3)
    }


def test_targets_that_can_not_be_balanced_fail_before_training(tmp_path: Path, write_study: Write, cli: Cli) -> None:
    fixed = {"positive_copies": 19, "epochs": 1}
    content = {"name": "fields", "workload": "work:Fields", "fixed": fixed}
    path = write_study(content, FIELDS.replace("COUNT", "64"))
    cli("run", path, "--out", tmp_path / "run", "--workers", cores(), "--quiet")
    (record,) = tradewind.Results.load(tmp_path / "run").records()
    assert record["state"] == "failed"
    assert record["error"]["what"].startswith("WorkloadError: positive_copies: found 19, and targets other than 0")


def test_a_recipe_hashes_its_inputs_once() -> None:
    data = some_data()
    one = Recipe(data.train, np.arange(200), 1, Augmentation(), WIND, 0, CPU)
    first = one.name()
    data.train.inputs[:] = 0  # nobody does so: it only shows that they are not read again
    assert one.name() == first
    assert (
        Recipe(Split(data.train.inputs, data.train.targets), np.arange(200), 1, Augmentation(), WIND, 0, CPU).name()
        != first
    )
    assert stored(one).seconds > 0
