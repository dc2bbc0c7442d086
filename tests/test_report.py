from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import Took
from test_results import Record, drawn, record, write_run

from tradewind import Results
from tradewind.analysis.history import history
from tradewind.analysis.prediction import forecast, scaling_curves
from tradewind.analysis.series import caption, curves, front, heat, series
from tradewind.analysis.shares import time_shares
from tradewind.errors import Mistake
from tradewind.folder import RunFolder
from tradewind.journal import encode
from tradewind.report.figures import by_factors, plot
from tradewind.report.page import report
from tradewind.report.style import LONG, grid
from tradewind.studies.published import import_printed

EVIL = "<script>alert(1)</script>"


def trial(number: int, repeat: int, train_s: float, auc: float | None, **config: Any) -> Record:
    """A record of which only these matter."""
    times = {"train_s": train_s, "wall_s": train_s + 0.1}
    scores = {} if auc is None else {"auc": auc}
    return record(number, repeat=repeat, config=config, times=times, scores=scores, last={}, purpose="time")


def small(path: Path, extra: Iterable[Record] = ()) -> Results:
    """Three batch sizes × two kinds of augmentation × two repeats, with curves."""
    records = []
    for k in range(12):
        repeat, size, augment = k % 2, (64, 256, 1024)[k // 2 % 3], ("live", EVIL)[k // 6]
        train_s = 1024 / size + repeat + 5 * (k // 6)
        records.append(
            trial(k, repeat, train_s, 0.9 - size / 10_000 + repeat / 100, batch_size=size, augment=augment)
        )
    write_run(path, a=[*records, *extra])
    folder = RunFolder(path)
    with open(folder.curve_file("a"), "wb") as file:
        for one in records:
            points = [{"epoch": e, "elapsed_s": e * 2.0, "auc": one["scores"]["auc"] * e / 3} for e in (1, 2, 3)]
            file.write(encode("curve", {"key": one["key"], "attempt": 1, "curve": points}))
    folder.keep_machine("AMD EPYC 2-core d6d73a09", {"cpu": "AMD EPYC", "note": EVIL})
    return Results.load(path)


def inside(page: str) -> str:
    """The page, found to need nothing else."""
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b|@import|\bsrc=|url\((?!#)", page)
    assert not re.search(r"href=\"(?!#)", page)
    assert len(page.encode()) < 5_000_000
    return page


def test_a_series_has_median_range_and_n_at_every_point(tmp_path: Path) -> None:
    lines = series(small(tmp_path / "run"), "batch_size", "train_s", "augment")
    assert [line.label for line in lines] == [EVIL, "live"]
    assert lines[1].x == [64, 256, 1024]
    assert lines[1].median == [16.5, 4.5, 1.5]
    assert (lines[1].low, lines[1].high, lines[1].n) == ([16, 4, 1], [17, 5, 2], [2, 2, 2])
    assert [line.n for line in series(small(tmp_path / "run"), "batch_size", "train_s")] == [[4, 4, 4]]


def test_what_a_series_leaves_out_is_counted(tmp_path: Path) -> None:
    failed = record(90, state="failed", reason="boom", times={}, scores={}, last={})
    stopped = record(91, state="stopped", reason="max_epochs 3")
    results = small(tmp_path / "run", [failed, stopped, trial(92, 0, 1.0, None, batch_size=64, augment="live")])
    lines = series(results, "batch_size", "auc")
    assert [line.n for line in lines] == [[4, 4, 4]]
    assert (
        caption(results, ["auc"], lines[0].n)
        == "n = 4 · 1 stopped left out · 1 failed left out · 1 without auc left out"
    )
    assert caption(results, ["train_s"], [1, 5]).startswith(
        "n = 1–5 · purpose time · machine AMD EPYC 2-core d6d73a09"
    )


def test_a_heat_map_holds_medians(tmp_path: Path) -> None:
    table = heat(small(tmp_path / "run"), "batch_size", "augment", "train_s")
    assert table.blocks[0].cells == [[21.5, 16.5], [9.5, 4.5], [6.5, 1.5]]


def test_curves_are_bands_over_repeats_best_first(tmp_path: Path) -> None:
    results = small(tmp_path / "run")
    bands = curves(results)
    assert len(bands) == 6
    assert [band.best for band in bands] == [True] + [False] * 5
    assert bands[0].label.endswith("batch_size=64") or bands[0].label.startswith("batch_size=64")
    low, high = 0.9 - 0.0064, 0.9 - 0.0064 + 0.01
    assert bands[0].epochs == [1, 2, 3]
    assert bands[0].seconds == [2.0, 4.0, 6.0]
    assert bands[0].median == pytest.approx([(low + high) / 2 * e / 3 for e in (1, 2, 3)])
    assert (bands[0].low[2], bands[0].high[2], bands[0].n) == (pytest.approx(low), pytest.approx(high), [2, 2, 2])
    assert [band.label for band in curves(results, limit=2)] == [bands[0].label, bands[-1].label]


def test_the_front_holds_what_no_other_config_beats(tmp_path: Path) -> None:
    given = [(1.0, 0.5), (2.0, 0.7), (2.0, 0.6), (3.0, 0.7), (4.0, 0.9), (5.0, 0.8)]
    records = [trial(k, 0, train_s, auc, batch_size=k) for k, (train_s, auc) in enumerate(given)]
    results = Results.load(write_run(tmp_path / "run", a=records))
    found = front(results, "train_s", "auc")
    assert list(zip(found.times, found.scores, strict=True))[: found.on_front] == [(1, 0.5), (2, 0.7), (4, 0.9)]
    assert found.labels[: found.on_front] == ["batch_size=0", "batch_size=1", "batch_size=4"]
    assert (len(found.times), found.configs, found.n) == (6, 6, [1] * 6)
    results.folder.keep_imported({"directions": {"auc": "minimize"}})
    assert front(Results.load(tmp_path / "run"), "train_s", "auc").on_front == 1


def test_values_that_grow_by_factors_are_told_from_steps() -> None:
    assert by_factors([64, 256, 1024])
    assert by_factors([1e-4, 1e-3, 1e-2])
    assert by_factors([1, 2, 4, 8])
    assert not by_factors([5, 10, 15])
    assert not by_factors([0, 1, 10, 100])
    assert not by_factors([1, 2])


def test_a_plot_is_made_in_every_kind(tmp_path: Path) -> None:
    results = small(tmp_path / "run")
    for kind in ("png", "svg", "html"):
        plot(results, "batch_size", "train_s", "augment", tmp_path / f"f.{kind}")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    picture = xml.etree.ElementTree.fromstring((tmp_path / "f.svg").read_text())
    texts = ["".join(element.itertext()) for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"train_s (seconds)", "batch_size", "64", "256", "1024", EVIL, "live"} <= set(texts)
    assert any("n = 2 · purpose time · machine AMD EPYC 2-core d6d73a09" in text for text in texts)
    page = inside((tmp_path / "f.html").read_text())
    assert "<title>augment live\nbatch_size 64\ntrain_s 16.5 (16 – 17, n = 2)</title>" in page
    assert "n = 2 · purpose time · machine AMD EPYC 2-core d6d73a09" in page
    assert page.count("<title>") == 1 + 6
    assert "currentColor" in page
    plot(results, "augment", "auc", None, tmp_path / "words.svg")


def test_a_plot_that_can_not_be_is_refused(tmp_path: Path) -> None:
    results = small(tmp_path / "run")
    with pytest.raises(Mistake, match=r"f\.pdf: .*allowed: \.png, \.svg, \.html"):
        plot(results, "batch_size", "train_s", None, tmp_path / "f.pdf")
    with pytest.raises(Mistake, match="no column 'batchsize'; did you mean 'batch_size'"):
        plot(results, "batchsize", "train_s", None, tmp_path / "f.png")
    with pytest.raises(Mistake, match="can't be written"):
        plot(results, "batch_size", "train_s", None, tmp_path / "none" / "f.png")
    packed = Results.load(write_run(tmp_path / "packed", a=[record(k, packed_with=3) for k in range(4)]))
    with pytest.raises(Mistake, match="trained in a pack"):
        plot(packed, "batch_size", "train_s", None, tmp_path / "f.png")
    report(packed, tmp_path / "packed.html")


def test_names_with_signs_are_shown_as_they_are(tmp_path: Path) -> None:
    names = ["_hidden", "$x^2$", "50 %", "風", "a\nb"]
    records = [trial(k, 0, 1.0 + k, 0.5, batch_size=k % 3, kind=names[k // 3]) for k in range(15)]
    results = Results.load(write_run(tmp_path / "run", a=records))
    plot(results, "batch_size", "train_s", "kind", tmp_path / "f.svg")
    text = (tmp_path / "f.svg").read_text()
    assert all(name in text for name in ("_hidden", "$x^2$", "50 %", "風", r"a\nb"))
    plot(results, "batch_size", "train_s", "kind", tmp_path / "f.png")


def test_a_report_holds_everything_and_needs_nothing(tmp_path: Path) -> None:
    failures = [
        record(90 + k, state="failed", reason=f"ValueError: {EVIL}", error={"traceback": f"here {EVIL}"}, times={})
        for k in range(3)
    ]
    results = small(tmp_path / "run", failures)
    report(results, tmp_path / "r.html", [("Advice", f"take {EVIL}\nor not")])
    page = inside((tmp_path / "r.html").read_text())
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    # two measures by batch size and as heat maps, effects, curves, front
    assert page.count("<svg") == page.count("<figure>") == 7
    assert len(re.findall(r'\bid="([^"]+)"', page)) == len(set(re.findall(r'\bid="([^"]+)"', page)))
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        xml.etree.ElementTree.fromstring(svg)
    assert "<b>12</b><span>done</span>" in page
    assert "<b>3</b><span>failed</span>" in page
    assert "auc 0.9036" in page
    assert '<h2 id="s1">Advice</h2>' in page
    assert "<td>failed</td><td>ValueError: &lt;script&gt;alert(1)&lt;/script&gt;</td><td>3</td><td>90</td>" in page
    assert "here &lt;script&gt;" in page
    assert "cpu AMD EPYC" in page
    assert "train_s (median, n = 2) · purpose time · machine AMD EPYC 2-core d6d73a09 · 3 failed left out" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def by_devices(path: Path) -> Results:
    """Devices × batch sizes × augmentation, with what is exchanged, waited for and prepared."""
    records = []
    for k, (devices, size, augment) in enumerate(product((1, 2, 4), (64, 256), ("live", "pre"))):
        epoch_s = 8 / devices + 64 / size + (augment == "live")
        times = {"data_s": 1.0, "train_s": 10 * epoch_s, "test_s": 0.5, "wall_s": 10 * epoch_s + 1.5}
        times |= {"prepare_s": 60.0 * (augment == "pre"), "epoch_s": epoch_s}
        config = {"epochs": 10, "batch_size": size, "devices": devices, "augment": augment}
        beside = {"communication_s": float(devices > 1), "wait_s": 0.25, "purpose": "time"}
        records.append(record(k, config=config, times=times, scores={"auc": 0.9}, last={}, **beside))
    return Results.load(write_run(path, a=records))


def test_a_report_on_devices_shows_the_fit_the_shares_and_the_break_even(tmp_path: Path) -> None:
    results = by_devices(tmp_path / "run")
    by, bars = time_shares(results)
    assert (by, [bar.label for bar in bars], [bar.n for bar in bars]) == ("devices", [1, 2, 4], [4] * 3)
    computing = 10 * (8 / 2 + (1 + 0.25) / 2 + 0.5)
    assert bars[1].seconds == pytest.approx(
        {"loading": 1.0, "computing": computing - 1.25, "waiting for data": 0.25, "exchange": 1.0, "test": 0.5}
    )
    lines = scaling_curves(forecast(results), 2)
    assert [line.devices for line in lines] == [[1, 2, 4]] * 2
    assert lines[0].measured == pytest.approx([10 * (8 / n + 2) + 1.5 for n in (1, 2, 4)])
    assert lines[0].at == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(one.low < one.seconds < one.high for one in lines[0].fitted)
    report(results, tmp_path / "r.html")
    page = inside((tmp_path / "r.html").read_text())
    for title in (
        "What matters", "Where the time goes by devices", "wall_s by devices, measured and fitted",
        "Augmentation live against ahead of time",
    ):  # fmt: skip
        assert f"<b>{title}.</b>" in page
    assert "preparing pays from 60 epochs on" in page
    assert "exchange: " in page
    assert re.search(r"<td>4</td><td>41.5</td><td>1</td><td>2.446</td><td>61%</td><td>–</td>", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_paper_beside_a_run_has_its_section_and_long_tables_are_folded(tmp_path: Path) -> None:
    lines = [(str(k), "x") for k in range(LONG + 1)]
    assert grid(("a", "b"), lines[:-1]).startswith('<div class="wide">')
    assert grid(("a", "b"), lines).startswith(f"<details><summary>{LONG + 1} rows</summary>")
    import_printed("basalyga/table8", tmp_path / "run")
    report(Results.load(tmp_path / "run"), tmp_path / "r.html")
    page = inside((tmp_path / "r.html").read_text())
    assert "Beside the paper: " in page
    assert re.search(r"<details><summary>\d+ rows</summary>", page)


def test_a_report_is_made_of_failures_alone_and_of_nothing(tmp_path: Path) -> None:
    failures = [record(k, state="failed", reason="boom", times={}, scores={}, last={}) for k in range(4)]
    for name, records in (("failed", failures), ("nothing", []), ("one", [record(0)])):
        report(Results.load(write_run(tmp_path / name, a=records)), tmp_path / f"{name}.html")
        inside((tmp_path / f"{name}.html").read_text())
    assert "<td>failed</td><td>boom</td><td>4</td><td>0</td>" in (tmp_path / "failed.html").read_text()
    assert "No trial has ended yet" in (tmp_path / "nothing.html").read_text()


def test_a_report_goes_only_where_it_can(tmp_path: Path) -> None:
    results = small(tmp_path / "run")
    with pytest.raises(Mistake, match=r"allowed: \.html"):
        report(results, tmp_path / "r.pdf")
    with pytest.raises(Mistake, match="there is no folder"):
        report(results, tmp_path / "none" / "r.html")


def test_a_report_of_a_hundred_thousand_records_is_quick_and_small(tmp_path: Path) -> None:
    results = Results.load(write_run(tmp_path / "run", a=map(record, range(100_000))))
    with Took() as took:
        report(results, tmp_path / "r.html")
    assert took.s < 8
    page = inside((tmp_path / "r.html").read_text())
    assert page.count("<svg") == 6  # no curves were kept, and nothing here matters: where the time goes
    assert "of them shown" in page


def test_a_report_opens_in_a_browser_without_errors(tmp_path: Path, chromium: str) -> None:
    report(small(tmp_path / "run"), tmp_path / "r.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--window-size=1100,3200"]
    places = [f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={tmp_path / 'r.png'}"]
    call = [chromium, *flags, *places, (tmp_path / "r.html").as_uri()]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=True)
    assert ":CONSOLE" not in done.stderr
    assert (tmp_path / "r.png").stat().st_size > 50_000


def test_a_notebook_shows_the_counts_and_the_first_trials(tmp_path: Path) -> None:
    extra = [record(90, state="failed", reason="boom", times={}, scores={}, last={})]
    page = small(tmp_path / "run", extra)._repr_html_()
    assert "12 done, 0 pruned, 0 stopped, 1 failed; 0 duplicates, 0 damaged lines" in page
    assert EVIL not in page
    assert page.count("<tr>") == 1 + 10
    assert "<td>0</td><td>done</td>" in page
    assert "<p>and 3 more</p>" in page
    xml.etree.ElementTree.fromstring(f"<div>{page}</div>")
    assert "0 done" in Results.load(write_run(tmp_path / "empty"))._repr_html_()


def test_the_network_of_the_best_trial_is_asked_for_without_importing_anything_else(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a=[record(0)])
    code = f"from tradewind.results import Results; Results.load({str(tmp_path / 'run')!r}).best().model()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "left no weights" in done.stderr.splitlines()[-1]


def test_the_history_of_a_search_goes_by_the_order_of_ends_and_never_gets_worse(tmp_path: Path) -> None:
    losses = [3.0, 1.0, 2.0, 0.5, 0.7]
    states = ["done", "done", "done", "pruned", "done"]
    ends = [5.0, 1.0, 2.0, 3.0, 4.0]
    records = [
        record(k, config={"x": k}, scores={"loss": loss}, last={}, state=state, finished=end)
        for k, (loss, state, end) in enumerate(zip(losses, states, ends, strict=True))
    ]
    found = history(Results.load(write_run(tmp_path / "run", a=records)))
    assert found is not None
    assert (found.metric, found.lower, found.trials) == ("loss", True, [1, 2, 3, 4, 0])
    assert found.values == [1.0, 2.0, 0.5, 0.7, 3.0]
    assert found.pruned == [False, False, True, False, False]
    assert found.best == [1.0, 1.0, 1.0, 0.7, 0.7]


def test_the_report_of_a_search_begins_with_its_best_and_its_history_and_has_no_endless_digits(
    tmp_path: Path,
) -> None:
    results = drawn(tmp_path / "run")
    report(results, tmp_path / "run.html")
    page = inside((tmp_path / "run.html").read_text())
    titles = re.findall(r'<h2 id="s\d+">([^<]*)</h2>', page)
    assert titles[:2] == ["Best config", "Optimisation history"]
    tables = page[page.index(">Tables</h2>") : page.index(">Figures</h2>")]
    assert tables.count("<tr>") <= 12  # bins, not a row for each of 60 trials
    assert "0.0001 – 0.0003548" in tables
    shown = re.sub(r"<svg.*?</svg>|<pre.*?</pre>", "", page, flags=re.DOTALL)
    assert not re.findall(r"\d\.0*[1-9]\d{5,}", shown)
