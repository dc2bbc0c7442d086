from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from test_table import BATCH_SIZES, MULTIPLIERS, PUBLISHED, TABLE_3, write_table_3

from tradewind import Results

TABLE_3_PRINTED = """\
wall_s (median, n = 1) · purpose imported · machine 4x V100

epochs = 5
batch_size \\ data_multiplier   1   2   4
                         128  20  36  72
                         256  12  24  47
                         512  11  18  38
                        1024  10  17  32
                        2048  10  16  30
                        4096  13  18  37

epochs = 10
batch_size \\ data_multiplier   1   2    4
                         128  36  74  146
                         256  24  48   96
                         512  22  36   77
                        1024  19  32   62
                        2048  17  30   58
                        4096  20  36   67

epochs = 15
batch_size \\ data_multiplier   1    2    4
                         128  56  110  223
                         256  37   72  144
                         512  32   55  109
                        1024  25   48   99
                        2048  25   48   88
                        4096  32   56   98
"""
TABLE_3_CALL = ("--rows", "batch_size", "--columns", "data_multiplier", "--by", "epochs", "--value", "wall_s")
STORM = PUBLISHED / "storm_basalyga2021.json"
needs_published = pytest.mark.skipif(not STORM.exists(), reason=f"no {STORM}")


def test_table_3_of_the_paper_imported_and_printed_is_the_paper_digit_for_digit(cli: Cli, tmp_path: Path) -> None:
    file = write_table_3(tmp_path)
    answer = cli("import", file, "--at", "tables.table3", "--out", "table3")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "54 results in table3\n", "")
    answer = cli("table", "table3", *TABLE_3_CALL)
    assert answer.returncode == 0
    assert answer.stdout.strip() == TABLE_3_PRINTED.strip()
    found = json.loads(cli("table", "table3", *TABLE_3_CALL, "--format", "json").stdout)
    assert {block["label"]: block["cells"] for block in found["blocks"]} == TABLE_3


def test_any_hyperparameter_can_stand_in_any_place(command: Cli, tmp_path: Path) -> None:
    assert command("import", write_table_3(tmp_path), "--at", "tables.table3", "--out", "table3").returncode == 0
    results = Results.load(tmp_path / "table3")
    turned = results.table("epochs", "batch_size", by="data_multiplier")
    for block, k in zip(turned.blocks, range(len(MULTIPLIERS)), strict=True):
        assert block.label == MULTIPLIERS[k]
        assert block.cells == [[line[k] for line in lines] for lines in TABLE_3.values()]
    over = results.table("data_multiplier", "epochs", stat="max")
    assert over.blocks[0].cells == [
        [max(line[k] for line in lines) for lines in TABLE_3.values()] for k in range(len(MULTIPLIERS))
    ]
    assert over.blocks[0].counts == [[len(BATCH_SIZES)] * 3] * 3


def test_what_stands_beside_the_rows_is_part_of_every_config(command: Cli, tmp_path: Path) -> None:
    assert command("import", write_table_3(tmp_path), "--at", "tables.table3", "--out", "table3").returncode == 0
    record = Results.load(tmp_path / "table3").record(0)
    assert record["config"]["device"] == "4x V100"
    assert (record["purpose"], record["machine"], record["state"]) == ("imported", "4x V100", "done")
    assert record["source"] == "published.json at tables.table3"


def test_an_imported_run_has_status_best_show_and_export_but_can_not_be_run(command: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("lr,batch_size,accuracy,wall_s\n0.1,32,0.5,3\n0.2,32,0.75,4\n0.3,64,,\n")
    assert command("import", "rows.csv", "--out", "run").stdout == "3 results in run\n"
    found = json.loads(command("status", "run", "--json").stdout)
    assert (found["trials"], found["done"], found["stopped"], found["left"]) == (3, 2, 1, 0)
    best = json.loads(command("best", "run", "--json").stdout)
    assert (best["metric"], best["score"], best["config"]) == ("accuracy", 0.75, {"lr": 0.2, "batch_size": 32})
    shown = command("show", "run", 2)
    assert shown.returncode == 0
    assert "stopped, no value in the source" in shown.stdout
    assert command("export", "run", "--to", "f.json").stdout == "3 results in f.json\n"
    (tmp_path / "study.json").write_text('{"name": "s", "command": "echo {x}", "space": {"x": [1]}}')
    answer = command("run", "study.json", "--out", "run", "--quiet")
    assert (answer.returncode, answer.stderr) == (2, "tradewind: run: holds imported results; choose another --out\n")
    assert len(Results.load(tmp_path / "run")) == 3


def test_equal_rows_are_results_of_their_own(command: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("lr,wall_s\n" + "0.1,3\n" * 5)
    assert command("import", "rows.csv", "--out", "run").returncode == 0
    results = Results.load(tmp_path / "run")
    assert (len(results), results.duplicates) == (5, 0)
    assert results.table("lr", "repeat", stat="n").blocks[0].cells == [[5]]


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "not hexadecimal"},
        {"key": 7},
        {"trial": "first"},
        {"state": "fine"},
        {"packed_with": "others"},
        {"repeat": None, "seed": "s", "data_seed": [1], "reason": 5, "purpose": 3, "machine": {"a": 1}},
    ],
)
def test_exported_records_with_foreign_fields_are_refused_or_can_be_read(
    command: Cli, tmp_path: Path, fields: dict[str, Any]
) -> None:
    parts = {"times": {"wall_s": 3.0}, "scores": {"auc": 0.5}, "last": {}}
    records = [{"config": {"lr": lr}, **parts, **fields} for lr in (0.1, 0.2)]
    (tmp_path / "records.json").write_text(json.dumps(records))
    answer = command("import", "records.json", "--out", "run")
    assert answer.returncode in (0, 2)
    assert "Traceback" not in answer.stderr
    if answer.returncode == 0:
        results = Results.load(tmp_path / "run")
        assert results.items("lr") == [0.1, 0.2]
        assert results.table("lr", "lr", value="wall_s", stat="n").blocks[0].cells == [[1, 0], [0, 1]]
        assert command("status", "run").returncode == 0


