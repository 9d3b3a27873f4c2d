"""Tasks and settings of the training runs at each scale."""

import dataclasses
from typing import Any, NamedTuple

from _runs import with_settings

from spo import presets
from spo.environments.boxoban import data_folder
from spo.networks.config import NetworkConfig
from spo.training.experiment import EvaluationConfig

NUM_SEEDS = {"smoke": 2, "cpu": 5, "core": 5, "paper": 5}
"""Seeds of each setting, in one program. Five can refute a claim against up to twelve rivals, four up to three."""


class Core(NamedTuple):
    """Length of a run of the core scale."""

    num_seeds: int
    steps: float


#: (task, algorithm) -> length at the core scale. Tree searches, MPO and SMC-ENT get fewer steps where more would take
#: hours: on Brax as many as SPO's seconds, on an H200. On Boxoban training stops after 9 minutes of all seeds.
CORE = {
    ("rubiks_cube", "mpo"): Core(5, 1e7),
    ("rubiks_cube", "alphazero"): Core(3, 3e7),
    ("rubiks_cube", "gumbel_alphazero"): Core(3, 3e7),
    **{("rubiks_cube", name): Core(5, 1e8) for name in ("spo", "ppo", "vmpo", "smc_ent")},
    **{
        (f"brax/{task}", name): length
        for task in ("ant", "halfcheetah", "humanoid")
        for names, length in (
            (("spo", "ppo", "vmpo"), Core(5, 3e7)),
            (("mpo",), Core(3, 2.5e6)),
            (("smc_ent",), Core(3, 1.6e6)),
            (("sampled_alphazero",), Core(3, 5e5)),
        )
        for name in names
    },
    **{("boxoban/unfiltered", name): Core(3, 1e7) for name in ("spo", "gumbel_alphazero")},
    **{("boxoban/unfiltered", name): Core(3, 3e7) for name in ("ppo", "vmpo")},
}
CORE_BOXOBAN = ("spo", "ppo", "vmpo", "gumbel_alphazero")
"""Algorithms that the core scale trains on Boxoban."""
TUNED_LEARNER = ("num_updates", "batch_size", "replay_size", "learning_rate", "gamma")
"""Settings of the tuned cube that Gumbel AlphaZero has as well."""
CORE_EVALUATIONS = 14
CORE_ABLATION_STEPS = {"brax/ant": 5e6, "rubiks_cube": 2e7}
CORE_BOXOBAN_NETWORK = NetworkConfig(channels=(64, 64), dtype="bfloat16")
"""One network for all algorithms: with the paper's, 1e8 steps of SPO take 15 hours on an H200."""

ALIKE = {
    "root_exploration_weight": 0.25,
    "dirichlet_alpha": 0.3,
    "trust_region": True,
    "kl_bound": 0.05,
    "initial_multiplier": 0.1,
}
"""Noise of SPO and AlphaZero, trust region of SPO, MPO and V-MPO, where small runs of them are compared."""

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
    if scale == "core":
        return _core(presets.get("paper/rubiks_cube", algorithm))
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


def alike(experiment: Any) -> Any:
    """Returns a small run with the same noise at the root and the same trust region as all algorithms that have one."""
    return with_settings(
        experiment, **{name: value for name, value in ALIKE.items() if hasattr(experiment.config, name)}
    )


def boxoban(scale: str, algorithm: str) -> Any:
    """Returns a run on Boxoban, with the levels of `spo download boxoban`.

    The smoke scale has the network of the core scale, and generated levels where the public ones are not there.
    """
    experiment = presets.get("paper/boxoban", algorithm)
    if scale == "core":
        core = dataclasses.replace(experiment, network=CORE_BOXOBAN_NETWORK, task_options={"allow_partial": True})
        return _core(core)
    if scale == "smoke":
        there = (data_folder() / "boxoban" / "hard").exists()
        task = "boxoban/unfiltered" if there else "sokoban/generated"
        options = {"allow_partial": True} if there else {"num_levels": 20, "num_evaluation_levels": 20}
        small = _smoke(experiment, task=task, task_options=options | {"time_limit": 10})
        return dataclasses.replace(small, network=CORE_BOXOBAN_NETWORK)
    return dataclasses.replace(experiment, num_seeds=NUM_SEEDS["paper"])


def continuous(scale: str, task: str, algorithm: str = "spo") -> Any:
    """Returns a run on continuous control: one of the paper's, a pendulum for two cores, or episodes of one step."""
    if scale == "core":
        return _core(presets.get(task, algorithm))
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


def tuned_cube(scale: str, algorithm: str = "spo") -> Any:
    """Returns the tuned run on the cube with fresh seeds, or Gumbel AlphaZero with the same settings of its learner."""
    tuned = presets.get("tuned/rubiks_cube")
    if algorithm != "spo":
        shared = {name: getattr(tuned.config, name) for name in TUNED_LEARNER}
        config = dataclasses.replace(presets.get("paper/rubiks_cube", algorithm).config, **shared)
        tuned = dataclasses.replace(tuned, algorithm=algorithm, config=config)
    if scale == "smoke":
        return _smoke(tuned, task_options=tuned.task_options, seed=1)
    return dataclasses.replace(
        tuned,
        seed=1,
        num_seeds=5 if algorithm == "spo" else 2,
        logs_per_evaluation=1,
        evaluation=dataclasses.replace(tuned.evaluation, num_evaluations=CORE_EVALUATIONS, final_episodes=1280),
    )


def is_tuned(experiment: Any) -> bool:
    """Returns True for the runs of `tuned_cube`."""
    return experiment.task_options == presets.get("tuned/rubiks_cube").task_options


def ablated(scale: str) -> Any:
    """Returns the run whose settings an ablation of SPO changes: Ant at the core and paper scales, else the cube."""
    if scale == "core":
        return _core_ablation(presets.get("paper/ant"))
    return continuous("paper", "paper/ant") if scale == "paper" else cube(scale)


def ablated_cube() -> Any:
    """Returns the run on the cube whose search budget the core scale changes."""
    return _core_ablation(presets.get("paper/rubiks_cube"))


def _core(experiment: Any) -> Any:
    """Returns the run at the core scale: fewer seeds or steps where the paper's would take hours."""
    length = CORE[experiment.task, experiment.algorithm]
    return _short_records(experiment, steps=length.steps, num_seeds=length.num_seeds)


def _core_ablation(experiment: Any) -> Any:
    return _short_records(experiment, steps=CORE_ABLATION_STEPS[experiment.task], num_seeds=NUM_SEEDS["core"])


def _short_records(experiment: Any, **changes: Any) -> Any:
    """Returns the experiment with few training records per seed: metrics files of five seeds stay below 100 kB."""
    evaluation = EvaluationConfig(num_evaluations=CORE_EVALUATIONS, episodes=128, final_episodes=1280)
    return dataclasses.replace(experiment, logs_per_evaluation=1, evaluation=evaluation, **changes)


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
