"""Images: class folders, array files and synthetic shapes; backbones that are fine-tuned or frozen."""

from __future__ import annotations

import builtins
import copy
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Cli, WriteStudy
from safetensors.torch import load_file, save_file
from torch import nn

import tradewind
from tradewind.errors import DataError, WorkloadError
from tradewind.train.batches import Batch
from tradewind.train.stack import Stack
from tradewind.train.torch_faults import SlicedConv2d, led_around
from tradewind.workloads import data_identity, find
from tradewind.workloads.image_files import SHAPES, load_images, make_shapes
from tradewind.workloads.image_networks import ImageNetwork, residual_backbone
from tradewind.workloads.images import Images

Array = np.ndarray[Any, Any]

SHARED = Path(os.environ.get("TRADEWIND_DATA", Path(__file__).parents[2] / "shared" / "data"))
USUAL = {name: known.default for name, known in Images.defaults.items()} | {"seed": 0, "data_seed": 0}


pytestmark = pytest.mark.usefixtures("one_core")


def network(workload: Images, seed: int = 0, **options: Any) -> ImageNetwork:
    torch.manual_seed(seed)
    made = workload.model({**USUAL, **options})
    assert isinstance(made, ImageNetwork)
    return made


def count(**options: Any) -> int:
    return sum(p.numel() for p in network(Images(images=20), **options).parameters())


