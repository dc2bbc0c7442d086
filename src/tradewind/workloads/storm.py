"""Storms: will a thunderstorm seen now rotate strongly within the hour?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tradewind.errors import DataError, nearest
from tradewind.pack import Config
from tradewind.workloads.contract import Data, Hyperparameter, Split, check_counts
from tradewind.workloads.label_rules import RULES

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    Array = np.ndarray[Any, Any]

Found = TypeVar("Found")

SOURCES = ("synthetic", "files")
CHANNELS = ("REFL_COM_curr", "U10_curr", "V10_curr")
BLOCK = 2048  # storms gathered or standardised at a time by a thread
USUAL = (8192, 1024, 2048)  # synthetic storms to train, validate and test


class Storm:
    """The storm network of Basalyga et al. on reflectivity and wind, 32×32."""

    metric = "validation_auc"
    defaults: Mapping[str, Hyperparameter] = {
        "filters": Hyperparameter([8, 16, 32], list, help="width of each convolution"),
        "kernel": Hyperparameter(5, int, choices=(1, 3, 5, 7, 9), help="side of the convolutions' kernels"),
        "activation": Hyperparameter("relu", str, choices=("relu", "tanh", "gelu", "elu")),
        "pool": Hyperparameter("average", str, choices=("average", "max"), help="between convolutions"),
        "dropout": Hyperparameter(0.0, float, low=0.0, high=0.95, help="share, before the dense layer", stacks=True),
        "positive_weight": Hyperparameter(1.0, float, low=0.0, help="of rotating storms, in the loss", stacks=True),
    }

    def __init__(
        self,
        source: str = "synthetic",
        train: int | None = None,
        validation: int | None = None,
        test: int | None = None,
        seed: int = 0,
        folder: str = "",
        channels: Sequence[str] = CHANNELS,
        label: str = "RVORT1_MAX_future",
        rule: str = "masked max",
        threshold: float = 0.005,
        before: str = "2015-01-01",
        validate_from: str = "",
    ) -> None:
        if source not in SOURCES:
            raise DataError(f"source: found {source!r}; {nearest(str(source), SOURCES)}")
        check_counts(train, validation, test, seed)
        if rule not in RULES:
            raise DataError(f"rule: found {rule!r}; {nearest(str(rule), RULES)}")
        if source == "files" and not folder:
            raise DataError("folder: is missing; source files needs the folder of the netCDF patches")
        self.before = _date("before", before)
        self.validate_from = _date("validate_from", validate_from) if validate_from else None
        if self.validate_from and self.validate_from >= self.before:
            raise DataError(f"validate_from: found {validate_from!r}; allowed: a date earlier than before ({before})")
        self.source, self.folder, self.label, self.rule, self.threshold = source, folder, label, rule, threshold
        self.channels = tuple(channels) if source == "files" else CHANNELS
        self.train, self.validation, self.test, self.seed = train, validation, test, seed

    def data(self, config: Config) -> Data:
        """The storms, split by `data_seed` and standardised by what the training part shows."""
        import numpy as np

        rng = np.random.default_rng(config["data_seed"])
        inputs, labels, parts = self._files(rng) if self.source == "files" else self._synthetic(rng)
        # sorted, so that the mapped file is read once from start to end
        parts = [np.sort(part) for part in parts]
        gathered = [_gathered(inputs, part) for part in parts]
        vectors = _vectors(self.channels)
        offset, scale = _standard(gathered[0], vectors)
        for part in gathered:  # in place: the gathered copy is the only one
            _move(part, offset, scale)
        # channels first by stride alone: torch sees its channels_last layout without a copy
        train, validation, test = (
            Split(np.moveaxis(part, 3, 1), np.array(labels[rows])) for part, rows in zip(gathered, parts, strict=True)
        )
        return Data(train, validation if len(validation) else None, test, vectors)

    def _synthetic(self, rng: np.random.Generator) -> tuple[Array, Array, list[Array]]:
        import numpy as np

        from tradewind.workloads.storms import storms_cached

        wanted = (self.train, self.validation, self.test)
        sizes = [given if given is not None else usual for given, usual in zip(wanted, USUAL, strict=True)]
        inputs, labels = storms_cached(sum(sizes), self.seed)
        return inputs, labels, np.split(rng.permutation(sum(sizes)), np.cumsum(sizes)[:2])

    def _files(self, rng: np.random.Generator) -> tuple[Array, Array, list[Array]]:
        """Storms before the date train, the others test; those to validate are drawn from the former, or its last."""
        import numpy as np

        from tradewind.workloads.patches import load_patches

        patches = load_patches(Path(self.folder), self.channels, self.label)
        early = patches.hours < _hours(self.before)
        before, after = rng.permutation(np.flatnonzero(early)), rng.permutation(np.flatnonzero(~early))
        validation = len(before) // 8 if self.validation is None else self.validation
        if self.validate_from:
            late = patches.hours[before] >= _hours(self.validate_from)
            before = np.concatenate([before[late], before[~late]])
            validation = min(int(late.sum()), len(before) if self.validation is None else self.validation)
            before = np.concatenate([before[:validation], before[int(late.sum()) :]])
        for name, wanted, there in (("train", self.train or 1, before[validation:]), ("test", self.test or 1, after)):
            if len(there) < wanted:
                raise DataError(f"{name}: {wanted} storms wanted, {len(there)} there; check `before` ({self.before})")
        parts = [before[validation:][: self.train], before[:validation], after[: self.test]]
        return patches.inputs, patches.labels(self.rule, self.threshold), parts

    def model(self, config: Config) -> nn.Module:
        """The network; its options are the hyperparameters of the same names."""
        from tradewind.workloads.networks import StormNetwork

        return StormNetwork(
            filters=config["filters"],
            kernel=config["kernel"],
            activation=config["activation"],
            pool=config["pool"],
            dropout=config["dropout"],
            channels=len(self.channels),
        )

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean cross-entropy, rotating storms counting `positive_weight` times."""
        import torch
        from torch.nn import functional

        # filled on the device: a number copied there could not be captured in a CUDA graph
        weight = config["positive_weight"]
        weight = weight if isinstance(weight, torch.Tensor) else outputs.new_full((), weight)
        return functional.binary_cross_entropy_with_logits(outputs, targets, pos_weight=weight)

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Accuracy, AUC, Brier score, POD, FAR and CSI."""
        from tradewind.workloads.scores import binary_scores

        return binary_scores(outputs, targets)


def _date(name: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise DataError(f"{name}: found {text!r}; allowed: a date such as 2015-01-01") from None


def _hours(date: datetime) -> float:
    """Since 1970, as patches have it."""
    return (date - datetime(1970, 1, 1)).total_seconds() / 3600


def _vectors(channels: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Which channels are the components of a wind: U… and V… of the same name."""
    places = {name: place for place, name in enumerate(channels)}
    return tuple((k, places["V" + n[1:]]) for n, k in places.items() if n[0] == "U" and "V" + n[1:] in places)


