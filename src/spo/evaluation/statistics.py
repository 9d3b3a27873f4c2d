"""How sure we may be: intervals, aggregate scores and verdicts, from a handful of runs. NumPy and SciPy only.

The methods are those of Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
as the paper uses them (appendix "Statistical Precipice").

Scores of one algorithm are one array per task, with its runs on the last axis: x_m = [..., N_m]. Tasks may have
different numbers of runs. Whatever stands before the last axis (steps, resamples) is carried through, so the same
functions serve a single score, a learning curve and ten thousand bootstrap samples.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

#: One array [..., runs] per task.
Scores = Sequence[np.ndarray]

NUM_RESAMPLES = 10_000
_NORMAL_95 = 1.959964
_LEVEL = 0.05
_MEANINGFUL = 0.75


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


class Estimate(NamedTuple):
    """A statistic of the runs and its 95 % bootstrap interval: three numbers, or three arrays of the same shape."""

    value: Any
    low: Any
    high: Any


# Intervals from formulas: episodes of one run, and means of a few seeds.


def share_interval(share: float, count: int) -> Interval:
    """Wilson's interval for a share seen in `count` independent tries: it stays inside [0, 1], at its ends too.

    (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
    """
    z2 = _NORMAL_95**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _NORMAL_95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def normal_interval(mean: float, deviation: float, count: int) -> Interval:
    """The interval of a mean of many independent values: mean ± z σ / √n."""
    half = _NORMAL_95 * deviation / math.sqrt(count)
    return Interval(mean, mean - half, mean + half)


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's interval for the mean of a few independent values, such as one per seed. One value has no interval.

    mean ± t(n - 1) s / √n
    """
    from scipy.stats import t

    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def at_least_between_seeds(between_episodes: Interval, per_seed: Sequence[float]) -> Interval:
    """The interval between episodes, widened to that between seeds: episodes say nothing about another seed.

    Not the other way round either: seeds that happen to agree would leave an interval of no width at all.
    """
    if len(per_seed) == 1:
        return between_episodes
    between_seeds = mean_interval(per_seed)
    return between_episodes._replace(
        low=min(between_episodes.low, between_seeds.low), high=max(between_episodes.high, between_seeds.high)
    )


def within_0_and_1(interval: Interval) -> Interval:
    """For shares, which Student's interval knows nothing of."""
    return interval._replace(low=max(0.0, interval.low), high=min(1.0, interval.high))


# Scores of several tasks.


def min_max(observed: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The smallest and the largest score seen in a task, over all runs of all algorithms."""
    values = np.asarray(observed, float)
    if values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError("A task's scores must be finite numbers, and there must be one: leave out what is not.")
    return float(values.min()), float(values.max())


def normalise(scores: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """(x - min) / (max - min). Where nothing differs there is neither better nor worse: 0.5."""
    low, high = limits
    scores = np.asarray(scores, float)
    return (scores - low) / (high - low) if high > low else np.full_like(scores, 0.5)


def interquartile_mean(scores: Scores) -> np.ndarray:
    """IQM: the mean of the middle half of all runs of all tasks; ⌊n/4⌋ runs are left out at either end."""
    pooled = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = pooled.shape[-1] // 4
    return pooled[..., cut : pooled.shape[-1] - cut].mean(axis=-1)


def mean(scores: Scores) -> np.ndarray:
    """1/M Σ_m mean(x_m)"""
    return _task_means(scores).mean(axis=-1)


def median(scores: Scores) -> np.ndarray:
    """median_m mean(x_m): that of the tasks, not of the runs."""
    return np.median(_task_means(scores), axis=-1)


def optimality_gap(scores: Scores, target: float = 1.0) -> np.ndarray:
    """How far runs stay below the target, smaller is better: target - 1/M Σ_m mean(min(x_m, target))"""
    return target - mean([np.minimum(task, target) for task in scores])


#: name -> statistic, as tables and figures show them
AGGREGATES: dict[str, Callable[[Scores], np.ndarray]] = {
    "IQM": interquartile_mean,
    "mean": mean,
    "median": median,
    "optimality gap": optimality_gap,
}


def probability_of_improvement(a: Scores, b: Scores) -> np.ndarray:
    """P(A > B) = 1/M Σ_m 1/(N K) Σ_i Σ_j [a_mi > b_mj] + ½ [a_mi = b_mj], Mann and Whitney's U of each task."""
    _check_same_tasks(a, b)

    def of_task(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # One run of B at a time: all pairs of all resamples at once would fill the memory.
        signs = [np.sign(a - b[..., [run]]).mean(axis=-1) for run in range(b.shape[-1])]
        return 0.5 + 0.5 * np.mean(signs, axis=0)

    return np.mean([of_task(*task) for task in zip(a, b, strict=True)], axis=0)


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs above each threshold τ, [..., T]: 1/M Σ_m mean[x_m > τ]"""
    shares = [np.stack([(task > threshold).mean(axis=-1) for threshold in thresholds], axis=-1) for task in scores]
    return np.mean(shares, axis=0)


# Bootstrap.


def bootstrap(
    statistic: Callable[..., np.ndarray], *samples: Scores, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Estimate:
    """A statistic with its 95 % stratified bootstrap interval (percentile method).

    Runs are drawn anew, with replacement, within each task and each of the samples; what stands before the runs (steps
    of a learning curve) is drawn together. Where a task has one run only, the interval is not a number.
    """
    samples = tuple(_as_arrays(scores) for scores in samples)
    value = np.asarray(statistic(*samples))
    low = high = np.full(value.shape, math.nan)
    if all(task.shape[-1] >= 2 for scores in samples for task in scores):
        rng = np.random.default_rng(seed)
        resampled = [[_resample(task, num_resamples, rng) for task in scores] for scores in samples]
        low, high = np.percentile(statistic(*resampled), [100 * _LEVEL / 2, 100 * (1 - _LEVEL / 2)], axis=0)
    return Estimate(value, low, high) if value.ndim else Estimate(float(value), float(low), float(high))


def _resample(task: np.ndarray, num_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """[..., N] -> [resamples, ..., N]"""
    num_runs = task.shape[-1]
    return np.moveaxis(task[..., rng.integers(num_runs, size=(num_resamples, num_runs))], -2, 0)


# Verdicts.


class Dominance(NamedTuple):
    """Which of two performance profiles lies above the other, everywhere."""

    #: "dominates": P(A > τ) >= P(B > τ) at every τ and more at one; "is dominated": the other way; "no dominance"
    words: str
    #: the least of P(A > τ) - P(B > τ) over all τ; where B dominates, that of P(B > τ) - P(A > τ)
    least_lead: Estimate
    #: whether the interval of the least lead holds nothing below zero
    certain: bool


class Verdict(NamedTuple):
    """A against B. `sentence` says it in words."""

    names: tuple[str, str]
    probability: Estimate  # P(A > B)
    #: the name of the better one, or None: undecided at this scale
    better: str | None
    #: better, and an upper bound of its probability of improvement over 0.75
    meaningful: bool
    #: how often two equal algorithms would come out with all runs of one above all of the other, in every task
    chance_of_a_sweep: float
    #: runs per task that would decide it if the effect is as large as it looks; None: decided, or no effect to go by
    runs_needed: int | None
    dominance: Dominance
    sentence: str


def dominance(a: Scores, b: Scores, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Dominance:
    """First-order stochastic dominance between the runs of A and B, on their performance profiles.

    Profiles change at scores only, so the scores are all the thresholds there are. The least lead of a noisy profile is
    biased downwards, so `certain` errs on the side of caution.
    """
    a, b = _as_arrays(a), _as_arrays(b)
    _check_same_tasks(a, b)
    thresholds = np.unique(np.concatenate([*a, *b], axis=-1))

    def lead(a: Scores, b: Scores) -> np.ndarray:
        return performance_profile(a, thresholds) - performance_profile(b, thresholds)

    difference = lead(a, b)
    words = "no dominance"
    if difference.any():
        words = "dominates" if difference.min() >= 0 else "is dominated" if difference.max() <= 0 else words
    sign = -1 if words == "is dominated" else 1
    # Two profiles at every score are larger than single numbers: fewer resamples keep them small.
    least = bootstrap(
        lambda a, b: (sign * lead(a, b)).min(axis=-1), a, b, num_resamples=min(num_resamples, 2_000), seed=seed
    )
    return Dominance(words, least, certain=words != "no dominance" and least.low >= 0)


def verdict(
    a: Scores | Sequence[Sequence[float]],
    b: Scores | Sequence[Sequence[float]],
    names: tuple[str, str] = ("A", "B"),
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Verdict:
    """Whether A is better than B, by the paper's rule.

    Significant when the 95 % interval of P(A > B) excludes 0.5; meaningful when its upper bound (that of the better
    one) is over 0.75; otherwise undecided at this scale.

    The rule alone would trust too few runs: two runs above two others have an interval [1, 1]. So a verdict also needs
    more runs than chance could sort: two equal algorithms are sorted completely, one way or the other, with probability
    2 / Π_m C(N_m + K_m, N_m), which must be at most 5 % (four runs each in one task, three each in two).

    Of the runs that would decide it: the interval's half-width h towards 0.5 shrinks like 1 / √n, so an effect
    d = |P - 0.5| seen with n runs is outside it from n (h / d)² runs on.
    """
    a, b = _as_arrays(a), _as_arrays(b)
    probability = bootstrap(probability_of_improvement, a, b, num_resamples=num_resamples, seed=seed)
    num_runs = [(x.shape[-1], y.shape[-1]) for x, y in zip(a, b, strict=True)]
    chance = min(1.0, 2 / math.prod(math.comb(n + k, n) for n, k in num_runs))
    significant = (probability.low > 0.5 or probability.high < 0.5) and chance <= _LEVEL
    better = None
    if significant:
        better = names[0] if probability.value > 0.5 else names[1]
    meaningful = (better == names[0] and probability.high > _MEANINGFUL) or (
        better == names[1] and probability.low < 1 - _MEANINGFUL
    )
    runs_needed = None if significant else _runs_needed(probability, num_runs)
    dominates = dominance(a, b, num_resamples=num_resamples, seed=seed)
    sentence = _sentence(names, probability, better, meaningful, chance, runs_needed, num_runs)
    return Verdict(names, probability, better, meaningful, chance, runs_needed, dominates, sentence)


def _runs_needed(probability: Estimate, num_runs: Sequence[tuple[int, int]]) -> int | None:
    fewest = min(min(pair) for pair in num_runs)
    # Too few to exclude chance, whatever the scores?
    enough = next(n for n in range(1, 10) if 2 / math.comb(2 * n, n) ** len(num_runs) <= _LEVEL)
    effect = abs(probability.value - 0.5)
    if effect == 0:
        return None
    if math.isnan(probability.low):
        return max(enough, fewest + 1)
    half_width = (
        probability.value - probability.low if probability.value > 0.5 else probability.high - probability.value
    )
    return max(enough, fewest + 1, math.ceil(fewest * (half_width / effect) ** 2))


def _sentence(
    names: tuple[str, str],
    probability: Estimate,
    better: str | None,
    meaningful: bool,
    chance: float,
    runs_needed: int | None,
    num_runs: Sequence[tuple[int, int]],
) -> str:
    if better is not None:
        other = names[1] if better == names[0] else names[0]
        value, low, high = probability if better == names[0] else (1 - probability[i] for i in (0, 2, 1))
        weight = (
            "significant and meaningful" if meaningful else "significant, but small: the upper bound is not over 0.75"
        )
        return (
            f"{better} is better than {other}: {weight}. P({better} > {other}) = {value:.2f} ({low:.2f} to {high:.2f})."
        )
    value, low, high = probability
    interval = "" if math.isnan(low) else f" ({low:.2f} to {high:.2f})"
    words = (
        f"{names[0]} against {names[1]} is undecided at this scale: P({names[0]} > {names[1]}) = {value:.2f}{interval}"
    )
    if math.isnan(low):
        words += ", and a task with a single run has no interval"
    elif not low <= 0.5 <= high:
        words += f", but so few runs are sorted completely by chance {chance:.0%} of the time"
    if runs_needed is None:
        return f"{words}. There is no effect to go by."
    runs = sorted({n for pair in num_runs for n in pair})
    have = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    enough = "more than a thousand" if runs_needed > 1000 else f"about {runs_needed}"
    return f"{words}. An effect of this size would take {enough} runs per task to decide; there are {have}."


# Learning curves.


class Curve(NamedTuple):
    """A statistic of several runs over steps or seconds."""

    x: np.ndarray  # [T]
    estimate: Estimate  # of [T] each
    interpolated: bool


def on_common_grid(
    xs: Sequence[np.ndarray], ys: Sequence[np.ndarray], max_points: int = 101
) -> tuple[np.ndarray, np.ndarray, bool]:
    """(x [T], y [T, runs], interpolated): runs measured at different points, at the same points.

    The grid has every point that any run was measured at, from where the last of them starts to where the first ends,
    or `max_points` evenly spaced ones if those are fewer. Between two points a run is a straight line.
    """
    start, end = max(x[0] for x in xs), min(x[-1] for x in xs)
    if end < start:
        raise ValueError("These curves share no part of their x-axis: one ends before another starts.")
    grid = np.unique(np.concatenate(xs))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > max_points:
        grid = np.linspace(start, end, max_points)
    interpolated = any(not np.isin(grid, x).all() for x in xs)
    return grid, np.stack([np.interp(grid, x, y) for x, y in zip(xs, ys, strict=True)], axis=-1), interpolated


def sample_efficiency(
    curves: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]], *, num_resamples: int = 2_000, seed: int = 0
) -> Curve:
    """The IQM over all runs of all tasks at every step, with its interval: `curves[task][run]` is (x [T], y [T])."""
    runs = [run for task in curves for run in task]
    grid, values, interpolated = on_common_grid([x for x, _ in runs], [y for _, y in runs])
    ends = np.cumsum([len(task) for task in curves])
    tasks = np.split(values, ends[:-1], axis=-1)
    return Curve(grid, bootstrap(interquartile_mean, tasks, num_resamples=num_resamples, seed=seed), interpolated)


def aggregate(scores: Scores, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> dict[str, Estimate]:
    """All of `AGGREGATES` with their intervals."""
    return {
        name: bootstrap(statistic, scores, num_resamples=num_resamples, seed=seed)
        for name, statistic in AGGREGATES.items()
    }


def _as_arrays(scores: Scores | Sequence[Sequence[float]]) -> list[np.ndarray]:
    return [np.asarray(task, float) for task in scores]


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([task.mean(axis=-1) for task in scores], axis=-1)


def _check_same_tasks(a: Scores, b: Scores) -> None:
    if len(a) != len(b) or not a:
        raise ValueError(f"Both must have the same tasks, and at least one: got {len(a)} and {len(b)}.")


__all__ = [
    "AGGREGATES",
    "NUM_RESAMPLES",
    "Curve",
    "Dominance",
    "Estimate",
    "Interval",
    "Scores",
    "Verdict",
    "aggregate",
    "at_least_between_seeds",
    "bootstrap",
    "dominance",
    "interquartile_mean",
    "mean",
    "mean_interval",
    "median",
    "min_max",
    "normal_interval",
    "normalise",
    "on_common_grid",
    "optimality_gap",
    "performance_profile",
    "probability_of_improvement",
    "sample_efficiency",
    "share_interval",
    "verdict",
    "within_0_and_1",
]
