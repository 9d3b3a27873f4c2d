"""Experiments with a name: `spo train paper/rubiks_cube`, `get("paper/rubiks_cube")`.

Those under paper/ are the paper's (table "SPO Hyperparameters"); what the paper leaves open is listed in
`docs/departures.md`.
"""

import dataclasses

from spo.algorithms.spo import SPOConfig
from spo.environments._adapters import nearest
from spo.training.experiment import EvaluationConfig, Experiment, NetworkConfig

_PAPER_STEPS = 1e8

#: The table's column "Discrete Environments", which is what SPOConfig's defaults are; "Continuous Environments" below.
_DISCRETE = SPOConfig()
_CONTINUOUS = dataclasses.replace(
    _DISCRETE,
    dual_learning_rate=1e-3,
    batch_size=32,
    sequence_length=32,
    num_updates=128,
    num_envs=1024,
    rollout_length=32,
    initial_temperature=10.0,
    temperature_kl_bound=0.2,
)

PRESETS: dict[str, Experiment] = {
    # Small enough for a laptop's processor: cubes up to four moves from the goal, judged on those four away.
    "default": Experiment(
        task="rubiks_cube",
        task_options={"min_scrambles": 1, "max_scrambles": 4, "eval_scrambles": 4},
        steps=3e5,
        network=NetworkConfig(width=256),
        config=SPOConfig(
            num_envs=128,
            rollout_length=16,
            sequence_length=16,
            learning_rate=1e-3,
            dual_learning_rate=5e-3,
            gamma=0.9,
            trust_region=False,
            root_exploration_weight=0.0,
        ),
        evaluation=EvaluationConfig(num_evaluations=8),
    ),
    "paper/ant": Experiment(task="brax/ant", steps=_PAPER_STEPS, config=_CONTINUOUS),
    "paper/halfcheetah": Experiment(task="brax/halfcheetah", steps=_PAPER_STEPS, config=_CONTINUOUS),
    "paper/humanoid": Experiment(task="brax/humanoid", steps=_PAPER_STEPS, config=_CONTINUOUS),
    "paper/boxoban": Experiment(task="boxoban/unfiltered", steps=_PAPER_STEPS, config=_DISCRETE),
    "paper/rubiks_cube": Experiment(task="rubiks_cube", steps=_PAPER_STEPS, config=_DISCRETE),
}


def get(name: str) -> Experiment:
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}. {nearest(name, PRESETS)}")
    return PRESETS[name]


__all__ = ["PRESETS", "get"]
