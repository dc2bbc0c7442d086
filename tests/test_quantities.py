"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from tradewind.quantities import duration, number, quantity, size, value_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (14.9e-6, "14.9 µs"), (0.0235, "23.5 ms"), (0.99949, "999 ms"), (0.9996, "1 s"),
        (2.345, "2.35 s"),
        (59.94, "59.9 s"), (59.96, "1 min"), (319, "5 min 19 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h"),
        (4320, "1 h 12 min"), (172_799, "48 h"), (200_000, "2.3 days"), (None, "–"), (math.nan, "–"),
        (math.inf, "–"),
    ],
)  # fmt: skip
def test_a_duration_has_the_units_that_fit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.026714264256035056, "0.02671"), (138963, "138,963"), (9999, "9999"), (12345.678, "12,346"), (1.0, "1"),
        (1.23456e-7, "1.235e-07"), (None, "–"), (math.nan, "–"), (-0.5, "-0.5"),
    ],
)  # fmt: skip
def test_a_number_has_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_measure_has_the_unit_that_its_name_ends_in() -> None:
    assert quantity("train_s", 319.2) == "5 min 19 s"
    assert quantity("peak_memory_bytes", 50_300_000) == "50.3 MB"
    assert quantity("samples_per_s", 8_200_000.0) == "8,200,000"
    assert quantity("auc", 0.87654321) == "0.8765"
    assert size(999) == "999 B"
    assert size(999.6) == "1 kB"


def test_a_hyperparameter_keeps_its_whole_numbers_and_words() -> None:
    assert [value_text(v) for v in (138963, 0.026714264256035056, 128.0, True, None, "adam", [64, 64])] == [
        "138963", "0.02671", "128", "true", "–", "adam", "[64, 64]",
    ]  # fmt: skip
    assert value_text("x" * 60) == "x" * 47 + "…"