def test_networks_have_the_parameters_that_their_layers_add_up_to() -> None:
    small = (3 * 9 + 1) * 32 + (32 * 9 + 1) * 64 + (64 * 9 + 1) * 128 + (128 + 1) * 10
    assert count() == small == 94_538

    def block(inputs: int, outputs: int) -> int:
        short_cut = inputs * outputs + 2 * outputs if inputs != outputs else 0
        return 9 * inputs * outputs + 9 * outputs**2 + 4 * outputs + short_cut

    blocks = [(16, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]
    stem, head = 3 * 9 * 16 + 2 * 16, (64 + 1) * 10
    assert count(network="residual", width=16) == stem + sum(block(*sizes) for sizes in blocks) + head == 175_258
    assert residual_backbone(3, 8, 1)(torch.zeros(2, 3, 32, 32)).shape == (2, 32, 8, 8)


def test_shapes_are_the_same_for_a_seed_and_need_more_than_their_colours_to_tell() -> None:
    images, labels, test, classes = make_shapes(200, 3, 32)
    np.testing.assert_array_equal(make_shapes(200, 3, 32)[0], images)
    assert (make_shapes(200, 4, 32)[0] != images).mean() > 0.9
    assert (images.shape, images.dtype) == ((200, 32, 32, 3), np.uint8)
    assert labels[:11].tolist() == [*range(10), 0]
    assert (classes.tolist(), test.any()) == (list(SHAPES), False)
    means = images.mean(axis=(1, 2))
    nearest = np.abs(means[:, None] - means[None]).sum(axis=2) + 1e9 * np.eye(200)
    assert (labels[nearest.argmin(axis=1)] == labels).mean() < 0.3


def write_arrays(path: Path, **changes: Any) -> Path:
    rng = np.random.default_rng(0)
    values = {
        "train_images": rng.integers(0, 256, (30, 8, 8, 3), np.uint8), "train_labels": np.arange(30) % 3,
        "test_images": rng.integers(0, 256, (9, 8, 8, 3), np.uint8), "test_labels": np.arange(9) % 3,
        "classes": np.array(["a", "b", "c"]),
    }  # fmt: skip
    np.savez(path, **{name: value for name, value in {**values, **changes}.items() if value is not None})
    return path


def test_an_array_files_test_images_are_the_test_and_the_others_are_split(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "images.npz")
    with np.load(path) as file:
        train, test = file["train_images"], file["test_images"]
    data = Images(source="file", path=str(path), validation=0.2).data(USUAL)
    assert data.validation is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (24, 6, 9)
    back = [part.inputs.transpose(0, 2, 3, 1) for part in (data.train, data.validation, data.test)]
    np.testing.assert_allclose(back[0].mean(axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(back[0].std(axis=(0, 1, 2)), 1, atol=1e-5)
    # undo the one scale of all parts by the training part alone
    whole = np.concatenate(back[:2]).astype(np.float64)
    scale = train.std(axis=(0, 1, 2)) / whole.std(axis=(0, 1, 2))
    offset = train.mean(axis=(0, 1, 2)) - whole.mean(axis=(0, 1, 2)) * scale
    seen = Counter(np.rint(image * scale + offset).astype(np.uint8).tobytes() for image in whole)
    assert seen == Counter(image.tobytes() for image in train)
    np.testing.assert_allclose(back[2] * scale + offset, test, atol=1e-2)
    assert data.test.targets.tolist() == [0, 1, 2] * 3
    assert data.train.targets.dtype == np.int64


def test_another_data_seed_validates_on_others_and_fewer_classes_are_the_first(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "images.npz", test_images=None, test_labels=None)
    workload = Images(source="file", path=str(path), classes=2, test=0.25, validation=0.2)
    first, again, other = (workload.data({**USUAL, "data_seed": seed}) for seed in (0, 0, 1))
    assert first.validation is not None
    assert (len(first.train), len(first.validation), len(first.test)) == (12, 3, 5)
    assert set(first.train.targets) == {0, 1}
    np.testing.assert_array_equal(first.train.inputs, again.train.inputs)
    assert not np.array_equal(first.test.inputs, other.test.inputs)
    assert network(workload).head.out_features == 2
    assert Images(source="file", path=str(path), validation=0).data(USUAL).validation is None


def test_class_folders_are_read_as_colours_of_one_size(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, kinds in (("train", ("apple", "pear")), ("test", ("pear",))):
        for kind in kinds:
            folder = tmp_path / part / kind
            folder.mkdir(parents=True)
            red = np.zeros((20, 10, 3), np.uint8)
            red[..., 0] = 250 if kind == "apple" else 50
            image.fromarray(red).save(folder / "0.png")
            image.fromarray(red[..., 0]).save(folder / "1.pgm")
            (folder / "notes.txt").write_text("no image")
    held = load_images(tmp_path, 8)
    assert held.images.shape == (6, 8, 8, 3)
    assert (held.classes, held.labels.tolist()) == (("apple", "pear"), [0, 0, 1, 1, 1, 1])
    assert held.test.tolist() == [False] * 4 + [True] * 2
    np.testing.assert_array_equal(held.images[:, 3, 3], [[250, 0, 0], [250] * 3, *[[50, 0, 0], [50] * 3] * 2])
    assert load_images(tmp_path / "train", 12).images.shape == (4, 12, 12, 3)
    (tmp_path / "train" / "apple" / "2.png").write_text("nothing")
    with pytest.raises(DataError, match=r"2\.png: can't be read as an image"):
        load_images(tmp_path, 8)


def test_a_folder_without_pillow_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_text("never read")
    usual = builtins.__import__

    def without_pillow(name: str, *rest: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(DataError, match=r"^images from a folder need Pillow, which is not installed: pip install"):
        load_images(tmp_path, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_labels": None}, "holds no 'train_labels'; wanted: train_images, train_labels, classes"),
        ({"test_labels": None}, "holds one of test_images and test_labels; wanted: both or neither"),
        ({"test_images": np.zeros((9, 4, 4, 3), np.uint8)}, "test_images are (4, 4, 3), train_images (8, 8, 3)"),
        ({"train_labels": np.arange(30) % 4}, "labels: found 0 to 3, but 3 classes"),
        (
            {"train_images": np.zeros((30, 8, 8, 3))},
            "images: found float64 of shape (30, 8, 8, 3) for labels of shape (30,)",
        ),
        # one label too many, and one too few to test: all labels of the test would be those of their neighbours
        ({"train_labels": np.zeros(31, int), "test_labels": np.zeros(8, int)}, "for labels of shape (31,)"),
        ({"train_labels": np.zeros((30, 1), int)}, "for labels of shape (30, 1)"),
        ({"train_labels": np.full(30, 0.5)}, "labels: found float64, 0.5 and others; wanted: whole numbers from 0"),
        ({"train_labels": np.full(30, "a")}, "labels: found <U1, a and others; wanted: whole numbers from 0"),
        ({"train_images": np.zeros((0, 8, 8, 3), np.uint8), "train_labels": np.zeros(0, int)}, "shape (0, 8, 8, 3)"),
    ],
)
def test_an_array_file_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write_arrays(tmp_path / "images.npz", **changes)
    with pytest.raises(DataError) as found:
        load_images(path, 8)
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def test_a_torn_array_file_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = write_arrays(tmp_path / "images.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "single.npy", np.zeros(3))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    for name, message in (
        ("torn", r"torn\.npz: can't be read as an array file"),
        ("single", r"single\.npz: holds no 'train_images'"),
    ):
        with pytest.raises(DataError, match=message):
            load_images(tmp_path / f"{name}.npz", 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "files"}, "source: found 'files'; did you mean 'file'"),
        ({"source": "file"}, "path: is missing; source file needs a folder of class folders or an .npz file"),
        ({"path": "x"}, "path: found 'x'; only source file has"),
        ({"source": "file", "path": "no.npz"}, "path: found 'no.npz'; allowed: a folder of class folders or an .npz"),
        ({"classes": 11}, "classes: found 11; allowed: 2 to 10"),
        ({"side": 4}, "side: found 4; allowed: whole numbers from 8"),
        ({"test": 0}, "test: found 0; allowed: a share above 0, below 1"),
        ({"validation": True}, "validation: found True; allowed: a share from 0, below 1"),
    ],
)
def test_what_images_can_not_do_is_said_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as found:
        Images(**{"images": 40, **options}).data(USUAL)
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def test_data_that_is_spelled_out_is_the_same_data() -> None:
    images = find("images", Path())
    assert images is Images
    assert data_identity(images, {}) == data_identity(images, {"source": "synthetic", "side": 32, "validation": 0.2})
    assert data_identity(images, {}) != data_identity(images, {"classes": 5})


def study(name: str, fixed: dict[str, Any], **data: Any) -> tradewind.Study:
    usual = {"epochs": 8, "batch_size": 32, "learning_rate": 0.005, "device": "cpu", "width": 8, "blocks": 1}
    return tradewind.Study.model_validate({
        "name": name, "workload": "images", "data": {"images": 800, "side": 16, **data},
        "space": {"optimizer": ["adam"]}, "fixed": {**usual, **fixed},
    })  # fmt: skip


def test_a_few_epochs_tell_shapes_apart_and_fine_tuning_beats_a_frozen_backbone(tmp_path: Path) -> None:
    found = {}
    for fine_tune in (True, False):
        fixed = {"network": "residual", "fine_tune": fine_tune}
        best = tradewind.run(study("shapes", fixed), out=tmp_path / str(fine_tune), engine="serial").best()
        found[fine_tune] = best.value
    assert found[True] > 0.3  # of 128 images; a guess of ten gives 0.10 ± 0.03
    assert found[True] > found[False] + 0.1, found


def test_a_frozen_backbone_stays_as_it_was_to_the_last_bit(tmp_path: Path) -> None:
    held = study("frozen", {"network": "residual", "fine_tune": False, "epochs": 2}, images=200)
    best = tradewind.run(held, out=tmp_path / "run", engine="serial").best()
    before = network(Images(images=200, side=16), network="residual", width=8, blocks=1).state_dict()
    after = best.model().state_dict()
    assert before.keys() == after.keys()
    assert any("running_mean" in name for name in before)
    for name, value in before.items():
        assert torch.equal(value, after[name]) == name.startswith("backbone."), name


def test_a_trained_networks_file_is_where_another_backbone_starts(tmp_path: Path) -> None:
    workload = Images(images=20)
    trained, options = network(workload, 1, network="residual", width=8), {"network": "residual", "width": 8}
    whole, own = tmp_path / "whole.safetensors", tmp_path / "own.safetensors"
    save_file(trained.state_dict(), whole)
    save_file(trained.backbone.state_dict(), own)
    for path in (whole, own):
        made = network(workload, 2, weights=str(path), **options)
        for name, value in trained.backbone.state_dict().items():
            assert torch.equal(made.backbone.state_dict()[name], value)
        assert not torch.equal(made.head.weight, trained.head.weight)
    with pytest.raises(WorkloadError, match=r"0\.weight: found shape \(8, 3, 3, 3\); this network's is \(16, 3"):
        network(workload, network="residual", width=16, weights=str(own))
    with pytest.raises(WorkloadError, match=r"holds no '0\.bias'"):
        network(workload, network="small", width=8, weights=str(own))
    save_file({**load_file(own), "extra": torch.zeros(1)}, tmp_path / "more.safetensors")
    with pytest.raises(WorkloadError, match="holds 'extra', which this backbone does not have"):
        network(workload, weights=str(tmp_path / "more.safetensors"), **options)
    (tmp_path / "torn.safetensors").write_text("nothing")
    for name in ("torn", "absent"):
        with pytest.raises(WorkloadError, match=rf"{name}\.safetensors can't be read as \.safetensors"):
            network(workload, weights=str(tmp_path / f"{name}.safetensors"), **options)


@pytest.mark.parametrize("fine_tune", [True, False])
@pytest.mark.parametrize("name", ["small", "residual"])
def test_two_networks_stack_and_give_the_gradients_they_give_alone(name: str, fine_tune: bool) -> None:
    workload = Images(images=20)
    options = {"network": name, "width": 4, "fine_tune": fine_tune}
    models = [network(workload, seed, **options).double() for seed in (0, 1)]
    images = torch.randn(6, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = Batch(images, torch.tensor([0, 1, 2, 3, 4, 5]), torch.arange(6), 0)
    Stack(models, [0, 1], workload, "fp64").check(models, batch, [USUAL, USUAL], USUAL)


@pytest.mark.parametrize(("name", "classes", "test"), [("fruits360", 106, 848), ("caltech101", 101, 1010)])
def test_the_real_substitutes_are_read(name: str, classes: int, test: int) -> None:
    path = SHARED / f"{name}_32px.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    workload = Images(source="file", path=str(path))
    data = workload.data(USUAL)
    assert (len(data.test), network(workload, width=4).head.out_features) == (test, classes)
    assert data.validation is not None
    assert len(data.validation) == round(0.2 * (len(data.train) + len(data.validation)))
    assert data.train.inputs.shape[1:] == (3, 32, 32)


# What torch does wrong on a CPU.

NARROW = {"side": 64, "images": 40, "classes": 2}


def test_a_narrow_residual_network_over_large_images_trains_on_a_cpu(cli: Cli, write_study: WriteStudy) -> None:
    """In a process of its own: a strided 1×1 convolution of 8 channels would die of SIGSEGV in torch 2.13."""
    fixed = {"network": "residual", "width": 8, "blocks": 1, "epochs": 1, "device": "cpu", "batch_size": 16}
    study = write_study({"name": "narrow", "workload": "images", "data": NARROW, "fixed": fixed})
    ran = cli("run", study, "--quiet", "--engine", "processes", "--workers", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("stride", "sides"), [(2, (8, 8)), (2, (9, 7)), ((1, 3), (5, 10)), (3, (2, 1))])
def test_a_convolution_led_around_a_fault_is_the_same(stride: Any, sides: tuple[int, int]) -> None:
    torch.manual_seed(0)
    right = nn.Conv2d(4, 6, 1, stride, groups=2, dtype=torch.float64)
    x = torch.randn(3, 4, *sides, dtype=torch.float64, requires_grad=True)
    other = led_around(copy.deepcopy(nn.Sequential(right)))
    assert type(other[0]) is SlicedConv2d
    assert list(other.state_dict()) == ["0.weight", "0.bias"]
    flow = torch.randn_like(right(x))
    expected = torch.autograd.grad(right(x), (x, *right.parameters()), flow)
    found = torch.autograd.grad(other(x), (x, *other.parameters()), flow)
    torch.testing.assert_close(other(x), right(x), rtol=1e-12, atol=1e-12)
    for one, its in zip(found, expected, strict=True):
        torch.testing.assert_close(one, its, rtol=1e-12, atol=1e-12)


def test_only_strided_convolutions_of_single_pixels_are_led_around() -> None:
    kept = [nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 3, 2), nn.Conv2d(2, 2, 1, 2, padding=1), nn.Conv1d(2, 2, 1, 2)]
    assert [type(layer) for layer in led_around(nn.Sequential(*kept)).children()] == [nn.Conv2d] * 3 + [nn.Conv1d]
