"""Stratified bootstrap: 95 % intervals of any statistic of runs."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spo.reports.stats.aggregates import AGGREGATES, Scores, as_arrays

NUM_RESAMPLES = 10_000
LEVEL = 0.05
"""Error rate of intervals and tests."""


class Estimate(NamedTuple):
    """A statistic of runs and its 95 % bootstrap interval: three numbers, or three arrays of the same shape."""

    value: Any
    low: Any
    high: Any


def bootstrap(
    statistic: Callable[..., np.ndarray], *samples: Scores, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Estimate:
    """Returns a statistic with its 95 % stratified bootstrap interval (percentile method).

    Runs are resampled with replacement within each task of each sample. Leading axes, such as the steps of a learning
    curve, are resampled together. The bounds are NaN if any task has a single run.
    """
    samples = tuple(as_arrays(scores) for scores in samples)
    value = np.asarray(statistic(*samples))
    low = high = np.full(value.shape, math.nan)
    if all(task.shape[-1] >= 2 for scores in samples for task in scores):
        rng = np.random.default_rng(seed)
        resampled = [[_resample(task, num_resamples, rng) for task in scores] for scores in samples]
        low, high = np.percentile(statistic(*resampled), [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)], axis=0)
    return Estimate(value, low, high) if value.ndim else Estimate(float(value), float(low), float(high))


def aggregate(scores: Scores, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> dict[str, Estimate]:
    """Returns all `AGGREGATES` of the scores with their intervals."""
    return {
        name: bootstrap(statistic, scores, num_resamples=num_resamples, seed=seed)
        for name, statistic in AGGREGATES.items()
    }


def _resample(task: np.ndarray, num_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """[..., N] -> [resamples, ..., N]"""
    num_runs = task.shape[-1]
    return np.moveaxis(task[..., rng.integers(num_runs, size=(num_resamples, num_runs))], -2, 0)
