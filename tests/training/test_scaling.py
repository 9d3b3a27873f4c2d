"""Tests of scaled observations and rewards: any scale learns alike, and results are in rewards of the environment."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo
from spo.acting import Experience
from spo.algorithms.alphazero import AlphaZeroConfig
from spo.algorithms.base import Algorithm, Setting, TrainState
from spo.algorithms.ppo import PPOConfig
from spo.algorithms.spo import SPOConfig
from spo.environments import make
from spo.networks import mlp_architecture
from spo.networks.config import NetworkConfig
from spo.training import scaling
from spo.training.experiment import EvaluationConfig, Experiment, ScalingConfig
from spo.training.trainer import Trainer
from spo.types import Environment

BOTH = ScalingConfig(observations=True, rewards=True)
NETWORK = NetworkConfig(kind="mlp", width=8, depth=1)
PPO = PPOConfig(num_envs=4, rollout_length=8, num_minibatches=2, num_epochs=1, actor_learning_rate=1e-2)
EVALUATION = EvaluationConfig(num_evaluations=1, episodes=4, final_episodes=4)


def change_scale(environment: Environment, reward: float = 1.0, observation: float = 1.0) -> Environment:
    def change(state_and_timestep):
        state, timestep = state_and_timestep
        seen = jax.tree.map(lambda x: observation * x.astype(jnp.float32), timestep.observation)
        return state, timestep._replace(observation=seen, reward=reward * timestep.reward)

    spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), environment.observation_spec)
    return environment._replace(
        reset=lambda key: change(environment.reset(key)),
        step=lambda key, state, action: change(environment.step(key, state, action)),
        observation_spec=spec,
    )


def run(environment: Environment, config=PPO, scaling: ScalingConfig = BOTH, iterations: int = 4):
    algorithm = {PPOConfig: "ppo", SPOConfig: "spo", AlphaZeroConfig: "alphazero"}[type(config)]
    steps = iterations * config.num_envs * config.rollout_length
    experiment = Experiment(
        task="object:scaled",
        algorithm=algorithm,
        steps=steps,
        num_devices=1,
        config=config,
        network=NETWORK,
        scaling=scaling,
        evaluation=EVALUATION,
        logs_per_evaluation=1,
    )
    task = make("tiny/credit")._replace(train=environment, evaluation=environment, model=environment)
    trainer = Trainer(experiment, task)
    state, metrics, _ = trainer.run(trainer.init(jax.random.key(0)))
    return trainer, state, metrics


@pytest.fixture(scope="module")
def plain_run():
    return run(change_scale(make("tiny/credit").train))


@pytest.mark.parametrize("factors", [(1e3, 1e5), (1e-3, 1e-5)], ids=str)
def test_large_observations_of_any_scale_learn_the_same_policy_and_so_do_small_ones(factors: tuple[float, float]):
    one, other = (run(change_scale(make("tiny/credit").train, observation=factor))[1] for factor in factors)
    for first, second in zip(jax.tree.leaves(one.learner.params), jax.tree.leaves(other.learner.params), strict=True):
        np.testing.assert_allclose(first, second, atol=2e-3)


@pytest.mark.parametrize("factors", [{"reward": 1000.0}, {"reward": 1e-3}], ids=str)
def test_other_rewards_learn_the_same_policy(plain_run, factors: dict[str, float]):
    _, plain, plain_metrics = plain_run
    _, scaled, metrics = run(change_scale(make("tiny/credit").train, **factors))
    for one, other in zip(jax.tree.leaves(plain.learner.params), jax.tree.leaves(scaled.learner.params), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
    factor = factors.get("reward", 1.0)
    np.testing.assert_allclose(metrics["episode/return"], factor * plain_metrics["episode/return"], rtol=1e-3)
    scale, plain_scale = (state.learner.scales.returns for state in (scaled, plain))
    np.testing.assert_allclose(scale.mean, factor * plain_scale.mean, rtol=1e-3)
    # Means over all iterations, of which the first had no scale.
    np.testing.assert_allclose(metrics["value/target"], factor * plain_metrics["value/target"], rtol=0.1)


def test_the_first_iteration_only_measures():
    trainer, state, _ = run(change_scale(make("tiny/credit").train), iterations=1)
    start = trainer.init(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, start.learner.params, state.learner.params)
    assert float(start.learner.scales.returns.num_observations[0]) == 0
    assert float(state.learner.scales.returns.num_observations[0]) == PPO.num_envs * PPO.rollout_length


def test_values_are_in_rewards_of_the_environment(plain_run):
    trainer, state, _ = plain_run
    learner = jax.tree.map(lambda x: x[0], state.learner)
    _, timestep = jax.vmap(trainer.task.train.reset)(jax.random.split(jax.random.key(1), 3))
    values = trainer.algorithm.value(learner, jax.random.key(0), timestep)
    doubled = learner._replace(
        scales=learner.scales._replace(
            returns=learner.scales.returns._replace(
                sum_of_squared_deviations=4 * learner.scales.returns.sum_of_squared_deviations
            )
        )
    )
    np.testing.assert_allclose(trainer.algorithm.value(doubled, jax.random.key(0), timestep), 2 * values, rtol=1e-5)


def test_a_saved_agent_keeps_its_scales(tmp_path: Path):
    environment = change_scale(make("tiny/credit").train, reward=50.0, observation=20.0)
    agent = spo.train(
        environment,
        128,
        algorithm="ppo",
        config=PPO,
        network=NETWORK,
        scaling=BOTH,
        evaluation=EVALUATION,
        logs_per_evaluation=1,
        progress=False,
    )
    agent.save(tmp_path / "agent.npz")
    loaded = spo.load(tmp_path / "agent.npz", env=environment)
    jax.tree.map(np.testing.assert_array_equal, agent.learners.learner, loaded.learners.learner)
    assert float(loaded.learners.learner.scales.observations.num_observations[0]) > 0


def test_rewards_in_the_replay_buffer_follow_the_scale():
    config = SPOConfig(
        num_envs=4,
        rollout_length=4,
        num_updates=1,
        batch_size=2,
        sequence_length=4,
        replay_size=64,
    )
    config = dataclasses.replace(config, search=dataclasses.replace(config.search, num_particles=2, horizon=1))
    trainer, state, _ = run(change_scale(make("tiny/credit").train, reward=100.0), config, iterations=3)
    nodes = jax.tree.leaves(state.worker, is_leaf=lambda node: isinstance(node, Experience))
    rewards = next(node.reward for node in nodes if isinstance(node, Experience))
    raw = np.unique(np.round(np.asarray(rewards) / np.asarray(state.learner.scales.reward_scale)[0], 2))
    assert set(raw) == {0.0, 50.0, 100.0}
    # `spo inspect` shows the policy and the search of a scaled learner, in rewards of the environment.
    learner, inspect = jax.tree.map(lambda x: x[0], state.learner), trainer.algorithm.inspect
    env_state, timestep = jax.vmap(trainer.task.train.reset)(jax.random.split(jax.random.key(1), 2))
    assert inspect.policy(learner, timestep).shape[0] == 2
    temperature = inspect.temperature(learner)
    searched = inspect.search(learner, jax.random.key(0), env_state, timestep, temperature, greedy=True)
    assert searched.action.shape == (2,)
    assert set(np.unique(np.round(searched.output.ancestry.reward, 2))) <= {0.0, 50.0, 100.0}
    stepped = jax.vmap(trainer.task.model.step)(jax.random.split(jax.random.key(2), 2), env_state, searched.action)[1]
    following = trainer.algorithm.value(learner, jax.random.key(0), stepped)
    values = np.asarray(searched.output.ancestry.value)[:, 0]
    assert np.isclose(values, np.asarray(following)[:, None], rtol=1e-3).any(axis=1).all()


def test_a_tree_is_inspected_in_rewards_of_the_environment():
    config = AlphaZeroConfig(
        num_envs=4, rollout_length=4, num_updates=1, batch_size=2, sequence_length=4, replay_size=64, num_simulations=8
    )
    environment = change_scale(make("tiny/credit").train, reward=100.0)
    trainer, state, _ = run(environment, config, iterations=3)
    learner = jax.tree.map(lambda x: x[0], state.learner)
    assert float(learner.scales.reward_scale) < 0.5
    env_state, timestep = jax.vmap(trainer.task.train.reset)(jax.random.split(jax.random.key(1), 2))
    search = trainer.algorithm.inspect.search
    output = search(learner, jax.random.key(0), env_state, timestep, None, greedy=True).output
    assert set(np.unique(np.round(output.tree.children_rewards, 2))) <= {0.0, 50.0, 100.0}
    assert float(output.tree.children_rewards.max()) > 1.0
    np.testing.assert_allclose(output.tree.node_values[:, 0], output.value, rtol=1e-5)


def test_returns_that_are_all_the_same_get_a_moderate_factor():
    def factor(mean: float, squares: float) -> float:
        statistics = scaling.RunningStatistics(jnp.float32(10.0), jnp.float32(mean), jnp.float32(squares))
        return float(scaling.Scales(None, statistics).reward_scale)

    assert factor(0.0, 0.0) == 1.0
    assert factor(-6.0, 1e-9) == pytest.approx(0.5)
    assert factor(0.5, 40.0) == pytest.approx(0.5)


def test_discounted_returns_restart_after_an_end():
    rewards = jnp.array([[1.0], [2.0], [4.0]])
    ended = jnp.array([[False], [True], [False]])
    last, every = scaling.discounted_returns(jnp.float32(0.5), jnp.array([10.0]), rewards, ended)
    np.testing.assert_allclose(every[:, 0], [6.0, 5.0, 4.0])
    np.testing.assert_allclose(last, [4.0])


def test_an_algorithm_without_rollouts_is_refused():
    def make_other(setting, config):
        return Algorithm(lambda a, b: TrainState({}, {}), None, None, None, 1, 0, 1)

    maker = scaling.scale_algorithm(make_other, ScalingConfig(rewards=True))
    algorithm = maker(Setting(make("tiny/credit"), mlp_architecture(), 1.0), PPO)
    with pytest.raises(ValueError, match=r"scaling needs an algorithm that acts by spo\.acting\.rollout"):
        algorithm.init(jax.random.key(0), jax.random.key(1))
