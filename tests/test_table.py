from __future__ import annotations

import csv
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind.errors import Mistake
from tradewind.foreign import ForeignResult, read_rows
from tradewind.table import Block, Table, figures, tabulate

BATCH_SIZES = [128, 256, 512, 1024, 2048, 4096]
MULTIPLIERS = [1, 2, 4]
TABLE_3 = {  # Basalyga et al. 2021: seconds for batch size × data multiplier, by epochs
    5: [[20, 36, 72], [12, 24, 47], [11, 18, 38], [10, 17, 32], [10, 16, 30], [13, 18, 37]],
    10: [[36, 74, 146], [24, 48, 96], [22, 36, 77], [19, 32, 62], [17, 30, 58], [20, 36, 67]],
    15: [[56, 110, 223], [37, 72, 144], [32, 55, 109], [25, 48, 99], [25, 48, 88], [32, 56, 98]],
}
TABLE_3_TEXT = """\
wall_s (median, n = 1) · 4x V100

epochs = 5
batch_size \\ data_multiplier   1   2   4
                         128  20  36  72
"""
PUBLISHED = Path(os.environ.get("TRADEWIND_PUBLISHED", Path(__file__).parents[2] / "shared" / "published"))


def columns_of(rows: list[ForeignResult]) -> dict[str, Any]:
    """The rows as columns, numbers as floats and the rest as objects, as results hold them."""
    flat = [{**row.config, **row.values} for row in rows]
    columns = {name: [row.get(name) for row in flat] for name in flat[0]}
    return {
        name: np.array(items, dtype=object if any(isinstance(item, str) for item in items) else float)
        for name, items in columns.items()
    }


def objects(*items: Any) -> Any:
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def write_table_3(folder: Path) -> Path:
    rows = [
        {"epochs": epochs, "batch_size": batch, "data_multiplier": m, "wall_s": float(seconds)}
        for epochs, block in TABLE_3.items()
        for batch, line in zip(BATCH_SIZES, block, strict=True)
        for m, seconds in zip(MULTIPLIERS, line, strict=True)
    ]
    np.random.default_rng(0).shuffle(rows)
    document = {"source": "typed in", "tables": {"table3": {"device": "4x V100", "rows": rows}}}
    path = folder / "published.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def table_3(tmp_path: Path) -> Table:
    data = columns_of(read_rows(write_table_3(tmp_path), at="tables.table3").rows)
    return tabulate(
        data, rows="batch_size", columns="data_multiplier", by="epochs", value="wall_s", stat="median", note="4x V100"
    )


def small(stat: str = "mean", **columns: Any) -> Table:
    data = {"a": np.array([1.0, 1, 2, 2]), "b": objects("x", "x", "x", "y"), "v": np.array([1.0, 2, 4, np.nan])}
    return tabulate(data | columns, rows="a", columns="b", by=None, value="v", stat=stat)


def test_table_3_of_the_paper_comes_out_with_its_54_numbers(table_3: Table) -> None:
    assert table_3.row_labels == BATCH_SIZES
    assert table_3.column_labels == MULTIPLIERS
    assert {block.label: block.cells for block in table_3.blocks} == TABLE_3
    assert all(block.counts == [[1, 1, 1]] * 6 for block in table_3.blocks)


def test_table_3_as_text_reads_as_published(table_3: Table) -> None:
    text = str(table_3)
    assert text.startswith(TABLE_3_TEXT)
    blocks = text.split("\n\n")[1:]
    assert [block.splitlines()[0] for block in blocks] == ["epochs = 5", "epochs = 10", "epochs = 15"]
    found = [[[int(word) for word in line.split()] for line in block.splitlines()[2:]] for block in blocks]
    assert found == [
        [[batch, *line] for batch, line in zip(BATCH_SIZES, block, strict=True)] for block in TABLE_3.values()
    ]


