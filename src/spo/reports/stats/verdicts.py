"""Verdicts: the rule that decides if one algorithm is better than another, and its words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spo.reports.stats.aggregates import (
    Scores,
    as_arrays,
    check_same_tasks,
    performance_profile,
    probability_of_improvement,
)
from spo.reports.stats.bootstrapping import LEVEL, NUM_RESAMPLES, Estimate, bootstrap
from spo.reports.stats.intervals import NORMAL_95, least_probability
from spo.reports.stats.permutation import permutation_p_value

MEANINGFUL = 0.75
"""Upper bound of the probability of improvement above which a difference is meaningful."""


class Dominance(NamedTuple):
    """First-order stochastic dominance between two performance profiles."""

    words: str
    """One of "dominates" (P(A > τ) >= P(B > τ) at every τ and more at one), "is dominated" and "no dominance"."""
    least_lead: Estimate
    """Minimum over τ of P(A > τ) - P(B > τ), or of P(B > τ) - P(A > τ) where B dominates."""
    certain: bool
    """True if the interval of the least lead contains nothing below zero."""


class Verdict(NamedTuple):
    """Comparison of A with B, and a sentence that states it."""

    names: tuple[str, str]
    probability: Estimate
    """P(A > B)."""
    better: str | None
    """Name of the better algorithm. None: undecided at this scale."""
    meaningful: bool
    """True if one is better and the upper bound of its probability of improvement is over 0.75."""
    p_value: float
    """P-value of the permutation test."""
    least_probability: float | None
    """Lower 95 % bound of the winner's P if it wins every pair of runs. None: it does not win them all."""
    runs_needed: int | None
    """Runs per task that would decide, if the effect is as large as observed. None: decided, or no effect observed."""
    dominance: Dominance
    sentence: str


