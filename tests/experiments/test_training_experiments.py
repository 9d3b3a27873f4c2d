"""The experiments that train, at the scale that shows that they run; and the table of all claims."""

import importlib
import json
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
NAMES = ["discrete", "continuous", "training_scaling", "temperatures", "kl_targets", "advantages"]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that claims share the runs they have in common."""
    return tmp_path_factory.mktemp("claims")


@pytest.mark.parametrize("name", NAMES)
def test_runs_and_says_what_it_found(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    claims = importlib.import_module("_claims")
    experiment = importlib.import_module(name)
    monkeypatch.setattr(
        sys, "argv", [name, "--scale", "smoke", "--runs", str(folder / "runs"), "--out", str(folder / "claims")]
    )
    claims.main(experiment.CLAIM, experiment.find)
    record = json.loads((folder / "claims" / f"{name}.smoke.json").read_text("utf-8"))
    assert record["verdict"] in ("held", "not held", "undecided")
    assert record["command"] == f"python experiments/{name}.py --scale smoke"
    assert record["sentence"] in capsys.readouterr().out
    assert (folder / "claims" / f"{name}.smoke.png").stat().st_size > 5_000
    # A second time nothing is trained: all runs are there.
    claims.main(experiment.CLAIM, experiment.find)
    assert "All runs are there already" in capsys.readouterr().out


def test_the_table_has_a_row_for_every_claim_and_scale(tmp_path: Path):
    claims = importlib.import_module("_claims")
    claim = claims.Claim(1, "discrete", "SPO against all", "It is better.")
    setup = claims.Setup(claim, "cpu", tmp_path / "runs", tmp_path / "claims")
    claims.write(setup, claims.Finding("held", "SPO | PPO.", 0.9, "P(spo > ppo)", (0.8, 1.0)), seconds=3.0)
    rows = claims.claims_table(tmp_path / "claims", [claim]).splitlines()[-3:]
    assert "not run" in rows[0]
    assert "| cpu | **held** | P(spo > ppo) 0.9 (0.8 to 1) | SPO \\| PPO. |" in rows[1]
    assert "not run" in rows[2]


def test_claims_have_numbers_of_their_own():
    names = [path.stem for path in EXPERIMENTS.glob("*.py") if not path.stem.startswith("_") and path.stem != "claims"]
    claims = [importlib.import_module(name).CLAIM for name in names]
    assert sorted(claim.name for claim in claims) == sorted(names)
    assert sorted(claim.number for claim in claims) == list(range(1, 11))


def test_settings_reach_their_place():
    claims, tasks = importlib.import_module("_claims"), importlib.import_module("_tasks")
    start = tasks.cube("cpu")
    other = claims.with_settings(start, search={"horizon": 7}, initial_temperature=3.0, steps=5.0)
    assert (other.config.search.horizon, other.config.initial_temperature, other.steps) == (7, 3.0, 5.0)
    assert other.config.search.num_particles == start.config.search.num_particles
    assert claims.run_name(other) != claims.run_name(start)


def test_all_seeds_must_be_able_to_decide():
    """Fewer than four seeds on one task can't be told from chance."""
    tasks = importlib.import_module("_tasks")
    assert tasks.NUM_SEEDS["cpu"] >= 4
    assert tasks.NUM_SEEDS["paper"] == 5
