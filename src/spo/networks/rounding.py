"""Parameters rounded ahead of the calls of a network that computes in a narrow type, such as bfloat16."""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp

from spo.networks.actor_critic import blank
from spo.networks.contract import ActorCritic, ActorCriticParams, ObservationSpec
from spo.types import ActionSpec, Array, DiscreteActions, PyTree


def round_as_read(
    network: ActorCritic, observation_spec: ObservationSpec, action_spec: ActionSpec, params: ActorCriticParams
) -> ActorCriticParams:
    """Returns the parameters in the types that the network reads them in. It returns the same values with them.

    A layer rounds its parameters in each call. XLA moves that out of no loop, and joins rounded biases to no product.
    """
    mask = jnp.ones(action_spec.num_actions, bool) if isinstance(action_spec, DiscreteActions) else None
    types = read_types(lambda params: network.in_turn(params, blank(observation_spec), mask), params)
    return jax.tree.map(lambda x, dtype: x.astype(dtype), params, types)


def read_types(function: Callable[[Any], Any], params: PyTree[Array]) -> PyTree[Any]:
    """Returns for each parameter the only type that the function converts it to, or its own if it reads it as it is."""
    leaves, structure = jax.tree.flatten(params)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    jaxpr = jax.make_jaxpr(lambda leaves: function(jax.tree.unflatten(structure, leaves)))(shapes).jaxpr
    types: dict[Any, set[Any]] = {var: set() for var in jaxpr.invars}
    for equation in jaxpr.eqns:
        converted = equation.params["new_dtype"] if equation.primitive.name == "convert_element_type" else None
        for var in equation.invars:
            if not isinstance(var, jax.extend.core.Literal) and var in types:
                types[var].add(converted or var.aval.dtype)
    for var in jaxpr.outvars:
        if not isinstance(var, jax.extend.core.Literal) and var in types:
            types[var].add(var.aval.dtype)
    only = [next(iter(types[var])) if len(types[var]) == 1 else var.aval.dtype for var in jaxpr.invars]
    return jax.tree.unflatten(structure, only)
