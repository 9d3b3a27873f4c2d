"""Tests of the network configuration: from sizes to an architecture."""

import jax
import jax.numpy as jnp
import pytest

from spo import environments
from spo.networks import make_network
from spo.networks.config import NetworkConfig, make_architecture
from spo.networks.torsos import MLP, ResNet
from spo.types import Environment


def make_environment(name: str) -> Environment:
    """Returns an environment by name. The number in "sokoban7" is the width of the board."""
    if name.startswith("sokoban"):
        size = int(name.removeprefix("sokoban"))
        options = {"size": size, "num_boxes": 1, "num_pulls": 4, "num_levels": 1, "num_evaluation_levels": 1}
        return environments.make("sokoban/generated", **options).train
    return environments.make(name).train


@pytest.mark.parametrize("size", [7, 10])
def test_channels_make_a_small_resnet_for_a_board_of_any_size(size: int):
    environment = make_environment(f"sokoban{size}")
    architecture = make_architecture(environment, NetworkConfig(channels=(4, 8), dtype="bfloat16"))
    assert isinstance(architecture.torso, ResNet)
    assert architecture.torso.channels == (4, 8)
    assert (architecture.head_sizes, architecture.share_torso) == ((128, 128), True)
    assert (architecture.dtype, architecture.torso.dtype) == (jnp.bfloat16, jnp.bfloat16)
    spec = environment.observation_spec
    network = make_network(spec, environment.action_spec, architecture)
    params = jax.eval_shape(lambda: network.init(jax.random.key(0), spec))
    assert (size**2 * 8, 128) in [leaf.shape for leaf in jax.tree.leaves(params.actor)]


def test_without_channels_a_board_of_the_papers_size_gets_the_papers_network():
    assert make_architecture(make_environment("sokoban10"), NetworkConfig()).torso.channels == (256, 256, 512, 512)
    assert isinstance(make_architecture(make_environment("sokoban7"), NetworkConfig()).torso, MLP)
    assert make_architecture(make_environment("sokoban7"), NetworkConfig(width=8, depth=2)).torso.hidden_sizes == (8, 8)


@pytest.mark.parametrize("name", ["width", "depth"])
def test_a_network_of_no_size_is_refused(name: str):
    with pytest.raises(ValueError, match=rf"network\.{name} must be 1 or more, got 0"):
        NetworkConfig(**{name: 0})


@pytest.mark.parametrize(
    ("channels", "rule"),
    [((8, 0), "1 or more"), ((-1,), "1 or more"), ((2.5,), "a whole number"), ((), "at least one number")],
    ids=str,
)
def test_a_group_without_channels_is_refused_before_a_network_is_made(channels: tuple, rule: str):
    with pytest.raises(ValueError, match=rf"network\.channels .*{rule}"):
        NetworkConfig(channels=channels)


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("rubiks_cube", NetworkConfig(channels=(8,)), "rubiks_cube shows neither: leave them out"),
        ("tiny/chain", NetworkConfig(channels=(8,)), "shows neither"),
        ("rubiks_cube", NetworkConfig(channels=(8,), width=8), "shows neither"),
        (
            "sokoban10",
            NetworkConfig(width=8),
            r"flat observations only, and .* leave them out .* set network\.channels",
        ),
        (
            "sokoban10",
            NetworkConfig(depth=2),
            r"flat observations only, and .* leave them out .* set network\.channels",
        ),
        (
            "sokoban7",
            NetworkConfig(channels=(8,), width=8),
            r"flat observations only, and .* leave them out .* set network\.channels",
        ),
        (
            "sokoban7",
            NetworkConfig(channels=(8,), depth=2),
            r"flat observations only, and .* leave them out .* set network\.channels",
        ),
    ],
)
def test_sizes_of_another_network_are_refused(name: str, config: NetworkConfig, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        make_architecture(make_environment(name), config)
