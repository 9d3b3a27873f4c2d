"""Tests of the list of runs of the core scale."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

import _claims
import _runs
import campaign
import discrete

from reports.fake_runs import write_run


def test_the_plan_has_every_comparison_of_the_core_scale():
    runs = campaign.planned_runs()
    pairs = {(run.task, run.algorithm) for run in runs.values()}
    assert {("brax/humanoid", "sampled_alphazero"), ("boxoban/unfiltered", "gumbel_alphazero")} <= pairs
    # The run with the paper's settings appears once: it is a budget, a target, a weighting and a temperature.
    shared = [run for run in runs.values() if (run.task, run.steps) == ("brax/ant", 5e6)]
    assert len(shared) == 10 + 5 + 3 + 1
    assert all(run.logs_per_evaluation == 1 for run in runs.values())


def test_a_claim_at_the_core_scale_reads_stored_runs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_runs, "CORE_RUNS", tmp_path)
    setup = _claims.Setup(discrete.CLAIM, "core", tmp_path, tmp_path, tasks=("rubiks_cube",), against=("ppo",))
    with pytest.raises(SystemExit, match="Not stored: rubiks_cube-spo, rubiks_cube-ppo"):
        discrete.find(setup)
    for name, run in discrete.runs(setup).items():
        level = 0.9 if run.algorithm == "spo" else 0.1
        folder = write_run(
            tmp_path / _runs.run_name(run), [[0.0, level + 0.01 * s] for s in range(5)], algorithm=run.algorithm
        )
        (folder / "summary.json").write_text(json.dumps({"name": name}))
    parts = {finding.part: finding.verdict for finding in discrete.find(setup)}
    assert parts == {"per step": "held", "per second": "held"}


def test_only_records_of_finished_runs_are_stored(tmp_path: Path):
    folder = write_run(tmp_path / "runs" / "one", [0.0, 1.0])
    with pytest.raises(SystemExit, match="not finished"):
        campaign.store("one", tmp_path / "runs", tmp_path / "stored")
    (folder / "summary.json").write_text("{}")
    (folder / "checkpoints").mkdir()
    campaign.store("one", tmp_path / "runs", tmp_path / "stored")
    assert sorted(path.name for path in (tmp_path / "stored" / "one").iterdir()) == sorted(campaign.STORED_FILES)
