"""A model of a thunderstorm on 32×32 cells of 3 km: what is seen now, and how it will turn within the hour.

Rows grow northward, columns eastward; the storm stands at cell [16, 16]. Shear gives it a heading, a line of
cores with an anvil ahead, a weak-echo region and a hook where it turns. The vortex lies in its right rear, at
1 km height: the 10 m wind shows it weaker, broader and displaced, beside inflow, cold outflow, the wind of the
day and turbulence. The next hour's vorticity grows from the vortex along its path: inflow, wind across the
shear and vigour feed it, outflow undercuts it, and part is chance. All fields are (n, 32, 32) tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tradewind.noise import uniforms
from tradewind.workloads.shapes import CENTRE, Hills, add_hills, axes, connected, texture

CELL_M = 3000.0
HOUR_S = 3600.0
OBJECT_DBZ = 40.0
_STATE_DRAWS = 20  # normal numbers behind the state; the others shape the fields
_DRAWS = 64
_NEIGHBOURS = 5
# the streams of random numbers, one for each use
_HIDDEN, _ECHO, _WEST_WIND, _SOUTH_WIND, _WARMTH, _SPIN, _NEAR = range(7)


@dataclass(frozen=True)
class State:
    """The hidden state of some storms, one number each, shape (n, 1, 1); lengths in cells, winds in m/s."""

    seed: int
    index: Tensor
    details: Tensor  # normal numbers for what the fields add, (n, many)
    vigour: Tensor
    heading: Tensor  # of the shear, radians from east
    shear: Tensor  # of its usual strength
    u: Tensor  # the wind of the day
    v: Tensor
    helicity: Tensor  # wind from the shear's right, in spreads
    spin: Tensor  # the vortex's greatest wind; negative for anticyclones
    radius: Tensor
    spin_x: Tensor
    spin_y: Tensor
    inflow: Tensor
    outflow: Tensor
    outflow_radius: Tensor
    outflow_x: Tensor
    outflow_y: Tensor
    warmth: Tensor  # spreads from the mean

    def detail(self, place: int) -> Tensor:
        """One of them, as the state's other numbers are."""
        return self.details[:, place, None, None]

    def texture(self, stream: int, waves: int, slope: float) -> Tensor:
        """Noise of spread 1 for each storm."""
        return texture(self.seed, stream, self.index, waves, slope)


def hidden_state(seed: int, index: Tensor) -> State:
    """The states of the storms with these numbers."""
    draws = _normals(seed, index)
    n = draws[:, :_STATE_DRAWS, None, None].unbind(1)
    vigour, warmth = n[0], n[1]
    heading = 0.45 + 0.4 * n[2]
    shear = torch.exp(0.35 * n[3])
    u = -0.75 + 3.4 * n[4]
    v = 0.85 + 3.4 * n[5] + 1.2 * warmth - 0.5 * (n[5] * n[5] - 1.0)
    helicity = shear.sqrt() * ((v - 0.85) * heading.cos() - (u + 0.75) * heading.sin()) * 0.29
    side = torch.where(n[6] > -1.3, 1.0, -1.0)
    flank = heading - side * (2.1 + 0.4 * n[7])  # the right rear; anticyclones mirror it
    distance = torch.exp(0.95 + 0.3 * n[8])
    rear = heading + math.pi + 0.5 * n[9]
    return State(
        seed=seed,
        index=index,
        details=draws[:, _STATE_DRAWS:],
        vigour=vigour,
        heading=heading,
        shear=shear,
        u=u,
        v=v,
        helicity=helicity,
        spin=side * torch.exp(1.65 + 0.20 * vigour + 0.22 * helicity + 0.42 * n[10]).clamp(max=32.0),
        radius=torch.exp(0.65 + 0.22 * n[11]),
        spin_x=distance * flank.cos(),
        spin_y=distance * flank.sin(),
        inflow=2.2 + 0.6 * vigour + 1.3 * n[12],
        outflow=torch.exp(1.2 + 0.25 * vigour + 0.45 * n[13]),
        outflow_radius=torch.exp(1.9 + 0.25 * n[14]),
        outflow_x=3.0 * rear.cos(),
        outflow_y=3.0 * rear.sin(),
        warmth=warmth,
    )


def reflectivity(state: State) -> Tensor:
    """Composite reflectivity, dBZ."""
    rain = 0.66 * state.texture(_ECHO, 20, 1.35)
    rain += 0.58 * state.detail(0) + 0.32 * state.vigour - 0.23
    add_hills(rain, _rain_hills(state))
    # rain has edges and a level that it seldom passes: steep where it begins, flat where it is heavy
    dry = (1.35 - rain).clamp_(min=0.0)
    echo = (35.0 + 2.2 * state.detail(13)) + 2.5 * rain - 7.3 * dry * dry
    echo.clamp_(min=-4.0)  # a core rises as high from dry air as from drizzle
    add_hills(echo, _echo_hills(state))
    middle = echo[:, CENTRE - 1 : CENTRE + 1, CENTRE - 1 : CENTRE + 1]
    add_hills(echo, _core(state, middle.amin((1, 2))[:, None]))
    middle.clamp_(min=OBJECT_DBZ + 0.5)  # what is no storm here is not in the files
    return echo.clamp_(0.0, 78.0)


