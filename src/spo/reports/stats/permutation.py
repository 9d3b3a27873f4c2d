"""Permutation test of the probability of improvement, and Holm's correction for several tests."""

import math
from collections.abc import Sequence

import numpy as np

from spo.reports.stats.aggregates import Scores, as_arrays, probability_of_improvement

MAX_ADDITIONS = 100_000_000
"""Largest number of additions of an exact test, which take about 0.1 s."""


def permutation_p_value(
    a: Scores | Sequence[Sequence[float]],
    b: Scores | Sequence[Sequence[float]],
    *,
    num_draws: int = 20_000,
    seed: int = 0,
) -> float:
    """Two-sided permutation test: the chance of a P(A > B) at least as far from 0.5 if A and B are equal.

    If A and B are equal, every division of a task's runs between them is equally likely. Runs change sides within their
    task only. The test counts all divisions. Where counting takes too long (more than sixty runs on each side, or tasks
    with many different numbers of runs), it draws `num_draws` divisions instead.
    """
    a, b = as_arrays(a), as_arrays(b)
    # The tolerance counts divisions as equally far whose P differs by rounding.
    least = abs(float(probability_of_improvement(a, b)) - 0.5) - 1e-9
    if _num_additions([(x.size, y.size) for x, y in zip(a, b, strict=True)]) <= MAX_ADDITIONS:
        chances = null_distribution(a, b)
        distances = np.abs(np.linspace(0.0, 1.0, len(chances)) - 0.5)
        return min(1.0, float(chances[distances >= least].sum()))
    rng = np.random.default_rng(seed)
    drawn = np.mean([_draw_divisions(x, y, num_draws, rng) for x, y in zip(a, b, strict=True)], axis=0)
    # The observed division counts as one of the draws: without it, the test would exceed its level.
    return (1 + int(np.sum(np.abs(drawn - 0.5) >= least))) / (1 + num_draws)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns Holm's adjusted p-values. Among equals, at most 5 % of families contain one of 5 % or less.

    The i-th smallest of m is multiplied by m - i + 1 and is at least as large as those before it.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for smaller, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - smaller) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def null_distribution(a: Scores, b: Scores) -> np.ndarray:
    """Returns the probability of each value of P(A > B) over all divisions of the runs.

    The values are evenly spaced from 0 to 1.
    """
    halves = [2 * x.size * y.size for x, y in zip(a, b, strict=True)]
    unit = math.lcm(*halves)  # tasks with different numbers of runs have steps of different size
    chances = np.ones(1)
    for x, y, count in zip(a, b, halves, strict=True):
        of_task = np.zeros(unit + 1)
        of_task[:: unit // count] = _null_distribution_of_task(x, y)
        chances = np.convolve(chances, of_task)
    return chances


def _null_distribution_of_task(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the probability of 2U = 0, 1, ..., 2nk over all ways to choose n of a task's n + k runs.

    U is the sum of the chosen ranks minus n(n + 1) / 2. So ways are counted by the number of chosen runs and by the sum
    of their doubled ranks, which are integers even with ties.
    """
    n, k = a.size, b.size
    least, most = n * (n + 1), n * (n + 1) + 2 * n * k
    ways = np.zeros((n + 1, most + 1))
    ways[0, 0] = 1
    for rank in _doubled_ranks(a, b):
        ways[1:, rank:] += ways[:-1, :-rank]
    return ways[n, least:] / math.comb(n + k, n)


def _draw_divisions(a: np.ndarray, b: np.ndarray, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Returns P(A > B) of one task in random divisions of its runs."""
    n, k = a.size, b.size
    ranks = rng.permuted(np.broadcast_to(_doubled_ranks(a, b), (num_draws, n + k)), axis=1)
    return (ranks[:, :n].sum(axis=1) - n * (n + 1)) / (2 * n * k)


def _doubled_ranks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns twice the rank of each run in its task. Equal scores share their mean rank, which may be a half."""
    _, place, ties = np.unique(np.concatenate([a, b]), return_inverse=True, return_counts=True)
    return (2 * np.cumsum(ties) - ties + 1)[place]


def _num_additions(num_runs: Sequence[tuple[int, int]]) -> int:
    """Returns the number of additions in `null_distribution`."""
    of_tasks = sum((n + k) * n * (n * (n + 1) + 2 * n * k) for n, k in num_runs)
    unit = math.lcm(*(2 * n * k for n, k in num_runs))
    return of_tasks + unit**2 * len(num_runs) * (len(num_runs) - 1) // 2
