"""Tests of the summary of a run: its intervals."""

import math
from typing import Any

import pytest
import scipy.stats

from spo.reports.summary import summarise, untrained_sentence


def _record(kind: str, seed: int, iteration: int, solved: float, count: int) -> dict[str, Any]:
    one = {"return": solved, "solved": solved, "return_deviation": math.sqrt(solved * (1 - solved)), "count": count}
    metrics = {f"{prefix}/{name}": value for prefix in ("episode", "policy_only") for name, value in one.items()}
    return {"kind": kind, "seed": seed, "iteration": iteration, "metrics": metrics}


def test_intervals_of_one_seed_are_those_between_episodes():
    result = summarise([_record("evaluation", 0, 0, 0.0, 128), _record("final", 0, 9, 0.9, 1280)])
    for name, solved, episodes in (("initial", 0, 128), ("final", 1152, 1280)):
        wilson = scipy.stats.binomtest(solved, episodes).proportion_ci(method="wilson")
        assert result[f"{name}_solve_rate_interval"] == pytest.approx(list(wilson), abs=1e-6)
        mean = solved / episodes
        half = 1.959964 * math.sqrt(mean * (1 - mean) / episodes)
        assert result[f"{name}_return_interval"] == pytest.approx([mean - half, mean + half])


def test_intervals_of_several_seeds_are_those_between_seeds():
    def summary(*rates: float) -> dict[str, Any]:
        first = [_record("evaluation", seed, 0, 0.0, 128) for seed in range(len(rates))]
        return summarise([*first, *(_record("final", seed, 9, rate, 1280) for seed, rate in enumerate(rates))])

    # Student with two degrees of freedom: 4.302653 standard errors.
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert summary(0.5, 0.6, 0.7)["final_solve_rate_interval"] == pytest.approx([0.6 - half, 0.6 + half])
    low, high = summary(0.5, 0.5, 0.5)["final_solve_rate_interval"]
    assert low < 0.49 < 0.51 < high  # seeds that agree do not prove precision


def test_a_sentence_names_the_seeds_whose_best_network_is_untrained():
    assert untrained_sentence([8, 16]) == ""
    assert untrained_sentence([0]).startswith("The best parameters are those of the untrained network: ")
    assert untrained_sentence([0, 8, 0]).startswith("The best parameters of seed 0, 2 are those of the untrained")
    assert "are those of the network that the run started from" in untrained_sentence([0], started_from_file=True)
