"""The nodules workload: mixtures and their densities, the network, real and synthetic nodules, sampling, pictures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch.autograd import gradcheck

from tradewind.errors import DataError, WorkloadError
from tradewind.noise import start_word
from tradewind.report import nodules as pictures
from tradewind.train.batches import Batch
from tradewind.train.stack import Stack
from tradewind.workloads import BUNDLED, deep_density, find
from tradewind.workloads.contract import Workload
from tradewind.workloads.deep_density import (
    DeepDensity,
    Mixture,
    NoduleNetwork,
    bounded,
    output_count,
    sample,
)
from tradewind.workloads.nodule_shapes import load_nodules, make_nodules, nodules_cached
from tradewind.workloads.nodules import Nodules

SHARED = Path(os.environ.get("TRADEWIND_DATA", Path(__file__).parents[2] / "shared" / "data"))
REAL = SHARED / "lidc_nodule_shapes_32.npz"
CONFIG: dict[str, Any] = {name: known.default for name, known in Nodules.defaults.items()}
CONFIG |= {"seed": 0, "data_seed": 0}
SMALL = CONFIG | {"side": 8, "filters": [4, 4], "kernels": [3, 3], "components": 6}


pytestmark = pytest.mark.usefixtures("one_thread")


def heads(count: int, components: int, size: int, scale: float, seed: int = 0) -> list[torch.Tensor]:
    """Random outputs of the four heads in float64."""
    generator = torch.Generator().manual_seed(seed)
    widths = (1, size, size, size * (size - 1) // 2)
    return [
        scale * torch.randn(count, width * components, generator=generator, dtype=torch.float64) for width in widths
    ]


def small_network(seed: int = 0, **changes: Any) -> NoduleNetwork:
    torch.manual_seed(seed)
    model = Nodules().model(SMALL | changes)
    assert isinstance(model, NoduleNetwork)
    return model


def test_a_mixture_takes_as_many_outputs_as_the_paper_counts() -> None:
    assert [output_count(n, 50) for n in (1, 2, 3)] == [150, 300, 500]
    network = NoduleNetwork()
    layers = (network.weights, network.means, network.spreads, network.partials)
    assert [layer.out_features for layer in layers] == [50, 150, 150, 150]
    for size in (1, 2, 3, 4):
        assert sum(head.shape[1] for head in heads(2, 7, size, 1.0)) == output_count(size, 7)


def test_the_papers_network_has_its_layers_and_1_191_220_weights() -> None:
    network = NoduleNetwork()
    assert [tuple(p.shape) for p in network.encoder.parameters()][::2] == [
        (32, 1, 7, 7, 7), (32, 32, 5, 5, 5), (32, 32, 3, 3, 3),
    ]  # fmt: skip
    code = network.encoder(torch.zeros(1, 1, 16, 16, 16))
    assert code.shape == (1, 32 * 4**3)  # sides 16, 10, 6, 4
    convolutions = 32 * (343 + 1) + 32 * (32 * 125 + 1) + 32 * (32 * 27 + 1)
    assert sum(p.numel() for p in network.parameters()) == convolutions + 500 * (2048 + 1) == 1_191_220


def test_cubes_of_32_are_drawn_as_well() -> None:
    network = NoduleNetwork((2, 2, 2), components=3, side=32, pool="average")
    drawn = network(torch.rand(2, 1, 32, 32, 32))
    assert drawn.shape == (2, 32, 32, 32)
    assert bool(torch.isfinite(drawn).all())


@pytest.mark.parametrize("correlations", ["positive", "signed"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_density_is_that_of_scipy(size: int, correlations: str) -> None:
    mixture = bounded(*heads(2, 4, size, 1.5, size), correlations)
    drawn = DeepDensity(7)(mixture).numpy()
    axis = np.linspace(-1, 1, 7)
    points = np.stack(np.meshgrid(*[axis] * size, indexing="ij"), axis=-1)
    covariances = mixture.covariances().numpy()
    for n in range(2):
        expected = sum(
            float(mixture.log_weights[n, k].exp())
            * multivariate_normal(mixture.means[n, k].numpy(), covariances[n, k]).pdf(points)
            for k in range(4)
        )
        np.testing.assert_allclose(drawn[n], np.reshape(expected, drawn[n].shape), rtol=1e-10, atol=1e-300)


def test_a_mixture_in_the_middle_of_a_fine_cube_has_mass_1() -> None:
    flat = [torch.zeros(1, width, dtype=torch.float64) for width in (2, 6, 6, 6)]
    flat[2] -= 1.9  # spreads of 0.13: next to nothing is beyond the cube
    drawn = DeepDensity(41)(bounded(*flat, "signed"))
    assert float(drawn.sum()) * (2 / 40) ** 3 == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("correlations", ["positive", "signed"])
def test_any_outputs_give_positive_definite_matrices_and_finite_gradients_in_float32(correlations: str) -> None:
    corners = torch.tensor(
        [[a, b, c] for a in (-1, 0, 1) for b in (-1, 0, 1) for c in (-1, 0, 1)], dtype=torch.float32
    )
    for scale in (1e1, 1e4, 1e30):
        partials = (scale * corners).reshape(1, -1).requires_grad_()
        spreads = (-scale * corners.flip(0)).reshape(1, -1).requires_grad_()
        means = (scale * corners.roll(5, 0)).reshape(1, -1).requires_grad_()
        weights = (scale * torch.linspace(-1, 1, 27)).reshape(1, -1).requires_grad_()
        mixture = bounded(weights, means, spreads, partials, correlations)
        eigenvalues = torch.linalg.eigvalsh(mixture.covariances().detach().double())
        # a spread of at least 0.001, a partial correlation of at most 0.99: the determinant has a floor
        assert float(eigenvalues.min()) > 0
        correlation = mixture.covariances() / (mixture.spreads[..., None] * mixture.spreads[..., None, :])
        assert float(torch.linalg.det(correlation.detach().double()).min()) > 0.9 * (1 - 0.99**2) ** 3
        drawn = DeepDensity(16)(mixture)
        assert bool(torch.isfinite(drawn).all())
        assert float(drawn.detach().min()) >= 0
        loss = Nodules().loss(drawn, torch.zeros_like(drawn), CONFIG)
        for gradient in torch.autograd.grad(loss, (weights, means, spreads, partials)):
            assert bool(torch.isfinite(gradient).all())


def test_plain_correlations_of_these_values_would_not_be_positive_definite() -> None:
    partial = torch.tensor([[[0.9, 0.9, -0.9]]], dtype=torch.float64)
    plain = np.array([[1, 0.9, 0.9], [0.9, 1, -0.9], [0.9, -0.9, 1]])
    assert np.linalg.eigvalsh(plain).min() < 0
    ones = torch.ones(1, 1, 3, dtype=torch.float64)
    found = Mixture(torch.zeros(1, 1, dtype=torch.float64), 0 * ones, ones, partial).covariances()[0, 0].numpy()
    assert np.linalg.eigvalsh(found).min() > 0
    # the first two are the plain ones, the third is what is left of it once the first axis is known
    expected = [0.9, 0.9, 0.9 * 0.9 - 0.9 * (1 - 0.9**2)]
    np.testing.assert_allclose([found[1, 0], found[2, 0], found[2, 1]], expected, rtol=1e-12)


def test_gradients_are_those_of_differences() -> None:
    inputs = [head.requires_grad_() for head in heads(2, 2, 3, 0.7)]

    def loss(*outputs: torch.Tensor) -> torch.Tensor:
        return DeepDensity(4)(bounded(*outputs, "signed")).log1p().square().mean()

    assert gradcheck(loss, inputs)


def test_half_precision_heads_are_drawn_in_float32() -> None:
    full = [head.float() for head in heads(1, 3, 3, 2.0)]
    halves = [head.bfloat16() for head in full]
    assert DeepDensity(8)(bounded(*halves, "positive")).dtype == torch.float32


def test_a_batch_drawn_in_pieces_is_the_batch_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = bounded(*heads(5, 3, 3, 1.0), "positive")
    at_once = DeepDensity(6)(mixture)
    monkeypatch.setitem(deep_density._PIECE, "cpu", 2 * 3 * 6**3)
    torch.testing.assert_close(DeepDensity(6)(mixture), at_once, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filters": []}, r"filters: found \[\]; allowed: a list of whole numbers from 1"),
        ({"kernels": [7, 5, 0]}, r"kernels: found \[7, 5, 0\]; allowed: a list"),
        ({"kernels": [7, 5]}, "kernels: found 2 for 3 filters; allowed: one for each layer"),
        ({"kernels": [7, 7, 7]}, "layer 3 has a kernel of 7, a cube of 4"),
        ({"pool": "max"}, "layer 3 has a kernel of 3, a cube of 0"),
        ({"activation": "rely"}, "activation: found 'rely'; did you mean 'relu'"),
        ({"correlations": "negative"}, "correlations: found 'negative'; .*allowed: positive, signed"),
    ],
)
def test_a_network_that_cannot_be_says_why(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Nodules().model(CONFIG | options)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "sintetic"}, "source: found 'sintetic'; did you mean 'synthetic'"),
        ({"train": 0}, "train: found 0; allowed: whole numbers from 1"),
        ({"validation": -1}, "validation: found -1; allowed: whole numbers from 0"),
        ({"test": 2.5}, r"test: found 2\.5"),
        ({"source": "file"}, "path: found ''; source file needs the path"),
        ({"path": "nodules.npz"}, "path: found 'nodules.npz'; source file needs"),
    ],
)
def test_data_that_cannot_be_says_what_is_allowed(data: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Nodules(**data)


def test_the_defaults_are_the_papers_and_nothing_is_augmented() -> None:
    workload: Workload = Nodules()
    assert workload.metric == "validation_loss"
    assert {name: known.complaint(known.default) for name, known in workload.defaults.items()} == dict.fromkeys(
        workload.defaults, ""
    )
    assert [CONFIG[name] for name in ("side", "filters", "kernels", "components")] == [16, [32] * 3, [7, 5, 3], 50]
    assert workload.defaults["augment"].complaint("live") == (
        "found 'live'; allowed: 'none': the target is the nodule as it stands"
    )
    assert find("nodules", Path()) is Nodules
    assert BUNDLED["nodules"] == "tradewind.workloads.nodules:Nodules"


def test_importing_the_workload_imports_neither_torch_nor_numpy() -> None:
    program = "import sys, tradewind.workloads.nodules; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_synthetic_nodule_depends_on_seed_and_number_alone() -> None:
    few, many = make_nodules(5, 3, 16), make_nodules(300, 3, 16)
    np.testing.assert_array_equal(few, many[:5])
    assert not np.array_equal(few, make_nodules(5, 4, 16))
    whole = make_nodules(5, 3, 32)
    np.testing.assert_allclose(whole[:, 8:24, 8:24, 8:24], few, atol=1e-5)
    assert many.min() == 0.0
    assert many.max() == 1.0
    assert bool((many[:, 7:9, 7:9, 7:9].max(axis=(1, 2, 3)) > 0).all())
    np.testing.assert_array_equal(nodules_cached(5, 3, 16), few)


def test_the_split_is_disjoint_whole_and_drawn_by_the_data_seed() -> None:
    workload = Nodules(train=30, validation=10, test=12)
    first, other = workload.data(SMALL), workload.data(SMALL | {"data_seed": 1})
    assert first.validation is not None
    splits = (first.train, first.validation, first.test)
    assert [split.inputs.shape for split in splits] == [(n, 1, 8, 8, 8) for n in (30, 10, 12)]
    for split in splits:
        np.testing.assert_array_equal(split.inputs[:, 0], split.targets)
    together = np.concatenate([split.targets for split in splits]).reshape(52, -1)
    assert len(np.unique(together, axis=0)) == 52
    assert not np.array_equal(first.train.targets, other.train.targets)
    np.testing.assert_array_equal(first.test.targets, workload.data(SMALL).test.targets)
    # as densities all weigh the same; by their peaks none exceeds 1
    np.testing.assert_allclose(together.sum(axis=1) * (2 / 7) ** 3, 1.0, rtol=1e-5)
    assert workload.data(SMALL | {"scale": "peak"}).train.targets.max() == 1.0
    assert Nodules(train=30, validation=0, test=12).data(SMALL).validation is None


def test_shrunk_cubes_are_means_of_those_twice_as_wide() -> None:
    whole = nodules_cached(6, 0, 16)
    data = Nodules(train=4, validation=1, test=1).data(SMALL | {"shrink": 2, "scale": "peak"})
    expected = whole.reshape(6, 8, 2, 8, 2, 8, 2).mean(axis=(2, 4, 6))[
        np.sort(np.random.default_rng(0).permutation(6)[:4])
    ]
    np.testing.assert_allclose(data.train.targets, expected / expected.max(axis=(1, 2, 3), keepdims=True), rtol=1e-6)


def test_nodules_are_read_from_files_of_both_layouts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cubes = rng.integers(1, 255, (20, 12, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "ours.npz", cubes=cubes)
    np.savez(tmp_path / "medmnist.npz", train_images=cubes[:9], val_images=cubes[9:15], test_images=cubes[15:])
    for name in ("ours.npz", "medmnist.npz"):
        np.testing.assert_array_equal(load_nodules(tmp_path / name, 8), cubes[:, 2:10, 2:10, 2:10])
    data = Nodules("file", str(tmp_path / "ours.npz"), validation=4, test=3).data(SMALL)
    assert (len(data.train), len(data.test)) == (13, 3)
    with pytest.raises(DataError, match=r"found 18, 4, 3, 25 in all; .*ours.npz has 20 nodules"):
        Nodules("file", str(tmp_path / "ours.npz"), train=18, validation=4, test=3).data(SMALL)
    with pytest.raises(DataError, match=r"side: found 16; the cubes of .* are 12 wide"):
        load_nodules(tmp_path / "ours.npz", 16)


def test_a_relative_path_is_looked_for_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "ours.npz", cubes=np.ones((20, 8, 8, 8), np.uint8))
    monkeypatch.setenv("TRADEWIND_DATA", str(tmp_path))
    assert len(Nodules("file", "ours.npz", validation=4, test=3).data(SMALL).train) == 13


def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", images=np.ones(3))
    np.savez(tmp_path / "flat.npz", cubes=np.ones((3, 8, 8)))
    np.savez(tmp_path / "empty.npz", cubes=np.stack([np.ones((8, 8, 8)), np.zeros((8, 8, 8))]))
    np.save(tmp_path / "single.npy", np.ones((3, 8, 8, 8)))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "flat.npz").read_bytes()[:100])
    (tmp_path / "text.npz").write_text("no archive")
    for name, message in (
        ("none.npz", "can't be read: No such file"),
        ("other.npz", "found images; allowed: an .npz file of cubes or train_images, val_images, test_images"),
        ("flat.npz", r"cubes: found float64 of shape \(3, 8, 8\)"),
        ("empty.npz", "nodule 1 is empty, negative or not finite"),
        ("single.npy", "found a single array; allowed: an .npz file of"),
        ("torn.npz", "is no .npz file that can be read"),
        ("text.npz", "is no .npz file that can be read"),
    ):
        with pytest.raises(DataError, match=message) as told:
            load_nodules(tmp_path / name, 8)
        assert "\n" not in str(told.value)


def test_loss_and_scores_are_those_worked_by_hand() -> None:
    targets = torch.zeros(2, 2, 2, 2)
    targets[0, 0, 0] = torch.tensor([4.0, 3.0])
    targets[1, 1, 1] = torch.tensor([0.0, 1.0])
    outputs = torch.zeros(2, 2, 2, 2)
    outputs[0, 0, 0] = torch.tensor([4.0, 1.0])  # one of two found
    outputs[1, 1] = 1.0  # four for one
    expected = ((np.log(4) - np.log(2)) ** 2 + 3 * np.log(2) ** 2) / 16
    assert Nodules().loss(outputs, targets, CONFIG).item() == pytest.approx(expected, rel=1e-6)
    found = Nodules().scores(outputs, targets)
    assert found == pytest.approx({"mae": (2 + 3) / 16, "dice": (2 / 3 + 2 / 5) / 2})


def trained(steps: int) -> tuple[NoduleNetwork, Nodules, float, float]:
    """A small network after some steps; the loss before and after on what it has not seen."""
    workload = Nodules(train=192, validation=0, test=64)
    data = workload.data(SMALL)
    network = small_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.004)
    inputs, targets = torch.from_numpy(data.train.inputs), torch.from_numpy(data.train.targets)
    unseen, truth = torch.from_numpy(data.test.inputs), torch.from_numpy(data.test.targets)
    with torch.no_grad():
        before = workload.loss(network(unseen), truth, SMALL).item()
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = torch.randint(192, (32,), generator=generator)
        optimizer.zero_grad()
        workload.loss(network(inputs[batch]), targets[batch], SMALL).backward()
        optimizer.step()
    with torch.no_grad():
        after = workload.loss(network(unseen), truth, SMALL).item()
    return network, workload, before, after


def test_a_little_training_brings_the_loss_to_a_quarter_and_new_nodules_can_be_drawn(tmp_path: Path) -> None:
    network, workload, before, after = trained(150)
    assert after < 0.25 * before
    data = workload.data(SMALL)
    inputs = torch.from_numpy(data.train.inputs)
    new = sample(network, inputs, 40, seed=1)
    assert new.shape == (40, 8, 8, 8)
    assert bool(torch.isfinite(new).all())
    mass = new.sum(dim=(1, 2, 3)) * (2 / 7) ** 3
    assert float(mass.min()) > 0.3
    assert float(mass.max()) < 3.0
    torch.testing.assert_close(sample(network, inputs, 40, seed=1), new)
    assert not torch.equal(sample(network, inputs, 40, seed=2), new)
    assert len(torch.unique(new.flatten(1), dim=0)) == 40
    pictures.redraw(network, data, tmp_path / "redrawn.png")
    pictures.look(data, tmp_path / "nodules.png")
    for name in ("redrawn.png", "nodules.png"):
        assert (tmp_path / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(DataError, match="sample: found count 0 of 192 nodules"):
        sample(network, inputs, 0)


def test_the_summary_tells_what_drawing_nothing_costs() -> None:
    data = Nodules(train=30, validation=10, test=12).data(SMALL)
    lines = pictures.summary(data).splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["train", "30"], ["validation", "10"], ["test", "12"]]
    nothing = np.square(np.log1p(data.test.targets)).mean()
    assert float(lines[3].split()[-1]) == pytest.approx(nothing, abs=1e-5)


def test_networks_of_nodules_train_as_one() -> None:
    workload = Nodules(train=16, validation=0, test=4)
    split = workload.data(SMALL).train
    models = [small_network(seed).double() for seed in range(3)]
    inputs, targets = (torch.from_numpy(array).double() for array in (split.inputs, split.targets))
    batch = Batch(inputs, targets, torch.arange(16), start_word(0, 1))
    stack = Stack(models, [0, 1, 2], workload, "fp64")
    stack.check(models, batch, [SMALL] * 3, SMALL)  # raises where a gradient differs from the one alone


@pytest.mark.skipif(not REAL.exists(), reason="no real nodules here")
def test_synthetic_nodules_are_about_as_large_and_as_hard_as_real_ones() -> None:
    real = Nodules("file", str(REAL)).data(CONFIG)
    assert real.validation is not None
    assert [len(part) for part in (real.train, real.validation, real.test)] == [2165, 256, 256]
    made = Nodules(train=600, validation=0, test=1).data(CONFIG).train
    nothing = [float(np.square(np.log1p(part.targets)).mean()) for part in (real.train, made)]
    assert nothing[1] == pytest.approx(nothing[0], rel=0.15)
    assert nothing[0] == pytest.approx(0.05, abs=0.01)
