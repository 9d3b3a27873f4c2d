"""Q functions as pure functions of one observation."""

from typing import Any

import jax
import jax.numpy as jnp

from spo.networks.actor_critic import apply_chain, blank, init_chain, init_module
from spo.networks.architectures import Architecture, paper_architecture
from spo.networks.contract import Networks, ObservationSpec, QNetwork
from spo.networks.heads import ActionValuesHead, ValueHead
from spo.networks.joint_kernel import Layers, ValuesFn, make_values_fn
from spo.networks.torsos import MLP, flatten
from spo.types import Action, ActionSpec, Array, ContinuousActions, DiscreteActions, Float, Observation, PRNGKey, PyTree

#: Hidden layers of Q(s, a) behind a torso that takes no action, if the architecture's heads have none.
JOINT_SIZES = (256, 256)


def make_q_network(
    observation_spec: ObservationSpec, action_spec: ActionSpec, architecture: Architecture | Networks | None = None
) -> QNetwork:
    """Returns a Q function. Without `architecture`, it is the paper's network for that kind of observation.

    For discrete actions, the network has one output per action. A continuous action is an input beside the observation:
    of the first layer in an MLP, and of the head's first layer behind any other torso. `Networks` are returned as they
    are.
    """
    if isinstance(architecture, Networks):
        if architecture.q_network is None:
            raise ValueError(
                "This algorithm learns Q(s, a) and the own network has none: return Networks(actor_critic, q_network), "
                "or a torso (a Flax module from an observation to features), which serves every algorithm."
            )
        return architecture.q_network
    architecture = paper_architecture(observation_spec) if architecture is None else architecture
    return _build(architecture, action_spec).with_preprocessing(architecture.preprocess)


def _build(architecture: Architecture, action_spec: ActionSpec) -> QNetwork:
    if isinstance(action_spec, DiscreteActions):
        return _values_of_all_actions(architecture, action_spec)
    if isinstance(architecture.torso, MLP):
        return _value_of_joint_input(architecture, action_spec)
    return _value_of_joint_features(architecture, action_spec)


def _values_of_all_actions(architecture: Architecture, action_spec: DiscreteActions) -> QNetwork:
    torso = architecture.torso
    layers = (architecture.head_sizes, architecture.head_activation)
    head = ActionValuesHead(action_spec.num_actions, *layers, dtype=architecture.dtype, gain=architecture.value_gain)

    def all_values(params: PyTree[Array], observation: Observation) -> Float[Array, " A"]:
        return apply_chain(torso, head, params, observation)

    return QNetwork(
        init=lambda key, spec: init_chain(torso, head, key, blank(spec)),
        value=lambda params, observation, action: all_values(params, observation)[action],
        all_values=all_values,
    )


def _value_of_joint_input(architecture: Architecture, action_spec: ContinuousActions) -> QNetwork:
    """Returns head(torso((observation, action))), for a torso that flattens its input."""
    torso = architecture.torso
    layers = (architecture.head_sizes, architecture.head_activation)
    head = ValueHead(*layers, dtype=architecture.dtype, gain=architecture.value_gain)

    def value(params: PyTree[Array], observation: Observation, action: Action) -> Float[Array, ""]:
        output: Any = apply_chain(torso, head, params, (observation, action))
        return output

    def read_inputs(params: PyTree[Array], observation: Observation) -> tuple[Float[Array, " F"], Layers]:
        hidden = [params["torso"][f"Dense_{layer}"] for layer in range(len(torso.hidden_sizes))]
        kernels, biases = zip(*((layer["kernel"], layer["bias"]) for layer in hidden), strict=True)
        output = params["head"]["value"]
        return flatten(observation), Layers(kernels, biases, output["kernel"][:, 0], output["bias"][0])

    values: ValuesFn = jax.vmap(value, in_axes=(None, None, 0))
    # A subclass of MLP may have other layers, and it computes in its own number format.
    if type(torso) is MLP and torso.hidden_sizes and not architecture.head_sizes and torso.dtype == jnp.float32:
        values = make_values_fn(values, read_inputs, torso.activation)
    return QNetwork(
        init=lambda key, spec: init_chain(torso, head, key, blank((spec, _action(action_spec)))),
        value=value,
        all_values=None,
        values=values,
    )


def _value_of_joint_features(architecture: Architecture, action_spec: ContinuousActions) -> QNetwork:
    """Returns head((torso(observation), action)). Without a hidden layer, Q would be linear in the action."""
    torso = architecture.torso
    sizes = tuple(architecture.head_sizes) or JOINT_SIZES
    head = ValueHead(sizes, architecture.head_activation, dtype=architecture.dtype, gain=architecture.value_gain)

    def init(key: PRNGKey, spec: ObservationSpec) -> PyTree[Array]:
        key_torso, key_head = jax.random.split(key)
        torso_params, features = init_module(torso, key_torso, blank(spec))
        head_params, _ = init_module(head, key_head, (features, blank(_action(action_spec))))
        return {"torso": torso_params, "head": head_params}

    def value(params: PyTree[Array], observation: Observation, action: Action) -> Float[Array, ""]:
        features = torso.apply({"params": params["torso"]}, observation)
        output: Any = head.apply({"params": params["head"]}, (features, action))
        return output

    return QNetwork(init=init, value=value, all_values=None)


def _action(action_spec: ContinuousActions) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((action_spec.size,), jnp.float32)
