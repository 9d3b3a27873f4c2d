"""Tests of run folders: the runs that they accept and refuse, and the learners in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.reports.runs import list_runs
from spo.training.loop import train
from spo.training.run_folder import RunFolder, export_learner, load_learner
from training.comparing import assert_same_bits, last_state
from training.tiny_run import ENV_STEPS_PER_ITERATION, tiny_experiment


def test_a_run_of_another_version_is_refused(tmp_path: Path):
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment())
    record = json.loads(folder.config_path.read_text())
    folder.config_path.write_text(json.dumps({**record, "spo_version": "0.0.1"}))
    for refused in (
        lambda: train(tiny_experiment(), folder.path, resume=True),
        lambda: load_learner(folder.path, "best"),
        lambda: export_learner(folder.path, tmp_path / "learner.npz"),
    ):
        with pytest.raises(ValueError, match=r"written by spo 0\.0\.1 .* install version 0\.0\.1"):
            refused()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task": "brax/ant"}, r"task \('rubiks_cube', now 'brax/ant'\)"),
        ({"config": SPOConfig()}, r"config\.batch_size \(4, now 64\)"),
        ({"network": NetworkConfig(width=32)}, r"network\.width \(16, now 32\)"),
        ({"network": NetworkConfig(channels=(8, 4))}, r"network\.channels \(None, now \[8, 4\]\)"),
        ({"seed": 1}, r"seed \(0, now 1\)"),
    ],
)
def test_another_experiment_is_refused(tmp_path: Path, changes: dict[str, Any], named: str):
    RunFolder.unused(tmp_path / "run").create(tiny_experiment())
    with pytest.raises(ValueError, match=f"another experiment: .*{named}"):
        train(tiny_experiment(**changes), tmp_path / "run", resume=True)


def test_unsuitable_folders_are_refused(whole_run: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="holds a run already"):
        train(tiny_experiment(), whole_run)
    with pytest.raises(ValueError, match="holds no run"):
        train(tiny_experiment(), tmp_path, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        train(tiny_experiment(), tmp_path / "file")
    with pytest.raises(ValueError, match="leave start_from"):
        train(tiny_experiment(), whole_run, resume=True, start_from=tmp_path / "learner.npz")


def test_runs_are_listed(whole_run: Path, tmp_path: Path):
    RunFolder.unused(tmp_path / "begun").create(tiny_experiment(seed=7))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.json").write_text("[]")
    (begun,) = list_runs(tmp_path)
    assert (begun.config["seed"], begun.env_steps, begun.finished) == (7, 0, False)
    (finished,) = [run for run in list_runs(whole_run.parent) if run.folder == whole_run]
    assert finished.finished
    assert finished.env_steps == 12 * ENV_STEPS_PER_ITERATION
    assert finished.summary is not None
    assert finished.summary["iterations"] == 12


def test_a_learner_is_loaded(whole_run: Path):
    experiment, learner = load_learner(whole_run, "last")
    assert experiment == tiny_experiment()
    assert_same_bits(learner, last_state(whole_run).train_state.learner)
    with pytest.raises(ValueError, match="'best' or 'last'"):
        load_learner(whole_run, "first")  # type: ignore[arg-type]