def _by_blocks(act: Callable[[slice], Found], count: int) -> list[Found]:
    """What is found in every block, in their order, on as many threads as torch may use.

    Blocks are of one size: what comes of them does not depend on the number of threads.
    """
    import torch

    spans = [slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # numpy lets go of the interpreter
        return list(pool.map(act, spans))


def _gathered(inputs: Array, rows: Array) -> Array:
    import numpy as np

    found = np.empty((len(rows), *inputs.shape[1:]), inputs.dtype)

    def gather(span: slice) -> None:
        found[span] = inputs[rows[span]]

    _by_blocks(gather, len(rows))
    return found


def _move(part: Array, offset: Array, scale: Array) -> None:
    def move(span: slice) -> None:
        part[span] -= offset
        part[span] /= scale

    _by_blocks(move, len(part))


def _standard(train: Array, vectors: tuple[tuple[int, int], ...]) -> tuple[Array, Array]:
    """The offset and scale of each channel, as whole patches.

    The components of a vector share one scale and keep their zero: with an offset, or a scale each, a vector
    that turns with its image would change its speed, and a rotated storm would be none that the wind can make.
    """
    import numpy as np

    def sums(span: slice) -> Array:
        # storm upon storm, patch by patch: 4 × as fast as numpy's loops over an axis of 3 channels
        part = train[span]
        squares = np.einsum("n...,n...->...", part, part, dtype=np.float64)
        return np.stack([part.sum(axis=0, dtype=np.float64), squares])

    offset, power = np.sum(_by_blocks(sums, len(train)), axis=0).mean(axis=(1, 2)) / len(train)
    scale = np.sqrt(np.maximum(power - offset**2, 1e-12))
    for pair in map(list, vectors):
        offset[pair], scale[pair] = 0.0, np.sqrt(power[pair].mean())
    patch = np.ones(train.shape[1:], np.float32)
    return patch * offset.astype(np.float32), patch * scale.astype(np.float32)
