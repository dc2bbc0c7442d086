"""Counter-based random numbers, and the turning of images and volumes with their vectors, plainly and compiled."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tradewind.augment.affine import ANGLE, AXIS_AZIMUTH, AXIS_HEIGHT, MIRROR, Augmentation, transform
from tradewind.augment.live import Live
from tradewind.augment.options import EDGES, edges_complaint, reflection_complaint
from tradewind.augment.overlap import overlapped
from tradewind.bench.augment import interval
from tradewind.errors import StudyError, WorkloadError
from tradewind.noise import GOLDEN, start_word, uniforms

TURN_ONLY = Augmentation(rotation_deg=180.0, translation=0.0, zoom=0.0)
WIND = ((1, 2),)
SHARED = Path(os.environ.get("TRADEWIND_DATA", Path(__file__).parents[2] / "shared" / "data"))
KATRINA = SHARED / "wrf_katrina_20050828_48x48.nc"


def centred(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of every pixel, from the middle of the image."""
    axis = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return x, y


def move(index: int, augmentation: Augmentation) -> tuple[float, float, float, float]:
    """The angle, factor and shift in sides that sample `index` gets in epoch 1 with data seed 5."""
    draws = (uniforms(5, 1, torch.tensor([index]), 4)[0].double() * 2 - 1).tolist()
    angle, zoom, east, north = draws
    return (
        angle * math.radians(augmentation.rotation_deg),
        1 + zoom * augmentation.zoom,
        east * augmentation.translation,
        north * augmentation.translation,
    )


def splitmix64(state: int) -> int:
    """The published generator, one step, in Python's whole numbers."""
    word = (1 << 64) - 1
    z = (state + 0x9E3779B97F4A7C15) & word
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & word
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & word
    return z ^ z >> 31


def test_a_column_is_the_next_step_of_splitmix64_in_64_bits() -> None:
    golden, word = 0x9E3779B97F4A7C15, (1 << 64) - 1
    epoch_state = splitmix64((splitmix64((7 * golden - golden) & word) + (3 - 1) * golden) & word)
    sample_state = splitmix64((epoch_state + (11 - 1) * golden) & word)
    expected = [(splitmix64((sample_state + k * golden) & word) >> 40) / 2**24 for k in range(3)]
    assert uniforms(7, 3, torch.tensor([11]), 3)[0].tolist() == expected


def test_a_sample_draws_the_same_numbers_in_any_batch_and_order() -> None:
    whole = uniforms(1, 2, torch.arange(1000), 4)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(uniforms(1, 2, order, 4), whole[order])
    assert torch.equal(uniforms(1, 2, torch.tensor([977]), 2), whole[977:978, :2])


def test_the_numbers_are_uniform_and_uncorrelated() -> None:
    draws = uniforms(0, 0, torch.arange(50_000), 4)
    assert draws.dtype == torch.float32
    assert draws.min() >= 0
    assert draws.max() < 1
    assert draws.mean(0).sub(0.5).abs().max() < 0.01
    assert draws.var(0).sub(1 / 12).abs().max() < 0.001
    others = [uniforms(1, 0, torch.arange(50_000), 1), uniforms(0, 1, torch.arange(50_000), 1)]
    together = torch.cat([draws, *others], dim=1)
    assert (torch.corrcoef(together.T) - torch.eye(6)).abs().max() < 0.02
    assert torch.corrcoef(torch.stack((draws[1:, 0], draws[:-1, 0])))[0, 1].abs() < 0.02


def test_negative_seeds_and_large_indices_are_as_good_as_others() -> None:
    draws = uniforms(-3, 0, torch.tensor([0, 2**40, 2**62]), 2)
    assert len(set(draws.flatten().tolist())) == 6


def test_no_range_moves_nothing() -> None:
    images = torch.randn(5, 3, 32, 32)
    moved = transform(images, torch.arange(5), 1, 5, Augmentation(0.0, 0.0, 0.0), WIND)
    torch.testing.assert_close(moved, images, atol=1e-5, rtol=0)


def test_a_solid_body_vortex_is_unchanged_by_any_rotation() -> None:
    x, y = centred(32)
    images = torch.stack((x * 0, -y, x)).expand(50, 3, 32, 32).clone()
    moved = transform(images, torch.arange(50), 1, 5, TURN_ONLY, WIND)
    inside = (x**2 + y**2).sqrt() < 15
    torch.testing.assert_close(moved[:, :, inside], images[:, :, inside], atol=1e-9, rtol=0)


