"""A look at nodules: what the data hold in figures, and slices of nodules, redrawn and new ones as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tradewind.workloads.contract import Data, Split

if TYPE_CHECKING:
    from tradewind.workloads.deep_density import NoduleNetwork

SHOWN = 6
PLANES = ("across the first axis", "across the second", "across the third")

Array = np.ndarray[Any, Any]


def summary(data: Data) -> str:
    """Nodules, voxels in their bodies, highest values, and the loss of drawing nothing, for every part."""
    lines = [
        f"{'part':12s} {'nodules':>8s} {'body voxels, median (5 – 95 %)':>32s} {'peak':>8s} {'loss of nothing':>16s}"
    ]
    for name, split in (("train", data.train), ("validation", data.validation), ("test", data.test)):
        if split is not None:
            peaks = split.targets.max(axis=(1, 2, 3))
            body = (split.targets > peaks[:, None, None, None] / 2).sum(axis=(1, 2, 3))
            low, middle, high = np.percentile(body, (5, 50, 95))
            spread = f"{middle:.0f} ({low:.0f} – {high:.0f})"
            nothing = np.square(np.log1p(split.targets)).mean(dtype=np.float64)
            lines.append(f"{name:12s} {len(split):8d} {spread:>32s} {np.median(peaks):8.3g} {nothing:16.5f}")
    side = data.train.targets.shape[1]
    return "\n".join([*lines, f"cubes of {side}³ voxels; a body is what exceeds half of the nodule's peak"])


def look(data: Data, out: Path) -> None:
    """Draw the middle slices of some nodules in three directions."""
    cubes = data.train.targets[_chosen(data.train)]
    middle = cubes.shape[1] // 2
    rows = [cubes[:, middle], cubes[:, :, middle], cubes[:, :, :, middle]]
    _draw(rows, PLANES, "nodules of the training part, middle slices", out)


def redraw(model: NoduleNetwork, data: Data, out: Path, seed: int = 0) -> None:
    """Draw the middle slices of test nodules, of what the network makes of them, and of new ones that it samples."""
    import torch

    from tradewind.workloads.deep_density import sample

    model = model.eval()
    like = next(model.parameters())
    rows = _chosen(data.test)
    with torch.no_grad():
        drawn = model(torch.from_numpy(data.test.inputs[rows]).to(like)).float().cpu().numpy()
    new = sample(model, torch.from_numpy(data.train.inputs).to(like), len(rows), seed).float().cpu().numpy()
    middle = drawn.shape[1] // 2
    slices = [cubes[:, middle] for cubes in (data.test.targets[rows], drawn, new)]
    _draw(slices, ("as it is", "drawn again", "new"), "middle slices; each nodule and its drawing share a scale", out)


def _chosen(split: Split) -> Array:
    """Nodules from small to large, evenly over the split's order of mass in voxels."""
    peaks = split.targets.max(axis=(1, 2, 3), keepdims=True)
    order = np.argsort((split.targets / peaks).sum(axis=(1, 2, 3)), kind="stable")
    count = min(SHOWN, len(split))
    return np.asarray(order[(np.linspace(0.3, 0.95, count) * len(split)).astype(int)])


def _draw(rows: Sequence[Array], labels: Sequence[str], title: str, out: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = len(rows[0])
    figure = Figure(figsize=(1.7 * columns, 1.75 * len(rows) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, images, label in zip(axes, rows, labels, strict=True):
        for number, (cell, image) in enumerate(zip(line, images, strict=True)):
            # what is drawn again has the scale of its nodule, what is new its own
            top = image.max() if label == "new" else rows[0][number].max()
            cell.imshow(image, origin="lower", cmap="magma", vmin=0.0, vmax=max(float(top), 1e-6))
            cell.set_xticks([])
            cell.set_yticks([])
        line[0].set_ylabel(label, fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.savefig(out, dpi=130)
