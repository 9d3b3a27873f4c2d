"""Tasks and settings of the training runs at each scale."""

import dataclasses
from typing import Any

from _runs import with_settings

from spo import presets
from spo.networks.config import NetworkConfig
from spo.training.experiment import EvaluationConfig

NUM_SEEDS = {"smoke": 2, "cpu": 5, "paper": 5}
"""Seeds of each setting, in one program. Five can refute a claim against up to twelve rivals, four up to three."""

_SMOKE_SIZES = {
    "num_envs": 8,
    "rollout_length": 8,
    "sequence_length": 8,
    "batch_size": 8,
    "num_updates": 4,
    "replay_size": 512,
    "num_minibatches": 2,
    "num_epochs": 2,
    "num_simulations": 8,
    "search": {"num_particles": 4, "horizon": 2, "resample_period": 2, "unroll": 1},
}


def cube(scale: str, algorithm: str = "spo") -> Any:
    """Returns a run on Rubik's cube: the paper's, one that two cores learn in a minute, or a tiny one."""
    if scale == "paper":
        return dataclasses.replace(presets.get("paper/rubiks_cube", algorithm), num_seeds=NUM_SEEDS[scale])
    small = small_cube(algorithm)
    if scale == "smoke":
        return _smoke(small, task_options={"size": 2, "min_scrambles": 1, "max_scrambles": 2, "eval_scrambles": 2})
    return dataclasses.replace(
        small,
        task_options={"min_scrambles": 1, "max_scrambles": 3, "eval_scrambles": 3},
        network=NetworkConfig(width=128),
        steps=8e4,
        num_seeds=NUM_SEEDS[scale],
        evaluation=EvaluationConfig(num_evaluations=5, final_episodes=256),
        logs_per_evaluation=8,
    )


def small_cube(algorithm: str = "spo") -> Any:
    """Returns the preset default. SPO has the paper's inference, which the claims are about."""
    small = presets.get("default", algorithm)
    return with_settings(small, search=presets.PAPER_INFERENCE) if algorithm == "spo" else small


def boxoban(algorithm: str) -> Any:
    """Returns the paper's run on Boxoban, with the levels of `spo download boxoban`. There is no small scale of it."""
    return dataclasses.replace(presets.get("paper/boxoban", algorithm), num_seeds=NUM_SEEDS["paper"])


def continuous(scale: str, task: str, algorithm: str = "spo") -> Any:
    """Returns a run on continuous control: one of the paper's, a pendulum for two cores, or episodes of one step."""
    if scale == "paper":
        return dataclasses.replace(presets.get(task, algorithm), num_seeds=NUM_SEEDS[scale])
    settings = presets.get("paper/ant", algorithm)
    if scale == "smoke":
        return _smoke(settings, task="tiny/continuous_credit", task_options={})
    sizes = {
        name: value
        for name, value in {
            "num_envs": 32,
            "rollout_length": 16,
            "sequence_length": 16,
            "num_updates": 16,
            "num_epochs": 4,
            "num_minibatches": 8,
            "batch_size": 32,
            "replay_size": 32_768,
            "num_value_samples": 8,
            "num_samples": 16,
            "num_simulations": 16,
        }.items()
        if hasattr(settings.config, name)
    }
    return dataclasses.replace(
        with_settings(settings, **sizes),
        task=task,
        network=NetworkConfig(width=64, depth=2),
        steps=6e4,
        num_seeds=NUM_SEEDS[scale],
        evaluation=EvaluationConfig(num_evaluations=5, episodes=32, final_episodes=128),
        logs_per_evaluation=1,
    )


def _smoke(experiment: Any, **changes: Any) -> Any:
    """Returns the experiment with tiny sizes."""
    sizes = {name: value for name, value in _SMOKE_SIZES.items() if hasattr(experiment.config, name)}
    return dataclasses.replace(
        with_settings(experiment, **sizes),
        network=NetworkConfig(width=16, depth=1),
        steps=256,
        num_seeds=NUM_SEEDS["smoke"],
        evaluation=EvaluationConfig(num_evaluations=2, episodes=8, final_episodes=8),
        logs_per_evaluation=1,
        **changes,
    )