def _rain_hills(state: State) -> Hills:
    """The anvil's rain ahead of the storm, and rain on both sides where it stands in a line of storms."""
    heading = state.heading[:, 0]
    ahead = torch.linspace(1.0, 7.0, 2, device=heading.device) * (0.7 + 0.3 * state.shear[:, 0])
    aside = torch.tensor([-12.0, -6.5, 6.5, 12.0], device=heading.device).expand(len(heading), 4)
    line = 1.2 + 0.7 * state.details[:, 24, None]
    anvil = 0.6 + 0.15 * state.vigour[:, 0] + 0.25 * state.details[:, 7, None]
    lined = (0.1 + 0.6 * state.details[:, 25, None]).clamp(min=0.0)
    return (
        torch.cat([ahead * heading.cos(), aside * line.cos()], 1),
        torch.cat([ahead * heading.sin(), aside * line.sin()], 1),
        torch.cat([4.0 + 0.3 * ahead, torch.full_like(aside, 4.0)], 1),
        torch.cat([anvil.expand(ahead.shape), lined.expand(aside.shape)], 1),
    )


def _echo_hills(state: State) -> Hills:
    """A hollow where the air rises too fast for rain, the hook, and the neighbours."""
    x, y, spin = state.spin_x[:, 0], state.spin_y[:, 0], state.spin[:, 0]
    strength = (spin.abs() / 8.0).clamp(max=2.0)
    inflow_side = state.heading[:, 0] - 0.9 * spin.sign()
    # the hook turns around the vortex from the core's side on, the other way for anticyclones
    turned = torch.atan2(-y, -x) + spin.sign() * torch.linspace(0.3, 4.2, 5, device=spin.device)
    reach = state.radius[:, 0] * torch.linspace(1.8, 1.2, 5, device=spin.device)
    hook = 6.0 * strength * torch.linspace(1.1, 0.6, 5, device=spin.device)
    near_x, near_y, size = _neighbours(state)
    near = (3.0 + 14.0 * state.details[:, 8 : 8 + _NEIGHBOURS]).clamp(min=0.0)
    return (
        torch.cat([x + 1.5 * inflow_side.cos(), x + reach * turned.cos(), near_x], 1),
        torch.cat([y + 1.5 * inflow_side.sin(), y + reach * turned.sin(), near_y], 1),
        torch.cat([torch.full_like(spin, 1.3), torch.ones_like(hook), 2.2 + size], 1),
        torch.cat([-8.0 * strength, hook, near], 1),
    )


def _core(state: State, there: Tensor) -> Hills:
    """Three hills in line that reach the storm's peak, whatever echo is there already."""
    vigour = state.vigour[:, 0]
    peak = 41.8 + torch.exp(1.45 + 0.58 * vigour + 0.58 * state.details[:, 1, None])
    radius = torch.exp(0.75 + 0.12 * vigour + 0.25 * state.details[:, 2, None])
    apart = 1.2 * radius * torch.exp(0.3 * state.details[:, 3, None])
    line = state.heading[:, 0] + 0.4 * state.details[:, 4, None]
    along = apart * torch.linspace(-1.0, 1.0, 3, device=there.device)
    overlap = 1.0 + 2.0 * torch.exp(-0.5 * (apart / radius) ** 2)
    height = (peak - there).clamp(min=2.0) / overlap
    x, y = (0.35 * state.details[:, 5:7] - 0.5).chunk(2, dim=1)
    return x + along * line.cos(), y + along * line.sin(), radius.expand(along.shape), height.expand(along.shape)


