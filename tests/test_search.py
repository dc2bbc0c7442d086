"""Search: one contract for every method, then what is peculiar to each."""

from __future__ import annotations

import itertools
import math
import random
import time
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.errors import DataError, StudyError
from tradewind.pack import Config
from tradewind.search import Method, Proposal, Search, Told
from tradewind.search.halving import ladder
from tradewind.search.making import Settings, adaptive, check, indexed, order
from tradewind.search.points import Listing, Points
from tradewind.search.ranking import ranked
from tradewind.space import Space
from tradewind.study import Range

EPOCHS = 9
SPACE: dict[str, Any] = {
    "rate": Range(low=1e-4, high=1.0, log=True),
    "width": [64, 16, 32],
    "depth": Range(low=1, high=4),
    "optimizer": ["adam", {"value": "sgd", "space": {"momentum": Range(low=0.0, high=0.99), "kick": [True, False]}}],
    "shape": [[1, 2], [3]],
}
WHERE = ["depth * width <= 192", "momentum > 0.1"]
ADAPTIVE = [
    Settings("tpe", trials=14, options={"startup": 6}),
    Settings("gp", trials=8, options={"startup": 5}),
    Settings("cmaes", trials=24),
    Settings("nsga2", trials=24, options={"population": 6}),
    Settings("tpe", trials=14, options={"startup": 4}, halving="asha"),
    Settings("cmaes", trials=20, halving="asha"),
    Settings("random", trials=20, halving="asha"),
    Settings("sobol", trials=20, halving="hyperband"),
]


def named(found: Settings) -> str:
    return "-".join(part for part in (found.method, found.halving) if part)


def points_of() -> Points:
    return Points(SPACE, WHERE, {"epochs": EPOCHS})


def score(values: Config) -> float:
    away = abs(math.log10(values["rate"]) + 2) + abs(values["width"] - 32) / 32 + abs(values["depth"] - 3) / 3
    return 3.0 - away - (0.5 if values["optimizer"] == "adam" else abs(values["momentum"] - 0.9))


def ending(proposal: Proposal) -> Told:
    number, values = proposal.number, proposal.values
    if number % 7 == 5:
        return Told(number, values, "failed")
    if proposal.until is not None:
        return Told(number, values, "paused", proposal.until, (score(values) - 1 / proposal.until,))
    return Told(number, values, "done", EPOCHS, (score(values),))


def driven(made: Settings, killed_at: int = 0) -> tuple[list[Proposal], Search]:
    """All proposals of a search with three workers that end in random order; killed and replayed on the way."""
    workers = 1 if made.method == "gp" else 3  # it takes seconds to think of what is pending
    search, chance = adaptive(made, points_of()), random.Random(1)
    log: list[Told] = []
    running: list[Proposal] = []
    asked: list[Proposal] = []
    for step in range(1, 10_000):
        if step == killed_at:
            search = adaptive(made, points_of())
            for told in log:
                search.tell(told)
            assert search.pending == sorted(running, key=lambda proposal: proposal.number)
        while len(running) < workers and (found := search.ask(1)):
            running += found
            asked += found
            log.append(Told(found[0].number, found[0].values, "started"))
        if not running:
            break
        log.append(ending(running.pop(chance.randrange(len(running)))))
        search.tell(log[-1])
    return asked, search


@pytest.mark.parametrize("made", ADAPTIVE, ids=named)
def test_every_search_keeps_the_contract(made: Settings) -> None:
    asked, search = driven(made)
    points = points_of()
    assert search.over
    assert search.ask(1) == search.pending == []
    firsts = {proposal.number: proposal for proposal in reversed(asked)}
    assert sorted(firsts) == list(range(made.trials or 0))
    for proposal in asked:
        assert proposal.values == firsts[proposal.number].values
        assert points.accepts(proposal.values)
        assert (
            ("momentum" in proposal.values) == (proposal.values["optimizer"] == "sgd") == ("kick" in proposal.values)
        )
        assert 1e-4 <= proposal.values["rate"] <= 1.0
        assert proposal.values["depth"] in range(1, 5)
        assert points.picks(proposal.values)
    # killed at any step and told what had happened, it goes on as if nothing had been
    steps = [4, len(asked) - 1] if made.method != "gp" else [7]
    assert [driven(made, step)[0] == asked for step in steps] == [True] * len(steps)


