"""Tests of the small networks for images and boards."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.environments import make
from spo.networks.config import NetworkConfig, make_architecture
from spo.networks.description import describe_network
from spo.networks.grids import GridTorso, PatchConvolution, cnn_channels, is_board, is_picture, is_small


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(6, 5, 2), (7, 4, 3)], ids=str)
def test_patches_compute_a_convolution(stride: int, shape: tuple[int, int, int]):
    x = jax.random.normal(jax.random.key(0), shape)
    module = PatchConvolution(4, stride=stride)
    variables = module.init(jax.random.key(1), x)
    kernel = variables["params"]["Dense_0"]["kernel"].reshape(3, 3, shape[2], 4)
    padding = [(1, 1), (1, 1)]
    expected = jax.lax.conv_general_dilated(
        x[None], kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )[0]
    np.testing.assert_allclose(module.apply(variables, x), expected, atol=1e-5)


def test_observations_are_recognised_by_their_shapes():
    def leaf(*shape: int, dtype=jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    assert is_board(leaf(4, 4, dtype=jnp.int32))
    assert is_board(leaf(10, 5))
    assert not is_board(leaf(3, 4))
    assert not is_board(leaf(100, 100, dtype=jnp.int32))
    assert is_picture(leaf(10, 10, 4, dtype=jnp.bool_))
    assert not is_picture(leaf(2, 2, 4))
    assert is_small(leaf(4, 4, 31, dtype=jnp.bool_))
    assert not is_small(leaf(10, 5))


def test_large_images_are_halved_more_often():
    assert cnn_channels((10, 10, 4)) == (16,)
    assert cnn_channels((64, 64, 3)) == (16, 32, 32, 32)
    features = jax.eval_shape(
        lambda: GridTorso(cnn_channels((64, 64, 3))).init_with_output(jax.random.key(0), jnp.zeros((64, 64, 3)))
    )[0]
    assert features.shape == (128,)


def test_numbers_beside_a_board_count():
    torso = GridTorso((4,), 8, num_blocks=1)
    board = jnp.zeros((4, 4), jnp.int32)
    variables = torso.init(jax.random.key(0), {"board": board, "step": jnp.float32(0)})
    first, second = (torso.apply(variables, {"board": board, "step": jnp.float32(step)}) for step in (0, 3))
    third = torso.apply(variables, {"board": board.at[0, 0].set(1), "step": jnp.float32(0)})
    assert not np.allclose(first, second)
    assert not np.allclose(first, third)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("mlp", "MLP of 2 x 128"), ("cnn", "CNN with 16 channels and 128 units"), ("resnet", "ResNet with 1 blocks")],
)
def test_a_kind_can_be_named(kind: str, words: str):
    environment = make("tiny/chain").train._replace(observation_spec=jax.ShapeDtypeStruct((6, 6), jnp.int32))
    architecture = make_architecture(environment, NetworkConfig(kind=kind))
    assert words in describe_network(architecture, kind, 1)


def test_a_kind_that_does_not_fit_is_refused():
    environment = make("tiny/chain").train._replace(observation_spec=jax.ShapeDtypeStruct((6,), jnp.float32))
    with pytest.raises(ValueError, match=r"network\.kind cnn needs an image or a board"):
        make_architecture(environment, NetworkConfig(kind="cnn"))
    with pytest.raises(ValueError, match=r"network.channels are those of a CNN or a ResNet"):
        make_architecture(environment, NetworkConfig(kind="mlp", channels=(4,)))


def test_networks_can_preprocess_their_observations():
    environment = make("tiny/chain").train._replace(observation_spec=jax.ShapeDtypeStruct((3,), jnp.float32))
    from spo.networks import make_network, make_q_network, mlp_architecture

    plain = mlp_architecture(depth=1, width=4)
    halved = plain._replace(preprocess=lambda x: x / 2)
    observation, mask = jnp.array([1.0, -2.0, 3.0]), jnp.ones(environment.action_spec.num_actions, bool)
    specs = (environment.observation_spec, environment.action_spec)
    networks = [make_network(*specs, architecture) for architecture in (plain, halved)]
    params = networks[0].init(jax.random.key(0), specs[0])
    for one, other in zip(
        networks[0].both(params, observation / 2, mask), networks[1].both(params, observation, mask), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    q_networks = [make_q_network(*specs, architecture) for architecture in (plain, halved)]
    q_params = q_networks[0].init(jax.random.key(0), specs[0])
    np.testing.assert_array_equal(
        q_networks[0].all_values(q_params, observation / 2), q_networks[1].all_values(q_params, observation)
    )
    assert isinstance(plain.torso, nn.Module)