def _neighbours(state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Where they are, and how much wider or narrower than usual."""
    distance, angle, size = uniforms(state.seed, _NEAR, state.index, 3 * _NEIGHBOURS).chunk(3, dim=1)
    distance, angle = 7.0 + 9.0 * distance, 2.0 * math.pi * angle
    return distance * angle.cos(), distance * angle.sin(), 2.0 * size - 1.0


def wind(state: State) -> tuple[Tensor, Tensor]:
    """The wind at 10 m: u eastward, v northward, m/s."""
    x, y = axes(state.index.device)
    u = 2.2 * state.texture(_WEST_WIND, 14, 1.1) + state.u
    v = 2.6 * state.texture(_SOUTH_WIND, 14, 1.1) + state.v
    # the vortex near the ground: weaker, broader, displaced; and inflow towards it
    spin_x, spin_y = x - state.spin_x - 0.5 * state.detail(14), y - state.spin_y - 0.5 * state.detail(15)
    radius = state.radius * (1.4 + 0.2 * state.detail(16))
    low = state.spin * (0.78 + 0.08 * state.detail(17))
    around = 1.0 / (spin_x * spin_x + spin_y * spin_y + radius * radius)
    turning, drawing = 2.0 * radius * low, 2.0 * radius * state.inflow
    u -= around * (turning * spin_y + drawing * spin_x)
    v += around * (turning * spin_x - drawing * spin_y)
    # outflow that brings the wind from aloft down
    away, out_x, out_y = _outflow(state, x, y)
    u += away * (state.outflow * 1.5 * out_x + 2.5)
    v += away * (state.outflow * 1.5 * out_y + 0.3)
    return u, v


def temperature(state: State) -> Tensor:
    """The temperature at 2 m, K: colder in the outflow."""
    x, y = axes(state.index.device)
    # cold days are farther from the mean than hot ones
    day = state.warmth - 0.12 * (state.warmth * state.warmth - 1.0)
    warm = 290.7 + 6.6 * day + 2.4 * state.texture(_WARMTH, 8, 2.0)
    warm += (0.19 * state.detail(18) + 0.02) * x + (0.19 * state.detail(19) - 0.06) * y
    cold = (0.42 * state.outflow + 0.8 * state.detail(20)).clamp(0.3, 12.0)
    return warm - cold * _outflow(state, x, y)[0]


def _outflow(state: State, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How much of the outflow is at each cell, 1 to 0 with a front at its radius, and the cell's place in it."""
    out_x, out_y = (x - state.outflow_x) / state.outflow_radius, (y - state.outflow_y) / state.outflow_radius
    squared = out_x * out_x + out_y * out_y
    return 1.0 / (1.0 + squared * squared), out_x, out_y


def storm_object(echo: Tensor, state: State) -> Tensor:
    """The cells of at least 40 dBZ that hang together with the storm's centre, not far from it; True there."""
    x, y = axes(echo.device)
    reach = (3.6 * torch.exp(0.12 * state.vigour + 0.25 * state.detail(2))).clamp(min=2.0)
    return connected((echo >= OBJECT_DBZ) & (x * x + y * y <= reach * reach))


def next_vorticity(state: State, echo: Tensor) -> Tensor:
    """The greatest vorticity of the next hour in each cell at 1 km height, 1/s."""
    x, y = axes(echo.device)
    now = 2.0 * state.spin.clamp(min=0.0) / (state.radius * CELL_M)
    undercut = state.outflow / (state.outflow + state.spin.abs())
    growth = 0.13 * state.vigour + 0.17 * state.helicity + 0.10 * (state.inflow - 2.2) - 0.8 * (undercut - 0.35)
    then = now * torch.exp(growth - 0.66 + 0.18 * state.detail(21))
    then = then / (1.0 + 45.0 * then)  # friction: none is known above 0.025 /s
    # the path of an hour; the vortex grows along it
    speed = HOUR_S / CELL_M * (9.0 + 4.0 * state.shear)
    turn = state.heading - 0.3 * state.spin.sign()
    step_x, step_y = speed * turn.cos(), speed * turn.sin()
    px, py = x - state.spin_x, y - state.spin_y
    part = ((px * step_x + py * step_y) / (speed * speed)).clamp_(0.0, 1.0)
    px, py = px - part * step_x, py - part * step_y
    near = 1.0 / (1.0 + (px * px + py * py) / (2.0 * state.radius * state.radius))
    field = then * near * near * (1.0 + 0.35 * part)
    # the first neighbour turns too
    near_x, near_y, _ = _neighbours(state)
    px, py = x - near_x[:, :1, None], y - near_y[:, :1, None]
    beside = 1.0 / (1.0 + 0.15 * (px * px + py * py))
    other = 0.0019 * torch.exp(0.25 * state.vigour + 0.25 * state.helicity + 0.5 * state.detail(27))
    field += other * beside * beside
    # turbulence where it rains
    rough = (0.3 + echo / 45.0) * (1.0 + 0.27 * state.texture(_SPIN, 12, 1.0))
    background = 0.0004 * torch.exp(0.3 * state.vigour + 0.3 * state.helicity + 0.18 * state.detail(22))
    return field + background * rough * rough


def next_hail(state: State, echo: Tensor) -> Tensor:
    """The greatest hail of the next hour in each cell near the ground, m."""
    growth = torch.exp(0.3 * state.vigour + 0.3 * state.detail(23))
    return (0.0006 * growth * (echo - 38.0).clamp(min=0.0)).clamp_(max=0.075)


def _normals(seed: int, index: Tensor) -> Tensor:
    """Box and Muller's, from the counter's uniform numbers."""
    radius, angle = uniforms(seed, _HIDDEN, index, 2 * _DRAWS).chunk(2, dim=1)
    return torch.sqrt(-2.0 * torch.log1p(-radius)) * torch.cos(angle * (2.0 * math.pi))
