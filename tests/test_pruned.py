"""Answers where a search with halving pruned every trial: the last scores, marked as such."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, WriteStudy
from test_results import Record, record, write_run

from tradewind.dashboard.feed import Feed
from tradewind.dashboard.runs import summary
from tradewind.journal import Reading
from tradewind.results import Results
from tradewind.schedule.trials import Trials
from tradewind.study import Study


def pruned(number: int, batch_size: int, epochs: int, loss: float) -> Record:
    made = record(number, state="pruned", reason=f"pruned after epoch {epochs}", scores={}, last={"loss": loss})
    return {**made, "config": {"batch_size": batch_size, "devices": 1}, "epochs_run": epochs}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Of four, the one with the lowest loss was not trained longest."""
    trials = [pruned(0, 32, 1, 0.1), pruned(1, 64, 3, 0.4), pruned(2, 128, 3, 0.3), pruned(3, 256, 1, 0.2)]
    return write_run(tmp_path / "run", a=[*trials, record(4, state="failed", scores={}, last={})])


def test_the_best_of_pruned_trials_is_the_best_of_those_trained_longest(run: Path, command: Cli) -> None:
    best = Results.load(run).best()
    assert (best.record["trial"], best.value) == (2, 0.3)
    shown = command("best", "run").stdout.splitlines()[0]
    assert shown == "loss 0.3 (n = 1, lower is better) (pruned after epoch 3; no trial is done)"
    status = command("status", "run").stdout
    assert "loss 0.3 (n = 1, lower is better) in trial 2 (no trial is done: last scores of 4 pruned trials)" in status
    assert "  pruned   4\n" in status


def test_tables_advice_and_report_say_that_they_rest_on_pruned_trials(run: Path, command: Cli) -> None:
    table = command("table", "run", "--rows", "batch_size", "--columns", "devices", "--value", "loss").stdout
    assert table.startswith("loss (median, n = 1) · no trial is done: last scores of 4 pruned trials · 1 failed left")
    assert [line.split()[-1] for line in table.splitlines()[3:7]] == ["0.1", "0.4", "0.3", "0.2"]
    advice = json.loads(command("advise", "run", "--json").stdout)
    (best,) = [item for item in advice if item["topic"] == "best score"]
    assert "0.3" in best["text"]
    assert "batch_size 128" in best["text"]
    assert "no trial is done: last scores of 4 pruned trials" in best["text"]
    assert all(item["sure"] in ("weak", "not enough data") for item in advice if item["topic"] != "what was measured")
    command("report", "run", "--out", "r.html")
    page = Path("r.html").read_text()
    assert "loss 0.3 (n = 1, lower is better) (pruned after epoch 3; no trial is done)" in page
    assert "last scores of 4 pruned trials" in page


def test_where_a_trial_is_done_pruned_ones_decide_nothing(tmp_path: Path) -> None:
    done = record(1, scores={"loss": 0.9}, last={"loss": 0.9})
    results = Results.load(write_run(tmp_path / "run", a=[pruned(0, 32, 3, 0.1), done]))
    assert (results.best().value, results.caveat) == (0.9, "")
    assert results.decisive().tolist() == [False, True]


@pytest.mark.parametrize(
    ("search", "finishing"),
    [
        ({"halving": "asha", "trials": 20}, 1),  # 20 → 6 → 2, and none of two
        ({"halving": "asha", "trials": 60}, 2),
        ({"halving": "asha", "trials": 60, "eta": 2}, 3),
        ({"halving": "asha", "trials": 60, "epochs": 100}, 1),
        ({"halving": "hyperband", "trials": 20}, 2),  # those that begin with all epochs
    ],
)
def test_check_says_how_many_trials_finish(
    search: dict[str, Any], finishing: int, write_study: WriteStudy, command: Cli
) -> None:
    content = {
        "name": "s", "workload": "work:f", "space": {"x": {"low": 0.0, "high": 1.0}}, "fixed": {"epochs": 10},
        "search": {"method": "random", **search}, "repeats": 2,
    }  # fmt: skip
    path = write_study(content, "def f(config, trial):\n    return 1.0\n")
    assert Trials(Study.load(path)).finishing() == 2 * finishing
    said = f"  halving    at least {2 * finishing} of {2 * search['trials']} trials train to the end, the others are"
    assert said in command("check", "study.json").stdout


def test_terminal_status_and_page_count_the_epochs_of_a_search_that_prunes(
    write_study: WriteStudy, command: Cli, tmp_path: Path
) -> None:
    """The function asks for the status of its own run whenever it has trained."""
    work = """
        import json, time
        from pathlib import Path
        from tradewind.analysis.status import status
        from tradewind.folder import RunFolder

        def f(config, trial):
            folder = RunFolder.open(trial.folder.parent.parent)
            at = trial.folder / "at"
            first = int(at.read_text()) if at.exists() else 0
            for epoch in range(first + 1, 11):
                trial.report(epoch, loss=config["x"] + 1 / epoch)
                at.write_text(str(epoch))
                if trial.should_stop():
                    break
            (journal,) = folder.journals.iterdir()
            calls = len(Path("said").read_text().splitlines()) + 1 if Path("said").exists() else 1
            while journal.read_text().count('"kind":"started"') < calls:
                time.sleep(0.001)  # another thread writes it
            with open("said", "a") as file:
                file.write(json.dumps({**status(folder), "now": time.time()}) + "\\n")
            return {"loss": config["x"] + 1 / epoch}
    """
    content = {
        "name": "s", "workload": "work:f", "space": {"x": {"low": 0.0, "high": 1.0}}, "fixed": {"epochs": 10},
        "search": {"method": "random", "halving": "asha", "trials": 9, "metric": "loss"},
    }  # fmt: skip
    write_study(content, textwrap.dedent(work))
    ended = command("run", "study.json", "--out", "run", "--engine", "serial").stderr.splitlines()[-1]
    said = [json.loads(line) for line in Path("said").read_text().splitlines()]
    assert said[0]["epochs"] == {"done": 0, "expected": 9 + 3 * 2 + 6 + 1}
    assert said[0]["eta_s"] is None
    (line, *_) = [
        line for _, line in Reading(next(Path("run/journal").iterdir())).lines() if line["kind"] == "started"
    ]
    for one in said[1:]:
        done, expected = one["epochs"].values()
        assert 0 < done < expected <= 60
        assert one["eta_s"] == pytest.approx((one["now"] - line["at"]) * (expected - done) / done, rel=0.3, abs=0.06)
    trained = sum(record["epochs_run"] for record in Results.load("run").records())
    status = json.loads(command("status", "run", "--json").stdout)
    assert status["epochs"] == {"done": trained, "expected": trained}
    assert status["eta_s"] == 0.0
    assert f"9/9 · {trained} of {trained} epochs · " in ended
    feed = Feed(Path("run"), "run")
    feed.poll()
    assert (summary(feed)["epochs"], summary(feed)["eta_s"]) == (status["epochs"], 0.0)
