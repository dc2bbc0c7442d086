"""Storms drawn from a model of a supercell: what is seen now, and whether it rotates strongly in an hour.

A patch is 32×32 cells of 3 km, rows growing northward: composite reflectivity (dBZ, clipped at 0) and the
10 m wind (u eastward, v northward, m/s). A storm has a vigour, a core along the shear with an anvil ahead of
it, neighbours, a mesocyclone (or, at times, an anticyclone) in its right rear with inflow and a hook echo,
a cold outflow and a wind shift line. The next hour's vorticity grows from the mesocyclone's; outflow that
undercuts it slows it, inflow and vigour feed it, and part is chance. Labels: vorticity above 0.005 /s, near
9 % of storms (NCAR's files: 4.6 to 5.3 %). Means and spreads are near those of NCAR's patches.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.workloads.cache import cached

Array = np.ndarray[Any, np.dtype[np.float32]]

SIDE = 32
CELL_M = 3000.0
THRESHOLD_PER_S = 0.005
_CHUNK = 256  # storms with one generator; their fields stay in a core's cache
_AXIS = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
_X, _Y = _AXIS[None, None, :], _AXIS[None, :, None]


@dataclass(frozen=True)
class _Storms:
    """The hidden state of a chunk of storms; places in cells from the middle, shape (n, 1, 1)."""

    vigour: Array
    heading: Array  # of the shear, radians
    core_x: Array
    core_y: Array
    spin_x: Array
    spin_y: Array
    spin: Array  # greatest tangential wind, m/s; negative for anticyclones
    spin_radius: Array
    inflow: Array  # share of the tangential wind
    outflow: Array  # m/s
    outflow_radius: Array


def make_storms(count: int, seed: int) -> tuple[Array, Array]:
    """Patches (count, 32, 32, 3) and labels 0 or 1; storm i depends on the seed and i alone."""
    inputs = np.empty((count, SIDE, SIDE, 3), np.float32)
    labels = np.empty(count, np.float32)
    for chunk, start in enumerate(range(0, count, _CHUNK)):
        rng = np.random.default_rng((seed, chunk))
        storms = _hidden(rng)
        wanted = slice(0, min(_CHUNK, count - start))
        here = slice(start, start + _CHUNK)
        labels[here] = (_next_vorticity(storms, rng) > THRESHOLD_PER_S)[wanted]
        inputs[here, :, :, 0] = _reflectivity(storms, rng)[wanted]
        inputs[here, :, :, 1], inputs[here, :, :, 2] = (wind[wanted] for wind in _wind(storms, rng))
    return inputs, labels


def storms_cached(count: int, seed: int) -> tuple[Array, Array]:
    """The same, read from the cache folder and left on disk until used."""
    source = Path(__file__).read_bytes() + np.__version__.encode()  # either may change the storms
    name = f"storms-{seed}-{count}-{hashlib.sha256(source).hexdigest()[:12]}"
    inputs, labels = cached(name, ("inputs", "labels"), lambda: make_storms(count, seed))
    return inputs, labels


def _hidden(rng: np.random.Generator) -> _Storms:
    vigour = _normal(rng)
    heading = _normal(rng, 0.8, 0.8)
    core_x, core_y = _normal(rng, 0.0, 1.5), _normal(rng, 0.0, 1.5)
    side = np.where(rng.random((_CHUNK, 1, 1)) < 0.85, np.float32(1), np.float32(-1))
    flank = heading - side * _normal(rng, 2.1, 0.5)  # the right rear; anticyclones mirror it
    distance = np.exp(_normal(rng, 1.3, 0.35))
    return _Storms(
        vigour=vigour,
        heading=heading,
        core_x=core_x,
        core_y=core_y,
        spin_x=core_x + distance * np.cos(flank),
        spin_y=core_y + distance * np.sin(flank),
        spin=side * np.minimum(np.exp(1.55 + 0.45 * vigour + _normal(rng, 0.0, 0.40)), 25.0),
        spin_radius=np.exp(_normal(rng, 0.75, 0.25)),
        inflow=_normal(rng, 0.25, 0.30),
        outflow=np.exp(1.2 + 0.25 * vigour + _normal(rng, 0.0, 0.50)),
        outflow_radius=np.exp(_normal(rng, 1.9, 0.25)),
    )


def _next_vorticity(storms: _Storms, rng: np.random.Generator) -> Array:
    """The greatest vorticity of the next hour, 1/s."""
    # the mean inside the radius: the circulation around it by its area
    now = 2.0 * np.maximum(storms.spin, 0.0) / (storms.spin_radius * CELL_M)
    undercut = storms.outflow / (storms.outflow + np.abs(storms.spin))
    growth = 0.3 * storms.vigour - 0.3 + 0.9 * (storms.inflow - 0.25) - 1.4 * (undercut - 0.4)
    genesis = 0.0006 * np.exp(0.3 * storms.vigour)
    later: Array = now * np.exp(growth + _normal(rng, 0.0, 0.30)) + genesis
    return later[:, 0, 0]


def _reflectivity(storms: _Storms, rng: np.random.Generator) -> Array:
    cos, sin = np.cos(storms.heading), np.sin(storms.heading)
    x, y = _X - storms.core_x, _Y - storms.core_y
    along, across = cos * x + sin * y, cos * y - sin * x
    radius = np.exp(1.55 + 0.18 * storms.vigour + _normal(rng, 0.0, 0.25))
    aspect = np.exp(np.abs(_normal(rng, 0.0, 0.35)))
    core = _normal(rng, 24.0, 3.0) + 3.0 * storms.vigour
    anvil = _normal(rng, 20.0, 4.0) + 4.0 * storms.vigour
    echo: Array = core * np.exp(-0.5 * ((along / aspect) ** 2 + across**2) / radius**2)
    echo += anvil * np.exp(-((along - 0.8 * radius) ** 2 + 2.0 * across**2) / (4.0 * radius) ** 2)
    echo += _neighbours(rng) + _hook(storms)
    echo += _normal(rng, 5.0, 6.5) + _texture(rng, 6) * 10.5 + _texture(rng, 20) * 3.0
    echo -= 0.5 * np.maximum(echo - 40.0, 0.0)  # sums of hills overshoot what storms reach
    return np.clip(echo, 0.0, 75.0, out=echo)


def _neighbours(rng: np.random.Generator, most: int = 4) -> Array:
    """Other cells, fewer and weaker than the storm."""
    x, y = rng.uniform(-SIDE / 2, SIDE / 2, (2, _CHUNK, most)).astype(np.float32)
    peaks = rng.uniform(-20.0, 28.0, (_CHUNK, most)).astype(np.float32).clip(0.0)
    return _blobs(x, y, rng.uniform(1.5, 4.0, (_CHUNK, most)).astype(np.float32), peaks)


def _hook(storms: _Storms) -> Array:
    """A band of echo from the core's side of the vortex around it, as strong as the vortex."""
    start = np.arctan2(storms.core_y - storms.spin_y, storms.core_x - storms.spin_x)[:, 0]
    steps = np.linspace(0.3, 4.2, 7, dtype=np.float32)
    angles = start + np.sign(storms.spin[:, 0]) * steps
    radii = storms.spin_radius[:, 0] * np.linspace(1.7, 1.2, 7, dtype=np.float32)
    x, y = storms.spin_x[:, 0] + radii * np.cos(angles), storms.spin_y[:, 0] + radii * np.sin(angles)
    fading = np.linspace(1.2, 0.6, 7, dtype=np.float32)
    peaks: Array = np.minimum(np.abs(storms.spin[:, 0]), np.float32(14.0)) * fading
    return _blobs(x, y, np.full_like(x, 0.9), peaks)


