"""What matters: names that change a score beyond chance, and how often chance is called a cause."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import dunnett, studentized_range
from test_analysis import load, trial
from test_results import Record
from typer.testing import CliRunner

from tradewind.analysis.advice import Advice, advise
from tradewind.analysis.causes import causes
from tradewind.analysis.effects import effects
from tradewind.analysis.multiple import any_pair, best_quantile, holm
from tradewind.analysis.pareto import field_of, noise, plateau
from tradewind.cli import app
from tradewind.report.answers import effects_figure


def matters(path: Path, records: list[Record]) -> list[Advice]:
    return [item for item in advise(load(path, records)) if item.topic == "what matters"]


def searched(seed: int, trials: int, slope: float, noise_: float = 1.0) -> list[Record]:
    """Trials as a search leaves them: more and more of them near the best learning rate; dropout does nothing."""
    rng = np.random.default_rng(seed)
    records = []
    for n in range(trials):
        width = 3.0 * (1 - 0.7 * n / trials)
        rate, dropout = float(-2.5 + width * rng.uniform(-1, 0.6)), float(rng.uniform(0, 0.5) * (1 - n / 2 / trials))
        loss = slope * rate + noise_ * rng.normal()
        config = {"learning_rate": 10.0**rate, "dropout": dropout, "units": float(rng.integers(16, 257))}
        records.append(trial(n, config, float(loss), 1.0))
    return records


def test_a_search_names_what_drives_the_score_and_not_what_does_not(tmp_path: Path) -> None:
    found = matters(tmp_path, searched(0, 15, -3.0))
    assert [(item.claim.names, item.claim.sign, item.sure) for item in found[:1]] == [
        (("learning_rate",), found[0].claim.sign, "sure")
    ]
    change = found[0].claim
    assert change.sign == (-1 if change.end > change.start else 1)
    assert "dropout" not in " ".join(item.text for item in found if item.claim.names)


def test_pure_noise_is_no_cause_and_shares_stay_below_one(tmp_path: Path) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        records = [
            trial(n, {name: float(rng.uniform()) for name in "abcd"}, float(rng.normal()), 1.0) for n in range(100)
        ]
        results = load(tmp_path / str(seed), records)
        (one,) = [item for item in advise(results) if item.topic == "what matters" and "score" in item.text]
        assert (one.claim.names, one.sure) == ((), "not enough data")
        assert "Beyond chance no hyperparameter changes score (a, b, c and d; n = 100)" in one.text
        shares = effects(results, "score")
        assert sum(main.share for main in shares.main) + sum(pair.share for pair in shares.pairs) < 0.2
        assert shares.residual == 0
        _, tips = effects_figure([shares])
        assert "between repeats" not in str(tips)


@pytest.mark.parametrize(("sizes", "repeats"), [((3, 3), 1), ((2, 2), 3), ((2, 3, 4), 2)])
def test_noise_is_named_in_at_most_one_study_of_twenty(tmp_path: Path, sizes: tuple[int, ...], repeats: int) -> None:
    from tradewind.bench.calibration_studies import grid, results_of

    rng = np.random.default_rng(7)
    named = [
        bool(causes(results_of(grid(rng, sizes, repeats, [0.0] * len(sizes)), tmp_path / "run"), "accuracy").named)
        for _ in range(300)
    ]
    assert np.mean(named) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)


def test_an_effect_of_two_standard_deviations_is_named_first(tmp_path: Path) -> None:
    from tradewind.bench.calibration_studies import grid, results_of

    rng = np.random.default_rng(8)
    first = []
    for _ in range(100):
        ranges = [0.0, 0.0]
        ranges[at := int(rng.integers(2))] = 2.0
        found = causes(results_of(grid(rng, (3, 3), 3, ranges), tmp_path / "run"), "accuracy").named
        first.append(bool(found) and found[0].names == (f"h{at}",))
    assert np.mean(first) > 0.8


def test_names_that_changed_together_are_named_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    records = []
    for n in range(60):
        at = rng.uniform()
        config = {
            "rate": float(at),
            "decay": float(at + 0.02 * rng.uniform()),
            "kind": "xy"[n % 2],
            "devices": 1 + n % 2,
        }
        records.append(trial(n, config, float(3 * at + 2 * (n % 2) + 0.3 * rng.normal())))
    found = matters(tmp_path, records)
    assert {item.claim.names for item in found if item.claim.names} == {("rate", "decay"), ("kind", "devices")}
    assert "rate and decay changed together, so which of them it is can't be said" in " ".join(x.text for x in found)


def test_what_changed_only_with_the_hardware_is_not_asked(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    records = [
        trial(
            n,
            {"gpu": "xy"[n % 2], "cores": 4 + 4 * (n % 2), "rate": float(rng.uniform())},
            float(n % 2 + rng.normal()),
        )
        for n in range(40)
    ]
    text = " ".join(item.text for item in matters(tmp_path, records) if "changes score" in item.text)
    assert "cores (it never changed while all others stayed)" in text


def test_pruned_trials_are_said_to_be_left_out(tmp_path: Path) -> None:
    records = searched(0, 40, -3.0)
    for one in records[30:]:
        one["state"] = "pruned"
    assert "10 pruned left out" in matters(tmp_path, records)[0].text


def test_an_interaction_is_told_where_one_of_its_names_matters(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    records = []
    for a, b, repeat in product("xy", "pqr", range(4)):
        score = 2.0 * (a == "x") + 1.5 * (a == "x") * (b == "r") + 0.2 * rng.normal()
        records.append(trial(len(records), {"a": a, "b": b}, float(score), repeat=repeat))
    found = [item for item in matters(tmp_path, records) if "depends on" in item.text]
    assert [item.claim.names for item in found] == [("a", "b")]
    assert found[0].claim.sign is None


def test_repeats_that_share_a_split_are_concluded_from_for_this_split(tmp_path: Path) -> None:
    records = []
    for a, repeat in product((1, 2), range(8)):
        records.append(trial(len(records), {"a": a}, a + repeat / 10, repeat=repeat, seed=repeat))
    assert all("For this split." in item.text for item in matters(tmp_path / "one", records) if "score" in item.text)
    for one in records:
        one["data_seed"] = one["seed"]
    assert all("split" not in item.text for item in advise(load(tmp_path / "both", records)))


def test_advice_as_json_is_the_documented_list(tmp_path: Path) -> None:
    load(tmp_path, searched(0, 30, -3.0))
    done = CliRunner().invoke(app, ["advise", str(tmp_path / "run"), "--json"])
    items = json.loads(done.stdout)
    for item in items:
        assert list(item) == ["topic", "text", "claim", "sure", "n"]
        assert list(item["claim"]) == ["names", "from", "to", "sign", "interval"]
        assert item["sure"] in ("sure", "fairly sure", "weak", "not enough data")
    (first, *_) = [item for item in items if item["topic"] == "what matters"]
    low, high = first["claim"]["interval"]
    assert first["claim"]["names"] == ["learning_rate"]
    assert (low < 0) == (high < 0) == (first["claim"]["sign"] < 0)
    assert first["n"] == 30


@pytest.mark.parametrize(("groups", "dof", "t"), [(3, 4, 3.0), (5, 10, 4.0), (4, 40, 2.0)])
def test_tukeys_range_is_scipys(groups: int, dof: int, t: float) -> None:
    assert any_pair(t, groups, dof) == pytest.approx(studentized_range.sf(t * 2**0.5, groups, dof), abs=1e-6)


def test_comparisons_with_the_best_have_dunnetts_quantile() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=5) for _ in range(4)]
    found = dunnett(*groups[1:], control=groups[0], alternative="greater", rng=np.random.default_rng(1))
    statistic = float(found.statistic.max())
    spread = float(best_quantile(1 - float(found.pvalue.min()), 3, 16))
    assert spread == pytest.approx(statistic, abs=0.02)
    assert best_quantile(0.95, 9, 20) == pytest.approx(2.60, abs=0.005)  # Dunnett 1955


def test_holm_is_as_in_the_textbook() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_the_plateau_holds_the_true_best_of_many_in_95_of_100_studies(tmp_path: Path) -> None:
    from tradewind.bench.calibration_studies import grid, results_of

    rng, held = np.random.default_rng(3), []
    for _ in range(100):
        study = grid(rng, (30,), 3, [0.0])
        field: Any = field_of(results_of(study, tmp_path / "run"), None)
        near = [field.point(int(cell)).config for cell in plateau(field, noise(field))]
        held.append(study.configs[0] in near)  # all are equal, so any of them is the true best
    assert np.mean(held) >= 0.9
