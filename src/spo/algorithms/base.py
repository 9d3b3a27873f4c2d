"""What an algorithm is to the training loop, and how experience is gathered: the same for all of them."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from spo.networks import ActorCritic, ActorCriticParams, Architecture
from spo.types import DEVICE_AXIS, Action, Array, Float, Metrics, PRNGKey, Task, TimeStep

Learner = TypeVar("Learner")


class Setting(NamedTuple):
    """Where an algorithm runs: all that it is told beside its own hyper-parameters."""

    task: Task
    architecture: Architecture
    #: of the whole run: what learning rates that decay reach 0 at
    total_env_steps: float
    #: they share the environments, the replay and the batches
    num_devices: int = 1
    #: leave out updates that would make something infinite or NaN, instead of letting the loop stop there
    skip_nonfinite_updates: bool = False


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
    #: (learner, key, time steps [B]) -> what it believes the states to be worth [B], in rewards of the environment
    value: Callable[[Any, PRNGKey, TimeStep], Float[Array, " B"]]
    #: environment steps of one iteration, over all devices
    env_steps_per_iteration: int
    #: counted beside them, per environment step: steps imagined by the search, and states that a network looked at to
    #: decide (policy and value of one state are one)
    model_steps_per_env_step: int
    network_evaluations_per_env_step: int


# --- Shared by the stories --------------------------------------------------------------------------------------------
def act_by_policy(
    network: ActorCritic, params: ActorCriticParams, key: PRNGKey, timestep: TimeStep, *, greedy: bool
) -> Action:
    """Actions for the environments [B] by the bare policy: its mode, or a draw."""
    distribution = network.distribution
    policy = jax.vmap(functools.partial(network.actor, params))(timestep.observation, timestep.action_mask)
    if greedy:
        actions = jax.vmap(distribution.mode)(policy)
    else:
        actions = jax.vmap(distribution.sample)(jax.random.split(key, timestep.reward.shape[0]), policy)
    return jax.vmap(distribution.to_environment)(actions)


def critic_values(network: ActorCritic, params: ActorCriticParams, timestep: TimeStep) -> Float[Array, " B"]:
    """What the critic says of the states [B]."""
    return jax.vmap(functools.partial(network.critic, params))(timestep.observation)


def adam(
    learning_rate: float, max_grad_norm: float | None, *, decay_updates: int | None = None
) -> optax.GradientTransformation:
    """Adam on gradients clipped to a norm; the rate falls linearly to 0 over `decay_updates` updates, if given."""
    rate = learning_rate if decay_updates is None else optax.linear_schedule(learning_rate, 0.0, decay_updates)
    clip = optax.identity() if max_grad_norm is None else optax.clip_by_global_norm(max_grad_norm)
    return optax.chain(clip, optax.adam(rate))


def updates_of_run(setting: Setting, env_steps_per_iteration: int, updates_per_iteration: int) -> int:
    """What rates that decay reach 0 after. A run may go on for less than an interval, which changes nothing then."""
    return math.ceil(setting.total_env_steps / env_steps_per_iteration) * updates_per_iteration


def actor_critic_optimiser(
    actor: optax.GradientTransformation, critic: optax.GradientTransformation
) -> optax.GradientTransformation:
    """Actor and critic each with an optimiser of its own. A shared torso learns with the actor's: a third would have
    nothing to say."""
    groups = ActorCriticParams(torso="actor", actor="actor", critic="critic")
    return optax.multi_transform({"actor": actor, "critic": critic}, groups)


def run_updates(
    update: Callable[[Learner, Any], tuple[Learner, Metrics]], learner: Learner, inputs: Any, *, skip_nonfinite: bool
) -> tuple[Learner, Metrics]:
    """`update(learner, input)` for each of the inputs [U, ...]; metrics are means over the updates.

    With `skip_nonfinite`, an update after which anything is not finite has not happened: the learner stays as it was,
    the means leave it out, and "skipped_updates" counts it. If all were such, the means are NaN, and training stops.
    """

    def guarded(learner: Learner, one: Any) -> tuple[Learner, Metrics]:
        updated, metrics = update(learner, one)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((updated, metrics))]))
        learner = jax.tree.map(lambda new, old: jnp.where(finite, new, old), updated, learner)
        metrics = {name: jnp.where(finite, value, jnp.nan) for name, value in metrics.items()}
        return learner, metrics | {"skipped_updates": 1.0 - finite}

    with jax.named_scope("update"):
        learner, metrics = jax.lax.scan(guarded if skip_nonfinite else update, learner, inputs)
    if not skip_nonfinite:
        return learner, jax.tree.map(jnp.mean, metrics)
    skipped = jnp.sum(metrics.pop("skipped_updates"))
    return learner, jax.tree.map(jnp.nanmean, metrics) | {"skipped_updates": skipped}


def share(name: str, amount: int, num_devices: int) -> int:
    """One device's part of something that all share evenly."""
    if amount % num_devices:
        raise ValueError(f"{name} ({amount}) must be divisible by the number of devices ({num_devices}).")
    return amount // num_devices


def vmap_over(function: Callable[..., Any], num_axes: int, in_axes: Any = 0) -> Callable[..., Any]:
    """`vmap` over several leading axes at once."""
    for _ in range(num_axes):
        function = jax.vmap(function, in_axes=in_axes)
    return function


__all__ = [
    "DEVICE_AXIS",
    "Algorithm",
    "Metrics",
    "Setting",
    "TrainState",
    "act_by_policy",
    "actor_critic_optimiser",
    "adam",
    "critic_values",
    "run_updates",
    "share",
    "updates_of_run",
    "vmap_over",
]
