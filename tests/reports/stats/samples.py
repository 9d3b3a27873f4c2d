"""Scores that the tests of the statistics share."""

import numpy as np
from hypothesis import strategies as st

RESAMPLES = 2_000

# Multiples of 1/8: sums are exact, so equal scores stay equal under an affine map.
_runs = st.lists(st.integers(-80, 80).map(lambda n: n / 8), min_size=2, max_size=6).map(np.array)
suites = st.lists(st.tuples(_runs, _runs), min_size=1, max_size=4)
"""Pairs of arrays of runs, one pair per task."""


def normal_scores(rng: np.random.Generator, num_runs: int, num_tasks: int, shift: float = 0.0) -> list[np.ndarray]:
    """Draws one array of runs per task from a normal distribution around `shift`."""
    return [rng.normal(shift, 1.0, num_runs) for _ in range(num_tasks)]


def by_task(matrix: np.ndarray) -> list[np.ndarray]:
    """Converts rliable's matrix [runs, tasks] into one array of runs per task."""
    return list(matrix.T)
