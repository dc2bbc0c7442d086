from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from test_results import record, write_run

from tradewind import Results
from tradewind.analysis.query import query, query_text
from tradewind.errors import Mistake


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results.load(write_run(tmp_path_factory.mktemp("run") / "r", a=map(record, range(500))))


def test_aggregates_in_sql_equal_those_of_numpy(results: Results) -> None:
    sql = "select batch_size, count(*) n, avg(auc) a, median(train_s) t from results group by 1 order by 1"
    rows = query(results, sql)
    sizes, auc, train_s = (results.column(name) for name in ("batch_size", "auc", "train_s"))
    assert [row["batch_size"] for row in rows] == sorted(set(sizes.astype(int).tolist()))
    for row in rows:
        here = sizes == row["batch_size"]
        assert row["n"] == here.sum()
        assert row["a"] == pytest.approx(auc[here].mean())
        assert row["t"] == pytest.approx(np.median(train_s[here]))


def test_values_keep_their_kinds(results: Results, tmp_path: Path) -> None:
    (row,) = query(
        results, "select key, trial, batch_size, learning_rate, optimizer, filters from results where trial = 1"
    )
    expected = {"trial": 1, "batch_size": 64, "learning_rate": 0.1, "optimizer": "adam", "filters": "[8, 16, 32]"}
    assert row == {"key": record(1)["key"], **expected}
    assert [type(row[name]) for name in ("trial", "batch_size", "learning_rate")] == [int, int, float]


def test_what_is_missing_is_null_and_truth_values_stay(tmp_path: Path) -> None:
    records = [record(k, scores={"auc": 0.5} if k else {}) for k in range(3)]
    for k, one in enumerate(records):
        one["config"] |= {"nesterov": [True, False, None][k], "LR": k, "lr": 10 + k, 'a "b"': "x"}
    rows = query(Results.load(write_run(tmp_path / "run", a=records)), "select * from results order by trial")
    assert [row["auc"] for row in rows] == [None, 0.5, 0.5]
    assert [row["nesterov"] for row in rows] == [True, False, None]
    assert [(row["LR"], row["lr_2"], row['a "b"']) for row in rows] == [(0, 10, "x"), (1, 11, "x"), (2, 12, "x")]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "copy (select 1) to '{0}'",
        "copy results to '{0}' (format parquet)",
        "attach '{0}'",
        "install httpfs",
        "set enable_external_access = true",
        "select * from frame",
        "select * from connection",
    ],
)
def test_a_query_reaches_neither_files_nor_settings_nor_variables(results: Results, tmp_path: Path, sql: str) -> None:
    with pytest.raises(Mistake):
        query(results, sql.format(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_an_error_is_one_line_with_the_columns(results: Results) -> None:
    with pytest.raises(Mistake) as error:
        query(results, "select\nbatchsize\nfrom results")
    text = str(error.value)
    assert "\n" not in text
    assert 'Referenced column "batchsize" not found' in text
    assert "columns of results: key, trial, repeat" in text


def test_a_query_over_no_results_gives_no_rows(tmp_path: Path) -> None:
    results = Results.load(write_run(tmp_path / "run"))
    assert query(results, "select * from results") == []
    assert query_text([]) == "no rows\n"


def test_two_columns_of_one_name_are_both_there(results: Results) -> None:
    assert query(results, "select 1 as a, 2 as a, 1.5 as b") == [{"a": 1, "a_2": 2, "b": 1.5}]


def test_rows_are_shown_aligned() -> None:
    rows = [{"augment": "pre", "n": 4, "auc": 0.25}, {"augment": "live", "n": 12, "auc": None}]
    assert query_text(rows) == "augment   n   auc\npre       4  0.25\nlive     12     –\n"


def test_many_records_are_asked_quickly(tmp_path: Path) -> None:
    results = Results.load(write_run(tmp_path / "run", a=map(record, range(20_000))))
    start = time.monotonic()
    rows = query(results, "select augment, count(*) n from results group by 1 order by 1")
    assert time.monotonic() - start < 2
    assert sum(row["n"] for row in rows) == 20_000
    assert [row["augment"] for row in rows] == ["live", "none", "pre"]
