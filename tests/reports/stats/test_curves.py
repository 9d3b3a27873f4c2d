"""Tests of learning curves on a common grid."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from scipy import stats as scipy_stats

from spo.reports import stats


def test_runs_with_the_same_points_are_unchanged():
    x = np.array([0.0, 1.0, 5.0])
    grid, values, interpolated = stats.on_common_grid([x, x], [x, 2 * x])
    np.testing.assert_array_equal(grid, x)
    np.testing.assert_array_equal(values, np.stack([x, 2 * x], axis=-1))
    assert not interpolated


def test_runs_with_different_points_are_interpolated_where_all_overlap():
    grid, values, interpolated = stats.on_common_grid(
        [np.array([0.0, 4.0, 8.0]), np.array([2.0, 6.0])], [np.array([0.0, 4.0, 8.0]), np.array([20.0, 60.0])]
    )
    np.testing.assert_array_equal(grid, [2.0, 4.0, 6.0])
    np.testing.assert_allclose(values, [[2.0, 20.0], [4.0, 40.0], [6.0, 60.0]])
    assert interpolated
    many = np.linspace(0, 1, 500)
    assert len(stats.on_common_grid([many], [many], max_points=101)[0]) == 101
    with pytest.raises(ValueError, match="share no part"):
        stats.on_common_grid([np.array([0.0, 1.0]), np.array([2.0, 3.0])], [np.zeros(2), np.zeros(2)])


def test_the_aggregate_curve_is_the_iqm_at_every_step():
    rng = np.random.default_rng(0)
    x = np.arange(4.0)
    curves = [[(x, rng.normal(size=4)) for _ in range(5)] for _ in range(2)]
    curve = stats.aggregate_curve(curves, num_resamples=200)
    for step in range(4):
        pooled = [y[step] for task in curves for _, y in task]
        assert curve.estimate.value[step] == pytest.approx(scipy_stats.trim_mean(pooled, 0.25))
    assert np.all(curve.estimate.low < curve.estimate.value)
    assert np.all(curve.estimate.value < curve.estimate.high)
