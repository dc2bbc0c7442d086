"""Which way a metric is better: by its whole name where the field reads it one way only, else as the study says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Cli, WriteStudy
from sklearn.metrics import get_scorer_names
from test_results import record, write_run

from tradewind import Results
from tradewind.errors import Mistake
from tradewind.measures import direction_of

LOWER = (
    "cross_entropy nll neg_log_likelihood wer mape fid kl regret cost latency_ms time bpc validation_loss val_loss "
    "test_mse wall_s train_s error_percent perplexity mean_squared_error train_loss rmse"
)
HIGHER = "score accuracy accuracy_percent validation_auc val_acc f1_macro test_score dice r2 neg_mean_squared_error"
UNKNOWN = "foo loss_ratio regret_free my_error accuracy_of_what badness lossless x"
BADNESS = "def f(config, trial):\n    return {'badness': (config['x'] - 2) ** 2}\n"
NETWORK = """
import torch
from tradewind import Data, Split
class W:
    defaults, metric = {}, "badness"
    def data(self, config):
        x = torch.randn(16, 2, generator=torch.Generator().manual_seed(0)).numpy()
        return Data(*[Split(x, x[:, :1])] * 3)
    def model(self, config):
        return torch.nn.Linear(2, 1)
    def loss(self, outputs, targets, config):
        return ((outputs - targets) ** 2).mean()
    def scores(self, outputs, targets):
        return {"badness": ((outputs - targets) ** 2).mean().item()}
class Declared(W):
    direction = "minimize"
class Wrong(W):
    direction = "down"
"""


def test_the_fields_usual_names_have_one_direction_and_others_none() -> None:
    assert {name: direction_of(name) for name in LOWER.split()} == dict.fromkeys(LOWER.split(), "minimize")
    assert {name: direction_of(name) for name in HIGHER.split()} == dict.fromkeys(HIGHER.split(), "maximize")
    assert {name: direction_of(name) for name in UNKNOWN.split()} == dict.fromkeys(UNKNOWN.split())


def test_scikit_learns_scorers_are_all_better_when_higher() -> None:
    assert {name: direction_of(name) for name in get_scorer_names()} == dict.fromkeys(get_scorer_names(), "maximize")


def test_a_tpe_search_minimizes_cross_entropy(command: Cli, write_study: WriteStudy) -> None:
    module = "def f(config):\n    return {'cross_entropy': 1 + (config['x'] - 0.3) ** 2}\n"
    space = {"x": {"low": 0.0, "high": 1.0}}
    search = {"method": "tpe", "trials": 12, "metric": "cross_entropy"}
    path = write_study({"name": "s", "workload": "work:f", "space": space, "search": search}, module)
    assert command("run", path, "--out", "run", "--engine", "serial", "--quiet").returncode == 0
    results = Results.load("run")
    assert results.best().score == min(results.items("cross_entropy"))
    assert "lower is better" in command("best", "run").stdout


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"search": {"metric": "badness"}}, "search.metric 'badness'"),
        ({"search": {"method": "random", "trials": 2, "metric": "badness"}}, "search.metric 'badness'"),
        ({"stop": {"target": {"badness": 1.0}}}, "stop.target 'badness'"),
        ({"workload": "work:W", "fixed": {"epochs": 1}, "space": {"batch_size": [4]}}, "metric 'badness'"),
    ],
)
def test_a_name_outside_the_list_is_one_clear_error_before_any_work(
    command: Cli, write_study: WriteStudy, more: dict[str, object], place: str
) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": [1, 2, 3]}, **more}
    path = write_study(study, BADNESS + NETWORK)
    for name in ("check", "run"):
        answer = command(name, path)
        assert answer.returncode == 2
        assert f"{place}: its name does not say whether lower or higher is better" in answer.stderr
        assert '"search": {"direction": {"badness": "minimize"}}' in answer.stderr
        assert answer.stderr.count("\n") == 1


def test_a_workload_may_declare_the_direction_of_its_metric(command: Cli, write_study: WriteStudy) -> None:
    study = {
        "name": "s",
        "workload": "work:Declared",
        "fixed": {"epochs": 1},
        "space": {"learning_rate": [0.1, 1e-9]},
    }
    path = write_study(study, NETWORK)
    assert command("run", path, "--out", "run", "--engine", "serial", "--quiet").returncode == 0
    best = json.loads(command("best", "run", "--json").stdout)
    assert (best["metric"], best["direction"]) == ("badness", "minimize")
    assert best["score"] == min(Results.load("run").items("badness"))
    answer = command("check", write_study({**study, "workload": "work:Wrong"}, NETWORK))
    assert answer.stderr.endswith("Wrong.direction: found 'down'; allowed: minimize or maximize\n")


@pytest.mark.parametrize("direction", ["minimize", {"badness": "minimize"}])
def test_a_functions_results_are_recorded_and_best_refuses_until_the_study_has_a_direction(
    command: Cli, write_study: WriteStudy, direction: object
) -> None:
    study = {"name": "s", "workload": "work:f", "space": {"x": [1, 2, 4]}}
    path = write_study(study, BADNESS)
    answer = command("run", path, "--out", "run", "--engine", "serial")
    assert answer.returncode == 0
    assert "3 done" in answer.stdout
    why = "is a lower or a higher 'badness' better? Its name does not say"
    assert why in answer.stdout
    refused = command("best", "run")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert why in refused.stderr
    assert why in command("status", "run").stdout
    with pytest.raises(Mistake, match=re.escape(why)):
        Results.load("run").best()
    for name in ("advise", "report", "table --rows x --columns repeat --value badness"):
        assert command(*name.split()[:1], "run", *name.split()[1:]).returncode == 0
    changed = write_study({**study, "search": {"direction": direction}}, BADNESS)
    answer = command("run", changed, "--out", "run", "--engine", "serial")
    assert answer.returncode == 0, answer.stderr
    assert "3 done" in answer.stdout
    best = json.loads(command("best", "run", "--json").stdout)
    assert (best["metric"], best["direction"], best["score"], best["params"]) == ("badness", "minimize", 0, {"x": 2})
    assert [one["attempt"] for one in Results.load("run").records()] == [1, 1, 1]


def test_a_target_is_reached_in_the_direction_of_its_measure(command: Cli, write_study: WriteStudy) -> None:
    module = """
