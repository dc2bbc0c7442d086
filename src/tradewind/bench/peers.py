"""Other libraries' rotation, shift and zoom of the same images; none of them turns the wind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

Array = np.ndarray[Any, Any]
Work = Callable[[int], None]

PACKAGES = ("opencv-python-headless", "torch", "kornia", "albumentations", "keras", "tensorflow")
DEGREES, SHIFT, ZOOM = 180.0, 0.1, 0.1


def opencv(images: Array) -> Work:
    """warpAffine, image by image; the matrices are made at once, which no loop of a user's would do."""
    import cv2

    cv2.setNumThreads(1)
    size = images.shape[2], images.shape[1]

    def work(count: int) -> None:
        for image, matrix in zip(images[:count], _matrices(count, size[0]), strict=True):
            cv2.warpAffine(image, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)

    return work


def grid_sample(images: Array) -> Work:
    """torch's affine_grid and grid_sample, a batch at a time, of the size that suits it best here."""
    planes = torch.from_numpy(images).movedim(-1, 1).contiguous()

    def work(count: int) -> None:
        angle, zoom, shift = _draws(count)
        cos, sin = torch.from_numpy(np.cos(angle) / zoom), torch.from_numpy(np.sin(angle) / zoom)
        moved = torch.from_numpy(2 * shift)
        theta = torch.stack((cos, sin, moved[:, 0], -sin, cos, moved[:, 1]), 1).view(-1, 2, 3).float()
        for part, batch in zip(torch.split(theta, 256), torch.split(planes[:count], 256), strict=True):
            grid = functional.affine_grid(part, list(batch.shape), align_corners=False)
            functional.grid_sample(batch, grid, padding_mode="border", align_corners=False)

    return work


def kornia(images: Array) -> Work:
    """kornia's RandomAffine, a batch at a time."""
    from kornia.augmentation import RandomAffine

    planes = torch.from_numpy(images).movedim(-1, 1).contiguous()
    scale = (1 - ZOOM, 1 + ZOOM)
    affine = RandomAffine(DEGREES, (SHIFT, SHIFT), scale, padding_mode="border", align_corners=False, p=1.0)

    def work(count: int) -> None:
        for batch in torch.split(planes[:count], 256):
            affine(batch)

    return work


def albumentations(images: Array) -> Work:
    """albumentations' Affine, image by image."""
    import albumentations as album
    import cv2

    cv2.setNumThreads(1)
    affine = album.Affine(
        rotate=(-DEGREES, DEGREES), translate_percent=(-SHIFT, SHIFT), scale=(1 - ZOOM, 1 + ZOOM),
        border_mode=cv2.BORDER_REPLICATE, p=1.0,
    )  # fmt: skip

    def work(count: int) -> None:
        for image in images[:count]:
            affine(image=image)

    return work


def keras(images: Array) -> Work:
    """Keras' ImageDataGenerator, image by image, as its iterator does."""
    try:
        from keras._legacy.preprocessing.image import ImageDataGenerator  # Keras 3
    except ImportError:
        from tensorflow.keras.preprocessing.image import ImageDataGenerator

    generator = ImageDataGenerator(
        rotation_range=DEGREES,
        width_shift_range=SHIFT,
        height_shift_range=SHIFT,
        zoom_range=ZOOM,
        fill_mode="nearest",
    )

    def work(count: int) -> None:
        for image in images[:count]:
            generator.random_transform(image)

    return work


PEERS: dict[str, Callable[[Array], Work]] = {
    "OpenCV warpAffine, image by image": opencv,
    "torch affine_grid + grid_sample": grid_sample,
    "kornia RandomAffine": kornia,
    "albumentations Affine, image by image": albumentations,
    "Keras ImageDataGenerator": keras,
}
BATCH = {"albumentations Affine, image by image": 256, "Keras ImageDataGenerator": 128}  # slow: fewer say as much


def _draws(count: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng()
    angle = rng.uniform(-np.pi, np.pi, count)
    return angle, rng.uniform(1 - ZOOM, 1 + ZOOM, count), rng.uniform(-SHIFT, SHIFT, (count, 2))


def _matrices(count: int, side: int) -> Array:
    """Forward 2 × 3 matrices about the middle, in pixels."""
    angle, zoom, shift = _draws(count)
    cos, sin, middle = np.cos(angle) * zoom, np.sin(angle) * zoom, (side - 1) / 2
    x = middle - cos * middle + sin * middle + shift[:, 0] * side
    y = middle - sin * middle - cos * middle + shift[:, 1] * side
    return np.stack((cos, -sin, x, sin, cos, y), axis=1).reshape(-1, 2, 3)
