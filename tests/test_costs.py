"""Costs: what trials are expected to take, how they are dealt, and in which order they come."""

from __future__ import annotations

import heapq
import itertools
import json
import math
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from test_table import PUBLISHED

from tradewind.analysis.expectation import class_counts, expectation, schedules
from tradewind.claims import Claims
from tradewind.folder import RunFolder
from tradewind.journal import Journal
from tradewind.report.pages import check_page
from tradewind.results import Results
from tradewind.schedule.balance import SIMULATED, deal, makespans
from tradewind.schedule.costs import A_PRIORI_SPREAD, Costs, Finished
from tradewind.schedule.dispatch import Dispatch, History
from tradewind.schedule.law import Law
from tradewind.schedule.plan import MOST_CLASSES, classes_of, costs_of, fixed_order, probes_of
from tradewind.schedule.trials import Trials
from tradewind.search.grid import Classes, FromDear, Grid
from tradewind.space import Space
from tradewind.study import Study

Array = np.ndarray[Any, Any]
Dimensions = dict[str, list[Any]]

STORM = PUBLISHED / "storm_basalyga2021.json"
needs_published = pytest.mark.skipif(not STORM.exists(), reason=f"no {STORM}")
RANKS = (4, 8, 16)
PAPER: Dimensions = {
    "epochs": [5, 10, 15],
    "batch_size": [128, 256, 512, 1024, 2048, 4096],
    "data_multiplier": [1, 2, 4],
}


def all_digits(dimensions: Dimensions) -> Array:
    return np.array(list(itertools.product(*(range(len(values)) for values in dimensions.values()))))


def config(dimensions: Dimensions, digits: Array) -> dict[str, Any]:
    return {name: values[k] for (name, values), k in zip(dimensions.items(), digits, strict=True)}


def longest_first(costs: Array, ranks: int) -> list[list[int]]:
    """Plain dealing, trial by trial: who gets which."""
    heap: list[tuple[float, int]] = [(0, rank) for rank in range(ranks)]
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for k in sorted(range(len(costs)), key=lambda k: -costs[k]):
        load, rank = heapq.heappop(heap)
        heapq.heappush(heap, (load + costs[k].item(), rank))
        shares[rank].append(k)
    return shares


def makespan(costs: Array, times: Array, ranks: int) -> float:
    """How long the longest share takes when single trials are dealt by their costs."""
    whole = np.maximum(1, np.rint(costs / costs.mean() * 1e6)).astype(np.int64)
    return float((times @ deal(whole, np.ones(len(costs), np.int64), ranks)).max())


def over_the_best(costs: Array, times: Array, ranks: int) -> float:
    """The same beside longest-first with true times."""
    return makespan(costs, times, ranks) / max(sum(times[share]) for share in longest_first(times, ranks))


def learned(dimensions: Dimensions, digits: Array, times: Array, count: int) -> tuple[Array, list[int]]:
    """Predictions once the model has seen those trials that it chose, and which these are."""
    chosen = Costs(dimensions, {}).probes(digits, count)
    assert len(set(chosen)) == count
    finished = Finished([config(dimensions, digits[k]) for k in chosen], times[chosen].tolist())
    return Costs(dimensions, {}, finished).of(digits), chosen


# The law.


def cost(**values: Any) -> float:
    return float(Costs({}, values).of(np.zeros((1, 0), np.int64))[0])


def relative(name: str, *values: Any, **others: Any) -> list[float]:
    found = Costs({name: list(values)}, others).of(np.arange(len(values))[:, None])
    return [round(float(x), 6) for x in found / found[0]]


def test_a_cost_grows_with_epochs_and_data_and_falls_with_the_batch_size_to_a_limit() -> None:
    assert relative("epochs", 5, 10, 20, batch_size=64) == [1, 2, 4]
    assert relative("data_multiplier", 1, 2, 4, batch_size=64) == [1, 2, 4]
    assert cost(epochs=3, batch_size=128) == 3 * (1 + Law().step / 128)
    batches = relative("batch_size", 32, 64, 4096, 2**30, epochs=5)
    assert batches == sorted(batches, reverse=True)
    assert batches[2] == pytest.approx(batches[3], rel=0.05)
    assert 1 < relative("positive_copies", 1, 5)[1] < 5


