"""Digits: which of the ten is spoken in a clip of 1.5 s?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.errors import DataError, nearest
from tradewind.pack import Config
from tradewind.workloads.contract import Data, Hyperparameter, Split
from tradewind.workloads.places import data_path

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from tradewind.workloads.digit_sounds import Clips

    Array = np.ndarray[Any, Any]

SOURCES = ("synthetic", "file")
SPLITS = ("random", "speaker", "none")
USUAL_CLIPS = 2000


class Digits:
    """The spoken-digit networks of Stevens on clips of 12,000 samples.

    `split` random: any clip may be in any part. speaker: all clips of a speaker are in one part, so that the test
    is on voices never heard. none: all clips train, as in the paper, and are the test too: its accuracy is then
    called `train_accuracy`, and there is no validation.
    """

    metric = "validation_accuracy"
    defaults: Mapping[str, Hyperparameter] = {
        "network": Hyperparameter("linear", str, choices=("linear", "conv"), help="dense layers, or convolutions"),
    }

    def __init__(
        self,
        source: str = "synthetic",
        path: str = "",
        speakers: Sequence[str] = (),
        split: str = "random",
        validation: float = 0.1,
        test: float = 0.2,
        clips: int = USUAL_CLIPS,
        seed: int = 0,
    ) -> None:
        for name, value, known in (("source", source, SOURCES), ("split", split, SPLITS)):
            if value not in known:
                raise DataError(f"{name}: found {value!r}; {nearest(str(value), known)}")
        for name, share, low in (("validation", validation, True), ("test", test, False)):
            if type(share) not in {int, float} or not (0 <= share < 1) or not (low or share):
                raise DataError(f"{name}: found {share!r}; allowed: a share {'from' if low else 'above'} 0, below 1")
        if validation + test >= 1:
            raise DataError(f"validation and test: found {validation} and {test}; allowed: together below 1")
        for name, number, lowest in (("clips", clips, 10), ("seed", seed, 0)):
            if type(number) is not int or number < lowest:
                raise DataError(f"{name}: found {number!r}; allowed: whole numbers from {lowest}")
        if isinstance(speakers, str):
            raise DataError(f"speakers: found {speakers!r}; allowed: a list of names")
        if (source == "file") != bool(path):
            found = "is missing; source file needs" if source == "file" else f"found {path!r}; only source file has"
            raise DataError(f"path: {found} a folder of WAV files or an .npz file")
        self.source, self.path, self.speakers, self.split = source, path, tuple(speakers), split
        self.validation, self.test, self.clips, self.seed = float(validation), float(test), clips, seed

    def data(self, config: Config) -> Data:
        """The clips, split by `data_seed`."""
        import numpy as np

        held = self._clips()
        rows = held.spoken_by(self.speakers)
        if self.split == "none":
            everything = _part(held, rows)
            return Data(everything, None, everything)
        rng = np.random.default_rng(config["data_seed"])
        # what is shuffled and dealt: clips, or whole speakers
        owner = held.speakers[rows] if self.split == "speaker" else np.arange(len(rows))
        things = rng.permutation(np.unique(owner))
        sizes = [max(1, round(share * len(things))) if share else 0 for share in (self.validation, self.test)]
        if sum(sizes) >= len(things):
            what = "speakers" if self.split == "speaker" else "clips"
            raise DataError(f"split {self.split}: found {len(things)} {what}; wanted: {sum(sizes) + 1} or more")
        dealt = np.split(things, np.cumsum(sizes))
        # sorted, so that the mapped file is read once from start to end
        validation, test, train = (_part(held, rows[np.isin(owner, some)]) for some in dealt)
        return Data(train, validation if len(validation) else None, test)

    def _clips(self) -> Clips:
        if self.source == "file":
            from tradewind.workloads.digit_sounds import load_clips

            return load_clips(data_path(self.path))
        from tradewind.workloads.digit_voices import voices_cached

        return voices_cached(self.clips, self.seed)

    def model(self, config: Config) -> nn.Module:
        """The network that the config names."""
        from tradewind.workloads.digit_networks import digit_network

        return digit_network(config["network"])

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, config: Config) -> torch.Tensor:
        """The mean cross-entropy."""
        from torch.nn import functional

        return functional.cross_entropy(outputs, targets)

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Accuracy, and by which name."""
        from tradewind.workloads.class_scores import class_scores

        found = class_scores(outputs, targets)
        return {f"train_{name}": value for name, value in found.items()} if self.split == "none" else found


def _part(held: Clips, rows: Array) -> Split:
    return Split(held.clips[rows][:, None, :], held.digits[rows])
