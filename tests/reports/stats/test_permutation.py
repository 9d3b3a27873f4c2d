"""Tests of the permutation test against SciPy and against counting, and of Holm's correction by hand."""

import itertools

import numpy as np
import pytest

pytest.importorskip("scipy")

from scipy import stats as scipy_stats

from reports.stats.samples import normal_scores
from spo.reports import stats
from spo.reports.stats import permutation


@pytest.mark.parametrize(("n", "k"), [(2, 3), (4, 4), (5, 5), (7, 3)])
def test_p_values_of_one_task_equal_those_of_scipy(n, k):
    rng = np.random.default_rng([n, k])
    for _ in range(5):
        a, b = rng.normal(size=n), rng.normal(size=k)
        expected = scipy_stats.mannwhitneyu(a, b, method="exact", alternative="two-sided").pvalue
        assert stats.permutation_p_value([a], [b]) == pytest.approx(expected, abs=1e-12)
        a, b = rng.integers(0, 4, n), rng.integers(0, 4, k)  # ties
        expected = scipy_stats.permutation_test(
            (a, b),
            lambda a, b: abs(float(stats.probability_of_improvement([a], [b])) - 0.5),
            alternative="greater",
            n_resamples=np.inf,
        ).pvalue
        assert stats.permutation_p_value([a], [b]) == pytest.approx(expected, abs=1e-12)


def counted_p_value(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """Computes the p-value from all divisions of all tasks."""
    pools = [np.concatenate(task) for task in zip(a, b, strict=True)]
    divisions = itertools.product(
        *(itertools.combinations(range(len(pool)), len(x)) for pool, x in zip(pools, a, strict=True))
    )
    values = [
        stats.probability_of_improvement(
            [pool[list(chosen)] for pool, chosen in zip(pools, division, strict=True)],
            [np.delete(pool, chosen) for pool, chosen in zip(pools, division, strict=True)],
        )
        for division in divisions
    ]
    seen = abs(stats.probability_of_improvement(a, b) - 0.5)
    return float(np.mean(np.abs(np.array(values) - 0.5) >= seen - 1e-9))


@pytest.mark.parametrize("counts", [[(3, 3), (3, 3)], [(2, 3), (4, 2)], [(1, 3), (2, 2), (2, 1)]], ids=str)
def test_runs_change_sides_within_their_task(counts):
    """The scores of other tasks are far away, so a run that changes its task changes the p-value."""
    rng = np.random.default_rng(0)
    for ties in (False, True):
        a, b = (
            [
                100.0 * task + (rng.integers(0, 3, pair[side]) if ties else rng.normal(size=pair[side]))
                for task, pair in enumerate(counts)
            ]
            for side in (0, 1)
        )
        assert stats.permutation_p_value(a, b) == pytest.approx(counted_p_value(a, b), abs=1e-12)


def test_drawn_divisions_agree_with_counted_ones(monkeypatch):
    """20,000 draws have a deviation of at most 0.0035. Eight p-values exceed four deviations with chance 5e-4."""
    rng = np.random.default_rng(0)
    suites = [(normal_scores(rng, 4, 2), [rng.normal(0.5, 1, 5), rng.normal(0.5, 1, 3)]) for _ in range(8)]
    counted = [stats.permutation_p_value(a, b) for a, b in suites]
    monkeypatch.setattr(permutation, "MAX_ADDITIONS", 0)
    drawn = [stats.permutation_p_value(a, b) for a, b in suites]
    assert drawn == pytest.approx(counted, abs=0.014)
    assert drawn == [stats.permutation_p_value(a, b) for a, b in suites]
    assert drawn != counted
    # Never zero: the observed division counts as one of the draws.
    assert stats.permutation_p_value([np.arange(50.0) + 100], [np.arange(50.0)]) == 1 / 20_001


def test_divisions_of_many_runs_are_drawn():
    """Counting would take too long for 200 runs, and for numbers of runs without a small common multiple."""
    rng = np.random.default_rng(0)
    assert stats.permutation_p_value([rng.normal(size=200)], [rng.normal(1, 1, 200)]) == 1 / 20_001
    counts = (7, 8, 9, 11, 13)
    a, b = ([rng.normal(shift, 1, count) for count in counts] for shift in (0, 3))
    assert stats.permutation_p_value(a, b) == 1 / 20_001


def test_holms_correction_by_hand():
    assert stats.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert stats.holm([0.6, 0.7]) == [1.0, 1.0]
    assert stats.holm([0.02]) == [0.02]
    assert stats.holm([]) == []
