"""Spoken digits: the paper's two networks, clips from files and from synthetic voices, honest splits."""

from __future__ import annotations

import math
import os
import wave
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tradewind
from tradewind.errors import DataError, WorkloadError
from tradewind.train.batches import Batch
from tradewind.train.stack import Stack
from tradewind.workloads import data_identity, find
from tradewind.workloads.class_scores import class_scores
from tradewind.workloads.digit_networks import digit_network
from tradewind.workloads.digit_sounds import Clips, load_clips, resampled
from tradewind.workloads.digit_voices import SPEAKERS, _pitch_pulses, make_voices
from tradewind.workloads.digits import Digits

Array = np.ndarray[Any, Any]

SHARED = Path(os.environ.get("TRADEWIND_DATA", Path(__file__).parents[2] / "shared" / "data"))
FSDD = SHARED / "fsdd_8khz_int16.npz"
STEVENS = ["jackson", "nicolas", "theo", "yweweler"]
real = pytest.mark.skipif(not FSDD.exists(), reason="the Free Spoken Digit Dataset is not here")

# the paper's Figures 1 and 2: outputs of each layer for one clip, and its parameters
LINEAR = [
    *(("Linear", (1000,), 12_001_000), ("ReLU", (1000,), 0), ("Linear", (100,), 100_100), ("ReLU", (100,), 0)),
    *(("Linear", (10,), 1010), ("Sigmoid", (10,), 0), ("Linear", (10,), 110)),
]
CONV = [
    *(("Conv1d", (50, 12001), 10_050), ("ReLU", (50, 12001), 0), ("MaxPool1d", (50, 3000), 0)),
    *(("Conv1d", (30, 3001), 150_030), ("ReLU", (30, 3001), 0), ("MaxPool1d", (30, 1000), 0)),
    *(("Conv1d", (10, 1001), 15_010), ("ReLU", (10, 1001), 0), ("MaxPool1d", (10, 200), 0)),
    *(("Linear", (100,), 200_100), ("Sigmoid", (100,), 0), ("Linear", (10,), 1010)),
]


pytestmark = pytest.mark.usefixtures("one_core")


def layers_of(network: nn.Module) -> list[tuple[str, tuple[int, ...], int]]:
    """Kind, output of one clip and parameters of every layer, in the order in which they act."""
    found: list[tuple[str, tuple[int, ...], int]] = []

    def note(layer: nn.Module, _: Any, outputs: torch.Tensor) -> None:
        count = sum(p.numel() for p in layer.parameters())
        found.append((type(layer).__name__, tuple(outputs.shape[1:]), count))

    for layer in network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(note)
    with torch.no_grad():
        assert network(torch.zeros(2, 1, 12_000)).shape == (2, 10)
    return found


@pytest.mark.parametrize(
    ("name", "layers", "parameters", "pass_mb", "parameters_mb"),
    [("linear", LINEAR, 12_102_220, 0.02, 46.17), ("conv", CONV, 376_200, 12.07, 1.44)],
)
def test_a_network_has_the_papers_layers_parameters_and_memory_per_clip(
    name: str, layers: list[Any], parameters: int, pass_mb: float, parameters_mb: float
) -> None:
    found = layers_of(digit_network(name))
    assert found == layers
    assert sum(count for *_, count in found) == parameters
    assert round(4 * parameters / 2**20, 2) == parameters_mb
    # as the paper counts a forward and backward pass: every output twice, 4 bytes each
    assert round(2 * 4 * sum(math.prod(shape) for _, shape, _ in found) / 2**20, 2) == pass_mb


@pytest.mark.parametrize("name", ["linear", "conv"])
def test_two_networks_stack_and_give_the_gradients_they_give_alone(name: str) -> None:
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(digit_network(name))
    batch = Batch(torch.randn(2, 1, 12_000), torch.tensor([3, 7]), torch.arange(2), 0)
    Stack(models, [0, 1], Digits(), "fp32").check(models, batch, [{}, {}], {})


