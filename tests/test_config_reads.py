"""Data, packs and shared epochs are kept apart by every name of the config that the workload's code really reads."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tradewind
from tradewind.results import Results
from tradewind.train.config_reads import ReadCache, TracedConfig

WORKLOAD = '''
import numpy as np, torch
from torch import nn
from tradewind import Data, Hyperparameter, Split

loads = []  # what data() was asked for


class Workload:
    """Every score is what was read, so that a record shows which config its data, model and loss were made from."""

    metric = "validation_loss"
    defaults = {{"width": Hyperparameter(3, int), "rate": Hyperparameter(0.0, float, stacks=True)}}

    def data(self, config):
        loads.append(dict(config.items()) if {all_names} else 0)
        value = float({data})
        inputs = np.full((64, 2), value, np.float32)
        part = Split(inputs, np.zeros(64, np.float32))
        return Data(part, part, part)

    def model(self, config):
        model = nn.Linear(2, 1)
        model.register_buffer("read", torch.tensor(float({model})))
        return Scaled(model)

    def loss(self, outputs, targets, config):
        return outputs[:, 0].square().mean() * (1.0 + 0.1 * float({loss}))

    def scores(self, outputs, targets):
        return {{"data": outputs[:, 1].mean().item(), "model": outputs[:, 2].mean().item()}}


class Scaled(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        ones = torch.ones_like(x[:, :1])
        return torch.cat([self.model(x), x[:, :1].detach(), ones * self.model.read], 1)
'''


def trained(
    tmp_path: Path, space: dict[str, Any], data: str = "1", model: str = "1", loss: str = "1", repeats: int = 1,
    all_names: bool = False, **options: Any,
) -> tuple[list[dict[str, Any]], int]:  # fmt: skip
    """The records of a study in their order, and how often data were loaded."""
    name = f"reads_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(WORKLOAD.format(data=data, model=model, loss=loss, all_names=all_names))
    study = {
        "name": "reads", "workload": f"{name}:Workload", "space": space, "repeats": repeats,
        "fixed": {"epochs": 1, "device": "cpu", **options.pop("fixed", {})} , **options,
    }  # fmt: skip
    study["fixed"] = {k: v for k, v in study["fixed"].items() if k not in space}
    (tmp_path / "study.json").write_text(json.dumps(study))
    results = tradewind.run(tmp_path / "study.json", tmp_path / "run", engine="serial")
    import sys

    return records(results), len(sys.modules[name].loads)


def records(results: Results) -> list[dict[str, Any]]:
    found = list(results.records())
    assert all(record["state"] == "done" for record in found), [record["error"] for record in found]
    return sorted(found, key=lambda record: record["trial"])


@pytest.mark.parametrize(
    ("read", "space", "repeats", "expected"),
    [
        ("config['batch_size']", {"batch_size": [8, 16, 32]}, 1, [8, 16, 32]),
        ("config.get('batch_size')", {"batch_size": [8, 16, 32]}, 1, [8, 16, 32]),
        ("{**config}['batch_size']", {"batch_size": [8, 16, 32]}, 1, [8, 16, 32]),
        ("[v for k, v in config.items() if k == 'batch_size'][0]", {"batch_size": [8, 16]}, 1, [8, 16]),
        ("config['momentum'] * 10", {"momentum": [0.0, 0.1, 0.5, 0.9]}, 1, [0, 1, 5, 9]),  # would be one pack
        ("config['epochs']", {"epochs": [1, 2, 4]}, 1, [1, 2, 4]),  # would share a network
        ("config['seed']", {"width": [3]}, 3, [0, 1, 2]),
        ("config['learning_rate'] * 1000", {"learning_rate": [0.001, 0.002]}, 2, [1, 1, 2, 2]),
    ],
)
def test_a_trial_has_the_data_of_its_own_config(
    read: str, space: dict[str, Any], repeats: int, expected: list[float], tmp_path: Path
) -> None:
    found, _ = trained(tmp_path, space, data=read, repeats=repeats)
    assert [record["scores"]["data"] for record in found] == pytest.approx(expected)


def test_data_are_loaded_anew_only_where_something_changes_that_was_read(tmp_path: Path) -> None:
    space = {"width": [1, 2, 3, 4], "batch_size": [8, 16], "optimizer": ["adam", "sgd"]}
    _, loads = trained(
        tmp_path / "a" if (tmp_path / "a").mkdir() is None else tmp_path, space, data="config['epochs']"
    )
    assert loads == 1
    (tmp_path / "b").mkdir()
    _, loads = trained(tmp_path / "b", {"width": [1, 2, 3, 4]}, data="config['width']")
    assert loads == 4


@pytest.mark.parametrize(("schedule", "epochs"), [("constant", [1, 2, 4]), ("cosine", [1, 2, 4])])
def test_a_model_that_reads_epochs_is_made_for_each_number_of_them(
    schedule: str, epochs: list[int], tmp_path: Path
) -> None:
    found, _ = trained(tmp_path, {"epochs": epochs}, model="config['epochs']", fixed={"schedule": schedule})
    assert [record["scores"]["model"] for record in found] == epochs
    assert [record["epochs_run"] for record in found] == epochs


def test_a_loss_that_reads_epochs_is_that_of_each_number_of_them(tmp_path: Path) -> None:
    """The same network, whose first epochs would be shared; its loss after one epoch shows that they are not."""
    found, _ = trained(tmp_path, {"epochs": [1, 2, 4]}, loss="config['epochs']", fixed={"learning_rate": 0.0})
    losses = [record["last"]["train_loss"] for record in found]
    assert [loss / losses[0] for loss in losses] == pytest.approx([1.0, 1.2 / 1.1, 1.4 / 1.1], rel=1e-5)


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "rate"])
def test_a_loss_that_reads_what_differs_in_a_pack_is_each_networks_own(name: str, tmp_path: Path) -> None:
    values = [0.0, 1.0, 2.0, 3.0]
    fixed = {} if name == "learning_rate" else {"learning_rate": 0.0}
    found, _ = trained(tmp_path, {name: values}, loss=f"config[{name!r}]", fixed=fixed)
    alone = []
    for value in values:
        (tmp_path / str(value)).mkdir()
        record = trained(tmp_path / str(value), {name: [value]}, loss=f"config[{name!r}]", fixed=fixed)[0][0]
        alone.append(record["last"]["train_loss"])
    assert [record["last"]["train_loss"] for record in found] == pytest.approx(alone, rel=1e-5)


def test_epochs_are_still_shared_where_nothing_reads_them(tmp_path: Path) -> None:
    found, _ = trained(tmp_path, {"epochs": [1, 2, 4]})
    assert [record["packed_with"] for record in found] == [2, 2, 2]


# What counts as reading.

CONFIG: dict[str, Any] = {"a": 1, "b": [1, {"c": 2}], "d": 2.0}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda c: c["a"], {"a"}),
        (lambda c: c.get("z"), {"z"}),
        (lambda c: "b" in c, {"b"}),
        ("{a}".format_map, {"a"}),
        (lambda c: {**c}, {"a", "b", "d"}),
        (dict, {"a", "b", "d"}),
        (list, {"a", "b", "d"}),
        (lambda c: (lambda **names: names)(**c), {"a", "b", "d"}),
        (lambda c: c | {}, {"a", "b", "d"}),
        (lambda c: {} | c, {"a", "b", "d"}),
        (json.dumps, {"a", "b", "d"}),
        (copy.copy, {"a", "b", "d"}),
        (copy.deepcopy, {"a", "b", "d"}),
        (pickle.dumps, {"a", "b", "d"}),
        (lambda c: c == CONFIG, {"a", "b", "d"}),
        (len, {"a", "b", "d"}),
    ],
)
def test_every_way_to_read_a_config_is_noted(read: Callable[[Any], Any], expected: set[str]) -> None:
    config = TracedConfig(CONFIG)
    read(config)
    assert set(config.reads) == expected
    assert dict(config) == CONFIG


def test_what_was_made_serves_configs_that_agree_in_what_was_read() -> None:
    cache, first = ReadCache[str](), TracedConfig(CONFIG)
    first["a"], first.get("z")
    cache.add(first, "made")
    assert cache.find({**CONFIG, "b": 0}) == "made"
    assert cache.find({**CONFIG, "a": 2}) is None
    assert cache.find({**CONFIG, "a": 1.0}) is None
    assert cache.find({**CONFIG, "a": True}) is None
    assert cache.find({**CONFIG, "z": None}) is None
    first["b"]  # later, by a workload that kept it
    assert cache.find({**CONFIG, "b": 0}) is None
    assert cache.find(copy.deepcopy(CONFIG)) == "made"


def test_what_code_writes_into_its_config_is_no_other_config() -> None:
    config = TracedConfig(CONFIG)
    config["scratch"] = 1
    config["scratch"]
    assert config.agrees(CONFIG)
