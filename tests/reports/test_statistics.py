"""Statistics against rliable, SciPy, simulation, and what must hold for any scores.

Seeds are fixed: a test that passes once passes always. What is said of false alarms is for another seed.
"""

import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")

from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from spo.reports import statistics

RESAMPLES = 2_000


def scores(rng: np.random.Generator, num_runs: int, num_tasks: int, shift: float = 0.0) -> list[np.ndarray]:
    return [rng.normal(shift, 1.0, num_runs) for _ in range(num_tasks)]


# Against rliable: the same numbers where there is a formula, the same intervals up to their Monte-Carlo error.


@pytest.fixture(scope="module", params=[(5, 3), (10, 1), (3, 7)], ids=str)
def case(request):
    num_runs, num_tasks = request.param
    rng = np.random.default_rng([1, num_runs, num_tasks])
    # Rounded, so that there are ties.
    return tuple(np.round(rng.uniform(0, 1.2, (num_runs, num_tasks)), 1) for _ in range(2))


def by_task(matrix: np.ndarray) -> list[np.ndarray]:
    return list(matrix.T)


def test_aggregates_are_rliables(case):
    metrics = pytest.importorskip("rliable.metrics")
    a, b = case
    for name, theirs in {
        "IQM": metrics.aggregate_iqm,
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "optimality gap": metrics.aggregate_optimality_gap,
    }.items():
        assert statistics.AGGREGATES[name](by_task(a)) == pytest.approx(theirs(a), abs=1e-12), name
    ours = statistics.probability_of_improvement(by_task(a), by_task(b))
    assert ours == pytest.approx(metrics.probability_of_improvement(a, b), abs=1e-12)


def test_profiles_are_rliables(case):
    library = pytest.importorskip("rliable.library")
    thresholds = np.linspace(0, 1.2, 25)
    for matrix in case:
        theirs = [library.run_score_deviation(matrix, threshold) for threshold in thresholds]
        assert statistics.performance_profile(by_task(matrix), thresholds) == pytest.approx(theirs, abs=1e-12)


RLIABLE = json.loads((Path(__file__).parents[1] / "oracles" / "rliable_numbers.json").read_text("utf-8"))


@pytest.mark.parametrize("case", RLIABLE["cases"], ids=lambda case: f"{len(case['a'])}x{len(case['a'][0])}")
def test_intervals_are_rliables(case):
    """Both are Monte-Carlo estimates of the same bounds, from 20,000 resamples each: theirs are stored, ours are new.

    The bound is twice the widest gap of 30 seeds of ours.
    """
    a, b = (by_task(np.array(case[name])) for name in ("a", "b"))
    for name, theirs in case["intervals"].items():
        samples, statistic = (a,), statistics.AGGREGATES.get(name)
        if name == "probability of improvement":
            samples, statistic = (a, b), statistics.probability_of_improvement
        ours = statistics.bootstrap(statistic, *samples, num_resamples=RLIABLE["resamples"])
        assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.02), name


def test_probability_of_improvement_with_different_numbers_of_runs_is_mann_whitneys():
    rng = np.random.default_rng(0)
    a = [rng.integers(0, 5, n).astype(float) for n in (3, 8)]
    b = [rng.integers(0, 5, n).astype(float) for n in (6, 2)]
    expected = np.mean([stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(a, b, strict=True)])
    assert statistics.probability_of_improvement(a, b) == pytest.approx(expected, abs=1e-12)