def verdict(
    a: Scores | Sequence[Sequence[float]],
    b: Scores | Sequence[Sequence[float]],
    names: tuple[str, str] = ("A", "B"),
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Verdict:
    """Decides if A is better than B, by the paper's rule and a permutation test.

    The paper's rule: significant if the 95 % interval of P(A > B) excludes 0.5. Meaningful if the upper bound of the
    better one is over 0.75. Everything else is undecided at this scale.

    With few runs that interval is too narrow. The rule alone separates equal algorithms in 6 to 10 % of cases (four or
    five runs each in one task). So a verdict also needs a `permutation_p_value` of at most 5 %. Four runs each in one
    task decide only if all runs of one are above all runs of the other (p = 2/70; with one pair reversed, 4/70).

    `runs_needed` assumes that the effect d = |P - 0.5| is as large as observed. The half-width h towards 0.5, observed
    with n runs, shrinks like 1 / √n, so n (h / d)² runs exclude 0.5. The permutation test must also reach its level.
    """
    a, b = as_arrays(a), as_arrays(b)
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
    if better is None:
        sentence = _undecided_sentence(names, probability, p_value, runs_needed, num_runs)
    else:
        sentence = _decided_sentence(names, probability, p_value, better, meaningful)
    least = None
    if probability.value in (0.0, 1.0):
        least = least_probability([pair if probability.value else pair[::-1] for pair in num_runs])
        sentence += f" All pairs of runs agree. With this number of runs, the true P may be as low as {least:.2f}."
    dominates = dominance(a, b, num_resamples=num_resamples, seed=seed)
    return Verdict(names, probability, better, meaningful, p_value, least, runs_needed, dominates, sentence)


def dominance(a: Scores, b: Scores, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Dominance:
    """Tests first-order stochastic dominance between the runs of A and B, on their performance profiles.

    Profiles change only at scores, so the scores are all the thresholds that matter. The least lead of a noisy profile
    is biased downwards, so `certain` is conservative.
    """
    a, b = as_arrays(a), as_arrays(b)
    check_same_tasks(a, b)
    thresholds = np.unique(np.concatenate([*a, *b], axis=-1))

    def lead(a: Scores, b: Scores) -> np.ndarray:
        return performance_profile(a, thresholds) - performance_profile(b, thresholds)

    difference = lead(a, b)
    words = "no dominance"
    if difference.any():
        words = "dominates" if difference.min() >= 0 else "is dominated" if difference.max() <= 0 else words
    sign = -1 if words == "is dominated" else 1
    # Two profiles at every score take more memory than single numbers, so there are fewer resamples.
    least = bootstrap(
        lambda a, b: (sign * lead(a, b)).min(axis=-1), a, b, num_resamples=min(num_resamples, 2_000), seed=seed
    )
    return Dominance(words, least, certain=words != "no dominance" and least.low >= 0)


def format_p_value(p_value: float) -> str:
    """Formats a p-value with three decimals, or as "p < 0.001"."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def format_dominance(verdict: Verdict) -> str:
    """States in one sentence which of the two dominates the other."""
    first, second = verdict.names
    if verdict.dominance.words == "no dominance":
        # The least lead of a profile that is below the other one somewhere is negative.
        relation = "are the same" if verdict.dominance.least_lead.value == 0 else "cross"
        return f"No dominance: their performance profiles {relation}."
    if verdict.dominance.words == "is dominated":
        first, second = second, first
    certainty = "" if verdict.dominance.certain else ", but not in all bootstrap samples"
    return f"{first} dominates {second} stochastically{certainty}."


def _excludes_a_half(probability: Estimate) -> bool:
    return bool(probability.low > 0.5 or probability.high < 0.5)


def _runs_needed(probability: Estimate, num_runs: Sequence[tuple[int, int]]) -> int | None:
    effect, num_tasks = abs(probability.value - 0.5), len(num_runs)
    if effect == 0:
        return None
    fewest = min(min(pair) for pair in num_runs)
    # A single run has no interval, and the test needs at least z² / 6Md² runs.
    runs = max(2, fewest + 1, math.ceil(NORMAL_95**2 / (6 * num_tasks * effect**2)))
    if not math.isnan(probability.low):
        bound = probability.low if probability.value > 0.5 else probability.high
        runs = max(runs, math.ceil(fewest * ((probability.value - bound) / effect) ** 2))
    while not _reaches_level(effect, runs, num_tasks):
        runs += 1
    return runs


def _reaches_level(effect: float, runs: int, num_tasks: int) -> bool:
    """Returns True if |P - 0.5| = effect, with this number of runs on either side, has a p-value of at most 5 %.

    Uses the normal approximation with σ² = (2n + 1) / 12Mn², minus half a step of P, 1 / 2Mn².
    """
    deviation = math.sqrt((2 * runs + 1) / (12 * num_tasks)) / runs
    return effect - 1 / (2 * num_tasks * runs**2) >= NORMAL_95 * deviation


def _decided_sentence(
    names: tuple[str, str], probability: Estimate, p_value: float, better: str, meaningful: bool
) -> str:
    first, second = names
    value, low, high = probability
    if better == second:
        first, second, value, low, high = second, first, 1 - value, 1 - high, 1 - low
    weight = "significant and meaningful" if meaningful else "significant, but small: the upper bound is not over 0.75"
    return (
        f"{first} is better than {second}: {weight}. P({first} > {second}) = {value:.2f} ({low:.2f} to {high:.2f}),"
        f" {format_p_value(p_value)}."
    )


def _undecided_sentence(
    names: tuple[str, str],
    probability: Estimate,
    p_value: float,
    runs_needed: int | None,
    num_runs: Sequence[tuple[int, int]],
) -> str:
    first, second = names
    value, low, high = probability
    interval = "" if math.isnan(low) else f" ({low:.2f} to {high:.2f})"
    words = (
        f"{first} against {second} is undecided at this scale: P({first} > {second}) = {value:.2f}{interval}, "
        f"{format_p_value(p_value)}"
    )
    if math.isnan(low):
        words += ", and a task with a single run has no interval"
    elif _excludes_a_half(probability):
        words += ": the interval excludes 0.5, but the permutation test does not exclude chance"
    if runs_needed is None:
        return f"{words}. No effect was observed."
    runs = sorted({n for pair in num_runs for n in pair})
    have = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    enough = "more than a thousand" if runs_needed > 1000 else f"about {runs_needed}"
    return f"{words}. An effect of this size would take {enough} runs per task to decide; there are {have}."
