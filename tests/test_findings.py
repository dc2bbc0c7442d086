"""The papers' studies, their numbers, and whether a run bears their findings out."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from test_results import Record, record

from tradewind import Results, Study, studies
from tradewind.analysis.evidence import Evidence, epochs_to_stable, rank_correlation
from tradewind.analysis.findings import (
    BORNE_OUT,
    BY_DEFINITION,
    CANNOT_BE_SAID,
    CROWDED,
    DISTURBED,
    FAILED,
    MISSED,
    NOT_BORNE_OUT,
    NOT_MEASURED,
    OVERCOME,
    UNSTABLE,
    PaperBeside,
    paper_beside,
    runs_beside,
    study_of,
)
from tradewind.analysis.papers import FINDINGS, WITH_CURVES
from tradewind.errors import StudyError
from tradewind.folder import RunFolder
from tradewind.imports import import_results
from tradewind.journal import Journal, new_owner
from tradewind.report.findings import findings_markdown, findings_page, findings_section, summary_markdown
from tradewind.schedule.trials import Trials
from tradewind.studies.published import PAPERS, PLACES, base, import_printed, printed

ROOT = Path(__file__).parents[1]
PUBLISHED = Path(os.environ.get("TRADEWIND_PUBLISHED", ROOT.parent / "shared" / "published"))
WITH_NUMBERS = [name for name, place in PLACES.items() if place.file]
NOT_IN_NUMBERS = {"strong scaling follows the sequential run": CANNOT_BE_SAID}  # the paper prints no epochs
Change = Callable[[dict[str, Any]], float | None]


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    """The papers' own numbers as runs, side by side under their usual names."""
    folder = tmp_path_factory.mktemp("papers")
    for name in WITH_NUMBERS:
        import_printed(name, folder / name.replace("/", "-"))
    return {name: Results.load(folder / name.replace("/", "-")) for name in WITH_NUMBERS}


def beside(results: Results, *others: Results) -> PaperBeside:
    found = paper_beside(results, others)
    assert found is not None
    return found


def verdicts(found: PaperBeside) -> dict[str, str]:
    return {one.claim: one.verdict for one in found.verdicts}


def numbers(found: PaperBeside, claim: str) -> dict[str, Any]:
    return next(one.numbers for one in found.verdicts if claim in one.claim)


def changed(tmp_path: Path, study: str, change: Change) -> Results:
    """The paper's numbers with every value of every row passed through `change`."""
    place = PLACES[study]
    document = json.loads((PAPERS / place.file).read_text())
    node = document
    for part in place.at.split("."):
        node = node[part]
    if place.nested:
        for rule, line in node.items():
            for devices in line:
                line[devices] = change({"scaling": rule, "devices": int(devices), "value": line[devices]})
    else:
        measures = list(printed(study).rows[0].values)  # type: ignore[union-attr]
        for row in node if isinstance(node, list) else node["rows"]:
            name = next(n for n in (*measures, "accuracy_percent") if n in row)
            row[name] = change({**row, "value": row[name]})
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / place.file).write_text(json.dumps(document))
    rename = {"level1": "scaling", "level2": "devices"} if place.nested else {}
    import_results(tmp_path / place.file, tmp_path / "run", place.at, rename=rename)
    return Results.load(tmp_path / "run")


def ran(
    path: Path, study: str, records: list[Record], curves: Sequence[Sequence[Any]] | None = None, **data: Any
) -> Results:
    """A run folder of a bundled study with these records on a host of 2 cores, and curves of validation accuracy.

    A curve may hold several scores for each epoch.
    """
    content = Study.load(studies.path_of(study))
    content = content.model_copy(update={"data": {**content.data, **data}})
    folder = RunFolder.create(path)
    folder.keep_edition(content.digest(), content.edition(["accuracy"], {}))
    folder.keep_machine("two cores", {"cores": 2})
    journal = Journal(folder, new_owner())
    for one, curve in zip(records, curves or [[]] * len(records), strict=True):
        rows = [y if isinstance(y, dict) else {"validation_accuracy": y} for y in curve]
        journal.finished(one, [{"epoch": k, **row} for k, row in enumerate(rows, 1)])
    journal.settle()
    journal.close()
    return Results.load(path)


def trial(number: int, device: str, seconds: float, **config: Any) -> Record:
    """A record on this kind of device with this wall time."""
    settings = {"augment": "pre", "learning_rate": 0.001, "device": "auto", "devices": 1, **config}
    times = {"wall_s": seconds, "epoch_s": [9 * seconds, seconds, seconds]}
    return record(
        number, config=settings, times=times, scores={"accuracy": 0.9}, last={}, device=device, purpose="time",
        devices=settings["devices"],
    )  # fmt: skip


@pytest.mark.parametrize("name", studies.names())
def test_a_bundled_study_is_valid_and_has_as_many_trials_as_it_says(name: str) -> None:
    study = Study.load(studies.path_of(name))
    assert study.name == name
    said = re.search(r"\((\d+) trials?, .+\)$", study.description)
    assert said, study.description
    assert Trials(study).count() == (int(said[1]), True)


