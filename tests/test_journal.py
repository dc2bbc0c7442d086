from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_results import record, write_run

from tradewind import Results
from tradewind.errors import JournalError, RunError
from tradewind.folder import RunFolder
from tradewind.journal import Journal, Reading, decode, encode, head

NAMES = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name not in {"crc", "v", "kind"})
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))
FIELDS = st.dictionaries(NAMES, VALUES, max_size=6)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def small(number: int) -> dict[str, Any]:
    parts = {"config": {}, "times": {}, "scores": {}, "last": {}, "reason": "", "started": 0.0}
    seeds = {"repeat": 0, "seed": 0, "data_seed": 0}
    about = {"key": record(number)["key"], "trial": number, "state": "done", "attempt": 1, "finished": float(number)}
    return {**about, **parts, **seeds}


def wait_for(journal: Journal, count: int, timeout_s: float = 10) -> list[int]:
    """The trials announced as durable, until there are so many."""
    found: list[int] = []
    end = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < end:
        found += [one["trial"] for one in journal.durable()]
        time.sleep(0.001)
    return found


@settings(deadline=None)
@given(st.sampled_from(["started", "epoch", "finished"]), FIELDS)
def test_what_is_encoded_is_decoded_again(kind: str, fields: dict[str, Any]) -> None:
    line = encode(kind, fields)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    found = decode(line)
    assert found is not None
    assert {name: value for name, value in found.items() if name != "crc"} == {"v": 1, "kind": kind, **fields}
    assert json.loads(line) == found


def test_a_line_is_json_that_begins_with_its_checksum() -> None:
    line = encode("started", {"key": "k", "trial": 3})
    assert line == b'{"crc":"d576e2c9","v":1,"kind":"started","key":"k","trial":3}\n'


def test_numbers_that_json_has_not_are_nothing() -> None:
    found = decode(encode("finished", {"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": -float("inf")}}))
    assert found is not None
    assert (found["a"], found["b"], found["c"]) == (None, [None, 1.0], {"d": None})


def test_text_that_is_no_unicode_is_kept_as_well_as_can_be() -> None:
    found = decode(encode("finished", {"reason": "no such file: \udcff.txt", "\udc80": 1}))
    assert found is not None
    assert found["reason"].startswith("no such file: ")
    assert found["reason"].endswith(".txt")


def test_every_flipped_bit_of_a_line_is_noticed() -> None:
    line = encode("finished", record(7))
    assert decode(line) is not None
    for place in range(len(line)):
        for bit in range(8):
            flipped = bytearray(line)
            flipped[place] ^= 1 << bit
            assert decode(bytes(flipped)) is None, (place, bit)


