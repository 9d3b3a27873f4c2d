"""Tests of numbers as people read them."""

import math

import pytest

pytest.importorskip("scipy")

from spo.reports.formatting import format_count, format_duration, format_estimate, format_list, format_metric
from spo.reports.stats import Estimate


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("episode/solved", 0.9344, "93.4 %"),
        ("episode/return", 0.03125, "0.0312"),
        ("episode/return", 12345.6, "12,346"),
        ("episode/return", math.nan, "none"),
    ],
)
def test_metrics(name: str, value: float, words: str):
    assert format_metric(name, value) == words


@pytest.mark.parametrize(("seconds", "words"), [(59.6, "1 min 00 s"), (7, "7 s"), (3660, "1 h 01 min")])
def test_durations(seconds: float, words: str):
    assert format_duration(seconds) == words


def test_estimates():
    assert format_estimate("episode/solved", Estimate(0.5, 0.25, 0.75)) == "50.0 % (25.0 % to 75.0 %)"
    assert format_estimate("IQM", Estimate(0.5, 0.25, 0.75)) == "0.500 (0.250 to 0.750)"
    assert format_estimate("IQM", Estimate(0.5, math.nan, math.nan)) == "0.500"


def test_lists():
    assert [format_list(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (192, "192"),
        (999, "999"),
        (999.9, "1 k"),
        (303_104, "303 k"),
        (100_590_336, "101 M"),
        (2.1e9, "2.1 G"),
    ],
)
def test_large_numbers_have_three_digits(number: float, words: str):
    assert format_count(number) == words
