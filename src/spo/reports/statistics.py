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
LEVEL = 0.05
MEANINGFUL = 0.75
_NORMAL_95 = 1.959964
#: Additions that an exact permutation test may take: a tenth of a second.
_MOST_ADDITIONS = 100_000_000


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
        low, high = np.percentile(statistic(*resampled), [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)], axis=0)
    return Estimate(value, low, high) if value.ndim else Estimate(float(value), float(low), float(high))


def _resample(task: np.ndarray, num_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """[..., N] -> [resamples, ..., N]"""
    num_runs = task.shape[-1]
    return np.moveaxis(task[..., rng.integers(num_runs, size=(num_resamples, num_runs))], -2, 0)


# Chance.


def permutation_p_value(
    a: Scores | Sequence[Sequence[float]],
    b: Scores | Sequence[Sequence[float]],
    *,
    num_draws: int = 20_000,
    seed: int = 0,
) -> float:
    """How often equal algorithms would have a P(A > B) at least as far from 0.5: a two-sided permutation test.

    If A and B are equal, any division of a task's runs between them is as likely as the one that was seen. Runs change
    sides within their task only. All divisions are counted. Where that would take long (more than sixty runs on each
    side, or tasks with many different numbers of runs), `num_draws` of them are drawn instead.
    """
    a, b = _as_arrays(a), _as_arrays(b)
    least = abs(float(probability_of_improvement(a, b)) - 0.5) - 1e-9  # equal but for rounding is as far
    if _additions([(x.size, y.size) for x, y in zip(a, b, strict=True)]) <= _MOST_ADDITIONS:
        chances = _chances(a, b)
        distances = np.abs(np.linspace(0.0, 1.0, len(chances)) - 0.5)
        return min(1.0, float(chances[distances >= least].sum()))
    rng = np.random.default_rng(seed)
    drawn = np.mean([_drawn(x, y, num_draws, rng) for x, y in zip(a, b, strict=True)], axis=0)
    # The division that was seen is one of those that chance gives: with it, the test keeps its level.
    return (1 + int(np.sum(np.abs(drawn - 0.5) >= least))) / (1 + num_draws)


def _chances(a: Scores, b: Scores) -> np.ndarray:
    """The probability of every value of P(A > B), evenly spaced from 0 to 1, over all divisions of the runs."""
    halves = [2 * x.size * y.size for x, y in zip(a, b, strict=True)]
    unit = math.lcm(*halves)  # tasks with different numbers of runs have steps of different size
    chances = np.ones(1)
    for x, y, count in zip(a, b, halves, strict=True):
        of_task = np.zeros(unit + 1)
        of_task[:: unit // count] = _chances_of_task(x, y)
        chances = np.convolve(chances, of_task)
    return chances


def _chances_of_task(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The probability of 2U = 0, 1, ..., 2nk over all ways to take n of a task's n + k runs.

    U is the sum of the ranks that were taken less n(n + 1) / 2, so ways are counted by how many runs were taken and
    what their doubled ranks (integers, whatever the ties) come to.
    """
    n, k = a.size, b.size
    least, most = n * (n + 1), n * (n + 1) + 2 * n * k
    ways = np.zeros((n + 1, most + 1))
    ways[0, 0] = 1
    for rank in _doubled_ranks(a, b):
        ways[1:, rank:] += ways[:-1, :-rank]
    return ways[n, least:] / math.comb(n + k, n)


def _drawn(a: np.ndarray, b: np.ndarray, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """P(A > B) of one task in random divisions of its runs."""
    n, k = a.size, b.size
    ranks = rng.permuted(np.broadcast_to(_doubled_ranks(a, b), (num_draws, n + k)), axis=1)
    return (ranks[:, :n].sum(axis=1) - n * (n + 1)) / (2 * n * k)


def _doubled_ranks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Ranks among all runs of the task, twice: equal scores share the mean of theirs, which may be a half."""
    _, place, ties = np.unique(np.concatenate([a, b]), return_inverse=True, return_counts=True)
    return (2 * np.cumsum(ties) - ties + 1)[place]


def _additions(num_runs: Sequence[tuple[int, int]]) -> int:
    """What `_chances` takes."""
    of_tasks = sum((n + k) * n * (n * (n + 1) + 2 * n * k) for n, k in num_runs)
    unit = math.lcm(*(2 * n * k for n, k in num_runs))
    return of_tasks + unit**2 * len(num_runs) * (len(num_runs) - 1) // 2


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: at most 5 % of families of equals have one of 5 % or less.

    The i-th smallest of m is multiplied by m - i + 1, and is no smaller than those before it.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for smaller, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - smaller) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def p_in_words(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


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
    #: how often two equal algorithms would come out at least as far apart: of the permutation test
    p_value: float
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
    """Whether A is better than B: by the paper's rule, and not by chance.

    The paper's rule: significant when the 95 % interval of P(A > B) excludes 0.5; meaningful when its upper bound (that
    of the better one) is over 0.75; otherwise undecided at this scale.

    With few runs that interval is too narrow, and the rule alone tells equal algorithms apart in 6 to 10 % of cases
    (four or five runs each in one task). So a verdict also needs a `permutation_p_value` of at most 5 %: four runs each
    in one task decide only if all of one are above all of the other (p = 2/70; with one pair the other way, 4/70).

    Of the runs that would decide it, if the effect d = |P - 0.5| is what it looks like: the interval's half-width h
    towards 0.5, seen with n runs, shrinks like 1 / √n, so 0.5 is outside it from n (h / d)² runs on; and the test must
    reach its level with them.
    """
    a, b = _as_arrays(a), _as_arrays(b)
    probability = bootstrap(probability_of_improvement, a, b, num_resamples=num_resamples, seed=seed)
    p_value = permutation_p_value(a, b, seed=seed)
    num_runs = [(x.shape[-1], y.shape[-1]) for x, y in zip(a, b, strict=True)]
    better = None
    if _excludes_a_half(probability) and p_value <= LEVEL:
        better = names[0] if probability.value > 0.5 else names[1]
    meaningful = (better == names[0] and probability.high > MEANINGFUL) or (
        better == names[1] and probability.low < 1 - MEANINGFUL
    )
    runs_needed = None if better else _runs_needed(probability, num_runs)
    dominates = dominance(a, b, num_resamples=num_resamples, seed=seed)
    sentence = _sentence(names, probability, p_value, better, meaningful, runs_needed, num_runs)
    return Verdict(names, probability, better, meaningful, p_value, runs_needed, dominates, sentence)


def _excludes_a_half(probability: Estimate) -> bool:
    return bool(probability.low > 0.5 or probability.high < 0.5)


def _runs_needed(probability: Estimate, num_runs: Sequence[tuple[int, int]]) -> int | None:
    effect, num_tasks = abs(probability.value - 0.5), len(num_runs)
    if effect == 0:
        return None
    fewest = min(min(pair) for pair in num_runs)
    # One run has no interval, and what the test takes is at least z² / 6Md².
    runs = max(2, fewest + 1, math.ceil(_NORMAL_95**2 / (6 * num_tasks * effect**2)))
    if not math.isnan(probability.low):
        bound = probability.low if probability.value > 0.5 else probability.high
        runs = max(runs, math.ceil(fewest * ((probability.value - bound) / effect) ** 2))
    while not _enough_for_the_test(effect, runs, num_tasks):
        runs += 1
    return runs


def _enough_for_the_test(effect: float, runs: int, num_tasks: int) -> bool:
    """Whether |P - 0.5| = effect, with so many runs on either side, has a p-value of at most 5 %.

    By the normal approximation, σ² = (2n + 1) / 12Mn², less half a step of P, 1 / 2Mn².
    """
    deviation = math.sqrt((2 * runs + 1) / (12 * num_tasks)) / runs
    return effect - 1 / (2 * num_tasks * runs**2) >= _NORMAL_95 * deviation


def _sentence(
    names: tuple[str, str],
    probability: Estimate,
    p_value: float,
    better: str | None,
    meaningful: bool,
    runs_needed: int | None,
    num_runs: Sequence[tuple[int, int]],
) -> str:
    first, second = names
    value, low, high = probability
    if better is not None:
        if better == second:
            first, second, value, low, high = second, first, 1 - value, 1 - high, 1 - low
        weight = (
            "significant and meaningful" if meaningful else "significant, but small: the upper bound is not over 0.75"
        )
        return (
            f"{first} is better than {second}: {weight}. P({first} > {second}) = {value:.2f} ({low:.2f} to {high:.2f}),"
            f" {p_in_words(p_value)}."
        )
    interval = "" if math.isnan(low) else f" ({low:.2f} to {high:.2f})"
    words = (
        f"{first} against {second} is undecided at this scale: P({first} > {second}) = {value:.2f}{interval}, "
        f"{p_in_words(p_value)}"
    )
    if math.isnan(low):
        words += ", and a task with a single run has no interval"
    elif _excludes_a_half(probability):
        words += ": the interval excludes 0.5, but the permutation test does not exclude chance"
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
    "LEVEL",
    "MEANINGFUL",
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
    "holm",
    "interquartile_mean",
    "mean",
    "mean_interval",
    "median",
    "min_max",
    "normal_interval",
    "normalise",
    "on_common_grid",
    "optimality_gap",
    "p_in_words",
    "performance_profile",
    "permutation_p_value",
    "probability_of_improvement",
    "sample_efficiency",
    "share_interval",
    "verdict",
    "within_0_and_1",
]
