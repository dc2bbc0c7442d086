from __future__ import annotations

import gc
import weakref
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Took
from test_results import Record, record, write_run

from tradewind import Results
from tradewind.analysis.augmentation import live_against_ahead
from tradewind.analysis.effects import BALANCED, UNBALANCED, effects
from tradewind.analysis.groups import Cells, group, summary, t_quantile, varied
from tradewind.analysis.pareto import Noise, Point, field_of, front, knee, noise, plateau
from tradewind.columns import Column, Columns
from tradewind.errors import Mistake, RunError
from tradewind.folder import RunFolder


def trial(number: int, config: dict[str, Any], score: float | None, seconds: float = 1.0, **fields: Any) -> Record:
    """A record with this config, score and wall time."""
    times = fields.pop("times", {"wall_s": seconds})
    return record(number, config=config, scores={"score": score}, times=times, last={}, **fields)


def load(path: Path, records: list[Record]) -> Results:
    return Results.load(write_run(path / "run", a=records))


@pytest.mark.parametrize(
    ("confidence", "dof", "t"),
    [
        (0.95, 1, 12.706204736),
        (0.95, 2, 4.302652730),
        (0.95, 9, 2.262157163),
        (0.99, 5, 4.032142984),
        (0.9, 30, 1.697260887),
        (0.95, 100, 1.983971519),
        (0.95, 120, 1.979930405),
        (0.95, 1000, 1.962339081),
    ],
)
def test_students_t_has_the_values_of_the_tables(confidence: float, dof: int, t: float) -> None:
    assert t_quantile(confidence, dof) == pytest.approx(t, abs=2e-9)


def test_a_group_has_mean_median_spread_and_the_interval_of_its_mean(tmp_path: Path) -> None:
    scores = [1.0, 2.0, 3.0, 6.0]
    records = [trial(n, {"a": 1}, score, repeat=n) for n, score in enumerate(scores)] + [trial(9, {"a": 2}, 5.0)]
    first, second = group(load(tmp_path, records), ["a"], "score")
    assert (first.labels, first.n, first.mean, first.median, first.minimum, first.maximum) == (
        {"a": 1}, 4, 3.0, 2.5, 1.0, 6.0,
    )  # fmt: skip
    assert first.std == pytest.approx(np.sqrt(14 / 3), abs=1e-12)
    assert first.high == pytest.approx(3 + 3.182446305 * np.sqrt(14 / 3) / 2, abs=1e-8)
    assert first.low == pytest.approx(3 - 3.182446305 * np.sqrt(14 / 3) / 2, abs=1e-8)
    assert (second.n, second.mean, second.std, second.low, second.high) == (1, 5.0, None, None, None)


def test_what_does_not_count_is_counted_beside(tmp_path: Path) -> None:
    records = [
        trial(0, {"a": "x"}, 1.0), trial(1, {"a": "x"}, None), trial(2, {"a": "x"}, 9.0, state="stopped"),
        trial(3, {"a": "y"}, None, state="failed"), trial(0, {"a": "x"}, 8.0, finished=1e11),
    ]  # fmt: skip
    results = load(tmp_path, records)
    x, y = group(results, ["a"], "score")
    assert (x.n, x.mean, x.stopped, x.failed, x.missing) == (1, 1.0, 1, 0, 1)
    assert (y.labels, y.n, y.mean, y.failed) == ({"a": "y"}, 0, None, 1)
    counts = effects(results, "score").counts
    assert counts == {"done": 2, "pruned": 0, "stopped": 1, "failed": 1, "duplicates": 1, "skipped_lines": 0}


def test_groups_go_by_several_names_of_any_kind_in_order(tmp_path: Path) -> None:
    configs = [{"b": b, "o": o, "f": f} for b, o, f in product([128, 16], ["sgd", None], [[8, 16], True])]
    results = load(tmp_path, [trial(n, config, float(n)) for n, config in enumerate(configs)])
    groups = group(results, ["b", "o", "f"], "score")
    assert [g.labels["b"] for g in groups] == [16] * 4 + [128] * 4
    assert groups[0].labels == {"b": 16, "o": "sgd", "f": True}
    assert sorted(g.mean for g in groups if g.mean is not None) == list(map(float, range(8)))
    (whole,) = group(results, [], "score")
    assert (whole.labels, whole.n, whole.mean) == ({}, 8, 3.5)