def f(config, trial):
    for epoch, nll in enumerate((5.0, 3.0, 1.0, 0.5), 1):
        trial.report(epoch, nll=nll, neg_mean_squared_error=-nll, badness=nll)
        if trial.should_stop():
            break
    return {"nll": nll, "badness": nll}
"""
    for target, direction in (
        ({"nll": 1.2}, "minimize"),
        ({"nll": 1.2}, None),
        ({"neg_mean_squared_error": -1.2}, None),
        ({"badness": 1.2}, {"badness": "minimize"}),
    ):
        search = {"metric": "nll", **({"direction": direction} if direction else {})}
        study = {"name": "s", "workload": "work:f", "space": {"x": [1]}, "search": search, "stop": {"target": target}}
        out = f"run-{next(iter(target))}-{direction is None}"
        path = write_study(study, module)
        assert command("run", path, "--out", out, "--engine", "serial", "--quiet").returncode == 0
        found = Results.load(out).record(0)
        assert (found["state"], found["last"]["nll"]) == ("done", 1.0), target


def test_an_imported_metric_has_the_direction_that_the_import_says(command: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("lr,badness,wall_s\n0.1,3,1\n0.2,4,1\n")
    values = ("--values", "badness,wall_s")
    assert command("import", "rows.csv", "--out", "one", *values).returncode == 0
    assert "--minimize badness" in command("best", "one").stderr
    assert command("import", "rows.csv", "--out", "two", *values, "--minimize", "badness").returncode == 0
    assert json.loads(command("best", "two", "--json").stdout)["config"] == {"lr": 0.1}
    assert command("import", "rows.csv", "--out", "three", "--maximize", "badness").returncode == 0
    assert json.loads(command("best", "three", "--json").stdout)["config"] == {"lr": 0.2}
    assert "there is no column 'bad'" in command("import", "rows.csv", "--out", "4", "--minimize", "bad").stderr


def test_the_page_and_the_report_say_which_way_is_better(command: Cli, tmp_path: Path) -> None:
    write_run(tmp_path / "run", a=[record(0, scores={"loss": 0.5}), record(1, scores={"loss": 0.25})])
    assert command("report", "run").returncode == 0
    assert "lower is better" in (tmp_path / "run" / "report.html").read_text()
