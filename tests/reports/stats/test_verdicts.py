"""Tests of verdicts: clear cases, their error rate between equal algorithms, and the runs that would decide."""

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("scipy")

from hypothesis import given, settings

from reports.stats.samples import RESAMPLES, normal_scores, suites
from spo.reports import stats
from spo.reports.stats import permutation, verdicts


def test_clear_cases_are_significant_and_meaningful():
    rng = np.random.default_rng(0)
    low, high = normal_scores(rng, 5, 2), normal_scores(rng, 5, 2, shift=3.0)
    verdict = stats.verdict(high, low, ("spo", "ppo"))
    assert verdict.better == "spo"
    assert verdict.meaningful
    assert verdict.runs_needed is None
    assert verdict.dominance.words == "dominates"
    assert verdict.dominance.certain
    assert verdict.sentence.startswith("spo is better than ppo: significant and meaningful.")
    turned = stats.verdict(low, high, ("ppo", "spo"))
    assert turned.better == "spo"
    assert turned.meaningful
    assert turned.sentence.startswith("spo is better than ppo: significant and meaningful.")
    assert turned.probability.value == pytest.approx(1 - verdict.probability.value)


def test_a_small_effect_of_many_runs_is_significant_but_not_meaningful():
    rng = np.random.default_rng(0)
    a, b = normal_scores(rng, 100, 2, shift=0.4), normal_scores(rng, 100, 2)
    verdict = stats.verdict(a, b, num_resamples=RESAMPLES)
    assert verdict.better == "A"
    assert not verdict.meaningful
    assert "small" in verdict.sentence


@settings(max_examples=25)
@given(suite=suites)
def test_a_verdict_is_the_same_from_the_other_side(suite):
    a, b = zip(*suite, strict=True)
    forth = stats.verdict(a, b, ("A", "B"), num_resamples=RESAMPLES)
    back = stats.verdict(b, a, ("B", "A"), num_resamples=RESAMPLES)
    # Another order gives other resamples, so a bound close to 0.5 may fall on either side of it.
    if min(abs(forth.probability.low - 0.5), abs(forth.probability.high - 0.5)) > 0.05:
        assert forth.better == back.better
    opposite = {"dominates": "is dominated", "is dominated": "dominates", "no dominance": "no dominance"}
    assert back.dominance.words == opposite[forth.dominance.words]


def test_equal_algorithms_are_rarely_separated():
    """Simulates 300 suites of 3 tasks with 10 runs each: a verdict errs in about 5 % of them.

    A rate of 5 % leaves these bounds with probability 3e-4. A rate of 15 % stays inside with probability 4e-3.
    """
    rng = np.random.default_rng(1)
    decided = 0
    for seed in range(300):
        a, b = normal_scores(rng, 10, 3), normal_scores(rng, 10, 3)
        decided += stats.verdict(a, b, num_resamples=300, seed=seed).better is not None
    assert 2 <= decided <= 29


@pytest.mark.parametrize(("num_runs", "errors"), [(4, 2 / 70), (5, 8 / 252)], ids=["4", "5"])
def test_error_rate_with_few_runs_is_exact(num_runs, errors):
    """Enumerates all orders of the scores, which are equally likely for equal algorithms.

    A verdict depends on the order only, so this is the exact rate of false verdicts. The interval alone errs in more
    than 5 % of cases.
    """
    divisions = list(itertools.combinations(range(2 * num_runs), num_runs))
    verdicts = [
        stats.verdict([chosen], [sorted(set(range(2 * num_runs)) - set(chosen))], num_resamples=RESAMPLES)
        for chosen in divisions
    ]
    assert np.mean([verdict.better is not None for verdict in verdicts]) == pytest.approx(errors)
    excluding = [not verdict.probability.low <= 0.5 <= verdict.probability.high for verdict in verdicts]
    assert np.mean(excluding) > 0.05


@pytest.mark.parametrize("num_runs", [4, 5])
def test_error_rate_with_ties_is_below_5_per_cent(num_runs):
    """Scores are shares of 16 episodes on one task. Ties lower the error rate, 2.9 % and 3.2 % without them.

    In 600 suites, a rate of 3.2 % leaves these bounds with probability 0.002. A rate of 8 % stays inside with 0.007.
    """
    rng = np.random.default_rng(num_runs)
    decided = 0
    for seed in range(600):
        a, b = rng.binomial(16, 0.6, (2, 1, num_runs)) / 16
        decided += stats.verdict(a, b, num_resamples=300, seed=seed).better is not None
    assert 2 <= decided <= 0.05 * 600 + 2


@pytest.mark.parametrize(
    ("num_tasks", "num_runs", "decided"), [(1, 2, False), (1, 3, False), (1, 4, True), (2, 2, False), (2, 3, True)]
)
def test_few_sorted_runs_do_not_exclude_chance(num_tasks, num_runs, decided):
    """All runs of A are above all runs of B: the interval is [1, 1], which is too narrow for few runs."""
    a, b = ([np.arange(num_runs) + level for _ in range(num_tasks)] for level in (100.0, 0.0))
    verdict = stats.verdict(a, b, num_resamples=200)
    assert verdict.probability == (1.0, 1.0, 1.0)
    assert (verdict.better == "A") is decided
    assert verdict.p_value == pytest.approx(2 / math.comb(2 * num_runs, num_runs) ** num_tasks)
    if not decided:
        assert verdict.runs_needed == {1: 4, 2: 3}[num_tasks]
        assert "does not exclude chance" in verdict.sentence