def test_live_augmentation_double_precision_and_larger_networks_cost_more_and_devices_share() -> None:
    assert relative("augment", "none", "pre", "live") == [1, 1.05, 1.2]
    assert relative("precision", "fp32", "fp64") == [1, 2]
    assert relative("filters", [8, 16], [16, 32]) == [1, 2]
    strong = relative("devices", 1, 4, batch_size=128, scaling="strong")
    weak = relative("devices", 1, 4, batch_size=128, scaling="weak")
    assert weak[1] == 0.25 < strong[1] < 1


@pytest.mark.parametrize("values", [[0.1, 0.2], ["sgd", "adam"], [True, False], [None, 3], [[1], [2]], [10**400, 1]])
def test_a_hyperparameter_of_which_nothing_is_known_changes_no_cost(values: list[Any]) -> None:
    assert relative("anything", *values, epochs=3) == [1, 1]


def test_what_no_trial_of_a_study_varies_does_not_weigh_on_what_varies() -> None:
    assert relative("batch_size", 64, 512) == relative("batch_size", 64, 512, filters=[64, 128, 256], kernel=7)


# What has been seen.


@needs_published
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("table", ["table2", "table3", "table4", "table5"])
def test_published_times_are_dealt_almost_as_well_as_if_they_were_known(table: str, ranks: int) -> None:
    rows = json.loads(STORM.read_text())["tables"][table]["rows"]
    digits = np.array([[values.index(row[name]) for name, values in PAPER.items()] for row in rows])
    times = np.array([row["wall_s"] for row in rows])
    if table in ("table2", "table3"):
        assert over_the_best(Costs(PAPER, {}).of(digits), times, ranks) <= 1.25
    foretold, seen = learned(PAPER, digits, times, 8)
    left = np.setdiff1d(np.arange(len(times)), seen)
    assert over_the_best(foretold[left], times[left], ranks) <= 1.10
    known = foretold.copy()
    known[seen] = times[seen]
    assert over_the_best(known, times, ranks) <= 1.10
    assert over_the_best(foretold, times, ranks) <= 1.10


def power_law(chance: np.random.Generator) -> tuple[Dimensions, Array]:
    dimensions: Dimensions = {"epochs": [5, 10, 15], "u": [1, 2, 4, 8, 16, 32], "v": [1, 3, 9]}
    epochs, u, v = (
        np.array(values)[k] for values, k in zip(dimensions.values(), all_digits(dimensions).T, strict=True)
    )
    return dimensions, epochs ** chance.uniform(0.7, 1.1) * u ** chance.uniform(-1, 1) * v ** chance.uniform(
        -0.5, 1.2
    )


def fixed_and_per_step(chance: np.random.Generator) -> tuple[Dimensions, Array]:
    epochs, batch, data = (np.array(v)[k] for v, k in zip(PAPER.values(), all_digits(PAPER).T, strict=True))
    return PAPER, 10 ** chance.uniform(-1, 1.5) + epochs * data * (1 + 10 ** chance.uniform(1, 3.3) / batch)


def threefold_category(chance: np.random.Generator) -> tuple[Dimensions, Array]:
    dimensions: Dimensions = {
        "epochs": [5, 10, 20], "batch_size": [32, 128, 512], "optimizer": ["sgd", "adam"], "network": ["a", "b", "c"],
    }  # fmt: skip
    epochs, batch, optimizer, network = all_digits(dimensions).T
    factor = np.array([1, 3, chance.uniform(0.5, 2)])[network] * np.array([1, chance.uniform(0.8, 1.5)])[optimizer]
    per_step = 10 ** chance.uniform(1, 3)
    return dimensions, np.array([5, 10, 20])[epochs] * (1 + per_step / np.array([32, 128, 512])[batch]) * factor


