"""Tests of comparisons at equal steps and at equal seconds, with runs written by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

import _axes
import _runs
from _rivals import compare_runs

from reports.fake_runs import write_run
from spo.reports.comparison import Comparison

SPEEDS = {("rubiks_cube", "spo"): 10.0, ("rubiks_cube", "ppo"): 100.0}


def curves(*values: float) -> list[list[float]]:
    """Returns five seeds of a curve, 0.01 apart."""
    return [[value + 0.01 * seed for value in values] for seed in range(5)]


def comparison(folder: Path, spo: Mapping[str, Any], ppo: Mapping[str, Any]) -> Comparison:
    """Returns a comparison of two runs, each given as arguments of `write_run`."""
    folders = {
        name: write_run(folder / name, algorithm=name, **run, config={"temperature_kl_bound": 0.5})
        for name, run in (("spo", spo), ("ppo", ppo))
    }
    return compare_runs(folders, by="algorithm")[0]


def test_the_comparison_is_at_the_last_common_point_of_each_axis(tmp_path: Path):
    # SPO makes 10 steps a second for 1000 steps, 100 s. PPO makes 100 steps a second for 500 steps, 5 s.
    spo = {"curve": curves(0.0, 0.8), "points": [0, 1000]}
    ppo = {"curve": curves(0.0, 0.3), "points": [0, 500]}
    compared = comparison(tmp_path, spo, ppo)
    per_step = _axes.compare_at(compared, "spo", "ppo", "step", SPEEDS)
    assert per_step.points == {"rubiks_cube": 500}
    assert per_step.scores["rubiks_cube"]["spo"][0] == pytest.approx(0.4)
    assert per_step.scores["rubiks_cube"]["ppo"][0] == pytest.approx(0.3)
    per_second = _axes.compare_at(compared, "spo", "ppo", "second", SPEEDS)
    assert per_second.points == {"rubiks_cube": 5}
    assert per_second.scores["rubiks_cube"]["spo"][0] == pytest.approx(0.04)
    parts = {finding.part: finding for finding in _axes.judge_axes(compared, "spo", ["ppo"], SPEEDS)}
    assert parts["per step"].verdict == "held"
    assert parts["per second"].verdict == "not held"
    assert json.dumps(parts["per second"].details)


@pytest.mark.parametrize("commit", ["c" * 7, "d" * 7])
def test_a_finding_per_second_has_the_commits_of_its_speeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str
):
    """The commit of the runs is "ccc...". The speeds of other tasks and algorithms do not count."""
    rows = [
        {"task": task, "algorithm": algorithm, "env_steps_per_second": 10.0, "num_seeds": 1, "settings": "paper"}
        | {"commit": commit if task == "rubiks_cube" and algorithm != "mpo" else "e" * 7}
        for task in ("rubiks_cube", "brax/ant")
        for algorithm in ("spo", "ppo", "mpo")
    ]
    (tmp_path / "training.json").write_text(json.dumps(rows))
    monkeypatch.setattr(_runs, "SPEEDS", tmp_path / "training.json")
    run = {"curve": curves(0.0, 0.8), "points": [0, 1000]}
    findings = _axes.judge_at_stored_speeds(comparison(tmp_path, run, run), "spo", ["ppo"])
    per_step, per_second = findings
    assert "commits of the speeds" not in per_step.details
    assert per_second.details["commits of the speeds"] == [commit]
    is_noted = f"Speeds were measured at {commit}, which is not the commit of the runs." in per_second.sentence
    assert is_noted == (commit == "d" * 7)


def test_a_comparison_before_the_kl_budget_is_spent_is_marked(tmp_path: Path):
    run = {"curve": curves(0.0, 0.8), "points": [0, 1000]}
    compared = comparison(tmp_path, run, run | {"points": [0, 600]})
    records = [
        {"kind": "train", "seed": seed, "env_steps": step, "metrics": {"search/kl": kl}, "time": {}}
        for seed in range(5)
        for step, kl in ((400, 0.1), (800, 0.43))
    ]
    with (tmp_path / "spo" / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    compared = compare_runs({name: tmp_path / name for name in ("spo", "ppo")}, by="algorithm")[0]
    finding = _axes.judge_at(compared, "spo", ["ppo"], "step", SPEEDS, "per step")
    assert finding.details["before the KL bound is spent"] == {"rubiks_cube": ["ppo"]}
    assert "Early on rubiks_cube: ppo ended before" in finding.sentence


def test_vmpo_before_its_old_policy_is_renewed_is_marked_and_decides_nothing(tmp_path: Path):
    sizes = {"target_period": 64, "num_epochs": 4, "num_minibatches": 1, "num_envs": 10, "rollout_length": 5}
    run = {"curve": curves(0.0, 0.8), "points": [0, 1000]}
    worse = {"curve": curves(0.0, 0.1), "points": [0, 1000], "config": sizes}
    folders = {"spo": write_run(tmp_path / "spo", algorithm="spo", **run)}
    folders["vmpo"] = write_run(tmp_path / "vmpo", algorithm="vmpo", **worse)
    speeds = {("rubiks_cube", "spo"): 100.0, ("rubiks_cube", "vmpo"): 50.0}
    compared = compare_runs(folders, by="algorithm")[0]
    # 64 updates are 16 iterations of 50 steps. SPO's 10 s are 500 steps of V-MPO.
    assert _axes.renewal_step(compared.results_of("vmpo", "rubiks_cube")[0]) == 800
    assert _axes.renewal_step(compared.results_of("spo", "rubiks_cube")[0]) == 0
    by_step, by_second = (
        _axes.judge_at(compared, "spo", ["vmpo"], axis, speeds, "part") for axis in ("step", "second")
    )
    assert (by_step.verdict, by_second.verdict) == ("held", "undecided")
    assert "Says nothing about vmpo on rubiks_cube" in by_second.sentence
    assert by_second.details["before the old policy is renewed"] == {"rubiks_cube": ["vmpo"]}
    assert "Says nothing" not in by_step.sentence
    assert "with drawn actions" in by_step.sentence


def test_smc_ent_has_verdicts_of_its_own(tmp_path: Path):
    run = {"curve": curves(0.0, 0.8), "points": [0, 1000]}
    folders = {name: write_run(tmp_path / name, algorithm=name, **run) for name in ("spo", "ppo", "smc_ent")}
    compared = compare_runs(folders, by="algorithm")[0]
    findings = _axes.judge_axes(compared, "spo", ["ppo", "smc_ent"], _axes.own_speeds(compared))
    assert [finding.part for finding in findings] == [
        "per step",
        "per second",
        "SMC-ENT per step",
        "SMC-ENT per second",
    ]
    assert list(findings[0].details["against"]) == ["ppo"]


def test_the_speed_of_a_run_is_the_median_of_its_records(tmp_path: Path):
    run = {"curve": curves(0.0, 0.8), "points": [0, 1000]}
    assert _axes.own_speeds(comparison(tmp_path, run, run)) == {
        ("rubiks_cube", "ppo"): 10.0,
        ("rubiks_cube", "spo"): 10.0,
    }
