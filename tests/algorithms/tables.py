"""Networks that are tables, and algorithms that learn from given batches: every number of an update is known.

Observations are one-hot. Policies and values are the rows of a table, so the gradient of each row can be written down.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.acting import Experience, init_worker
from spo.algorithms.base import DEVICE_AXIS, Algorithm, Setting, TrainState
from spo.algorithms.replay_worker import ReplayWorker, ReplayWorkerFns
from spo.distributions import Gaussian, categorical, masked_logits, tanh_gaussian
from spo.environments.tiny import tiny
from spo.networks import ActorCritic, ActorCriticParams, mlp_architecture
from spo.types import ContinuousActions, Task

#: Four states (one of them terminal) and three actions.
DISCRETE = tiny("context")
#: An action specification of two dimensions. The environment itself is never stepped.
CONTINUOUS = Task(*(env._replace(action_spec=ContinuousActions(2)) for env in DISCRETE))


def table_network(logits: np.ndarray, values: np.ndarray) -> ActorCritic:
    """Returns a network whose parameters are logits [S, A] and values [S]."""

    def actor(params: ActorCriticParams, observation: Any, mask: Any) -> Any:
        return masked_logits(observation @ params.actor, mask)

    return _network(actor, categorical, jnp.asarray(logits, jnp.float32), values)


def gaussian_table_network(means: np.ndarray, log_scales: np.ndarray, values: np.ndarray) -> ActorCritic:
    """Returns a network whose parameters are means [S, D], logarithms of scales [S, D] and values [S]."""

    def actor(params: ActorCriticParams, observation: Any, mask: Any) -> Any:
        assert mask is None
        return Gaussian(observation @ params.actor["mean"], jnp.exp(observation @ params.actor["log_scale"]))

    tables = {"mean": jnp.asarray(means, jnp.float32), "log_scale": jnp.asarray(log_scales, jnp.float32)}
    return _network(actor, tanh_gaussian(), tables, values)


def _network(actor: Callable[..., Any], distribution: Any, tables: Any, values: np.ndarray) -> ActorCritic:
    start = ActorCriticParams({}, tables, jnp.asarray(values, jnp.float32))

    def critic(params: ActorCriticParams, observation: Any) -> Any:
        return observation @ params.critic

    return ActorCritic(
        init=lambda *_: start,
        actor=actor,
        critic=critic,
        both=lambda params, observation, mask: (actor(params, observation, mask), critic(params, observation)),
        distribution=distribution,
    )


def make_on_batches(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    make: Callable[..., Algorithm],
    config: Any,
    network: ActorCritic,
    batches: Experience,
    num_devices: int = 1,
) -> Algorithm:
    """Returns the algorithm with a table for a network. It never acts, and learns from `batches` [U, B, T, ...].

    Each device gets an equal part of every batch.
    """
    task = DISCRETE if network.distribution is categorical else CONTINUOUS

    def batches_of_device(worker: Any, key: Any) -> Experience:
        del worker, key
        by_device = jax.tree.map(lambda x: jnp.stack(jnp.split(jnp.asarray(x), num_devices, axis=1)), batches)
        return jax.tree.map(lambda x: x[jax.lax.axis_index(DEVICE_AXIS)], by_device)

    fixed_workers = ReplayWorkerFns(
        init=lambda key, _decide: ReplayWorker(init_worker(task.train, 1, key), replay=None),
        collect=lambda worker, *_: (worker, {}),
        sample=batches_of_device,
    )
    monkeypatch.setattr(module, "make_replay_worker", lambda *_, **__: fixed_workers)
    setting = Setting(task, mlp_architecture(), total_env_steps=1e6, num_devices=num_devices)
    return make(setting, config)


# Devices are an axis of `vmap` here: algorithms see them only through the axis's name.
def run(algorithm: Algorithm, num_devices: int, num_steps: int = 1) -> list[tuple[TrainState, dict[str, Any]]]:
    """Returns states and metrics [device, ...] after each step. The first state is the initial one."""
    seen: list[tuple[TrainState, dict[str, Any]]] = [(init(algorithm, num_devices), {})]
    step = step_fn(algorithm)
    for _ in range(num_steps):
        seen.append(step(seen[-1][0]))
    return seen


def init(algorithm: Algorithm, num_devices: int) -> TrainState:
    """Returns the initial state with a leading axis of devices."""
    return jax.vmap(lambda key: algorithm.init(jax.random.key(0), key), axis_name=DEVICE_AXIS)(
        jax.random.split(jax.random.key(1), num_devices)
    )


def step_fn(algorithm: Algorithm) -> Callable[[TrainState], tuple[TrainState, dict[str, Any]]]:
    """Returns the compiled step of all devices."""
    return jax.jit(jax.vmap(algorithm.step, axis_name=DEVICE_AXIS))


# --- Written out in NumPy ---------------------------------------------------------------------------------------------
def gae_targets(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Lambda-returns of one sequence. Termination is worth nothing; truncation is worth the last state's value."""
    targets, advantage = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        future = 0.0 if terminated[t] else next_values[t]
        error = rewards[t] + gamma * future - values[t]
        ended = terminated[t] or truncated[t]
        advantage = error + (0.0 if ended else gamma * gae_lambda * advantage)
        targets[t] = values[t] + advantage
    return targets


class Adam:
    """Adam on gradients that are clipped to a norm, for the arrays of one group."""

    def __init__(self, rate: float, max_norm: float):
        self.rate, self.max_norm, self.count, self.clipped = rate, max_norm, 0, []
        self.first: dict[str, Any] = {}
        self.second: dict[str, Any] = {}

    def step(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
        self.clipped.append(norm > self.max_norm)
        self.count += 1
        changes = {}
        for name, gradient in gradients.items():
            gradient = gradient * min(1.0, self.max_norm / norm) if norm > 0 else gradient
            self.first[name] = 0.9 * self.first.get(name, 0.0) + 0.1 * gradient
            self.second[name] = 0.999 * self.second.get(name, 0.0) + 0.001 * gradient**2
            mean, square = self.first[name] / (1 - 0.9**self.count), self.second[name] / (1 - 0.999**self.count)
            changes[name] = -self.rate * mean / (np.sqrt(square) + 1e-8)
        return changes
