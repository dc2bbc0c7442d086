"""Lung nodules as cubes of voxels: real ones from a file, and synthetic ones that are the same for a seed.

A cube is cut from the middle: its voxels keep their size, 1 mm in the synthetic ones and in the usual files.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tradewind import noise
from tradewind.errors import DataError
from tradewind.noise import uniforms
from tradewind.workloads.cache import cached

Array = np.ndarray[Any, Any]

LAYOUTS = (("cubes",), ("train_images", "val_images", "test_images"))  # ours, and MedMNIST's of 28³
# of the logarithm of 2,677 real nodules' diameters in mm
LOG_DIAMETER, LOG_SPREAD = 1.844, 0.489
SMALLEST_MM, LARGEST_MM = 2.0, 38.0
LOBES, SPICULES = 6, 12
_STREAM = 3  # keeps these numbers apart from those of other uses of a seed
_CHUNK_VOXELS = 1 << 16  # stay in a core's cache


def load_nodules(path: Path, side: int) -> Array:
    """The middle of every cube of a file, (n, side, side, side) in float32; read once, then mapped from the cache."""
    try:
        facts = path.stat()
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror}") from None
    text = f"{path.resolve()}/{facts.st_size}/{facts.st_mtime_ns}/{side}"
    name = f"nodules-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    return cached(name, ("cubes",), lambda: (_read(path, side),))[0]


def nodules_cached(count: int, seed: int, side: int) -> Array:
    """Synthetic nodules, read from the cache folder and left on disk until used."""
    sources = [Path(__file__), Path(str(noise.__file__))]  # each of these may change the nodules
    text = b"".join(path.read_bytes() for path in sources) + torch.__version__.encode()
    name = f"nodules-{seed}-{count}-{side}-{hashlib.sha256(text).hexdigest()[:12]}"
    return cached(name, ("cubes",), lambda: (make_nodules(count, seed, side),))[0]


@torch.no_grad()
def make_nodules(count: int, seed: int, side: int) -> Array:
    """Synthetic nodules (n, side, side, side), 0 outside to 1 inside; nodule i depends on the seed and i alone.

    Ellipsoids in all directions, as large as real ones, with lobes, and some with spicules; the border is as soft
    as where readers disagree.
    """
    found = np.empty((count, side, side, side), np.float32)
    step = max(1, _CHUNK_VOXELS // side**3)
    for start in range(0, count, step):
        # a whole chunk, also the last: a kernel may round by its shape, so each nodule meets one shape
        drawn = _nodules(seed, torch.arange(start, start + step), side)
        torch.from_numpy(found[start : start + step]).copy_(drawn[: count - start])
    return found


def _nodules(seed: int, index: Tensor, side: int) -> Tensor:
    bumps = LOBES + SPICULES
    draws = uniforms(seed, _STREAM, index, 12 + 4 * bumps)
    shape, bumpy = draws[:, :12], draws[:, 12:].view(-1, bumps, 4)
    normal = torch.special.ndtri(shape[:, :8].clamp(1e-6, 1 - 1e-6))
    radius = 0.5 * (LOG_DIAMETER + LOG_SPREAD * normal[:, 0]).exp().clamp(SMALLEST_MM, LARGEST_MM)
    stretch = (0.2 * normal[:, 1:4]).exp()
    stretch = stretch / stretch.prod(dim=1, keepdim=True) ** (1 / 3)  # the volume stays
    turned = _rotations(normal[:, 4:8]) / stretch[:, :, None]
    axis = torch.arange(side, dtype=torch.float32) - (side - 1) / 2
    voxels = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij")).view(3, -1)
    places = turned @ voxels  # (n, 3, voxels), where the nodule without bumps is a ball
    distance = places.norm(dim=1)
    towards = places / distance.clamp_min(1e-9)[:, None]
    border = radius[:, None] * (1.0 + _bumps(bumpy, shape[:, 8], shape[:, 9], towards))
    softness = 1.0 + 2.0 * shape[:, 10, None] ** 2  # mm from inside to outside
    value: Tensor = ((border - distance) / softness + 0.5).clamp(0.0, 1.0)
    return value.view(-1, side, side, side)


def _bumps(draws: Tensor, lobulation: Tensor, spiculation: Tensor, towards: Tensor) -> Tensor:
    """By what share the border stands out or back in each direction; most nodules are smooth, as most real ones."""
    height, azimuth = 2 * draws[..., 0] - 1, 2 * math.pi * draws[..., 1]
    level = (1 - height**2).sqrt()
    centres = torch.stack((level * azimuth.cos(), level * azimuth.sin(), height), dim=2)  # (n, bumps, 3)
    lobe = torch.arange(draws.shape[1]) < LOBES
    narrow = torch.where(lobe, 2 + 6 * draws[..., 2], 20 + 40 * draws[..., 2])
    lobes = 0.6 * lobulation[:, None] ** 1.5 * (2 * draws[..., 3] - 1)
    spicules = 1.2 * spiculation[:, None] ** 4 * draws[..., 3]
    tall = torch.where(lobe, lobes, spicules)
    total = torch.zeros_like(towards[:, 0])
    for k in range(draws.shape[1]):  # one at a time: all at once would be 18 × the memory
        closeness = (centres[:, k, None] @ towards)[:, 0]
        total += tall[:, k, None] * (narrow[:, k, None] * (closeness - 1)).exp()
    return total.clamp_min(-0.6)


def _rotations(quaternion: Tensor) -> Tensor:
    """Rotation matrices (n, 3, 3), every direction alike for four normal numbers each."""
    w, x, y, z = (quaternion / quaternion.norm(dim=1, keepdim=True)).unbind(1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)


def _read(path: Path, side: int) -> Array:
    try:
        # opened here: of a torn file numpy would leave its own open
        with path.open("rb") as handle:
            file = np.load(handle, allow_pickle=False)
            there = list(file) if isinstance(file, np.lib.npyio.NpzFile) else ["a single array"]
            names = next((names for names in LAYOUTS if set(names) <= set(there)), None)
            if names is None:
                wanted = " or ".join(", ".join(layout) for layout in LAYOUTS)
                raise DataError(f"{path}: found {', '.join(there) or 'nothing'}; allowed: an .npz file of {wanted}")
            arrays = [_cubes(path, name, file[name]) for name in names]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: is no .npz file that can be read ({error})") from None
    return np.concatenate([_middle(path, array, side) for array in arrays])


def _cubes(path: Path, name: str, array: Array) -> Array:
    if array.ndim != 4 or len(set(array.shape[1:])) != 1 or array.dtype.kind not in "uif":
        raise DataError(
            f"{path}: {name}: found {array.dtype} of shape {array.shape}; allowed: numbers (n, side, side, side)"
        )
    return array


def _middle(path: Path, cubes: Array, side: int) -> Array:
    whole = cubes.shape[1]
    if side > whole:
        raise DataError(f"side: found {side}; the cubes of {path} are {whole} wide, allowed: at most that")
    start = (whole - side) // 2
    cut = (slice(None), *[slice(start, start + side)] * 3)
    middle: Array = cubes[cut].astype(np.float32)
    flat = middle.reshape(len(middle), -1)
    good = np.isfinite(flat).all(axis=1) & (flat >= 0).all(axis=1) & flat.any(axis=1)
    if not good.all():
        raise DataError(
            f"{path}: nodule {int(np.flatnonzero(~good)[0])} is empty, negative or not finite in its middle; "
            "allowed: numbers from 0, some above"
        )
    return middle