@pytest.mark.parametrize("law", [power_law, fixed_and_per_step, threefold_category])
def test_times_that_nobody_published_are_dealt_as_well(
    law: Callable[[np.random.Generator], tuple[Dimensions, Array]],
) -> None:
    chance = np.random.default_rng(7)
    found = []
    for _ in range(12):
        dimensions, times = law(chance)
        times = times * np.exp(chance.normal(0, 0.03, len(times)))
        digits = all_digits(dimensions)
        foretold, seen = learned(dimensions, digits, times, 8)
        left = np.setdiff1d(np.arange(len(times)), seen)
        found.append([over_the_best(foretold[left], times[left], ranks) for ranks in RANKS])
    assert np.median(found, axis=0).max() <= 1.10
    assert np.quantile(found, 0.9) <= 1.10


def wide_study(count: int) -> tuple[Dimensions, list[dict[str, Any]], Array, Array]:
    """Finished trials of a study of six dimensions, and the true times of all its configs."""
    dimensions: Dimensions = {
        "epochs": [2, 4, 8, 16], "batch_size": [16, 64, 256], "width": [8, 16, 32, 64], "dropout": [0.0, 0.1, 0.5],
        "activation": ["relu", "tanh", "gelu"], "bias": [True, False],
    }  # fmt: skip
    digits = all_digits(dimensions)
    epochs, batch, width, _, activation, _ = digits.T
    times = 0.5 * 2.0**epochs * 1.6**width * 0.7**batch * np.array([1, 1.4, 2.2])[activation]
    chance = np.random.default_rng(3)
    seen = chance.choice(len(digits), count, replace=count > len(digits))
    return (
        dimensions,
        [config(dimensions, digits[k]) for k in seen],
        times[seen] * np.exp(chance.normal(0, 0.05, count)),
        times,
    )


@pytest.mark.parametrize(("count", "error"), [(1, 0.9), (3, 0.9), (8, 0.6), (60, 0.08), (1000, 0.05)])
def test_predictions_become_better_with_every_trial_and_are_quick(count: int, error: float) -> None:
    dimensions, configs, seconds, times = wide_study(count)
    start = time.perf_counter()
    costs = Costs(dimensions, {}, Finished(configs, seconds.tolist()))
    assert time.perf_counter() - start < 2.0
    wrong = np.log(costs.of(all_digits(dimensions)) / times)
    assert np.sqrt(np.mean(wrong**2)) < error
    assert costs.learned
    assert costs.spread <= (0.1 if count >= 60 else A_PRIORI_SPREAD)


def test_probes_are_accepted_spread_out_and_of_every_kind() -> None:
    trials = Trials(
        study_of({**PAPER, "kind": ["a", "b", "c"]}, where=["epochs < 15 or batch_size > 128"], repeats=2)
    )
    configs = [trials[position].config for position in probes_of(trials, 8)]
    assert len({tuple(one.values()) for one in configs}) == 8
    assert all(one["epochs"] < 15 or one["batch_size"] > 128 for one in configs)
    for name, values in (*PAPER.items(), ("kind", ["a", "b", "c"])):
        assert {one[name] for one in configs} >= {values[0], values[-1]}
    assert len(probes_of(Trials(study_of({"kind": ["a", "b"]})), 8)) == 2
    assert probes_of(Trials(study_of({"kind": ["a"]})), 8) == [0]
    huge = Trials(study_of({f"p{k}": list(range(1000)) for k in range(8)}, where=["p0 < 500"]))
    assert len({huge[position].config["p7"] for position in probes_of(huge, 8)}) > 2


def test_a_dimension_of_numbers_and_none_is_learned_from_columns(results: Results) -> None:
    trials = Trials(study_of({"depth_limit": [None, 3, 7], "epochs": [1, 2]}))
    true = {None: 9.0, 3: 1.0, 7: 3.0}
    seconds = {p: true[trials[p].config["depth_limit"]] * trials[p].config["epochs"] for p in range(6)}
    costs = costs_of(trials, with_finished(results.folder, trials, seconds))
    assert costs.of(all_digits({"d": [0, 1, 2], "e": [0, 1]})) == pytest.approx([9, 18, 1, 2, 3, 6], rel=0.1)


