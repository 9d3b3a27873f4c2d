"""Tests of the rule of claim 11, with returns written by hand."""

import json

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("matplotlib")

import _claims
import chance

from spo.reports.stats import Estimate


def test_every_search_takes_the_same_model_steps():
    for scale in ("smoke", "cpu"):
        setup = _claims.Setup(chance.CLAIM, scale, None, None)
        experiments = chance.runs(setup)
        assert {experiment.config.search.model_steps for experiment in experiments.values()} == {64}
        for name, experiment in experiments.items():
            search = experiment.config.search
            is_neutral = search.num_outcomes > 1 or search.weighting == "shared_advantage"
            assert is_neutral != name.startswith(chance.PLAIN)
            assert (experiment.steps, experiment.num_seeds) == (
                chance.SCALES[scale].steps,
                2 if scale == "smoke" else 5,
            )


def test_the_interval_is_that_of_welchs_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1.0, 3.0, 5), rng.normal(2.0, 0.5, 4)
    of_a, of_b = a.var(ddof=1) / 5, b.var(ddof=1) / 4
    freedom = (of_a + of_b) ** 2 / (of_a**2 / 4 + of_b**2 / 3)
    difference, half = a.mean() - b.mean(), stats.t.ppf(0.975, freedom) * np.sqrt(of_a + of_b)
    assert chance.welch_interval(a, b) == pytest.approx((difference, difference - half, difference + half))
    assert chance.welch_interval([1.0, 1.0], [3.0, 3.0]) == (-2.0, -2.0, -2.0)


def test_differences_are_shares_of_the_plain_return():
    returns = {"plain": {"game": [-9.0, -11.0]}, "other": {"game": [-4.0, -6.0]}}
    assert chance.differences(returns, "other", paired=False)["game"].value == pytest.approx(0.5)
    # Seed by seed the differences agree, so the paired interval has no width.
    assert chance.differences(returns, "other", paired=True)["game"] == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(0.0, 0.2), (-0.04, 0.1)], "held"),
        ([(0.1, 0.2), (-0.06, 0.3)], "undecided"),
        ([(0.1, 0.2), (-0.06, -0.01)], "not held"),
        ([(0.1, 0.2), (-0.03, -0.01)], "not held"),  # within the margin, but plain is better
    ],
)
def test_the_margin_and_both_games_decide(intervals, verdict):
    found = {f"game {i}": Estimate((low + high) / 2, low, high) for i, (low, high) in enumerate(intervals)}
    assert chance.decide(found) == verdict
    finding = chance.judge("4 outcomes", found, "after training with it")
    assert (finding.verdict, finding.interval) == (verdict, min(intervals))
    assert finding.number_name == f"difference of the return to plain's on game {intervals.index(min(intervals))}, " + (
        "share of plain's"
    )


def test_best_and_last_parameters_are_read_from_the_final_evaluation(tmp_path):
    from reports.fake_runs import write_run

    folders = {}
    for name, level in (("plain", 1.0), ("4 outcomes", 2.0), ("shared outcomes", 3.0)):
        folder = write_run(tmp_path / name, [[0.0, level]] * 2, final=[level, level + 0.5], metric="return")
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
        for line in lines:
            line["metrics"]["last/return"] = line["metrics"]["episode/return"] - 10.0
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        (folder / "summary.json").write_text(json.dumps({"best_env_steps_per_seed": [0, 512]}), "utf-8")
        folders[f"{name} on game"] = folder
    comparison, _ = chance.compare_runs(folders)
    best, last = chance.final_returns(comparison, tuple(chance.RISK_NEUTRAL))
    task = comparison.tasks[0]
    assert best["4 outcomes"][task] == [2.0, 2.5]
    assert last["shared outcomes"][task] == [-7.0, -6.5]
    assert chance.untrained_seeds(folders["plain on game"]) == 1