def test_every_table_and_figure_has_a_small_and_a_full_study_and_findings() -> None:
    wanted = {f"{name}{size}" for name in PLACES for size in ("", "-full")}
    assert wanted | {"quick"} == set(studies.names())
    assert PLACES.keys() == FINDINGS.keys()
    tables = {f"basalyga/table{n}" for n in range(2, 10)} | {f"basalyga/figure{n}" for n in (2, 6, 7, 8)}
    assert tables <= PLACES.keys()
    for name in PLACES:
        small = json.loads(studies.text(name))
        assert "2 cores" in small["description"]
        assert small["fixed"].get("device", "auto") != "cuda"


def test_the_listing_is_grouped_by_paper_and_a_study_is_printed_as_it_is(command: Cli) -> None:
    text = command("studies").stdout
    heads = [line for line in text.splitlines() if line and not line.startswith((" ", "run one"))]
    assert [head.split(",")[0].split(" ")[0] for head in heads] == ["To", "Basalyga", "Stevens:", "Cunha", "Nelson"]
    assert all(f"  {name} " in text for name in studies.names())
    assert json.loads(command("studies", "basalyga/table3").stdout)["space"]["data_multiplier"] == [1, 2, 4]
    answer = command("studies", "basalyga/table33")
    assert answer.returncode == 2
    assert "did you mean 'basalyga/table3'" in answer.stderr


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no {PUBLISHED}")
@pytest.mark.parametrize("file", sorted({place.file for place in PLACES.values() if place.file}))
def test_the_numbers_in_the_package_are_the_published_ones(file: str) -> None:
    ours, theirs = (json.loads((folder / file).read_text()) for folder in (PAPERS, PUBLISHED))
    assert {**ours, "source": ""} == {**theirs, "source": ""}


def test_published_numbers_are_found_by_study_and_config() -> None:
    table = printed("basalyga/table8-full")
    assert table is not None
    assert (table.device, table.machine, table.samples, table.varied) == (
        "cuda", "2x V100", 138_963, ["epochs", "batch_size"],
    )  # fmt: skip
    values = {(row.config["epochs"], row.config["batch_size"]): row.values for row in table.rows}
    assert values[100, 256] == {"accuracy": 0.9315}
    assert printed("basalyga/figure8") is None
    with pytest.raises(StudyError, match="no published numbers of 'basalyga/figure8'"):
        import_printed("basalyga/figure8", Path("nowhere"))


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_the_papers_own_numbers_bear_out_the_papers_own_findings(papers: dict[str, Results], name: str) -> None:
    results = papers[name]
    assert study_of(results) == name
    found = beside(results, *runs_beside(results))
    wanted = {finding.claim: BORNE_OUT for finding in FINDINGS[name]}
    assert verdicts(found) == {claim: NOT_IN_NUMBERS.get(claim, verdict) for claim, verdict in wanted.items()}
    ratios = [row.ratio for row in found.rows if row.measured is not None]
    assert ratios == pytest.approx([1.0] * len(ratios))
    assert len(found.rows) >= len(results)
    assert not found.differs


def test_the_numbers_behind_the_verdicts_are_those_of_the_tables(papers: dict[str, Results]) -> None:
    found = beside(papers["basalyga/table3"], papers["basalyga/table2"], papers["basalyga/table5"])
    assert numbers(found, "GPU")["ratio"] == pytest.approx(9.7086, abs=1e-4)
    assert numbers(found, "live")["ratio"] == pytest.approx(3.49524, abs=1e-5)
    assert (numbers(found, "live")["pairs"], numbers(found, "live")["least"]) == (54, 1.85)
    assert numbers(found, "epochs")["r2_least"] == pytest.approx(0.9774, abs=1e-4)
    speedup = numbers(beside(papers["basalyga/table7"]), "more GPUs")["speedup"]
    assert speedup[2] == pytest.approx(20 / 27)
    assert numbers(beside(papers["stevens/linear"]), "chokes")["s_per_gb"] == pytest.approx(0.455, abs=1e-3)
    strong = numbers(beside(papers["cunha/scaling"]), "always reaches")["speedup"]
    assert strong[32] == pytest.approx(32 * 0.4625)
    caltech = beside(papers["nelson/caltech"])
    assert numbers(caltech, "until stable")["epochs_per_doubling"] == pytest.approx(5.0, abs=0.1)
    assert numbers(caltech, "soonest")["times_s"][-1] == (8, 1100.0)