SAME: dict[str, dict[str, Any]] = {
    "flat": {
        "x": Range(low=-5.0, high=10.0), "rate": Range(low=1e-5, high=1.0, log=True), "depth": Range(low=1, high=9),
        "width": Range(low=1, high=512, log=True), "kind": ["a", "b", "c"],
    },
    "conditional": {
        "x": Range(low=0.0, high=1.0),
        "kind": [
            {"value": "a", "space": {"y": Range(low=1e-3, high=1.0, log=True)}},
            {"value": "b", "space": {"y": Range(low=0.0, high=2.0), "z": Range(low=0.0, high=1.0)}},
        ],
    },
}  # fmt: skip
ALONE = {"tpe": 24, "gp": 13, "cmaes": 30, "nsga2": 30}


def distance(config: Config) -> float:
    numbers = [value for value in config.values() if not isinstance(value, str)]
    return sum((value - 0.3) ** 2 / (1 + k) for k, value in enumerate(numbers)) + (config["kind"] == "a")


@pytest.mark.parametrize("space", SAME)
@pytest.mark.parametrize("method", ALONE)
def test_one_worker_is_asked_for_what_optuna_alone_would_try(method: Method, space: str) -> None:
    """By its samplers as they are by default. Only the seed is another for every trial, so that a search which was
    killed goes on as one that was not; with the same seeds Optuna's own loop draws the same numbers, bit for bit.
    """
    import optuna

    from tradewind.bench.search_functions import suggested
    from tradewind.search.optuna_adapter import sampler_seed

    samplers = optuna.samplers
    # crossover alone may give a parent again, which Optuna would train again and we do not
    bred = partial(samplers.NSGAIISampler, population_size=8, mutation_prob=0.9)
    kinds: dict[str, Any] = {
        "tpe": samplers.TPESampler, "gp": samplers.GPSampler, "cmaes": samplers.CmaEsSampler, "nsga2": bred,
    }  # fmt: skip
    options = {"population": 8, "mutation": 0.9} if method == "nsga2" else {}
    points, tried = Points(SAME[space]), list[Config]()

    def objective(trial: optuna.Trial) -> float:
        tried.append(points.config(lambda axis: suggested(trial, axis)))
        return distance(tried[-1])

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    for number in range(ALONE[method]):
        study.sampler = kinds[method](seed=sampler_seed(5, method, number))
        study.optimize(objective, n_trials=1)
    search = adaptive(Settings(method, ("minimize",), 5, ALONE[method], options=options), points)
    asked = []
    while found := search.ask(1):
        asked.append(found[0].values)
        search.tell(Told(found[0].number, asked[-1], "done", 1, (distance(asked[-1]),)))
    assert asked == tried


@pytest.mark.parametrize("method", ["tpe", "cmaes", "nsga2"])
def test_another_seed_gives_other_proposals_and_the_same_the_same(method: Method) -> None:
    def values(seed: int) -> list[Config]:
        return [p.values for p in adaptive(Settings(method, trials=3, seed=seed), points_of()).ask(3)]

    assert values(0) == values(0) != values(1)


@pytest.mark.parametrize("method", ["tpe", "gp"])
def test_what_is_pending_keeps_others_away(method: Method) -> None:
    points = Points({"x": Range(low=0.0, high=1.0), "y": Range(low=0.0, high=1.0)})
    search = adaptive(Settings(method, directions=("minimize",), trials=30, options={"startup": 6}), points)
    for proposal in search.ask(8):
        x, y = proposal.values["x"], proposal.values["y"]
        search.tell(Told(proposal.number, proposal.values, "done", 1, ((x - 0.3) ** 2 + (y - 0.6) ** 2,)))
    together = [(proposal.values["x"], proposal.values["y"]) for proposal in search.ask(3)]
    assert len(set(together)) == 3
    assert len(search.pending) == 3
    assert min(math.dist(a, b) for a in together for b in together if a != b) > 1e-4


