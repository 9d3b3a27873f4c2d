"""Learning curves of several runs on a common axis."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from spo.reports.stats.aggregates import Scores, interquartile_mean
from spo.reports.stats.bootstrapping import Estimate, bootstrap

CURVE_RESAMPLES = 2_000
"""Bootstrap samples of a curve, which has an interval at every point."""


class Curve(NamedTuple):
    """A statistic of several runs over steps or seconds."""

    x: np.ndarray
    """Points, [T]."""
    estimate: Estimate
    """Arrays of shape [T]."""
    interpolated: bool = False
    """True if some run has no value of its own at some point."""


def plain_curve(x: np.ndarray, values: np.ndarray) -> Curve:
    """Returns a curve without an interval: its bounds are NaN."""
    none = np.full(len(x), math.nan)
    return Curve(np.asarray(x, float), Estimate(np.asarray(values, float), none, none))


def on_common_grid(
    xs: Sequence[np.ndarray], ys: Sequence[np.ndarray], max_points: int = 101
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Interpolates runs with different evaluation points at the same points.

    The grid contains every point of every run, from the latest start to the earliest end. If there are more than
    `max_points`, it contains that many evenly spaced points. Between two points a run is a straight line.

    Returns:
        The grid [T], the values [T, runs], and True if some value is interpolated.
    """
    start, end = max(x[0] for x in xs), min(x[-1] for x in xs)
    if not share_axis(xs):
        raise ValueError("These curves share no part of their x-axis: one ends before another starts.")
    grid = np.unique(np.concatenate(xs))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > max_points:
        grid = np.linspace(start, end, max_points)
    interpolated = any(not np.isin(grid, x).all() for x in xs)
    return grid, np.stack([np.interp(grid, x, y) for x, y in zip(xs, ys, strict=True)], axis=-1), interpolated


def share_axis(xs: Sequence[np.ndarray]) -> bool:
    """Returns True if the runs have a part of the x-axis in common, from the latest start to the earliest end."""
    return max(x[0] for x in xs) <= min(x[-1] for x in xs)


def aggregate_curve(
    curves: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]],
    statistic: Callable[[Scores], np.ndarray] = interquartile_mean,
    *,
    num_resamples: int = CURVE_RESAMPLES,
    seed: int = 0,
) -> Curve:
    """Returns a statistic over all runs of all tasks at every point, with its interval.

    Args:
        curves: `curves[task][run]` is a pair (x [T], y [T]).
        statistic: one of the aggregates, such as `interquartile_mean` or `mean`.
        num_resamples: number of bootstrap samples.
        seed: random seed of the bootstrap.
    """
    runs = [run for task in curves for run in task]
    grid, values, interpolated = on_common_grid([x for x, _ in runs], [y for _, y in runs])
    ends = np.cumsum([len(task) for task in curves])
    tasks = np.split(values, ends[:-1], axis=-1)
    return Curve(grid, bootstrap(statistic, tasks, num_resamples=num_resamples, seed=seed), interpolated)