def test_a_vortex_whose_vectors_are_ignored_is_another_flow() -> None:
    x, y = centred(32)
    images = torch.stack((x * 0, -y, x)).expand(50, 3, 32, 32).clone()
    ignoring = Augmentation(180.0, 0.0, 0.0, vectors="ignore")
    moved = transform(images, torch.arange(50), 1, 5, ignoring, WIND)
    assert (moved - images)[:, 1:, 8:24, 8:24].abs().amax(dim=(1, 2, 3)).median() > 5


def test_a_blob_goes_where_angle_factor_and_shift_send_it() -> None:
    augmentation = Augmentation(180.0, 0.1, 0.2)
    x, y = centred(64)
    image = torch.exp(-((x - 9) ** 2 + (y - 4) ** 2) / 18)[None, None]
    for index in range(8):
        angle, factor, east, north = move(index, augmentation)
        moved = transform(image, torch.tensor([index]), 1, 5, augmentation, ())[0, 0]
        weight = moved / moved.sum()
        expected_x = factor * (9 * math.cos(angle) - 4 * math.sin(angle)) + 64 * east
        expected_y = factor * (9 * math.sin(angle) + 4 * math.cos(angle)) + 64 * north
        assert (weight * x).sum().item() == pytest.approx(expected_x, abs=0.05)
        assert (weight * y).sum().item() == pytest.approx(expected_y, abs=0.05)


def test_an_eastward_wind_blows_northward_after_a_left_quarter_turn() -> None:
    wind = torch.zeros(40, 2, 16, 16, dtype=torch.float64)
    wind[:, 0] = 1.0
    moved = transform(wind, torch.arange(40), 1, 5, TURN_ONLY, ((0, 1),))
    angles = torch.tensor([move(index, TURN_ONLY)[0] for index in range(40)], dtype=torch.float64)
    expected = torch.stack((angles.cos(), angles.sin()), dim=1)[:, :, None, None].expand_as(moved)
    torch.testing.assert_close(moved, expected, atol=1e-6, rtol=0)


def test_the_vorticity_and_divergence_of_turned_wind_are_turned_too() -> None:
    x, y = centred(64)
    hill = torch.exp(-((x - 6) ** 2 + (y + 4) ** 2) / 72)
    u = -(y + 4) * hill + 0.5 * (x - 6) * hill  # a vortex and a source at one place
    v = (x - 6) * hill + 0.5 * (y + 4) * hill
    spin = (2 - ((x - 6) ** 2 + (y + 4) ** 2) / 36) * hill
    images = torch.stack((spin, u, v)).expand(12, 3, 64, 64).clone()
    shifting = Augmentation(180.0, 0.1, 0.0)
    spin, u, v = transform(images, torch.arange(12), 1, 5, shifting, WIND).unbind(1)
    (du_dy, du_dx), (dv_dy, dv_dx) = (torch.gradient(field, dim=(1, 2)) for field in (u, v))
    inside = (slice(None), slice(12, -12), slice(12, -12))
    # of at most 2: what central differences and bilinear weights leave
    assert (dv_dx - du_dy - spin)[inside].abs().max() < 0.1
    assert (du_dx + dv_dy - spin / 2)[inside].abs().max() < 0.1


def test_turned_wind_keeps_its_speed() -> None:
    wind = torch.randn(20, 2, 16, 16, dtype=torch.float64)
    index, ignoring = torch.arange(20), Augmentation(vectors="ignore")
    turned = transform(wind, index, 1, 5, Augmentation(), ((0, 1),))
    sampled = transform(wind, index, 1, 5, ignoring, ((0, 1),))
    torch.testing.assert_close(turned.norm(dim=1), sampled.norm(dim=1))


def test_a_turned_image_equals_scipys() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    image = torch.randn(24, 24, dtype=torch.float64)
    x, y = centred(24)
    inside = (torch.hypot(x, y) < 11).numpy()
    for index in range(5):
        angle = move(index, TURN_ONLY)[0]
        ours = transform(image[None, None], torch.tensor([index]), 1, 5, TURN_ONLY, ())[0, 0].numpy()
        back = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])  # (y, x)
        middle = np.array([11.5, 11.5])
        theirs = ndimage.affine_transform(image.numpy(), back, middle - back @ middle, order=1)
        np.testing.assert_allclose(ours[inside], theirs[inside], atol=1e-5)


