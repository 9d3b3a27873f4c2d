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
    types = read_types(lambda params: network.actor_then_critic(params, blank(observation_spec), mask), params)
    return jax.tree.map(lambda x, dtype: x.astype(dtype), params, types)


def read_types(function: Callable[[Any], Any], params: PyTree[Array]) -> PyTree[Any]:
    """Returns for each parameter the only type that the function converts it to, or its own if it reads it as it is.

    Parameters keep their own types if other operations depend on them, such as `x.astype(kernel.dtype)`.
    """
    leaves, structure = jax.tree.flatten(params)

    def trace(types: list[Any]) -> tuple[list[set[Any]], list[str]]:
        shapes = [jax.ShapeDtypeStruct(leaf.shape, dtype) for leaf, dtype in zip(leaves, types, strict=True)]
        return _reads(jax.make_jaxpr(lambda leaves: function(jax.tree.unflatten(structure, leaves)))(shapes).jaxpr)

    own = [leaf.dtype for leaf in leaves]
    read, operations = trace(own)
    only = [next(iter(types)) if len(types) == 1 else dtype for types, dtype in zip(read, own, strict=True)]
    unchanged = only == own or trace(only)[1] == operations
    return jax.tree.unflatten(structure, only if unchanged else own)


def _reads(jaxpr: Any) -> tuple[list[set[Any]], list[str]]:
    """Returns the types in which each input is read, and the operations that do not convert an input."""
    types: dict[Any, set[Any]] = {var: set() for var in jaxpr.invars}
    operations = []
    for equation in jaxpr.eqns:
        inputs = [var for var in equation.invars if not isinstance(var, jax.extend.core.Literal) and var in types]
        is_conversion = equation.primitive.name == "convert_element_type"
        for var in inputs:
            types[var].add(equation.params["new_dtype"] if is_conversion else var.aval.dtype)
        if not (inputs and is_conversion):
            operations.append(f"{equation.primitive.name} {[str(var.aval) for var in equation.outvars]}")
    for var in jaxpr.outvars:
        if not isinstance(var, jax.extend.core.Literal) and var in types:
            types[var].add(var.aval.dtype)
    return list(types.values()), [*operations, *(str(var.aval) for var in jaxpr.outvars)]
