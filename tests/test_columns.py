"""Names of columns: each has a full name with its group, and a bare name belongs to one column of the whole run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import duckdb
from conftest import Cli, WriteStudy
from test_results import record, write_run

from tradewind import Results

SEVERAL_ALPHAS = "def f(config):\n    return {'alpha': -(config['alpha'] - 2) ** 2 - 1}\n"


def test_a_stopped_trials_last_report_is_never_in_the_column_of_scores(command: Cli, tmp_path: Path) -> None:
    done = record(0, scores={"loss": 0.25}, last={"loss": 0.5})
    stopped = record(1, state="stopped", scores={}, last={"loss": 9.0})
    for name, records in (("one", [done, stopped]), ("two", [stopped, done])):  # nor does their order matter
        results = Results.load(write_run(tmp_path / name, a=records))
        assert (results.items("loss"), results.items("last.loss")) == ([0.25, None], [0.5, 9.0])
        assert results.items("scores.loss") == [0.25, None]
        assert results.frame()["loss"].tolist()[0] == 0.25
        sql = 'select trial, loss, "last.loss" as l from results order by trial'
        asked = command("query", name, sql, "--json")
        assert json.loads(asked.stdout) == [
            {"trial": 0, "loss": 0.25, "l": 0.5},
            {"trial": 1, "loss": None, "l": 9.0},
        ]
        assert command("export", name, "--to", f"{name}.csv").returncode == 0
        with open(tmp_path / f"{name}.csv", newline="") as file:
            assert [(row["loss"], row["last.loss"]) for row in csv.DictReader(file)] == [("0.25", "0.5"), ("", "9.0")]


def test_best_goes_by_the_metric_and_not_by_a_hyperparameter_of_the_same_name(
    command: Cli, write_study: WriteStudy
) -> None:
    search = {"metric": "alpha", "direction": "maximize"}
    study = {"name": "s", "workload": "work:f", "space": {"alpha": [1, 2, 4]}, "search": search}
    path = write_study(study, SEVERAL_ALPHAS)
    assert command("run", path, "--out", "run", "--engine", "serial", "--quiet").returncode == 0
    best = Results.load("run").best()
    assert (best.record["config"], best.value) == ({"alpha": 2}, -1)
    table = command("table", "run", "--rows", "alpha", "--columns", "repeat", "--value", "alpha", "--format", "json")
    found = json.loads(table.stdout)
    assert (found["value"], found["blocks"][0]["rows"]) == ("scores.alpha", [1, 2, 4])
    assert found["blocks"][0]["cells"] == [[-2], [-1], [-5]]


def test_a_text_hyperparameter_named_like_the_metric_hides_nothing(command: Cli, write_study: WriteStudy) -> None:
    module = "def f(config):\n    return {'loss': len(config['loss'])}\n"
    path = write_study({"name": "s", "workload": "work:f", "space": {"loss": ["huber", "mse"]}}, module)
    assert command("run", path, "--out", "run", "--engine", "serial", "--quiet").returncode == 0
    for name in ("status", "best", "advise", "report"):
        answer = command(name, "run")
        assert (answer.returncode, answer.stderr) == (0, ""), name
    assert Results.load("run").best().record["config"] == {"loss": "mse"}
    rows = json.loads(command("query", "run", 'select loss, "scores.loss" as l from results', "--json").stdout)
    assert rows == [{"loss": "huber", "l": 5.0}, {"loss": "mse", "l": 3.0}]


def test_a_full_name_means_its_column_wherever_a_name_is_asked_for(command: Cli, tmp_path: Path) -> None:
    write_run(tmp_path / "run", a=[record(0), record(8)])
    asked = 'select "config.batch_size" as b, max("scores.auc") as a from results group by b'
    assert json.loads(command("query", "run", asked, "--json").stdout) == [{"b": 32, "a": 0.64}]
    answer = command("table", "run", "--rows", "config.batch_size", "--columns", "repeat", "--value", "times.train_s")
    assert answer.stdout.startswith("train_s (median of 2 trials"), answer.stderr


def test_a_score_that_was_first_only_reported_takes_the_bare_name_once_one_is_returned(tmp_path: Path) -> None:
    reported = record(0, scores={}, last={"auc": 0.75})
    assert Results.load(write_run(tmp_path / "one", a=[reported])).items("auc") == [0.75]
    results = Results.load(write_run(tmp_path / "two", a=[reported], b=[record(1, scores={"auc": 0.5}, last={})]))
    assert (results.items("auc"), results.items("last.auc")) == ([None, 0.5], [0.75, None])


def test_a_dotted_name_never_takes_the_full_name_of_another_column(tmp_path: Path) -> None:
    dotted = record(0, config={"scores.auc": 7, "x": 1}, scores={"auc": 0.5}, last={})
    results = Results.load(write_run(tmp_path / "run", a=[dotted]))
    assert (results.items("scores.auc"), results.items("config.scores.auc")) == ([0.5], [7])
    assert set(results.names("config")) == {"config.scores.auc", "x"}


BIG = 2**53 + 1  # the first whole number that a float can't hold


def test_whole_numbers_beyond_2_to_the_53_stay_two_configs_and_exact(command: Cli, tmp_path: Path) -> None:
    def one(number: int, x: int, **fields: object) -> dict[str, object]:
        return record(number, config={"x": x}, seed=x, scores={"auc": x - BIG + 0.5}, **fields)

    for name, values in (("two", [BIG, BIG - 1]), ("mixed", [BIG, BIG - 1, 3]), ("same", [BIG, BIG])):
        path = write_run(tmp_path / name, a=[one(k, x) for k, x in enumerate(values)])
        results = Results.load(path)
        assert results.items("x") == values
        assert results.items("seed") == values
        assert results.frame()["seed"].tolist() == values
        table = json.loads(command("table", name, "--rows", "x", "--columns", "repeat", "--value", "auc",
                                   "--format", "json").stdout)  # fmt: skip
        assert table["blocks"][0]["rows"] == sorted(set(values))
        assert results.best().n == (2 if name == "same" else 1)
        rows = json.loads(command("query", name, "select x, seed from results order by trial", "--json").stdout)
        assert [(row["x"], row["seed"]) for row in rows] == [(x, x) for x in values]
        for ending in ("csv", "parquet"):
            assert command("export", name, "--to", f"{name}.{ending}").returncode == 0
        with open(tmp_path / f"{name}.csv", newline="") as file:
            assert [row["seed"] for row in csv.DictReader(file)] == list(map(str, values))
        found = duckdb.sql(f"select seed from '{tmp_path / name}.parquet' order by trial").fetchall()
        assert [int(seed) for (seed,) in found] == values


def test_a_grid_over_whole_numbers_beyond_2_to_the_53_tries_each_once(command: Cli, write_study: WriteStudy) -> None:
    module = "def f(config):\n    return config['x'] - 2**53\n"
    study = {"name": "s", "workload": "work:f", "space": {"x": [BIG - 1, BIG]}}
    assert command("run", write_study(study, module), "--out", "run", "--engine", "serial").returncode == 0
    more = write_study({**study, "space": {"x": [BIG - 1, BIG, BIG + 2]}}, module)
    assert command("run", more, "--out", "run", "--engine", "serial").returncode == 0
    results = Results.load("run")
    assert list(zip(results.items("trial"), results.items("x"), strict=True)) == [
        (0, BIG - 1),
        (1, BIG),
        (2, BIG + 2),
    ]