def test_bad_questions_are_the_users_mistakes(tmp_path: Path) -> None:
    results = load(tmp_path, [trial(0, {"a": "x"}, 1.0)])
    with pytest.raises(Mistake, match="no column 'b'"):
        group(results, ["b"], "score")
    with pytest.raises(Mistake, match="can't be the value"):
        group(results, ["score"], "a")
    with pytest.raises(Mistake, match=r"confidence 1\.5"):
        group(results, ["a"], "score", 1.5)
    with pytest.raises(RunError, match="no trial has ended"):
        group(Results.load(write_run(tmp_path / "empty", a=[])), ["a"], "score")


def test_the_time_of_a_packed_trial_is_refused(tmp_path: Path) -> None:
    results = load(tmp_path, [trial(0, {"a": 1}, 1.0, packed_with=1, times={"wall_s": 2.0, "share_s": 1.0})])
    with pytest.raises(Mistake, match="trained in a pack"):
        group(results, ["a"], "wall_s")
    assert group(results, ["a"], "share_s")[0].mean == 1.0


@pytest.mark.parametrize("n", [2, 3, 5])
def test_intervals_cover_the_true_mean_as_often_as_they_say(n: int) -> None:
    cells_ = 20_000
    values = np.random.default_rng(n).normal(3.0, 2.0, cells_ * n)
    found = Cells([], [], np.zeros((cells_, 0), int), np.repeat(np.arange(cells_), n))
    some = summary(values, found)
    for confidence in (0.5, 0.95):
        covered = np.mean(np.abs(some.mean - 3.0) <= some.margin(confidence))
        assert covered == pytest.approx(confidence, abs=0.02 if confidence == 0.95 else 0.03)


def million(path: Path, names: int = 12) -> Results:
    """A million records of a random study, as columns."""
    rng, n = np.random.default_rng(0), 1_000_000
    columns = {f"h{k}": Column(rng.integers(4 + k, size=n).astype(float), None, True) for k in range(names - 1)}
    columns["text"] = Column(rng.integers(3, size=n).astype(np.int32), ["a", "b", "c"])
    groups = dict.fromkeys(columns, "config") | {"trial": "record", "state": "record", "score": "scores"}
    columns["trial"] = Column(np.arange(n, dtype=float), None, True)
    columns["state"] = Column(np.zeros(n, np.int32), ["done"])
    columns["score"] = Column(rng.normal(size=n) + columns["h3"].values)
    keys = np.column_stack([np.arange(n, dtype=np.uint64)] * 2)
    return Results(RunFolder.create(path), Columns(path, keys, np.zeros((n, 2), np.int64), columns, groups))


def test_a_million_rows_are_grouped_in_a_second(tmp_path: Path) -> None:
    results = million(tmp_path / "run")
    with Took() as took:
        groups = group(results, ["h1", "h2", "text"], "score")
    assert (len(groups), sum(g.n for g in groups)) == (90, 1_000_000)
    assert took.s < 1


def constructed() -> tuple[list[Record], dict[str, float]]:
    """3 × 2 × 2 configs, 2 repeats: effects of a and b, one interaction a × c, noise ± 0.5 that cancels."""
    a = {8: -2.0, 16: 0.5, 32: 1.5}
    b = {"adam": 1.0, "sgd": -1.0}
    ac = {(8, 1): 0.25, (8, 2): -0.25, (16, 1): 0.5, (16, 2): -0.5, (32, 1): -0.75, (32, 2): 0.75}
    records = []
    for x, y, z, repeat in product(a, b, (1, 2), (0, 1)):
        score = 10 + a[x] + b[y] + ac[x, z] + (0.5 if repeat else -0.5)
        records.append(trial(len(records), {"a": x, "b": y, "c": z}, score, repeat=repeat))
    squares = {
        "a": 8 * sum(v * v for v in a.values()), "b": 12 * sum(v * v for v in b.values()),
        "a × c": 4 * sum(v * v for v in ac.values()), "residual": 24 * 0.25,
    }  # fmt: skip
    return records, {name: value / sum(squares.values()) for name, value in squares.items()}