def test_images_that_are_not_square_turn_without_shear() -> None:
    y, x = torch.meshgrid(torch.arange(48.0) - 23.5, torch.arange(96.0) - 47.5, indexing="ij")
    image = torch.exp(-((x - 8) ** 2 + y**2) / 18)[None, None]
    for index in range(5):
        angle = move(index, TURN_ONLY)[0]
        weight = transform(image, torch.tensor([index]), 1, 5, TURN_ONLY, ())[0, 0]
        weight = weight / weight.sum()
        assert (weight * x).sum().item() == pytest.approx(8 * math.cos(angle), abs=0.05)
        assert (weight * y).sum().item() == pytest.approx(8 * math.sin(angle), abs=0.05)


def test_a_sample_is_moved_alike_alone_and_in_a_batch() -> None:
    images = torch.randn(64, 3, 32, 32)
    whole = transform(images, torch.arange(100, 164), 3, 5, Augmentation(), WIND)
    some = torch.tensor([60, 2, 33])
    torch.testing.assert_close(transform(images[some], some + 100, 3, 5, Augmentation(), WIND), whole[some])
    next_epoch = transform(images, torch.arange(100, 164), 4, 5, Augmentation(), WIND)
    assert (next_epoch - whole).abs().amax(dim=(1, 2, 3)).min() > 0.1


def test_channels_last_images_give_the_same_values() -> None:
    images = torch.randn(8, 3, 32, 32)
    last = images.contiguous(memory_format=torch.channels_last)
    plain = transform(images, torch.arange(8), 0, 5, Augmentation(), WIND)
    torch.testing.assert_close(transform(last, torch.arange(8), 0, 5, Augmentation(), WIND), plain)


def vorticity(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """By central differences, per cell."""
    du_dy, _ = torch.gradient(u, dim=(-2, -1))
    _, dv_dx = torch.gradient(v, dim=(-2, -1))
    return dv_dx - du_dy


@pytest.mark.skipif(not KATRINA.exists(), reason="no file of hurricane Katrina")
def test_the_vorticity_of_turned_hurricane_wind_is_the_turned_vorticity() -> None:
    netcdf, ndimage = pytest.importorskip("netCDF4"), pytest.importorskip("scipy.ndimage")
    with netcdf.Dataset(KATRINA) as file:
        u, v = (torch.from_numpy(np.asarray(file[name][:], np.float64)) for name in ("U10", "V10"))
    x, y = centred(48)
    inside = torch.hypot(x, y) < 21  # the border's neighbours are made up

    def difference(smoothing: float, augmentation: Augmentation) -> float:
        wind = [torch.from_numpy(ndimage.gaussian_filter(part.numpy(), (0, smoothing, smoothing))) for part in (u, v)]
        images = torch.stack((vorticity(*wind), *wind), dim=1).repeat(8, 1, 1, 1)
        spin, *wind = transform(images, torch.arange(32), 1, 5, augmentation, WIND).unbind(1)
        off, spin = (vorticity(*wind) - spin)[:, inside], spin[:, inside]
        return float(off.square().mean().sqrt() / spin.square().mean().sqrt())

    # Of the vorticity's RMS. The eye wall is 2 to 3 cells wide, where central differences and the weights of 4
    # neighbours are rough: 9.5 % remain, 1.7 % once the wind is smooth over 2 cells. Unturned wind is another flow.
    assert difference(0.0, TURN_ONLY) < 0.11
    assert difference(2.0, TURN_ONLY) < 0.02
    assert difference(2.0, Augmentation(180.0, 0.0, 0.0, vectors="ignore")) > 1.0


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("reflection", ["none", "east-west", "north-south"])
def test_a_moved_image_equals_scipys_up_to_and_beyond_the_border(edges: Any, reflection: Any) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    augmentation = Augmentation(180.0, 0.4, 0.3, reflection=reflection, edges=edges)
    height, width = 20, 28
    image = torch.randn(height, width, dtype=torch.float64)
    mode = {"nearest": "nearest", "zeros": "grid-constant", "wrap": "grid-wrap"}[edges]
    for index in range(8):
        angle, factor, east, north = move(index, augmentation)
        mirrored = bool(uniforms(5, 1, torch.tensor([index]), 5)[0, MIRROR] < 0.5) and reflection != "none"
        back = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]) / factor  # (y, x)
        if mirrored:
            back[1 if reflection == "east-west" else 0] *= -1
        middle = np.array([(height - 1) / 2, (width - 1) / 2])
        offset = middle - back @ (middle + np.array([north * height, east * width]))
        theirs = ndimage.affine_transform(image.numpy(), back, offset, order=1, mode=mode)
        ours = transform(image[None, None], torch.tensor([index]), 1, 5, augmentation, ())[0, 0].numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_cubic_interpolation_keeps_more_of_a_wave_and_the_nearest_cell_makes_up_nothing() -> None:
    x, y = centred(48)
    image = (torch.sin(x) * torch.cos(0.7 * y))[None, None]
    inside = torch.hypot(x, y) < 20
    off = {}
    for kind in ("linear", "cubic"):
        angle = move(3, TURN_ONLY)[0]
        moved = transform(image, torch.tensor([3]), 1, 5, Augmentation(180.0, 0.0, 0.0, interpolation=kind), ())[0, 0]
        back_x, back_y = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
        off[kind] = (moved - torch.sin(back_x) * torch.cos(0.7 * back_y))[inside].abs().mean()
    assert off["cubic"] < off["linear"] / 2
    nearest = transform(image, torch.tensor([3]), 1, 5, Augmentation(interpolation="nearest", edges="wrap"), ())
    assert torch.isin(nearest, image).all()