@needs_published
def test_the_published_table_3_is_the_one_typed_in(command: Cli, tmp_path: Path) -> None:
    assert command("import", STORM, "--at", "tables.table3", "--out", "table3").returncode == 0
    found = json.loads(command("table", "table3", *TABLE_3_CALL, "--format", "json").stdout)
    assert {block["label"]: block["cells"] for block in found["blocks"]} == TABLE_3


@needs_published
def test_tables_8_and_9_joined_give_accuracy_and_seconds_of_the_same_configs(command: Cli, tmp_path: Path) -> None:
    join = ("--at", "tables.table8", "--join", "tables.table9", "--values", "accuracy_percent,wall_s")
    answer = command("import", STORM, *join, "--rename", "gpus=devices", "--out", "joined")
    assert answer.returncode == 0, answer.stderr
    published = json.loads(STORM.read_text())["tables"]
    expected: dict[tuple[int, int], list[float]] = {}
    for name, value in (("table8", "accuracy_percent"), ("table9", "wall_s")):
        for row in published[name]["rows"]:
            expected.setdefault((row["epochs"], row["batch_size"]), []).append(row[value])
    records = list(Results.load(tmp_path / "joined").records())
    assert len(records) == len(expected)
    for one in records:
        config = one["config"]
        values = expected[config["epochs"], config["batch_size"]]
        assert [one["scores"]["accuracy_percent"], one["times"]["wall_s"]] == values
        assert config["devices"] == published["table8"]["gpus"]
        assert "gpus" not in config
    text = command(
        "table", "joined", "--rows", "epochs", "--columns", "batch_size", "--value", "accuracy_percent"
    ).stdout
    line = next(line.split() for line in text.splitlines() if line.split()[:1] == ["5"])
    assert line == ["5", "87.96", "90.26", "82.55", "85.23", "87.86", "89.28", "83.00", "79.98", "76.21", "68.57"]


def foreign_table(path: Path) -> Path:
    """A published table: a model's number, how many epochs until stable, seconds by devices."""
    lines = ["model,learning_rate,gpus,batch_size,epochs_to_stable,epoch_s"]
    for model, rate, gpus in product((5, 6), (0.001, 0.01, 0.1), (1, 2, 4)):
        stable = 20 + 4 * model + {0.001: 30, 0.01: 10, 0.1: 0}[rate] + (gpus + model) % 3 / 10
        lines.append(f"{model},{rate},{gpus},32,{stable},{12 / gpus + 1}")
    (path / "table.csv").write_text("\n".join(lines))
    return path / "table.csv"


def test_an_import_says_what_is_measured_what_is_a_label_and_the_scaling_rule(command: Cli, tmp_path: Path) -> None:
    told = ("--minimize", "epochs_to_stable", "--labels", "model", "--scaling", "weak")
    answer = command("import", foreign_table(tmp_path), "--out", "run", *told)
    assert (answer.returncode, answer.stderr) == (0, "")
    results = Results.load(tmp_path / "run")
    assert results.objective() == ("epochs_to_stable", True)
    assert {(one["config"]["model"], one["config"]["scaling"]) for one in results.records()} == {
        ("5", "weak"),
        ("6", "weak"),
    }
    items = json.loads(command("advise", "run", "--json").stdout)
    assert [item["claim"]["to"]["learning_rate"] for item in items if item["topic"] == "best score"] == [0.1]
    named = {name for item in items if item["topic"].startswith("what") for name in item["claim"]["names"]}
    assert "learning_rate" in named
    assert "model" not in named
    assert "model above" not in json.dumps(items)
    found = json.loads(command("predict", "run", "--devices", "8", "--json").stdout)
    assert found["value"] == "epoch_s"
    assert all(table["verdict"] for table in found["tables"])


def test_what_a_name_says_by_itself_need_not_be_said(command: Cli, tmp_path: Path) -> None:
    assert command("import", foreign_table(tmp_path), "--out", "run").returncode == 0
    items = json.loads(command("advise", "run", "--json").stdout)
    assert Results.load(tmp_path / "run").objective() == ("epochs_to_stable", True)
    assert not any("model" in item["claim"]["names"] for item in items if item["topic"].startswith("what"))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (("--labels", "modle"), "--labels: there is no column 'modle'; did you mean 'model'?"),
        (("--labels", "epoch_s"), "--labels: epoch_s is measured"),
        (("--scaling", "sideways"), "there is no column 'sideways'"),
    ],
)
def test_labels_and_rules_that_are_not_there_are_named(
    command: Cli, tmp_path: Path, told: tuple[str, ...], message: str
) -> None:
    answer = command("import", foreign_table(tmp_path), "--out", "run", *told)
    assert (answer.returncode, message in answer.stderr) == (2, True), answer.stderr
