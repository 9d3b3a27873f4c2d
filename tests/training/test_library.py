"""Training as a function call is the run that `spo train` would have made, on a world that need not have a name."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import spo
from spo import environments
from spo.training import intervals, loop
from spo.training.library import Agent
from spo.training.run_folder import load_learner
from training.comparing import assert_same_bits, records
from training.tiny_run import ENV_STEPS_PER_ITERATION, tiny_experiment

EXPERIMENT = tiny_experiment(num_seeds=1, seed=3, logs_per_evaluation=5)


def train_as_library(**changes: Any) -> Agent:
    world = environments.make(EXPERIMENT.task, **EXPERIMENT.task_options)
    train = world.train._replace(name="a world of one's own")
    options = {
        "steps": EXPERIMENT.steps,
        "seed": EXPERIMENT.seed,
        "config": EXPERIMENT.config,
        "network": EXPERIMENT.network,
        "evaluation": EXPERIMENT.evaluation,
    }
    return spo.train(world._replace(train=train), **options | changes)


def test_it_is_the_run_that_the_command_makes(tmp_path: Path):
    loop.train(EXPERIMENT, tmp_path / "run", checkpoint_seconds=1e9)
    seen: list[dict[str, float]] = []
    agent = train_as_library(on_evaluation=seen.append)
    _, learner = load_learner(tmp_path / "run", "best")
    assert_same_bits(agent.params, jax.tree.map(lambda leaf: leaf[0], learner.params))
    written = [record for record in records(tmp_path / "run") if record["kind"] != "train"]
    means = [{n.removeprefix("episode/"): v for n, v in r["metrics"].items() if "policy" not in n} for r in written]
    assert agent.summary["initial"] == means[0]
    assert agent.summary["final"] == means[-1]
    assert agent.summary["final_policy_only"]["return"] == written[-1]["metrics"]["policy_only/return"]
    steps = [4 * ENV_STEPS_PER_ITERATION, 8 * ENV_STEPS_PER_ITERATION, 12 * ENV_STEPS_PER_ITERATION]
    assert agent.summary["evaluations"] == seen
    assert seen == [{"env_steps": s, **m} for s, m in zip(steps, means[1:-1], strict=True)]


def test_a_number_that_is_none_stops_it(monkeypatch: pytest.MonkeyPatch):
    run = intervals.Programs.run

    def poisoned(self: Any, state: Any) -> Any:
        state, metrics, seconds = run(self, state)
        return state, metrics | {"loss/value": np.array([np.nan], np.float32)}, seconds

    monkeypatch.setattr(intervals.Programs, "run", poisoned)
    with pytest.raises(intervals.NonFiniteError, match="loss/value became nan in iterations 1 to 1"):
        train_as_library()


def test_nothing_to_do_is_refused():
    with pytest.raises(ValueError, match="steps must be at least 1"):
        train_as_library(steps=0)
