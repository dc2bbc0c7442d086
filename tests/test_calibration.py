"""Statements compared with planted truths: a small part of `tradewind bench calibration`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tradewind.bench.calibration import page
from tradewind.bench.calibration_judge import Counts, judge
from tradewind.bench.calibration_mix import MIX, covered


def counts(name: str, studies: int, folder: Path) -> Counts:
    found: Counts = Counter()
    for seed in range(studies):
        study = MIX[name].make(seed)
        assert study is not None
        found.update(judge(study, folder / "run"))
    return found


def shares(found: Counts, sure: str) -> tuple[int, int]:
    """How many statements of a degree are true, and how many there are."""
    true = sum(count for key, count in found.items() if key[1:] == (sure, "true"))
    return true, true + sum(count for key, count in found.items() if key[1:] == (sure, "false"))


def at_most(share: float, of: int) -> float:
    """What a share may come out as by chance, in 99 of 100 tests."""
    return share + 2.33 * float(np.sqrt(share * (1 - share) / of))


def test_in_pure_noise_a_cause_is_named_in_at_most_5_of_100_studies(tmp_path: Path) -> None:
    found = counts("noise, grids", 140, tmp_path)
    assert found[("noise",)] == 140
    assert found[("noise named",)] / 140 <= at_most(0.05, 140)


@pytest.mark.parametrize("name", ["effects, grids", "plateaus"])
def test_sure_statements_are_true_in_95_and_fairly_sure_ones_in_80_of_100(tmp_path: Path, name: str) -> None:
    found = counts(name, 50, tmp_path)
    for sure, share in (("sure", 0.95), ("fairly sure", 0.8)):
        true, of = shares(found, sure)
        assert of >= 5
        assert 1 - true / of <= at_most(1 - share, of)


def test_the_largest_effect_of_2_is_named_first_in_75_and_half_of_those_above_3_are_sure(tmp_path: Path) -> None:
    first, small = counts("one effect of 2", 60, tmp_path), counts("3 × 3, n = 1", 60, tmp_path)
    assert first[("first",)] / first[("asked first",)] >= 0.75
    assert small[("large sure",)] / small[("large",)] >= 0.45


def test_80_percent_intervals_from_three_device_counts_hold_about_80_percent() -> None:
    each = [covered(seed)["8 devices from 1, 2, 4"] for seed in range(60)]
    assert 0.75 - 0.12 <= np.mean(each) <= 0.90 + 0.09


def test_the_page_says_how_many_statements_stand_behind_a_share() -> None:
    degrees = {"best score": {"sure": {"true": 19, "false": 1}}}
    mix = {"noise": {"statements": degrees, "noise": 100, "noise named": 4}}
    text = page({"mix": mix, "predict": {"4 devices from 1, 2": {"held": 8, "of": 10}}})
    assert "0.950 of 20" in text
    assert "a cause is named in pure noise: 0.040 of 100" in text
    assert "80 % interval, 4 devices from 1, 2: 0.800 of 10" in text
