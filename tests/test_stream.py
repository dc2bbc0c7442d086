"""Samples that do not fit their device: brought in pieces, and the same batches as if they lay there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tradewind.folder import RunFolder
from tradewind.pack import Outcome, Pack
from tradewind.schedule.trials import Trials
from tradewind.study import Study
from tradewind.train import batches, profile, stream
from tradewind.train.batches import Samples, TrainingBatches, batches_of, prepared
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.steps import Steps
from tradewind.train.stream import Stream
from tradewind.train.trainer import Trainer
from tradewind.workloads.contract import Data, Split

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stream, "PIECE_BYTES", 50_000)  # 65 samples of some_data


def some_data(count: int = 200, last: bool = True, dtype: Any = np.float32) -> Data:
    rng = np.random.default_rng(0)
    fields = np.moveaxis(rng.integers(-9, 9, (count, 8, 8, 3)).astype(dtype), 3, 1)
    targets = (np.arange(count) % 10 == 3).astype(np.float32)
    train = Split(fields if last else np.ascontiguousarray(fields), targets)
    return Data(train, None, Split(fields[:4], targets[:4]), ((1, 2),))


def made(data: Data, monkeypatch: pytest.MonkeyPatch, elsewhere: bool, **given: Any) -> TrainingBatches:
    config = {**{name: known.default for name, known in TRAINING.items()}, "data_seed": 3, "batch_size": 12, **given}
    split, _ = prepared(data, config, CPU)
    with monkeypatch.context() as patch:
        patch.setattr(Samples, "elsewhere", elsewhere)
        return batches_of(Samples.of(split, CPU, torch.float32), config["augment"] == "pre", data, config)


def test_pieces_come_in_the_order_of_the_epoch_and_stay_until_the_next_is_asked_for() -> None:
    held = torch.arange(100.0)[:, None].expand(100, 5).contiguous()
    asked: list[int] = []

    def gather(rows: torch.Tensor) -> torch.Tensor:
        asked.append(len(rows))
        return held[rows]

    brings = Stream(gather, torch.zeros(5), CPU, batch_size=8)
    brings._rows = 24
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        seen = []
        for part in brings.brought(order + 100, order):
            seen.append(part)
            torch.testing.assert_close(brings.piece[: len(part)], held[part - 100], rtol=0, atol=0)
        assert [len(part) for part in seen] == [24, 24, 24, 24, 4]
        assert torch.equal(torch.cat(seen), order + 100)
    assert asked == [24, 24, 24, 24, 4] * 2


def test_an_epoch_that_is_left_early_leaves_no_thread_and_the_next_one_is_whole() -> None:
    held = torch.arange(100.0)[:, None]
    brings = Stream(lambda rows: held[rows], torch.zeros(1), CPU, batch_size=10)
    brings._rows = 20
    before, order = threading.active_count(), torch.arange(100)
    early = brings.brought(order, order)
    next(early)
    early.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert [brings.piece[: len(part), 0].tolist() for part in brings.brought(order, order)][4] == list(range(80, 100))


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        {}, {"positive_copies": 3}, {"data_multiplier": 2}, {"batch_size": 150},
        {"augment": "live", "data_multiplier": 2, "positive_copies": 2}, {"augment": "pre", "data_multiplier": 3},
    ],
)  # fmt: skip
def test_brought_in_pieces_the_batches_are_the_same(
    given: dict[str, Any], last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = some_data(last=last)
    there, pieces = (made(data, monkeypatch, elsewhere, **given) for elsewhere in (False, True))
    assert there.stream is None
    assert pieces.stream is not None
    assert pieces.count > len(pieces.stream.piece)
    for epoch in (1, 2):
        for one, other in zip(there.epoch(epoch), pieces.epoch(epoch), strict=True):
            torch.testing.assert_close(one.inputs, other.inputs, rtol=0, atol=0)
            assert torch.equal(one.targets, other.targets)
            assert torch.equal(one.index, other.index)
    index = torch.tensor([5, 190, 7])
    torch.testing.assert_close(there.batch(index, 1).inputs, pieces.batch(index, 1).inputs, rtol=0, atol=0)


def test_whole_numbers_stay_whole_numbers_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = made(some_data(dtype=np.int16), monkeypatch, elsewhere=True)
    assert next(pieces.epoch(1)).inputs.dtype == torch.int16


def fit(folder: Path, **fixed: Any) -> list[Outcome]:
    data = {"train": 500, "validation": 64, "test": 128}
    space = {"learning_rate": [1e-3, 1e-2]}
    trials = Trials(Study(name="stream", workload="storm", data=data, space=space, fixed={"batch_size": 48, **fixed}))
    trainer = Trainer(trials.task(str(RunFolder.create(folder).path), threads=2))
    return list(trainer.fit(Pack(tuple(trials[k] for k in range(trials.size))), lambda *_: None))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "given",
    [
        {"precision": "fp64"}, {"precision": "fp32", "augment": "live"}, {"precision": "bf16"},
        {"precision": "fp64", "augment": "pre", "data_multiplier": 2},
    ],
)  # fmt: skip
def test_a_gpu_trains_on_pieces_as_on_the_whole(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "PAYS", 100.0)
    monkeypatch.setattr(stream, "PIECE_BYTES", 2 << 20)  # 144 storms
    common = {"device": "cuda", "epochs": 3, **given}
    whole = fit(tmp_path / "whole", **common)
    monkeypatch.setattr(batches, "ROOM", 0.0)
    captured: list[bool] = []
    epoch = Steps.epoch

    def noted(self: Steps, *about: Any) -> torch.Tensor:
        captured.append(self.captured and self._batches.stream is not None)
        return epoch(self, *about)

    monkeypatch.setattr(Steps, "epoch", noted)
    pieces = fit(tmp_path / "pieces", **common)
    assert captured == [True] * 3
    tolerance = {"fp64": 1e-12, "fp32": 1e-4, "bf16": 1e-2}[given["precision"]]
    for one, other in zip(pieces, whole, strict=True):
        for row, expected in zip(one.curve, other.curve, strict=True):
            assert row["train_loss"] == pytest.approx(expected["train_loss"], rel=tolerance)
            assert row["validation_loss"] == pytest.approx(expected["validation_loss"], rel=tolerance)
