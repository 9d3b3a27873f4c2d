"""Runs every experiment at the smoke scale, from its command line to its files.

The quick tests run one of them, which trains one run and reads its training records. The rules of the others have tests
with runs and networks made by hand.
"""

import importlib
import json
import math
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("matplotlib")

import _claims
import _runs
import _trained
import test_time_scaling

from spo import presets
from spo.training.saved_learners import export_learner

TRAINING = ["discrete", "continuous", "training_scaling", "temperatures", "advantages"]
SEARCH = ["kl_to_oracle", "test_time_scaling", "better_inference"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, because claims share the runs that they have in common."""
    return tmp_path_factory.mktemp("claims")


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Runs an experiment from its command line and returns its stored finding."""
    experiment = importlib.import_module(name)
    arguments = ["--scale", "smoke", "--runs", str(folder / "runs"), "--out", str(folder / "claims")]
    monkeypatch.setattr(sys, "argv", [experiment.__file__, *arguments])
    _claims.main(experiment.CLAIM, experiment.find)
    path = folder / "claims" / f"{name}.smoke.json"
    assert path.stat().st_size < 50_000
    assert 5_000 < path.with_suffix(".png").stat().st_size < 100_000
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("name", ["kl_targets", *(pytest.param(name, marks=pytest.mark.program) for name in TRAINING)])
def test_training_experiments_run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    record = run(name, folder, monkeypatch)
    assert record["verdict"] in ("held", "not held", "undecided")
    assert record["command"] == f"python experiments/{name}.py --scale smoke"
    assert record["sentence"] in capsys.readouterr().out
    # The second time nothing is trained.
    run(name, folder, monkeypatch)
    assert "All runs exist already" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["elbo", *(pytest.param(name, marks=pytest.mark.program) for name in SEARCH)])
def test_search_experiments_run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    record = run(name, folder, monkeypatch)
    assert record["name"] == name
    assert record["verdict"] in ("held", "not held", "undecided")
    low, high = record["interval"]
    assert low - 1e-9 <= record["number"] <= high + 1e-9
    assert all(math.isfinite(x) for x in (record["number"], low, high))
    assert record["sentence"].endswith(".")
    if name == "kl_to_oracle":
        # On a task this small, the search comes closer to its limit with more particles and a longer horizon.
        assert record["details"]["verdict by reading"]["soft"] == "held"


@pytest.mark.program
def test_an_exported_learner_replaces_a_run(folder: Path, tmp_path: Path):
    setup = _claims.Setup(test_time_scaling.CLAIM, "smoke", folder / "runs" / "smoke" / "test_time_scaling", folder)
    experiment, trained = _trained.trained_run(setup, "cube", _trained.cube_experiment("smoke"))
    exported = setup.runs.parent / _runs.run_name(_trained.cube_experiment("smoke"))
    export_learner(exported, tmp_path / "cube.npz")
    for runs in (tmp_path, tmp_path / "below"):
        found, from_file = _trained.trained_run(setup._replace(runs=runs), "cube", presets.get("default"))
        assert (found.task_options, found.config) == (experiment.task_options, experiment.config)
        jax.tree.map(np.testing.assert_array_equal, from_file.learner, trained.learner)
        assert from_file.temperature == trained.temperature
