from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import DataError
from tradewind.foreign import Foreign, read_rows

STORM = {
    "source": "a paper",
    "train_samples": 138963,
    "tables": {
        "table8": {
            "device": "2x V100",
            "gpus": 2,
            "note": "caption says training",
            "rows": [
                {"epochs": 5, "batch_size": 128, "accuracy_percent": 87.96},
                {"epochs": 10, "batch_size": 128, "accuracy_percent": 92.02},
            ],
        },
        "table9": {
            "device": "2x V100",
            "gpus": 2,
            "rows": [
                {"epochs": 10.0, "batch_size": 128, "wall_s": 59},
                {"epochs": 5.0, "batch_size": 128, "wall_s": 31},
            ],
        },
    },
}
NODULES = {
    "source": "another paper",
    "target_validation_loss": 0.0016384,
    "efficiency_percent": {"strong": {"1": 100.0, "2": 105.17}, "linear": {"1": 100.0, "2": None}},
}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Reads a document or the text of a file."""

    def reading(content: Any, name: str = "f.json", **options: Any) -> Foreign:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return read_rows(path, **options)

    return reading


def configs(found: Foreign) -> list[dict[str, Any]]:
    return [row.config for row in found.rows]


def values(found: Foreign) -> list[dict[str, float | None]]:
    return [row.values for row in found.rows]


def test_the_scalars_beside_the_rows_are_constants_of_every_config(read: Any) -> None:
    found = read(STORM, at="tables.table8")
    assert configs(found) == [
        {"device": "2x V100", "devices": 2, "epochs": 5, "batch_size": 128},
        {"device": "2x V100", "devices": 2, "epochs": 10, "batch_size": 128},
    ]
    assert values(found) == [{"accuracy_percent": 87.96}, {"accuracy_percent": 92.02}]
    assert found.shared == {"device": "2x V100", "devices": 2}


def test_source_and_note_on_the_way_are_the_description(read: Any) -> None:
    assert read(STORM, at="tables.table8").description == "a paper\ncaption says training"
    assert read(STORM, at="tables.table9").description == "a paper"
    assert read(STORM, at="tables.table9", join="tables.table8").description == "a paper\ncaption says training"


def test_a_list_takes_its_constants_from_the_object_around_it(read: Any) -> None:
    document = {
        "source": "s",
        "gpu": "T4",
        "parameters": {"n": 7},
        "linear": [{"gpus": 1, "epoch_s": 1.5}],
        "other": [{}],
    }
    found = read(document, at="linear")
    assert configs(found) == [{"gpu": "T4", "devices": 1}]
    assert values(found) == [{"epoch_s": 1.5}]
    assert configs(read(STORM, at="tables.table8.rows")) == configs(read(STORM, at="tables.table8"))


def test_nested_mappings_give_one_row_per_number(read: Any) -> None:
    found = read(NODULES, at="efficiency_percent", rename={"level1": "scaling", "level2": "devices"})
    assert [(row["scaling"], row["devices"]) for row in configs(found)] == [
        ("strong", 1),
        ("strong", 2),
        ("linear", 1),
        ("linear", 2),
    ]
    assert [row["efficiency_percent"] for row in values(found)] == [100.0, 105.17, 100.0, None]
    assert found.shared == {"target_validation_loss": 0.0016384}


def test_joined_places_give_one_row_per_config(read: Any) -> None:
    found = read(STORM, at="tables.table8", join="tables.table9")
    assert values(found) == [
        {"accuracy_percent": 87.96, "wall_s": 31.0},
        {"accuracy_percent": 92.02, "wall_s": 59.0},
    ]
    assert configs(found) == configs(read(STORM, at="tables.table8"))


def test_rows_without_a_partner_are_counted_and_named(read: Any) -> None:
    document = json.loads(json.dumps(STORM))
    document["tables"]["table9"]["rows"][0]["epochs"] = 15
    with pytest.raises(DataError, match=r"2 rows have no partner.* first \{.*'epochs': 10, 'batch_size': 128\}"):
        read(document, at="tables.table8", join="tables.table9")
    document["tables"]["table9"]["augment"] = "live"
    with pytest.raises(DataError, match=r"4 rows have no partner \(columns of one side: augment\)"):
        read(document, at="tables.table8", join="tables.table9")


def test_a_config_that_repeats_cannot_be_joined(read: Any) -> None:
    document = json.loads(json.dumps(STORM))
    document["tables"]["table9"]["rows"][0]["epochs"] = 5
    with pytest.raises(DataError, match=r"1 rows of 'tables.table9' repeat a config; the first is .*'epochs': 5"):
        read(document, at="tables.table8", join="tables.table9")


def test_two_places_that_measure_the_same_cannot_be_joined(read: Any) -> None:
    with pytest.raises(DataError, match="both measure wall_s"):
        read(STORM, at="tables.table9", join="tables.table9")


def test_repeats_of_a_config_stay_separate_rows(read: Any) -> None:
    found = read([{"lr": 0.1, "loss": 1.5}, {"lr": 0.1, "loss": 2.5}])
    assert [row.values["loss"] for row in found.rows] == [1.5, 2.5]


def test_csv_fields_become_numbers_truth_values_text_or_nothing(read: Any) -> None:
    header = "\ufeffbatch_size,learning_rate,nesterov,optimizer,test_accuracy"
    found = read(header + '\n128,1e-3,True,"sgd, fast",0.5\n\n256,.5,false,,\n', "f.csv")
    assert configs(found) == [
        {"batch_size": 128, "learning_rate": 0.001, "nesterov": True, "optimizer": "sgd, fast"},
        {"batch_size": 256, "learning_rate": 0.5, "nesterov": False, "optimizer": None},
    ]
    assert values(found) == [{"test_accuracy": 0.5}, {"test_accuracy": None}]
    assert isinstance(configs(found)[0]["batch_size"], int)
    assert found.description == ""


def test_times_and_scores_are_guessed_from_names_of_numeric_columns_only(read: Any) -> None:
    row = {
        "epochs": 3,
        "loss": "mse",
        "train_loss": 2,
        "epoch_s": 1,
        "epochs_to_stable": 15,
        "AUC": 0.5,
        "job_s": None,
    }
    found = read([row, {"epochs": 4, "loss": "mae"}])
    assert configs(found) == [{"epochs": 3, "loss": "mse"}, {"epochs": 4, "loss": "mae"}]
    assert values(found)[0] == {
        "train_loss": 2.0,
        "epoch_s": 1.0,
        "epochs_to_stable": 15.0,
        "AUC": 0.5,
        "job_s": None,
    }
    assert set(values(found)[1].values()) == {None}


def test_named_values_replace_the_guess_under_the_old_or_the_new_name(read: Any) -> None:
    rows = [{"x": 1, "wall_s": 2.0, "power_w": 3.0}]
    assert read(rows, values=["power_w"]).rows[0].config == {"x": 1, "wall_s": 2.0}
    for name in ("power_w", "watts"):
        assert values(read(rows, values=[name], rename={"power_w": "watts"})) == [{"watts": 3.0}]


def test_a_rename_can_make_a_column_a_time_and_swap_two(read: Any) -> None:
    found = read([{"a": 1, "b": 2, "time": 3.0}], rename={"a": "b", "b": "a", "time": "wall_s"})
    assert (configs(found), values(found)) == ([{"b": 1, "a": 2}], [{"wall_s": 3.0}])


def test_gpus_are_called_devices_unless_the_user_says_otherwise(read: Any) -> None:
    rows = [{"gpus": 2, "wall_s": 1.0}]
    assert configs(read(rows)) == [{"devices": 2}]
    assert configs(read(rows, rename={"gpus": "cards"})) == [{"cards": 2}]
    assert configs(read([{"gpus": 2, "devices": 4, "wall_s": 1.0}])) == [{"gpus": 2, "devices": 4}]


def test_objects_inside_a_row_become_dotted_columns_and_its_note_a_fact(read: Any) -> None:
    found = read([{"optimizer": {"name": "sgd", "lr": 0.1}, "layers": [8, 8], "note": "odd", "loss": 1}])
    assert configs(found) == [{"optimizer.name": "sgd", "optimizer.lr": 0.1, "layers": [8, 8]}]
    assert found.rows[0].facts == {"note": "odd"}


def test_tradewinds_own_export_keeps_config_values_and_state(read: Any) -> None:
    done = {
        "key": "k1",
        "state": "done",
        "config": {"epochs": 5, "loss": "mse", "source": "synthetic"},
        "times": {"wall_s": 20, "epoch_s": [4, 4], "time_to_target_s": None},
        "scores": {"loss": 0.25},
        "last": {"validation_loss": 0.5},
    }
    failed = {
        "key": "k2",
        "state": "failed",
        "config": {"epochs": 9, "loss": "mae"},
        "times": {},
        "scores": {},
        "last": {},
    }
    found = read([done, failed])
    assert configs(found) == [done["config"], failed["config"]]
    measured = {"validation_loss": 0.5, "loss": 0.25, "wall_s": 20.0, "time_to_target_s": None}
    assert values(found) == [measured, dict.fromkeys(measured)]
    assert found.rows[0].facts == {"key": "k1", "state": "done", "epoch_s": [4, 4]}
    assert found.rows[1].facts == {"key": "k2", "state": "failed"}
    assert values(read([done, failed], values=["wall_s"])) == [{"wall_s": 20.0}, {"wall_s": None}]


def test_a_name_with_dots_is_found_on_the_path(read: Any) -> None:
    assert values(read({"v1.5": {"0.1": {"8": 3}}}, at="v1.5.0.1")) == [{"0.1": 3.0}]


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (
            "tables.tabel8.rows",
            "the path 'tables.tabel8.rows' ends at tables: there is no 'tabel8'; did you mean 'table8'",
        ),
        (
            "table8",
            "the path 'table8' ends at the top: there is no 'table8'; did you mean 'tables'? allowed: source, tables",
        ),
        ("tables.table8.rows.0", "the path 'tables.table8.rows.0' ends at tables.table8.rows: there is no '0'"),
        ("tables", "no rows at 'tables'; --at can go on to: table8, table9"),
        ("", "no rows at the top; --at can go on to: tables"),
        ("train_samples", "no rows at 'train_samples'"),
    ],
)
def test_a_bad_path_tells_where_it_ends_and_what_is_there(read: Any, at: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(STORM, at=at)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        {"a": [{"loss": 1}], "b": [{"loss": 2}]},
        {"rows": []},
        [],
        [{"loss": 1}, 2],
        {"a": {"1": 2, "2": {"3": 4}}},
        {"a": {"1": "text"}},
        {"a": {}},
        3,
    ],
)
def test_what_is_not_one_list_of_rows_or_a_mapping_to_numbers_is_refused(read: Any, document: Any) -> None:
    with pytest.raises(DataError, match="no rows at the top"):
        read(document)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rename": {"batch": "b"}}, "--rename: there is no column 'batch'; did you mean 'batch_size'"),
        ({"rename": {"lr": "batch_size"}}, "--rename: two columns would have the same name"),
        ({"values": ["acuracy"]}, "--values: there is no column 'acuracy'; did you mean 'accuracy'"),
        ({"values": ["optimizer"]}, "row 1 of the top: optimizer is 'sgd', not a number"),
        (
            {"rename": {"accuracy": "hits"}},
            "measures nothing; name its --values, of: lr, batch_size, optimizer, hits",
        ),
    ],
)
def test_a_bad_column_is_named(read: Any, options: dict[str, Any], message: str) -> None:
    rows = [{"lr": 0.1, "batch_size": 8, "optimizer": "sgd", "accuracy": 0.5}]
    with pytest.raises(DataError) as caught:
        read(rows, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.json", "", "f.json: the file is empty"),
        ("f.csv", " \n\n", "f.csv: the file is empty"),
        ("f.json", '[\n {"loss": 1},\n {"loss"', "f.json, line 3: not valid JSON: "),
        ("f.json", '[{"note": "a NaN",\n "loss": NaN}]', "f.json, line 2: NaN is not a finite number"),
        ("f.json", '[\n\n{"loss": -Infinity}]', "f.json, line 3: -Infinity is not a finite number"),
        ("f.json", '[\n{"loss": 1e999}]', "f.json, line 2: 1e999 is not a finite number"),
        ("f.json", '[\n{"loss": ' + "9" * 5000 + "}]", "f.json, line 2: 999999999999999999999999 is not a finite"),
        ("f.json", '{"loss": {"inf": 1}}', "f.json: inf is not a finite number"),
        ("f.json", "[" * 100_000, "f.json: not valid JSON: nested too deep"),
        ("f.json", b'[\n{"loss": "\xff"}]', "f.json, line 2: not UTF-8 text"),
        ("f.csv", b"lr,loss\n1,\xe9\n", "f.csv, line 2: not UTF-8 text"),
        ("f.csv", "lr,loss\n1,2\n1\n", "f.csv, line 3: 1 fields under a header of 2"),
        ("f.csv", "lr,loss\n1,2,3\n", "f.csv, line 2: 3 fields under a header of 2"),
        ("f.csv", 'lr,loss\n1,2\n1,"2\n', "f.csv, line 3: unexpected end of data"),
        ("f.csv", "lr,loss\n1,nan\n", "f.csv, line 2: nan is not a finite number"),
        ("f.csv", "lr,lr\n1,2\n", "f.csv, line 1: every column needs a name of its own"),
        ("f.csv", ",loss\n0,2\n", "f.csv, line 1: every column needs a name of its own"),
        ("f.csv", "lr,loss\n", "f.csv: no rows at the top"),
        ("f.txt", "lr,loss\n1,2\n", "f.txt: results are read from .csv and .json files"),
    ],
)
def test_a_broken_file_is_one_line_with_its_name_and_place(
    read: Any, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(content, name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.json: No such file or directory"):
        read_rows(tmp_path / "none.json")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder.csv: Is a directory"):
        read_rows(tmp_path / "folder.csv")


def test_places_inside_a_csv_file_are_refused(read: Any) -> None:
    with pytest.raises(DataError, match="the path 'rows' ends at the top"):
        read("lr,loss\n1,2\n", "f.csv", at="rows")
