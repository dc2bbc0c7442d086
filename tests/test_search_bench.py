"""The search benchmark: both sides begin alike, and what is measured is judged rightly and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tradewind.bench import search as bench
from tradewind.bench import search_network as network
from tradewind.bench.search_functions import PROBLEMS, STARTS, TRIALS, alone, ours, pair
from tradewind.bench.search_pairs import spread, worse
from tradewind.bench.sweep_trials import Sweep
from tradewind.errors import Mistake, RunError
from tradewind.search import Method

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("branin", {"x0": 3.141592653589793, "x1": 2.275}),
        ("hartmann", {"x0": 0.20169, "x1": 0.150011, "x2": 0.476874, "x3": 0.275332, "x4": 0.311652, "x5": 0.6573}),
        ("rosenbrock", {f"x{k}": 1.0 for k in range(4)}),
        ("mixed", {"rate": 0.01, "width": 64, "kind": "rough", "scale": 10**0.5, "count": 5}),
    ],
)  # fmt: skip
def test_a_function_is_lowest_where_it_should_be(name: str, config: dict[str, Any]) -> None:
    assert PROBLEMS[name].value(config) == pytest.approx(PROBLEMS[name].lowest, abs=1e-5)


@pytest.mark.parametrize("method", ["tpe", "cmaes", "nsga2"])
@pytest.mark.parametrize("name", ["hartmann", "mixed"])
def test_optuna_begins_with_our_first_points(method: Method, name: str) -> None:
    problem, trials = PROBLEMS[name], STARTS[method] + 2
    tried = ours(problem, method, trials, 3)
    mine = [problem.value(config) for config in tried]
    theirs = alone(problem, method, trials, 3, tried[: STARTS[method]])
    assert len(mine) == len(theirs) == trials
    assert theirs[: STARTS[method]] == mine[: STARTS[method]]
    assert theirs[-1] != mine[-1]


def test_a_pair_tells_the_regret_after_every_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRIALS, "tpe", 12)
    found = pair("branin", "tpe", 1)
    for regret in found["regret"].values():
        assert len(regret) == 12
        assert regret == sorted(regret, reverse=True)
        assert regret[-1] >= 0
    assert found["regret"]["ours"][:10] == found["regret"]["Optuna"][:10]


def test_chance_and_being_worse_are_told_apart() -> None:
    theirs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    assert worse(theirs, theirs) == 1.0
    assert worse([2 * value for value in theirs], theirs) == pytest.approx(1 / 1024)
    assert worse([value / 2 for value in theirs], theirs) == 1.0
    assert 0.3 < worse([value * (2 if k % 2 else 0.5) for k, value in enumerate(theirs)], theirs) < 0.7
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == "3 (2 – 4)"


def judged(factor: float) -> str:
    pairs = [{"seed": k, "regret": {"ours": [9.0, factor * (1 + k)], "Optuna": [9.0, 1.0 + k]}} for k in range(10)]
    found = {"branin": {"tpe": pairs, "random": pairs}}
    return bench.page(json.loads(json.dumps({"regret": found, "network": None})))


def test_the_page_says_whether_ours_is_worse() -> None:
    same, behind = judged(1.0), judged(1.5)
    assert "Branin, tpe" in same
    assert "0 of 2 rows have p < 0.05" in same
    assert same.endswith("not worse than Optuna alone: yes")
    line = next(line for line in behind.splitlines() if line.startswith("Branin, tpe"))
    assert line.split()[-3:] == ["1.50", "10", "0.001"]
    assert "8.25 (4.88 – 11.6)" in line
    assert "5.5 (3.25 – 7.75)" in line
    assert behind.endswith("not worse than Optuna alone: IN DOUBT")


def test_an_unknown_part_is_refused_by_name() -> None:
    with pytest.raises(Mistake, match="--part hartman: did you mean 'hartmann'"):
        bench.measure(["hartman"])


def test_both_ways_search_the_same_network_from_the_same_points(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Sweep((), epochs=1, batch_size=64, train=128, validation=64, test=64)
    monkeypatch.setattr(network, "sizes", lambda: network.Searched(4, 2, size))
    said: list[str] = []
    found = json.loads(json.dumps(network.measure(1, said.append)))
    assert len(said) == 1
    assert sorted(found["Optuna"][0]["score"]) == pytest.approx(sorted(found["ours"][0]["score"]), abs=0.15)
    for way in network.WAYS:
        (one,) = found[way]
        assert 0 < one["trained_s"] < 2 * one["seconds"]  # of two workers
        assert one["ended_s"] == sorted(one["ended_s"])
        assert one["ended_s"][-1] < one["seconds"]
    text = "\n".join(network.page({**found, **{way: found[way] * 2 for way in network.WAYS}}))
    assert "4 trials, workers: 2 each, n = 2" in text
    assert "best score by seconds, Optuna alone: " in text
    assert "p that our score is lower" in text


def test_the_best_score_is_the_one_that_was_there_by_then() -> None:
    one = {"ended_s": [2.0, 3.0, 5.0], "score": [0.6, 0.55, 0.8]}
    assert [network.best_by(one, seconds) for seconds in (1.0, 2.0, 4.0, 9.0)] == [0.5, 0.6, 0.6, 0.8]
    assert [network.reached(one, score) for score in (0.5, 0.6, 0.7)] == [2.0, 2.0, 5.0]


def test_a_program_that_fails_says_so() -> None:
    size = Sweep((), epochs=1, train=64, validation=64, test=64, workload="none")
    with pytest.raises(RunError, match="ours ended with 1"):
        network.in_way("ours", 0, replace(network.sizes(), network=size))
