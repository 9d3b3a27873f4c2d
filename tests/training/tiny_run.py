"""A run that is small enough for tests. `python tiny_run.py FOLDER [resume] [long]` trains it as a program."""

import sys
from pathlib import Path
from typing import Any

from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.training.experiment import EvaluationConfig, Experiment

ENV_STEPS_PER_ITERATION = 8 * 4


def tiny_experiment(**changes: Any) -> Experiment:
    """Returns twelve iterations in six intervals, with an evaluation after every second interval."""
    options: dict[str, Any] = {
        "task": "rubiks_cube",
        "task_options": {"eval_scrambles": 1, "min_scrambles": 1, "max_scrambles": 2, "time_limit": 4},
        "steps": 12 * ENV_STEPS_PER_ITERATION,
        "num_seeds": 2,
        "num_devices": 1,
        "logs_per_evaluation": 2,
        "config": SPOConfig(
            num_envs=8,
            rollout_length=4,
            num_updates=1,
            batch_size=4,
            sequence_length=2,
            replay_size=8 * 16,
            search=SearchConfig(num_particles=4, horizon=2, unroll=1),
        ),
        "network": NetworkConfig(width=16),
        "evaluation": EvaluationConfig(num_evaluations=3, episodes=16, final_episodes=32),
    }
    return Experiment(**options | changes)


def long_experiment() -> Experiment:
    """Returns two hundred intervals of the same program."""
    evaluation = EvaluationConfig(num_evaluations=100, episodes=16, final_episodes=32)
    return tiny_experiment(steps=400 * ENV_STEPS_PER_ITERATION, evaluation=evaluation)


if __name__ == "__main__":
    from spo.training.loop import train

    experiment = long_experiment() if "long" in sys.argv else tiny_experiment()
    train(experiment, Path(sys.argv[1]), resume="resume" in sys.argv, checkpoint_seconds=0.0)