def test_effects_of_a_full_factorial_are_recovered_to_the_digit(tmp_path: Path) -> None:
    records, shares = constructed()
    found = effects(load(tmp_path, records), "score")
    assert (found.method, found.n, found.repeated, found.aliases) == (BALANCED, 24, True, {})
    assert found.mean == pytest.approx(10, abs=1e-12)
    main = {one.name: one for one in found.main}
    assert main["a"].levels == [8, 16, 32]
    assert main["a"].effects == pytest.approx([-2.0, 0.5, 1.5], abs=1e-12)
    assert main["b"].effects == pytest.approx([1.0, -1.0], abs=1e-12)
    assert main["c"].effects == pytest.approx([0, 0], abs=1e-12)
    assert [main[name].share for name in "abc"] == pytest.approx([shares["a"], shares["b"], 0], abs=1e-12)
    pairs = {pair.names: pair.share for pair in found.pairs}
    assert pairs == pytest.approx({("a", "b"): 0, ("a", "c"): shares["a × c"], ("b", "c"): 0}, abs=1e-12)
    assert (found.residual, found.higher) == pytest.approx((shares["residual"], 0), abs=1e-12)
    assert [name for name, _ in found.importance] == ["a", "b", "c"]


def test_additive_effects_are_recovered_from_an_unbalanced_part_of_the_grid(tmp_path: Path) -> None:
    records = [r for r in constructed()[0] if r["config"]["c"] == 1][:-3]
    a, b = {8: -2.0, 16: 0.5, 32: 1.5}, {"adam": 1.0, "sgd": -1.0}
    for one in records:
        one["scores"] = {"score": a[one["config"]["a"]] + b[one["config"]["b"]]}
    found = effects(load(tmp_path, records), "score")
    assert found.method == UNBALANCED
    main = {one.name: one for one in found.main}
    assert list(main) == ["a", "b"]
    assert np.diff(main["a"].effects) == pytest.approx([2.5, 1.0], abs=1e-9)
    assert np.diff(main["b"].effects) == pytest.approx([-2.0], abs=1e-9)
    assert (found.pairs, found.repeated) == ([], True)
    assert (found.residual, found.higher) == pytest.approx((0, 0), abs=1e-9)


def test_names_that_change_together_are_one_and_a_range_is_binned(tmp_path: Path) -> None:
    rates = np.random.default_rng(0).uniform(size=200).tolist()
    configs = [{"rate": rate, "gpu": "ab"[n % 2], "devices": 1 + n % 2} for n, rate in enumerate(rates)]
    records = [trial(n, config, 10 * config["rate"]) for n, config in enumerate(configs)]
    found = effects(load(tmp_path, records), "score")
    assert (found.aliases, found.curves) == ({"devices": "gpu"}, ["rate"])
    share = {one.name: one.share for one in found.main}
    assert share["rate"] > 0.95
    assert share["gpu"] < 0.02
    assert found.importance[0][0] == "rate"


def test_a_value_that_does_not_vary_has_no_shares(tmp_path: Path) -> None:
    found = effects(load(tmp_path, [trial(n, {"a": n % 3}, 4.0) for n in range(6)]), "score")
    assert ([one.share for one in found.main], found.higher, found.residual) == ([0.0], 0.0, 0.0)


def points(results: Results) -> list[Point]:
    field = field_of(results, "wall_s")
    return [field.point(cell) for cell in front(field)]


def test_the_pareto_front_holds_what_nothing_beats_in_both(tmp_path: Path) -> None:
    pairs = [(1.0, 0.5), (2.0, 0.7), (3.0, 0.6), (4.0, 0.9), (4.0, 0.8), (9.0, 0.9)]
    records = [trial(n, {"a": n}, score, seconds) for n, (seconds, score) in enumerate(pairs)]
    results = load(tmp_path, records)
    assert [(p.config["a"], p.time, p.score, p.n) for p in points(results)] == [
        (0, 1.0, 0.5, 1), (1, 2.0, 0.7, 1), (3, 4.0, 0.9, 1),
    ]  # fmt: skip
    for one in records:
        one["scores"] = {"loss": one["scores"]["score"]}
    lower = Results.load(write_run(tmp_path / "lower", a=records))
    assert [p.config["a"] for p in points(lower)] == [0]
    assert varied(results) == ["a"]