def test_a_gaussian_process_thinks_with_one_thread_and_leaves_the_others_as_they_were() -> None:
    import torch

    seen, before = list[int](), torch.get_num_threads()
    points = Points({"x": Range(low=0.0, high=1.0)}, ["x >= 0"])
    accepts = points.accepts
    points.accepts = lambda config: not seen.append(torch.get_num_threads()) and accepts(config)  # type: ignore[method-assign, func-returns-value]
    torch.set_num_threads(3)
    try:
        adaptive(Settings("gp", trials=2), points).ask(2)
        assert seen == [1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_number_that_another_job_began_with_other_values_has_those() -> None:
    points = Points({"x": [1, 2, 3, 4]})
    search = adaptive(Settings("tpe", trials=4), points)
    mine = search.ask(1)[0]
    theirs = {"x": mine.values["x"] % 4 + 1}
    search.tell(Told(0, theirs, "started"))
    assert search.pending == [Proposal(0, theirs)]
    search.tell(Told(2, mine.values, "started"))
    assert [proposal.number for proposal in search.ask(4)] == [1, 3]
    assert {proposal.values["x"] for proposal in search.pending} == {1, 2, 3, 4}


@pytest.mark.parametrize("method", ["tpe", "nsga2", "cmaes"])
def test_a_finite_space_is_searched_without_repeats_until_it_is_used_up(method: Method) -> None:
    points = Points({"a": [1, 2, 3], "b": ["x", "y"], "c": Range(low=1, high=3)}, ["a + c != 4"])
    search = adaptive(Settings(method, directions=("minimize",), trials=50, options={}), points)
    seen = []
    while found := search.ask(1):
        seen.append(found[0].values)
        search.tell(Told(found[0].number, seen[-1], "done", 1, (seen[-1]["a"] + seen[-1]["c"],)))
    assert search.over
    assert sorted((v["a"], v["b"], v["c"]) for v in seen) == [
        (a, b, c) for a in (1, 2, 3) for b in "xy" for c in (1, 2, 3) if a + c != 4
    ]


def test_what_was_tried_before_the_study_was_extended_counts_without_being_learnt_from() -> None:
    search = adaptive(Settings("tpe", trials=5, options={"startup": 1}), Points({"x": [1, 2, 3, 4, 5]}))
    for number in range(2):
        search.tell(Told(number, {"x": 7 + number}, "done", 1, (1.0,)))
    assert [proposal.number for proposal in search.ask(9)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("made", "space", "message"),
    [
        (Settings("tpe", trials=9, options={"start": 3}), SPACE, "did you mean 'startup'? allowed: candidates"),
        (Settings("gp", trials=9, options={"candidates": 3}), SPACE, "gp has no option 'candidates'; allowed:"),
        (Settings("tpe", trials=9, options={"startup": 0}), SPACE, "startup: found 0; allowed: a whole number"),
        (Settings("nsga2", trials=9, options={"mutation": 2}), SPACE, "mutation: found 2; allowed: a number from 0"),
        (Settings("random", trials=9, options={"n": 1}), SPACE, "random has no option 'n'; allowed: nothing"),
        (Settings("tpee", trials=9), SPACE, "no 'tpee'; did you mean 'tpe'?"),  # type: ignore[arg-type]
        (Settings("tpe"), SPACE, "search.trials: is missing"),
        (Settings("sobol"), {"x": [1, 2]}, "search.trials: is missing"),
        (Settings("grid", trials=3), {"x": [1, 2]}, "a grid tries all combinations"),
        (Settings("grid"), SPACE, 'space.rate: a range without steps is continuous; a grid needs "steps": N'),
        (Settings("tpe", trials=3), {}, "found nothing in `space`"),
        (Settings("cmaes", trials=3, directions=("minimize", "maximize")), SPACE, "takes one objective"),
        (Settings("cmaes", trials=3), {"x": ["a", "b"]}, "found no numbers in `space`"),
        (Settings("random", trials=3, halving="asha"), {"x": [1, 2]}, "set `epochs` in `fixed` or `space`"),
        (Settings("random", trials=3, halving="asha"), {"x": [1], "epochs": [1]}, "leaves nothing to divide"),
        (Settings("random", trials=3, halving="asha", eta=1), {"epochs": [9]}, "allowed: eta from 2"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused_by_name(made: Settings, space: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as refused:
        check(made, Points(space))
    assert message in str(refused.value)


@pytest.mark.parametrize("method", ["tpe", "random", "sobol"])
def test_conditions_that_nothing_fulfils_end_in_one_clear_line(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.search.random.MISSES", 200)
    points = Points({"x": Range(low=0.0, high=1.0)}, ["x > 2"])
    made = Settings(method, trials=3)
    with pytest.raises(StudyError, match="200 draws in a row gave nothing new that the conditions accept"):
        _ = adaptive(made, points).ask(1) if made.adaptive else order(made, indexed(made, points), 1, "tune")


# Points


def test_a_listing_counts_every_combination_of_a_conditional_space_once() -> None:
    inner = {"momentum": [0.0, 0.9], "kind": ["a", {"value": "b", "space": {"deep": Range(low=1, high=3)}}]}
    points = Points({"x": [1, 2], "optimizer": ["adam", {"value": "sgd", "space": inner}], "y": [5, 6]})
    listing = Listing(points)
    configs = [listing[k] for k in range(listing.size)]
    assert listing.size == points.combinations == 2 * (1 + 2 * (1 + 3)) * 2
    assert len({tuple(sorted(points.picks(config).items())) for config in configs}) == listing.size
    assert configs[0] == {"x": 1, "optimizer": "adam", "y": 5}
    assert configs[-1] == {"x": 2, "optimizer": "sgd", "momentum": 0.9, "kind": "b", "deep": 3, "y": 6}


def test_a_listing_without_choices_counts_as_a_space_does() -> None:
    dimensions: dict[str, list[Any]] = {"a": [3, 1], "b": ["x", "y", "z"], "c": [[1], [2]]}
    space, points = Space(dimensions, ["a > 1 or b == 'z'"]), Points(dimensions, ["a > 1 or b == 'z'"])
    listing = Listing(points)
    assert [listing[k] for k in range(12)] == [space[k] for k in range(12)]
    assert list(listing.indices(1, 11)) == list(space.indices(1, 11))
    assert isinstance(indexed(Settings(), points), Space)


def test_the_cube_gives_ranges_their_ends_and_log_ranges_their_decades() -> None:
    points = Points({"r": Range(low=1e-4, high=1.0, log=True), "n": Range(low=1, high=4), "l": ["a", "b", "c"]})
    units = [(k + 0.5) / 400 for k in range(400)]
    found = [points.at([unit] * 3) for unit in units]
    assert Counter(config["n"] for config in found) == {1: 100, 2: 100, 3: 100, 4: 100}
    assert [sum(10**k <= c["r"] < 10 ** (k + 1) for c in found) for k in range(-4, 0)] == [100] * 4
    assert max(Counter(config["l"] for config in found).values()) == 134
    assert points.at([0.0] * 3) == {"r": pytest.approx(1e-4), "n": 1, "l": "a"}
    assert points.at([1 - 2**-53] * 3) == {"r": pytest.approx(1.0), "n": 4, "l": "c"}


def test_a_name_that_could_come_twice_into_a_config_is_refused() -> None:
    with pytest.raises(StudyError, match="'m' also comes with 'o'; leave it in one"):
        Points({"o": ["a", {"value": "b", "space": {"m": [1]}}], "m": [2]})
    either = Points({"o": [{"value": "a", "space": {"m": [1]}}, {"value": "b", "space": {"m": [2, 3]}}]})
    assert [Listing(either)[k]["m"] for k in range(3)] == [1, 2, 3]


# Sequences

HUGE = {name: list(range(1000)) for name in "abcde"}  # 10^15 combinations


def test_a_million_draws_of_ten_to_the_fifteen_repeat_nothing_and_ranks_draw_apart() -> None:
    made = Settings("random", trials=1_000_000, seed=3)
    points = Points(HUGE)
    found = order(made, indexed(made, points), 1, "tune")
    assert points.combinations == 10**15
    assert found.size == 1_000_000
    ranks = [set(found.positions(rank * 250_000, (rank + 1) * 250_000)) for rank in range(4)]
    assert [len(drawn) for drawn in ranks] == [250_000] * 4
    assert len(set().union(*ranks)) == 1_000_000
    # all of the space, evenly: 5 standard deviations of a count of 10 000
    tenths = Counter(position // 10**14 for drawn in ranks for position in drawn)
    assert all(abs(tenths[k] - 100_000) < 1500 for k in range(10))


def test_a_draw_takes_microseconds_and_no_memory() -> None:
    made = Settings("random", trials=10**9, seed=3)
    found = order(made, indexed(made, Points(HUGE)), 1, "tune")

    def draw() -> float:
        began = time.perf_counter()
        for _ in found.positions(10**8, 10**8 + 20_000):
            pass
        return (time.perf_counter() - began) / 20_000

    assert min(draw() for _ in range(3)) < 50e-6  # about 4 on a quiet machine
    tracemalloc.start()
    for _ in found.positions(0, 5_000):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


def test_random_draws_as_many_as_are_wanted_that_the_conditions_accept() -> None:
    made = Settings("random", trials=500, seed=1)
    index = indexed(made, Points(HUGE, ["a + b <= 500"]))
    found = order(made, index, 2, "tune")
    positions = list(found.positions(0, found.size))
    configs = [index[position // 2] for position in positions[::2]]
    assert len(positions) == 1000
    assert [position + 1 for position in positions[::2]] == positions[1::2]
    assert all(config["a"] + config["b"] <= 500 for config in configs)
    more = order(replace(made, trials=600), index, 2, "tune")
    assert list(more.positions(0, more.size))[:1000] == positions


@pytest.mark.parametrize("method", ["random", "sobol"])
def test_a_small_space_is_drawn_once_each_though_more_is_wanted(method: Method) -> None:
    points = Points({"a": [1, 2, 3], "b": Range(low=1, high=5, log=True)}, ["a != 2 or b < 3"])
    made = Settings(method, trials=50, seed=4)
    index = indexed(made, points)
    found = order(made, index, 1, "tune")
    configs = [index[position] for position in found.positions(0, found.size)]
    expected = [(a, b) for a in (1, 2, 3) for b in range(1, 6) if a != 2 or b < 3]
    assert sorted((config["a"], config["b"]) for config in configs) == expected


@pytest.mark.parametrize("method", ["random", "sobol"])
def test_to_time_every_repeat_is_a_pass_over_all_draws(method: Method) -> None:
    made = Settings(method, trials=40, seed=2)
    found = order(made, indexed(made, Points(SPACE, WHERE)), 3, "time")
    third = found.size // 3
    passes = [list(found.positions(k * third, (k + 1) * third)) for k in range(3)]
    assert [{position % 3 for position in one} for one in passes] == [{0}, {1}, {2}]
    draws = [[position // 3 for position in one] for one in passes]
    assert sorted(draws[0]) == sorted(draws[1]) == sorted(draws[2])
    assert len(set(draws[0])) == 40
    assert draws[0] != draws[1]


def test_point_k_does_not_depend_on_what_was_drawn_before() -> None:
    points = points_of()
    for method in ("random", "sobol"):
        made = Settings(method, trials=9, seed=5)  # type: ignore[arg-type]
        index, again = indexed(made, points), indexed(made, points)
        forward = [index[k] for k in (0, 1, 1023, 1024, 5000)]
        assert [again[k] for k in (5000, 1024, 1023, 1, 0)] == forward[::-1]
        assert indexed(replace(made, seed=6), points)[0] != forward[0]


def test_sobol_fills_the_square_more_evenly_than_chance() -> None:
    points = Points({"x": Range(low=0.0, high=1.0), "y": Range(low=0.0, high=1.0)})

    def fullest(method: Method) -> int:
        index = indexed(Settings(method, trials=256, seed=1), points)
        return max(Counter((int(index[k]["x"] * 16), int(index[k]["y"] * 16)) for k in range(256)).values())

    assert fullest("sobol") == 1  # one in each of 256 squares
    assert fullest("random") > 2


# Halving


def told(number: int, value: float, epoch: int, state: Any = "paused") -> Told:
    return Told(number, {"x": number}, state, epoch, (value,))


def climbing(**changes: Any) -> Search:
    points = Points({"x": list(range(9))}, (), {"epochs": 9})
    return adaptive(replace(Settings("grid", halving="asha", directions=("minimize",)), **changes), points)


def test_asha_promotes_as_worked_out_by_hand() -> None:
    search = climbing()
    assert [(p.number, p.until) for p in search.ask(3)] == [(0, 1), (1, 1), (2, 1)]
    search.tell(told(0, 5.0, 1))
    search.tell(told(1, 4.0, 1))
    assert [(p.number, p.until) for p in search.ask(1)] == [(3, 1)]  # of two, a third is none
    search.tell(told(2, 6.0, 1))
    assert [(p.number, p.until) for p in search.ask(2)] == [(1, 3), (4, 1)]  # 1 is the best of three
    search.tell(told(3, 1.0, 1))
    search.tell(told(4, 2.0, 1))
    assert [(p.number, p.until) for p in search.ask(2)] == [(3, 3), (5, 1)]  # best of five; 1 is out, but goes on
    search.tell(told(5, 3.0, 1))
    search.tell(told(1, 3.5, 3))
    search.tell(told(3, 0.5, 3))
    assert [(p.number, p.until) for p in search.ask(2)] == [(4, 3), (6, 1)]  # the best two of six: 3 and 4
    search.tell(told(4, 0.7, 3))
    assert [(p.number, p.until) for p in search.ask(1)] == [(3, None)]  # best of three on the rung of 3
    search.tell(told(3, 0.1, 9, "done"))
    search.tell(Told(6, {"x": 6}, "failed"))
    assert [(p.number, p.until) for p in search.ask(3)] == [(7, 1), (8, 1)]
    search.tell(told(7, 9.0, 1))
    assert not search.over
    search.tell(told(8, 8.0, 1))
    # nine on the first rung: three may go on; 5 is third
    assert [(p.number, p.until) for p in search.ask(3)] == [(5, 3)]
    search.tell(told(5, 2.0, 3))
    assert search.ask(1) == []
    assert search.over


def test_a_trial_that_ends_before_its_rung_is_compared_there_and_not_promoted() -> None:
    search = climbing(min_epochs=3)
    for proposal in search.ask(6):
        assert proposal.until == 3
    search.tell(told(0, 0.1, 2, "done"))  # reached its target
    for number in range(1, 6):
        search.tell(told(number, 1.0 + number, 3))
    assert [(p.number, p.until) for p in search.ask(1)] == [(1, None)]


def test_a_grid_under_halving_is_tried_in_a_random_order_so_that_few_are_promoted() -> None:
    """Values that grow better and better: in that order half of them would be let go on to the end."""
    points = Points({"x": list(range(81))}, (), {"epochs": 9})
    search = adaptive(Settings("grid", halving="asha", directions=("maximize",)), points)
    trained: dict[int, int] = {}
    while proposals := search.ask(2):
        for proposal in proposals:
            x, epoch = proposal.values["x"], proposal.until or 9
            trained[x] = epoch
            search.tell(Told(proposal.number, {"x": x}, "paused" if proposal.until else "done", epoch, (float(x),)))
    assert len(trained) == 81
    assert sum(trained.values()) <= 81 * 9 / 3
    assert trained[80] == 9


def test_the_rungs_of_a_config_end_below_its_own_epochs() -> None:
    points = Points({"epochs": [1, 2, 9, 30]})
    search = adaptive(Settings("grid", halving="asha"), points)
    firsts = search.ask(4)
    assert {p.values["epochs"]: p.until for p in firsts} == {1: None, 2: 1, 9: 1, 30: 1}
    steps = ladder(1, 30, 3, hyperband=False)
    assert steps.rungs == (1, 3, 9, 27)
    assert [steps.after(0, epoch, 9) for epoch in (0, 1, 3, 8)] == [1, 3, None, None]


def test_hyperband_deals_its_brackets_in_the_papers_shares_evenly_mixed() -> None:
    steps = ladder(1, 81, 3, hyperband=True)
    assert steps.rungs == (1, 3, 9, 27)
    assert Counter(steps.brackets) == {0: 81, 1: 34, 2: 15, 3: 8, 4: 5}
    assert Counter(steps.brackets[:29]) == {0: 16, 1: 7, 2: 3, 3: 2, 4: 1}
    firsts = {steps.bracket(number): steps.after(number, 0, 81) for number in range(143)}
    assert firsts == {0: 1, 1: 3, 2: 9, 3: 27, 4: None}


def test_brackets_promote_among_themselves() -> None:
    points = Points({"x": Range(low=0.0, high=1.0)}, (), {"epochs": 9})
    search = adaptive(Settings("random", trials=22, halving="hyperband", directions=("minimize",)), points)
    steps = ladder(1, 9, 3, hyperband=True)
    assert Counter(steps.brackets) == {0: 9, 1: 5, 2: 3}
    promoted: list[Proposal] = []
    while found := search.ask(1):
        proposal = found[0]
        first = steps.after(proposal.number, 0, 9)
        promoted += [proposal] if proposal.until != first else []
        until = proposal.until
        # the second bracket is worse throughout, and yet its best goes on
        value = proposal.values["x"] + 10 * steps.bracket(proposal.number)
        state: Any = "done" if until is None else "paused"
        search.tell(Told(proposal.number, proposal.values, state, until or 9, (value,)))
    assert {steps.bracket(proposal.number) for proposal in promoted} == {0, 1}


@given(
    scores=st.lists(st.floats(-5, 5, allow_nan=False), min_size=1, max_size=40),
    eta=st.integers(2, 4),
    min_epochs=st.integers(1, 3),
    hyperband=st.booleans(),
    chance=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=60)
def test_halving_trains_no_epoch_twice_and_ends(
    scores: list[float], eta: int, min_epochs: int, hyperband: bool, chance: random.Random
) -> None:
    points = Points({"x": list(range(len(scores)))}, (), {"epochs": 30})
    made = Settings("grid", halving="hyperband" if hyperband else "asha", eta=eta, min_epochs=min_epochs)
    search, steps = adaptive(made, points), ladder(min_epochs, 30, eta, hyperband)
    running: list[Proposal] = []
    reached: dict[int, list[int]] = {}
    failed: dict[int, int] = {}  # with the epoch that they did not reach
    while True:
        while len(running) < 4 and (found := search.ask(1)):
            assert found[0].number not in {p.number for p in running} | failed.keys()
            running += found
        if not running:
            break
        proposal = running.pop(chance.randrange(len(running)))
        epochs = reached.setdefault(proposal.number, [])
        epochs.append(proposal.until or 30)
        if chance.random() < 0.1:
            failed[proposal.number] = proposal.until or 30
            search.tell(Told(proposal.number, proposal.values, "failed"))
        else:
            state: Any = "paused" if proposal.until else "done"
            search.tell(
                Told(proposal.number, proposal.values, state, proposal.until or 30, (scores[proposal.number],))
            )
    assert search.over
    assert sorted(reached) == list(range(len(scores)))
    for number, epochs in reached.items():
        assert epochs == sorted(set(epochs))
        assert epochs[0] == (steps.after(number, 0, 30) or 30)
    for bracket in set(steps.brackets):
        members = [number for number in reached if steps.bracket(number) == bracket]
        for below, above in itertools.pairwise((*steps.rungs[bracket:], 30)):
            there = {n: () if failed.get(n) == below else (scores[n],) for n in members if below in reached[n]}
            due = [n for n in ranked(there, ["maximize"])[: len(there) // eta] if there[n]]
            assert all(above in reached[n] for n in due)


# Objectives and budgets


def test_two_objectives_are_ranked_by_front_and_then_by_the_first() -> None:
    results = {0: (0.9, 30.0), 1: (0.8, 10.0), 2: (0.7, 20.0), 3: (0.95, 90.0), 4: (), 5: (0.6, 50.0)}
    assert ranked(results, ("maximize", "minimize")) == [3, 0, 1, 2, 5, 4]


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_two_objectives_drive_proposals_to_the_pareto_front(method: Method) -> None:
    points = Points({"x": Range(low=0.0, high=1.0), "waste": Range(low=0.0, high=1.0)})
    options = {"population": 10} if method == "nsga2" else {}
    made = Settings(method, directions=("maximize", "minimize"), trials=80, seed=1, options=options)
    search, wasted = adaptive(made, points), []
    while found := search.ask(1):
        x, waste = found[0].values["x"], found[0].values["waste"]
        wasted.append(waste)
        search.tell(Told(found[0].number, found[0].values, "done", 1, (x - waste, x + waste)))
    # the front is waste = 0, whatever x
    assert sorted(wasted[60:])[10] < 0.6 * sorted(wasted[:20])[10]


def test_a_budget_of_epochs_counts_each_epoch_once_and_is_enough_for_the_best_to_come_to_its_end() -> None:
    search = climbing(epochs=14)
    for proposal in search.ask(9):
        search.tell(told(proposal.number, float(proposal.number), 1))
    assert len(search.pending) == 0
    (promoted,) = search.ask(9)  # six are at 1, and 8 epochs are left: no second one may go on
    assert (promoted.number, promoted.until) == (0, 3)
    search.tell(told(0, 0.5, 3))
    assert not search.over
    assert search.ask(9) == [Proposal(0, promoted.values, None)]
    assert search.ask(9) == []
    search.tell(told(0, 0.4, 9, "done"))  # 5 + 9
    assert search.over
    assert search.why == "search.epochs: 14 of 14 epochs were trained"


@pytest.mark.parametrize("limits", [{}, {"target": 4.0}, {"patience": 4}, {"epochs": 12}])
@pytest.mark.parametrize("halving", ["asha", "hyperband"])
def test_halving_ends_with_the_best_config_trained_to_its_end(limits: dict[str, Any], halving: Any) -> None:
    points = Points({"x": [6, 3, 8, 2, 7]}, (), {"epochs": 10})
    made = Settings("grid", directions=("minimize",), halving=halving, eta=3, **limits)
    search, trained = adaptive(made, points), dict[int, int]()
    while found := search.ask(2):
        for each in found:
            epoch = trained[each.values["x"]] = each.until or 10
            state: Any = "paused" if each.until else "done"
            search.tell(Told(each.number, each.values, state, epoch, (float(each.values["x"]),)))
    assert search.over
    assert max(trained.values()) == 10
    if halving == "asha":
        assert [x for x, epoch in trained.items() if epoch == 10] == [min(trained)]
    assert sum(trained.values()) <= limits.get("epochs", 50)


def test_where_the_best_fails_on_its_way_to_the_end_the_next_one_goes() -> None:
    points = Points({"x": [5, 6]}, (), {"epochs": 9})
    search = adaptive(Settings("grid", halving="asha", directions=("minimize",)), points)
    for proposal in search.ask(2):
        search.tell(told(proposal.number, float(proposal.number), 1))
    (last,) = search.ask(3)
    assert (last.number, last.until) == (0, None)
    search.tell(Told(0, last.values, "failed"))
    (last,) = search.ask(3)
    assert (last.number, last.until) == (1, None)
    search.tell(told(1, 1.0, 9, "done"))
    assert search.over


def test_a_budget_too_small_for_one_config_is_refused_under_halving() -> None:
    with pytest.raises(
        StudyError, match=r"search.epochs: found 17; allowed with halving: from 18 \(9 epochs × 2 rep"
    ):
        climbing(epochs=17, repeats=2)
    assert climbing(epochs=18, repeats=2).ask(9)


def test_a_budget_of_epochs_counts_what_is_pending_and_every_repeat() -> None:
    points = Points({"x": Range(low=0.0, high=1.0)}, (), {"epochs": 5})
    search = adaptive(Settings("tpe", epochs=50, repeats=4), points)
    assert len(search.ask(9)) == 3  # of 20 epochs each: the third is begun while some are left
    search.tell(Told(0, {"x": 0.5}, "done", 2, (0.1,), 8))
    assert len(search.ask(9)) == 1


def test_a_target_and_patience_end_a_search() -> None:
    points = Points({"x": Range(low=0.0, high=1.0)})
    targeted = adaptive(Settings("tpe", trials=50, target=0.9), points)
    patient = adaptive(Settings("tpe", trials=50, patience=3), points)
    for search in (targeted, patient):
        search.ask(5)
    for number, value in enumerate([0.1, 0.5, 0.4, 0.3]):
        for search in (targeted, patient):
            search.tell(Told(number, {"x": value}, "done", 1, (value,)))
            assert not search.over
    patient.tell(Told(4, {"x": 0.1}, "failed"))
    assert patient.over
    targeted.tell(Told(4, {"x": 0.1}, "done", 1, (0.95,)))
    assert targeted.over
    assert targeted.ask(1) == []


# Export


def test_an_exported_run_opens_in_optuna(tmp_path: Path) -> None:
    import optuna

    from tradewind.search.optuna_export import export

    points = points_of()
    index = indexed(Settings("random", trials=9), points)
    states = ["done", "done", "failed", "pruned", "done", "paused"]
    records = [
        {
            "state": state, "config": {"momentum": None, "kick": None, "fixed": 1, **index[k]}, "key": f"k{k}",
            "trial": k, "repeat": 0, "reason": "", "started": 100.0 + k, "finished": 101.0 + k, "scores": {},
            "times": {"train_s": 2.0 + k, "epoch_s": [1.0] * 3}, "last": {"auc": 0.5 + k / 10},
        }
        for k, state in enumerate(states)
    ]  # fmt: skip
    one, two = tmp_path / "one.db", str(tmp_path / "two.log")
    assert export(records, points, {"auc": "maximize"}, one) == 5
    assert export(records, points, {"auc": "maximize", "train_s": "minimize"}, two) == 5
    with pytest.raises(DataError, match="holds a study 'tradewind' already"):
        export(records, points, {"auc": "maximize", "train_s": "minimize"}, two)
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{one}")
    assert study.best_value == pytest.approx(0.9)
    assert study.best_trial.user_attrs["key"] == "k4"
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL", "PRUNED", "COMPLETE"]
    assert study.trials[3].intermediate_values == {3: pytest.approx(0.8)}
    for trial, record in zip(study.trials, records, strict=False):
        assert trial.params["rate"] == record["config"]["rate"]
        assert ("momentum" in trial.params) == (record["config"]["optimizer"] == "sgd")
    assert study.trials[0].distributions["rate"].log
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(two))
    front = optuna.load_study(study_name="tradewind", storage=journal).best_trials
    assert [trial.values for trial in front] == [pytest.approx([0.5 + k / 10, 2.0 + k]) for k in (0, 1, 4)]
