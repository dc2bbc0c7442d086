"""The best config: the one with the best mean over its repeats, everywhere the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, WriteStudy
from test_results import record, write_run

import tradewind
from tradewind import Results
from tradewind.folder import RunFolder

# x = 1 has the best single trial (0), x = 2 the best mean
LUCKY = """
VALUES = {1: (0.0, 9.0, 9.0), 2: (3.0, 2.0, 4.0), 3: (5.0, 5.0, 5.0)}
def f(config):
    return {"loss": VALUES[config["x"]][config["seed"]]}
"""
STUDY: dict[str, Any] = {"name": "s", "workload": "work:f", "space": {"x": [1, 2, 3]}, "repeats": 3}
NETWORK = """
import torch
from tradewind import Data, Hyperparameter, Split
VALUES = {1: (0.0, 9.0, 9.0), 2: (3.0, 2.0, 4.0), 3: (5.0, 5.0, 5.0)}
class W:
    defaults, metric = {"x": Hyperparameter(1, int)}, "loss"
    def data(self, config):
        x = torch.zeros(4, 2).numpy()
        return Data(*[Split(x, x[:, :1])] * 3)
    def model(self, config):
        network = torch.nn.Linear(2, 1)
        with torch.no_grad():
            network.bias.fill_(VALUES[config["x"]][config["seed"]])
        return network
    def loss(self, outputs, targets, config):
        return outputs.mean()
    def scores(self, outputs, targets):
        return {"loss": outputs.mean().item()}
