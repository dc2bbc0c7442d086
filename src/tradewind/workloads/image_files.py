"""Images with classes: from a folder of class folders, from an array file, or synthetic shapes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import DataError
from tradewind.workloads import array_files
from tradewind.workloads.cache import cached

Array = np.ndarray[Any, Any]

ENDINGS = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp")
TEST = ("test_images", "test_labels")
PARTS = ("images", "labels", "test", "classes")
SHAPES = ("disc", "ring", "square", "frame", "triangle", "cross", "bar", "stripes", "checks", "star")


@dataclass(frozen=True)
class Pictures:
    """All images of a source: (n, rows, columns, 3) in uint8, the class of each, which are meant to test, names."""

    images: Array
    labels: Array
    test: Array
    classes: tuple[str, ...]


def load_images(path: Path, side: int) -> Pictures:
    """The images of a folder, resized, or of an .npz file; read once, then mapped from the cache."""
    if path.is_dir():
        files = [(part, *found) for part, folder in _folders(path) for found in _found(folder)]
        facts = [(str(file.relative_to(path)), file.stat().st_size, file.stat().st_mtime_ns) for *_, file in files]
    elif path.suffix == ".npz" and path.exists():
        files, facts = [], [(path.name, path.stat().st_size, path.stat().st_mtime_ns)]
    else:
        raise DataError(f"path: found {str(path)!r}; allowed: a folder of class folders or an .npz file that exists")
    text = Path(__file__).read_bytes() + repr((facts, side if path.is_dir() else 0)).encode()

    def make() -> tuple[Array, ...]:
        return read_folder(files, side) if path.is_dir() else read_arrays(path)

    images, labels, test, classes = cached(f"images-{hashlib.blake2b(text, digest_size=8).hexdigest()}", PARTS, make)
    return Pictures(images, labels, test, tuple(map(str, classes)))


def read_arrays(path: Path) -> tuple[Array, ...]:
    """From `train_images` (n, rows, columns, 3 or 1) in uint8, `train_labels`, `classes`, and `test_…` if there."""
    found = array_files.read_arrays(path, ("train_images", "train_labels", "classes"), TEST)
    images, labels, classes, *test = found.values()
    if len(test) == 1:
        raise DataError(f"{path}: holds one of test_images and test_labels; wanted: both or neither")
    _check_part(path, images, labels, len(classes))
    count = len(labels)
    if test:
        _check_part(path, test[0], test[1], len(classes))
        if test[0].shape[1:] != images.shape[1:]:
            raise DataError(f"{path}: test_images are {test[0].shape[1:]}, train_images {images.shape[1:]}")
        images, labels = np.concatenate((images, test[0])), np.concatenate((labels, test[1]))
    return images, labels.astype(np.int64), np.arange(len(labels)) >= count, classes


def _check_part(path: Path, images: Array, labels: Array, classes: int) -> None:
    """Refuse what are no images, or labels that are not theirs."""
    if images.ndim != 4 or images.dtype != np.uint8 or not len(images) or labels.shape != images.shape[:1]:
        found = f"{images.dtype} of shape {images.shape} for labels of shape {labels.shape}"
        raise DataError(f"{path}: images: found {found}; wanted: uint8, (n, rows, columns, channels), a label each")
    if not array_files.are_counts(labels):
        raise DataError(f"{path}: labels: found {labels.dtype}, {labels[0]} and others; wanted: whole numbers from 0")
    if labels.max() >= classes:
        raise DataError(f"{path}: labels: found {labels.min()} to {labels.max()}, but {classes} classes")


def _folders(path: Path) -> list[tuple[bool, Path]]:
    """The folders that hold class folders, and whether to test: `train` and `test` if both are there, else itself."""
    if (path / "train").is_dir() and (path / "test").is_dir():
        return [(False, path / "train"), (True, path / "test")]
    return [(False, path)]


def _found(folder: Path) -> list[tuple[str, Path]]:
    kinds = sorted(kind for kind in folder.iterdir() if kind.is_dir())
    found = [(kind.name, file) for kind in kinds for file in sorted(kind.iterdir()) if file.suffix.lower() in ENDINGS]
    if not found:
        raise DataError(f"{folder}: holds no class folders with images in them ({', '.join(ENDINGS)})")
    return found


def read_folder(files: Sequence[tuple[bool, str, Path]], side: int) -> tuple[Array, ...]:
    """The images of class folders as colours, resized to a side; the folders' names are the classes."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError("images from a folder need Pillow, which is not installed: pip install pillow") from None
    classes = sorted({name for _, name, _ in files})
    images = np.empty((len(files), side, side, 3), np.uint8)
    for place, (_, _, file) in enumerate(files):
        try:
            with Image.open(file) as picture:
                resized = picture.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
                images[place] = np.asarray(resized)
        except (OSError, UnidentifiedImageError, ValueError) as error:
            raise DataError(f"{file}: can't be read as an image: {error}") from None
    labels = np.array([classes.index(name) for _, name, _ in files], np.int64)
    return images, labels, np.array([test for test, *_ in files]), np.array(classes)