def test_a_mirrored_cyclone_is_an_anticyclone_and_half_of_them_are_mirrored() -> None:
    x, y = centred(32)
    vortex = torch.stack((x * 0, -y, x)).expand(400, 3, 32, 32).clone()
    inside = (x**2 + y**2).sqrt() < 15
    for reflection in ("east-west", "north-south"):
        mirroring = Augmentation(180.0, 0.0, 0.0, reflection=reflection)
        moved = transform(vortex, torch.arange(400), 1, 5, mirroring, WIND)
        sign = vorticity(moved[:, 1], moved[:, 2])[:, 15, 15].sign()
        torch.testing.assert_close(moved[:, :, inside], (vortex * sign[:, None, None, None])[:, :, inside])
        assert 160 < int((sign < 0).sum()) < 240


def test_only_the_component_across_the_mirror_changes_sign() -> None:
    wind = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1).expand(20, 2, 8, 8).clone()
    mirroring = Augmentation(0.0, 0.0, 0.0, reflection="east-west")
    moved = transform(wind, torch.arange(20), 1, 5, mirroring, ((0, 1),))
    assert set(moved[:, 0].flatten().tolist()) == {3.0, -3.0}
    torch.testing.assert_close(moved[:, 1], wind[:, 1])
    ignoring = Augmentation(0.0, 0.0, 0.0, "ignore", "east-west")
    torch.testing.assert_close(transform(wind, torch.arange(20), 1, 5, ignoring, ((0, 1),)), wind)


@pytest.mark.parametrize("value", [True, "mirror", "flip", "horizontal", 1, None])
def test_a_mirror_that_is_not_asked_for_by_name_is_refused_with_the_reason(value: Any) -> None:
    text = reflection_complaint(value)
    assert text.startswith(f"found {value!r}; a mirror image turns cyclones the wrong way round")
    assert text.endswith("allowed: 'none', 'east-west', 'north-south'")
    assert "\n" not in text
    with pytest.raises(StudyError, match="cyclones the wrong way round"):
        Augmentation(reflection=value)


def test_names_that_are_allowed_draw_no_complaint_and_mirrored_borders_do() -> None:
    assert [reflection_complaint(name) for name in ("none", "east-west", "north-south")] == [""] * 3
    assert [edges_complaint(name) for name in EDGES] == [""] * 3
    assert edges_complaint("reflect") == (
        "found 'reflect'; a mirrored border turns cyclones into anticyclones; allowed: 'nearest', 'zeros', 'wrap'"
    )
    with pytest.raises(StudyError, match="edges: found 'zero'; did you mean 'zeros'"):
        Augmentation(edges="zero")  # type: ignore[arg-type]
    with pytest.raises(StudyError, match="interpolation: found 'bilinear'"):
        Augmentation(interpolation="bilinear")  # type: ignore[arg-type]
    with pytest.raises(StudyError, match=r"zoom: found 1\.0"):
        Augmentation(zoom=1.0)


