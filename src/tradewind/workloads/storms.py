"""Synthetic storms as arrays: any of the fields of NCAR's patches, the same for a seed whatever the chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tradewind import noise
from tradewind.errors import DataError, nearest
from tradewind.workloads import shapes, supercell
from tradewind.workloads.cache import cached
from tradewind.workloads.shapes import SIDE

Array = np.ndarray[Any, np.dtype[np.float32]]

THRESHOLD_PER_S = 0.005
INPUTS = ("REFL_COM_curr", "U10_curr", "V10_curr")
FIELDS = (*INPUTS, "T2_curr", "masks", "RVORT1_MAX_future", "HAIL_MAXK1_future")
# storms at once: on a CPU their fields stay in the cache, on a GPU they outweigh the kernels' starts
_CHUNK = {"cpu": 256, "cuda": 8192}


def make_storms(
    count: int, seed: int, device: str = "cpu", first: int = 0, fields: Sequence[str] = INPUTS
) -> tuple[Array, Array]:
    """Storms from number `first` on: their fields, channels last, and labels 0 or 1.

    Storm i depends on the seed and i alone; labels are those of the masked vorticity, asked for or not.
    """
    place = _place(device, fields)
    inputs = np.empty((count, SIDE, SIDE, len(fields)), np.float32)
    labels = np.empty(count, np.float32)
    size = _CHUNK.get(place.type, _CHUNK["cuda"])
    # whole chunks from a multiple of their size: a kernel may round by its shape, so each storm meets one shape
    for start in range(first // size * size, first + count, size):
        made, positive = _chunk(seed, torch.arange(start, start + size, device=place), fields)
        wanted = slice(max(first - start, 0), min(first + count - start, size))
        here = slice(start + wanted.start - first, start + wanted.stop - first)
        torch.from_numpy(inputs[here]).copy_(made[wanted])
        torch.from_numpy(labels[here]).copy_(positive[wanted])
    return inputs, labels


def best_device(name: str) -> str:
    """What `auto` means: a GPU where there is one, which is some 15 times as fast as two cores."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def storms_cached(count: int, seed: int, device: str = "cpu") -> tuple[Array, Array]:
    """Inputs and labels, read from the cache folder and left on disk until used."""
    # each of these may change the storms
    sources = [Path(str(module.__file__)) for module in (noise, shapes, supercell)]
    text = b"".join(path.read_bytes() for path in (Path(__file__), *sources)) + torch.__version__.encode()
    name = f"storms-{seed}-{count}-{hashlib.sha256(text).hexdigest()[:12]}"
    inputs, labels = cached(name, ("inputs", "labels"), lambda: make_storms(count, seed, device))
    return inputs, labels


def _place(device: str, fields: Sequence[str]) -> torch.device:
    for name in fields:
        if name not in FIELDS:
            raise DataError(f"fields: found {name!r}; {nearest(name, FIELDS)}")
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise DataError(f"device: found {device!r}, but there is no CUDA device here; use cpu")
    return place


@torch.no_grad()
def _chunk(seed: int, index: torch.Tensor, fields: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    state = supercell.hidden_state(seed, index)
    echo = supercell.reflectivity(state)
    inside = supercell.storm_object(echo, state)
    vorticity = supercell.next_vorticity(state, echo)
    labels = torch.where(inside, vorticity, 0.0).amax(dim=(1, 2)) > THRESHOLD_PER_S
    made = {"REFL_COM_curr": echo, "masks": inside, "RVORT1_MAX_future": vorticity}
    if "U10_curr" in fields or "V10_curr" in fields:
        made["U10_curr"], made["V10_curr"] = supercell.wind(state)
    if "T2_curr" in fields:
        made["T2_curr"] = supercell.temperature(state)
    if "HAIL_MAXK1_future" in fields:
        made["HAIL_MAXK1_future"] = supercell.next_hail(state, echo)
    stacked = torch.stack([made[name].to(torch.float32) for name in fields], dim=3)
    return stacked, labels
