"""Q functions as pure functions of one observation."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.networks.actor_critic import ObservationSpec, apply_chain, blank, init_chain
from spo.networks.architectures import Architecture, paper_architecture
from spo.networks.heads import ActionValuesHead, ValueHead
from spo.types import Action, ActionSpec, Array, DiscreteActions, Float, Observation, PRNGKey, PyTree


class QNetwork(NamedTuple):
    """Q as functions of one observation. Twin critics are two sets of parameters."""

    #: (key, observation spec) -> initial parameters
    init: Callable[[PRNGKey, ObservationSpec], PyTree[Array]]
    #: (params, observation, action) -> Q(observation, action), the action as the environment takes it
    value: Callable[[PyTree[Array], Observation, Action], Float[Array, ""]]
    #: (params, observation) -> Q(observation, .) of every action; None for continuous actions
    all_values: Callable[[PyTree[Array], Observation], Float[Array, " A"]] | None


def make_q_network(
    observation_spec: ObservationSpec, action_spec: ActionSpec, architecture: Architecture | None = None
) -> QNetwork:
    """Returns a Q function. Without `architecture`, it is the paper's network for that kind of observation.

    For discrete actions, the network has one output per action. A continuous action is an input beside the observation.
    The torso must then be one that flattens its input (`mlp_architecture`): action and state meet in the first layer.
    """
    architecture = paper_architecture(observation_spec) if architecture is None else architecture
    torso = architecture.torso
    layers = (architecture.head_sizes, architecture.head_activation)

    if isinstance(action_spec, DiscreteActions):
        values_head = ActionValuesHead(action_spec.num_actions, *layers, dtype=architecture.dtype)

        def all_values(params: PyTree[Array], observation: Observation) -> Float[Array, " A"]:
            return apply_chain(torso, values_head, params, observation)

        return QNetwork(
            init=lambda key, spec: init_chain(torso, values_head, key, blank(spec)),
            value=lambda params, observation, action: all_values(params, observation)[action],
            all_values=all_values,
        )

    value_head = ValueHead(*layers, dtype=architecture.dtype)
    blank_action = jax.ShapeDtypeStruct((action_spec.size,), jnp.float32)
    return QNetwork(
        init=lambda key, spec: init_chain(torso, value_head, key, blank((spec, blank_action))),
        value=lambda params, observation, action: apply_chain(torso, value_head, params, (observation, action)),
        all_values=None,
    )