@pytest.mark.parametrize(
    ("study", "claim", "change"),
    [
        ("basalyga/table3", "linear in epochs", lambda r: r["value"] * r["epochs"] ** 2),
        ("basalyga/table3", "amount of data", lambda r: [30, 10, 25][r["data_multiplier"] // 2] + r["epochs"]),
        ("basalyga/table3", "falls with the batch", lambda r: 10.0 * r["epochs"]),
        ("basalyga/table2", "falls with the batch", lambda r: 1e6 * r["epochs"] / r["batch_size"]),
        (
            "basalyga/table3",
            "falls with the batch",
            lambda r: r["epochs"] * (9 if r["batch_size"] in (128, 4096) else 3),
        ),
        ("basalyga/table5", "plays no part", lambda r: 1e4 * r["epochs"] / r["batch_size"]),
        ("basalyga/table6", "more GPUs", lambda r: r["value"] / r["gpus"]),
        ("basalyga/table8", "accuracy falls", lambda r: 90 + r["epochs"] / 1000 + r["batch_size"] / 1e6),
        ("stevens/linear", "quickest on one", lambda r: 10 / r["batch_size"] / r["gpus"]),
        ("stevens/linear", "same time", lambda r: 10 / r["batch_size"] / r["gpus"]),
        ("stevens/linear", "chokes", lambda r: 1 + (r["batch_size"] % 3)),
        ("cunha/scaling", "soonest of all", lambda r: 50.0 if r["scaling"] == "strong" else 60.0),
        ("cunha/scaling", "always reaches", lambda r: None if r["devices"] == 8 else r["value"]),
        ("cunha/scaling", "beyond two", lambda r: 100.0),
        ("cunha/scaling", "diverges", lambda r: r["value"] or 50.0),
        ("cunha/scaling", "warm-up", lambda r: r["value"] or 50.0),
        ("nelson/fruit", "halve the epoch", lambda r: 20.0),
        ("nelson/caltech", "halve the epoch", lambda r: 209.0),
    ],
)
def test_numbers_against_a_finding_do_not_bear_it_out(
    tmp_path: Path, study: str, claim: str, change: Change
) -> None:  # fmt: skip
    found = beside(changed(tmp_path / "changed", study, change))
    assert [one.verdict for one in found.verdicts if claim in one.claim] == [NOT_BORNE_OUT]


def test_findings_on_two_tables_can_be_contradicted_too(tmp_path: Path, papers: dict[str, Results]) -> None:
    quick = changed(tmp_path / "live", "basalyga/table5", lambda row: row["value"] / 3.4)
    found = beside(papers["basalyga/table3"], quick)
    assert numbers(found, "live")["ratio"] == pytest.approx(3.49524 / 3.4, rel=1e-4)
    assert verdicts(found)["live augmentation takes far longer than augmentation ahead of time"] == NOT_BORNE_OUT
    slow = changed(tmp_path / "cpu", "basalyga/table2", lambda row: row["value"] * 10)
    assert (
        verdicts(beside(papers["basalyga/table3"], slow))["a GPU is 10 to 12 times as fast as CPUs"] == NOT_BORNE_OUT
    )


def test_what_a_run_is_too_small_for_can_not_be_said_and_it_says_what_is_missing(tmp_path: Path) -> None:
    records = [trial(n, "cuda", 1.0 + n, epochs=e, batch_size=128, data_multiplier=1) for n, e in enumerate((5, 10))]
    found = beside(ran(tmp_path / "run", "basalyga/table3-full", records))
    assert set(verdicts(found).values()) == {CANNOT_BE_SAID}
    reasons = {one.claim: one.text for one in found.verdicts}
    assert reasons["time is linear in epochs"] == (
        "it takes times at 3 values of epochs, all else equal, for 3 configs"
    )
    assert reasons["a GPU is 10 to 12 times as fast as CPUs"].startswith("it takes times on a CPU and on a GPU")
    packed = [replace_fields(one, packed_with=4, purpose="tune") for one in records]
    again = beside(ran(tmp_path / "packed", "basalyga/table3-full", packed))
    assert "trained in packs" in again.verdicts[0].text
    assert {row.measured for row in again.rows} == {None}


def replace_fields(one: Record, **fields: Any) -> Record:
    return {**one, **fields}


DATA = [
    "synthetic data here", "no dropout here, by which the paper explains its curves",
    "wind vectors turn with the grid here, not there",
    "storms as they occur here; the paper can be read so, or as with rotating storms 19 times",
]  # fmt: skip


def different(devices: int, there: str) -> list[str]:
    """In what the machine of these records differs from that of the papers on storms."""
    return [f"{devices} × AMD EPYC 2-core here, {there} there", "PyTorch here, Keras on TensorFlow there"]


def agreed(results: Results) -> bool | None:
    """What the first finding's own rule says of a run, whatever differs from the paper."""
    study = base(study_of(results))
    return FINDINGS[study][0].judge(Evidence([results], study.startswith(WITH_CURVES)))[0]


def test_a_finding_that_rests_on_what_differs_can_not_be_said_and_says_in_what(tmp_path: Path) -> None:
    sizes = (128, 512, 2048)
    records = [
        {**trial(n, "cuda", 1.0, batch_size=b, epochs=5), "scores": {"accuracy": 0.95 - b / 50_000, "pod": 0.5}}
        for n, b in enumerate(sizes)
    ]
    found = beside(ran(tmp_path / "run", "basalyga/table8-full", records))
    (verdict,) = found.verdicts
    assert verdict.verdict == CANNOT_BE_SAID
    assert verdict.text.startswith(
        f"the study differs in what decides it: {'; '.join(DATA[1:])}; seen: rank correlation"
    )
    assert verdict.differs == [*DATA, "devices 1 here, 2 there"]
    assert {row.ratio for row in found.rows} == {None}  # accuracies of other storms


def test_a_replaced_tool_is_overcome_and_never_refuted(tmp_path: Path) -> None:
    pre = ran(tmp_path / "pre", "basalyga/table3-full", [
        trial(n, "cuda", 1.0 * e, epochs=e, augment="pre", batch_size=128) for n, e in enumerate((5, 10, 15))
    ])  # fmt: skip
    live = ran(tmp_path / "live", "basalyga/table5-full", [
        trial(n, "cuda", 1.1 * e, epochs=e, augment="live", batch_size=128) for n, e in enumerate((5, 10, 15))
    ])  # fmt: skip
    claim = "live augmentation takes far longer than augmentation ahead of time"
    found = beside(pre, live)
    assert verdicts(found)[claim] == OVERCOME
    verdict = next(one for one in found.verdicts if one.claim == claim)
    assert verdict.text.startswith("it is said of the live augmentation of Keras, which is not used here; live takes")
    assert verdict.numbers["ratio"] == pytest.approx(1.1)


def test_what_rests_on_a_trial_whose_loading_was_disturbed_can_not_be_said(tmp_path: Path) -> None:
    records = []
    for n, (e, m) in enumerate((e, m) for e in (5, 10, 15) for m in (1, 2, 4)):
        one = trial(n, "cuda", 0.1 * e * m, epochs=e, data_multiplier=m, batch_size=32768)
        data_s = 13.4 if (e, m) == (10, 2) else 1.0
        times = {**one["times"], "data_s": data_s, "wall_s": 0.1 * e * m + data_s}
        records.append({**one, "times": times})
    found = beside(ran(tmp_path / "run", "basalyga/table6-full", records))
    assert verdicts(found)["time is linear in epochs"] == CANNOT_BE_SAID
    assert found.verdicts[0].text.startswith("a trial was disturbed; ")
    noted = [
        (row.config["epochs"], row.config["data_multiplier"], row.note) for row in found.rows if row.note == DISTURBED
    ]
    assert noted == [(10, 2, DISTURBED)]


def test_curves_that_must_be_equal_confirm_nothing(tmp_path: Path) -> None:
    configs = [(d, b) for d in (1, 2) for b in (128, 512)]
    records = [trial(n, "cpu", 1.0, devices=d, batch_size=b, epochs=3) for n, (d, b) in enumerate(configs)]
    run = ran(tmp_path / "run", "basalyga/figure6", records, [[0.9, 0.91, 0.92]] * 4)
    assert agreed(run) is None
    assert "equal by construction" in beside(run).verdicts[0].text


def test_a_table_that_was_not_run_is_named(papers: dict[str, Results]) -> None:
    text = summary_markdown([beside(papers["basalyga/table3"])])
    lines = [line for line in text.splitlines() if "| not run |" in line]
    assert len(lines) == len(PLACES) - 1
    assert any("Nelson 2021" in line for line in lines)


def test_a_run_of_the_full_size_on_a_gpu_has_ratios_and_several_gpus_read_not_measured(tmp_path: Path) -> None:
    configs = [(e, m) for e in (5, 10, 15) for m in (1, 2, 4)]
    records = [
        trial(n, "cuda", 0.5 * e * m, epochs=e, data_multiplier=m, batch_size=128)
        for n, (e, m) in enumerate(configs)
    ]  # fmt: skip
    found = beside(ran(tmp_path / "run", "basalyga/table7-full", records))
    alone = [row for row in found.rows if row.config["devices"] == 1]
    assert [row.ratio for row in alone[:2]] == pytest.approx([2.5 / 20, 5 / 38])
    assert [row.n for row in alone] == [1] * 9
    others = [row for row in found.rows if row.config["devices"] > 1]
    assert {(row.note, row.measured, row.ratio) for row in others} == {(NOT_MEASURED, None, None)}
    assert verdicts(found)["more GPUs for one network are no faster"] == CANNOT_BE_SAID
    assert verdicts(found)["time is linear in epochs"] == BORNE_OUT
    assert found.differs == [*different(1, "V100"), *DATA]


def test_two_gpus_there_and_one_here_is_said_beside_the_ratio(tmp_path: Path) -> None:
    records = [trial(n, "cuda", 3.1, epochs=5, batch_size=b, data_multiplier=1) for n, b in enumerate((128, 256))]
    found = beside(ran(tmp_path / "run", "basalyga/table9-full", records))
    assert found.differs == [*different(1, "2x V100"), *DATA, "devices 1 here, 2 there"]
    assert found.rows[0].ratio == pytest.approx(0.1)


def test_a_cpu_is_never_put_in_ratio_to_a_gpu_and_fewer_samples_neither(tmp_path: Path) -> None:
    configs = [(e, m) for e in (5, 10, 15) for m in (1, 2, 4)]
    records = [
        trial(n, "cpu", 5.0 * e * m, epochs=e, batch_size=128, data_multiplier=m) for n, (e, m) in enumerate(configs)
    ]
    on_cpu = beside(ran(tmp_path / "cpu", "basalyga/table3-full", records))
    assert on_cpu.differs[0] == "CPU here, GPU there"
    small = beside(ran(tmp_path / "small", "basalyga/table2", records))
    assert small.differs[0] == "1,024 training samples here, 138,963 there"
    for found in (on_cpu, small):
        assert {row.ratio for row in found.rows} == {None}
        assert sum(row.measured is not None for row in found.rows) == 9
        assert verdicts(found)["time is linear in epochs"] == BORNE_OUT
        assert "so there is no ratio" in findings_page(found)
    full = beside(ran(tmp_path / "full", "basalyga/table2-full", records))
    assert full.rows[0].ratio == pytest.approx(25 / 195)


def test_processes_that_stand_in_for_devices_are_labelled_so(tmp_path: Path) -> None:
    configs = [(d, b) for d in (1, 2) for b in (10, 100, 600)]
    records = [
        trial(n, "cpu", (0.1 + 0.2 * (d - 1)) * 600 / b, devices=d, batch_size=b, network="linear")
        for n, (d, b) in enumerate(configs)
    ]  # fmt: skip
    found = beside(ran(tmp_path / "run", "stevens/linear", records))
    first = found.verdicts[0]
    assert first.verdict == BORNE_OUT
    assert first.text.endswith("(CPU processes stand in for devices)")
    assert found.differs == [
        "CPU here, GPU there", "600 training samples here, 2,000 there",
        "2 × AMD EPYC 2-core here, GTX 1080 Ti there", "synthetic data here",
        "the paper's times include reading WAV files",
    ]  # fmt: skip
    assert {row.ratio for row in found.rows} == {None}
    # the first epoch is not counted
    assert next(
        row for row in found.rows if row.config == {"devices": 1, "batch_size": 100}
    ).measured == pytest.approx(0.6)


def test_the_bytes_of_the_choke_are_the_measured_ones_where_there_are_any(tmp_path: Path) -> None:
    records = [
        replace_fields(
            trial(n, "cpu", 2e-9 * count, devices=2, batch_size=b, epochs=3), bytes_exchanged=3 * count, epochs_run=3
        )
        for n, (b, count) in enumerate([(10, 1e9), (20, 5e8), (50, 2e8)])
    ]  # fmt: skip
    found = beside(ran(tmp_path / "run", "stevens/linear", records))
    assert numbers(found, "chokes") == {
        "r2": pytest.approx(1.0),
        "s_per_gb": pytest.approx(2.0),
        "bytes_measured": True,
    }


def test_rules_that_miss_the_target_are_told_from_those_not_run(tmp_path: Path) -> None:
    cases = [("strong", 1, 8.0), ("strong", 2, 5.0), ("weak", 2, 6.0), ("linear", 2, None)]
    records = []
    for n, (rule, devices, seconds) in enumerate(cases):
        one = trial(n, "cpu", 9.0, scaling=rule, devices=devices, warmup_epochs=5)
        done = {"state": "done", "times": {**one["times"], "time_to_target_s": seconds}}
        records.append({**one, **(done if seconds else {"state": "stopped", "reason": "max_epochs"})})
    found = beside(ran(tmp_path / "run", "cunha/scaling", records))
    notes: dict[Any, Any] = {
        (row.config["scaling"], row.config["devices"]): (row.measured, row.note) for row in found.rows
    }
    assert notes["strong", 2] == (pytest.approx(0.8), "")
    assert notes["weak", 1] == (1.0, BY_DEFINITION)  # on one device all rules are one
    assert notes["linear", 2] == (None, MISSED)
    assert notes["linear-warmup", 2] == (None, NOT_MEASURED)
    assert [one.verdict for one in found.verdicts] == [
        BORNE_OUT, BORNE_OUT, CANNOT_BE_SAID, CANNOT_BE_SAID, BORNE_OUT, CANNOT_BE_SAID,
    ]  # fmt: skip
    assert "strong is soonest in 2 of 2 comparisons" in found.verdicts[0].text
    assert found.measured_on.endswith("trials: 3 done, 1 stopped")


def to_target(number: int, rule: str, devices: int, epochs: int | None, **config: Any) -> Record:
    """A record of a trial on two cores that took so many epochs, of a second each, to its target, or missed it."""
    settings = {"scaling": rule, "devices": devices, "warmup_epochs": 5, **config}
    one = {**trial(number, "cpu", 1.0, **settings), "machine": "two cores", "epochs_run": epochs or 40}
    if epochs is None:
        return {**one, "state": "stopped", "reason": "max_epochs"}
    return {**one, "times": {**one["times"], "time_to_target_s": float(epochs)}}


def test_epochs_tell_whether_strong_scaling_follows_the_sequential_run(tmp_path: Path) -> None:
    cases = [("strong", 1, 8), ("strong", 2, 9), ("strong", 4, 8), ("weak", 2, 13), ("linear", 2, None)]
    records = [to_target(n, *case) for n, case in enumerate(cases)]
    found = beside(ran(tmp_path / "run", "cunha/scaling", records))
    follows = next(one for one in found.verdicts if "follows" in one.claim)
    assert (follows.verdict, follows.numbers) == (BORNE_OUT, {"epochs": {1: 8, 2: 9, 4: 8}, "most": 1})
    assert follows.text == (
        "epochs to the target by devices: strong 1: 8, 2: 9, 4: 8; weak 2: 13; linear 2: missed "
        "(CPU processes stand in for devices)"
    )
    records[2] = to_target(2, "strong", 4, 11)
    apart = beside(ran(tmp_path / "apart", "cunha/scaling", records))
    assert verdicts(apart)["strong scaling follows the sequential run"] == NOT_BORNE_OUT


def test_more_processes_than_cores_are_shown_but_no_finding_on_time_rests_on_them(tmp_path: Path) -> None:
    cases = [
        ("strong", 1, 8),
        ("strong", 2, 5),
        ("strong", 4, 20),
        ("weak", 2, 6),
        ("weak", 4, 9),
        ("linear", 4, None),
    ]
    records = [to_target(n, *case) for n, case in enumerate(cases)]
    found = beside(ran(tmp_path / "run", "cunha/scaling", records))
    always = next(one for one in found.verdicts if "always reaches" in one.claim)
    assert (always.verdict, list(always.numbers["speedup"])) == (BORNE_OUT, [1, 2])
    assert "times of 4 processes, more than there are cores, left out" in always.text
    assert verdicts(found)["weak scaling gains little beyond two devices"] == CANNOT_BE_SAID
    assert verdicts(found)["the linear rule diverges on several devices"] == BORNE_OUT  # that needs no time
    shown = {(row.config["scaling"], row.config["devices"]): row.measured for row in found.rows}
    assert shown["strong", 4] == pytest.approx(8 / (4 * 20))
    assert [row.config["devices"] for row in found.rows if row.note == CROWDED] == [4, 4]
    missed = [to_target(2, "strong", 4, None) if n == 2 else one for n, one in enumerate(records)]
    again = beside(ran(tmp_path / "missed", "cunha/scaling", missed))
    always = next(one for one in again.verdicts if "always reaches" in one.claim)
    assert always.verdict == NOT_BORNE_OUT
    assert "the target was missed on 4" in always.text


def test_times_of_a_busy_machine_decide_nothing_and_what_needs_no_time_stays(tmp_path: Path) -> None:
    cases = [("strong", 1, 8), ("strong", 2, 5), ("linear", 2, None)]
    records = [to_target(n, *case) for n, case in enumerate(cases)]
    steady = beside(ran(tmp_path / "steady", "cunha/scaling", records))
    for one, epochs in zip(records, ([9.0, 1.0, 1.3], [9.0, 1.3, 1.0], [9.0, 1.0, 1.02]), strict=True):
        one["times"]["epoch_s"] = epochs
    busy = beside(ran(tmp_path / "busy", "cunha/scaling", records))
    claim = "strong scaling always reaches the target, sooner with more devices"
    assert (verdicts(steady)[claim], verdicts(busy)[claim]) == (BORNE_OUT, CANNOT_BE_SAID)
    text = next(one.text for one in busy.verdicts if one.claim == claim)
    assert text.endswith("; but the machine was busy: 26% between an epoch and the next")
    assert verdicts(busy)["the linear rule diverges on several devices"] == BORNE_OUT


def test_the_paper_warms_up_for_five_epochs_and_so_does_what_stands_beside_it(tmp_path: Path) -> None:
    cases = [("strong", 1, 8, 5), ("linear-warmup", 2, 6, 10), ("linear-warmup", 2, 16, 5)]
    records = [to_target(n, rule, d, e, warmup_epochs=w) for n, (rule, d, e, w) in enumerate(cases)]
    found = beside(ran(tmp_path / "run", "cunha/scaling", records))
    row = next(row for row in found.rows if row.config == {"scaling": "linear-warmup", "devices": 2})
    assert row.measured == pytest.approx(8 / (2 * 16))


def test_a_number_that_failed_or_never_became_stable_is_told_from_one_not_measured(tmp_path: Path) -> None:
    records = [trial(n, "cpu", 1.0, devices=d, batch_size=32, epochs=6) for n, d in enumerate((2, 4))]
    records[1] |= {"state": "failed", "times": {}, "scores": {}}
    found = beside(ran(tmp_path / "run", "nelson/caltech", records, [[0.1 * k for k in range(6)], []]))
    notes = {(row.config["devices"], row.measure): row.note for row in found.rows}
    assert notes[2, "epochs_to_stable"] == UNSTABLE
    assert (notes[2, "epoch_s"], notes[2, "train_accuracy"]) == ("", NOT_MEASURED)
    assert {notes[4, "epoch_s"], notes[4, "epochs_to_stable"]} == {FAILED}
    assert notes[8, "epoch_s"] == NOT_MEASURED
    html = findings_section(found)[1]
    assert "<th>note</th>" in html
    assert "&quot;&quot;" not in html
    assert found.measured_on.endswith("trials: 1 done, 1 failed")


@pytest.mark.parametrize(("drop", "verdict"), [(0.05, BORNE_OUT), (0.002, NOT_BORNE_OUT)])
def test_curves_of_equal_batch_per_device_are_compared(tmp_path: Path, drop: float, verdict: str) -> None:
    configs = [(1, 128), (2, 256), (1, 1024), (2, 2048)]
    records = [trial(n, "cpu", 1.0, devices=d, batch_size=b, epochs=4) for n, (d, b) in enumerate(configs)]
    curves = [[0.8 - drop * (d - 1), 0.9 - drop * (d - 1)] for d, _ in configs]
    run = ran(tmp_path / "run", "basalyga/figure8", records, curves)
    found = beside(run)
    assert agreed(run) == (verdict == BORNE_OUT)
    assert found.verdicts[0].verdict == CANNOT_BE_SAID
    assert found.verdicts[0].text.startswith("the study differs in what decides it: no dropout here")
    assert found.verdicts[0].numbers == {"groups": 2, "drop": pytest.approx(drop)}
    blind = [
        {
            **one,
            "last": {
                "validation_accuracy": 0.95,
                "validation_pod": 0.0 if one["config"]["batch_size"] > 256 else 0.5,
            },
        }
        for one in records
    ]
    both = [[{"validation_accuracy": 0.95, "validation_auc": 0.8 - 0.1 * (d - 1)}] * 2 for d, _ in configs]
    told = beside(ran(tmp_path / "blind", "basalyga/figure8", blind, both)).verdicts[0]
    assert (told.verdict, told.numbers["auc_drop"]) == (CANNOT_BE_SAID, pytest.approx(0.1))
    assert told.text.endswith("finding no positive at all (2 of 4 do so), so accuracy can't tell")
    bare = beside(ran(tmp_path / "bare", "basalyga/figure8", records))
    assert [one.verdict for one in bare.verdicts] == [CANNOT_BE_SAID]


def test_the_other_figures_are_judged_by_their_curves(tmp_path: Path) -> None:
    configs = [(d, b) for d in (1, 2) for b in (128, 512, 2048)]
    records = [trial(n, "cpu", 1.0, devices=d, batch_size=b, epochs=3) for n, (d, b) in enumerate(configs)]
    curves = [[0.9 - b / 20_000 + d / 1000] * 3 for d, b in configs]
    runs = [ran(tmp_path / n, f"basalyga/figure{n}", records, curves) for n in "67"]
    assert [agreed(run) for run in runs] == [True, True]
    six, seven = map(beside, runs)
    assert six.verdicts[0].numbers["spread"] == pytest.approx(0.001)
    assert seven.verdicts[0].numbers["change"] == pytest.approx(-0.096)
    assert seven.rows == []
    assert "prints no numbers" in findings_page(seven)


def test_accuracy_of_networks_that_find_no_positive_decides_nothing_and_auc_stands_beside(tmp_path: Path) -> None:
    sizes = (128, 512, 2048)
    found = []
    for pods in ((0.6, 0.4, 0.0), (0.6, 0.0, 0.0)):
        scores = [
            {"accuracy": 0.95 - b / 50_000, "auc": 0.9 - b / 5000, "pod": p} for b, p in zip(sizes, pods, strict=True)
        ]
        records = [
            {**trial(n, "cpu", 1.0, batch_size=b, epochs=5), "scores": score}
            for n, (b, score) in enumerate(zip(sizes, scores, strict=True))
        ]
        run = ran(tmp_path / str(pods[1]), "basalyga/table8", records)
        assert agreed(run) is (True if pods[1] else None)
        found.append(beside(run).verdicts[0])
    assert found[0].text.endswith("from the smallest to the largest batch -3.8 points, of AUC -0.384")
    assert found[1].text.endswith(
        "none is a point above the 94.0% of finding no positive at all (2 of 3 do so), so accuracy can't tell"
    )


def test_the_convolutional_network_and_the_images_are_judged_from_records(tmp_path: Path) -> None:
    configs = [(d, b) for d in (1, 2) for b in (10, 100)]
    records = [trial(n, "cpu", 2.0 / d, devices=d, batch_size=b, network="conv") for n, (d, b) in enumerate(configs)]
    conv = beside(ran(tmp_path / "conv", "stevens/conv", records))
    assert (conv.verdicts[0].verdict, conv.verdicts[0].numbers["pairs"]) == (BORNE_OUT, 1)
    records = [trial(n, "cpu", 6.0 / d, devices=d, batch_size=32, epochs=9) for n, d in enumerate((1, 2, 4))]
    curves = [[0.1 * min(k, late) for k in range(9)] for late in (2, 4, 6)]
    found = beside(ran(tmp_path / "caltech", "nelson/caltech", records, curves))
    assert numbers(found, "until stable")["epochs_per_doubling"] == pytest.approx(2.0)
    assert numbers(found, "halve the epoch")["gain"] == pytest.approx(2.0)
    measured = {(row.config["devices"], row.measure): row.measured for row in found.rows if row.measured is not None}
    assert (measured[2, "epochs_to_stable"], measured[4, "epochs_to_stable"]) == (5.0, 7.0)
    assert found.differs[:2] == ["CPU here, GPU there", "other data than the paper's"]


@pytest.mark.parametrize(
    ("scores", "epoch"),
    [
        ([0.1, 0.5, 0.8, 0.9, 0.9, 0.9, 0.9], 4),
        ([0.9] * 5, 1),
        ([0.1, 0.5, 0.9, 0.9, 0.2, 0.9, 0.9, 0.9], 3),  # one bad epoch is smoothed away
        ([0.1, 0.5, 0.9, 0.9, 0.2, 0.2, 0.9, 0.9, 0.9], 7),  # two are not
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], None),  # rising still
        ([0.9, 0.9], None),
    ],
)
def test_stable_is_the_epoch_from_which_on_the_score_stays_at_its_best(
    scores: list[float], epoch: int | None
) -> None:
    assert epochs_to_stable(scores) == epoch