@settings(max_examples=150, deadline=None)
@given(FIELDS, st.data())
def test_any_changed_byte_is_noticed(fields: dict[str, Any], data: st.DataObject) -> None:
    line = bytearray(encode("finished", fields))
    place = data.draw(st.integers(0, len(line) - 1))
    line[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    assert decode(bytes(line)) is None


@settings(deadline=None)
@given(st.binary())
def test_no_bytes_upset_the_decoder(line: bytes) -> None:
    assert decode(line) is None
    assert decode(line + b"\n") is None


def test_a_line_of_another_version_is_not_taken() -> None:
    assert decode(encode("finished", {"v": 0})) is None
    with pytest.raises(RunError, match=r"version 2; this Tradewind reads version 1: take a newer one"):
        decode(encode("finished", {"v": 2}))


def test_a_flipped_byte_anywhere_in_a_journal_costs_one_record_and_is_reported(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=[record(0), record(1), record(2)])
    journal = RunFolder(path).journal("a")
    whole = journal.read_bytes()
    length = len(encode("finished", record(0)))
    end = length + len(encode("finished", record(1)))
    for place in [*range(length, length + 60), *range(length + 60, end - 1, 23)]:
        damaged = bytearray(whole)
        damaged[place] ^= 0x04
        journal.write_bytes(damaged)
        results = Results.load(path)
        assert results.items("trial") == [0, 2], place - length
        assert results.skipped_lines >= 1, place - length


def test_a_torn_last_line_is_not_read_until_it_is_whole(folder: RunFolder) -> None:
    path = folder.journal("a")
    first, second = encode("finished", small(1)), encode("finished", small(2))
    path.write_bytes(first + second[:-20])
    reading = Reading(path)
    assert [one["trial"] for _, one in reading.lines()] == [1]
    assert (reading.at, reading.bad) == (len(first), 0)
    path.write_bytes(first + second)
    assert [(offset, one["trial"]) for offset, one in reading.lines()] == [(len(first), 2)]
    assert list(reading.lines()) == []


def test_nothing_is_glued_to_a_torn_line(folder: RunFolder) -> None:
    torn = encode("finished", small(1)) + encode("finished", small(2))[:-20]
    folder.journal("mine").write_bytes(torn)
    journal = Journal(folder, "mine")
    journal.finished(small(3), [])
    assert wait_for(journal, 1) == [3]
    journal.close()
    assert folder.journal("mine").read_bytes() == torn
    results = Results.load(folder.path)
    assert sorted(results.items("trial")) == [1, 3]
    assert results.skipped_lines == 1


def test_each_owner_writes_a_journal_of_its_own_and_the_curves_beside_it(folder: RunFolder) -> None:
    for owner, number in (("one", 1), ("two", 2)):
        journal = Journal(folder, owner)
        journal.started({"key": small(number)["key"], "trial": number})
        journal.epoch({"key": small(number)["key"], "epoch": 1, "scores": {"loss": 0.5}})
        journal.finished(small(number), [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
        journal.close()
        lines = [one for _, one in Reading(folder.journal(owner)).lines()]
        assert [line["kind"] for line in lines] == ["started", "epoch", "finished"]
    results = Results.load(folder.path)
    assert results.items("trial") == [1, 2]
    assert results.curve(small(2)["key"]) == [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]
    assert results.curve("0" * 32) == []


def test_a_record_is_synced_with_its_curve_before_it_is_announced(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[str, bytes] = {}
    sync = os.fsync

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        content = path.read_bytes() if path.is_file() else b""
        time.sleep(0.002)
        sync(handle)
        synced[path.parent.name] = content

    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(folder, "mine")
    announced = 0
    for number in range(200):
        journal.finished(small(number), [{"epoch": 1, "loss": 0.5}])
        for one in journal.durable():
            announced += 1
            assert encode("finished", one) in synced["journal"]
            assert b'"key":"%b"' % one["key"].encode() in synced["curves"]
        time.sleep(0.0005)
    journal.close()
    assert announced > 0
    assert announced + len(journal.durable()) == 200


def test_lines_are_grouped_while_a_slow_disk_syncs(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, syncs = os.fsync, 0

    def slow(handle: int) -> None:
        nonlocal syncs
        syncs += 1
        time.sleep(0.01)
        sync(handle)

    monkeypatch.setattr(os, "fsync", slow)
    journal = Journal(folder, "mine")
    start = time.perf_counter()
    for number in range(500):
        journal.finished(small(number), [])
        time.sleep(0.0002)
    assert sorted(wait_for(journal, 500)) == list(range(500))
    assert time.perf_counter() - start < 2
    assert syncs < 150
    journal.close()
    assert len(Results.load(folder.path)) == 500


@pytest.mark.parametrize("fails", ["fsync", "write"])
def test_after_one_failed_write_the_group_is_written_anew_to_another_file(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    real: Callable[..., Any] = getattr(os, fails)
    broken = False

    def once(handle: int, *content: bytes) -> Any:
        nonlocal broken
        if broken:
            broken = False
            raise OSError(5, "Input/output error")
        return real(handle, *content)

    monkeypatch.setattr(os, fails, once)
    journal = Journal(folder, "mine")
    journal.finished(small(1), [])
    assert wait_for(journal, 1) == [1]
    broken = True
    journal.finished(small(2), [])
    assert wait_for(journal, 1) == [2]
    journal.finished(small(3), [])
    assert wait_for(journal, 1) == [3]
    journal.close()
    files = sorted(folder.journals.iterdir())
    assert [path.name for path in files] == ["mine.jsonl", "mine~1.jsonl"]
    assert [one["trial"] for _, one in Reading(files[1]).lines()] == [2, 3]
    assert sorted(Results.load(folder.path).items("trial")) == [1, 2, 3]


def test_a_disk_that_stays_broken_is_an_error_and_what_counted_is_kept(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder, "mine")
    journal.finished(small(1), [])
    assert wait_for(journal, 1) == [1]

    def broken(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    journal.finished(small(2), [])
    with pytest.raises(JournalError, match=r"No space left on device: 1 results could not be written"):
        journal.settle()
    journal.close()
    monkeypatch.undo()
    assert 1 in Results.load(folder.path).items("trial")


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tradewind.errors import JournalError, RunError
from tradewind.folder import RunFolder
from tradewind.journal import Journal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
journal = Journal(RunFolder.create(Path(sys.argv[1])), "mine")
for number in range(200):
    key = f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}{number:016x}"
    record = {"key": key, "trial": number, "state": "done", "attempt": 1, "finished": float(number)}
    record |= {"config": {}, "times": {}, "scores": {}, "last": {}}
    record |= {"started": 0.0, "repeat": 0, "seed": 0, "data_seed": 0}
    journal.finished({**record, "reason": "x" * 600}, [])
    if number < 150:  # then one group that no file can hold
        for one in journal.settle():
            print(one["trial"])
try:
    journal.settle()
except JournalError as error:
    print(error)
journal.close()
"""


def test_files_that_can_not_grow_are_followed_by_new_ones_and_no_record_that_counted_is_lost(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path / "run")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    *announced, error = answer.stdout.splitlines()
    assert [int(line) for line in announced[:150]] == list(range(150))
    assert "File too large" in error
    assert "results could not be written and will be run again; what was recorded is safe" in error
    files = list((tmp_path / "run" / "journal").iterdir())
    assert len(files) >= 150 * 700 // 20_000
    assert max(path.stat().st_size for path in files) <= 20_000
    results = Results.load(tmp_path / "run")
    assert {int(line) for line in announced} <= set(results.items("trial"))
    assert len(set(results.keys())) == len(results)


@pytest.mark.parametrize("version", [1, 10, 123])
def test_kind_and_key_are_found_however_many_digits_the_version_has(version: int) -> None:
    line = encode("finished", {"key": "0" * 31 + "a", "trial": 1}).replace(b'"v":1,', b'"v":%d,' % version)
    assert head(line) == (b"finished", b"0" * 31 + b"a")
    assert head(encode("set_aside", {"records": []})) == (b"set_aside", b"")
    assert head(b"garbage\n") == (b"", b"")