def volume_places(side: int) -> torch.Tensor:
    """(x, y, z) of every cell of a cube, from its middle; shape (3, D, H, W)."""
    axis = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    z, y, x = torch.meshgrid(axis, axis, axis, indexing="ij")
    return torch.stack((x, y, z))


def test_a_ball_is_unchanged_by_any_rotation_in_space() -> None:
    radius = volume_places(24).norm(dim=0)
    ball = torch.exp(-((radius / 6) ** 2)).expand(10, 1, 24, 24, 24).clone()
    moved = transform(ball, torch.arange(10), 1, 5, TURN_ONLY, ())
    assert (moved - ball)[:, :, radius < 11].abs().max() < 0.02  # of 1: what linear weights leave of the curvature


def test_a_flow_turning_about_an_axis_turns_about_the_turned_axis() -> None:
    rotations = pytest.importorskip("scipy.spatial.transform").Rotation
    places = volume_places(16)
    spin = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    flow = torch.linalg.cross(spin.view(3, 1, 1, 1).expand_as(places), places, dim=0)
    moved = transform(flow.expand(12, 3, 16, 16, 16).clone(), torch.arange(12), 1, 5, TURN_ONLY, ((0, 1, 2),))
    inside = places.norm(dim=0) < 7
    draws = uniforms(5, 1, torch.arange(12), 8).double() * 2 - 1
    for sample, (angle, height, azimuth) in zip(moved, draws[:, [ANGLE, AXIS_HEIGHT, AXIS_AZIMUTH]], strict=True):
        level = (1 - height**2).sqrt()
        axis = torch.stack((level * torch.cos(math.pi * azimuth), level * torch.sin(math.pi * azimuth), height))
        turned = torch.from_numpy(rotations.from_rotvec((math.pi * angle * axis).numpy()).apply(spin.numpy()))
        expected = torch.linalg.cross(turned.view(3, 1, 1, 1).expand_as(places), places, dim=0)
        torch.testing.assert_close(sample[:, inside], expected[:, inside], atol=1e-9, rtol=0)


def test_a_shifted_and_zoomed_volume_that_is_no_cube_equals_scipys() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    augmentation = Augmentation(0.0, 0.2, 0.3, edges="zeros")
    sides = np.array([8, 12, 10])  # D, H, W
    volume = torch.randn(*sides.tolist(), dtype=torch.float64)
    middle = (sides - 1) / 2
    for index in range(4):
        draws = (uniforms(5, 1, torch.tensor([index]), 8)[0].double() * 2 - 1).numpy()
        back = np.full(3, 1 / (1 + draws[1] * 0.3))
        offset = middle - back * (middle + draws[[5, 3, 2]] * 0.2 * sides)
        theirs = ndimage.affine_transform(volume.numpy(), back, offset, order=1, mode="grid-constant")
        ours = transform(volume[None, None], torch.tensor([index]), 1, 5, augmentation, ())[0, 0].numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_axes_of_volumes_point_everywhere_alike() -> None:
    spin = torch.zeros(2000, 3, 2, 2, 2, dtype=torch.float64)
    spin[:, 2] = 1.0
    half_turns = Augmentation(180.0, 0.0, 0.0)
    up = transform(spin, torch.arange(2000), 1, 5, half_turns, ((0, 1, 2),))[:, :, 0, 0, 0]
    assert up.norm(dim=1).sub(1).abs().max() < 1e-6
    assert up[:, :2].mean(0).abs().max() < 0.05
    # E[R_zz] = E[cos] + (1 - E[cos]) E[axis_z²] = 1/3 for angles uniform within ± 180°
    assert up[:, 2].mean().item() == pytest.approx(1 / 3, abs=0.04)


def test_vectors_of_another_size_than_the_field_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"vectors: found \(0, 1\); a field of 3 axes"):
        transform(torch.zeros(1, 2, 4, 4, 4), torch.arange(1), 0, 0, Augmentation(), ((0, 1),))
    with pytest.raises(StudyError, match="'cubic' for volumes"):
        transform(torch.zeros(1, 2, 4, 4, 4), torch.arange(1), 0, 0, Augmentation(interpolation="cubic"), ())
    with pytest.raises(WorkloadError, match="samples of 1 axes"):
        transform(torch.zeros(1, 2, 4), torch.arange(1), 0, 0, Augmentation(), ())


