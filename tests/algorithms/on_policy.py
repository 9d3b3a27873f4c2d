"""Helpers of the tests of PPO and V-MPO: an iteration on a given rollout, and an environment with a time limit."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from algorithms.tables import DISCRETE
from oracles.tiny_answers import solve
from spo.acting import Experience
from spo.algorithms import updates
from spo.algorithms.base import DEVICE_AXIS, Algorithm, Setting
from spo.environments.tiny import TabularMDP, tabular
from spo.networks import ActorCritic, mlp_architecture
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer
from spo.types import TimeStep


def make_on_table(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    make: Callable[..., Algorithm],
    config: Any,
    network: ActorCritic,
    experience: Experience,
) -> Algorithm:
    """Returns the algorithm with a table for a network, plain gradient descent for Adam, and a given rollout.

    Leaves of `experience` are [device, T, E, ...].
    """

    def fixed_rollout(environment: Any, decide: Any, worker: Any, length: int) -> Any:
        del environment, decide, length
        here = jax.tree.map(lambda x: jnp.asarray(x)[jax.lax.axis_index(DEVICE_AXIS)], experience)
        return worker, here, {}

    def descent(learning_rate: float, max_grad_norm: float, decay_updates: float | None = None) -> Any:
        del max_grad_norm, decay_updates
        return optax.sgd(learning_rate)

    monkeypatch.setattr(module, "make_network", lambda *_: network)
    monkeypatch.setattr(module, "rollout", fixed_rollout)
    monkeypatch.setattr(updates, "adam", descent)
    monkeypatch.setattr(updates, "clip_actor_and_critic", lambda gradients, _max_norm: gradients)
    if hasattr(module, "adam"):
        monkeypatch.setattr(module, "adam", descent)
    num_devices = experience.reward.shape[0]
    return make(Setting(DISCRETE, mlp_architecture(), total_env_steps=1e4, num_devices=num_devices), config)


def over_devices(experience: Experience, num_devices: int) -> Experience:
    """Returns the experience [1, T, E, ...] of one device, split over several: E / num_devices environments each."""
    return jax.tree.map(lambda x: np.swapaxes(x.reshape(x.shape[1], num_devices, -1, *x.shape[3:]), 0, 1), experience)


def values_behind_a_time_limit(algorithm: str, config: Any, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns learnt values [seed, state] and true values [state] of a ring of four states.

    Actions have no effect, and one state pays 1. Episodes start anywhere and are cut after three steps, mostly inside
    a rollout.
    """
    num_states = 4
    following = np.roll(np.eye(num_states), 1, axis=1)
    mdp = TabularMDP(
        transition_probabilities=np.repeat(following[:, None], 2, axis=1),
        rewards=np.repeat([[0.0], [0.0], [0.0], [1.0]], 2, axis=1),
        terminal=np.zeros(num_states, bool),
        mask=np.ones((num_states, 2), bool),
        start_probabilities=np.full(num_states, 1 / num_states),
    )
    experiment = Experiment(
        algorithm=algorithm, config=config, network=NetworkConfig(width=32, depth=2), num_seeds=2, num_devices=1
    )
    trainer = Trainer(experiment, tabular(mdp, "ring", time_limit=3))
    state, _ = trainer.run_fn(trainer.init(jax.random.key(0)), iterations)
    no = jnp.zeros(num_states, bool)
    timesteps = TimeStep(jnp.eye(num_states), jnp.zeros(num_states), no, no, jnp.asarray(mdp.mask))
    values = jax.vmap(lambda learner: trainer.algorithm.value(learner, jax.random.key(1), timesteps))(state.learner)
    true_values, _ = solve(mdp, config.gamma)
    return np.asarray(values), true_values
