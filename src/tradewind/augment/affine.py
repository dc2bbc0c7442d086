"""Turn, shift, zoom and mirror images and volumes in one resampling, and the vectors in them too.

Rows are y and grow northward (row 0 is the south, as in WRF files), columns are x and grow eastward, layers are
z and grow upward: a positive angle turns an image counter-clockwise. A mirror comes before the turn. A zoom
stretches the field and leaves speeds as they are.

This is the plain way, on any device and in any precision: what the faster ones must agree with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from tradewind.augment.options import (
    Edges,
    Interpolation,
    Reflection,
    edges_complaint,
    interpolation_complaint,
    reflection_complaint,
)
from tradewind.errors import StudyError, WorkloadError
from tradewind.noise import uniforms

Vectors = tuple[tuple[int, ...], ...]  # the channels of each one's (x, y) or (x, y, z) components

# which of a sample's random numbers says what: never to change, or seeds would mean other data
ANGLE, ZOOM, SHIFT_X, SHIFT_Y, MIRROR, SHIFT_Z, AXIS_HEIGHT, AXIS_AZIMUTH = range(8)
MIRRORED_AXIS = {"east-west": 0, "north-south": 1}

_REACH = {"linear": 1, "nearest": 1, "cubic": 2}  # cells beyond the border that a wrapped field needs


@dataclass(frozen=True)
class Augmentation:
    """How far a sample may be moved, what is beyond its border, and whether its vectors turn with it."""

    rotation_deg: float = 180.0  # angles within ±
    translation: float = 0.1  # shifts within ±, in sides of the image
    zoom: float = 0.1  # factors within 1 ±
    vectors: Literal["turn", "ignore"] = "turn"
    reflection: Reflection = "none"  # of every second sample, at random
    edges: Edges = "nearest"
    interpolation: Interpolation = "linear"

    def __post_init__(self) -> None:
        complaints = {
            "reflection": reflection_complaint(self.reflection),
            "edges": edges_complaint(self.edges),
            "interpolation": interpolation_complaint(self.interpolation),
            "zoom": "" if 0 <= self.zoom < 1 else f"found {self.zoom!r}; allowed: numbers from 0 to below 1",
        }
        for name, complaint in complaints.items():
            if complaint:
                raise StudyError(f"{name}: {complaint}")


def transform(
    images: torch.Tensor,
    index: torch.Tensor,
    epoch: int,
    data_seed: int,
    augmentation: Augmentation,
    vectors: Vectors,
) -> torch.Tensor:
    """The batch (n, C, H, W) or (n, C, D, H, W) moved; a move depends on (data_seed, epoch, index) alone.

    A volume turns about an axis drawn uniformly from all directions, by an angle within ± rotation_deg. (For
    180° these are not the rotations drawn uniformly: small angles come more often than in Haar's measure.)
    """
    axes = images.ndim - 2
    check_vectors(vectors, axes, augmentation)
    draws = uniforms(data_seed, epoch, index, 8 if axes == 3 else 5).to(images.dtype) * 2.0 - 1.0
    scale = 1.0 + draws[:, ZOOM] * augmentation.zoom
    angle = draws[:, ANGLE] * math.radians(augmentation.rotation_deg)
    turn = _turn_2d(angle) if axes == 2 else _turn_3d(angle, draws[:, AXIS_HEIGHT], draws[:, AXIS_AZIMUTH])
    if augmentation.reflection != "none":
        mirrored = torch.where(draws[:, MIRROR] < 0, -1.0, 1.0)
        turn[:, :, MIRRORED_AXIS[augmentation.reflection]] *= mirrored[:, None]
    shift = draws[:, [SHIFT_X, SHIFT_Y, SHIFT_Z][:axes]] * (2.0 * augmentation.translation)  # a side is 2 wide
    grid = _sources(turn.mT / scale[:, None, None], shift, images.shape[:1:-1])
    moved = _resampled(images, grid, augmentation)
    if augmentation.vectors == "turn":
        _turn(moved, turn, vectors)
    return moved


def check_vectors(vectors: Vectors, axes: int, augmentation: Augmentation) -> None:
    """Refuse vectors that can't turn with a field of so many axes, and cubic volumes."""
    if axes not in {2, 3}:
        raise WorkloadError(f"augmentation: found samples of {axes} axes; allowed: images (2) and volumes (3)")
    for vector in vectors if augmentation.vectors == "turn" else ():
        if len(vector) != axes:
            names = "(x, y)" if axes == 2 else "(x, y, z)"
            raise WorkloadError(
                f"vectors: found {vector}; a field of {axes} axes turns vectors of {axes} channels {names}; "
                "or set vectors: ignore"
            )
    if axes == 3 and augmentation.interpolation == "cubic":
        raise StudyError("interpolation: found 'cubic' for volumes; allowed: 'linear', 'nearest'")


def _turn_2d(angle: torch.Tensor) -> torch.Tensor:
    """The matrices (n, 2, 2) that turn (x, y) counter-clockwise."""
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((cos, -sin, sin, cos), dim=1).view(-1, 2, 2)


def _turn_3d(angle: torch.Tensor, height: torch.Tensor, azimuth: torch.Tensor) -> torch.Tensor:
    """The matrices (n, 3, 3) that turn (x, y, z) about axes of this height on the unit sphere (Rodrigues)."""
    level, azimuth = (1.0 - height**2).clamp_min(0.0).sqrt(), azimuth * math.pi
    axis = torch.stack((level * azimuth.cos(), level * azimuth.sin(), height), dim=1)
    x, y, z = axis.unbind(1)
    nothing = torch.zeros_like(x)
    cross = torch.stack((nothing, -z, y, z, nothing, -x, -y, x, nothing), dim=1).view(-1, 3, 3)
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    along = axis[:, :, None] * axis[:, None, :]
    return cos * torch.eye(3, dtype=angle.dtype, device=angle.device) + sin * cross + (1.0 - cos) * along


def _sources(back: torch.Tensor, shift: torch.Tensor, sides: tuple[int, ...]) -> torch.Tensor:
    """Where each output cell comes from, (n, …, H, W, axes) in units of half a side: shift, then turn and zoom back.

    `back`, `shift` and `sides` are in the order x, y, z; cells are counted as grid_sample does without align_corners.
    """
    axes = len(sides)
    places = [_centres(side, back) - shift[:, a, None] for a, side in enumerate(sides)]
    grid = back.new_empty(len(back), *sides[::-1], axes)
    for k, side in enumerate(sides):
        # sums of a row and a column: 7 × as fast as affine_grid, which multiplies matrices
        parts = []
        for a, other in enumerate(sides):
            shape = [len(back)] + [1] * axes
            shape[axes - a] = other
            parts.append((back[:, k, a, None] * (other / side) * places[a]).view(shape))
        total = parts[0] if axes == 2 else parts[0] + parts[2]
        torch.add(total, parts[1], out=grid[..., k])
    return grid


def _centres(side: int, like: torch.Tensor) -> torch.Tensor:
    """The middles of the cells from -1 to 1."""
    return (torch.arange(side, dtype=like.dtype, device=like.device) * 2 + 1) / side - 1


def _resampled(images: torch.Tensor, grid: torch.Tensor, augmentation: Augmentation) -> torch.Tensor:
    """The images at the places of the grid; what lies beyond the border is as `edges` says."""
    mode = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}[augmentation.interpolation]
    padding = "border" if augmentation.edges == "nearest" else "zeros"
    if augmentation.edges == "wrap":
        reach = _REACH[augmentation.interpolation]
        sides = images.shape[2:]
        grid = (grid + 1.0).remainder_(2.0).sub_(1.0)
        for k, side in enumerate(sides):
            around = torch.arange(-reach, side + reach, device=images.device) % side
            images = images.index_select(k + 2, around)
            grid[..., -1 - k] *= side / len(around)
    # never "reflection" at the border: a mirror image turns cyclones into anticyclones
    return functional.grid_sample(images, grid, mode, padding, align_corners=False)


def _turn(images: torch.Tensor, turn: torch.Tensor, vectors: Vectors) -> None:
    """Turn the vectors of every image by its matrix, in place."""
    turn = turn.view(*turn.shape, *([1] * (images.ndim - 2)))
    for vector in vectors:
        after = []
        for k in range(len(vector)):
            part = images[:, vector[0]] * turn[:, k, 0]
            for a in range(1, len(vector)):
                part.addcmul_(images[:, vector[a]], turn[:, k, a])
            after.append(part)
        for channel, part in zip(vector, after, strict=True):
            images[:, channel] = part
