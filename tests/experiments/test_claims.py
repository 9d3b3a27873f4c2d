"""Tests of the frame of the experiments: command line, stored findings and the table of all claims."""

import importlib
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

import _claims
import _runs
import _tasks
import _trained
import claims

from spo import presets, provenance

ROOT = Path(__file__).parents[2]
CLAIM = _claims.Claim(1, "discrete", "SPO against all", "It is better.")


def test_tasks_and_rivals_can_be_chosen_and_are_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    setups = []

    def find(setup: _claims.Setup) -> _claims.Finding:
        setups.append(setup)
        return _claims.Finding("held", "It is.", origin=_claims.Origin("1 x NVIDIA H200", "c" * 40))

    def run(*options: str) -> None:
        monkeypatch.setattr(sys, "argv", ["discrete", "--out", str(tmp_path), *options])
        _claims.main(CLAIM, find, tasks=("cube", "boxoban"), rivals=("ppo", "mpo"))

    run("--scale", "paper", "--tasks", "cube", "--against", "ppo", "mpo", "--steps", "2e6")
    assert (setups[0].tasks, setups[0].against) == (("cube",), ("ppo", "mpo"))
    record = json.loads((tmp_path / "discrete.paper.json").read_text("utf-8"))
    assert record["shortened"] == "--tasks cube --against ppo mpo --steps 2e+06"
    assert record["command"].endswith("--scale paper --tasks cube --against ppo mpo --steps 2e+06")
    assert (record["hardware"], record["commit_of_runs"]) == ("1 x NVIDIA H200", "c" * 40)
    assert record["commit"] == provenance.git_commit()
    with pytest.raises(SystemExit):
        run("--scale", "cpu", "--tasks", "cube")


def test_the_origin_is_that_of_the_runs(tmp_path: Path):
    for name, commit in (("one", "a"), ("two", "b")):
        start = {"device": "NVIDIA H200", "num_devices": 2, "git_commit": commit * 40}
        (tmp_path / name).mkdir()
        (tmp_path / name / "environment.json").write_text(json.dumps({"starts": [start, start]}))
    origin = _runs.origin_of([tmp_path / "one", tmp_path / "two"])
    assert origin == ("2 x NVIDIA H200", f"{'a' * 40}, {'b' * 40}")


def test_the_table_has_a_row_for_every_claim_and_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_claims, "git_commit", lambda: "0123456789" * 4 + "-dirty")
    setup = _claims.Setup(CLAIM, "cpu", tmp_path / "runs", tmp_path / "claims")
    _claims.write(setup, _claims.Finding("held", "SPO | PPO.", 0.9, "P(spo > ppo)", (0.8, 1.0)), seconds=3.0)
    setup = setup._replace(scale="paper")
    origin = _claims.Origin("1 x NVIDIA H200", "c" * 40)
    _claims.write(setup, _claims.Finding("held", "Yes.", 0.9, "P(spo > ppo)", origin=origin), seconds=3.0)
    rows = _claims.claims_table(tmp_path / "claims", [CLAIM]).splitlines()[-3:]
    assert "not run" in rows[0]
    assert "| cpu | **held** | P(spo > ppo) 0.9 (0.8 to 1) | SPO \\| PPO. |" in rows[1]
    assert "| 0123456789-dirty |" in rows[1]
    assert f"| 0123456789-dirty, runs {'c' * 10} | 1 x NVIDIA H200, 3 s |" in rows[2]


def test_a_row_without_a_commit_has_a_note(tmp_path: Path):
    setup = _claims.Setup(CLAIM, "cpu", tmp_path / "runs", tmp_path / "claims")
    path = _claims.write(setup, _claims.Finding("held", "Yes."), seconds=3.0)
    record = json.loads(path.read_text("utf-8"))
    del record["commit"], record["commit_of_runs"]
    path.write_text(json.dumps(record), "utf-8")
    assert "| not recorded |" in _claims.claims_table(tmp_path / "claims", [CLAIM])


def test_a_description_has_the_network_and_the_budgets_left_out():
    details = {"network": "spo on a cube", "left out": {"SPO": [], "AlphaZero": [2048, 4096]}}
    assert _claims.describe({"sentence": "So it is.", "details": details}) == (
        "So it is. Left out, because it takes too long: AlphaZero at 2048 and 4096. Network: spo on a cube."
    )
    sentence = "With spo on a cube it is."
    assert _claims.describe({"sentence": sentence, "details": {"network": "spo on a cube"}}) == sentence


def test_the_stored_table_is_that_of_the_stored_findings():
    found = [importlib.import_module(name).CLAIM for name in claims.NAMES]
    results = ROOT / "results"
    assert (results / "claims.md").read_text("utf-8") == _claims.claims_table(results / "claims", found), (
        "run python experiments/claims.py"
    )


def test_every_claim_is_listed_in_the_order_of_its_number():
    found = [importlib.import_module(name).CLAIM for name in claims.NAMES]
    assert [claim.name for claim in found] == list(claims.NAMES)
    assert [claim.number for claim in found] == list(range(1, 12))
    files = (ROOT / "experiments").glob("*.py")
    assert {path.stem for path in files if "\nCLAIM = " in path.read_text("utf-8")} == set(claims.NAMES)


def test_the_claims_are_about_the_papers_inference():
    of_paper = presets.get("paper/rubiks_cube").config.search
    for experiment in (_tasks.cube("cpu"), _tasks.cube("smoke"), _trained.cube_experiment("cpu")):
        for name in presets.PAPER_INFERENCE:
            assert getattr(experiment.config.search, name) == getattr(of_paper, name)


def test_settings_change_the_search_the_algorithm_and_the_experiment():
    start = _tasks.cube("cpu")
    other = _runs.with_settings(start, search={"horizon": 7}, initial_temperature=3.0, steps=5.0)
    assert (other.config.search.horizon, other.config.initial_temperature, other.steps) == (7, 3.0, 5.0)
    assert other.config.search.num_particles == start.config.search.num_particles
    assert _runs.run_name(other) != _runs.run_name(start)


def test_the_number_of_seeds_can_decide():
    """Fewer than four seeds on one task do not exclude chance."""
    assert _tasks.NUM_SEEDS["cpu"] >= 4
    assert _tasks.NUM_SEEDS["paper"] == 5


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(0.1, 0.3), (0.2, 0.4)], "held"),
        ([(0.1, 0.3), (-0.4, -0.2)], "not held"),
        ([(0.1, 0.3), (-1, 1)], "undecided"),
    ],
)
def test_intervals_on_one_side_of_zero_decide(intervals: list[tuple[float, float]], verdict: str):
    assert _claims.decide_by_intervals([((low + high) / 2, low, high) for low, high in intervals]) == verdict