def make_shapes(count: int, seed: int, side: int) -> tuple[Array, ...]:
    """Shapes, turned and squeezed, on grounds that are mostly darker; image i is of class i mod 10."""
    rng = np.random.default_rng((seed, side))
    labels = np.arange(count) % len(SHAPES)
    angle, size, squeeze = rng.uniform(-0.5, 0.5, count), rng.uniform(0.22, 0.4, count), rng.uniform(0.75, 1.3, count)
    middle = rng.uniform(-0.15, 0.15, (2, count))
    axis = (np.arange(side) + 0.5) / side - 0.5
    x, y = axis[None, None, :] - middle[0, :, None, None], axis[None, :, None] - middle[1, :, None, None]
    cos, sin = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    u, v = (cos * x + sin * y) / size[:, None, None], (cos * y - sin * x) / (size * squeeze)[:, None, None]
    inside = np.empty((count, side, side), bool)
    for number in range(len(SHAPES)):
        these = labels == number
        inside[these] = _shape(SHAPES[number], u[these], v[these])
    colours = rng.uniform(100, 255, (count, 1, 1, 3)), rng.uniform(0, 155, (count, 1, 1, 3))
    slope = rng.normal(0, 60, (count, 1, 1, 3)) * (axis[None, None, :, None] + axis[None, :, None, None])
    images = np.where(inside[..., None], *colours) + slope + rng.normal(0, 25, (count, side, side, 3))
    return images.clip(0, 255).astype(np.uint8), labels, np.zeros(count, bool), np.array(SHAPES)


def _shape(name: str, u: Array, v: Array) -> Array:
    """Which points lie in a shape that reaches from -1 to 1."""
    radius, square = np.hypot(u, v), np.maximum(np.abs(u), np.abs(v))
    waves = np.floor(u * 2.5), np.floor(v * 2.5)
    found: dict[str, Array] = {
        "disc": radius < 1,
        "ring": (radius < 1) & (radius > 0.6),
        "square": square < 0.9,
        "frame": (square < 0.9) & (square > 0.55),
        "triangle": (v < 0.7) & (2 * np.abs(u) < v + 1),
        "cross": (square < 1) & (np.minimum(np.abs(u), np.abs(v)) < 0.3),
        "bar": (np.abs(u) < 1) & (np.abs(v) < 0.35),
        "stripes": (square < 1) & (waves[1] % 2 == 0),
        "checks": (square < 1) & ((waves[0] + waves[1]) % 2 == 0),
        "star": radius < 0.65 + 0.35 * np.cos(5 * np.arctan2(v, u)),
    }
    return found[name]


def shapes_cached(count: int, seed: int, side: int) -> Pictures:
    """Synthetic shapes, read from the cache folder."""
    name = f"shapes-{seed}-{count}-{side}-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"
    images, labels, test, classes = cached(name, PARTS, lambda: make_shapes(count, seed, side))
    return Pictures(images, labels, test, tuple(map(str, classes)))
