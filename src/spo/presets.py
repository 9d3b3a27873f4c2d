"""Named experiments: `spo train paper/rubiks_cube --algorithm ppo`, `get("paper/rubiks_cube", "ppo")`.

`default` is a small Rubik's Cube that a laptop trains in minutes. The presets under paper/ have the hyperparameters of
the paper's tables; `docs/departures.md` lists the values that the tables do not give. The presets under tuned/ are SPO
with settings that learn faster; `docs/performance.md` has their results.
"""

import contextlib
import dataclasses
from typing import Any

from spo.algorithms.alphazero import AlphaZeroConfig, GumbelAlphaZeroConfig
from spo.algorithms.mpo import MPOConfig
from spo.algorithms.planning import SearchConfig
from spo.algorithms.ppo import PPOConfig
from spo.algorithms.registry import ALGORITHMS, default_config
from spo.algorithms.sampled_alphazero import SampledAlphaZeroConfig
from spo.algorithms.smc_ent import SMCEntConfig, SoftSearchConfig
from spo.algorithms.spo import SPOConfig
from spo.algorithms.vmpo import VMPOConfig
from spo.checks import suggest_names
from spo.environments.registry import maker_of
from spo.known_environments import LIBRARIES, stored_facts
from spo.networks.config import NetworkConfig
from spo.training.experiment import EvaluationConfig, Experiment

_PAPER_STEPS = 1e8

#: Resampling, read-out and first actions of the paper's search. The defaults of `SearchConfig` differ: they are closer
#: to an oracle at the same cost (claim 10).
PAPER_INFERENCE: dict[str, Any] = {
    "resample_last": True,
    "resampling": "multinomial",
    "readout": "last",
    "num_root_candidates": None,
}

#: Tables "SPO Hyperparameters", column "Discrete Environments", and "Discrete Control". They are the defaults of the
#: configurations, except for PAPER_INFERENCE. The paper has no discrete runs of Sampled AlphaZero: the sizes here are
#: those of AlphaZero.
_DISCRETE: dict[str, Any] = {
    "spo": SPOConfig(search=SearchConfig(**PAPER_INFERENCE)),
    "ppo": PPOConfig(),
    "mpo": MPOConfig(),
    "vmpo": VMPOConfig(),
    "alphazero": AlphaZeroConfig(),
    "gumbel_alphazero": GumbelAlphaZeroConfig(),
    "sampled_alphazero": SampledAlphaZeroConfig(
        num_envs=768, rollout_length=21, num_updates=16, batch_size=64, sequence_length=17
    ),
    "smc_ent": SMCEntConfig(),
}
#: Tables "SPO Hyperparameters", column "Continuous Environments", and "Continuous Control".
_CONTINUOUS: dict[str, Any] = {
    "spo": SPOConfig(
        dual_learning_rate=1e-3,
        batch_size=32,
        sequence_length=32,
        num_updates=128,
        num_envs=1024,
        rollout_length=32,
        initial_temperature=10.0,
        temperature_kl_bound=0.2,
        # Brax's own physics takes long to compile and does not run faster when it is unrolled.
        search=SearchConfig(**PAPER_INFERENCE, unroll=1),
    ),
    "ppo": PPOConfig(
        num_envs=1024,
        rollout_length=16,
        num_minibatches=16,
        actor_learning_rate=6.9e-4,
        critic_learning_rate=5.4e-4,
        entropy_coefficient=5e-3,
    ),
    "mpo": MPOConfig(
        num_envs=1024,
        rollout_length=8,
        sequence_length=16,
        replay_size=200_000,
        actor_learning_rate=1e-4,
        critic_learning_rate=1e-4,
        dual_learning_rate=1e-3,
        gamma=0.99,
        initial_temperature=10.0,
        temperature_kl_bound=0.05,
    ),
    "vmpo": VMPOConfig(
        num_envs=1024,
        rollout_length=32,
        num_epochs=16,
        target_period=25,
        initial_temperature=10.0,
        temperature_kl_bound=0.05,
    ),
    "sampled_alphazero": SampledAlphaZeroConfig(),
    "smc_ent": SMCEntConfig(
        entropy_temperature=1.0,
        num_envs=1024,
        rollout_length=16,
        num_updates=512,
        batch_size=512,
        replay_size=500_000,
        gamma=0.99,
        search=SoftSearchConfig(temperature=1.0, unroll=1),
    ),
}

#: name -> task, configurations for its kind of actions, and changes for this task alone, by algorithm
_PAPER: dict[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]] = {
    "paper/ant": ("brax/ant", _CONTINUOUS, {"spo": {"search": SearchConfig(**PAPER_INFERENCE)}}),
    "paper/halfcheetah": ("brax/halfcheetah", _CONTINUOUS, {}),
    "paper/humanoid": ("brax/humanoid", _CONTINUOUS, {}),
    "paper/boxoban": ("boxoban/unfiltered", _DISCRETE, {"smc_ent": {"reward_scale": 1.0}}),
    "paper/rubiks_cube": ("rubiks_cube", _DISCRETE, {}),
}

