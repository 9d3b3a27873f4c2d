"""Agents that are small enough for tests. They are not trained."""

import functools
from typing import Any

import jax

from spo.algorithms.planning import SearchConfig
from spo.algorithms.registry import ALGORITHMS
from spo.inspection.subject import Subject
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer

REPLAY = {"num_envs": 2, "rollout_length": 2, "batch_size": 2, "sequence_length": 2, "replay_size": 8}


def make_experiment(algorithm: str = "spo", task: str = "rubiks_cube", **config: Any) -> Experiment:
    config_type, _ = ALGORITHMS[algorithm]
    sizes: dict[str, Any] = {name: REPLAY[name] for name in REPLAY if name in config_type.__dataclass_fields__}
    if algorithm in ("ppo", "vmpo"):
        sizes["num_minibatches"] = 1
    if algorithm == "spo":
        sizes["search"] = SearchConfig(num_particles=8, horizon=4, resample_period=1)
    cube = {"time_limit": 3, "min_scrambles": 1, "max_scrambles": 2, "eval_scrambles": 2}
    return Experiment(
        task=task,
        task_options=cube if task == "rubiks_cube" else {},
        algorithm=algorithm,
        config=config_type(**sizes | config),
        network=NetworkConfig(channels=(4,)) if "sokoban" in task else NetworkConfig(width=8, depth=1),
        num_devices=1,
    )


@functools.cache
def make_subject(algorithm: str = "spo", task: str = "rubiks_cube", **config: Any) -> Subject:
    experiment = make_experiment(algorithm, task, **config)
    learner = Trainer(experiment).init(jax.random.key(0)).learner
    return Subject(experiment, jax.tree.map(lambda leaf: leaf[0], learner))