def test_one_trial_tells_the_unit_and_none_leaves_the_law() -> None:
    dimensions: Dimensions = {"epochs": [1, 2, 4], "lr": [0.1, 0.2]}
    digits = all_digits(dimensions)
    none = Costs(dimensions, {}, Finished([], []))
    assert not none.learned
    assert none.of(digits).tolist() == [1, 1, 2, 2, 4, 4]
    one = Costs(dimensions, {}, Finished([{"epochs": 2, "lr": 0.1}], [60.0]))
    assert one.learned
    assert one.of(digits) == pytest.approx([30, 30, 60, 60, 120, 120], rel=0.05)
    assert one.spread == A_PRIORI_SPREAD


def test_a_trial_that_took_twenty_times_as_long_by_mischance_misleads_nobody() -> None:
    digits = all_digits(PAPER)
    true = Law(300.0).cost({name: np.array(PAPER[name])[k] for name, k in zip(PAPER, digits.T, strict=True)})
    seen = Costs(PAPER, {}).probes(digits, 16)
    times = true.copy()
    times[seen[11]] *= 20
    finished = Finished([config(PAPER, digits[k]) for k in seen], times[seen].tolist())
    wrong = np.abs(np.log(Costs(PAPER, {}, finished).of(digits) / true))
    assert wrong.max() < 0.25


def test_trials_of_an_earlier_run_count_with_values_of_their_own() -> None:
    finished = Finished(
        [{"epochs": e, "batch_size": b, "mode": "old"} for e in (1, 3) for b in (32, 512)],
        [3.0 * e * (1 + 64 / b) for e in (1, 3) for b in (32, 512)],
    )
    costs = Costs({"epochs": [1, 2, 4], "mode": ["new", "newer"]}, {"batch_size": 64}, finished)
    expected = [6, 6, 12, 12, 24, 24]
    assert costs.of(all_digits({"epochs": [1, 2, 4], "mode": [0, 1]})) == pytest.approx(expected, rel=0.25)


def test_a_million_costs_come_from_arrays_and_are_those_of_single_configs() -> None:
    dimensions, configs, seconds, _ = wide_study(100)
    costs = Costs(dimensions, {}, Finished(configs, seconds.tolist()))
    digits = all_digits(dimensions)
    rows = np.random.default_rng(0).integers(len(digits), size=1_000_000)
    start = time.perf_counter()
    found = costs.of(digits[rows])
    assert time.perf_counter() - start < 5.0
    for k in (0, 1, 500_000, 999_999):
        assert found[k] == costs.of(digits[rows[k]][None])[0]


# Dealing.


def test_dealing_classes_in_bulk_is_dealing_trial_by_trial() -> None:
    chance = np.random.default_rng(5)
    for _ in range(60):
        ranks = int(chance.integers(1, 12))
        costs = chance.integers(1, 60, int(chance.integers(1, 9)))
        counts = chance.integers(0, 90, len(costs))
        each = np.repeat(costs, counts)
        plain = sorted(int(each[share].sum()) for share in longest_first(each, ranks))
        dealt = deal(costs, counts, ranks)
        assert dealt.sum(axis=1).tolist() == counts.tolist()
        assert dealt.min() >= 0
        loads = sorted((costs @ dealt).tolist())
        assert loads == plain or loads[-1] <= 0.97 * plain[-1]  # moves are made only where they are worth it


def test_large_deals_agree_with_the_plain_ones_to_the_trial() -> None:
    chance = np.random.default_rng(6)
    costs, counts = chance.integers(1, 1000, 800), chance.integers(0, 40, 800)  # too many classes for moves
    each = np.repeat(costs, counts)
    plain = longest_first(each, 7)
    number = np.repeat(np.arange(800), counts)
    expected = np.array([np.bincount(number[share], minlength=800) for share in plain]).T
    assert np.array_equal(deal(costs, counts, 7), expected)


