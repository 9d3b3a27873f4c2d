"""Torsos: shapes, residual structure, initial scale and refused inputs."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.networks.torsos import MLP, CubeTorso, ResidualBlock, ResidualMLP, ResNet, dense, flatten

KEY = jax.random.key(7)


def test_flatten_keeps_every_number_in_the_order_of_the_leaves():
    observation = {"b": jnp.asarray([[5, 6], [7, 8]], jnp.int32), "a": jnp.asarray(4.0), "c": jnp.asarray([True])}
    flat = flatten(observation)
    assert flat.dtype == jnp.float32
    np.testing.assert_array_equal(flat, [4.0, 5.0, 6.0, 7.0, 8.0, 1.0])


def test_flatten_refuses_an_observation_without_arrays():
    with pytest.raises(ValueError, match="at least one array"):
        flatten({})


def test_mlp_is_the_composition_of_its_layers():
    module = MLP((3, 2), nn.silu)
    x = jnp.asarray([1.0, -2.0])
    params = module.init(KEY, x)["params"]

    def layer(name, x):
        return x @ params[name]["kernel"] + params[name]["bias"]

    expected = nn.silu(layer("Dense_1", nn.silu(layer("Dense_0", x))))
    np.testing.assert_allclose(module.apply({"params": params}, x), expected, rtol=1e-6)


@pytest.mark.parametrize("num_blocks", [1, 4])
def test_residual_block_is_identity_plus_correction(num_blocks):
    module = ResidualBlock(lambda gain: dense(5, gain, jnp.float32), num_blocks)
    x = jnp.asarray([1.0, -2.0, 3.0, -4.0, 5.0])
    params = module.init(KEY, x)["params"]
    correction = nn.relu(nn.relu(x) @ params["Dense_0"]["kernel"]) @ params["Dense_1"]["kernel"]
    np.testing.assert_allclose(module.apply({"params": params}, x), x + correction, rtol=1e-5)
    assert np.abs(correction).max() > 0.1

    zeroed = {**params, "Dense_1": jax.tree.map(jnp.zeros_like, params["Dense_1"])}
    np.testing.assert_array_equal(module.apply({"params": zeroed}, x), x)

    second = params["Dense_1"]["kernel"]
    np.testing.assert_allclose(second.T @ second, 2.0 / num_blocks * np.eye(5), atol=1e-5)


def zero_second_layers(params):
    """Returns the parameters with every residual correction set to zero."""

    def zero(path, leaf):
        names = [entry.key for entry in path]
        return jnp.zeros_like(leaf) if any("Residual" in name for name in names[:-2]) and names[-2][-1] == "1" else leaf

    return jax.tree_util.tree_map_with_path(zero, params)


def test_residual_mlp_is_its_first_layer_plus_the_others():
    module = ResidualMLP(width=6, num_layers=3)
    x = jax.random.normal(KEY, (4,))
    params = module.init(KEY, x)["params"]
    expected = nn.relu(x @ params["Dense_0"]["kernel"])
    for name in ("Dense_1", "Dense_2"):
        expected = expected + nn.relu(expected @ params[name]["kernel"])
    np.testing.assert_allclose(module.apply({"params": params}, x), expected, rtol=1e-5, atol=1e-6)
    assert set(params) == {"Dense_0", "Dense_1", "Dense_2"}


def test_resnet_without_corrections_is_its_convolutions_in_a_row():
    module = ResNet(channels=(3, 4), num_cell_kinds=5, blocks_per_group=1)
    cells = jax.random.randint(KEY, (4, 6), 0, 5)
    params = module.init(KEY, cells)["params"]

    x = np.eye(5)[np.asarray(cells)]
    for name in ("Conv_0", "Conv_1"):
        kernel = np.asarray(params[name]["kernel"])
        padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
        x = sum(padded[i : i + 4, j : j + 6] @ kernel[i, j] for i in range(3) for j in range(3))
    expected = np.maximum(x, 0.0).ravel()
    np.testing.assert_allclose(module.apply({"params": zero_second_layers(params)}, cells), expected, atol=1e-5)
    assert np.abs(module.apply({"params": params}, cells) - expected).max() > 0.05


@pytest.mark.parametrize("side", [2, 3])
def test_cube_torso_embeds_by_colour(side):
    module = CubeTorso(width=8, num_layers=2, embedding_size=4)
    stickers = jax.random.randint(KEY, (6, side, side), 0, 6).astype(jnp.int8)
    params = module.init(KEY, stickers)["params"]
    first = params["StickerLayer_0"]
    assert first["embedding"].shape == (6, 4)
    looked_up = first["embedding"][stickers].ravel()
    one_by_one = {
        "Dense_0": {"kernel": first["kernel"], "bias": first["bias"]},
        "Dense_1": params["ResidualMLP_0"]["Dense_0"],
    }
    expected = ResidualMLP(8, 2).apply({"params": one_by_one}, looked_up)
    np.testing.assert_allclose(module.apply({"params": params}, stickers), expected, rtol=1e-5, atol=1e-6)


def test_resnet_keeps_the_grid_and_flattens_it():
    module = ResNet(channels=(3, 5), num_cell_kinds=7)
    cells = jnp.zeros((4, 6), jnp.int32)
    assert jax.eval_shape(lambda: module.init_with_output(KEY, cells)[0]).shape == (4 * 6 * 5,)


@pytest.mark.parametrize("num_layers", [1, 9])
def test_a_deeper_stack_starts_with_features_of_bounded_size(num_layers):
    # Added outputs are never negative, and their means sum up: about sqrt(n) for n layers of gain 1/sqrt(n).
    # Measured: 1 for one layer, 17 for nine. With the full gain, the sum would grow geometrically.
    module = ResidualMLP(width=256, num_layers=num_layers)
    x = jax.random.normal(KEY, (64, 256))
    params = module.init(KEY, x[0])["params"]
    features = jax.vmap(lambda x: module.apply({"params": params}, x))(x)
    assert 0.7 < np.mean(features**2) < 50.0


def test_hidden_kernels_are_orthogonal_with_gain_root_two_and_biases_zero():
    params = MLP((16, 8), nn.silu).init(KEY, jnp.zeros(16))["params"]
    kernel = params["Dense_1"]["kernel"]
    np.testing.assert_allclose(kernel.T @ kernel, 2.0 * np.eye(8), atol=1e-5)
    np.testing.assert_array_equal(params["Dense_1"]["bias"], np.zeros(8))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MLP((4, 0), nn.relu), "MLP needs positive whole numbers for hidden_sizes"),
        (lambda: MLP((4.0,), nn.relu), "MLP needs positive whole numbers for hidden_sizes"),
        (lambda: ResidualMLP(width=0, num_layers=1), "ResidualMLP needs positive whole numbers for width"),
        (lambda: ResidualMLP(width=4, num_layers=-1), "ResidualMLP needs positive whole numbers for num_layers"),
        (lambda: CubeTorso(width=2.5), "CubeTorso needs positive whole numbers for width, got 2.5"),
        (lambda: CubeTorso(num_layers=0), "CubeTorso needs positive whole numbers for num_layers"),
        (lambda: CubeTorso(embedding_size=0), "CubeTorso needs positive whole numbers for embedding_size"),
        (lambda: CubeTorso(num_colours=0), "CubeTorso needs positive whole numbers for num_colours"),
        (lambda: ResNet(channels=(4, -1)), "ResNet needs positive whole numbers for channels"),
        (lambda: ResNet(channels=()), "ResNet needs the channels of at least one group"),
        (lambda: ResNet(num_cell_kinds=0), "ResNet needs positive whole numbers for num_cell_kinds"),
        (lambda: ResNet(blocks_per_group=0), "ResNet needs positive whole numbers for blocks_per_group"),
        (lambda: ResNet(kernel_size=0), "ResNet needs positive whole numbers for kernel_size"),
    ],
)
def test_bad_sizes_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    "observation",
    [
        jnp.zeros((5, 3, 3), jnp.int32),
        jnp.zeros((6, 9), jnp.int32),
        jnp.zeros((6, 3, 3), jnp.float32),
        (jnp.zeros((6, 3, 3), jnp.int32), jnp.zeros((), jnp.int32)),
        (),
    ],
)
def test_cube_torso_refuses_other_observations(observation):
    with pytest.raises(ValueError, match="CubeTorso takes one integer array of shape 6xanyxany, got"):
        CubeTorso().init(KEY, observation)


def test_resnet_refuses_other_observations():
    with pytest.raises(ValueError, match=r"ResNet takes one integer array of shape anyxany, got float32\[10, 10\]"):
        ResNet().init(KEY, jnp.zeros((10, 10)))