CASES: list[tuple[tuple[int, int, int], Augmentation, tuple[tuple[int, int], ...]]] = [
    ((32, 32, 3), Augmentation(), WIND),
    ((32, 32, 3), Augmentation(edges="zeros", reflection="east-west"), WIND),
    ((32, 32, 3), Augmentation(edges="wrap", reflection="north-south"), WIND),
    ((32, 32, 3), Augmentation(vectors="ignore"), WIND),
    ((24, 40, 1), Augmentation(90.0, 0.3, 0.5), ()),
    ((41, 17, 1), Augmentation(90.0, 0.3, 0.5, edges="wrap"), ()),
    ((16, 20, 5), Augmentation(180.0, 1.0, 0.9), ((0, 4), (3, 1))),
    ((16, 20, 5), Augmentation(180.0, 1.0, 0.9, edges="zeros"), ((0, 4), (3, 1))),
    ((16, 20, 5), Augmentation(180.0, 1.0, 0.9, edges="wrap"), ((0, 4), (3, 1))),
    ((9, 9, 4), Augmentation(180.0, 0.5, 0.2, edges="zeros"), ((2, 3),)),
    ((7, 5, 2), Augmentation(180.0, 0.2, 0.2, "turn", "east-west", "wrap"), ((1, 0),)),
    ((1, 1, 1), Augmentation(), ()),
    ((2, 1, 1), Augmentation(edges="wrap"), ()),
    ((1, 9, 3), Augmentation(edges="zeros"), WIND),
    ((3, 1, 2), Augmentation(), ((0, 1),)),
]


@pytest.mark.parametrize(("shape", "augmentation", "vectors"), CASES)
def test_the_compiled_way_on_the_cpu_agrees_with_the_plain_one(
    shape: tuple[int, int, int], augmentation: Augmentation, vectors: tuple[tuple[int, int], ...]
) -> None:
    cpu = pytest.importorskip("tradewind.augment.cpu")
    rng = np.random.default_rng(3)
    stored = rng.uniform(-1, 1, (50, *shape)).astype(np.float32)
    stored.flags.writeable = False
    rows = rng.integers(0, 50, 200)
    index = rng.integers(0, 1 << 40, 200)
    out = np.full((202, *shape), 7, np.float32)
    cpu.augmented_rows(stored, rows, index, start_word(-3, 4), augmentation, vectors, out[1:201])
    images = torch.from_numpy(stored[rows]).movedim(-1, 1).double()
    plain = transform(images, torch.from_numpy(index), 4, -3, augmentation, vectors).movedim(1, -1).numpy()
    # places are off by less than 1e-6 sides, by twice as much when zoomed out by 0.1; the range of values is 2
    np.testing.assert_allclose(out[1:201], plain, atol=2e-6 * max(shape[:2], default=1) * 2, rtol=0)
    assert (out[[0, 201]] == 7).all()  # nothing is spilt beside the batch


def test_the_compiled_way_draws_the_very_same_numbers() -> None:
    cpu = pytest.importorskip("tradewind.augment.cpu")
    index = torch.tensor([0, 1, 2**40, 2**62])
    plain = uniforms(-3, 7, index, 5).double() * 2 - 1
    for n, sample in enumerate(index.tolist()):
        word = cpu._mixed(np.uint64((sample * GOLDEN + start_word(-3, 7)) & (1 << 64) - 1))
        assert [cpu._draw(np.uint64(word), column) for column in range(5)] == plain[n].tolist()


def test_a_broken_sample_stays_broken_and_breaks_no_other() -> None:
    cpu = pytest.importorskip("tradewind.augment.cpu")
    stored = np.ones((3, 16, 16, 3), np.float32)
    stored[1] = np.nan
    moved = cpu.augmented_rows(stored, np.arange(3), np.arange(3), start_word(0, 0), Augmentation(), WIND)
    assert np.isnan(moved[1]).all()
    assert np.isfinite(moved[[0, 2]]).all()


