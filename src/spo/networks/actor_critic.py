"""Actor and critic as pure functions of one observation."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from spo.distributions import Distribution, categorical, tanh_gaussian
from spo.networks.architectures import Architecture, paper_architecture
from spo.networks.contract import ActionMask, ActorCritic, ActorCriticParams, Networks, ObservationSpec
from spo.networks.heads import CategoricalHead, GaussianHead, ValueHead
from spo.types import ActionSpec, Array, DiscreteActions, Float, Observation, PRNGKey, PyTree


def make_network(
    observation_spec: ObservationSpec,
    action_spec: ActionSpec,
    architecture: Architecture | Networks | None = None,
) -> ActorCritic:
    """Returns an actor and a critic. Without `architecture`, it is the paper's for that kind of observation.

    Discrete actions get a categorical policy, continuous ones a tanh-squashed Gaussian within their bounds. `Networks`
    are returned as they are.
    """
    if isinstance(architecture, Networks):
        return architecture.actor_critic
    architecture = paper_architecture(observation_spec) if architecture is None else architecture
    layers = (architecture.head_sizes, architecture.head_activation)
    value_head = ValueHead(*layers, dtype=architecture.dtype, gain=architecture.value_gain)
    policy_head: nn.Module
    if isinstance(action_spec, DiscreteActions):
        policy_head = CategoricalHead(action_spec.num_actions, *layers, dtype=architecture.dtype)
        distribution = categorical
    else:
        policy_head = GaussianHead(action_spec.size, *layers, dtype=architecture.dtype)
        distribution = tanh_gaussian(action_spec.low, action_spec.high)
    combine = shared_torso if architecture.share_torso else separate_torsos
    return combine(architecture.torso, policy_head, value_head, distribution).with_preprocessing(
        architecture.preprocess
    )


def evaluate_both_ends(
    network: ActorCritic,
    params: ActorCriticParams,
    observation: Observation,
    next_observation: Observation,
    action_mask: ActionMask,
) -> tuple[Any, Float[Array, "B T"], Float[Array, "B T"]]:
    """Returns policy and value at the start of each step, and the value at its end, for leaves [B, T, ...].

    Both observations go through the network in one call: on a GPU, small kernels cost by their number.
    """
    both_ends = jax.tree.map(lambda now, next_: jnp.stack([now, next_]), observation, next_observation)
    over_batch = jax.vmap(jax.vmap(network.both, in_axes=(None, 0, 0)), in_axes=(None, 0, 0))
    policies, values = jax.vmap(over_batch, in_axes=(None, 0, None))(params, both_ends, action_mask)
    return jax.tree.map(lambda x: x[0], policies), values[0], values[1]


def shared_torso(
    torso: nn.Module, policy_head: nn.Module, value_head: nn.Module, distribution: Distribution
) -> ActorCritic:
    """Returns an actor and a critic that use the features of one torso."""

    def init(key: PRNGKey, observation_spec: ObservationSpec) -> ActorCriticParams:
        key_torso, key_actor, key_critic = jax.random.split(key, 3)
        torso_params, features = init_module(torso, key_torso, blank(observation_spec))
        actor_params, _ = init_module(policy_head, key_actor, features)
        critic_params, _ = init_module(value_head, key_critic, features)
        return ActorCriticParams(torso_params, actor_params, critic_params)

    def embed(params: ActorCriticParams, observation: Observation) -> Any:
        return torso.apply({"params": params.torso}, observation)

    def policy(params: ActorCriticParams, features: Any, action_mask: ActionMask) -> Any:
        return policy_head.apply({"params": params.actor}, features, action_mask)

    def value(params: ActorCriticParams, features: Any) -> Any:
        return value_head.apply({"params": params.critic}, features)

    def both(params: ActorCriticParams, observation: Observation, action_mask: ActionMask) -> tuple[Any, Any]:
        features = embed(params, observation)
        return policy(params, features, action_mask), value(params, features)

    return ActorCritic(
        init=init,
        actor=lambda params, observation, action_mask: policy(params, embed(params, observation), action_mask),
        critic=lambda params, observation: value(params, embed(params, observation)),
        both=both,
        distribution=distribution,
    )


def separate_torsos(
    torso: nn.Module, policy_head: nn.Module, value_head: nn.Module, distribution: Distribution
) -> ActorCritic:
    """Returns an actor and a critic with two torsos of the same shape, without shared parameters."""
    # On a GPU, one product of two pairs of matrices takes little longer than one of one pair. A CPU gains nothing.
    apply_torsos = stacked_torsos if jax.default_backend() == "gpu" else torsos_in_turn

    def init(key: PRNGKey, observation_spec: ObservationSpec) -> ActorCriticParams:
        key_actor, key_critic = jax.random.split(key)
        observation = blank(observation_spec)
        return ActorCriticParams(
            torso={},
            actor=init_chain(torso, policy_head, key_actor, observation),
            critic=init_chain(torso, value_head, key_critic, observation),
        )

    def actor(params: ActorCriticParams, observation: Observation, action_mask: ActionMask) -> Any:
        return apply_chain(torso, policy_head, params.actor, observation, action_mask)

    def critic(params: ActorCriticParams, observation: Observation) -> Any:
        return apply_chain(torso, value_head, params.critic, observation)

    def both(params: ActorCriticParams, observation: Observation, action_mask: ActionMask) -> tuple[Any, Any]:
        features = apply_torsos(torso, params.actor["torso"], params.critic["torso"], observation)
        policy = policy_head.apply({"params": params.actor["head"]}, features[0], action_mask)
        return policy, value_head.apply({"params": params.critic["head"]}, features[1])

    return ActorCritic(init=init, actor=actor, critic=critic, both=both, distribution=distribution, separate=True)


def torsos_in_turn(torso: nn.Module, first: PyTree[Array], second: PyTree[Array], inputs: Any) -> tuple[Any, Any]:
    """Returns the features of one torso with two sets of parameters."""
    return torso.apply({"params": first}, inputs), torso.apply({"params": second}, inputs)


def stacked_torsos(torso: nn.Module, first: PyTree[Array], second: PyTree[Array], inputs: Any) -> tuple[Any, Any]:
    """Computes `torsos_in_turn` in one pass: each layer is one batched product of both sets of parameters."""
    if not jax.tree.leaves(first):
        return torsos_in_turn(torso, first, second, inputs)
    stacked = jax.tree.map(_stack_by_columns, first, second)
    features = jax.vmap(lambda params: torso.apply({"params": params}, inputs))(stacked)
    return jax.tree.map(lambda x: x[0], features), jax.tree.map(lambda x: x[1], features)


def _stack_by_columns(first: Array, second: Array) -> Array:
    """Returns both arrays as one. Matrices are stacked transposed, as updates store them: XLA then copies them once."""
    if first.ndim != 2:
        return jnp.stack([first, second])
    return jnp.stack([first.T, second.T]).swapaxes(1, 2)


def init_chain(torso: nn.Module, head: nn.Module, key: PRNGKey, inputs: PyTree[Array]) -> PyTree[Array]:
    """Returns initial parameters of a torso and a head, for `apply_chain`."""
    key_torso, key_head = jax.random.split(key)
    torso_params, features = init_module(torso, key_torso, inputs)
    head_params, _ = init_module(head, key_head, features)
    return {"torso": torso_params, "head": head_params}


def apply_chain(torso: nn.Module, head: nn.Module, params: PyTree[Array], inputs: PyTree[Array], *mask: Any) -> Any:
    """Returns head(torso(inputs), *mask)."""
    return head.apply({"params": params["head"]}, torso.apply({"params": params["torso"]}, inputs), *mask)


def init_module(module: nn.Module, key: PRNGKey, inputs: PyTree[Array]) -> tuple[PyTree[Array], Any]:
    """Returns initial parameters of a module ({} if it has none) and its output for `inputs`."""
    output, variables = module.init_with_output(key, inputs)
    return variables.get("params", {}), output


def blank(spec: ObservationSpec) -> Observation:
    """Returns an observation of zeros: an example input for the initialisation of a module."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), spec)