def test_voices_are_the_same_in_any_pieces_and_others_with_another_seed() -> None:
    clips, digits, speakers = make_voices(130, 3)
    again, _, _ = make_voices(31, 3, first=99)
    np.testing.assert_array_equal(again, clips[99:])
    assert digits[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert speakers[[0, 9, 10, 79, 80]].tolist() == [0, 0, 1, 7, 0]
    assert clips.shape == (130, 12_000)
    assert clips.dtype == np.float32
    np.testing.assert_array_equal(clips.max(axis=1), 1.0)
    other, _, _ = make_voices(10, 4)
    assert np.abs(other - clips[:10]).max(axis=1).min() > 0.1


def test_the_strangest_voice_is_still_a_sound() -> None:
    for strange in (-6.0, 6.0):
        pulses = _pitch_pulses(np.full((1, 8), strange), np.full((1, 28), strange))
        assert np.isfinite(pulses).all()
        assert pulses.max() > 0


def spans_s(clips: Array) -> Array:
    """Until when each clip is louder than a twentieth of its maximum."""
    loud = np.abs(clips) > 0.05
    return (loud.shape[1] - loud[:, ::-1].argmax(axis=1)) / 8000


@real
def test_voices_are_as_long_and_as_loud_as_recordings() -> None:
    clips, _, _ = make_voices(200, 0)
    recorded = load_clips(FSDD).clips[::15]
    for share, allowed_s in ((0.05, 0.06), (0.5, 0.06), (0.95, 0.12)):
        assert abs(np.quantile(spans_s(clips), share) - np.quantile(spans_s(recorded), share)) < allowed_s
    assert 0.8 < np.sqrt((clips**2).mean() / (recorded**2).mean()) < 1.25


def test_every_clip_is_in_one_part_whatever_the_split() -> None:
    for split in ("random", "speaker"):
        data = Digits(split=split, clips=160, validation=0.125, test=0.25).data({"data_seed": 1})
        assert data.validation is not None
        parts = (data.train, data.validation, data.test)
        seen = Counter(clip.tobytes() for part in parts for clip in part.inputs)
        assert (len(seen), set(seen.values())) == (160, {1})
        assert [part.inputs.shape[1:] for part in parts] == [(1, 12_000)] * 3
        assert [len(part) for part in parts] == [100, 20, 40]


def test_a_split_by_speaker_keeps_every_voice_in_one_part() -> None:
    clips, _, speakers = make_voices(160, 0)
    voice = {clip.tobytes(): int(speaker) for clip, speaker in zip(clips, speakers, strict=True)}

    def voices(data_seed: int) -> list[set[int]]:
        data = Digits(split="speaker", clips=160).data({"data_seed": data_seed})
        assert data.validation is not None
        return [{voice[clip.tobytes()] for clip in part.inputs} for part in (data.train, data.validation, data.test)]

    train, validation, test = voices(0)
    assert (len(train), len(validation), len(test)) == (5, 1, 2)
    assert train | validation | test == set(range(SPEAKERS))
    assert voices(0) == [train, validation, test]
    assert any(voices(seed) != [train, validation, test] for seed in (1, 2))


def test_without_a_split_all_clips_train_and_their_accuracy_is_called_so() -> None:
    digits = Digits(split="none", clips=40)
    data = digits.data({"data_seed": 0})
    assert (len(data.train), data.validation, data.test is data.train) == (40, None, True)
    logits = torch.eye(10)[[1, 2, 3]]
    assert digits.scores(logits, torch.tensor([1, 2, 4])) == {"train_accuracy": pytest.approx(2 / 3)}
    assert Digits().scores(logits, torch.tensor([1, 2, 4])) == {"accuracy": pytest.approx(2 / 3)}
    assert class_scores(logits * math.nan, torch.tensor([1, 2, 4])) == {}


def write_wav(path: Path, samples: Array, rate_hz: int = 8000, kind: str = "<i2", channels: int = 1) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(np.dtype(kind).itemsize)
        file.setframerate(rate_hz)
        file.writeframes(samples.astype(kind).tobytes())


def test_wav_files_are_padded_cut_and_divided_by_their_maximum(tmp_path: Path) -> None:
    short, long = np.array([100, -400, 200]), np.arange(1, 15_001)
    write_wav(tmp_path / "7_ann_0.wav", short)
    write_wav(tmp_path / "3_bob_lee_12.wav", long, kind="<i4")
    write_wav(tmp_path / "0_ann_1.wav", np.array([138, 128, 118]), kind="u1")
    write_wav(tmp_path / "1_ann_1.wav", np.array([100, 300, 0, 100]), channels=2)
    held = load_clips(tmp_path)
    assert held.names == ("ann", "bob_lee")
    assert held.digits.tolist() == [0, 1, 3, 7]
    assert held.speakers.tolist() == [0, 0, 1, 0]
    assert held.clips.shape == (4, 12_000)
    assert held.clips[0, :4].tolist() == [1.0, 0.0, -1.0, 0.0]
    assert held.clips[1, :3].tolist() == [1.0, 0.25, 0.0]
    np.testing.assert_allclose(held.clips[2], np.arange(1, 12_001) / 12_000, rtol=1e-6)
    assert held.clips[3, :4].tolist() == [0.5, -2.0, 1.0, 0.0]
    assert held.spoken_by(["bob_lee"]).tolist() == [2]


@pytest.mark.parametrize("rate_hz", [44_100, 16_000, 6000])
def test_another_rate_is_resampled_without_aliases(rate_hz: int) -> None:
    time_s, wanted_s = np.arange(rate_hz) / rate_hz, np.arange(8000) / 8000
    fade, faded = np.sin(np.pi * time_s) ** 2, np.sin(np.pi * wanted_s) ** 2
    found = resampled(np.sin(2 * np.pi * 1000 * time_s) * fade, rate_hz)
    np.testing.assert_allclose(found, np.sin(2 * np.pi * 1000 * wanted_s) * faded, atol=2e-3)
    if rate_hz > 12_000:
        assert np.abs(resampled(np.sin(2 * np.pi * 5000 * time_s) * fade, rate_hz)).max() < 1e-3


def write_arrays(path: Path, **changes: Any) -> Path:
    values = {
        "audio": np.arange(1, 31, dtype=np.int16), "offsets": np.array([0, 10, 30]), "sample_rate": np.int32(8000),
        "digit": np.array([4, 9], np.uint8), "speaker": np.array([1, 0], np.uint8), "speakers": np.array(["a", "b"]),
    }  # fmt: skip
    kept = {name: value for name, value in {**values, **changes}.items() if value is not None}
    np.savez(path, **kept)
    return path


def test_an_array_file_holds_the_clips_between_its_offsets(tmp_path: Path) -> None:
    held = load_clips(write_arrays(tmp_path / "clips.npz"))
    assert (held.digits.tolist(), held.speakers.tolist(), held.names) == ([4, 9], [1, 0], ("a", "b"))
    np.testing.assert_allclose(held.clips[0, :11], [*np.arange(1, 11) / 10, 0], rtol=1e-6)
    np.testing.assert_allclose(held.clips[1, :21], [*np.arange(11, 31) / 30, 0], rtol=1e-6)


def test_a_file_that_is_changed_is_read_anew(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "clips.npz")
    assert load_clips(path).digits.tolist() == [4, 9]
    write_arrays(path, digit=np.array([5, 9], np.uint8))
    os.utime(path, ns=(1, 1))
    assert load_clips(path).digits.tolist() == [5, 9]


def test_a_relative_path_is_looked_for_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path / "clips.npz")
    monkeypatch.setenv("TRADEWIND_DATA", str(tmp_path))
    data = Digits(source="file", path="clips.npz", split="none").data({"data_seed": 0})
    assert data.train.targets.tolist() == [4, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "sythetic"}, "source: found 'sythetic'; did you mean 'synthetic'"),
        ({"split": "speakers"}, "split: found 'speakers'; did you mean 'speaker'"),
        ({"source": "file"}, "path: is missing; source file needs a folder of WAV files or an .npz file"),
        ({"path": "x.npz"}, "path: found 'x.npz'; only source file has"),
        ({"source": "file", "path": "no.npz"}, "path: found 'no.npz'; allowed: a folder of WAV files or an .npz"),
        ({"test": 0}, "test: found 0; allowed: a share above 0, below 1"),
        ({"validation": 1.5}, "validation: found 1.5; allowed: a share from 0, below 1"),
        ({"validation": 0.5, "test": 0.5}, "validation and test: found 0.5 and 0.5; allowed: together below 1"),
        ({"clips": 5}, "clips: found 5; allowed: whole numbers from 10"),
        ({"speakers": "theo"}, "speakers: found 'theo'; allowed: a list of names"),
        ({"clips": 40, "speakers": ["speaker 9"]}, "speakers: found 'speaker 9'; did you mean 'speaker"),
        (
            {"clips": 40, "split": "speaker", "speakers": ["speaker 0", "speaker 1"]},
            "split speaker: found 2 speakers; wanted: 3 or more",
        ),
    ],
)
def test_what_digits_can_not_do_is_said_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as found:
        Digits(**options).data({"data_seed": 0})
    assert message in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digit": np.array([-4, 9])}, "do not describe the same clips of audio"),
        ({"digit": np.array([4.5, 9])}, "do not describe the same clips of audio"),
        ({"speaker": np.array([-1, 0])}, "do not describe the same clips of audio"),
        ({"offsets": np.array([0.0, 10.0, 30.0])}, "do not describe the same clips of audio"),
        ({"offsets": np.array([20, 10, 30], np.uint64)}, "do not describe the same clips of audio"),
        ({"digit": np.array([4, 10])}, "a digit is above 9, or a speaker has no name"),
        ({"audio": np.full(30, np.nan)}, "audio: found float64 of shape (30,); wanted: a row of finite numbers"),
        ({"audio": np.ones((30, 2))}, "audio: found float64 of shape (30, 2); wanted: a row of finite numbers"),
        ({"sample_rate": np.int32(0)}, "sample_rate: found 0; wanted: a whole number of Hz"),
        ({"sample_rate": np.array([8000])}, "sample_rate: found [8000]; wanted: a whole number of Hz"),
    ],
)
def test_an_array_file_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as found:
        load_clips(write_arrays(tmp_path / "clips.npz", **changes))
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def test_files_that_can_not_be_read_are_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no \.wav files"):
        load_clips(tmp_path)
    with pytest.raises(DataError, match="holds no 'digit'; wanted: audio, offsets"):
        load_clips(write_arrays(tmp_path / "a.npz", digit=None))
    with pytest.raises(DataError, match="do not describe the same clips"):
        load_clips(write_arrays(tmp_path / "b.npz", offsets=np.array([0, 10, 31])))
    whole = write_arrays(tmp_path / "c.npz").read_bytes()
    for content in (b"nothing", whole[: len(whole) // 2]):
        (tmp_path / "c.npz").write_bytes(content)
        with pytest.raises(DataError, match="can't be read as an array file"):
            load_clips(tmp_path / "c.npz")
    (tmp_path / "7_ann_0.wav").write_text("nothing")
    with pytest.raises(DataError, match=r"7_ann_0\.wav: can't be read as WAV"):
        load_clips(tmp_path)
    (tmp_path / "7_ann_0.wav").rename(tmp_path / "seven.wav")
    with pytest.raises(DataError, match=r"seven\.wav: its name should be"):
        load_clips(tmp_path)
    with pytest.raises(WorkloadError, match="network: found 'conf'; did you mean 'conv'"):
        digit_network("conf")


def test_data_that_is_spelled_out_is_the_same_data() -> None:
    digits = find("digits", Path())
    assert digits is Digits
    usual = data_identity(digits, {})
    assert usual == data_identity(digits, {"source": "synthetic", "split": "random", "clips": 2000, "seed": 0})
    assert usual != data_identity(digits, {"split": "speaker"})


def test_a_few_epochs_tell_digits_apart(tmp_path: Path) -> None:
    study = tradewind.Study.model_validate({
        "name": "digits", "workload": "digits", "data": {"clips": 200, "split": "none"},
        "space": {"learning_rate": [0.001]}, "fixed": {"epochs": 4, "batch_size": 25, "device": "cpu"},
        "search": {"metric": "train_accuracy"},
    })  # fmt: skip
    best = tradewind.run(study, out=tmp_path / "run", engine="serial").best()
    assert best.record["parameters"] == 12_102_220
    assert best.value > 0.25  # of 200 clips; a guess of ten gives 0.10 ± 0.02


@pytest.mark.slow
@real
@pytest.mark.parametrize(
    ("network", "how"),
    [
        ("linear", {"epochs": 40, "batch_size": 50, "learning_rate": 0.0005}),
        ("conv", {"epochs": 20, "batch_size": 20, "learning_rate": 0.001}),
    ],
)
def test_both_networks_learn_the_papers_2000_clips_by_heart(
    network: str, how: dict[str, Any], tmp_path: Path
) -> None:
    if network == "conv" and not torch.cuda.is_available():
        pytest.skip("on a CPU an epoch of the convolutions takes minutes")
    study = tradewind.Study.model_validate({
        "name": "by heart", "workload": "digits",
        "data": {"source": "file", "path": str(FSDD), "speakers": STEVENS, "split": "none"},
        "space": {"network": [network]},
        "fixed": how,
        "search": {"metric": "train_accuracy"},
    })  # fmt: skip
    best = tradewind.run(study, out=tmp_path / "run", engine="serial").best()
    print(f"{network}: training accuracy {best.value:.4f}")
    assert best.value > 0.99


@real
def test_the_papers_four_speakers_have_2000_clips() -> None:
    held: Clips = load_clips(FSDD)
    rows = held.spoken_by(STEVENS)
    assert len(rows) == 2000
    assert np.bincount(held.digits[rows]).tolist() == [200] * 10
    data = Digits(source="file", path=str(FSDD), speakers=STEVENS, split="speaker").data({"data_seed": 0})
    assert data.validation is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (1000, 500, 500)
