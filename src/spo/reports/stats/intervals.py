"""95 % intervals from formulas: of a share, of a mean over many episodes, of a mean over a few seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

NORMAL_95 = 1.959964
"""97.5 % quantile of the standard normal distribution."""


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def share_interval(share: float, count: int) -> Interval:
    """Returns Wilson's interval of a share observed in `count` independent trials. It stays inside [0, 1].

    A number above 1, which is no share, has the interval of 1: a finished run must be able to write its result.

    (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
    """
    z2 = NORMAL_95**2
    mean, share = share, min(max(share, 0.0), 1.0)
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = NORMAL_95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return Interval(mean, max(0.0, centre - half), min(1.0, centre + half))


def normal_interval(mean: float, deviation: float, count: int) -> Interval:
    """Returns the interval of the mean of many independent values: mean ± z σ / √n."""
    half = NORMAL_95 * deviation / math.sqrt(count)
    return Interval(mean, mean - half, mean + half)


def mean_interval(values: Sequence[float]) -> Interval:
    """Returns Student's interval of the mean of a few independent values, such as one per seed.

    mean ± t(n - 1) s / √n

    The bounds of a single value are NaN.
    """
    from scipy.stats import t

    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def widen_to_seeds(between_episodes: Interval, per_seed: Sequence[float]) -> Interval:
    """Returns the interval between episodes, widened to contain the interval between seeds.

    Episodes of one seed do not show how other seeds would score. Seeds alone are not enough either: seeds that agree by
    chance have an interval of width 0.
    """
    if len(per_seed) == 1:
        return between_episodes
    between_seeds = mean_interval(per_seed)
    return between_episodes._replace(
        low=min(between_episodes.low, between_seeds.low), high=max(between_episodes.high, between_seeds.high)
    )


def clip_to_share(interval: Interval) -> Interval:
    """Returns the interval with bounds inside [0, 1]: Student's interval of a share may exceed them."""
    return interval._replace(low=max(0.0, interval.low), high=min(1.0, interval.high))


def least_probability(num_runs: Sequence[tuple[int, int]]) -> float:
    """Returns the lower 95 % bound of P(A > B) if every run of A is above every run of B in every task.

    A bootstrap interval of such runs has width 0, although few runs can't show that P is 1. The bound is the P at which
    this outcome has a chance of 2.5 %. It assumes the same effect in all tasks, with distribution functions F_A = F_B^k
    (Lehmann's alternatives). Then P(A > B) = k / (k + 1), and n runs of A are above m runs of B with the probability

        ∫ m u^(m - 1) (1 - u^k)^n du = (m / k) B(m / k, n + 1)

    A shift between normal distributions gives nearly the same bound: 0.656 instead of 0.655 for five runs each.

    Args:
        num_runs: pairs (runs of A, runs of B), one per task.
    """
    from scipy.optimize import brentq
    from scipy.special import betaln

    def log_chance(log_odds: float) -> float:
        ratios = [(n, m / math.exp(log_odds)) for n, m in num_runs]
        return sum(math.log(ratio) + float(betaln(ratio, n + 1)) for n, ratio in ratios)

    return 1 / (1 + math.exp(-brentq(lambda log_odds: log_chance(log_odds) - math.log(0.025), -20.0, 20.0)))