"""


def test_every_door_names_the_config_with_the_best_mean_over_its_repeats(
    command: Cli, write_study: WriteStudy, tmp_path: Path
) -> None:
    said = command("run", write_study(STUDY, LUCKY), "--out", "run", "--engine", "serial")
    assert said.returncode == 0, said.stderr
    first = "best loss 3 ± 1 (mean of n = 3 repeats, lower is better)"
    assert first in said.stdout
    assert first.removeprefix("best ") in said.stderr  # the last line of progress
    assert command("best", "run").stdout.splitlines()[:3] == [
        first.removeprefix("best "), "  config  x=2", "  trial   4: loss 2, the best of its repeats",
    ]  # fmt: skip
    assert json.loads(command("best", "run", "--json").stdout) == {
        "metric": "loss", "direction": "minimize", "config": {"x": 2}, "params": {"x": 2}, "score": 3.0, "n": 3,
        "spread": 1.0, "provisional": False, "trial": 4,
    }  # fmt: skip
    best = Results.load("run").best()
    assert (best.score, best.n, best.spread, best.value, best.config) == (3.0, 3, 1.0, 2.0, {"x": 2})
    assert json.loads(command("status", "run", "--json").stdout)["best"]["config"] == {"x": 2}
    assert command("report", "run").returncode == 0
    assert first.removeprefix("best ") in (tmp_path / "run" / "report.html").read_text()
    advice = {one["topic"]: one for one in json.loads(command("advise", "run", "--json").stdout)}
    assert "with x 2" in advice["best score"]["text"]


def test_a_config_with_fewer_repeats_than_planned_is_provisional_and_never_best_beside_a_whole_one(
    command: Cli, write_study: WriteStudy
) -> None:
    failing = LUCKY.replace("    return", "    assert (config['x'], config['seed']) != (2, 2)\n    return")
    path = write_study({**STUDY, "space": {"x": [2, 3]}}, failing)
    assert command("run", path, "--out", "run", "--engine", "serial", "--quiet").returncode == 1
    best = Results.load("run").best()  # x = 2 has 2.5 over two of its three repeats
    assert (best.config, best.score, best.provisional) == ({"x": 3}, 5.0, False)
    only = write_study({**STUDY, "space": {"x": [2]}}, failing)
    command("run", only, "--out", "only", "--engine", "serial", "--quiet")
    best = Results.load("only").best()
    assert (best.config, best.score, best.n, best.provisional) == ({"x": 2}, 2.5, 2, True)
    assert "provisional: 2 of 3 repeats" in command("best", "only").stdout


@pytest.mark.parametrize("field", ["precision", "code"])
def test_two_precisions_or_two_versions_of_the_code_are_never_repeats_of_one_another(
    command: Cli, tmp_path: Path, field: str
) -> None:
    def one(number: int, kind: str, loss: float) -> dict[str, Any]:
        return record(number, config={"x": 1}, scores={"loss": loss}, last={}, **{field: kind})

    write_run(tmp_path / "run", a=[one(0, "a", 1.0), one(1, "b", 5.0), one(2, "b", 7.0), one(3, "a", 2.0)])
    best = Results.load(tmp_path / "run").best()
    assert (best.score, best.n, best.record["trial"]) == (1.5, 2, 0)
    assert f"  {field:<9} a\n" in command("best", "run").stdout
    advice = {one["topic"]: one["text"] for one in json.loads(command("advise", "run", "--json").stdout)}
    assert "The best loss (lower is better) is 1.5 (n = 2)" in advice["best score"]


def test_of_two_metrics_best_names_the_front(command: Cli, write_study: WriteStudy) -> None:
    module = "def f(config):\n    x = config['x']\n    return {'loss': (x - 3) ** 2, 'cost': x}\n"
    search = {"method": "random", "trials": 5, "metric": ["loss", "cost"]}
    path = write_study({"name": "s", "workload": "work:f", "space": {"x": [1, 2, 3, 4, 5]}, "search": search}, module)
    assert command("run", path, "--out", "run", "--engine", "serial", "--quiet").returncode == 0
    answer = command("best", "run").stdout
    assert answer.startswith("no single best of loss and cost: 3 Pareto-optimal configs\n")
    assert [line.split("  (")[0].strip() for line in answer.splitlines()[1:]] == [
        "loss 0  cost 3", "loss 1  cost 2", "loss 4  cost 1",
    ]  # fmt: skip
    found = json.loads(command("best", "run", "--json").stdout)
    assert [(one["params"], one["scores"]) for one in found["front"]] == [
        ({"x": 3}, {"loss": 0, "cost": 3}), ({"x": 2}, {"loss": 1, "cost": 2}), ({"x": 1}, {"loss": 4, "cost": 1}),
    ]  # fmt: skip
    assert [one.config["x"] for one in Results.load("run").best().front] == [3, 2, 1]


def weights(folder: Path) -> set[tuple[int, int]]:
    """Which x and which repeat have left weights."""
    results = Results.load(folder)
    found = {path.stem for path in RunFolder(folder).models.glob("*.safetensors")}
    return {(one["config"]["x"], one["repeat"]) for one in results.records() if one["key"] in found}


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (None, {(2, 1)}),
        ("best", {(2, 1)}),
        (2, {(2, 1), (3, 0)}),
        ("all", {(x, repeat) for x in (1, 2, 3) for repeat in range(3)}),
    ],
)
def test_the_weights_of_the_best_repeat_of_the_best_config_stay(
    command: Cli, write_study: WriteStudy, tmp_path: Path, keep: Any, kept: set[tuple[int, int]]
) -> None:
    fixed = {"epochs": 1, "learning_rate": 0.0, "batch_size": 4}
    study = {**STUDY, "workload": "work:W", "fixed": fixed, **({"keep": keep} if keep else {})}
    answer = command("run", write_study(study, NETWORK), "--out", "run", "--engine", "serial", "--quiet")
    assert answer.returncode == 0, answer.stderr
    assert weights(tmp_path / "run") == kept
    assert command("best", "run", "--save", "w.safetensors").returncode == 0
    best = Results.load("run").best()
    assert (best.config["x"], best.record["repeat"]) == (2, 1)
    assert best.model().bias.item() == 2.0
    assert (tmp_path / "w.safetensors").read_bytes() == best.weights.read_bytes()


def test_weights_of_a_config_whose_repeats_are_not_all_there_outlive_an_interruption(
    write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    fixed = {"epochs": 1, "learning_rate": 0.0, "batch_size": 4}
    study = {**STUDY, "workload": "work:W", "fixed": fixed, "space": {"x": [2, 1]}, "repeats": 2}
    path = write_study(study, NETWORK)
    results = tradewind.run(path, tmp_path / "run", engine="serial")
    assert weights(tmp_path / "run") == {(2, 1)}
    more = write_study({**study, "repeats": 3}, NETWORK)  # now neither is whole: both may become the best
    assert (results.best().config["x"], results.best().score) == (2, 2.5)
    results = tradewind.run(more, tmp_path / "run", engine="serial")
    assert weights(tmp_path / "run") == {(2, 1)}
    assert (results.best().score, results.best().n) == (3.0, 3)


def test_an_invalid_keep_is_one_clear_error(command: Cli, write_study: WriteStudy) -> None:
    for keep in (0, "some", -1, 1.5):
        answer = command("check", write_study({**STUDY, "keep": keep}, LUCKY))
        assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
        assert "keep" in answer.stderr
