"""Counter-based random numbers, and the turning of images with their vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tradewind.augment.affine import Augmentation, augment_ahead, transform
from tradewind.noise import uniforms

TURN_ONLY = Augmentation(rotation_deg=180.0, translation=0.0, zoom=0.0)
WIND = ((1, 2),)


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


def test_copies_made_ahead_are_the_natural_samples_then_epoch_zero_of_further_indices() -> None:
    natural = np.random.default_rng(0).standard_normal((300, 16, 16, 3)).astype(np.float32)
    natural.flags.writeable = False
    inputs = np.moveaxis(natural, 3, 1)
    out = np.empty((900, 3, 16, 16), np.float32)
    augment_ahead(inputs, 3, Augmentation(), WIND, 9, out)
    np.testing.assert_array_equal(out[:300], inputs)
    images = torch.from_numpy(np.array(inputs))
    for copy in (1, 2):
        expected = transform(images, torch.arange(300) + copy * 300, 0, 9, Augmentation(), WIND)
        np.testing.assert_allclose(out[copy * 300 : copy * 300 + 300], expected.numpy(), atol=1e-5)


def test_copies_need_a_place_of_their_size() -> None:
    with pytest.raises(ValueError, match="out holds 5 samples, not 2 × 3"):
        augment_ahead(np.zeros((3, 3, 8, 8), np.float32), 2, Augmentation(), (), 0, np.zeros((5, 3, 8, 8)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_draws_the_same_numbers_and_moves_images_alike() -> None:
    index, images = torch.arange(1000), torch.randn(1000, 3, 32, 32)
    assert torch.equal(uniforms(3, 2, index.cuda(), 5).cpu(), uniforms(3, 2, index, 5))
    here = transform(images, index, 1, 5, Augmentation(), WIND)
    there = transform(images.cuda(), index.cuda(), 1, 5, Augmentation(), WIND).cpu()
    torch.testing.assert_close(there, here, atol=1e-3, rtol=0)
