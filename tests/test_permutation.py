"""The keyed permutation and the order in which a grid is walked."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.pack import Purpose
from tradewind.search.grid import Grid
from tradewind.search.permutation import Permutation
from tradewind.space import Space

HUGE = 10**15
PURPOSES: tuple[Purpose, ...] = ("tune", "time")


@given(n=st.integers(1, 2000), key=st.text(max_size=8))
@settings(deadline=None)
def test_every_value_appears_once(n: int, key: str) -> None:
    permutation = Permutation(n, key)
    assert len(permutation) == n
    assert sorted(permutation[i] for i in range(n)) == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025])
def test_every_value_appears_once_around_powers_of_two(n: int) -> None:
    assert {Permutation(n, "edge")[i] for i in range(n)} == set(range(n))


@given(n=st.integers(HUGE - 1000, 2 * HUGE), key=st.text(max_size=4), data=st.data())
def test_values_of_a_huge_permutation_stay_in_range_and_apart(n: int, key: str, data: st.DataObject) -> None:
    permutation = Permutation(n, key)
    places = data.draw(st.sets(st.integers(0, n - 1), min_size=2, max_size=20)) | {0, n - 1}
    values = [permutation[place] for place in places]
    assert all(0 <= value < n for value in values)
    assert len(set(values)) == len(places)


def test_another_key_gives_another_order_and_the_same_key_the_same() -> None:
    orders = [[Permutation(100, key)[i] for i in range(100)] for key in ("0/0", "0/1", "1/0", "0/0")]
    assert orders[0] == orders[3]
    assert all(a != b for a, b in itertools.combinations(orders[:3], 2))
    assert list(range(100)) not in orders


def test_the_order_of_two_of_two_is_either() -> None:
    assert {tuple(Permutation(2, str(key))[i] for i in range(2)) for key in range(20)} == {(0, 1), (1, 0)}


@pytest.mark.parametrize("place", [-1, 10, 11])
def test_a_place_outside_is_an_index_error(place: int) -> None:
    with pytest.raises(IndexError):
        Permutation(10, "")[place]


def test_each_value_comes_first_about_equally_often() -> None:
    firsts = [Permutation(10, str(key))[0] for key in range(2000)]
    assert all(130 <= firsts.count(value) <= 270 for value in range(10))  # 200 ± 5 deviations


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def space_of(sizes: list[int], conditions: list[str]) -> Space:
    values: dict[str, list[Any]] = {name: list(range(size)) for name, size in zip("abc", sizes, strict=False)}
    return Space(values, conditions, {})


@pytest.mark.parametrize("purpose", PURPOSES)
@given(sizes=SIZES, repeats=st.integers(1, 4), limit=st.integers(0, 5), cuts=st.sets(st.integers(0, 500), max_size=6))
@settings(deadline=None)
def test_a_grid_covers_every_accepted_position_once_however_it_is_cut(
    purpose: Purpose, sizes: list[int], repeats: int, limit: int, cuts: set[int]
) -> None:
    space = space_of(sizes, [f"a <= {limit}"])
    grid = Grid(space, repeats, purpose, seed=3)
    assert grid.size == space.size * repeats
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < grid.size), grid.size]
    found = [place for start, stop in itertools.pairwise(bounds) for place in grid.positions(start, stop)]
    accepted = [i for i in range(space.size) if space[i]["a"] <= limit]
    assert sorted(found) == [i * repeats + r for i in accepted for r in range(repeats)]


def test_to_tune_a_grid_is_walked_in_its_natural_order() -> None:
    assert list(Grid(space_of([3, 2], []), 2, "tune", 0).positions(0, 12)) == list(range(12))


@given(sizes=SIZES, repeats=st.integers(1, 4), seed=st.integers(0, 5))
def test_to_time_every_repeat_is_a_whole_pass(sizes: list[int], repeats: int, seed: int) -> None:
    space = space_of(sizes, [])
    grid = Grid(space, repeats, "time", seed)
    for repeat in range(repeats):
        positions = list(grid.positions(repeat * space.size, (repeat + 1) * space.size))
        assert {position % repeats for position in positions} == {repeat}
        assert sorted(position // repeats for position in positions) == list(range(space.size))


def test_to_time_the_passes_differ_in_order_and_with_the_seed() -> None:
    space = space_of([5, 5, 2], [])

    def passes(seed: int) -> list[list[int]]:
        grid = Grid(space, 3, "time", seed)
        return [[place // 3 for place in grid.positions(50 * k, 50 * k + 50)] for k in range(3)]

    found = [*passes(0), *passes(1), list(range(50))]
    assert all(a != b for a, b in itertools.combinations(found, 2))
    assert passes(0) == found[:3]
