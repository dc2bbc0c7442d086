"""Options that nobody reads are named after the first trial."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Cli, WriteStudy

FUNCTION = "def f(config):\n    return config['x'] * config.get('used', 1)\n"
TRIAL = "def f(config, trial):\n    return config['x'] * trial.data['scale']\n"
NETWORK = """
import numpy as np
import torch
from tradewind import Data, Hyperparameter, Split

class Line:
    defaults = {
        "width": Hyperparameter(3, int), "slope": Hyperparameter(1.0, float), "sharp": Hyperparameter(1.0, float),
        "idle": Hyperparameter(1.0, float),
    }
    metric = "validation_loss"

    def __init__(self, size=16, source="made", path=""):
        self.size, self.source, self.path = size, source, path

    def data(self, config):
        x = np.linspace(0, 1, self.size, dtype=np.float32)[:, None]
        split = Split(x if self.source == "made" else np.load(self.path), x * config["slope"])
        return Data(split, split, split)

    def model(self, config):
        width = config["width"]
        return torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Linear(width, 1))

    def loss(self, outputs, targets, config):
        return ((outputs - targets) ** 2).mean() * config["sharp"]

    def scores(self, outputs, targets):
        return {}
"""
NETS = {"width": 4, "slope": 2.0, "sharp": 1.0, "epochs": 1, "momentum": 0.5}


@pytest.mark.parametrize(
    ("code", "fields", "named"),
    [
        (FUNCTION, {"fixed": {"used": 2, "idle": 3}}, "work:f did not read fixed.idle"),
        (FUNCTION, {"fixed": {"used": 2}, "data": {"scale": 3}}, "work:f did not read data.scale"),
        (FUNCTION, {"fixed": {"used": 2}}, ""),
        ("def f(config):\n    return sum(config.values())\n", {"fixed": {"used": 2}}, ""),
        (TRIAL, {"data": {"scale": 2, "rule": "x"}, "fixed": {"a": 1}}, "work:f did not read data.rule, fixed.a"),
        (NETWORK, {"data": {"size": 8, "path": "nowhere"}, "fixed": NETS}, "work:Line did not read data.path"),
        (NETWORK, {"data": {"size": 8}, "fixed": {**NETS, "idle": 2.0}}, "work:Line did not read fixed.idle"),
        (NETWORK, {"data": {"size": 8, "source": "made"}, "fixed": NETS}, ""),
    ],
)
def test_keys_that_the_workload_did_not_read_in_its_first_trial_are_named(
    code: str, fields: dict[str, Any], named: str, command: Cli, write_study: WriteStudy
) -> None:
    network = code is NETWORK
    space = {"batch_size": [4, 8]} if network else {"x": [1, 2]}
    write_study({"name": "s", "workload": "work:Line" if network else "work:f", "space": space, **fields}, code)
    ended = command("run", "study.json", "--out", "run", "--engine", "serial", "--quiet")
    assert ended.returncode == 0
    assert ended.stderr == (f"s: {named} in its first trial\n" if named else "")


def test_an_option_of_a_bundled_workload_that_its_source_ignores_is_named(
    command: Cli, write_study: WriteStudy
) -> None:
    data = {"train": 16, "validation": 8, "test": 8, "rule": "masked mean", "threshold": 0.008}
    write_study({"name": "s", "workload": "storm", "data": data, "fixed": {"epochs": 1, "filters": [2, 2, 2]}})
    ended = command("run", "study.json", "--out", "run", "--engine", "serial", "--quiet")
    assert ended.stderr == "s: storm did not read data.rule, data.threshold in its first trial\n"


def test_what_a_command_is_not_given_is_named(command: Cli, write_study: WriteStudy) -> None:
    fixed = {"used": 1, "idle": 2}
    write_study({"name": "s", "command": "echo '{{\"score\": {x}{used}}}'", "space": {"x": [1]}, "fixed": fixed})
    ended = command("run", "study.json", "--out", "run", "--engine", "processes", "--workers", "1", "--quiet")
    assert ended.stderr == "s: the command did not read fixed.idle in its first trial\n"