def test_rows_and_vectors_outside_the_store_are_an_error_not_a_crash() -> None:
    cpu = pytest.importorskip("tradewind.augment.cpu")
    stored, one = np.ones((3, 8, 8, 2), np.float32), np.arange(1)
    for row in (3, -1):
        with pytest.raises(IndexError, match=f"rows {row} to {row} of a store of 3"):
            cpu.augmented_rows(stored, one + row, one, 0, Augmentation(), ())
    with pytest.raises(IndexError, match="of images of 2 channels"):
        cpu.augmented_rows(stored, one, one, 0, Augmentation(), WIND)


def test_where_no_compiled_code_can_be_kept_it_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, numba = pytest.importorskip("tradewind.augment.cpu"), pytest.importorskip("numba")
    caching = pytest.importorskip("numba.core.caching")
    for kind in vars(caching).values():  # its places are a list of one of its classes, whose name has changed
        if hasattr(kind, "_locator_classes"):
            monkeypatch.setattr(kind, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache function"):
        numba.njit(cache=True)(_copy)
    monkeypatch.setattr(cpu, "_batch", _copy)  # compiles in less than a second
    work = cpu.kernel.__wrapped__()
    stored, out = np.full((1, 8, 8, 3), 4, np.float32), np.zeros((1, 8, 8, 3), np.float32)
    nothing = np.empty((0, 2), np.int64)
    work(stored, np.arange(1), np.arange(1), np.uint64(1), (3.0, 0.1, 0.1), -1, 0, nothing, out)
    assert (out == 4).all()


def _copy(
    stored: Any, rows: Any, index: Any, start: Any, ranges: Any, axis: Any, edges: Any, pairs: Any, out: Any
) -> None:
    out[:] = stored


def test_live_samples_are_those_of_the_plain_way_in_any_layout_and_split() -> None:
    stored = torch.rand(40, 16, 16, 3)
    index = torch.arange(100)
    rows = index % 40
    fast = Live(stored, True, 9, Augmentation(), WIND)
    plain = Live(stored.movedim(-1, 1).contiguous(), False, 9, Augmentation(), WIND)
    assert (plain.way, plain.reason) == ("torch", "samples are not images stored with channels last")
    whole = fast.batch(rows, index, 2)
    assert whole.shape == (100, 3, 16, 16)
    assert whole.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(whole, plain.batch(rows, index, 2), atol=1e-4, rtol=0)
    parts = [fast.batch(part % 40, part, 2) for part in torch.split(index, 7)]
    torch.testing.assert_close(torch.cat(parts), whole, atol=0, rtol=0)


def test_what_cannot_be_compiled_is_moved_plainly_and_says_why() -> None:
    images = torch.rand(4, 8, 8, 2)
    doubles, cubic = images.double(), Augmentation(interpolation="cubic")
    assert Live(doubles, True, 0, Augmentation(), ()).reason == "samples are torch.float64 on cpu"
    assert Live(images, True, 0, cubic, ()).reason == "interpolation is cubic, not linear"
    index = torch.arange(4)
    moved = Live(doubles, True, 0, Augmentation(), ((0, 1),)).batch(index, index, 1)
    expected = transform(doubles.movedim(-1, 1), index, 1, 0, Augmentation(), ((0, 1),))
    torch.testing.assert_close(moved, expected, atol=0, rtol=0)
    volumes = Live(torch.rand(4, 2, 6, 6, 6), False, 0, Augmentation(), ())
    assert volumes.batch(index, index, 1).shape == (4, 2, 6, 6, 6)


def test_without_numba_live_samples_are_moved_plainly_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name in {"tradewind.augment.cpu", "tradewind.augment.lanes"}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("tradewind.augment.cpu", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    images, index = torch.rand(4, 8, 8, 3), torch.arange(4)
    with caplog.at_level(logging.WARNING, "tradewind"):
        lives = [Live(images, True, 0, Augmentation(), WIND) for _ in range(3)]
        moved = [live.batch(index, index, 1) for live in lives]
    assert {live.way for live in lives} == {"torch"}
    assert [record.message for record in caplog.records if "numba" in record.message] == [
        f"live augmentation by plain torch, several times slower: {lives[0].reason}"
    ]
    torch.testing.assert_close(moved[0], transform(images.movedim(-1, 1), index, 1, 0, Augmentation(), WIND))


def test_batches_made_ahead_come_in_order_and_one_is_made_while_another_is_used() -> None:
    made: list[threading.Event] = [threading.Event() for _ in range(5)]

    def batches() -> Iterator[int]:
        for k, event in enumerate(made):
            event.set()
            yield k

    for k in overlapped(batches()):
        assert k == 4 or made[k + 1].wait(10)  # nobody has asked for it yet
        assert not any(event.is_set() for event in made[k + 2 :])


def test_an_error_in_a_batch_made_ahead_comes_where_the_batch_would_have() -> None:
    def batches() -> Iterator[int]:
        yield 0
        yield 1
        raise ValueError("no third batch")

    ahead = overlapped(batches())
    assert [next(ahead), next(ahead)] == [0, 1]
    with pytest.raises(ValueError, match="no third batch"):
        next(ahead)


def test_a_consumer_that_stops_early_leaves_no_thread_and_no_open_generator() -> None:
    closed = []

    def batches() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    before = threading.active_count()
    ahead = overlapped(batches())
    assert next(ahead) == 0
    ahead.close()
    assert closed == [True]
    assert threading.active_count() == before


def test_the_interval_of_a_median_is_between_order_statistics() -> None:
    values = [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0]
    assert interval(values) == (2.0, 8.0, 1 - 2 * (1 + 9) / 512)
    assert interval(values[:3]) == (1.0, 9.0, 0.75)


@pytest.mark.gpu
def test_a_gpu_draws_the_same_numbers_and_moves_images_alike() -> None:
    index, images = torch.arange(1000), torch.randn(1000, 3, 32, 32)
    assert torch.equal(uniforms(3, 2, index.cuda(), 5).cpu(), uniforms(3, 2, index, 5))
    here = transform(images, index, 1, 5, Augmentation(), WIND)
    there = transform(images.cuda(), index.cuda(), 1, 5, Augmentation(), WIND).cpu()
    torch.testing.assert_close(there, here, atol=1e-3, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "augmentation", "vectors"), CASES)
def test_the_compiled_way_on_a_gpu_agrees_with_the_plain_one(
    shape: tuple[int, int, int], augmentation: Augmentation, vectors: tuple[tuple[int, int], ...]
) -> None:
    generator = torch.Generator().manual_seed(3)
    stored = torch.rand(50, *shape, generator=generator) * 2 - 1
    rows, index = (torch.randint(0, high, (200,), generator=generator) for high in (50, 1 << 40))
    live = Live(stored.cuda(), True, -3, augmentation, vectors)
    assert (live.way, live.reason) == ("triton", "")
    moved = live.batch(rows.cuda(), index.cuda(), 4).cpu()
    plain = transform(stored[rows].movedim(-1, 1).double(), index, 4, -3, augmentation, vectors)
    # ten times what the CPU leaves: its sine is a faster one
    torch.testing.assert_close(moved.double(), plain, atol=2e-5 * max(shape[:2]) * 2, rtol=0)


@pytest.mark.gpu
def test_a_cuda_graph_replays_the_moves_of_another_epoch() -> None:
    stored, index = torch.rand(64, 32, 32, 3).cuda(), torch.arange(64).cuda()
    live = Live(stored, True, 5, Augmentation(), WIND)
    word = live.start(1)
    assert live.way == "triton"  # asked, and so compiled, before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        moved = live.batch(index, index, word)
    for epoch in (1, 2, 77):
        word.copy_(live.start(epoch))
        graph.replay()
        torch.testing.assert_close(moved, live.batch(index, index, epoch), atol=0, rtol=0)
    here = Live(stored.cpu(), True, 5, Augmentation(), WIND).batch(index.cpu(), index.cpu(), 77)
    torch.testing.assert_close(moved.cpu(), here, atol=1e-3, rtol=0)


@pytest.mark.gpu
def test_a_store_of_bfloat16_gives_batches_of_bfloat16() -> None:
    stored, index = torch.rand(64, 32, 32, 3).cuda().bfloat16(), torch.arange(64).cuda()
    moved = Live(stored, True, 5, Augmentation(), WIND).batch(index, index, 1)
    assert moved.dtype == torch.bfloat16
    whole = Live(stored.float(), True, 5, Augmentation(), WIND).batch(index, index, 1)
    torch.testing.assert_close(moved.float(), whole, atol=1e-2, rtol=1e-2)
