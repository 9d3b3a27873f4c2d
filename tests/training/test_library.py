"""Tests of `spo.train` and `spo.load`: the run of `spo train`, on an environment that need not have a name."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo
from spo import environments
from spo.acting import Episodes
from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.training import loop
from spo.training.experiment import EvaluationConfig
from spo.training.library import Agent
from spo.training.records import NonFiniteError
from spo.training.run_folder import load_learner
from spo.training.trainer import Trainer
from training.comparing import assert_same_bits, records
from training.tiny_run import ENV_STEPS_PER_ITERATION, tiny_experiment

EXPERIMENT = tiny_experiment(num_seeds=1, seed=3, logs_per_evaluation=5)


def train_in_memory(**changes: Any) -> Agent:
    task = environments.make(EXPERIMENT.task, **EXPERIMENT.task_options)
    unnamed = task._replace(train=task.train._replace(name="not in the registry"))
    options = {
        "steps": EXPERIMENT.steps,
        "seed": EXPERIMENT.seed,
        "config": EXPERIMENT.config,
        "network": EXPERIMENT.network,
        "evaluation": EXPERIMENT.evaluation,
    }
    return spo.train(unnamed, **options | changes)


@pytest.mark.slow
def test_it_is_the_run_of_the_command(tmp_path: Path):
    loop.train(EXPERIMENT, tmp_path / "run", checkpoint_seconds=1e9)
    received: list[dict[str, float]] = []
    agent = train_in_memory(on_evaluation=received.append)
    _, learner = load_learner(tmp_path / "run", "best")
    assert_same_bits(agent.params, jax.tree.map(lambda leaf: leaf[0], learner.params))
    written = [record for record in records(tmp_path / "run") if record["kind"] != "train"]
    means = [{n[8:]: v for n, v in r["metrics"].items() if n.startswith("episode/")} for r in written]
    assert agent.summary["env_steps"] == 12 * ENV_STEPS_PER_ITERATION
    assert agent.summary["initial"] == means[0]
    assert agent.summary["final"] == means[-1]
    assert agent.summary["final_policy_only"]["return"] == written[-1]["metrics"]["policy_only/return"]
    steps = [4 * ENV_STEPS_PER_ITERATION, 8 * ENV_STEPS_PER_ITERATION, 12 * ENV_STEPS_PER_ITERATION]
    assert agent.summary["evaluations"] == received
    assert received == [{"env_steps": s, **m} for s, m in zip(steps, means[1:-1], strict=True)]


def test_a_metric_that_is_not_finite_stops_training(monkeypatch: pytest.MonkeyPatch):
    run = Trainer.run

    def poisoned(self: Trainer, state: Any) -> Any:
        state, metrics, seconds = run(self, state)
        return state, metrics | {"loss/value": np.array([np.nan], np.float32)}, seconds

    monkeypatch.setattr(Trainer, "run", poisoned)
    with pytest.raises(NonFiniteError, match="loss/value became nan in iterations 1 to 1"):
        train_in_memory()


def test_a_run_without_steps_is_refused():
    with pytest.raises(ValueError, match="steps must be a number between 1 and 1e15, got 0"):
        train_in_memory(steps=0)


def test_memory_only_training_does_not_import_orbax():
    script = "import sys, spo; spo.train; assert 'orbax' not in sys.modules, 'orbax'"
    subprocess.run([sys.executable, "-c", script], check=True)


BANDIT_CONFIG = SPOConfig(
    num_envs=16,
    rollout_length=8,
    sequence_length=8,
    batch_size=16,
    learning_rate=1e-2,
    search=SearchConfig(num_particles=8, horizon=1, unroll=1),
)
BANDIT_NETWORK = NetworkConfig(width=16, depth=1)


@pytest.mark.learns
def test_a_trained_agent_chooses_the_best_arm_of_a_bandit():
    """The arms pay 0, 0.5 and 1."""
    received: list[dict[str, float]] = []
    evaluation = EvaluationConfig(num_evaluations=2, episodes=32, final_episodes=64)
    environment = environments.make("tiny/bandit").train
    settings = {"config": BANDIT_CONFIG, "network": BANDIT_NETWORK, "evaluation": evaluation}
    agent = spo.train(environment, steps=2000, **settings, on_evaluation=received.append)
    state, timestep = environment.reset(jax.random.key(1))
    assert int(agent.act(jax.random.key(2), state, timestep, greedy=True)) == 2
    assert int(agent.act(jax.random.key(2), None, timestep, use_search=False, greedy=True)) == 2
    assert agent.summary["final"]["return"] > 0.8  # untrained: 0.5
    assert agent.summary["evaluations"] == received
    assert [entry["env_steps"] for entry in received] == [1024, 2048]


def test_the_agent_has_the_parameters_of_the_best_evaluation(monkeypatch: pytest.MonkeyPatch):
    """The evaluations return given scores, which rise or fall."""

    def params(steps: float, *scores: float) -> Any:
        remaining = iter([-1.0, *scores])  # the first is that of the untrained parameters

        def evaluate(_: Any, __: Any, ___: Any, num_episodes: int, num_others: int, **____: Any) -> Episodes:
            shape = (1, num_episodes + num_others)
            return Episodes(np.full(shape, next(remaining, 0.0)), np.ones(shape, int), {})

        monkeypatch.setattr(Trainer, "evaluate", evaluate)
        evaluation = EvaluationConfig(num_evaluations=len(scores))
        agent = spo.train("tiny/bandit", steps, config=BANDIT_CONFIG, network=BANDIT_NETWORK, evaluation=evaluation)
        return jax.tree.leaves(agent.params)

    def equal(first: Any, second: Any) -> bool:
        return all(bool(jnp.all(a == b)) for a, b in zip(first, second, strict=True))

    early, late = params(1024, 1.0), params(2048, 0.0, 1.0)
    assert equal(params(2048, 1.0, 0.0), early)
    assert not equal(early, late)


def test_an_argument_of_a_wrong_type_is_refused():
    with pytest.raises(ValueError, match="config must be SPOConfig for the algorithm spo, got dict"):
        spo.train("tiny/bandit", config={})
    with pytest.raises(ValueError, match="Can't train on an object of type int: it must be a"):
        spo.train(3)


def test_importing_spo_does_not_import_jax():
    script = "import spo, sys; assert 'jax' not in sys.modules; assert not hasattr(spo, 'trian'); print(spo.train)"
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "function train" in printed


@pytest.mark.parametrize("path", [3, None, {}, b"runs"])
def test_a_path_of_another_type_is_refused(path):
    with pytest.raises(ValueError, match="run must be a path, got"):
        spo.load(path)
    with pytest.raises(ValueError, match="member must be a whole number, got 'abc'"):
        spo.load("run", member="abc")
    with pytest.raises(ValueError, match="path must be a path, got"):
        Agent(act=lambda *_: 0, params={}, summary={}).save(path)
    if path is not None:
        with pytest.raises(ValueError, match="run must be a path, got"):
            spo.train("tiny/bandit", run=path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"resume": 1}, "resume must be True or False, got 1"),
        ({"progress": "no"}, "progress must be True or False, got 'no'"),
        ({"callback": 3}, "callback must be a function, got 3"),
        ({"on_evaluation": {}}, "on_evaluation must be a function, got {}"),
        ({"start_from": 1j}, "start_from must be text, got 1j|start_from must be a path, got 1j"),
        ({"deterministic": None}, "deterministic must be True or False, got None"),
        ({"num_seeds": True}, "num_seeds must be a whole number, got True"),
    ],
)
def test_settings_of_another_type_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        spo.train("tiny/bandit", **settings)
