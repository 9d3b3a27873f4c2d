"""Statistics of scores over several tasks and runs, after Agarwal et al. (2021).

The scores of one algorithm are one array per task, x_m = [..., N_m], with the runs on the last axis. Tasks may have
different numbers of runs. Leading axes (steps, bootstrap samples) are kept. So the same functions apply to a single
score, to a learning curve and to all bootstrap samples at once.
"""

from collections.abc import Callable, Sequence

import numpy as np

Scores = Sequence[np.ndarray]
"""One array [..., runs] per task."""


def min_max(observed: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Returns the smallest and the largest score observed in a task, over all runs of all algorithms."""
    values = np.asarray(observed, float)
    if values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError("A task needs at least one score, and all scores must be finite: leave out the others.")
    return float(values.min()), float(values.max())


def normalise(scores: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Returns (x - min) / (max - min), or 0.5 where min equals max: no score is better or worse there."""
    low, high = limits
    scores = np.asarray(scores, float)
    return (scores - low) / (high - low) if high > low else np.full_like(scores, 0.5)


def interquartile_mean(scores: Scores) -> np.ndarray:
    """IQM: mean of the middle half of all runs of all tasks. It drops the ⌊n/4⌋ lowest and highest runs."""
    pooled = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = pooled.shape[-1] // 4
    return pooled[..., cut : pooled.shape[-1] - cut].mean(axis=-1)


def mean(scores: Scores) -> np.ndarray:
    """Mean over tasks of each task's mean: 1/M Σ_m mean(x_m)."""
    return _task_means(scores).mean(axis=-1)


def median(scores: Scores) -> np.ndarray:
    """Median over tasks (not over runs) of each task's mean: median_m mean(x_m)."""
    return np.median(_task_means(scores), axis=-1)


def optimality_gap(scores: Scores, target: float = 1.0) -> np.ndarray:
    """Mean distance of runs below the target, smaller is better: target - 1/M Σ_m mean(min(x_m, target))."""
    return target - mean([np.minimum(task, target) for task in scores])


AGGREGATES: dict[str, Callable[[Scores], np.ndarray]] = {
    "IQM": interquartile_mean,
    "mean": mean,
    "median": median,
    "optimality gap": optimality_gap,
}
"""Name in tables and figures -> statistic."""


def probability_of_improvement(a: Scores, b: Scores) -> np.ndarray:
    """P(A > B) = 1/M Σ_m 1/(N K) Σ_i Σ_j [a_mi > b_mj] + ½ [a_mi = b_mj], Mann and Whitney's U of each task."""
    check_same_tasks(a, b)

    def of_task(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # One run of B at a time: all pairs of all bootstrap samples at once would not fit into memory.
        signs = [np.sign(a - b[..., [run]]).mean(axis=-1) for run in range(b.shape[-1])]
        return 0.5 + 0.5 * np.mean(signs, axis=0)

    return np.mean([of_task(*task) for task in zip(a, b, strict=True)], axis=0)


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Share of runs above each threshold τ, [..., T]: 1/M Σ_m mean[x_m > τ]."""
    shares = [np.stack([(task > threshold).mean(axis=-1) for threshold in thresholds], axis=-1) for task in scores]
    return np.mean(shares, axis=0)


def as_arrays(scores: Scores | Sequence[Sequence[float]]) -> list[np.ndarray]:
    """Converts one sequence of runs per task into one array per task."""
    return [np.asarray(task, float) for task in scores]


def check_same_tasks(a: Scores, b: Scores) -> None:
    """Raises if the two algorithms have different numbers of tasks, or none."""
    if len(a) != len(b) or not a:
        raise ValueError(f"Both algorithms need the same tasks, at least one: got {len(a)} and {len(b)}.")


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([task.mean(axis=-1) for task in scores], axis=-1)
