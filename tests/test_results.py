from __future__ import annotations

import csv
import json
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Cli, Took, WriteStudy

import tradewind.columns
import tradewind.reading
from tradewind import Results
from tradewind.errors import Mistake, RunError
from tradewind.folder import RunFolder
from tradewind.journal import encode

Record = dict[str, Any]
OPTIMIZERS, AUGMENTS = ("adam", "sgd"), ("none", "pre", "live")


def record(number: int, **fields: Any) -> Record:
    """A record as a network leaves it, of about 900 bytes; `number` stands for its trial."""
    scores = {"accuracy": 0.5 + number % 89 / 200, "auc": 0.6 + number % 71 / 200, "brier": 0.1}
    last = {"train_loss": 0.3, "validation_loss": 0.4, "validation_auc": 0.5 + number % 83 / 200}
    train_s = 1.5 + number % 97 / 97
    return {
        "key": f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}{number:016x}", "trial": number, "repeat": 0,
        "config": {
            "batch_size": 2 ** (5 + number % 8), "learning_rate": 10.0 ** (-1 - number // 8 % 5),
            "epochs": 5 * (1 + number // 40 % 3), "optimizer": OPTIMIZERS[number // 120 % 2],
            "augment": AUGMENTS[number // 240 % 3], "data_multiplier": 1 + number // 720 % 4,
            "dropout": number // 2880 % 10 / 10, "filters": [8, 16, 32], "activation": "relu", "devices": 1,
            "precision": "fp32", "weight_decay": number // 28800 % 7 * 1e-4,
        },
        "seed": 0, "data_seed": 0, "state": "done", "reason": "",
        "times": {
            "data_s": 0.1, "train_s": train_s, "test_s": 0.05, "wall_s": train_s + 0.15,
            "epoch_s": [train_s / 5] * 5,
        },
        "scores": scores, "last": last, "purpose": "tune", "rank": 0, "host": "vm",
        "machine": "AMD EPYC 2-core d6d73a09", "code": "0.1.0+e420f4e8",
        "started": 1794773792.0 + number, "finished": 1794773793.5 + number, "attempt": 1, "error": {},
        "log": {"file": "20261115-201632-vm-10168-worker1.log", "from": number * 100, "to": number * 100 + 90},
        "packed_with": 0, "peak_memory_bytes": 24424448 + number % 1000 * 4096, **fields,
    }  # fmt: skip


def write_run(path: Path, **journals: Iterable[Record]) -> Path:
    """A run folder with journals of these finished records."""
    folder = RunFolder.create(path)
    for owner, records in journals.items():
        with open(folder.journal(owner), "wb") as file:
            file.writelines(encode("finished", one) for one in records)
    return path


def rows(results: Results) -> list[dict[str, Any]]:
    """All columns of all trials, as plain values."""
    names = results.names()
    columns = [results.items(name) for name in names]
    return [
        {"key": key} | dict(zip(names, values, strict=True))
        for key, *values in zip(results.keys(), *columns, strict=True)
    ]


def test_the_first_finished_record_of_a_key_counts_wherever_it_stands(command: Cli, tmp_path: Path) -> None:
    early, late = record(1, finished=10.0, scores={"auc": 0.1}), record(1, finished=11.0, scores={"auc": 0.9})
    for path in (
        write_run(tmp_path / "one", a=[late, record(2)], b=[early]),
        write_run(tmp_path / "two", a=[early, late]),
    ):
        results = Results.load(path)
        assert results.record(1)["scores"] == {"auc": 0.1}
        assert results.duplicates == 1
    assert len(Results.load(tmp_path / "one")) == 2
    text = command("status", "one").stdout
    assert "  done     2\n" in text
    assert "1 further records of trials that count once already: reported, not used" in text
    assert json.loads(command("status", "one", "--json").stdout)["duplicates"] == 1


def test_a_trial_that_failed_and_then_ended_well_is_done(tmp_path: Path) -> None:
    failed = record(1, state="failed", reason="boom", finished=10.0, scores={}, times={}, last={})
    again = record(1, attempt=2, finished=20.0)
    results = Results.load(write_run(tmp_path / "run", a=[failed, record(2)], b=[again]))
    assert results.counts() == {"done": 2, "pruned": 0, "stopped": 0, "failed": 0}
    assert results.record(1)["attempt"] == 2
    assert results.final_keys() == {again["key"], record(2)["key"]}


def test_a_failure_after_a_result_takes_nothing_away(tmp_path: Path) -> None:
    failed = record(1, state="failed", finished=1e10)
    results = Results.load(write_run(tmp_path / "run", a=[record(1)], b=[failed]))
    assert results.counts() == {"done": 1, "pruned": 0, "stopped": 0, "failed": 0}
    assert results.record(1)["state"] == "done"


def test_of_several_failures_the_last_is_shown_and_all_are_counted_as_attempts(tmp_path: Path) -> None:
    failures = [record(1, state="failed", reason=f"number {n}", attempt=n, finished=float(n)) for n in (1, 2, 3)]
    results = Results.load(write_run(tmp_path / "run", a=failures))
    assert results.counts() == {"done": 0, "pruned": 0, "stopped": 0, "failed": 1}
    assert results.record(1)["reason"] == "number 3"
    assert results.attempts() == {record(1)["key"]: 3}
    assert results.final_keys() == set()


def test_a_retry_is_no_duplicate(tmp_path: Path) -> None:
    failed = record(1, state="failed", finished=10.0)
    results = Results.load(write_run(tmp_path / "run", a=[failed, record(1, attempt=2)]))
    assert results.duplicates == 0


def test_a_stopped_trial_is_final_but_not_in_tables(command: Cli, tmp_path: Path) -> None:
    stopped = record(1, state="stopped", reason="max_epochs 9")
    results = Results.load(write_run(tmp_path / "run", a=[record(0), stopped, record(8)]))
    assert results.counts() == {"done": 2, "pruned": 0, "stopped": 1, "failed": 0}
    assert len(results.final_keys()) == 3
    table = results.table("batch_size", "optimizer", value="auc", stat="n")
    assert (table.row_labels, table.blocks[0].cells) == ([32], [[2]])
    assert command(
        "table", "run", "--rows", "batch_size", "--columns", "optimizer", "--value", "auc"
    ).stdout.startswith("auc (median of 2 trials over learning_rate (2 values)) · 1 stopped left out\n")


def test_other_kinds_of_lines_are_no_results(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=[record(1)])
    with open(RunFolder(path).journal("a"), "ab") as file:
        file.write(encode("started", {"key": "0" * 32, "trial": 5, "attempt": 1, "at": 0.0}))
        file.write(encode("epoch", {"key": "0" * 32, "epoch": 5, "scores": {"auc": 1.0}}))
    results = Results.load(path)
    assert (len(results), results.skipped_lines) == (1, 0)


def test_what_comes_from_the_cache_equals_a_fresh_read(tmp_path: Path) -> None:
    def mixed(number: int) -> Record:
        some = record(number)
        some["config"] |= {"x": [1, "a", None, 2.5, True, [1, 2]][number % 6]} if number % 7 else {}
        return some | {"state": ["done", "stopped", "failed"][number % 3], "finished": float(number)}

    path = write_run(tmp_path / "run", a=map(mixed, range(2500)), b=map(mixed, range(2400, 3000)))
    cache = RunFolder(path).cache / "results.npz"
    assert not cache.exists()
    fresh = rows(Results.load(path))
    assert len(fresh) == 3000
    assert cache.exists()
    assert rows(Results.load(path)) == fresh
    with open(RunFolder(path).journal("c"), "wb") as file:
        file.writelines(encode("finished", mixed(number)) for number in range(2990, 3010))
    with open(RunFolder(path).journal("a"), "ab") as file:
        file.write(b"garbage\n" + encode("finished", mixed(3010)))
    extended = Results.load(path)
    cache.unlink()
    again = Results.load(path)
    assert rows(extended) == rows(again)
    assert sorted(again.items("trial")) == list(range(3011))
    assert extended.skipped_lines == again.skipped_lines == 1
    assert extended.duplicates == again.duplicates
    assert list(extended.records()) == list(again.records())


def test_what_several_processes_read_equals_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed(number: int) -> Record:
        return record(number, config={"x": [1, None, "a", 2.5][number // 700 % 4]}, finished=float(-number))

    path = write_run(tmp_path / "run", a=map(mixed, range(1500)), b=map(mixed, range(1400, 1900)), c=[mixed(1900)])
    with open(RunFolder(path).journal("a"), "ab") as file:
        file.write(b"garbage\n" + encode("finished", mixed(2000)) + encode("finished", mixed(2001))[:-9])
    alone = Results.load(path)
    for left in RunFolder(path).cache.iterdir():
        left.unlink()
    monkeypatch.setattr(tradewind.reading, "MANY_BYTES", 0)
    monkeypatch.setattr(tradewind.reading, "cores", lambda: 3)
    together = Results.load(path)
    assert rows(together) == rows(alone)
    assert list(together.records()) == list(alone.records())
    assert (len(alone), alone.duplicates, alone.skipped_lines) == (1902, 100, 2)
    assert (len(together), together.duplicates, together.skipped_lines) == (1902, 100, 2)


@pytest.mark.parametrize("damage", [
    lambda content: b"",
    lambda content: b"not a cache",
    lambda content: content[: len(content) // 2],
    lambda content: content[:-1],
    lambda content: content[: len(content) // 2] + b"\xff" * 999 + content[len(content) // 2 + 999 :],
    lambda content: bytes(len(content)),
])  # fmt: skip
def test_a_damaged_cache_is_not_believed(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = write_run(tmp_path / "run", a=map(record, range(2500)))
    fresh = rows(Results.load(path))
    cache = RunFolder(path).cache / "results.npz"
    cache.write_bytes(damage(cache.read_bytes()))
    assert rows(Results.load(path)) == fresh


MIXED = [1, None, 2, "a", None, 2.5, True, 1, [1, 2], {"k": 1}, "1", 1.5, False, None, 0, "", -3]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 20_000])
def test_a_column_may_hold_values_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(tradewind.columns, "CHUNK", chunk)
    records = [record(number, config={"x": value}) for number, value in enumerate(MIXED)]
    results = Results.load(write_run(tmp_path / "run", a=records))
    assert results.items("x") == MIXED
    assert [isinstance(value, bool) for value in results.items("x")] == [isinstance(v, bool) for v in MIXED]
    table = results.table("x", "repeat", value="auc", stat="n")
    assert table.row_labels == [-3, 0, 1, 1.5, 2, 2.5, "", "1", "a", False, True, [1, 2], {"k": 1}, None]
    assert [cells[0] for cells in table.blocks[0].cells] == [1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3]


def test_a_measure_named_like_a_hyperparameter_gets_its_group_in_front(tmp_path: Path) -> None:
    some = record(1, config={"loss": "mse", "epochs": 3}, scores={"loss": 0.25, "state": 7.0}, last={"loss": 0.5})
    results = Results.load(write_run(tmp_path / "run", a=[some]))
    (row,) = rows(results)
    assert (row["loss"], row["scores.loss"], row["last.loss"]) == ("mse", 0.25, 0.5)
    assert (row["state"], row["scores.state"]) == ("done", 7.0)
    assert "loss" in results.names("config")
    assert "scores.loss" in results.names("scores")


def test_a_hyperparameter_named_like_a_field_does_not_hide_it(tmp_path: Path) -> None:
    config = {"state": "failed", "trial": "x", "finished": "never", "attempt": None, "key": "k", "packed_with": "a"}
    path = write_run(tmp_path / "run", a=[record(n, config=config, finished=float(n)) for n in (1, 1, 2)])
    results = Results.load(path)
    assert results.counts() == {"done": 2, "pruned": 0, "stopped": 0, "failed": 0}
    assert results.duplicates == 1
    assert results.record(2)["config"] == config
    assert results.table("trial", "repeat", value="wall_s", stat="n").blocks[0].cells == [[1], [1]]


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_an_export_imported_again_gives_the_same_tables(command: Cli, tmp_path: Path, ending: str) -> None:
    records = [*map(record, range(300)), record(300, state="failed", reason="boom", times={}, scores={}, last={})]
    path = write_run(tmp_path / "run", a=records)
    answer = command("export", path, "--to", f"f.{ending}")
    assert (answer.returncode, answer.stdout) == (0, f"301 results in f.{ending}\n")
    assert command("import", f"f.{ending}", "--out", "again").returncode == 0
    first, second = Results.load(path), Results.load(tmp_path / "again")
    assert second.counts()["done"] == first.counts()["done"] == 300
    assert len(second) == 301
    for value in ("wall_s", "auc", "validation_loss"):
        a, b = (r.table("batch_size", "learning_rate", by="augment", value=value) for r in (first, second))
        assert (a.row_labels, a.column_labels, a.blocks) == (b.row_labels, b.column_labels, b.blocks)
    assert second.items("filters")[0] == [8, 16, 32]


def test_an_exported_json_file_holds_the_records_and_the_machines(command: Cli, tmp_path: Path) -> None:
    records = [record(2), record(1, state="failed", scores={"auc": None}), record(0)]
    write_run(tmp_path / "run", a=records)
    assert command("export", "run", "--to", "f.json").returncode == 0
    assert json.loads((tmp_path / "f.json").read_text()) == {"results": records[::-1], "machines": {}}
    write_run(tmp_path / "empty", a=[])
    assert command("export", "empty", "--to", "f.json").stdout == "0 results in f.json\n"
    assert json.loads((tmp_path / "f.json").read_text()) == {"results": [], "machines": {}}


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_a_round_trip_is_an_identity_for_everything_that_a_record_has(
    command: Cli, tmp_path: Path, ending: str
) -> None:
    error = {"what": "boom", "traceback": "a\nb", "signal": "", "stderr": "c"}
    failed = record(1, state="failed", reason="boom", error=error, scores={}, times={}, attempt=3)
    stopped = record(
        2, state="stopped", scores={}, last={"train_loss": 1.5}, config={"x": "007", "y": None, "z": [1]}
    )
    path = write_run(tmp_path / "run", a=[record(0), failed, stopped, record(3, scores={"auc": None})])
    RunFolder(path).keep_machine("some machine", {"cores": 2})
    assert command("export", "run", "--to", f"f.{ending}").returncode == 0
    assert command("import", f"f.{ending}", "--out", "again").stdout == "4 results in again\n"
    first, second = (list(Results.load(tmp_path / name).records()) for name in ("run", "again"))
    assert [{k: v for k, v in one.items() if k != "crc"} for one in first] == [
        {k: v for k, v in one.items() if k != "crc"} for one in second
    ]
    if ending == "json":
        assert json.loads((tmp_path / "again" / "machines" / "some machine.json").read_text()) == {"cores": 2}


def test_a_cell_that_was_edited_in_an_exported_csv_file_is_no_silent_loss(command: Cli, tmp_path: Path) -> None:
    write_run(tmp_path / "run", a=[record(0), record(1)])
    assert command("export", "run", "--to", "f.csv").returncode == 0
    text = (tmp_path / "f.csv").read_text()
    (tmp_path / "f.csv").write_text(text.replace(",relu,", ",gelu,", 1))
    answer = command("import", "f.csv", "--out", "again")
    assert answer.returncode == 2
    assert "f.csv, line 2: activation is 'gelu' in its column and 'relu' in the column 'record'" in answer.stderr


def test_an_exported_csv_file_has_a_line_per_trial_and_a_column_per_name(command: Cli, tmp_path: Path) -> None:
    write_run(tmp_path / "run", a=[record(0), record(1, config={"text": 'a "b", c\nd', "big": 2**40})])
    assert command("export", "run", "--to", "f.csv").returncode == 0
    with open(tmp_path / "f.csv", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["key"], first["trial"], first["batch_size"]) == (record(0)["key"], "0", "32")
    assert (first["filters"], first["learning_rate"], first["text"]) == ("[8, 16, 32]", "0.1", "")
    assert (second["text"], second["big"], second["batch_size"]) == ('a "b", c\nd', str(2**40), "")
    assert float(first["epoch_s"]) == record(0)["times"]["epoch_s"][0]


def test_an_exported_parquet_file_holds_every_trial_and_column(command: Cli, tmp_path: Path) -> None:
    records = [record(n, config={"x": value, "batch_size": 2**n}) for n, value in enumerate([1, "a", None, [1, 2]])]
    write_run(tmp_path / "it's", a=records)
    answer = command("export", "it's", "--to", "it's.parquet")
    assert answer.returncode == 0, answer.stderr
    connection = duckdb.connect()
    path = str(tmp_path / "it's.parquet").replace("'", "''")
    found = connection.execute(f"select key, trial, state, x, batch_size, wall_s from '{path}' order by trial")
    assert found.fetchall() == [
        (r["key"], r["trial"], "done", x, r["config"]["batch_size"], r["times"]["wall_s"])
        for r, x in zip(records, ["1", "a", None, "[1, 2]"], strict=True)
    ]
    connection.close()


def test_a_frame_has_a_row_per_trial(tmp_path: Path) -> None:
    frame = Results.load(write_run(tmp_path / "run", a=map(record, range(40)))).frame()
    assert len(frame) == 40
    assert frame.groupby("batch_size")["auc"].max().to_dict() == {
        2 ** (5 + k): max(record(n)["scores"]["auc"] for n in range(k, 40, 8)) for k in range(8)
    }


def test_the_time_of_a_packed_trial_is_refused_in_a_table(command: Cli, tmp_path: Path) -> None:
    packed = record(1, packed_with=3, times={"wall_s": 9.0, "train_s": 8.0, "pack_wall_s": 9.0, "share_s": 2.25})
    write_run(tmp_path / "run", a=[record(0), packed])
    for value in ("wall_s", "train_s"):
        answer = command("table", "run", "--rows", "batch_size", "--columns", "repeat", "--value", value)
        assert answer.returncode == 2
        assert answer.stderr == (
            f"tradewind: {value}: some trials were trained in a pack, so none has a time of its own; "
            "ask for pack_wall_s or share_s, or run the study with purpose time\n"
        )
    results = Results.load(tmp_path / "run")
    shared = results.table("batch_size", "repeat", value="share_s")
    assert shared.blocks[0].cells == [[None], [2.25]]
    assert results.table("batch_size", "repeat", value="auc").blocks[0].counts == [[1], [1]]


def test_a_table_of_times_names_machine_and_purpose_and_one_of_scores_does_not(tmp_path: Path) -> None:
    results = Results.load(write_run(tmp_path / "run", a=[record(0), record(1, machine="other", purpose="time")]))
    assert results.table("batch_size", "repeat").title() == (
        "wall_s (median, n = 1) · purpose time, tune · machine AMD EPYC 2-core d6d73a09, other"
    )
    assert results.table("batch_size", "repeat", value="auc").title() == "auc (median, n = 1)"


def test_best_follows_the_name_of_the_metric_or_the_study(command: Cli, write_study: WriteStudy) -> None:
    module = (
        "def f(config):\n    return {'loss': (config['x'] - 2) ** 2, 'score': config['x'], 'nan': float('nan')}\n"
    )
    study = {"name": "s", "workload": "work:f", "space": {"x": [1, 2, 3, 5]}}
    searches = {
        "unnamed": ({}, "score", 5),
        "loss": ({"metric": "loss"}, "loss", 2),
        "lowest": ({"metric": "score", "direction": "minimize"}, "score", 1),
        "highest": ({"metric": "loss", "direction": "maximize"}, "loss", 5),
    }
    for name, (search, metric, x) in searches.items():
        path = write_study({**study, "search": search}, module)
        assert command("run", path, "--out", name, "--engine", "serial", "--quiet").returncode == 0
        best = Results.load(path.parent / name).best()
        assert (best.metric, best.record["config"]["x"]) == (metric, x)
    found = json.loads(command("best", "loss", "--json").stdout)
    assert (found["metric"], found["score"], found["trial"]) == ("loss", 0.0, 1)
    assert command("best", "lowest").stdout.startswith("score 1 (n = 1, lower is better)\n")


def test_only_trials_that_ran_to_their_end_can_be_best(tmp_path: Path) -> None:
    stopped = record(1, state="stopped", scores={"score": 9.0})
    nothing = record(2, scores={"score": None})
    path = write_run(tmp_path / "run", a=[stopped, nothing, record(3, scores={"score": 1.0})])
    assert Results.load(path).best().record["trial"] == 3
    path = write_run(tmp_path / "none", a=[stopped, nothing])
    with pytest.raises(RunError, match="no trial that is done has a value of score"):
        Results.load(path).best()


def test_a_run_without_results_says_so(command: Cli, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=[])
    results = Results.load(path)
    assert (len(results), list(results.records()), results.counts()["done"]) == (0, [], 0)
    assert len(results.frame()) == 0
    with pytest.raises(RunError, match="no trial has ended yet"):
        results.table("a", "b")
    with pytest.raises(RunError, match="no trial has a value of any score yet"):
        results.best()
    for ending in ("csv", "json", "parquet"):
        assert command("export", path, "--to", f"f.{ending}").stdout == f"0 results in f.{ending}\n"


def test_an_unknown_column_is_the_users_mistake_with_the_nearest_name(tmp_path: Path) -> None:
    results = Results.load(write_run(tmp_path / "run", a=[record(1)]))
    with pytest.raises(Mistake, match=r"no column 'batchsize'; did you mean 'batch_size'\? allowed: "):
        results.table("batchsize", "repeat")


def table_call(path: Path) -> list[str]:
    return ["table", str(path), "--rows", "batch_size", "--columns", "learning_rate", "--by", "optimizer"]


def test_a_hundred_thousand_records_are_read_in_seconds_and_then_at_once(cli: Cli, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=map(record, range(50_000)), b=map(record, range(50_000, 100_000)))
    with Took() as took:
        results = Results.load(path)
        assert len(results) == 100_000
        first = results.table("batch_size", "learning_rate", by="optimizer").text()
    assert took.s < 6
    with Took() as took:
        assert cli(*table_call(path)).stdout.strip() == first.strip()
    assert took.s < 1.5


@pytest.mark.slow
def test_a_million_records_are_read_in_30_seconds_then_any_table_takes_one_and_the_report_20(
    cli: Cli, tmp_path: Path
) -> None:
    path = write_run(tmp_path / "run", **{f"o{k}": map(record, range(k, 1_000_000, 4)) for k in range(4)})
    start = time.perf_counter()
    results = Results.load(path)
    first_s = time.perf_counter() - start
    assert len(results) == 1_000_000
    del results
    tables_s = {}
    for rows_, columns, by, value in (
        ("batch_size", "learning_rate", "optimizer", "wall_s"),
        ("augment", "filters", None, "auc"),
        ("dropout", "weight_decay", "activation", "validation_loss"),
    ):
        start = time.perf_counter()
        table = Results.load(path).table(rows_, columns, by=by, value=value)
        tables_s[value] = time.perf_counter() - start
        assert sum(map(sum, (line for block in table.blocks for line in block.counts))) == 1_000_000
    start = time.perf_counter()
    assert cli(*table_call(path)).returncode == 0
    command_s = time.perf_counter() - start
    start = time.perf_counter()
    assert cli("report", path, "--out", tmp_path / "report.html").returncode == 0
    report_s = time.perf_counter() - start
    most_gb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6  # of all commands so far
    print(f"first read {first_s:.1f} s, tables {tables_s}, command {command_s:.2f} s")
    print(f"report {report_s:.1f} s, {most_gb:.2f} GB, {(tmp_path / 'report.html').stat().st_size / 1e6:.2f} MB")
    assert first_s < 30
    assert max(tables_s.values()) < 1
    assert command_s < 2  # of which half is the start of Python and numpy
    assert report_s < 20
    assert most_gb < 1.5
    assert (tmp_path / "report.html").stat().st_size < 5e6


def test_a_folder_of_another_format_is_refused_in_one_line(command: Cli, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=[record(0)])
    (path / "run.json").write_text('{"format": 1}')
    for words in (["status", "run"], ["best", "run"], ["report", "run"]):
        done = command(*words)
        assert done.returncode == 2
        assert done.stderr.splitlines() == ["tradewind: run: run format 1; this Tradewind reads format 2"]


def drawn(path: Path, count: int = 60) -> Results:
    """A search that draws its learning rates from a range, two optimizers, auc = number of the trial."""
    study = {
        "name": "drawn",
        "space": {"learning_rate": {"low": 1e-4, "high": 0.1, "log": True}, "optimizer": ["a", "b"]},
    }
    configs = [{"learning_rate": 1e-4 * 1000 ** (n / count), "optimizer": "ab"[n % 2]} for n in range(count)]
    write_run(path, a=[record(n, config=config, scores={"auc": float(n)}) for n, config in enumerate(configs)])
    RunFolder(path).keep_edition("1", {"study": study, "edition": "1", "metric": "auc", "direction": "maximize"})
    return Results.load(path)


def test_a_table_has_bins_where_values_were_drawn_from_a_range(tmp_path: Path) -> None:
    table = drawn(tmp_path / "run").table("learning_rate", "optimizer", value="auc", stat="median")
    assert table.row_labels == [
        "0.0001 – 0.0003548", "0.0003981 – 0.001413", "0.001585 – 0.005623", "0.00631 – 0.02239", "0.02512 – 0.08913",
    ]  # fmt: skip
    assert table.blocks[0].cells == [[5.0, 6.0], [17.0, 18.0], [29.0, 30.0], [41.0, 42.0], [53.0, 54.0]]
    assert table.title() == "auc (median of 6 trials over learning_rate in 5 bins)"
    exact = drawn(tmp_path / "again").table("learning_rate", "optimizer", value="auc", exact=True)
    assert len(exact.row_labels) == 60


def test_a_table_names_what_its_cells_lump_together(tmp_path: Path) -> None:
    table = drawn(tmp_path / "run", 20).table("optimizer", "state", value="auc")
    assert table.title() == "auc (median of 10 trials over learning_rate (20 values))"
    assert (
        drawn(tmp_path / "few", 12).table("learning_rate", "optimizer", value="auc").title() == "auc (median, n = 1)"
    )
