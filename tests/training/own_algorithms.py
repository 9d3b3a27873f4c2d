"""An algorithm as a user writes it: `training.own_algorithms:make_reinforce`."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.acting import init_worker, rollout
from spo.algorithms.base import Algorithm, Setting, TrainState, act_by_policy, critic_values, per_device, vmap_over
from spo.algorithms.updates import adam, gradient_step
from spo.networks import make_network
from spo.returns import gae


@dataclass(frozen=True)
class ReinforceConfig:
    """Hyperparameters of REINFORCE with a learned baseline."""

    num_envs: int = 32
    """Number of environments."""
    rollout_length: int = 16
    """Steps of each environment in one iteration."""
    learning_rate: float = 3e-3
    """Learning rate of Adam."""
    gamma: float = 0.99
    """Discount factor."""


class Learner(NamedTuple):
    params: Any
    optimiser: Any


def make_reinforce(setting: Setting, config: ReinforceConfig) -> Algorithm:
    """Returns REINFORCE with a learned baseline for a task."""
    environment = setting.task.train
    network = make_network(environment.observation_spec, environment.action_spec, setting.architecture)
    optimiser = adam(config.learning_rate, max_grad_norm=0.5)
    num_envs = per_device("num_envs", config.num_envs, setting.num_devices)

    def init(key_learner, key_worker):
        params = network.init(key_learner, environment.observation_spec)
        return TrainState(Learner(params, optimiser.init(params)), init_worker(environment, num_envs, key_worker))

    def decide(params, key, env_state, timestep):
        policy = jax.vmap(functools.partial(network.actor, params))(timestep.observation, timestep.action_mask)
        actions = jax.vmap(network.distribution.sample)(jax.random.split(key, num_envs), policy)
        return jax.vmap(network.distribution.to_environment)(actions), actions, {}

    def loss(params, experience):  # leaves are [time, environment, ...]
        both = vmap_over(functools.partial(network.both, params), 2)
        policy, values = both(experience.observation, experience.action_mask)
        next_values = vmap_over(functools.partial(network.critic, params), 2)(experience.next_observation)
        steps = (experience.reward, values, next_values, experience.terminated, experience.truncated)
        estimate = functools.partial(gae, gamma=config.gamma, gae_lambda=0.95)
        advantages, targets = jax.lax.stop_gradient(jax.vmap(estimate, in_axes=1, out_axes=1)(*steps))
        log_probs = vmap_over(network.distribution.log_prob, 2)(policy, experience.extras)
        actor, critic = -jnp.mean(advantages * log_probs), jnp.mean((values - targets) ** 2)
        return actor + 0.5 * critic, {"loss/actor": actor, "loss/critic": critic}

    def step(state):
        decide_now = functools.partial(decide, state.learner.params)
        worker, experience, metrics = rollout(environment, decide_now, state.worker, config.rollout_length)
        loss_now = functools.partial(loss, experience=experience)
        learner, losses = gradient_step(state.learner, loss_now, optimiser)
        return TrainState(learner, worker), metrics | losses

    def act(learner, key, env_state, timestep, *, use_search, greedy):
        return act_by_policy(network, learner.params, key, timestep, greedy=greedy)

    return Algorithm(
        init=init,
        step=step,
        act=act,
        value=lambda learner, key, timestep: critic_values(network, learner.params, timestep),
        env_steps_per_iteration=config.num_envs * config.rollout_length,
        model_steps_per_env_step=0,  # there is no search
        network_evaluations_per_env_step=1,
    )


def make_without_types(setting, config):
    """An algorithm whose configuration has no type."""


NOT_A_FUNCTION = 3