def test_the_published_tables_come_out_digit_for_digit() -> None:
    path = PUBLISHED / "storm_basalyga2021.json"
    if not path.exists():
        pytest.skip(f"no {path}")
    data = columns_of(read_rows(path, at="tables.table3").rows)
    table = tabulate(data, rows="batch_size", columns="data_multiplier", by="epochs", value="wall_s", stat="mean")
    assert {block.label: block.cells for block in table.blocks} == TABLE_3
    data = columns_of(read_rows(path, at="tables.table8", join="tables.table9").rows)
    accuracy = tabulate(data, rows="epochs", columns="batch_size", by=None, value="accuracy_percent", stat="mean")
    lines = [line.split() for line in accuracy.text().splitlines()]
    assert ["5", "87.96", "90.26", "82.55", "85.23", "87.86", "89.28", "83.00", "79.98", "76.21", "68.57"] in lines
    seconds = tabulate(data, rows="epochs", columns="batch_size", by=None, value="wall_s", stat="mean")
    assert (seconds.row_labels[-1], seconds.blocks[0].cells[-1][0]) == (1000, 92 * 60 + 2)


@pytest.mark.parametrize(
    ("stat", "cells"),
    [
        ("mean", [[1.5, None], [4, None]]),
        ("median", [[1.5, None], [4, None]]),
        ("min", [[1, None], [4, None]]),
        ("max", [[2, None], [4, None]]),
        ("std", [[0.5**0.5, None], [None, None]]),
        ("n", [[2, 0], [1, 0]]),
    ],
)
def test_every_statistic_leaves_missing_values_out(stat: str, cells: list[list[float | None]]) -> None:
    table = small(stat)
    assert table.blocks == [Block(None, cells, [[2, 0], [1, 0]])]


@pytest.mark.parametrize("stat", ["mean", "median", "min", "max", "std"])
def test_every_statistic_equals_numpys_group_by_group(stat: str) -> None:
    rng = np.random.default_rng(3)
    a, b, v = rng.integers(0, 7, 500).astype(float), rng.integers(0, 5, 500) / 4, rng.normal(size=500)
    table = tabulate({"a": a, "b": b, "v": v}, rows="a", columns="b", by=None, value="v", stat=stat)
    for row, cells in zip(table.row_labels, table.blocks[0].cells, strict=True):
        for column, cell in zip(table.column_labels, cells, strict=True):
            group = v[(a == row) & (b == column)]
            expected = np.std(group, ddof=1) if stat == "std" else getattr(np, stat)(group)
            assert cell == pytest.approx(expected, rel=1e-12)


def test_the_title_tells_how_many_measurements_stand_behind_the_cells() -> None:
    assert small("mean").title() == "v (mean, n = 1–2)"
    assert small("median", v=np.ones(4), b=objects("x", "y", "x", "y")).title() == "v (median, n = 1)"
    assert small("max", v=np.full(4, np.nan)).title() == "v (max, n = 0)"
    assert small("n").title() == "v (n)"


def test_a_cell_without_data_is_a_dash_in_text_and_nothing_in_data() -> None:
    table = small("mean")
    assert table.text() == "v (mean, n = 1–2)\n\na \\ b    x  y\n    1  1.5  –\n    2  4.0  –\n"
    assert table.csv() == "a,b,v,n\n1,x,1.5,2\n1,y,,0\n2,x,4,1\n2,y,,0\n"
    assert json.loads(table.json())["blocks"][0]["cells"] == [[1.5, None], [4, None]]


def test_labels_are_sorted_by_kind_number_and_the_numbers_in_text() -> None:
    labels = ["b10", 10, "b9", True, 2.0, None, [64, 64], "a", 0.5, [8], float("nan"), False, 1]
    data = {"a": objects(*labels), "v": np.ones(len(labels))}
    table = tabulate(data, rows="a", columns="a", by=None, value="v", stat="n")
    assert table.row_labels == [0.5, 1, 2, 10, "a", "b9", "b10", False, True, [8], [64, 64], None]
    lines = table.csv().splitlines()[1 :: len(table.row_labels)]
    shown = ["0.5", "1", "2", "10", "a", "b9", "b10", "false", "true", "[8]", "[64, 64]", ""]
    assert [row[0] for row in csv.reader(lines)] == shown
    assert small(a=np.array([np.nan, 1e-5, 0.001, 128])).row_labels == [1e-5, 0.001, 128, None]


