"""Tests of intervals from formulas, against SciPy."""

import math

import numpy as np
import pytest

pytest.importorskip("scipy")

from scipy import stats as scipy_stats

from spo.reports import stats


@pytest.mark.parametrize(("successes", "count"), [(0, 10), (10, 10), (3, 17), (1200, 1280)])
def test_share_interval_is_wilsons(successes: int, count: int):
    expected = scipy_stats.binomtest(successes, count).proportion_ci(method="wilson")
    found = stats.share_interval(successes / count, count)
    assert found == pytest.approx((successes / count, expected.low, expected.high), abs=1e-6)


def test_a_number_that_is_no_share_has_an_interval():
    """The result of a run that reports such a number can be written."""
    assert stats.share_interval(3.0, 10) == (3.0, *stats.share_interval(1.0, 10)[1:])
    assert stats.share_interval(-0.5, 10) == (-0.5, *stats.share_interval(0.0, 10)[1:])


def test_mean_interval_is_students():
    values = [1.0, 2.0, 4.0, 8.0]
    expected = scipy_stats.t.interval(0.95, 3, loc=3.75, scale=scipy_stats.sem(values))
    assert stats.mean_interval(values) == pytest.approx((3.75, *expected))
    single = stats.mean_interval([2.0])
    assert single.mean == 2.0
    assert math.isnan(single.low)


def test_normal_interval_equals_scipys():
    expected = scipy_stats.norm.interval(0.95, loc=3.0, scale=2.0 / math.sqrt(50))
    assert stats.normal_interval(3.0, 2.0, 50) == pytest.approx((3.0, *expected), abs=1e-6)


def test_an_interval_is_widened_to_the_wider_one_of_episodes_and_seeds():
    between_episodes = stats.Interval(0.5, 0.4, 0.6)
    assert stats.widen_to_seeds(between_episodes, [0.5, 0.5]) == between_episodes
    assert stats.widen_to_seeds(between_episodes, [0.5]) == between_episodes
    low, high = stats.mean_interval([0.2, 0.8])[1:]
    widened = stats.widen_to_seeds(between_episodes, [0.2, 0.8])
    assert widened == (0.5, low, high)
    assert stats.clip_to_share(widened) == (0.5, 0.0, 1.0)


def test_runs_that_win_every_pair_still_allow_a_lower_probability():
    five_each = stats.least_probability([(5, 5)])
    assert five_each == pytest.approx(0.655, abs=1e-3)
    # One pair: it is won with the probability P itself.
    assert stats.least_probability([(1, 1)]) == pytest.approx(0.025)
    assert five_each < stats.least_probability([(10, 10)]) < 1
    assert five_each < stats.least_probability([(5, 5), (5, 5)])


def test_the_lower_probability_gives_the_outcome_a_chance_of_one_in_forty():
    num_runs = [(3, 5), (4, 2)]
    probability = stats.least_probability(num_runs)
    power = probability / (1 - probability)
    rng = np.random.default_rng(0)
    won = np.ones(200_000, bool)
    for n, m in num_runs:
        a = rng.random((len(won), n)) ** (1 / power)  # distribution function u^power
        won &= a.min(axis=1) > rng.random((len(won), m)).max(axis=1)
    assert won.mean() == pytest.approx(0.025, abs=4 * 0.00035)
