"""Tests of experiments: their checks, and their conversion to JSON and back."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spo import presets
from spo.algorithms.ppo import PPOConfig
from spo.networks.config import NetworkConfig
from spo.training.experiment import EvaluationConfig, Experiment, from_json, to_json
from training.tiny_run import tiny_experiment


@pytest.mark.parametrize("steps", [0, -1, float("inf"), float("nan"), 1e18])
def test_the_number_of_steps_is_finite_and_positive(steps: float):
    with pytest.raises(ValueError, match=f"steps must be a number between 1 and 1e15, got {re.escape(str(steps))}"):
        tiny_experiment(steps=steps)


@pytest.mark.parametrize("name", ["num_seeds", "num_devices", "logs_per_evaluation"])
def test_counts_below_1_are_refused(name: str):
    with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
        tiny_experiment(**{name: 0})


@pytest.mark.parametrize("name", ["num_evaluations", "episodes", "final_episodes"])
def test_counts_of_evaluations_below_1_are_refused(name: str):
    with pytest.raises(ValueError, match=rf"evaluation\.{name} must be 1 or more, got -1"):
        EvaluationConfig(**{name: -1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "sarsa"}, "no algorithm 'sarsa'"),
        ({"algorithm": "ppo"}, "config must be PPOConfig for the algorithm ppo, got SPOConfig"),
        ({"config": {}}, "config must be SPOConfig for the algorithm spo, got dict"),
        ({"algorithm": 3}, "algorithm must be text, got 3"),
        ({"seed": 2**32}, "seed must lie between 0 and 4294967295"),
        ({"evaluation": None}, "evaluation must be of type EvaluationConfig"),
        ({"config": PPOConfig()}, "config must be SPOConfig for the algorithm spo, got PPOConfig"),
    ],
)
def test_the_configuration_is_that_of_the_algorithm(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Experiment(**settings)


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_an_experiment_survives_its_file():
    assert from_json(json.loads(json.dumps(to_json(tiny_experiment())))) == tiny_experiment()


def test_channels_survive_a_file():
    """They come back as a tuple, although JSON has none, so the experiment is equal and hashable."""
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


def test_settings_that_a_file_cannot_hold_are_refused_by_name():
    def options(value: Any) -> Any:
        return to_json(tiny_experiment(task_options={"mine": value}))["task_options"]["mine"]

    assert options(Path("levels")) == "levels"
    assert options((np.float32(0.5), [True, None])) == (0.5, [True, None])
    for value in (np.zeros(2), print, [{1, 2}]):
        with pytest.raises(ValueError, match=r"task_options.mine is of type .*, which can't be stored with a run: use"):
            options(value)


def test_an_unknown_setting_is_refused_by_name():
    data = to_json(presets.get("default"))
    for place in (data, data["config"], data["network"]):
        place["of_tomorrow"] = 1
        with pytest.raises(ValueError, match="has no of_tomorrow: was it written by another version"):
            from_json(data)
        del place["of_tomorrow"]


def test_numbers_of_numpy_survive_a_file():
    experiment = tiny_experiment(seed=np.int64(3), steps=np.float32(100.0))
    assert from_json(json.loads(json.dumps(to_json(experiment)))) == tiny_experiment(seed=3, steps=100.0)
