"""The contract between an algorithm and the training loop, and small functions that several algorithms use."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.distributions import Distribution
from spo.networks import ActorCritic, ActorCriticParams, Architecture, Networks
from spo.trees import select
from spo.types import DEVICE_AXIS, Action, Array, Bool, Float, Metrics, PRNGKey, PyTree, Task, TimeStep


class Setting(NamedTuple):
    """Everything that an algorithm receives besides its own hyper-parameters."""

    task: Task  # environments to train in, to evaluate in and to plan with
    architecture: Architecture | Networks  # torso and heads of the networks, or a user's whole networks
    #: environment steps of the whole run: the length of learning-rate decay
    total_env_steps: float
    #: number of devices among which environments, replay and batches are split evenly
    num_devices: int = 1
    #: skip updates whose result is not finite, instead of stopping the run there
    skip_nonfinite_updates: bool = False


class TrainState(NamedTuple):
    """Everything that the next step needs, and all that a checkpoint stores."""

    learner: Any  # the same on every device: parameters, targets, optimisers, duals
    worker: Any  # different on every device: environments, replay, random key


class Searched(NamedTuple):
    """Decisions by a search with all that they were made from."""

    action: Action  # [B, ...] as `Algorithm.act` returns it with the same key
    output: Any  # `SearchOutput` with its ancestry, or `TreeSearchOutput`


class Inspect(NamedTuple):
    """Functions that show how an algorithm decides, for `spo inspect`."""

    #: family of the policy's distributions
    distribution: Distribution
    #: (learner, time steps [B]) -> parameters of the policies [B], before any search
    policy: Callable[[Any, TimeStep], Any]
    #: (learner, key, environment states [B], time steps [B], temperature, greedy=bool) -> Searched; None: the algorithm
    #: does not search
    search: Callable[..., Searched] | None = None
    #: learner -> its own temperature; None: the search has none
    temperature: Callable[[Any], Float[Array, ""]] | None = None


class Algorithm(NamedTuple):
    """A learning algorithm as a few functions. `init` and `step` run inside the mesh axis `DEVICE_AXIS`."""

    #: (key of the learner, key of this device's worker) -> TrainState
    init: Callable[[PRNGKey, PRNGKey], TrainState]
    #: one iteration: collect a rollout, learn from it
    step: Callable[[TrainState], tuple[TrainState, Metrics]]
    #: (learner, key, environment states [B], time steps [B], use_search=bool, greedy=Greedy) -> actions [B]
    act: Callable[..., Action]
    #: (learner, key, time steps [B]) -> estimated values of the states [B], in rewards of the environment
    value: Callable[[Any, PRNGKey, TimeStep], Float[Array, " B"]]
    #: environment steps of one iteration, over all devices
    env_steps_per_iteration: int
    #: steps of the search's model per environment step
    model_steps_per_env_step: int
    #: states evaluated by a network to choose one action; policy and value of one state count once
    network_evaluations_per_env_step: int
    #: True if `act` accepts an array [B] for `greedy`, so that one search serves both kinds of actions
    greedy_per_state: bool = False
    #: policy and search in a form to look at; None: `spo inspect` shows actions and values only
    inspect: Inspect | None = None


#: Best actions instead of drawn ones: for all states, or for each of them.
Greedy = bool | Bool[Array, " B"]


def per_device(name: str, amount: int, num_devices: int) -> int:
    """Returns the part of `amount` that each device gets; raises if it can't be split evenly."""
    if amount % num_devices:
        raise ValueError(f"{name} ({amount}) must be divisible by the number of devices ({num_devices}).")
    return amount // num_devices


def vmap_over(function: Callable[..., Any], num_axes: int, in_axes: Any = 0) -> Callable[..., Any]:
    """Maps over `num_axes` leading axes, like `jax.vmap` that many times. `in_axes` is 0 or None for each argument.

    The axes are joined to one and split again in the results: products of matrices with one axis of rows compile to
    faster kernels than those with several.
    """

    def mapped(*arguments: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(arguments)
        mapped_leaves = jax.tree.leaves([one for one, axis in zip(arguments, axes, strict=True) if axis is not None])
        shape = mapped_leaves[0].shape[:num_axes]

        def join(leaf: Array) -> Array:
            return leaf.reshape(-1, *leaf.shape[num_axes:])

        joined = [one if axis is None else jax.tree.map(join, one) for one, axis in zip(arguments, axes, strict=True)]
        results = jax.vmap(function, in_axes=axes)(*joined)
        return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), results)

    return mapped


# --- Networks on batches ----------------------------------------------------------------------------------------------
def act_by_policy(
    network: ActorCritic, params: ActorCriticParams, key: PRNGKey, timestep: TimeStep, *, greedy: Greedy
) -> Action:
    """Returns actions for the environments [B] from the policy alone: its mode if `greedy`, else a sample."""
    distribution = network.distribution
    policy = policies(network, params, timestep)
    drawn = jax.vmap(distribution.sample)(jax.random.split(key, timestep.reward.shape[0]), policy)
    actions = select_actions(greedy, jax.vmap(distribution.mode)(policy), drawn)
    return jax.vmap(distribution.to_environment)(actions)


def select_actions(greedy: Greedy, best: Action, drawn: Action) -> Action:
    """Returns the best actions [B] where `greedy`, else the drawn ones."""
    if isinstance(greedy, bool):
        return best if greedy else drawn
    return select(greedy, best, drawn)


def policies(network: ActorCritic, params: ActorCriticParams, timestep: TimeStep) -> Any:
    """Returns the parameters of the policies in the states [B]."""
    return jax.vmap(functools.partial(network.actor, params))(timestep.observation, timestep.action_mask)


def critic_values(network: ActorCritic, params: ActorCriticParams, timestep: TimeStep) -> Float[Array, " B"]:
    """Returns the critic's values of the states [B]."""
    return jax.vmap(functools.partial(network.critic, params))(timestep.observation)


def mean_entropy(distribution: Distribution, params: PyTree[Array]) -> Float[Array, ""]:
    """Returns the mean entropy of policies with parameters [B, T, ...], a metric.

    Of continuous policies only the first state of each sequence counts. Sequences start anywhere in the replay, so
    these states represent it. The entropy of a squashed Gaussian is an integral, which is costly to compute in every
    state.
    """
    if distribution.num_actions(params) is None:
        params = jax.tree.map(lambda x: x[:, :1], params)
    return jnp.mean(vmap_over(distribution.entropy, num_axes=2)(params))


__all__ = [
    "DEVICE_AXIS",
    "Algorithm",
    "Greedy",
    "Inspect",
    "Metrics",
    "Searched",
    "Setting",
    "TrainState",
    "act_by_policy",
    "critic_values",
    "mean_entropy",
    "per_device",
    "policies",
    "select_actions",
    "vmap_over",
]
