"""Synthetic spoken digits: a voice and a hiss shaped by formants, spoken by speakers who differ.

A digit is a row of phones with formants, loudness and length. A speaker has a pitch, a length of the vocal tract,
a pace, a timbre, a breath and a room; every utterance strays from all of them. Clip i depends on the seed and i
alone: it says digit i mod 10, and ten clips in a row are of one speaker.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.workloads import digit_sounds
from tradewind.workloads.cache import cached
from tradewind.workloads.digit_sounds import RATE_HZ, SAMPLES, Clips, normalised

Array = np.ndarray[Any, Any]

SPEAKERS = 8
# three formants in Hz, voice, hiss, the hiss's middle in Hz, length in ms
PHONES: dict[str, tuple[float, ...]] = {
    "z": (300, 1700, 2600, 0.5, 0.25, 3600, 65),
    "i": (390, 2000, 2550, 1.0, 0.0, 2500, 70),
    "r": (360, 1250, 1650, 0.8, 0.0, 2500, 50),
    "o": (490, 950, 2400, 1.0, 0.0, 2500, 170),
    "w": (310, 750, 2200, 0.7, 0.0, 2500, 65),
    "uh": (640, 1200, 2400, 1.0, 0.0, 2500, 105),
    "n": (270, 1450, 2500, 0.5, 0.0, 2500, 85),
    "t": (400, 1800, 2700, 0.0, 0.35, 3300, 35),
    "u": (320, 1000, 2250, 1.0, 0.0, 2500, 180),
    "th": (400, 1500, 2500, 0.0, 0.10, 2800, 70),
    "ee": (290, 2250, 3000, 1.0, 0.0, 2500, 175),
    "f": (400, 1200, 2300, 0.0, 0.12, 2200, 75),
    "or": (520, 870, 2300, 1.0, 0.0, 2500, 170),
    "a": (740, 1250, 2450, 1.0, 0.0, 2500, 120),
    "v": (280, 1150, 2300, 0.5, 0.08, 2400, 65),
    "s": (350, 1600, 2600, 0.0, 0.35, 3800, 100),
    "k": (350, 1900, 2500, 0.0, 0.02, 2000, 50),
    "e": (540, 1800, 2500, 1.0, 0.0, 2500, 105),
}
WORDS = ("z i r o", "w uh n", "t u", "th r ee", "f or r", "f a i v", "s i k s", "s e v uh n", "e i t", "n a i n")
_LONGEST = 5  # phones
_WIDTHS_HZ = (70.0, 100.0, 150.0)  # of the formants
_TRAITS = 8  # random numbers of a speaker
_STRAYS = 8  # of an utterance, before those of its phones
_WINDOW, _HOP = 256, 128
_FRAMES = SAMPLES // _HOP + 2
_BLEND_S = 0.012  # from phone to phone
_CHUNK = 100  # clips at once: their spectra take some 30 MB


def make_voices(count: int, seed: int, first: int = 0) -> tuple[Array, Array, Array]:
    """Clips from number `first` on, their digits and their speakers."""
    numbers = np.arange(first, first + count)
    clips = np.empty((count, SAMPLES), np.float32)
    for start in range(0, count, _CHUNK):
        clips[start : start + _CHUNK] = _spoken(numbers[start : start + _CHUNK], seed)
    return normalised(clips), numbers % 10, numbers // 10 % SPEAKERS


def voices_cached(count: int, seed: int) -> Clips:
    """The clips, read from the cache folder and left on disk until used."""
    text = b"".join(Path(str(path)).read_bytes() for path in (__file__, digit_sounds.__file__))
    name = f"voices-{seed}-{count}-{hashlib.sha256(text + np.__version__.encode()).hexdigest()[:12]}"
    clips, digits, speakers = cached(name, ("clips", "digits", "speakers"), lambda: make_voices(count, seed))
    return Clips(clips, digits, speakers, tuple(f"speaker {k}" for k in range(SPEAKERS)))


def _spoken(numbers: Array, seed: int) -> Array:
    """The sound of these clips, not yet normalised; silence once the word is over."""
    traits = np.stack([np.random.default_rng((seed, 0, k)).normal(size=_TRAITS) for k in range(SPEAKERS)])
    traits = traits[numbers // 10 % SPEAKERS]
    draws = [np.random.default_rng((seed, 1, int(k))) for k in numbers]
    strays = np.stack([rng.normal(size=_STRAYS + 4 * _LONGEST) for rng in draws])
    noise = np.stack([rng.standard_normal((2, SAMPLES + 2 * _WINDOW), np.float32) for rng in draws])
    tracks, end_s = _tracks(numbers % 10, traits, strays)
    voice, hiss = _filters(tracks, traits)
    breath = np.exp(-2.5 + 0.5 * traits[:, 3, None, None]).astype(np.float32)
    hum = _spectra(_pitch_pulses(traits, strays))
    sound = _sound(hum * voice + _spectra(noise[:, 0]) * (breath * voice + hiss))
    loudness = np.abs(sound).max(axis=1) * np.exp(-4.3 + 0.5 * traits[:, 4] + 0.3 * strays[:, 5])
    sound += loudness[:, None].astype(np.float32) * noise[:, 1, :SAMPLES]
    return np.where(np.arange(SAMPLES) < end_s[:, None] * RATE_HZ, sound, np.float32(0))


def _pitch_pulses(traits: Array, strays: Array) -> Array:
    """The voice before its formants: pulses at the pitch, which falls and wavers."""
    time_s = np.arange(SAMPLES + 2 * _WINDOW) / RATE_HZ
    pitch_hz = 140.0 * np.exp(0.3 * traits[:, 0] + 0.06 * strays[:, 0])[:, None]
    fall = np.clip(0.25 + 0.2 * traits[:, 5] + 0.2 * strays[:, 1], -0.2, 0.6)[:, None]  # never to silence
    waver = 0.02 * np.sin(2 * np.pi * (5 + strays[:, 2, None]) * time_s)
    pitch_hz = pitch_hz * (1 - fall * np.minimum(time_s, 1.0) + waver)
    phase = np.cumsum(pitch_hz, axis=1) / RATE_HZ + strays[:, 3, None]
    turns = np.diff(np.floor(phase), axis=1, prepend=np.floor(phase[:, :1]))
    # as much power at any pitch
    return (turns * np.sqrt(RATE_HZ / pitch_hz)).astype(np.float32)


def _tracks(digits: Array, traits: Array, strays: Array) -> tuple[Array, Array]:
    """Formants, voice, hiss and its middle for every frame, (clips, frames, 6), and when each word is over."""
    phones = np.zeros((10, _LONGEST, 7))
    for digit, word in enumerate(WORDS):
        for place, phone in enumerate(word.split()):
            phones[digit, place] = PHONES[phone]
    said = phones[digits]
    wander = strays[:, _STRAYS:].reshape(len(digits), _LONGEST, 4)
    pace = np.exp(0.18 * traits[:, 1] + 0.12 * strays[:, 4])[:, None]
    lengths_s = said[..., 6] / 1000 * pace * np.exp(0.2 * wander[..., 0])
    start_s = 0.02 * np.abs(strays[:, 6, None])
    edges_s = np.concatenate((start_s, start_s + np.cumsum(lengths_s, axis=1)), axis=1)
    frames_s = (np.arange(_FRAMES) - 1) * _HOP / RATE_HZ
    steps = 1 / (1 + np.exp(np.clip((edges_s[:, None, :] - frames_s[:, None]) / _BLEND_S, -50, 50)))
    weights = steps[..., :-1] - steps[..., 1:]
    values = said[..., :6].copy()
    values[..., :3] *= np.exp(0.09 * traits[:, 2, None, None] + 0.05 * wander[..., 1:4])
    loud = weights @ values[..., 3:5]  # fades in and out
    weights /= weights.sum(axis=2, keepdims=True) + 1e-9  # blended from phone to phone
    places = weights @ values[..., [0, 1, 2, 5]]
    return np.concatenate((places[..., :3], loud, places[..., 3:]), axis=2).astype(np.float32), edges_s[:, -1] + 0.03


def _filters(tracks: Array, traits: Array) -> tuple[Array, Array]:
    """What voice and hiss pass through in every frame, (clips, frames, frequencies) each."""
    hz = np.fft.rfftfreq(_WINDOW, 1 / RATE_HZ).astype(np.float32)
    voice = np.zeros((*tracks.shape[:2], len(hz)), np.complex64)
    for place, width_hz in enumerate(_WIDTHS_HZ):
        # a resonance rings after each pulse, in turn with its neighbours
        voice += np.float32((-0.55) ** place) / (1 + 1j * ((hz - tracks[..., place, None]) / np.float32(width_hz)))
    tilt = np.exp(-hz / (1800.0 * np.exp(0.25 * traits[:, 6, None]))).astype(np.float32)
    hiss = np.exp(-0.5 * ((hz - tracks[..., 5, None]) / 700.0) ** 2)
    return voice * tracks[..., 3, None] * tilt[:, None, :], hiss * tracks[..., 4, None]


def _spectra(source: Array) -> Array:
    """The spectra of windows that overlap by half, (clips, frames, frequencies)."""
    framed = np.lib.stride_tricks.sliding_window_view(source, _WINDOW, axis=1)[:, : _FRAMES * _HOP : _HOP]
    spectra: Array = np.fft.rfft(framed * _window(), axis=2)
    return spectra


def _sound(spectra: Array) -> Array:
    """The sound whose windows have these spectra."""
    halves = (np.fft.irfft(spectra, axis=2) * _window()).reshape(len(spectra), _FRAMES, 2, _HOP)
    sound: Array = (halves[:, 1:, 0] + halves[:, :-1, 1]).reshape(len(spectra), -1)[:, :SAMPLES]
    return sound


def _window() -> Array:
    """Its square, overlapped by half, adds up to 1."""
    return np.sin(np.pi * (np.arange(_WINDOW) + 0.5) / _WINDOW).astype(np.float32)
