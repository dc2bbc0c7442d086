"""The lazy space: indexes, order, conditions, counts and costs."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import StudyError
from tradewind.space import COUNTED, Space

Values = dict[str, list[Any]]

VALUES = st.one_of(
    st.integers(-3, 9),
    st.floats(-2, 2, allow_nan=False),
    st.booleans(),
    st.none(),
    st.text("abc", max_size=2),
    st.lists(st.integers(0, 2), max_size=2),
)


def mark(value: Any) -> str:
    """1 and 1.0 alike, true and 1 not, as in the space."""
    return json.dumps(float(value) if type(value) is int else value).replace("-0.0", "0.0")


DIMENSIONS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.lists(VALUES, min_size=1, max_size=4, unique_by=mark),
    max_size=4,
)
NUMERIC = st.fixed_dictionaries(
    {name: st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True) for name in "abcd"}
)
CONDITIONS = st.lists(
    st.sampled_from(
        [
            "a <= b",
            "b + c < 7",
            "d != a",
            "a % 2 == 0",
            "c in [0, 1, 2]",
            "a * d <= k",
            "a < b < c",
            "not (b == d or c == 3)",
            "k == 5",
            "d > 0",
            "a > 0",
            "a == 0 or d / a < 3",
        ]
    ),
    max_size=4,
)


def product(dimensions: Values) -> list[dict[str, Any]]:
    return [dict(zip(dimensions, values, strict=True)) for values in itertools.product(*dimensions.values())]


def brute(space: Space) -> list[int]:
    return [index for index in range(space.size) if space.accepts(space[index])]


def huge(where: list[str] | None = None) -> Space:
    return Space({f"d{number}": list(range(10)) for number in range(15)}, where or [])


@given(DIMENSIONS)
def test_index_and_config_are_inverse_without_duplicates_in_the_order_of_product(dimensions: Values) -> None:
    space = Space(dimensions)
    expected = product(dimensions)
    assert len(space) == space.size == len(expected)
    assert [space[index] for index in range(len(space))] == expected
    assert list(space) == expected
    assert [space.index(config) for config in expected] == list(range(len(space)))
    assert all(config in space for config in expected)


@given(DIMENSIONS, st.slices(300), st.slices(20))
def test_slicing_equals_list_slicing(dimensions: Values, first: slice, second: slice) -> None:
    space, expected = Space(dimensions), product(dimensions)
    assert list(space[first]) == expected[first]
    assert len(space[first]) == len(expected[first])
    assert list(space[first][second]) == expected[first][second]
    assert [space[first][-number] for number in range(1, len(space[first]) + 1)] == expected[first][::-1]


@given(NUMERIC, CONDITIONS)
def test_iteration_indices_count_and_membership_equal_a_brute_force_filter(
    dimensions: Values, where: list[str]
) -> None:
    space = Space(dimensions, where, {"k": 5})
    accepted = brute(space)
    assert list(space.indices()) == accepted
    assert list(space) == [space[index] for index in accepted]
    assert list(reversed(space)) == [space[index] for index in accepted[::-1]]
    assert space.count() == (len(accepted), True)
    assert [index for index in range(space.size) if space[index] in space] == accepted


@given(NUMERIC, CONDITIONS, st.slices(300))
def test_a_view_skips_what_is_rejected(dimensions: Values, where: list[str], part: slice) -> None:
    space = Space(dimensions, where, {"k": 5})
    wanted = range(space.size)[part]
    accepted = set(brute(space))
    assert list(space[part]) == [space[index] for index in wanted if index in accepted]
    assert len(space[part]) == len(wanted)
    assert [index for index in accepted if space[index] in space[part]] == [
        index for index in accepted if index in wanted
    ]


@given(NUMERIC, CONDITIONS, st.integers(-300, 300), st.none() | st.integers(-300, 300))
def test_indices_start_and_stop_anywhere(dimensions: Values, where: list[str], start: int, stop: int | None) -> None:
    space = Space(dimensions, where, {"k": 5})
    wanted = range(space.size)[start:stop]
    assert list(space.indices(start, stop)) == [index for index in brute(space) if index in wanted]


def test_a_space_without_dimensions_has_one_empty_config() -> None:
    space = Space({})
    assert (len(space), space[0], list(space), space.index({"a": 1}), space.count()) == (
        1,
        {},
        [{}],
        0,
        (1, True),
    )
    assert {} in space


def test_an_index_outside_is_an_index_error() -> None:
    space = Space({"a": [1, 2], "b": [1, 2, 3]})
    assert space[-1] == space[5] == {"a": 2, "b": 3}
    assert space[-6] == space[0] == {"a": 1, "b": 1}
    for index in (6, -7, 10**30):
        with pytest.raises(IndexError):
            space[index]


def test_index_ignores_further_names_and_refuses_missing_or_foreign_values() -> None:
    space = Space({"a": [1, 2], "b": ["x", [1, 2], True, None]})
    assert space.index({"a": 2.0, "b": [1, 2], "c": 9}) == 5
    assert space.index({"a": 2, "b": True}) == 6
    foreign: list[dict[str, Any]] = [
        {"a": 1},
        {"a": 3, "b": "x"},
        {"a": True, "b": "x"},
        {"a": {1}, "b": "x"},
    ]
    for config in foreign:
        with pytest.raises(ValueError, match="is not a value of this space"):
            space.index(config)
        assert config not in space
    assert "a" not in space


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "space 'a': the list of values is empty"),
        ([1, 2, 1], "space 'a': 1 is given twice"),
        ([1, 1.0], "space 'a': 1.0 is given twice"),
        ([[1, 2], [1.0, 2]], "space 'a': [1.0, 2] is given twice"),
        ([{"x": 1, "y": 2}, {"y": 2, "x": 1}], "space 'a': {'y': 2, 'x': 1} is given twice"),
        ("text", "space 'a': needs a list of values, found 'text'"),
        (3, "space 'a': needs a list of values, found 3"),
    ],
)
def test_a_dimension_that_is_empty_or_holds_a_value_twice_is_named(values: Any, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        Space({"b": [1], "a": values})
    assert str(caught.value) == message


def test_true_and_one_are_different_values() -> None:
    space = Space({"a": [True, 1, "1", [1], [True]]})
    assert [space.index(space[index]) for index in range(5)] == [0, 1, 2, 3, 4]


def test_an_unknown_name_in_where_gets_the_nearest_one() -> None:
    with pytest.raises(StudyError) as caught:
        Space({"batch_size": [1]}, ["bach_size < 3"], {"devices": 1})
    assert str(caught.value) == (
        "where 'bach_size < 3': there is no 'bach_size'; did you mean 'batch_size'? allowed: batch_size, devices"
    )


def test_where_must_be_a_list() -> None:
    with pytest.raises(StudyError, match="where must be a list of conditions, found the text 'a < 1'"):
        Space({"a": [1]}, "a < 1")


def test_constants_are_seen_by_where_but_are_not_part_of_a_config() -> None:
    space = Space({"a": [1, 2, 3]}, ["a <= limit"], {"limit": 2, "a": 99, "other": 1})
    assert list(space) == [{"a": 1}, {"a": 2}]
    assert {"a": 3} not in space
    assert {"a": 2, "more": 1} in space


def test_accepts_takes_values_that_are_not_in_the_space() -> None:
    space = Space({"a": [1, 2, 3]}, ["a <= limit"], {"limit": 2})
    assert space.accepts({"a": 1.5})
    assert not space.accepts({"a": 2.5})
    with pytest.raises(StudyError, match="there is no 'a'"):
        space.accepts({})


def test_a_condition_on_constants_alone_can_reject_everything() -> None:
    space = Space({"a": [1, 2, 3]}, ["limit > 2"], {"limit": 2})
    assert (list(space), list(space[::2]), space.count(), {"a": 1} in space) == ([], [], (0, True), False)


def test_a_fault_in_a_condition_on_constants_is_found_at_once() -> None:
    with pytest.raises(StudyError, match="division by zero"):
        Space({"a": [1]}, ["1 / devices > 0"], {"devices": 0})


def test_an_earlier_condition_guards_a_later_one() -> None:
    space = Space({"a": [0, 1, 2], "b": [4, 6]}, ["b / a > 3", "a > 0"])
    assert list(space) == [{"a": 1, "b": 4}, {"a": 1, "b": 6}]
    assert space.count() == (2, True)
    assert {"a": 0, "b": 4} not in space


def test_a_changed_config_does_not_change_the_space() -> None:
    layers = [[64], [64, 32]]
    space = Space({"layers": layers})
    layers[0].append(1)
    space[0]["layers"].append(2)
    next(iter(space))["layers"].append(3)
    assert space[0] == {"layers": [64]}


def test_spaces_are_equal_by_dimensions_and_where() -> None:
    space = Space({"a": [1, 2], "b": [True]}, ["a < 2"])
    assert space == Space({"a": [1.0, 2], "b": [True]}, ["a < 2"], {"c": 1})
    assert hash(space) == hash(Space({"a": [1.0, 2], "b": [True]}, ["a < 2"]))
    assert space != Space({"b": [True], "a": [1, 2]}, ["a < 2"])
    assert space != Space({"a": [2, 1], "b": [True]}, ["a < 2"])
    assert space != Space({"a": [1, 2], "b": [1]}, ["a < 2"])
    assert space != Space({"a": [1, 2], "b": [True]})
    assert space != [{"a": 1, "b": True}]


def test_repr_names_dimensions_and_conditions() -> None:
    assert repr(Space({"a": [1, 2], "b": [1]}, ["a < 2", "b > 0"])) == "Space(a (2) × b (1), where a < 2 and b > 0)"


def test_any_of_10_to_15_combinations_is_reached_within_50_microseconds() -> None:
    space = huge()
    assert len(space) == 10**15
    indexes = [pow(7, number, 10**15) for number in range(300)]
    access, inverse = [], []
    for index in indexes:
        started = time.perf_counter()
        config = space[index]
        between = time.perf_counter()
        assert space.index(config) == index
        inverse.append(time.perf_counter() - between)
        access.append(between - started)
    assert statistics.median(access) < 50e-6
    assert statistics.median(inverse) < 50e-6


def test_walking_a_large_space_takes_no_memory() -> None:
    space = huge(["d0 + d14 != 9"])
    walk = iter(space)
    tracemalloc.start()
    try:
        for _ in itertools.islice(walk, 20_000):
            pass
        assert space[10**15 - 1] == {f"d{number}": 9 for number in range(15)}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_sparse_space_is_walked_and_counted_without_looking_at_every_combination() -> None:
    space = huge([f"d{number} == d{number + 1}" for number in range(14)])
    started = time.perf_counter()
    assert [config["d7"] for config in space] == list(range(10))
    assert [config["d7"] for config in space[::-1]] == list(range(10))[::-1]
    assert list(space.indices(10**14, 4 * 10**14)) == [111111111111111 * number for number in (1, 2, 3)]
    assert space.count() == (10, True)
    assert time.perf_counter() - started < 1


def test_more_combinations_than_len_can_say_still_work() -> None:
    space = Space({f"d{number}": list(range(10)) for number in range(40)}, ["d0 == 3"])
    assert space.size == 10**40
    assert space
    assert space[10**39]["d0"] == 1
    assert space.index(space[-1]) == 10**40 - 1
    assert next(space.indices()) == 3 * 10**39
    assert next(iter(space[:: 10**20]))["d0"] == 3
    assert next(reversed(space))["d1"] == 9
    assert space.count() == (10**39, True)
    with pytest.raises(OverflowError):
        len(space)


def test_free_dimensions_and_separate_conditions_multiply_to_an_exact_count() -> None:
    space = Space({name: list(range(300)) for name in "abcdef"}, ["a < b", "c % 3 == 0", "d + k < 10"], {"k": 5})
    assert space.count() == (300 * 299 // 2 * 100 * 5 * 300 * 300, True)


def test_a_count_that_is_too_dear_is_an_estimate_that_repeats() -> None:
    space = Space({name: list(range(1000)) for name in "abc"}, ["a < b", "b < c"])
    count, exact = space.count()
    assert not exact
    assert count == pytest.approx(math.comb(1000, 3), rel=0.2)
    assert space.count() == (count, exact)


@pytest.mark.parametrize(
    "space",
    [
        Space({"a": list(range(200)), "b": list(range(COUNTED // 200))}, ["a + b < 500"]),
        Space({name: list(range(1000)) for name in "abcdefgh"}, ["a < b", "c < d", "e < f", "g < h"]),
        huge([" + ".join(f"d{number}" for number in range(15)) + " < 60"]),
    ],
    ids=["the largest exact one", "four estimates", "a dear condition"],
)
def test_a_count_takes_a_fraction_of_a_second(space: Space) -> None:
    taken = []
    for _ in range(3):
        started = time.process_time()
        space.count()
        taken.append(time.process_time() - started)
    assert min(taken) < 0.6  # 0.2 on a machine that has nothing else to do