def test_moves_mend_what_longest_first_gets_wrong() -> None:
    dealt = deal(np.array([3, 2]), np.array([2, 3]), 2)
    assert sorted((np.array([3, 2]) @ dealt).tolist()) == [6, 6]  # longest first alone: 5 and 7


def test_a_million_trials_are_dealt_in_seconds() -> None:
    chance = np.random.default_rng(0)
    costs = chance.integers(1_000, 10_000_000, MOST_CLASSES)
    counts = np.full(MOST_CLASSES, 50)
    start = time.perf_counter()
    loads = costs @ deal(costs, counts, 64)
    assert time.perf_counter() - start < 12.0
    assert loads.max() < 1.0001 * loads.mean()


@pytest.mark.parametrize("workers", [1, 3, 16, 500])
def test_expected_makespans_are_never_shorter_than_the_work_or_the_longest_trial_allows(workers: int) -> None:
    costs, counts = np.array([9.0, 4.0, 1.0]), np.array([5, 20, 60])
    work = float(costs @ counts)
    ends = makespans(costs, counts, workers, 0.2)
    assert ends.dispatch >= work / workers * 0.999
    assert ends.synchronous >= work / workers * 0.999
    if workers == 1:
        assert (ends.dispatch, ends.synchronous) == (pytest.approx(work), pytest.approx(work))
    if workers == 500:
        assert ends.dispatch == ends.synchronous > 9.0 * 0.9
    if workers == 16:
        assert ends.dispatch < ends.synchronous  # who gets free takes the next
    sure = makespans(costs, counts, 5, 0.0)
    assert (sure.dispatch, sure.synchronous) == (pytest.approx(work / 5), pytest.approx(work / 5))


