"""Tests of aggregates against rliable and SciPy, and of properties that hold for any scores."""

import math

import numpy as np
import pytest

pytest.importorskip("scipy")

from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from reports.stats.samples import by_task, suites
from spo.reports import stats


@pytest.fixture(scope="module", params=[(5, 3), (10, 1), (3, 7)], ids=str)
def case(request):
    num_runs, num_tasks = request.param
    rng = np.random.default_rng([1, num_runs, num_tasks])
    # Rounded, to create ties.
    return tuple(np.round(rng.uniform(0, 1.2, (num_runs, num_tasks)), 1) for _ in range(2))


def test_aggregates_equal_those_of_rliable(case):
    metrics = pytest.importorskip("rliable.metrics")
    a, b = case
    for name, theirs in {
        "IQM": metrics.aggregate_iqm,
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "optimality gap": metrics.aggregate_optimality_gap,
    }.items():
        assert stats.AGGREGATES[name](by_task(a)) == pytest.approx(theirs(a), abs=1e-12), name
    ours = stats.probability_of_improvement(by_task(a), by_task(b))
    assert ours == pytest.approx(metrics.probability_of_improvement(a, b), abs=1e-12)


def test_profiles_equal_those_of_rliable(case):
    library = pytest.importorskip("rliable.library")
    thresholds = np.linspace(0, 1.2, 25)
    for matrix in case:
        theirs = [library.run_score_deviation(matrix, threshold) for threshold in thresholds]
        assert stats.performance_profile(by_task(matrix), thresholds) == pytest.approx(theirs, abs=1e-12)


def test_probability_of_improvement_equals_mann_whitneys_u_for_different_numbers_of_runs():
    rng = np.random.default_rng(0)
    a = [rng.integers(0, 5, n).astype(float) for n in (3, 8)]
    b = [rng.integers(0, 5, n).astype(float) for n in (6, 2)]
    expected = np.mean(
        [scipy_stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(a, b, strict=True)]
    )
    assert stats.probability_of_improvement(a, b) == pytest.approx(expected, abs=1e-12)


def test_interquartile_mean_equals_scipys_trimmed_mean():
    rng = np.random.default_rng(0)
    for count in range(1, 14):
        runs = rng.normal(size=count)
        expected = scipy_stats.trim_mean(runs, 0.25)
        assert stats.interquartile_mean([runs[: count // 2], runs[count // 2 :]]) == pytest.approx(expected)


@given(suite=suites, scale=st.sampled_from([0.5, 2.0, 64.0]), shift=st.sampled_from([-16.0, 0.0, 3.0]))
def test_statistics_do_not_depend_on_units(suite, scale, shift):
    def judged(suite):
        """Returns all statistics of two algorithms, after each task was normalised over both."""
        limits = [stats.min_max(np.concatenate(task)) for task in suite]
        a, b = (
            [stats.normalise(task[side], limit) for task, limit in zip(suite, limits, strict=True)] for side in (0, 1)
        )
        values = [statistic(x) for statistic in stats.AGGREGATES.values() for x in (a, b)]
        return np.array([*values, stats.probability_of_improvement(a, b)])

    changed = [(scale * a + shift, scale * b + shift) for a, b in suite[:1]] + suite[1:]
    np.testing.assert_allclose(judged(changed), judged(suite), atol=1e-12)


@given(suite=suites, seed=st.integers(0, 99))
def test_statistics_do_not_depend_on_the_order_of_runs_and_tasks(suite, seed):
    rng = np.random.default_rng(seed)
    shuffled = [(rng.permutation(a), rng.permutation(b)) for a, b in suite]
    shuffled = [shuffled[index] for index in rng.permutation(len(suite))]
    for (a, b), (c, d) in ((zip(*suite, strict=True), zip(*shuffled, strict=True)),):
        for statistic in stats.AGGREGATES.values():
            assert statistic(a) == pytest.approx(statistic(c), abs=1e-12)
        assert stats.probability_of_improvement(a, b) == pytest.approx(
            stats.probability_of_improvement(c, d), abs=1e-12
        )


@given(suite=suites)
def test_probabilities_of_improvement_of_a_pair_add_up_to_1(suite):
    a, b = zip(*suite, strict=True)
    forth, back = stats.probability_of_improvement(a, b), stats.probability_of_improvement(b, a)
    assert forth + back == pytest.approx(1.0, abs=1e-12)
    assert stats.probability_of_improvement(a, a) == pytest.approx(0.5, abs=1e-12)


@given(suite=suites)
def test_the_area_under_a_profile_is_the_mean(suite):
    a = [np.abs(task) for task, _ in suite]
    edges = np.unique(np.concatenate([[0.0], *a]))
    area = np.sum(stats.performance_profile(a, edges)[:-1] * np.diff(edges))
    assert area == pytest.approx(stats.mean(a), abs=1e-9)


def test_normalised_scores_of_a_task_with_one_value_are_a_half():
    np.testing.assert_array_equal(stats.normalise(np.array([3.0, 3.0]), (3.0, 3.0)), [0.5, 0.5])
    np.testing.assert_array_equal(stats.normalise(np.array([3.0, 4.0]), (2.0, 4.0)), [0.5, 1.0])
    with pytest.raises(ValueError, match="finite"):
        stats.min_max([1.0, math.nan])