def test_rank_correlation_knows_ties() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 25]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [1, 2, 2, 3]) == pytest.approx(0.948683, abs=1e-6)
    assert rank_correlation([1, 2], [5, 5]) == 0


def test_runs_beside_are_found_under_their_usual_names_alone(tmp_path: Path, papers: dict[str, Results]) -> None:
    names = {study_of(other) for other in runs_beside(papers["basalyga/table3"])}
    assert names == {"basalyga/table2", "basalyga/table5"}
    import_printed("basalyga/table3", tmp_path / "basalyga-table2")
    import_printed("basalyga/table3", tmp_path / "run")
    assert runs_beside(Results.load(tmp_path / "run")) == []
    import_printed("basalyga/table5", tmp_path / "table5")  # `--out runs/basalyga/table5`
    assert [study_of(other) for other in runs_beside(Results.load(tmp_path / "run"))] == ["basalyga/table5"]


def test_a_run_of_no_papers_study_has_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("epochs,wall_s\n1,2\n")
    import_results(tmp_path / "rows.csv", tmp_path / "run")
    assert paper_beside(Results.load(tmp_path / "run")) is None
    assert paper_beside(ran(tmp_path / "quick", "quick", [])) is None


def test_the_page_the_text_and_the_markdown_say_the_same(papers: dict[str, Results]) -> None:
    found = beside(papers["basalyga/table3"])
    title, html = findings_section(found)
    text, markdown = findings_page(found), findings_markdown(found)
    assert title == "Beside the paper: Basalyga 2021, Table 3 (Barajas 2019, Table II)"
    for shown in (html, text, markdown, summary_markdown([found])):
        assert shown.count("time is linear in epochs") == 1
        assert CANNOT_BE_SAID in shown
    assert html.count("<tr>") == 1 + 5 + 1 + 54
    assert "&quot;&quot;" not in html
    assert "<th>note</th>" not in html
    assert "<td>223</td><td>223</td><td>1</td><td>1</td>" in html
    assert "| 15 | 128 | 56 → 56 (1) | 110 → 110 (1) | 223 → 223 (1) |" in markdown
    assert "Published on: 4x V100." in text
    assert "    rule: median R² at least 0.98" in text
    strange = replace(found, verdicts=[replace(found.verdicts[0], text="<b>|</b>")])
    assert "<b>" not in findings_section(strange)[1]
    assert "<b>\\|</b>" in findings_markdown(strange)


def findings_script() -> Any:
    """bench/findings.py as a module."""
    spec = importlib.util.spec_from_file_location("bench_findings", ROOT / "bench" / "findings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_number_of_the_documentation_page_comes_from_the_results_files() -> None:
    script = findings_script()
    kept, found = script.from_files()
    page = (ROOT / "docs" / "findings.md").read_text()
    assert script.written(page, kept, found) == page
    assert "| live augmentation takes far longer than augmentation ahead of time | ↷ overcome here |" in page
    assert "| accuracy falls with the batch size | ? cannot be said |" in page
    text = page.partition(script.BEGIN)[0].partition("## Full size")[2]
    assert not re.findall(r"\d\.\d", text)  # no number of a measurement stands outside of the marks
    with pytest.raises(SystemExit, match="the page needs"):
        script.written("no marks", kept, found)


def test_the_runs_of_the_page_stand_in_the_order_of_the_papers(papers: dict[str, Results]) -> None:
    script = findings_script()
    found = script.sections([papers[name] for name in ("basalyga/table5", "basalyga/table3")])
    assert [one.study for one in found] == ["basalyga/table3", "basalyga/table5"]