def test_the_formula_for_many_trials_continues_the_simulation_of_few() -> None:
    costs = np.array([5.0, 2.0, 1.0])
    few = makespans(costs, np.full(3, SIMULATED // 3), 16, 0.3)
    many = makespans(costs, np.full(3, SIMULATED // 3 + 1), 16, 0.3)
    assert few.dispatch == pytest.approx(many.dispatch, rel=0.01)
    assert few.synchronous == pytest.approx(many.synchronous, rel=0.02)
    assert makespans(costs, np.zeros(3), 4, 0.3).dispatch == 0.0


# The order of dispatch.


def study_of(space: Dimensions, **fields: Any) -> Study:
    command = "true " + " ".join(f"{{{name}}}" for name in space)
    return Study(name=fields.pop("name", "costs"), command=command, space=space, **fields)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    RunFolder.create(tmp_path / "run")
    return Results.load(tmp_path / "run")


def class_costs(space: Space, repeats: int, classes: Classes, positions: list[int]) -> list[int]:
    """The cost of the class of each position, found from its config."""
    found = []
    for position in positions:
        digits = [space.dimensions[name].index(space[position // repeats][name]) for name in classes.names]
        number = 0
        for name, digit in zip(classes.names[:-1], digits, strict=False):
            number = number * len(space.dimensions[name]) + digit
        group = max(k for k, cut in enumerate(classes.cuts) if cut <= digits[-1])
        found.append(classes.costs[number * len(classes.cuts) + group])
    return found


@pytest.mark.parametrize("where", [[], ["a + b < 5"], ["c != 'x' or b > 1", "a * limit < 4"]])
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(
    ("names", "cuts"), [(("a",), (0, 1, 2, 3)), (("b", "d"), (0, 1)), (("d", "b"), (0, 2)), (("a", "b", "c"), (0, 1))]
)
def test_the_order_from_dear_to_cheap_holds_every_position_once(
    names: tuple[str, ...], cuts: tuple[int, ...], repeats: int, where: list[str]
) -> None:
    space = Space({"a": [0, 1, 2, 3], "b": [0, 1, 2, 3, 4], "c": ["x", "y"], "d": [7, 8]}, where, {"limit": 2})
    count = math.prod(len(space.dimensions[name]) for name in names[:-1]) * len(cuts)
    classes = Classes(names, cuts, tuple(np.random.default_rng(1).integers(1, 6, count).tolist()))
    order = FromDear(space, {"limit": 2}, repeats, classes)
    natural = list(Grid(space, repeats, "tune", 0).positions(0, space.size * repeats))
    found = list(order.positions(0, order.size))
    assert sorted(found) == natural
    costs = class_costs(space, repeats, classes, found)
    assert costs == sorted(costs, reverse=True)
    in_pieces = [list(order.positions(k, min(k + 7, order.size))) for k in range(0, order.size, 7)]
    assert list(itertools.chain.from_iterable(in_pieces)) == found
    if len(cuts) == len(space.dimensions[names[-1]]):  # each class is one choice of values
        by_class: dict[Any, list[int]] = {}
        for position in found:
            point = space[position // repeats]
            by_class.setdefault(tuple(point[name] for name in names), []).append(position)
        assert all(positions == sorted(positions) for positions in by_class.values())


def dispatched(trials: Trials, results: Results, classes: Classes | None, owner: str = "one") -> Dispatch:
    claims = Claims(results.folder, trials.study.digest(), owner)
    return Dispatch(trials, claims, History(results, owner), False, classes)


def test_the_longest_expected_come_first_and_equal_ones_as_they_stand(results: Results) -> None:
    trials = Trials(study_of({"lr": [0.1, 0.2], "epochs": [1, 4, 2], "batch_size": [8, 64]}, repeats=2))
    classes = fixed_order(trials, results)
    assert classes is not None
    assert classes.names == ("epochs", "batch_size")
    schedule = dispatched(trials, results, classes)
    found = [trial for _ in range(24) if (trial := schedule.next())]
    assert schedule.next() is None
    assert [(t.config["epochs"], t.config["batch_size"], t.config["lr"], t.repeat) for t in found] == [
        (epochs, batch_size, lr, repeat)
        for epochs, batch_size in ((4, 8), (2, 8), (1, 8), (4, 64), (2, 64), (1, 64))
        for lr in (0.1, 0.2)
        for repeat in (0, 1)
    ]


def test_without_differences_in_cost_and_to_time_the_order_is_what_it_was(results: Results) -> None:
    plain = Trials(study_of({"lr": [0.1, 0.2], "momentum": [0.5, 0.9]}))
    assert fixed_order(plain, results) is None
    timed = Trials(study_of({"epochs": [1, 2, 3, 4], "lr": [0.1, 0.2]}, purpose="time", repeats=2))
    assert fixed_order(timed, results) is None
    schedule = dispatched(plain, results, None)
    assert [schedule.next().trial for _ in range(4)] == [0, 1, 2, 3]  # type: ignore[union-attr]


def test_the_first_job_fixes_the_order_and_what_finishes_later_does_not_change_it(results: Results) -> None:
    trials = Trials(study_of({"epochs": [1, 2, 3], "kind": ["a", "b"]}))
    first = fixed_order(trials, results)
    path = results.folder.order(trials.study.digest())
    content = path.read_bytes()
    later = with_finished(
        results.folder, trials, {p: 100.0 if trials[p].config["kind"] == "b" else 1.0 for p in range(6)}
    )
    again = fixed_order(trials, later)
    assert again == first
    assert path.read_bytes() == content
    extended = Trials(study_of({"epochs": [1, 2, 3], "kind": ["a", "b", "c"]}))
    found = fixed_order(extended, later)
    assert found is not None
    assert "kind" in found.names  # a new edition has a new order, which has learned


def test_two_jobs_with_one_order_share_the_trials_and_both_begin_with_the_longest(results: Results) -> None:
    trials = Trials(study_of({"lr": list(range(50)), "epochs": [1, 4, 2]}))
    both = [dispatched(trials, results, fixed_order(trials, results), owner) for owner in ("one", "two")]
    found = [trial for _ in range(75) for job in both if (trial := job.next())]
    assert sorted(trial.trial for trial in found) == list(range(150))
    epochs = [trial.config["epochs"] for trial in found]
    assert epochs == sorted(epochs, reverse=True)


def test_table_2_on_two_workers_ends_within_five_percent_of_the_best(results: Results) -> None:
    trials = Trials(study_of(PAPER))
    classes = fixed_order(trials, results)
    true = Law(350.0, 0.1).cost({n: np.array([trials[p].config[n] for p in range(54)]) for n in PAPER})
    if STORM.exists():
        rows = json.loads(STORM.read_text())["tables"]["table2"]["rows"]
        published = {tuple(row[name] for name in PAPER): row["wall_s"] for row in rows}
        true = np.array([published[tuple(trials[p].config[name] for name in PAPER)] for p in range(54)])
    schedule, busy = dispatched(trials, results, classes), [0.0, 0.0]
    while trial := schedule.next():
        heapq.heapreplace(busy, busy[0] + true[trial.trial])
    assert sum(busy) == pytest.approx(true.sum())
    assert max(busy) <= 1.05 * max(true.sum() / 2, true.max())


def test_dimensions_of_many_values_are_grouped_and_classes_stay_few(results: Results) -> None:
    trials = Trials(
        study_of({"lr": [0.1, 0.2], "epochs": list(range(1, 50_001)), "batch_size": [2**k for k in range(10)]})
    )
    classes = fixed_order(trials, results)
    assert classes is not None
    assert len(classes.costs) <= MOST_CLASSES
    order = FromDear(trials.space, trials.defaults, 1, classes)
    assert order.size == trials.size
    first, last = next(order.positions(0, 1)), next(order.positions(order.size - 1, order.size))
    assert trials[first].config["epochs"] > 49_000
    assert trials[last].config["epochs"] < 100


@pytest.mark.parametrize("where", [[], ["p0 + p1 < 300"]])
def test_ten_to_the_fifteen_trials_begin_at_once_and_take_no_memory(results: Results, where: list[str]) -> None:
    space: Dimensions = {f"p{k}": list(range(1000)) for k in range(4)}
    trials = Trials(
        study_of({**space, "epochs": list(range(1, 101)), "batch_size": [8 * k for k in range(1, 11)]}, where=where)
    )
    start = time.perf_counter()
    trial = dispatched(trials, results, fixed_order(trials, results)).next()
    assert time.perf_counter() - start < 5.0
    assert trial is not None
    assert (trial.config["epochs"], trial.config["batch_size"]) == (100, 8)
    classes = fixed_order(trials, results)
    assert classes is not None
    tracemalloc.start()
    order = FromDear(trials.space, trials.defaults, 1, classes)
    for start_at in (0, order.size // 2, order.size - 500):
        assert len(list(order.positions(start_at, start_at + 500))) == 500 or where
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


# What is known from the journals, and what `check` says of it.


def with_finished(folder: RunFolder, trials: Trials, seconds: dict[int, float]) -> Results:
    """The results once these positions have finished, each after so many seconds."""
    journal = Journal(folder, f"owner{time.monotonic_ns()}")
    for position, took_s in seconds.items():
        trial = trials[position]
        journal.finished(
            {
                "key": trial.key, "trial": trial.trial, "repeat": trial.repeat, "config": trial.config,
                "seed": trial.seed, "data_seed": trial.data_seed, "state": "done", "reason": "",
                "times": {"wall_s": 0.9 * took_s}, "scores": {}, "last": {}, "edition": trials.study.digest(),
                "started": 1000.0, "finished": 1000.0 + took_s, "attempt": 1, "error": {},
            },
            [],
        )  # fmt: skip
    journal.close()
    return Results.load(folder.path)


def test_the_model_of_a_study_learns_from_its_journals_or_from_an_earlier_run(
    tmp_path: Path, results: Results
) -> None:
    trials = Trials(study_of({"epochs": [1, 2, 4], "kind": ["a", "b"]}))
    assert not costs_of(trials, results).learned
    seconds = {
        p: (5.0 if trials[p].config["kind"] == "b" else 1.0) * trials[p].config["epochs"] for p in (0, 1, 2, 5)
    }
    earlier = with_finished(RunFolder.create(tmp_path / "earlier"), trials, seconds)
    costs = costs_of(trials, results, earlier)
    assert costs.learned
    expected = [1, 5, 2, 10, 4, 20]
    assert costs.of(all_digits({"epochs": [1, 2, 4], "kind": ["a", "b"]})) == pytest.approx(expected, rel=0.15)
    classes, unit = classes_of(trials, costs)
    assert classes is not None
    assert np.array(classes.costs) * unit == pytest.approx(expected, rel=0.15)


def test_of_imported_results_the_wall_time_is_learned(command: Cli, tmp_path: Path) -> None:
    rows = [f"{epochs},{kind},{epochs * (3 if kind == 'b' else 1) * 10}" for epochs in (1, 2, 4, 8) for kind in "ab"]
    (tmp_path / "rows.csv").write_text("\n".join(["epochs,kind,wall_s", *rows]))
    assert command("import", "rows.csv", "--out", "imported").returncode == 0
    trials = Trials(study_of({"epochs": [3, 16], "kind": ["a", "b"]}))
    costs = costs_of(trials, Results.load(tmp_path / "imported"))
    assert costs.of(all_digits({"epochs": [3, 16], "kind": ["a", "b"]})) == pytest.approx([30, 90, 160, 480], rel=0.1)


def test_check_tells_the_makespans_of_both_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trials = Trials(study_of(PAPER, name="checked"))
    found = expectation(trials, 8)
    assert (found["makespan_s"], found["work_s"], found["expected_s"]) == (None, None, None)
    assert 54 / 8 < found["makespan"]["dispatch"] < found["makespan"]["synchronous"] < 12
    assert found["schedule_workers"] == 8
    assert "× (" in check_page(found)
    folder = RunFolder.create(tmp_path / "runs" / "checked")
    folder.keep_edition(trials.study.digest(), trials.study.edition([], {}))
    seconds = {p: 2.0 * trials[p].config["epochs"] * trials[p].config["data_multiplier"] for p in range(0, 54, 4)}
    with_finished(folder, trials, seconds)
    found = expectation(trials, 8)
    left = 2.0 * 30 * 7 * 6 - sum(seconds.values())
    assert found["work_s"] == pytest.approx(left, rel=0.1)
    assert found["longest_s"] == pytest.approx(120, rel=0.1)
    assert left / 8 * 0.9 < found["makespan_s"]["dispatch"] <= found["makespan_s"]["synchronous"] < left / 8 * 1.3
    assert found["efficiency"]["dispatch"] <= 1.0
    assert "dispatch 4 min 1 s (" in check_page(found)
    assert "with 8 workers" in check_page(found)


def test_check_of_a_finished_study_expects_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trials = Trials(study_of({"epochs": [1, 2]}))
    with_finished(RunFolder.create(tmp_path / "runs" / "costs"), trials, {0: 1.0, 1: 2.0})
    found = expectation(trials, 4)
    assert "makespan   nothing is left" in check_page(found)
    assert found["makespan_s"] == {"dispatch": 0.0, "synchronous": 0.0}
    assert found["work_s"] == 0.0


def test_check_answers_for_ten_to_the_fifteen_trials_within_a_second() -> None:
    space: Dimensions = {"epochs": [1, 2, 4, 8], **{f"p{k}": list(range(1000)) for k in range(5)}}
    start = time.perf_counter()
    found = schedules(Trials(study_of(space)), None, 100)
    assert time.perf_counter() - start < 3.0
    assert found["makespan"]["dispatch"] == pytest.approx(4e15 / 100)


def test_classes_under_conditions_are_counted_or_sampled() -> None:
    small = Trials(study_of({"epochs": [1, 2, 4], "lr": list(range(100))}, where=["epochs < 4 or lr < 10"]))
    classes, _ = classes_of(small, costs_of(small, None))
    assert class_counts(small, classes, None).tolist() == [100, 100, 10]
    large = Trials(study_of({"epochs": [1, 2, 4], "lr": list(range(100_000))}, where=["epochs < 4 or lr < 10000"]))
    classes, _ = classes_of(large, costs_of(large, None))
    assert class_counts(large, classes, None) == pytest.approx([1e5, 1e5, 1e4], rel=0.1)
