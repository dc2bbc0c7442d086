"""Recordings of spoken digits: from an array file or a folder of WAV files, as clips of 1.5 s at 8 kHz.

A clip is cut or padded with silence to 12,000 samples and divided by its maximum, as Stevens did.
"""

from __future__ import annotations

import hashlib
import math
import re
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import DataError, nearest
from tradewind.workloads import array_files
from tradewind.workloads.cache import cached

Array = np.ndarray[Any, Any]

RATE_HZ = 8000
SAMPLES = 12_000  # 1.5 s
WAV_NAME = re.compile(r"(\d)_(.+)_(\d+)\.wav")
KEYS = ("audio", "offsets", "digit", "speaker", "speakers", "sample_rate")
_QUIET_S = 0.064  # after a clip that is resampled, so that its end does not ring into its start


@dataclass(frozen=True)
class Clips:
    """All clips of a source: (n, 12000) in float32, the digit and the speaker's number of each, and their names."""

    clips: Array
    digits: Array
    speakers: Array
    names: tuple[str, ...]

    def spoken_by(self, names: Sequence[str]) -> Array:
        """The rows of the clips by these speakers; all, if none is named."""
        for name in names:
            if name not in self.names:
                raise DataError(f"speakers: found {name!r}; {nearest(str(name), self.names)}")
        return np.flatnonzero(np.isin(self.speakers, [self.names.index(name) for name in names or self.names]))


def load_clips(path: Path) -> Clips:
    """The clips of an .npz file or a folder of {digit}_{speaker}_{n}.wav; read once, then mapped from the cache."""
    if path.is_dir():
        files = sorted(path.glob("*.wav"))
        if not files:
            raise DataError(f"{path}: holds no .wav files; wanted: files such as 7_jackson_32.wav, or an .npz file")
    elif path.suffix == ".npz" and path.exists():
        files = [path]
    else:
        raise DataError(f"path: found {str(path)!r}; allowed: a folder of WAV files or an .npz file that exists")
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = Path(__file__).read_bytes() + repr(facts).encode()

    def make() -> tuple[Array, ...]:
        return read_folder(files) if path.is_dir() else read_arrays(path)

    name = f"digits-{hashlib.blake2b(text, digest_size=8).hexdigest()}"
    clips, digits, speakers, names = cached(name, ("clips", "digits", "speakers", "names"), make)
    return Clips(clips, digits, speakers, tuple(map(str, names)))


def read_arrays(path: Path) -> tuple[Array, ...]:
    """Clips, digits, speakers and their names from one file: `audio[offsets[k]:offsets[k + 1]]` is clip k."""
    audio, offsets, digit, speaker, names, rate = array_files.read_arrays(path, KEYS).values()
    if audio.ndim != 1 or audio.dtype.kind not in "iuf" or not np.isfinite(audio).all():
        raise DataError(f"{path}: audio: found {audio.dtype} of shape {audio.shape}; wanted: a row of finite numbers")
    if rate.ndim or rate.dtype.kind not in "iu" or rate < 1:
        raise DataError(f"{path}: sample_rate: found {rate}; wanted: a whole number of Hz")
    bounded = array_files.are_counts(offsets, digit, speaker) and len(offsets) > 1 and offsets[-1] <= len(audio)
    if not bounded or (offsets[1:] < offsets[:-1]).any() or not len(digit) == len(speaker) == len(offsets) - 1:
        raise DataError(f"{path}: offsets, digit and speaker do not describe the same clips of audio")
    if digit.max() > 9 or speaker.max() >= len(names):
        raise DataError(f"{path}: a digit is above 9, or a speaker has no name")
    pieces = [audio[start:end] for start, end in pairwise(offsets)]
    clips = fitted([resampled(piece.astype(np.float64), int(rate)) for piece in pieces])
    return clips, digit.astype(np.int64), speaker.astype(np.int64), names


def read_folder(files: Sequence[Path]) -> tuple[Array, ...]:
    """Clips, digits, speakers and their names from WAV files named {digit}_{speaker}_{n}.wav."""
    said = []
    for path in files:
        match = WAV_NAME.fullmatch(path.name)
        if not match:
            raise DataError(f"{path}: its name should be {{digit}}_{{speaker}}_{{n}}.wav, such as 7_jackson_32.wav")
        said.append((int(match[1]), match[2]))
    names = sorted({speaker for _, speaker in said})
    digits = np.array([digit for digit, _ in said], np.int64)
    speakers = np.array([names.index(speaker) for _, speaker in said], np.int64)
    return fitted([read_wav(path) for path in files]), digits, speakers, np.array(names)


def read_wav(path: Path) -> Array:
    """The samples of a PCM file at 8 kHz, the mean of its channels."""
    try:
        with wave.open(str(path), "rb") as file:
            rate, width, channels = file.getframerate(), file.getsampwidth(), file.getnchannels()
            held = file.readframes(file.getnframes())
    except (wave.Error, EOFError, OSError) as error:
        raise DataError(f"{path}: can't be read as WAV: {error}; allowed: PCM of 8, 16 or 32 bits") from None
    if width not in {1, 2, 4}:
        raise DataError(f"{path}: found samples of {8 * width} bits; allowed: 8, 16 or 32")
    whole = len(held) // (width * channels) * width * channels
    values = np.frombuffer(held[:whole], {1: "u1", 2: "<i2", 4: "<i4"}[width]).astype(np.float64)
    values = (values - 128.0 if width == 1 else values).reshape(-1, channels).mean(axis=1)
    return resampled(values, rate)


def resampled(samples: Array, rate_hz: int) -> Array:
    """The samples at 8 kHz: all of the sound below 4 kHz, or below the old rate's half, and none above."""
    if rate_hz == RATE_HZ or not len(samples):
        return samples
    common = math.gcd(rate_hz, RATE_HZ)
    block, kept = rate_hz // common, RATE_HZ // common  # so many samples become so many
    blocks = -(-(len(samples) + int(_QUIET_S * rate_hz)) // block)
    spectrum = np.fft.rfft(samples, blocks * block)
    spectrum[blocks * min(block, kept) // 2 :] = 0.0  # from the lower of the two limits on
    return (np.fft.irfft(spectrum, blocks * kept) * (kept / block))[: -(-len(samples) * kept // block)]


def fitted(pieces: Sequence[Array]) -> Array:
    """Each piece cut or padded with silence at its end to 1.5 s, and divided by its maximum."""
    clips = np.zeros((len(pieces), SAMPLES), np.float32)
    for clip, piece in zip(clips, pieces, strict=True):
        clip[: len(piece)] = piece[:SAMPLES]
    return normalised(clips)


def normalised(clips: Array) -> Array:
    """Clips divided, in place, by their maximum; silence stays silence."""
    peaks = clips.max(axis=1, keepdims=True)
    clips /= np.where(peaks > 0, peaks, 1.0)
    return clips
