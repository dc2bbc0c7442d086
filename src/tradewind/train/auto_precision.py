"""`precision: auto`: that whose step is the fastest, measured once in a run folder and kept there for all trials."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tradewind.folder import RunFolder
from tradewind.pack import Config
from tradewind.train.hyperparameters import TRAINING
from tradewind.train.plain import Sets, choose_device, place
from tradewind.train.precision import kept_in
from tradewind.train.profile import kind_of_machine
from tradewind.train.stack import Stack
from tradewind.train.stacked import Stacked
from tradewind.train.steps import Steps
from tradewind.workloads.contract import Workload

NOT_OF_A_STEP = {"epochs", "precision", "data_multiplier", "positive_copies"}
TIMED_STEPS = 20

Measure = Callable[[str], float]  # seconds of a step in a precision


def candidates(device: torch.device) -> tuple[str, ...]:
    """The precisions that train as well and may be the fastest on a device, the most exact first."""
    if device.type != "cuda":
        return ("fp32",)
    known = torch.cuda.get_device_capability(device) >= (8, 0)
    return ("fp32", "tf32", "bf16") if known else ("fp32",)


def chosen(folder: RunFolder, about: Mapping[str, Any], among: Sequence[str], measure: Measure) -> str:
    """The fastest for what this is about: read where it was measured before, else measured and kept for all.

    Of several workers that measure at once, the choice of the first one counts for all.
    """
    if len(among) == 1:
        return among[0]
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=8).hexdigest()
    path = folder.precision(digest)
    if (found := _kept(path, among)) is not None:
        return found
    step_s = {name: measure(name) for name in among}
    fastest = min(among, key=lambda name: step_s[name])
    _keep(path, {"precision": fastest, "step_s": step_s, "about": about})
    found = _kept(path, among) or fastest
    times = ", ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in step_s.items())
    print(f"precision auto: {found}; a step takes {times}")
    return found


def about_step(config: Config, workload: Workload) -> dict[str, Any]:
    """What the time of a network's step depends on: architecture, batch size, …, and the kind of machine."""
    known = {**TRAINING, **workload.defaults}
    acts = {n: config[n] for n in sorted(known) if not known[n].stacks and n not in NOT_OF_A_STEP}
    machine = kind_of_machine(choose_device(config["device"]))
    return {"workload": type(workload).__qualname__, "machine": machine, "config": acts}


def step_s(workload: Workload, config: Config, sets: Sets) -> float:
    """Seconds of a step of one network in the config's precision, as a graph where it makes one."""
    device, precision = choose_device(config["device"]), config["precision"]
    with torch.random.fork_rng():
        torch.manual_seed(config["seed"])
        model = place(workload.model(config), device, kept_in(precision), sets.train.samples)
        stack = Stack([model], [config["seed"]], workload, precision)
        steps = Steps(stack, Stacked(stack.rows, [config]), sets.train, config)
        return steps.measured_s(next(sets.train.epoch(0)), TIMED_STEPS)


def _kept(path: Path, among: Sequence[str]) -> str | None:
    """What was kept; None where that is nothing, or nothing that can be used."""
    try:
        found = json.loads(path.read_text())["precision"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if found in among else None


def _keep(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all; never in place of what another worker has kept and can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    aside.write_text(json.dumps(content, indent=1))
    try:
        os.link(aside, path)
    except FileExistsError:
        if _kept(path, tuple(content["step_s"])) is None:  # damaged
            os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