def test_true_and_one_are_two_labels_and_1_and_1_0_are_one() -> None:
    data = {"a": objects(True, 1, 1.0, "1"), "v": np.ones(4)}
    table = tabulate(data, rows="a", columns="v", by=None, value="v", stat="n")
    assert [(type(label), label) for label in table.row_labels] == [(int, 1), (str, "1"), (bool, True)]
    assert table.blocks[0].counts == [[2], [1], [1]]


def test_integer_boolean_and_text_arrays_group_too() -> None:
    table = small(a=np.array([3, 3, 2, 2]), b=np.array([True, True, False, True]), v=np.array([1, 3, 5, 7]))
    assert (table.row_labels, table.column_labels) == ([2, 3], [False, True])
    assert table.blocks[0].cells == [[5, 7], [None, 2]]
    assert small(b=np.array(["q", "q", "p", "p"])).column_labels == ["p", "q"]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([20.0, 36.0, None], ["20", "36", "–"]),
        ([87.96, 83.0, 90.3], ["87.96", "83.00", "90.30"]),
        ([0.2642, 1.0], ["0.2642", "1.0000"]),
        ([0.1 + 0.2], ["0.3"]),
        ([12.34567, 100.0], ["12.35", "100.00"]),
        ([1234.5678], ["1234.5678"]),
        ([1234.56789, 99999.1], ["1235", "99999"]),
        ([0.0123456], ["0.0123"]),
        ([0.00123456], ["0.00123"]),
        ([1 / 3, 1e-17], ["0.3333", "0.0000"]),
        ([1.23456e-9], ["1.235e-09"]),
        ([1e300], ["1e+300"]),
        ([-0.0, -1e-9, 1 / 3], ["0.0000", "0.0000", "0.3333"]),
        ([float("inf"), 2.5, float("nan")], ["inf", "2.5", "–"]),
        ([], []),
    ],
)
def test_numbers_keep_all_digits_when_few_and_about_four_when_many(
    values: list[float | None], shown: list[str]
) -> None:
    assert figures(values) == shown


def awkward() -> Table:
    return Table(
        "v_s",
        "min",
        "a|b",
        "50%",
        "<x>",
        ["[1", "a&b_c", None],
        ["\x1b[31m", ""],
        [Block("~", [[1.5, None]] * 3, [[1, 0]] * 3)],
    )


def test_no_label_can_break_a_format() -> None:
    table = awkward()
    assert "\x1b" not in table.text()
    assert "\\x1b[31m" in table.text()
    assert r"a\|b" in table.markdown()
    assert table.markdown().count("\n|") == 5
    latex = table.latex()
    assert r"a\&b\_c & 1.5 & -- \\" in latex
    assert "\n{[}1 & " in latex  # a bare [ after \\ would be read as its option
    assert r"50\%" in latex
    assert "<x>" not in table._repr_html_()
    assert "&lt;x&gt; = ~" in table._repr_html_()
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert rows[0] == ["<x>", "a|b", "50%", "v_s", "n"]
    assert rows[1] == ["~", "[1", "\\x1b[31m", "1.5", "1"]


def test_markdown_and_latex_hold_one_table_per_block(table_3: Table) -> None:
    markdown = table_3.markdown()
    assert markdown.count("| ---: | ---: | ---: | ---: |") == 3
    assert "**epochs = 15**\n\n| batch_size \\ data_multiplier | 1 | 2 | 4 |" in markdown
    assert "| 4096 | 32 | 56 | 98 |" in markdown
    latex = table_3.latex()
    assert latex.startswith("wall\\_s (median, n = 1) · 4x V100\\par\n\n\\begin{tabular}{rrrr}\n\\toprule\n")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    assert "\\multicolumn{4}{l}{epochs = 5} \\\\\n\\midrule\n" in latex
    assert r"4096 & 32 & 56 & 98 \\" in latex


