"""A look at storm data: what it holds in figures, and sample storms as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tradewind.workloads.contract import Data, Split

SHOWN = 6
ARROWS = slice(1, None, 3)  # every third cell has a wind arrow


def summary(data: Data, channels: tuple[str, ...]) -> str:
    """Storms, share of rotating ones, and mean and spread of the standardised channels, for every part."""
    lines = [f"{'part':12s} {'storms':>8s} {'rotating':>9s}   " + "  ".join(f"{name:>16s}" for name in channels)]
    for name, split in (("train", data.train), ("validation", data.validation), ("test", data.test)):
        if split is not None:
            shown = "  ".join(f"{mean:7.3f} ± {spread:6.3f}" for mean, spread in _moments(split.inputs))
            lines.append(f"{name:12s} {len(split):8d} {split.targets.mean():9.2%}   {shown}")
    return "\n".join(
        [*lines, "channels are standardised by the training part; the components of a wind keep their zero"]
    )


def _moments(inputs: np.ndarray[Any, Any]) -> list[tuple[float, float]]:
    """Mean and spread of every channel; storm upon storm in float64, since millions of float32 lose their digits."""
    mean = inputs.mean(axis=0, dtype=np.float64).mean(axis=(1, 2))
    power = np.einsum("n...,n...->...", inputs, inputs, dtype=np.float64).mean(axis=(1, 2)) / len(inputs)
    return list(zip(mean.tolist(), np.sqrt(np.maximum(power - mean**2, 0.0)).tolist(), strict=True))


def look(data: Data, channels: tuple[str, ...], out: Path) -> None:
    """Draw storms that will rotate and some that will not, originals above, the same augmented below."""
    import torch
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from tradewind.augment.affine import Augmentation, transform

    rows = _chosen(data.train)
    originals = torch.from_numpy(np.array(data.train.inputs[rows]))
    moved = transform(originals, torch.from_numpy(rows), 1, 0, Augmentation(), data.vectors)
    figure = Figure(figsize=(2.1 * len(rows), 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(rows), squeeze=False)
    for line, images in zip(axes, (originals.numpy(), moved.numpy()), strict=True):
        for cell, image in zip(line, images, strict=True):
            _draw(cell, image, data.vectors)
    for cell, row in zip(axes[0], rows, strict=True):
        cell.set_title("rotates within the hour" if data.train.targets[row] else "does not", fontsize=8)
    for line, text in zip(axes, ("as it is", "turned, shifted, zoomed"), strict=True):
        line[0].set_ylabel(text, fontsize=9)
    figure.suptitle(f"{channels[0]}{' and wind' if data.vectors else ''}, standardised", fontsize=10)
    figure.savefig(out, dpi=130)


def _chosen(split: Split) -> np.ndarray[Any, Any]:
    """The first storms of each kind, half and half where there are enough."""
    yes, no = np.flatnonzero(split.targets > 0.5), np.flatnonzero(split.targets <= 0.5)
    return np.concatenate([yes[: SHOWN // 2], no[: SHOWN - min(len(yes), SHOWN // 2)]])


def _draw(cell: Any, image: np.ndarray[Any, Any], vectors: tuple[tuple[int, int], ...]) -> None:
    cell.imshow(image[0], origin="lower", cmap="turbo", vmin=-1.6, vmax=2.6)
    for x, y in vectors[:1]:
        places = np.arange(image.shape[1])[ARROWS]
        cell.quiver(places, places, image[x, ARROWS, ARROWS], image[y, ARROWS, ARROWS], color="white", scale=28)
    cell.set_xticks([])
    cell.set_yticks([])