_SMALL_TREE_SEARCH: dict[str, Any] = {
    "num_envs": 128,
    "rollout_length": 16,
    "sequence_length": 16,
    "num_updates": 16,
    "batch_size": 64,
    "learning_rate": 1e-3,
    "gamma": 0.9,
    "num_simulations": 32,
}
#: For cubes with at most four scrambles: small enough for the CPU of a laptop.
_SMALL: dict[str, Any] = {
    "spo": SPOConfig(
        num_envs=128,
        rollout_length=16,
        sequence_length=16,
        learning_rate=1e-3,
        dual_learning_rate=5e-3,
        gamma=0.9,
        trust_region=False,
        root_exploration_weight=0.0,
        search=SearchConfig(readout="all_depths", num_root_candidates=8),  # the best of claim 10 on small cubes
    ),
    "ppo": PPOConfig(
        num_envs=128,
        rollout_length=16,
        num_minibatches=8,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        gamma=0.9,
    ),
    "mpo": MPOConfig(
        num_envs=128,
        sequence_length=16,
        num_updates=16,
        batch_size=64,
        replay_size=65_536,
        actor_learning_rate=1e-3,
        dual_learning_rate=5e-3,
        decay_learning_rates=False,
        gamma=0.9,
        initial_temperature=0.5,
        kl_bound=1e-2,
        initial_multiplier=0.1,
    ),
    "vmpo": VMPOConfig(
        num_envs=128,
        rollout_length=16,
        num_minibatches=4,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        gamma=0.9,
        target_period=16,
        initial_temperature=1.0,
        kl_bound=0.05,
        initial_multiplier=0.1,
    ),
    "alphazero": AlphaZeroConfig(**_SMALL_TREE_SEARCH),
    "gumbel_alphazero": GumbelAlphaZeroConfig(**_SMALL_TREE_SEARCH),
    "sampled_alphazero": SampledAlphaZeroConfig(**_SMALL_TREE_SEARCH, num_samples=12, entropy_coefficient=0.0),
    "smc_ent": SMCEntConfig(
        num_envs=128,
        rollout_length=16,
        num_updates=16,
        batch_size=512,
        replay_size=131_072,
        critic_learning_rate=1e-3,
        gamma=0.9,
    ),
}

#: Differences from paper/rubiks_cube: four times the particles, on twelve distinct first actions instead of noisy
#: samples; four times the updates, on larger batches; a wider network; a learning rate of the temperature three times
#: as high; a lower discount factor, under which a detour costs return; training cubes with one more scramble.
_TUNED = {
    "tuned/rubiks_cube": Experiment(
        task="rubiks_cube",
        task_options={"min_scrambles": 4, "max_scrambles": 8},
        steps=2.4e7,
        network=NetworkConfig(width=1024, dtype="bfloat16"),
        config=SPOConfig(
            num_updates=64,
            batch_size=256,
            replay_size=262_144,
            decay_learning_rates=True,
            dual_learning_rate=1e-3,
            gamma=0.95,
            root_exploration_weight=0.0,
            search=SearchConfig(num_particles=64, num_root_candidates=12),
        ),
        evaluation=EvaluationConfig(episodes=512, final_episodes=4096),
    ),
}

DEFAULT = "default"
PRESETS = (DEFAULT, *_PAPER, *_TUNED)


def has(name: str, algorithm: str) -> bool:
    """Returns True if a preset has settings for an algorithm. Those under tuned/ have settings for SPO only."""
    return name not in _TUNED or algorithm == "spo"


def get(name: str, algorithm: str = "spo", task: str | None = None) -> Experiment:
    """Returns a named experiment.

    Args:
        name: One of `PRESETS`.
        algorithm: Algorithm to train. If the paper has no settings for it on this kind of task, the defaults of its
            configuration are used.
        task: Another environment than that of the preset, see `for_task`.
    """
    experiment = _get(name, algorithm)
    return experiment if task is None else for_task(experiment, task)


def for_task(experiment: Experiment, task: str) -> Experiment:
    """Returns the experiment with another environment.

    Environment options and network sizes are dropped then, since they belong to the experiment's own environment.
    """
    if task == experiment.task:
        return experiment
    network = NetworkConfig(dtype=experiment.network.dtype)
    return dataclasses.replace(experiment, task=task, task_options={}, network=network)


def _get(name: str, algorithm: str) -> Experiment:
    if name not in PRESETS:
        if _is_environment(name):
            raise ValueError(f"{name} is an environment and no preset: write `spo train --task {name}`.")
        raise ValueError(f"There is no preset {name!r}. {suggest_names(name, PRESETS)}")
    if ":" not in algorithm and algorithm not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {algorithm!r}. {suggest_names(algorithm, ALGORITHMS)}")
    if not has(name, algorithm):
        raise ValueError(f"{name} has settings for spo alone: use paper/{name.split('/')[1]} for {algorithm}.")
    if name in _TUNED:
        return _TUNED[name]
    if name == DEFAULT:
        return Experiment(
            task="rubiks_cube",
            task_options={"min_scrambles": 1, "max_scrambles": 4, "eval_scrambles": 4},
            algorithm=algorithm,
            steps=3e5,
            network=NetworkConfig(width=256),
            config=_SMALL.get(algorithm) or default_config(algorithm),
            evaluation=EvaluationConfig(num_evaluations=8),
        )
    task, by_algorithm, otherwise = _PAPER[name]
    config = by_algorithm.get(algorithm) or default_config(algorithm)
    # A footnote of the paper: on Brax, the network of SMC-ENT has three layers, all others have four.
    depth = 3 if algorithm == "smc_ent" and by_algorithm is _CONTINUOUS else None
    return Experiment(
        task=task,
        algorithm=algorithm,
        steps=_PAPER_STEPS,
        network=NetworkConfig(depth=depth),
        config=dataclasses.replace(config, **otherwise.get(algorithm, {})),
    )


def _is_environment(name: str) -> bool:
    """Returns True for the name of an environment, as `--task` takes it. No library of environments is imported."""
    if ":" in name or name in stored_facts():
        return True
    with contextlib.suppress(ValueError):
        return name.partition("/")[0] not in LIBRARIES and maker_of(name) is not None
    return False


__all__ = ["DEFAULT", "PAPER_INFERENCE", "PRESETS", "for_task", "get", "has"]