def test_noise_comes_from_repeats_then_neighbours_then_what_the_names_leave(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    smooth = [trial(n, {"a": n}, 50 + 0.2 * n + float(rng.normal(0, 0.1)), 1.0 + n) for n in range(400)]
    found = noise(field_of(load(tmp_path, smooth), "wall_s"))
    assert found.source == "neighbours"
    assert found.sigma == pytest.approx(0.1, rel=0.15)
    repeated = [trial(n, {"a": n // 4}, n // 4 + [-0.3, 0.3][n % 2], repeat=n % 4) for n in range(40)]
    field = field_of(Results.load(write_run(tmp_path / "repeats", a=repeated)), None)
    assert noise(field) == Noise(pytest.approx(0.3 * np.sqrt(4 / 3)), 15, "repeats")
    assert knee(field, noise(field)) is None
    few = [trial(n, {"a": "xyz"[n]}, [0.91, 0.9, 0.5][n], 3.0 - n) for n in range(3)]
    field = field_of(Results.load(write_run(tmp_path / "few", a=few)), "wall_s")
    assert noise(field).source == "none"  # it was the digits written down, which say nothing about chance
    assert plateau(field, noise(field)).tolist() == [0, 1, 2]
    assert knee(field, noise(field)) is None
    random = [trial(n, {"a": float(rng.uniform()), "b": float(rng.uniform())}, 0.0) for n in range(60)]
    for one in random:
        one["scores"] = {"score": one["config"]["a"] - one["config"]["b"] + float(rng.normal(0, 0.1))}
    left = noise(field_of(Results.load(write_run(tmp_path / "random", a=random)), None))
    assert (left.source, left.sigma) == ("names", pytest.approx(0.1, rel=0.3))
    assert plateau(field, Noise(0.01, 1000, "repeats")).tolist() == [0, 1]
    assert knee(field, Noise(0.01, 1000, "repeats")) == 1


def paired(live_s: float, ahead_s: float, prepare_s: float | None) -> list[Record]:
    records = []
    for batch_size, repeat, augment in product((32, 64), (0, 1), ("live", "pre")):
        epoch_s = (live_s if augment == "live" else ahead_s) * (64 / batch_size)
        times: dict[str, Any] = {"wall_s": 9 * epoch_s, "epoch_s": [epoch_s, epoch_s, 5.0]}
        if prepare_s is not None:
            times["prepare_s"] = prepare_s if augment == "pre" and batch_size == 32 and not repeat else 0.0
        config = {"batch_size": batch_size, "augment": augment, "epochs": 3}
        records.append(trial(len(records), config, 0.5, repeat=repeat, times=times))
    return records


def test_live_against_ahead_is_paired_and_breaks_even_where_preparing_pays(tmp_path: Path) -> None:
    found = live_against_ahead(load(tmp_path, [*paired(1.5, 1.0, 30.0), trial(50, {"augment": "live"}, 1.0)]))
    assert found is not None
    assert (found.pairs, found.unpaired, found.measure) == (4, 0, "epoch_s")
    assert (found.ratio, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert (found.prepare_s, found.break_even_epochs) == (30.0, pytest.approx(4 * 30 / (2 * 0.5 + 2 * 1.0)))


def test_preparing_never_pays_when_live_is_no_slower(tmp_path: Path) -> None:
    found = live_against_ahead(load(tmp_path, paired(1.0, 1.25, 30.0)))
    assert found is not None
    assert (found.ratio, found.break_even_epochs) == (pytest.approx(0.8), None)
    unknown = live_against_ahead(Results.load(write_run(tmp_path / "unknown", a=paired(1.5, 1.0, None))))
    assert unknown is not None
    assert (unknown.prepare_s, unknown.break_even_epochs) == (None, None)


def test_without_a_pair_there_is_no_comparison(tmp_path: Path) -> None:
    configs = [{"augment": "live", "b": 1}, {"augment": "pre", "b": 2}]
    assert live_against_ahead(load(tmp_path, [trial(n, c, 1.0) for n, c in enumerate(configs)])) is None


def test_an_answer_is_worked_out_once_and_forgotten_with_its_results(tmp_path: Path) -> None:
    results = load(tmp_path, constructed()[0])
    found = effects(results, "score")
    assert effects(results, "score") is found
    assert effects(results, "wall_s") is not found
    gone = weakref.ref(results)
    del results
    gc.collect()
    assert gone() is None