def _wind(storms: _Storms, rng: np.random.Generator) -> tuple[Array, Array]:
    u, v = _environment(rng)
    for x0, y0, radius, around, inward in (
        (storms.spin_x, storms.spin_y, storms.spin_radius, storms.spin, storms.inflow * np.abs(storms.spin)),
        (storms.core_x, storms.core_y, storms.outflow_radius, np.float32(0), -storms.outflow),
    ):
        x, y = _X - x0, _Y - y0
        # a Lamb–Oseen vortex: solid inside, fading as 1/r; its greatest wind, at the radius, is the given one
        squared = (x**2 + y**2) * (1.2564 / radius**2)
        profile = (1.3979 * 1.2564) * -np.expm1(-squared) / (squared + 1e-6) / radius
        u -= profile * (around * y + inward * x)
        v += profile * (around * x - inward * y)
    return u, v


def _environment(rng: np.random.Generator) -> tuple[Array, Array]:
    """A mean wind with gradients, a wind shift along a line, and gusts of two sizes."""
    line, place = rng.uniform(0.0, 6.2832, (_CHUNK, 1, 1)).astype(np.float32), _normal(rng, 0.0, 5.0)
    shift = np.tanh((np.cos(line) * _X + np.sin(line) * _Y - place) / 1.5)
    u, v = (
        _normal(rng, mean, spread)
        + _normal(rng, 0.0, 0.07) * _X
        + _normal(rng, 0.0, 0.07) * _Y
        + _normal(rng, 0.0, 1.3) * shift
        + _texture(rng, 7) * 1.4
        + _texture(rng, 24) * 0.6
        for mean, spread in ((-0.3, 3.0), (0.8, 3.5))
    )
    return u, v


def _normal(rng: np.random.Generator, mean: float = 0.0, spread: float = 1.0) -> Array:
    """One number for each storm, shape (n, 1, 1)."""
    return np.float32(mean) + np.float32(spread) * rng.standard_normal((_CHUNK, 1, 1), np.float32)


def _blobs(x: Array, y: Array, radius: Array, peak: Array) -> Array:
    """The sum of round hills, all arguments (n, hills): rows times columns, so few exponentials."""
    scale = -0.5 / radius[:, :, None] ** 2
    rows = peak[:, :, None] * np.exp(scale * (_AXIS - y[:, :, None]) ** 2)
    columns = np.exp(scale * (_AXIS - x[:, :, None]) ** 2)
    hills: Array = rows.transpose(0, 2, 1) @ columns
    return hills


def _texture(rng: np.random.Generator, knots: int) -> Array:
    """Smooth noise of mean 0 and spread 1, with so many knots a side."""
    places = np.linspace(_AXIS[0], _AXIS[-1], knots, dtype=np.float32)
    weights = np.exp(-0.5 * ((_AXIS[:, None] - places) / (0.7 * SIDE / knots)) ** 2)
    weights /= np.sqrt((weights**2).sum(axis=1, keepdims=True))
    noise: Array = weights @ rng.standard_normal((_CHUNK, knots, knots), np.float32) @ weights.T
    return noise
