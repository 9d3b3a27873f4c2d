"""Parameters rounded ahead of a network's calls: its values stay the same, bit for bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.networks import cube_architecture, make_network, mlp_architecture, round_as_read
from spo.networks.rounding import read_types
from spo.types import ContinuousActions, DiscreteActions

#: Outputs, and what the cube's first layer multiplies before any observation.
IN_FLOAT32 = ("'logits'", "'mean'", "'raw_scale'", "'value'", "'embedding'", "'StickerLayer_0']['kernel'")
VECTOR, CUBE = jax.ShapeDtypeStruct((6,), jnp.float32), jax.ShapeDtypeStruct((6, 3, 3), jnp.int8)


def case(name: str, dtype: Any) -> tuple[Any, Any, Any]:
    """Returns the observation's spec, the actions and the architecture."""
    if name == "cube":
        return CUBE, DiscreteActions(5), cube_architecture(width=16, head_sizes=(8,), dtype=dtype)
    return VECTOR, ContinuousActions(3), mlp_architecture(depth=2, width=16, dtype=dtype)


@pytest.mark.parametrize("name", ["cube", "mlp"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
def test_a_network_returns_the_same_with_rounded_parameters(name: str, dtype: Any):
    spec, actions, architecture = case(name, dtype)
    network = make_network(spec, actions, architecture)
    params = network.init(jax.random.key(0), spec)
    rounded = round_as_read(network, spec, actions, params)
    observation = jnp.ones(spec.shape, spec.dtype)
    mask = jnp.array([True, True, False, True, True]) if name == "cube" else None
    for function in (network.both, network.actor_then_critic):
        jax.tree.map(
            np.testing.assert_array_equal, function(rounded, observation, mask), function(params, observation, mask)
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(rounded):
        name = jax.tree_util.keystr(path)
        assert leaf.dtype == (jnp.float32 if any(part in name for part in IN_FLOAT32) else dtype), name


def test_only_parameters_that_are_read_in_one_type_change_theirs():
    def function(params: dict) -> Any:
        low = {name: leaf.astype(jnp.bfloat16) for name, leaf in params.items() if name not in ("wide", "unused")}
        return low["rounded"] + low["both"], params["both"] + params["wide"], params["returned"], low["returned"]

    names = ("rounded", "both", "wide", "returned", "unused")
    types = read_types(function, {name: jnp.ones(2) for name in names})
    assert {name for name in names if types[name] != jnp.float32} == {"rounded"}


def test_a_network_may_read_the_type_of_its_parameters():
    """Rounded parameters would narrow what it computes in their type, so none is rounded."""

    def function(params: dict) -> Any:
        kernel, x = params["kernel"], jnp.arange(6.0)
        hidden = jnp.tanh((x.astype(jnp.bfloat16) @ kernel.astype(jnp.bfloat16)).astype(kernel.dtype))
        return hidden * 2

    def same_to_the_end(params: dict) -> Any:
        return jnp.sum(params["kernel"].astype(jnp.bfloat16)).astype(params["kernel"].dtype)

    for reader in (function, same_to_the_end):
        assert read_types(reader, {"kernel": jnp.ones((6, 3))}) == {"kernel": jnp.float32}