def test_interquartile_mean_is_scipys_trimmed_mean():
    rng = np.random.default_rng(0)
    for count in range(1, 14):
        runs = rng.normal(size=count)
        expected = stats.trim_mean(runs, 0.25)
        assert statistics.interquartile_mean([runs[: count // 2], runs[count // 2 :]]) == pytest.approx(expected)


def test_normal_interval_is_scipys():
    expected = stats.norm.interval(0.95, loc=3.0, scale=2.0 / math.sqrt(50))
    assert statistics.normal_interval(3.0, 2.0, 50) == pytest.approx((3.0, *expected), abs=1e-6)


# What holds for any scores.

# Multiples of 1/8: sums are exact, so that equal scores stay equal under an affine map.
runs = st.lists(st.integers(-80, 80).map(lambda n: n / 8), min_size=2, max_size=6).map(np.array)
suites = st.lists(st.tuples(runs, runs), min_size=1, max_size=4)


@given(suite=suites, scale=st.sampled_from([0.5, 2.0, 64.0]), shift=st.sampled_from([-16.0, 0.0, 3.0]))
def test_units_don_t_matter(suite, scale, shift):
    def judged(suite):
        """All that is said of two algorithms, after each task was normalised over both."""
        limits = [statistics.min_max(np.concatenate(task)) for task in suite]
        a, b = (
            [statistics.normalise(task[side], limit) for task, limit in zip(suite, limits, strict=True)]
            for side in (0, 1)
        )
        values = [statistic(x) for statistic in statistics.AGGREGATES.values() for x in (a, b)]
        return np.array([*values, statistics.probability_of_improvement(a, b)])

    changed = [(scale * a + shift, scale * b + shift) for a, b in suite[:1]] + suite[1:]
    np.testing.assert_allclose(judged(changed), judged(suite), atol=1e-12)


@given(suite=suites, seed=st.integers(0, 99))
def test_the_order_of_runs_and_tasks_doesn_t_matter(suite, seed):
    rng = np.random.default_rng(seed)
    shuffled = [(rng.permutation(a), rng.permutation(b)) for a, b in suite]
    shuffled = [shuffled[index] for index in rng.permutation(len(suite))]
    for (a, b), (c, d) in ((zip(*suite, strict=True), zip(*shuffled, strict=True)),):
        for statistic in statistics.AGGREGATES.values():
            assert statistic(a) == pytest.approx(statistic(c), abs=1e-12)
        assert statistics.probability_of_improvement(a, b) == pytest.approx(
            statistics.probability_of_improvement(c, d), abs=1e-12
        )


@given(suite=suites)
def test_one_improves_as_often_as_the_other_does_not(suite):
    a, b = zip(*suite, strict=True)
    forth, back = statistics.probability_of_improvement(a, b), statistics.probability_of_improvement(b, a)
    assert forth + back == pytest.approx(1.0, abs=1e-12)
    assert statistics.probability_of_improvement(a, a) == pytest.approx(0.5, abs=1e-12)


@given(suite=suites)
def test_the_area_under_a_profile_is_the_mean(suite):
    a = [np.abs(task) for task, _ in suite]
    edges = np.unique(np.concatenate([[0.0], *a]))
    area = np.sum(statistics.performance_profile(a, edges)[:-1] * np.diff(edges))
    assert area == pytest.approx(statistics.mean(a), abs=1e-9)


@settings(max_examples=25)
@given(suite=suites)
def test_a_verdict_is_the_same_from_the_other_side(suite):
    a, b = zip(*suite, strict=True)
    forth = statistics.verdict(a, b, ("A", "B"), num_resamples=RESAMPLES)
    back = statistics.verdict(b, a, ("B", "A"), num_resamples=RESAMPLES)
    # Another order is other resamples: what lies on the edge may fall on either side of it.
    if min(abs(forth.probability.low - 0.5), abs(forth.probability.high - 0.5)) > 0.05:
        assert forth.better == back.better
    opposite = {"dominates": "is dominated", "is dominated": "dominates", "no dominance": "no dominance"}
    assert back.dominance.words == opposite[forth.dominance.words]


# Bootstrap.


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """2 tasks of 30 runs: 400 simulated suites, of which 95 % should be covered (4000 gave 94.4 % and 94.9 %).

    An interval that covers 94.5 % would leave these bounds with probability 6e-4; one that covers 87 %, or 99.5 %,
    would stay inside them with probability 0.02 or 0.001.
    """
    rng = np.random.default_rng(0)
    for statistic, truth in ((statistics.mean, 0.0), (statistics.interquartile_mean, 0.0)):
        covered = 0
        for seed in range(400):
            low, high = statistics.bootstrap(statistic, scores(rng, 30, 2), num_resamples=500, seed=seed)[1:]
            covered += bool(low <= truth <= high)
        assert 0.905 <= covered / 400 <= 0.98, statistic.__name__


def test_equal_algorithms_are_rarely_told_apart():
    """3 tasks of 10 runs: a verdict errs in about 5 % of 300 suites.

    A rate of 5 % would leave these bounds with probability 3e-4; one of 15 % would stay inside with 4e-3.
    """
    rng = np.random.default_rng(1)
    decided = sum(
        statistics.verdict(scores(rng, 10, 3), scores(rng, 10, 3), num_resamples=300, seed=seed).better is not None
        for seed in range(300)
    )
    assert 2 <= decided <= 29


@pytest.mark.parametrize(("num_runs", "errors"), [(4, 2 / 70), (5, 8 / 252)], ids=["4", "5"])
def test_a_handful_of_equal_runs_are_told_apart_as_seldom_as_promised(num_runs, errors):
    """A verdict depends on the order of scores only, and all orders of equal algorithms are as likely: this is the rate
    of false verdicts itself, without an error of its own. The interval alone errs more often than it says."""
    divisions = list(itertools.combinations(range(2 * num_runs), num_runs))
    verdicts = [
        statistics.verdict([chosen], [sorted(set(range(2 * num_runs)) - set(chosen))], num_resamples=RESAMPLES)
        for chosen in divisions
    ]
    assert np.mean([verdict.better is not None for verdict in verdicts]) == pytest.approx(errors)
    excluding = [not verdict.probability.low <= 0.5 <= verdict.probability.high for verdict in verdicts]
    assert np.mean(excluding) > 0.05


@pytest.mark.parametrize("num_runs", [4, 5])
def test_equal_algorithms_with_ties_are_told_apart_in_less_than_a_twentieth(num_runs):
    """Shares of 16 episodes, on one task. Ties can only make the test err less often: 2.9 % and 3.2 % without them.

    A rate of 3.2 % would leave these bounds with probability 0.002 in 600 suites; one of 8 % would stay inside with
    0.007.
    """
    rng = np.random.default_rng(num_runs)
    decided = 0
    for seed in range(600):
        a, b = rng.binomial(16, 0.6, (2, 1, num_runs)) / 16
        decided += statistics.verdict(a, b, num_resamples=300, seed=seed).better is not None
    assert 2 <= decided <= 0.05 * 600 + 2


def covered_share(num_tasks: int, num_runs: int, suites: int = 1000) -> list[float]:
    """How often the intervals of IQM, mean and P(A > B) hold the truth, for equal algorithms with normal scores."""
    rng = np.random.default_rng([num_tasks, num_runs])
    hits = np.zeros(3)
    for seed in range(suites):
        a, b = scores(rng, num_runs, num_tasks), scores(rng, num_runs, num_tasks)
        for column, (statistic, samples, truth) in enumerate(
            (
                (statistics.interquartile_mean, (a,), 0.0),
                (statistics.mean, (a,), 0.0),
                (statistics.probability_of_improvement, (a, b), 0.5),
            )
        ):
            estimate = statistics.bootstrap(statistic, *samples, num_resamples=1000, seed=seed)
            hits[column] += estimate.low <= truth <= estimate.high
    return (hits / suites).tolist()


@pytest.mark.slow
def test_the_documented_coverage_is_what_comes_out():
    """The table of docs/comparing.md. The seeds are fixed; two points are left for other versions of NumPy."""
    page = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 8
    for num_tasks, num_runs, cells in rows:
        documented = [int(cell.removesuffix(" %")) for cell in cells.split(" | ")]
        measured = [100 * share for share in covered_share(int(num_tasks), int(num_runs))]
        assert measured == pytest.approx(documented, abs=2), (num_tasks, num_runs)


def test_resamples_stay_within_their_task():
    """Tasks far apart from each other: drawn across them, the mean would vary by hundreds."""
    tasks = [np.array([0.0, 1.0, 2.0]), np.array([1000.0, 1001.0, 1002.0])]
    estimate = statistics.bootstrap(statistics.mean, tasks, num_resamples=RESAMPLES)
    assert estimate.value == 501.0
    assert 500.0 <= estimate.low < 501.0 < estimate.high <= 502.0


def test_a_curve_is_resampled_by_whole_runs():
    """Two runs that mirror each other: the mean of any draw of whole runs is a multiple of the wave."""
    wave = np.array([1.0, -1.0, 1.0, -1.0])
    runs = np.stack([wave, -wave], axis=-1)  # [T, runs]
    low, high = statistics.bootstrap(statistics.mean, [runs], num_resamples=200)[1:]
    np.testing.assert_allclose(low, -1.0)
    np.testing.assert_allclose(high, 1.0)

    def departure_from_the_wave(scores: statistics.Scores) -> np.ndarray:
        return np.ptp(statistics.mean(scores) * wave, axis=-1)

    assert statistics.bootstrap(departure_from_the_wave, [runs], num_resamples=200) == (0.0, 0.0, 0.0)


def test_the_seed_decides_the_interval():
    rng = np.random.default_rng(0)
    suite = scores(rng, 5, 2)
    first, again, other = (statistics.bootstrap(statistics.mean, suite, num_resamples=200, seed=s) for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_single_run_has_no_interval():
    estimate = statistics.bootstrap(statistics.mean, [np.array([1.0, 2.0]), np.array([3.0])])
    assert estimate.value == 2.25
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)


# Verdicts.


def test_clear_cases_are_significant_and_meaningful():
    rng = np.random.default_rng(0)
    low, high = scores(rng, 5, 2), scores(rng, 5, 2, shift=3.0)
    verdict = statistics.verdict(high, low, ("spo", "ppo"))
    assert verdict.better == "spo"
    assert verdict.meaningful
    assert verdict.runs_needed is None
    assert verdict.dominance.words == "dominates"
    assert verdict.dominance.certain
    assert verdict.sentence.startswith("spo is better than ppo: significant and meaningful.")
    turned = statistics.verdict(low, high, ("ppo", "spo"))
    assert turned.better == "spo"
    assert turned.meaningful
    assert turned.sentence.startswith("spo is better than ppo: significant and meaningful.")
    assert turned.probability.value == pytest.approx(1 - verdict.probability.value)


def test_a_small_effect_of_many_runs_is_significant_but_not_meaningful():
    rng = np.random.default_rng(0)
    a, b = scores(rng, 100, 2, shift=0.4), scores(rng, 100, 2)
    verdict = statistics.verdict(a, b, num_resamples=RESAMPLES)
    assert verdict.better == "A"
    assert not verdict.meaningful
    assert "small" in verdict.sentence


@pytest.mark.parametrize(
    ("num_tasks", "num_runs", "decided"), [(1, 2, False), (1, 3, False), (1, 4, True), (2, 2, False), (2, 3, True)]
)
def test_chance_alone_could_sort_a_handful_of_runs(num_tasks, num_runs, decided):
    """All runs of A above all of B: an interval of [1, 1], which says too much for too few runs."""
    a, b = ([np.arange(num_runs) + level for _ in range(num_tasks)] for level in (100.0, 0.0))
    verdict = statistics.verdict(a, b, num_resamples=200)
    assert verdict.probability == (1.0, 1.0, 1.0)
    assert (verdict.better == "A") is decided
    assert verdict.p_value == pytest.approx(2 / math.comb(2 * num_runs, num_runs) ** num_tasks)
    if not decided:
        assert verdict.runs_needed == {1: 4, 2: 3}[num_tasks]
        assert "does not exclude chance" in verdict.sentence


def test_four_runs_decide_only_if_all_pairs_agree():
    """15 pairs of 16: the paper's rule is content, the permutation test (p = 4/70) is not."""
    verdict = statistics.verdict([[5.0, 6.0, 7.0, 3.5]], [[1.0, 2.0, 3.0, 4.0]], ("spo", "ppo"))
    assert verdict.probability.value == 15 / 16
    assert verdict.probability.low > 0.5
    assert verdict.p_value == pytest.approx(4 / 70)
    assert verdict.better is None
    assert not verdict.meaningful
    assert verdict.runs_needed == 5
    assert verdict.sentence.startswith("spo against ppo is undecided at this scale: P(spo > ppo) = 0.94 (")
    assert "p = 0.057: the interval excludes 0.5, but the permutation test does not exclude chance." in verdict.sentence
    sweep = statistics.verdict([[5.0, 6.0, 7.0, 4.5]], [[1.0, 2.0, 3.0, 4.0]])
    assert sweep.p_value == pytest.approx(2 / 70)
    assert sweep.better == "A"
    assert sweep.sentence.endswith("P(A > B) = 1.00 (1.00 to 1.00), p = 0.029.")


def test_an_interval_that_holds_a_half_is_undecided_whatever_the_test_says():
    """The paper's rule stays: the test can only take a verdict away."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = scores(rng, 6, 1, shift=1.0), scores(rng, 6, 1)
        verdict = statistics.verdict(a, b, num_resamples=300)
        inside = verdict.probability.low <= 0.5 <= verdict.probability.high
        if inside and verdict.p_value <= 0.05:
            break
    else:
        pytest.fail("no such case")
    assert verdict.better is None


# The permutation test.


@pytest.mark.parametrize(("n", "k"), [(2, 3), (4, 4), (5, 5), (7, 3)])
def test_the_permutation_test_is_scipys_on_one_task(n, k):
    rng = np.random.default_rng([n, k])
    for _ in range(5):
        a, b = rng.normal(size=n), rng.normal(size=k)
        expected = stats.mannwhitneyu(a, b, method="exact", alternative="two-sided").pvalue
        assert statistics.permutation_p_value([a], [b]) == pytest.approx(expected, abs=1e-12)
        a, b = rng.integers(0, 4, n), rng.integers(0, 4, k)  # ties
        expected = stats.permutation_test(
            (a, b),
            lambda a, b: abs(float(statistics.probability_of_improvement([a], [b])) - 0.5),
            alternative="greater",
            n_resamples=np.inf,
        ).pvalue
        assert statistics.permutation_p_value([a], [b]) == pytest.approx(expected, abs=1e-12)


def counted_p_value(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """By going through all divisions of all tasks."""
    pools = [np.concatenate(task) for task in zip(a, b, strict=True)]
    divisions = itertools.product(
        *(itertools.combinations(range(len(pool)), len(x)) for pool, x in zip(pools, a, strict=True))
    )
    values = [
        statistics.probability_of_improvement(
            [pool[list(chosen)] for pool, chosen in zip(pools, division, strict=True)],
            [np.delete(pool, chosen) for pool, chosen in zip(pools, division, strict=True)],
        )
        for division in divisions
    ]
    seen = abs(statistics.probability_of_improvement(a, b) - 0.5)
    return float(np.mean(np.abs(np.array(values) - 0.5) >= seen - 1e-9))


@pytest.mark.parametrize("counts", [[(3, 3), (3, 3)], [(2, 3), (4, 2)], [(1, 3), (2, 2), (2, 1)]], ids=str)
def test_runs_change_sides_within_their_task(counts):
    """Other tasks are far away, so that a run in another task would change everything. With and without ties."""
    rng = np.random.default_rng(0)
    for ties in (False, True):
        a, b = (
            [
                100.0 * task + (rng.integers(0, 3, pair[side]) if ties else rng.normal(size=pair[side]))
                for task, pair in enumerate(counts)
            ]
            for side in (0, 1)
        )
        assert statistics.permutation_p_value(a, b) == pytest.approx(counted_p_value(a, b), abs=1e-12)


def test_divisions_that_are_drawn_agree_with_those_that_are_counted(monkeypatch):
    """20,000 draws have a deviation of 0.0035 at most: four of them, for eight p-values, is left with 5e-4."""
    rng = np.random.default_rng(0)
    suites = [(scores(rng, 4, 2), [rng.normal(0.5, 1, 5), rng.normal(0.5, 1, 3)]) for _ in range(8)]
    counted = [statistics.permutation_p_value(a, b) for a, b in suites]
    monkeypatch.setattr(statistics, "_MOST_ADDITIONS", 0)
    drawn = [statistics.permutation_p_value(a, b) for a, b in suites]
    assert drawn == pytest.approx(counted, abs=0.014)
    assert drawn == [statistics.permutation_p_value(a, b) for a, b in suites]
    assert drawn != counted
    # Never zero: what was seen is one of the divisions.
    assert statistics.permutation_p_value([np.arange(50.0) + 100], [np.arange(50.0)]) == 1 / 20_001


def test_many_runs_are_drawn_in_good_time():
    """Two hundred runs, or tasks whose numbers of runs have no small common multiple."""
    rng = np.random.default_rng(0)
    assert statistics.permutation_p_value([rng.normal(size=200)], [rng.normal(1, 1, 200)]) == 1 / 20_001
    counts = (7, 8, 9, 11, 13)
    a, b = ([rng.normal(shift, 1, count) for count in counts] for shift in (0, 3))
    assert statistics.permutation_p_value(a, b) == 1 / 20_001


def test_enough_runs_for_the_test_are_enough_for_it():
    """The normal approximation that `runs_needed` goes by, for every effect there can be, against counting.

    It asks for one step of P too many where the p-value is 0.0499 (eight runs each in one task), never for too few.
    """
    for num_tasks, num_runs in itertools.product((1, 2, 3), range(2, 13)):
        a, b = ([np.arange(num_runs) + shift for _ in range(num_tasks)] for shift in (0.0, 0.5))
        chances = statistics._chances(a, b)
        distances = np.abs(np.linspace(0, 1, len(chances)) - 0.5)
        for effect in np.unique(distances[chances > 0].round(12)):
            p_value = chances[distances >= effect - 1e-9].sum()
            if not 0.0498 < p_value <= 0.05:
                enough = statistics._enough_for_the_test(effect, num_runs, num_tasks)
                assert enough == (p_value <= 0.05), (num_tasks, num_runs, effect, p_value)


def test_holms_correction_by_hand():
    assert statistics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([0.02]) == [0.02]
    assert statistics.holm([]) == []


def test_single_runs_are_undecided_without_an_interval():
    verdict = statistics.verdict([np.array([1.0])], [np.array([0.0])])
    assert verdict.better is None
    assert verdict.runs_needed == 4
    assert "no interval" in verdict.sentence
    assert "nan" not in verdict.sentence


def test_no_effect_is_no_effect():
    same = [np.array([1.0, 2.0, 3.0, 4.0, 5.0])]
    verdict = statistics.verdict(same, same)
    assert verdict.probability.value == 0.5
    assert verdict.better is None
    assert verdict.runs_needed is None
    assert verdict.dominance.words == "no dominance"
    assert verdict.sentence.endswith("There is no effect to go by.")


def test_the_runs_that_would_decide_do():
    """The same runs again and again are the same effect with more runs: about `runs_needed` of them exclude 0.5."""
    rng = np.random.default_rng(3)
    a, b = scores(rng, 6, 2, shift=0.4), scores(rng, 6, 2)
    needed = statistics.verdict(a, b).runs_needed
    assert needed is not None
    assert 12 < needed < 1000

    def with_runs(count: float) -> statistics.Verdict:
        repeats = round(count / 6)
        return statistics.verdict([np.tile(x, repeats) for x in a], [np.tile(x, repeats) for x in b])

    assert with_runs(0.6 * needed).better is None
    assert with_runs(1.5 * needed).better == "A"


def test_profiles_that_cross_don_t_dominate():
    narrow, wide = [np.array([0.4, 0.5, 0.6, 0.5])], [np.array([0.0, 0.1, 0.9, 1.0])]
    assert statistics.dominance(narrow, wide).words == "no dominance"
    above = [wide[0] + 0.05]
    assert statistics.dominance(above, wide).words == "dominates"
    assert not statistics.dominance(above, wide).certain
    assert statistics.dominance(wide, above).words == "is dominated"


# Grids and normalisation.


def test_runs_at_the_same_points_are_left_as_they_are():
    x = np.array([0.0, 1.0, 5.0])
    grid, values, interpolated = statistics.on_common_grid([x, x], [x, 2 * x])
    np.testing.assert_array_equal(grid, x)
    np.testing.assert_array_equal(values, np.stack([x, 2 * x], axis=-1))
    assert not interpolated


def test_runs_at_other_points_are_interpolated_where_all_of_them_are():
    grid, values, interpolated = statistics.on_common_grid(
        [np.array([0.0, 4.0, 8.0]), np.array([2.0, 6.0])], [np.array([0.0, 4.0, 8.0]), np.array([20.0, 60.0])]
    )
    np.testing.assert_array_equal(grid, [2.0, 4.0, 6.0])
    np.testing.assert_allclose(values, [[2.0, 20.0], [4.0, 40.0], [6.0, 60.0]])
    assert interpolated
    many = np.linspace(0, 1, 500)
    assert len(statistics.on_common_grid([many], [many], max_points=101)[0]) == 101
    with pytest.raises(ValueError, match="share no part"):
        statistics.on_common_grid([np.array([0.0, 1.0]), np.array([2.0, 3.0])], [np.zeros(2), np.zeros(2)])


def test_sample_efficiency_is_the_iqm_at_every_step():
    rng = np.random.default_rng(0)
    x = np.arange(4.0)
    curves = [[(x, rng.normal(size=4)) for _ in range(5)] for _ in range(2)]
    curve = statistics.sample_efficiency(curves, num_resamples=200)
    for step in range(4):
        pooled = [y[step] for task in curves for _, y in task]
        assert curve.estimate.value[step] == pytest.approx(stats.trim_mean(pooled, 0.25))
    assert np.all(curve.estimate.low < curve.estimate.value)
    assert np.all(curve.estimate.value < curve.estimate.high)


def test_normalised_scores_of_a_task_that_tells_nothing_are_neutral():
    np.testing.assert_array_equal(statistics.normalise(np.array([3.0, 3.0]), (3.0, 3.0)), [0.5, 0.5])
    np.testing.assert_array_equal(statistics.normalise(np.array([3.0, 4.0]), (2.0, 4.0)), [0.5, 1.0])
    with pytest.raises(ValueError, match="finite"):
        statistics.min_max([1.0, math.nan])


def test_different_tasks_are_refused():
    with pytest.raises(ValueError, match="same tasks"):
        statistics.verdict([np.zeros(2)], [np.zeros(2), np.zeros(2)])


def test_reports_import_no_jax():
    code = (
        "import importlib, pkgutil, sys\n"
        "import spo.reports\n"
        "modules = [info.name for info in pkgutil.walk_packages(spo.reports.__path__, 'spo.reports.')]\n"
        "assert 'spo.reports.figures' in modules, modules\n"
        "for module in modules:\n"
        "    importlib.import_module(module)\n"
        "    assert 'jax' not in sys.modules, module\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
