"""Q networks: one output per discrete action; a continuous action is an input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.networks import cube_architecture, make_q_network, mlp_architecture
from spo.types import ContinuousActions, DiscreteActions

KEY = jax.random.key(2)
VECTOR = jax.ShapeDtypeStruct((5,), jnp.float32)
CUBE = jax.ShapeDtypeStruct((6, 3, 3), jnp.int32)


def test_discrete_values_are_those_of_the_actions():
    network = make_q_network(CUBE, DiscreteActions(18), cube_architecture(width=16, head_sizes=(8,)))
    params = network.init(KEY, CUBE)
    observation = jax.random.randint(KEY, (6, 3, 3), 0, 6)
    values = network.all_values(params, observation)
    assert values.shape == (18,)
    assert len(np.unique(values)) == 18
    for action in (0, 7, 17):
        assert network.value(params, observation, jnp.asarray(action)) == values[action]


def test_continuous_value_is_a_joint_function_of_observation_and_action():
    network = make_q_network(VECTOR, ContinuousActions(2), mlp_architecture(depth=2, width=16))
    params = network.init(KEY, VECTOR)
    assert network.all_values is None
    assert params["torso"]["Dense_0"]["kernel"].shape == (5 + 2, 16)

    observation, action = jnp.linspace(-1.0, 1.0, 5), jnp.asarray([0.5, -0.5])
    assert network.value(params, observation, action).shape == ()
    # The sum of a function of the state and a function of the action has no mixed derivative. Q must have one.
    mixed = jax.jacobian(jax.grad(network.value, argnums=1), argnums=2)(params, observation, action)
    assert np.abs(mixed).min() > 1e-6


def test_twin_critics_are_two_sets_of_parameters():
    network = make_q_network(VECTOR, ContinuousActions(2), mlp_architecture(depth=1, width=8))
    # One after the other: see `spo.training.trainer.jit_init` for the reason.
    params = jax.lax.map(lambda key: network.init(key, VECTOR), jax.random.split(KEY))
    first, second = jax.vmap(network.value, in_axes=(0, None, None))(params, jnp.ones(5), jnp.zeros(2))
    assert first != second


@pytest.mark.parametrize(
    ("spec", "actions", "num_parameters"),
    [
        (VECTOR, ContinuousActions(2), (7 * 256 + 256) + 3 * (256 * 256 + 256) + 257),
        (VECTOR, DiscreteActions(4), (5 * 256 + 256) + 3 * (256 * 256 + 256) + 4 * 257),
        (CUBE, DiscreteActions(18), 24 + (216 * 512 + 512) + 2 * (512 * 512 + 512) + 18 * 513),
    ],
)
def test_default_sizes_are_the_papers(spec, actions, num_parameters):
    params = jax.eval_shape(lambda: make_q_network(spec, actions).init(KEY, spec))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == num_parameters


def test_dtype_is_that_of_the_computation_only():
    observation, action = jnp.linspace(-1.0, 1.0, 5), jnp.asarray([0.5, -0.5])
    networks = [
        make_q_network(VECTOR, ContinuousActions(2), mlp_architecture(depth=2, width=16, dtype=dtype))
        for dtype in (jnp.float32, jnp.bfloat16)
    ]
    params = networks[1].init(KEY, VECTOR)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}
    exact, rounded = (network.value(params, observation, action) for network in networks)
    assert rounded.dtype == jnp.float32
    assert exact != rounded
    np.testing.assert_allclose(exact, rounded, atol=0.05)


def test_behind_a_torso_that_takes_no_action_the_head_does():
    network = make_q_network(CUBE, ContinuousActions(2), cube_architecture(width=16, head_sizes=(8,)))
    params = network.init(KEY, CUBE)
    assert params["head"]["MLP_0"]["Dense_0"]["kernel"].shape == (16 + 2, 8)
    stickers = jnp.zeros((6, 3, 3), int)
    assert network.value(params, stickers, jnp.zeros(2)) != network.value(params, stickers, jnp.ones(2))
