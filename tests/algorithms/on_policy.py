"""What PPO and V-MPO are tested with beside the probes.

An iteration on a rollout of given numbers, with a network that is a table: so every quantity of an update can be
written down by hand. And a world of which a time limit lets only pieces be seen.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from oracles.tiny_answers import solve
from spo.acting import Experience
from spo.algorithms import updates
from spo.algorithms.base import DEVICE_AXIS, Algorithm, Setting, TrainState
from spo.distributions import categorical, masked_logits
from spo.environments.tiny import TabularMDP, tabular, tiny
from spo.networks import ActorCritic, ActorCriticParams, mlp_architecture
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer
from spo.types import TimeStep

#: Four states (one of them terminal) and three actions.
TASK = tiny("context")


def table_network(logits: np.ndarray, values: np.ndarray) -> ActorCritic:
    """Logits [S, A] and values [S] are the parameters; observations are one-hot."""
    start = ActorCriticParams({}, jnp.asarray(logits, jnp.float32), jnp.asarray(values, jnp.float32))

    def actor(params: ActorCriticParams, observation: Any, mask: Any) -> Any:
        return masked_logits(observation @ params.actor, mask)

    def critic(params: ActorCriticParams, observation: Any) -> Any:
        return observation @ params.critic

    return ActorCritic(
        init=lambda *_: start,
        actor=actor,
        critic=critic,
        both=lambda params, observation, mask: (actor(params, observation, mask), critic(params, observation)),
        distribution=categorical,
    )


def make_on_table(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    make: Callable[..., Algorithm],
    config: Any,
    network: ActorCritic,
    experience: Experience,
) -> Algorithm:
    """The algorithm with leaves [device, T, E, ...] for experience, and plain gradient descent for Adam."""

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
    if hasattr(module, "adam"):
        monkeypatch.setattr(module, "adam", descent)
    num_devices = experience.reward.shape[0]
    return make(Setting(TASK, mlp_architecture(), total_env_steps=1e4, num_devices=num_devices), config)


# Devices are an axis of `vmap` here, which is all that they are to an algorithm.
def run(algorithm: Algorithm, num_devices: int, num_steps: int = 1) -> list[tuple[TrainState, dict[str, Any]]]:
    """States and metrics [device, ...] after each step; the first state is the start."""
    start = jax.vmap(lambda key: algorithm.init(jax.random.key(0), key), axis_name=DEVICE_AXIS)(
        jax.random.split(jax.random.key(1), num_devices)
    )
    step = jax.jit(jax.vmap(algorithm.step, axis_name=DEVICE_AXIS))
    seen: list[tuple[TrainState, dict[str, Any]]] = [(start, {})]
    for _ in range(num_steps):
        seen.append(step(seen[-1][0]))
    return seen


def over_devices(experience: Experience, num_devices: int) -> Experience:
    """Experience [1, T, E, ...] of one device as that of several, which have E / num_devices environments each."""
    return jax.tree.map(lambda x: np.swapaxes(x.reshape(x.shape[1], num_devices, -1, *x.shape[3:]), 0, 1), experience)


def values_behind_a_time_limit(algorithm: str, config: Any, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Values learnt [seed, state] and true ones [state] of a ring of four states, whatever is done.

    One of them pays 1. Episodes start anywhere and are cut after three steps, mostly in the midst of a rollout.
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