def test_four_runs_decide_only_if_all_pairs_agree():
    """15 of 16 pairs agree: the paper's rule decides, the permutation test (p = 4/70) does not."""
    verdict = stats.verdict([[5.0, 6.0, 7.0, 3.5]], [[1.0, 2.0, 3.0, 4.0]], ("spo", "ppo"))
    assert verdict.probability.value == 15 / 16
    assert verdict.probability.low > 0.5
    assert verdict.p_value == pytest.approx(4 / 70)
    assert verdict.better is None
    assert not verdict.meaningful
    assert verdict.runs_needed == 5
    assert verdict.sentence.startswith("spo against ppo is undecided at this scale: P(spo > ppo) = 0.94 (")
    assert "p = 0.057: the interval excludes 0.5, but the permutation test does not exclude chance." in verdict.sentence
    sweep = stats.verdict([[5.0, 6.0, 7.0, 4.5]], [[1.0, 2.0, 3.0, 4.0]])
    assert sweep.p_value == pytest.approx(2 / 70)
    assert sweep.better == "A"
    assert "P(A > B) = 1.00 (1.00 to 1.00), p = 0.029." in sweep.sentence
    assert sweep.least_probability == stats.least_probability([(4, 4)])
    assert sweep.sentence.endswith("With this number of runs, the true P may be as low as 0.56.")


def test_an_interval_that_contains_a_half_is_undecided():
    """The permutation test can only remove a verdict of the paper's rule."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = normal_scores(rng, 6, 1, shift=1.0), normal_scores(rng, 6, 1)
        verdict = stats.verdict(a, b, num_resamples=300)
        inside = verdict.probability.low <= 0.5 <= verdict.probability.high
        if inside and verdict.p_value <= 0.05:
            break
    else:
        pytest.fail("no such case")
    assert verdict.better is None


def test_the_approximation_of_runs_needed_agrees_with_counting():
    """Compares the normal approximation in `runs_needed` with the exact test, for every possible effect.

    It asks for one step of P too many where the p-value is 0.0499 (eight runs each in one task), never for too few.
    """
    for num_tasks, num_runs in itertools.product((1, 2, 3), range(2, 13)):
        a, b = ([np.arange(num_runs) + shift for _ in range(num_tasks)] for shift in (0.0, 0.5))
        chances = permutation.null_distribution(a, b)
        distances = np.abs(np.linspace(0, 1, len(chances)) - 0.5)
        for effect in np.unique(distances[chances > 0].round(12)):
            p_value = chances[distances >= effect - 1e-9].sum()
            if not 0.0498 < p_value <= 0.05:
                enough = verdicts._reaches_level(effect, num_runs, num_tasks)
                assert enough == (p_value <= 0.05), (num_tasks, num_runs, effect, p_value)


def test_single_runs_are_undecided_without_an_interval():
    verdict = stats.verdict([np.array([1.0])], [np.array([0.0])])
    assert verdict.better is None
    assert verdict.runs_needed == 4
    assert "no interval" in verdict.sentence
    assert "nan" not in verdict.sentence


def test_equal_scores_have_no_effect():
    same = [np.array([1.0, 2.0, 3.0, 4.0, 5.0])]
    verdict = stats.verdict(same, same)
    assert verdict.probability.value == 0.5
    assert verdict.better is None
    assert verdict.runs_needed is None
    assert verdict.dominance.words == "no dominance"
    assert verdict.sentence.endswith("No effect was observed.")
    assert stats.format_dominance(verdict) == "No dominance: their performance profiles are the same."


def test_runs_needed_decide():
    """Repeated runs have the same effect with more runs: about `runs_needed` of them exclude 0.5."""
    rng = np.random.default_rng(3)
    a, b = normal_scores(rng, 6, 2, shift=0.4), normal_scores(rng, 6, 2)
    needed = stats.verdict(a, b).runs_needed
    assert needed is not None
    assert 12 < needed < 1000

    def with_runs(count: float) -> stats.Verdict:
        repeats = round(count / 6)
        return stats.verdict([np.tile(x, repeats) for x in a], [np.tile(x, repeats) for x in b])

    assert with_runs(0.6 * needed).better is None
    assert with_runs(1.5 * needed).better == "A"


def test_crossing_profiles_do_not_dominate():
    narrow, wide = [np.array([0.4, 0.5, 0.6, 0.5])], [np.array([0.0, 0.1, 0.9, 1.0])]
    assert stats.dominance(narrow, wide).words == "no dominance"
    assert stats.format_dominance(stats.verdict(narrow, wide)) == "No dominance: their performance profiles cross."
    above = [wide[0] + 0.05]
    assert stats.dominance(above, wide).words == "dominates"
    assert not stats.dominance(above, wide).certain
    assert stats.dominance(wide, above).words == "is dominated"


def test_different_numbers_of_tasks_raise():
    with pytest.raises(ValueError, match="same tasks"):
        stats.verdict([np.zeros(2)], [np.zeros(2), np.zeros(2)])
