"""Tests of the checks of the algorithms' hyperparameters."""

import dataclasses

import pytest

from spo import presets
from spo.algorithms.planning import SearchConfig
from spo.algorithms.registry import ALGORITHMS, default_config, search_kind


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
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
        ("spo", {"old_policy": "Target"}, "old_policy must be one of target, rollout, got 'Target'"),
        ("vmpo", {"critic_learning_rate": -1e-3}, "critic_learning_rate must be 0 or more"),
        ("alphazero", {"num_simulations": 0}, "num_simulations must be 1 or more"),
        ("alphazero", {"num_simulations": 2**21}, "num_simulations must be at most 1048576, got 2097152"),
        ("spo", {"sequence_length": 2.5}, "sequence_length must be a whole number, got 2.5"),
        ("spo", {"search": {}}, "search must be of type SearchConfig, got {}"),
        ("ppo", {"value_clip": float("nan")}, "value_clip must be a finite number, got nan"),
        ("smc_ent", {"huber_delta": float("inf")}, "huber_delta must be a finite number, got inf"),
        ("spo", {"min_temperature": -0.1}, "min_temperature must be 0 or more"),
        ("spo", {"min_temperature": 1e-9}, "min_temperature must be 0 or above 1e-08, got 1e-09"),
        ("spo", {"min_temperature": 1.0}, r"initial_temperature \(0.5\) must not be below min_temperature \(1\)"),
    ],
)
def test_values_out_of_range_are_refused(algorithm: str, settings: dict, message: str):
    chosen = presets.get("default", algorithm)
    with pytest.raises(ValueError, match=message):
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
    ("settings", "message"),
    [
        ({"resampling": "multinominal"}, "search.resampling must be one of multinomial"),
        ({"horizon": 0}, "search.horizon must be 1 or more, got 0"),
        ({"ess_threshold": 0.0}, "search.ess_threshold must be above 0 and at most 1, got 0.0"),
        ({"ess_threshold": 2}, "search.ess_threshold must be above 0 and at most 1, got 2"),
        ({"ess_threshold": 0.5, "resample_period": None}, "search.ess_threshold needs a search.resample_period"),
        ({"num_particles": 2**31 - 1}, "search.num_particles must be at most 1048576, got 2147483647"),
        ({"horizon": 10**6}, "search.horizon must be at most 100000, got 1000000"),
        ({"readout": "all_depths", "resample_last": True}, "search.resample_last must be False"),
    ],
)
def test_search_settings_are_refused_under_the_name_of_their_option(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        SearchConfig(**settings)


def test_the_kind_of_search_follows_from_the_names_of_settings():
    kinds = {name: search_kind(default_config(name)) for name in ALGORITHMS}
    trees = dict.fromkeys(("alphazero", "gumbel_alphazero", "sampled_alphazero"), "tree")
    none = dict.fromkeys(("mpo", "ppo", "vmpo"))
    assert kinds == trees | none | {"spo": "particles", "smc_ent": "particles"}
