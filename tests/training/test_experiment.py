"""From an experiment's plain data to a network."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from spo import environments, presets
from spo.algorithms.spo import SearchConfig
from spo.networks import make_network
from spo.networks.config import NetworkConfig, make_architecture
from spo.networks.torsos import MLP, ResNet
from spo.training.experiment import build, from_json, to_json
from spo.types import Environment


def world(name: str) -> Environment:
    """A world of the kind; Sokoban's boards are as wide as the number says."""
    if name.startswith("sokoban"):
        size = int(name.removeprefix("sokoban"))
        options = {"size": size, "num_boxes": 1, "num_pulls": 4, "num_levels": 1, "num_evaluation_levels": 1}
        return environments.make("sokoban/generated", **options).train
    return environments.make(name).train


@pytest.mark.parametrize("size", [7, 10])
def test_channels_make_a_small_resnet_for_a_board_of_any_size(size: int):
    environment = world(f"sokoban{size}")
    architecture = make_architecture(environment, NetworkConfig(channels=(4, 8), dtype="bfloat16"))
    assert isinstance(architecture.torso, ResNet)
    assert architecture.torso.channels == (4, 8)
    assert (architecture.head_sizes, architecture.share_torso) == ((128, 128), True)
    assert (architecture.dtype, architecture.torso.dtype) == (jnp.bfloat16, jnp.bfloat16)
    spec = environment.observation_spec
    network = make_network(spec, environment.action_spec, architecture)
    params = jax.eval_shape(lambda: network.init(jax.random.key(0), spec))
    assert (size**2 * 8, 128) in [leaf.shape for leaf in jax.tree.leaves(params.actor)]


@pytest.mark.parametrize(
    ("algorithm", "settings", "said"),
    [
        ("spo", {"num_envs": 0}, "num_envs must be 1 or more, got 0"),
        ("spo", {"num_updates": 0}, "num_updates must be 1 or more"),
        ("ppo", {"rollout_length": -1}, "rollout_length must be 1 or more"),
        ("mpo", {"gamma": 1.5}, "gamma must lie between 0 and 1, got 1.5"),
        ("spo", {"root_exploration_weight": -0.5}, "root_exploration_weight must lie between 0 and 1"),
        ("spo", {"dirichlet_alpha": 0.0}, "dirichlet_alpha must be above 0"),
        ("spo", {"max_grad_norm": -1.0}, "max_grad_norm must be above 0, got -1.0"),
        ("spo", {"temperature_kl_bound": 0.0}, "temperature_kl_bound must be above 0"),
        ("vmpo", {"kl_bound": float("nan")}, "kl_bound must be above 0, got nan"),
        ("ppo", {"clip_epsilon": -0.1}, "clip_epsilon must be above 0"),
        ("ppo", {"reward_scale": 0.0}, "reward_scale must be above 0"),
        ("smc_ent", {"reward_scale": -10}, "reward_scale must be above 0"),
        ("smc_ent", {"entropy_temperature": -0.03}, "entropy_temperature must be above 0"),
        ("mpo", {"retrace_lambda": 1.2}, "retrace_lambda must lie between 0 and 1"),
        ("spo", {"old_policy": "Target"}, "old_policy must be one of target, rollout, got Target"),
        ("vmpo", {"critic_learning_rate": -1e-3}, "critic_learning_rate must be 0 or more"),
        ("alphazero", {"num_simulations": 0}, "num_simulations must be 1 or more"),
    ],
)
def test_settings_that_nothing_can_be_done_with_are_refused(algorithm: str, settings: dict, said: str):
    chosen = presets.get("default", algorithm)
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(chosen.config, **settings)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("ppo", {"entropy_coefficient": 0}),
        ("spo", {"root_exploration_weight": 0}),
        ("spo", {"learning_rate": 0}),
        ("spo", {"max_grad_norm": float("inf")}),
        ("smc_ent", {"munchausen_clip": -1}),
        ("smc_ent", {"target_entropy_per_dimension": -2}),
    ],
)
def test_a_whole_number_is_a_number_too(algorithm: str, settings: dict):
    dataclasses.replace(presets.get("default", algorithm).config, **settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"resampling": "multinominal"}, "search.resampling must be one of multinomial"),
        ({"horizon": 0}, "search.horizon must be 1 or more, got 0"),
    ],
)
def test_search_settings_are_refused_under_the_name_of_their_option(settings: dict, said: str):
    with pytest.raises(ValueError, match=said):
        SearchConfig(**settings)


@pytest.mark.parametrize("name", ["width", "depth"])
def test_a_network_of_no_size_is_refused(name: str):
    with pytest.raises(ValueError, match=rf"network\.{name} must be 1 or more, got 0"):
        NetworkConfig(**{name: 0})


@pytest.mark.parametrize("steps", [float("inf"), float("nan")])
def test_a_run_has_an_end(steps: float):
    with pytest.raises(ValueError, match="steps must be a number"):
        build(dataclasses.replace(presets.get("default"), steps=steps))


def test_what_another_version_wrote_is_refused_by_name():
    data = to_json(presets.get("default"))
    for place in (data, data["config"], data["network"]):
        place["of_tomorrow"] = 1
        with pytest.raises(ValueError, match="has no of_tomorrow: was it written by another version"):
            from_json(data)
        del place["of_tomorrow"]


def test_without_channels_boards_have_what_they_had():
    assert make_architecture(world("sokoban10"), NetworkConfig()).torso.channels == (256, 256, 512, 512)
    assert isinstance(make_architecture(world("sokoban7"), NetworkConfig()).torso, MLP)
    assert make_architecture(world("sokoban7"), NetworkConfig(width=8, depth=2)).torso.hidden_sizes == (8, 8)


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("rubiks_cube", NetworkConfig(channels=(8,)), "rubiks_cube shows no such grid: leave them out"),
        ("tiny/chain", NetworkConfig(channels=(8,)), "shows no such grid"),
        ("rubiks_cube", NetworkConfig(channels=(8,), width=8), "shows no such grid"),
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
        ("sokoban7", NetworkConfig(channels=()), "ResNet needs the channels of at least one group"),
        ("sokoban7", NetworkConfig(channels=(8, 0)), "ResNet needs positive whole numbers for channels"),
    ],
)
def test_sizes_of_another_network_are_refused(name: str, config: NetworkConfig, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        make_architecture(world(name), config)


def test_channels_survive_a_file():
    """As what they were, so that an experiment from a file is the one that was written."""
    experiment = dataclasses.replace(
        presets.get("paper/boxoban"), network=NetworkConfig(channels=(32, 64)), task_options={"a": [1]}
    )
    read = from_json(json.loads(json.dumps(to_json(experiment))))
    assert read == experiment
    assert hash(read.network) == hash(experiment.network)
    assert read.task_options == {"a": [1]}


def test_a_file_from_before_there_were_channels_is_read():
    data = to_json(presets.get("paper/boxoban"))
    del data["network"]["channels"]
    assert from_json(data) == presets.get("paper/boxoban")
