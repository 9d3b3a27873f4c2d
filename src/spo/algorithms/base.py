"""What an algorithm is to the training loop, and how experience is gathered: the same for all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.environments.wrappers import auto_reset
from spo.types import Action, Array, Bool, Environment, Float, Integer, Observation, PRNGKey, PyTree, State, TimeStep

#: The mesh axis over which training runs. One device is an axis of length 1, not another code path.
DEVICE_AXIS = "devices"

Metrics = dict[str, Array]


class TrainState(NamedTuple):
    """Everything the next step needs. A checkpoint is this and nothing else."""

    learner: Any  # the same on every device: parameters, targets, optimisers, duals
    worker: Any  # each device's own: its environments, its share of the replay, its random key


class Algorithm(NamedTuple):
    """A learning algorithm as three functions. `step` and `init` run inside the mesh axis `DEVICE_AXIS`."""

    #: (key of the learner, key of this device's worker) -> TrainState
    init: Callable[[PRNGKey, PRNGKey], TrainState]
    #: one iteration: gather a rollout, learn from it
    step: Callable[[TrainState], tuple[TrainState, Metrics]]
    #: (learner, key, environment states [B], time steps [B], search or bare policy, greedy or sampled) -> actions [B]
    act: Callable[..., Action]
    #: environment steps of one iteration, over all devices
    env_steps_per_iteration: int
    #: imagined steps per environment step, counted beside them: what the search spends
    model_steps_per_env_step: int


class Worker(NamedTuple):
    """One device's environments, standing somewhere in their episodes."""

    env_state: State  # [E, ...]
    timestep: TimeStep  # [E, ...] what to act on next
    episode_return: Float[Array, " E"]  # so far
    episode_length: Integer[Array, " E"]
    key: PRNGKey


class Experience(NamedTuple):
    """One step as it happened. `next_observation` is the real one: at an end the last of the episode that ended."""

    observation: Observation
    action_mask: Bool[Array, " A"] | None
    next_observation: Observation
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    extras: Any  # what the algorithm wants to remember of its decision


#: (key, environment states [E], time steps [E]) -> (actions for the environment [E], extras [E], metrics)
DecideFn = Callable[[PRNGKey, State, TimeStep], tuple[Action, PyTree, Metrics]]


def init_worker(environment: Environment, num_envs: int, key: PRNGKey) -> Worker:
    key, key_reset = jax.random.split(key)
    env_state, timestep = jax.vmap(environment.reset)(jax.random.split(key_reset, num_envs))
    zeros = jnp.zeros(num_envs)
    return Worker(env_state, timestep, episode_return=zeros, episode_length=zeros.astype(jnp.int32), key=key)


def rollout(
    environment: Environment, decide: DecideFn, worker: Worker, length: int
) -> tuple[Worker, Experience, Metrics]:
    """Acts for `length` steps in every environment; experience has leading axes [length, E].

    Metrics are means over the rollout. Those of finished episodes (names that start with "episode/") are sums, beside
    the number of episodes, so that they can be averaged over however many rollouts.
    """
    step_and_reset = jax.vmap(auto_reset(environment))
    num_envs = worker.episode_length.shape[0]

    def step(worker: Worker, _: None) -> tuple[Worker, tuple[Experience, Metrics, Metrics]]:
        key, key_decide, key_step = jax.random.split(worker.key, 3)
        action, extras, metrics = decide(key_decide, worker.env_state, worker.timestep)
        env_state, outcome = step_and_reset(jax.random.split(key_step, num_envs), worker.env_state, action)
        said = outcome.timestep
        episode_return = worker.episode_return + said.reward
        episode_length = worker.episode_length + 1
        ended = said.ended
        totals = {"return": episode_return, "length": episode_length, **said.metrics}
        episodes = {f"episode/{name}": jnp.sum(jnp.where(ended, total, 0)) for name, total in totals.items()}
        episodes["episode/count"] = jnp.sum(ended)
        experience = Experience(
            observation=worker.timestep.observation,
            action_mask=worker.timestep.action_mask,
            next_observation=said.observation,
            reward=said.reward,
            terminated=said.terminated,
            truncated=said.truncated,
            extras=extras,
        )
        worker = Worker(
            env_state=env_state,
            timestep=outcome.next,
            episode_return=jnp.where(ended, 0.0, episode_return),
            episode_length=jnp.where(ended, 0, episode_length),
            key=key,
        )
        return worker, (experience, metrics, episodes)

    worker, (experience, metrics, episodes) = jax.lax.scan(step, worker, None, length=length)
    means = jax.tree.map(jnp.mean, metrics)
    sums = jax.tree.map(lambda x: jax.lax.psum(jnp.sum(x).astype(jnp.float32), DEVICE_AXIS), episodes)
    return worker, experience, means | sums