def test_csv_is_one_line_per_cell_under_the_real_names(table_3: Table) -> None:
    lines = table_3.csv().splitlines()
    assert lines[0] == "epochs,batch_size,data_multiplier,wall_s,n"
    assert lines[1] == "5,128,1,20,1"
    assert len(lines) == 1 + 54


def test_json_carries_labels_cells_and_counts(table_3: Table) -> None:
    found = json.loads(table_3.json())
    assert list(found) == ["value", "stat", "rows", "columns", "by", "blocks", "note"]
    block = found["blocks"][2]
    assert (block["label"], block["rows"], block["columns"]) == (15, BATCH_SIZES, MULTIPLIERS)
    assert (block["cells"], block["n"]) == (TABLE_3[15], [[1, 1, 1]] * 6)
    infinite = small("max", v=np.array([np.inf, 1, 2, 3]))
    assert json.loads(infinite.json(), parse_constant=pytest.fail)["blocks"][0]["cells"][0] == ["inf", None]


def test_render_gives_every_format_and_names_the_nearest_one(table_3: Table) -> None:
    for name in ("text", "markdown", "csv", "json", "latex"):
        assert table_3.render(name) == getattr(table_3, name)()
    with pytest.raises(Mistake, match="unknown table format 'latx': did you mean 'latex'"):
        table_3.render("latx")


def test_a_note_over_several_lines_stays_in_the_title_line() -> None:
    table = Table("v", "n", "a", "b", None, [1], [2], [Block(None, [[3.0]], [[3]])], note="one\n two")
    assert table.text() == "v (n) · one two\n\na \\ b  2\n    1  3\n"


def test_unknown_columns_and_statistics_are_the_users_mistake() -> None:
    data = {"batch_size": np.ones(2), "wall_s": np.ones(2), "optimizer": objects("adam", "sgd")}

    def ask(rows: str = "batch_size", value: str = "wall_s", stat: str = "mean") -> Table:
        return tabulate(data, rows=rows, columns="optimizer", by=None, value=value, stat=stat)

    with pytest.raises(Mistake, match="no column 'batchsize': did you mean 'batch_size'"):
        ask(rows="batchsize")
    with pytest.raises(Mistake, match=r"unknown statistic 'average'.*allowed: max, mean"):
        ask(stat="average")
    with pytest.raises(Mistake, match="'optimizer' can't be the value of a table: it holds adam"):
        ask(value="optimizer")


def test_more_cells_than_anyone_can_read_are_refused() -> None:
    data = {"a": np.arange(1001.0), "b": np.arange(1001.0)}
    with pytest.raises(Mistake, match="1 × 1001 × 1001 cells are too many"):
        tabulate(data, rows="a", columns="b", by=None, value="a", stat="mean")


def test_no_results_make_an_empty_table() -> None:
    data = {"a": np.array([]), "b": objects(), "v": np.array([])}
    for by in (None, "b"):
        table = tabulate(data, rows="a", columns="b", by=by, value="v", stat="median")
        assert table.row_labels == []
        assert table.text().startswith("v (median, n = 0)\n")


def test_values_that_all_failed_are_an_empty_column_not_an_error() -> None:
    assert small(v=objects(None, None, None, None)).blocks[0].cells == [[None, None], [None, None]]


def test_a_million_rows_take_less_than_two_seconds() -> None:
    rng = np.random.default_rng(0)
    n = 1_000_000
    data = {
        "batch_size": 2.0 ** rng.integers(7, 17, n),
        "epochs": rng.choice([5.0, 10, 15], n),
        "augment": np.array(["pre", "live"], dtype=object)[rng.integers(0, 2, n)],
        "wall_s": rng.random(n),
    }
    start = time.perf_counter()
    table = tabulate(data, rows="batch_size", columns="augment", by="epochs", value="wall_s", stat="median")
    assert time.perf_counter() - start < 2
    assert sum(sum(map(sum, block.counts)) for block in table.blocks) == n
    of_one = (data["batch_size"] == 128) & (data["epochs"] == 5) & (data["augment"] == "live")
    assert table.blocks[0].cells[0][0] == np.median(data["wall_s"][of_one])
