"""Samples augmented ahead of time: made once in the cache folder, shared by all trials, ranks and hosts.

A store is a folder named by what its samples are made from. One process makes it, chunk by chunk, noting the
checksum of each; the others wait, and one of them takes over if the maker dies. Whole chunks are kept. A process
checks all checksums when it first opens a store, after making one too; chunks that fail are made anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import secrets
import shutil
import socket
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tradewind.claims import Claims
from tradewind.errors import DataError
from tradewind.folder import RunFolder, write_aside
from tradewind.train.recipe import Array, Recipe, memory_order
from tradewind.workloads.cache import cache_folder
from tradewind.workloads.contract import Split

FORMAT = 1
CHUNK_BYTES = 8 << 20  # written at a time by each thread: what a kill costs, and the memory that making takes
WAIT_S = 0.1  # between looks at what another process makes
COLUMNS = 4093  # a prime: swapped pages or samples change the sums
MOST_TRIES = 3
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

Chunk = dict[str, Any]  # start, stop, checksum, seconds, by
_checked: set[tuple[str, int, int]] = set()  # the stores whose content this process has read and found right


@dataclass(frozen=True, eq=False)
class Stored(Split):
    """A split whose inputs are mapped from a store; `read` brings samples without keeping pages of it."""

    path: Path
    descriptor: int
    seconds: float  # that making the store took, whoever did it

    @property
    def size(self) -> int:
        """The bytes of all inputs."""
        return int(self.inputs.nbytes)

    def read(self, index: torch.Tensor) -> torch.Tensor:
        """The inputs of some samples in the order of memory.

        By preadv, not from the mapping: as quick as indexing an array in memory (2.7 µs a storm), and no page
        counts as this process's. Mapped pages come with their neighbours, so that soon all are there; giving
        them back often takes 1.3 to 1.8 × the time.
        """
        shape = memory_order(self.inputs)[0].shape[1:]
        found = torch.empty((len(index), *shape), dtype=torch.float32)
        view, size = found.numpy().data.cast("B"), self.inputs[0].nbytes
        for place, row in enumerate(index.tolist()):
            self._fill(view[place * size : (place + 1) * size], row * size)
        return found

    def read_span(self, start: int, into: torch.Tensor) -> None:
        """Samples from `start` on, as many as fit `into`: memory of the host, in the same order of axes."""
        self._fill(into.numpy().data.cast("B"), start * self.inputs[0].nbytes)

    def _fill(self, view: memoryview, offset: int) -> None:
        while got := os.preadv(self.descriptor, (view,), offset):
            if got == len(view):
                return
            view, offset = view[got:], offset + got
        raise DataError(f"{self.path}: was cut short while in use; run again to have it made anew")


def stored(recipe: Recipe) -> Stored:
    """The store with these samples: made if absent, finished if begun, mended if damaged."""
    folder = cache_folder() / f"augmented-{FORMAT}-{recipe.name()}"
    claims: Claims | None = None
    tries = 0
    try:
        for part in (RunFolder(folder).claims, RunFolder(folder).owners):
            part.mkdir(parents=True, exist_ok=True)
        while (found := _open(folder, recipe)) is None:
            if tries == MOST_TRIES:
                raise DataError(f"{folder}: other bytes are read than were written; set TRADEWIND_CACHE")
            claims = claims or Claims(RunFolder(folder), "making", f"{os.getpid()}-{secrets.token_hex(4)}")
            if claims.take(0) is None:
                time.sleep(WAIT_S)
                continue
            try:
                if (found := _open(folder, recipe)) is not None:  # completed since it was looked at
                    break
                _make(folder, recipe, claims)
            finally:
                with contextlib.suppress(OSError):  # then the lease tells the others
                    claims.leave()
            claims, tries = None, tries + 1
    except OSError as error:
        raise DataError(f"{folder}: samples can't be kept there ({error}); set TRADEWIND_CACHE") from error
    return found


def checksum(content: Array) -> str:
    """Of bytes: the sums of their 64-bit words by columns, hashed. Against accidents only; 3 × as fast as CRC-32."""
    words = content[: content.size // 8 * 8].view(np.uint64)
    body = words.size // COLUMNS * COLUMNS
    digest = hashlib.blake2b(words[:body].reshape(-1, COLUMNS).sum(axis=0).data, digest_size=8)
    digest.update(words[body:].data)
    digest.update(content[words.nbytes :].data)
    return digest.hexdigest()


def _samples(folder: Path) -> Path:
    return folder / "samples.f32"


def _manifest(folder: Path) -> Path:
    return folder / "manifest.json"


def _progress(folder: Path) -> Path:
    return folder / "chunks.jsonl"


def _open(folder: Path, recipe: Recipe) -> Stored | None:
    """The store if it is whole: by its manifest and, unless this process has seen so before, by its content."""
    try:
        manifest = json.loads(_manifest(folder).read_bytes())
        chunks: list[Chunk] = manifest["chunks"]
        complete = sum(chunk["stop"] - chunk["start"] for chunk in chunks) == recipe.count
        status = _samples(folder).stat()
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    if not complete or status.st_size != recipe.count * recipe.row_bytes:
        return None
    seen = (str(folder), status.st_ino, status.st_mtime_ns)
    if seen not in _checked:
        if damaged := sum(not _holds(folder, recipe, chunk) for chunk in chunks):
            print(f"{folder}: {damaged} of {len(chunks)} chunks are damaged and made anew", file=sys.stderr)
            return None
        _checked.add(seen)
    return _mapped(folder, recipe, manifest["sync_s"] + sum(chunk["seconds"] for chunk in chunks))


def _mapped(folder: Path, recipe: Recipe, seconds: float) -> Stored:
    path = _samples(folder)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # copy on write: torch warns of read-only arrays, and no page is ever written
        mapped = mmap.mmap(descriptor, recipe.count * recipe.row_bytes, access=mmap.ACCESS_COPY)
        natural, last = memory_order(recipe.split.inputs)
        inputs = np.frombuffer(mapped, np.float32).reshape(recipe.count, *natural.shape[1:])
        targets = recipe.split.targets[recipe.sources(0, recipe.count)]
        found = Stored(np.moveaxis(inputs, -1, 1) if last else inputs, targets, path, descriptor, seconds)
    except BaseException:
        os.close(descriptor)
        raise
    weakref.finalize(found, os.close, descriptor)
    return found


def _holds(folder: Path, recipe: Recipe, chunk: Chunk) -> bool:
    """Whether a chunk has the bytes that were written: 6 to 8 GB/s, read, since no page should stay mapped."""
    content = np.empty((chunk["stop"] - chunk["start"]) * recipe.row_bytes, np.uint8)
    with open(_samples(folder), "rb", buffering=0) as file:
        file.seek(chunk["start"] * recipe.row_bytes)
        return file.readinto(content.data) == content.size and checksum(content) == chunk["checksum"]


def _known(folder: Path) -> dict[tuple[int, int], Chunk]:
    """The chunks noted so far, the latest note of each."""
    notes: list[Chunk] = []
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        notes += json.loads(_manifest(folder).read_bytes())["chunks"]
    with contextlib.suppress(FileNotFoundError):
        for line in _progress(folder).read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # torn by a kill: that chunk is made anew
                notes.append(json.loads(line))
    return {(note["start"], note["stop"]): note for note in notes}


def _make(folder: Path, recipe: Recipe, claims: Claims) -> None:
    """Write the chunks that are missing or damaged, then the manifest.

    A maker that slept for longer than its lease on another host may still write a chunk: the same samples.
    """
    size = recipe.count * recipe.row_bytes
    _check_space(folder, size)
    file = os.open(_samples(folder), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        os.ftruncate(file, size)
        chunks = _make_chunks(folder, file, recipe, claims)
        began = time.perf_counter()
        os.fsync(file)  # some disks say only now that they are full
        manifest = {"chunks": chunks, "sync_s": time.perf_counter() - began}
        write_aside(_manifest(folder), json.dumps(manifest).encode())
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        for path in (_manifest(folder), _progress(folder), _samples(folder)):
            path.unlink(missing_ok=True)
        raise _no_space(folder, size) from error
    finally:
        os.close(file)
    _progress(folder).unlink(missing_ok=True)


def _make_chunks(folder: Path, file: int, recipe: Recipe, claims: Claims) -> list[Chunk]:
    """All chunks in their order; those that are there are kept, the others noted as they are written."""
    step = recipe.piece * max(1, CHUNK_BYTES // (recipe.piece * recipe.row_bytes))
    spans = [(start, min(start + step, recipe.count)) for start in range(0, recipe.count, step)]
    known, kept = _known(folder), {}
    for span in spans:
        if span in known and _holds(folder, recipe, known[span]):
            kept[span] = known[span]
    missing = deque(span for span in spans if span not in kept)
    made: deque[Future[Chunk]] = deque()
    noted = time.perf_counter()
    with _lone_threads() as (pool, threads), open(_progress(folder), "ab", buffering=0) as progress:
        while missing or made:
            while missing and len(made) < threads:
                made.append(pool.submit(_write_chunk, file, recipe, *missing.popleft()))
            chunk = made.popleft().result()
            before, noted = noted, time.perf_counter()
            chunk["seconds"] = noted - before  # of the clock, whatever the number of threads
            progress.write(b"\n" + json.dumps(chunk).encode())  # a line of its own, even after a torn one
            kept[chunk["start"], chunk["stop"]] = chunk
    return [kept[span] for span in spans]


@contextlib.contextmanager
def _lone_threads() -> Iterator[tuple[ThreadPoolExecutor, int]]:
    """As many threads as torch may use, each computing alone.

    One operation after the other on all threads would have them wait for each other thousands of times a second:
    up to 18 × the time where another process wants the same cores.
    """
    count = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool, count
    finally:
        torch.set_num_threads(count)


def _write_chunk(file: int, recipe: Recipe, start: int, stop: int) -> Chunk:
    content: Array = np.empty((stop - start) * recipe.row_bytes, np.uint8)
    for first, piece in recipe.samples(start, stop):
        place = (first - start) * recipe.row_bytes
        into = content[place : place + piece.nbytes].view(np.float32).reshape(piece.shape)
        torch.from_numpy(into).copy_(torch.from_numpy(piece))  # numpy takes 2.6 × as long to change the order
    total = checksum(content)
    view, offset = content.data, start * recipe.row_bytes
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
    return {"start": start, "stop": stop, "checksum": total, "by": f"{socket.gethostname()}:{os.getpid()}"}


def _check_space(folder: Path, size: int) -> None:
    there = _samples(folder).stat().st_blocks * 512 if _samples(folder).exists() else 0
    if size - there > shutil.disk_usage(folder).free:
        raise _no_space(folder, size - there)


def _no_space(folder: Path, needed: int) -> DataError:
    free = shutil.disk_usage(folder).free
    return DataError(
        f"{folder}: no room for samples augmented ahead of time: {needed / 1e9:.3g} GB needed, {free / 1e9:.3g} GB "
        "free; set TRADEWIND_CACHE to a folder with more room, or augment live"
    )
