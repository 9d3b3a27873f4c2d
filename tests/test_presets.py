"""The presets against the paper's tables, row by row."""

import dataclasses
import json
import pathlib
from typing import Any

import jax
import pytest

pytest.importorskip("flax")

from spo import presets, search
from spo.algorithms.registry import ALGORITHMS
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment, from_json, to_json
from spo.training.trainer import Trainer

# --- The paper's tables, as printed: algorithm, column -> title of the table, row -> value. Dashes are left out. ------
SPO = "SPO Hyperparameters for Continuous and Discrete Environments"
TABLES: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("spo", "continuous"): (
        SPO,
        {
            "Actor & Critic Learning Rate": 3e-4,
            "Dual Learning Rate": 1e-3,
            "Discount Factor": 0.99,
            "GAE Lambda": 0.95,
            "Replay Buffer Size": 6.5e4,
            "Batch Size": 32,
            "Batch Sequence Length": 32,
            "Max Grad Norm": 0.5,
            "Number of Epochs": 128,
            "Number of Envs": 1024,
            "Rollout Length": 32,
            "τ (Target Smoothing)": 5e-3,
            "Number of Particles": 16,
            "Search Horizon": 4,
            "Resample Period": 4,
            "Initial η": 10,
            "Initial α_μ": 10,
            "Initial α_Σ": 500,
            "ε_η": 0.2,
            "ε_α_μ": 5e-2,
            "ε_α_Σ": 5e-4,
        },
    ),
    ("spo", "discrete"): (
        SPO,
        {
            "Actor & Critic Learning Rate": 3e-4,
            "Dual Learning Rate": 3e-4,
            "Discount Factor": 0.99,
            "GAE Lambda": 0.95,
            "Replay Buffer Size": 6.5e4,
            "Batch Size": 64,
            "Batch Sequence Length": 17,
            "Max Grad Norm": 0.5,
            "Number of Epochs": 16,
            "Number of Envs": 768,
            "Rollout Length": 21,
            "τ (Target Smoothing)": 5e-3,
            "Number of Particles": 16,
            "Search Horizon": 4,
            "Resample Period": 4,
            "Initial η": 0.5,
            "Initial α": 0.5,
            "ε_η": 0.5,
            "ε_α": 1e-3,
            "Dirichlet Alpha": 0.03,
            "Root Exploration Weight": 0.25,
        },
    ),
    ("ppo", "continuous"): (
        "Continuous Control: Hyperparameters for PPO and Sampled AlphaZero",
        {
            "Actor Learning Rate": 0.00069,
            "Critic Learning Rate": 0.00054,
            "Rollout Length": 16,
            "Number of Epochs": 4,
            "Number of Minibatches": 16,
            "Discount Factor": 0.99,
            "GAE Lambda": 0.95,
            "Clip Epsilon": 0.1,
            "Entropy Coefficient": 0.005,
            "Value Function Coefficient": 0.5,
            "Max Grad Norm": 0.5,
            "Decay Learning Rates": True,
            "Standardize Advantages": True,
        },
    ),
    ("ppo", "discrete"): (
        "Discrete Control: Hyperparameters for AlphaZero and PPO",
        {
            "Learning Rate": 3e-4,
            "Rollout Length": 85,
            "Number of Epochs": 4,
            "Discount Factor": 0.99,
            "GAE Lambda": 0.95,
            "Max Grad Norm": 0.5,
            "Number of Minibatches": 64,
            "Clip Epsilon": 0.1,
            "Entropy Coefficient": 1e-2,
            "Standardize Advantages": True,
        },
    ),
    ("sampled_alphazero", "continuous"): (
        "Continuous Control: Hyperparameters for PPO and Sampled AlphaZero",
        {
            "Actor Learning Rate": 3e-4,
            "Critic Learning Rate": 3e-4,
            "Rollout Length": 32,
            "Number of Epochs": 64,
            "Buffer Size": 65536,
            "Batch Size": 32,
            "Sample Sequence Length": 32,
            "Discount Factor": 0.99,
            "GAE Lambda": 0.95,
            "Entropy Coefficient": 0.005,
            "Max Grad Norm": 0.5,
            "Number of Simulations": 64,
            "Dirichlet Alpha": 0.03,
            "Dirichlet Exploration Fraction": 0.25,
            "Number of Samples": 20,
            "Gaussian Noise Exploration Fraction": 0.001,
        },
    ),
    ("alphazero", "discrete"): (
        "Discrete Control: Hyperparameters for AlphaZero and PPO",
        {
            "Learning Rate": 3e-4,
            "Rollout Length": 21,
            "Number of Epochs": 16,
            "Buffer Size": 65536,
            "Batch Size": 64,
            "Sample Sequence Length": 17,
            "Discount Factor": 0.99,
            "GAE Lambda": 0.95,
            "Max Grad Norm": 0.5,
            "Number of Simulations": 64,
        },
    ),
    ("mpo", "continuous"): (
        "Continuous Control: Hyperparameters for MPO and VMPO",
        {
            "Rollout Length": 8,
            "Number of Epochs": 72,
            "Buffer Size": 200000,
            "Batch Size": 256,
            "Sample Sequence Length": 16,
            "Period": 1,
            "Actor Learning Rate": 1e-4,
            "Dual Learning Rate": 1e-3,
            "τ (Target Smoothing)": 0.005,
            "Discount Factor": 0.99,
            "Max Grad Norm": 0.5,
            "Decay Learning Rates": True,
            "Number of Samples": 128,
            "ε_η": 0.05,
            "ε_α_μ": 0.05,
            "ε_α_Σ": 0.0005,
            "Initial η": 10.0,
            "Initial α_μ": 10.0,
            "Initial α_Σ": 500,
            "GAE Lambda": 0.95,
        },
    ),
    ("mpo", "discrete"): (
        "Discrete Control: Hyperparameters for MPO and VMPO",
        {
            "Actor Learning Rate": 2e-4,
            "Decay Learning Rates": True,
            "Dual Learning Rate": 0.02,
            "Number of Epochs": 72,
            "ε_η": 0.07,
            "ε_α": 0.00015,
            "GAE Lambda": 0.95,
            "Discount Factor": 0.95,
            "Initial η": 3.0,
            "Initial α": 3.0,
            "Max Grad Norm": 0.5,
            "Number of Samples": 128,
            "Q Learning Rate": 0.001,
            "Rollout Length": 16,
            "Sample Sequence Length": 17,
            "τ (Target Smoothing)": 0.005,
            "Batch Size": 256,
            "Buffer Size": 500000,
        },
    ),
    ("vmpo", "continuous"): (
        "Continuous Control: Hyperparameters for MPO and VMPO",
        {
            "Rollout Length": 32,
            "Number of Epochs": 16,
            "Actor Learning Rate": 3e-4,
            "Critic Learning Rate": 3e-4,
            "Dual Learning Rate": 1e-2,
            "τ (Target Smoothing)": 0.005,
            "Discount Factor": 0.99,
            "Max Grad Norm": 0.5,
            "ε_η": 0.05,
            "ε_α_μ": 0.05,
            "ε_α_Σ": 0.0005,
            "Initial η": 10.0,
            "Initial α_μ": 10.0,
            "Initial α_Σ": 500,
            "GAE Lambda": 0.95,
            "Actor Target Period": 25,
        },
    ),
    ("vmpo", "discrete"): (
        "Discrete Control: Hyperparameters for MPO and VMPO",
        {
            "Actor Learning Rate": 3e-4,
            "Dual Learning Rate": 0.01,
            "Number of Epochs": 4,
            "ε_η": 0.5,
            "ε_α": 0.001,
            "GAE Lambda": 0.95,
            "Discount Factor": 0.99,
            "Initial η": 3.0,
            "Initial α": 3.0,
            "Max Grad Norm": 0.5,
            "Rollout Length": 86,
            "Actor Target Period": 64,
        },
    ),
    ("smc_ent", "continuous"): (
        "Continuous Control: Hyperparameters for SMC-Ent",
        {
            "Rollout Length": 16,
            "Number of Epochs": 512,
            "Buffer Size": 500000,
            "Batch Size": 512,
            "Actor Learning Rate": 3e-4,
            "Q Learning Rate": 3e-4,
            "τ (Target Smoothing)": 0.005,
            "Discount Factor": 0.99,
            "Reward Scale": 10.0,
            "Number of Particles": 16,
            "Max Depth": 4,
            "Resample Temperature": 1.0,
            "Number of Samples for Value Function": 64,
        },
    ),
    ("smc_ent", "discrete"): (
        "Discrete Control: Hyperparameters for SMC-Ent",
        {
            "Rollout Length": 32,
            "Number of Epochs": 64,
            "Buffer Size": 1000000,
            "Batch Size": 2048,
            "Q Learning Rate": 3e-4,
            "τ (Target Smoothing)": 0.005,
            "Discount Factor": 0.97,
            "Max Grad Norm": 0.5,
            "Huber Loss Parameter": 1.0,
            "Entropy Temperature": 0.03,
            "Munchausen Coefficient": 0.9,
            "Clip Value Min": -1e3,
            "Number of Particles": 16,
            "Search Horizon": 4,
            "Resampling Period": 4,
            "Resample Temperature": 0.1,
            "Reward Scaling": {"paper/rubiks_cube": 10.0, "paper/boxoban": 1.0},
        },
    ),
}

# --- Row -> field. OTHERWISE has the rows that mean something else for one algorithm. ---------------------------------
ROWS = {
    "Actor & Critic Learning Rate": "learning_rate",
    "Actor Learning Rate": "actor_learning_rate",
    "Critic Learning Rate": "critic_learning_rate",
    "Q Learning Rate": "critic_learning_rate",
    "Dual Learning Rate": "dual_learning_rate",
    "Decay Learning Rates": "decay_learning_rates",
    "Discount Factor": "gamma",
    "GAE Lambda": "gae_lambda",
    "Replay Buffer Size": "replay_size",
    "Buffer Size": "replay_size",
    "Batch Size": "batch_size",
    "Batch Sequence Length": "sequence_length",
    "Sample Sequence Length": "sequence_length",
    "Max Grad Norm": "max_grad_norm",
    "Number of Epochs": "num_updates",
    "Number of Minibatches": "num_minibatches",
    "Number of Envs": "num_envs",
    "Rollout Length": "rollout_length",
    "τ (Target Smoothing)": "target_smoothing",
    "Actor Target Period": "target_period",
    "Number of Particles": "search.num_particles",
    "Search Horizon": "search.horizon",
    "Max Depth": "search.horizon",
    "Resample Period": "search.resample_period",
    "Resampling Period": "search.resample_period",
    "Resample Temperature": "search.temperature",
    "Initial η": "initial_temperature",
    "Initial α": "initial_multiplier",
    "Initial α_μ": "initial_mean_multiplier",
    "Initial α_Σ": "initial_scale_multiplier",
    "ε_η": "temperature_kl_bound",
    "ε_α": "kl_bound",
    "ε_α_μ": "mean_kl_bound",
    "ε_α_Σ": "scale_kl_bound",
    "Dirichlet Alpha": "dirichlet_alpha",
    "Root Exploration Weight": "root_exploration_weight",
    "Dirichlet Exploration Fraction": "root_exploration_weight",
    "Gaussian Noise Exploration Fraction": "root_action_noise",
    "Number of Simulations": "num_simulations",
    "Number of Samples": "num_samples",
    "Number of Samples for Value Function": "num_value_samples",
    "Clip Epsilon": "clip_epsilon",
    "Entropy Coefficient": "entropy_coefficient",
    "Value Function Coefficient": "value_coefficient",
    "Standardize Advantages": "standardise_advantages",
    "Huber Loss Parameter": "huber_delta",
    "Entropy Temperature": "entropy_temperature",
    "Munchausen Coefficient": "munchausen_coefficient",
    "Clip Value Min": "munchausen_clip",
    "Reward Scale": "reward_scale",
    "Reward Scaling": "reward_scale",
}
OTHERWISE: dict[str, dict[str, tuple[str, ...]]] = {
    # Passes over the rollout, not gradient steps, where there is no replay.
    "ppo": {"Number of Epochs": ("num_epochs",), "Learning Rate": ("actor_learning_rate", "critic_learning_rate")},
    "vmpo": {"Number of Epochs": ("num_epochs",), "τ (Target Smoothing)": ()},
    "mpo": {"GAE Lambda": ("gae_lambda", "retrace_lambda"), "Period": ()},
    "alphazero": {"Learning Rate": ("learning_rate",)},
    "sampled_alphazero": {"Actor Learning Rate": ("learning_rate",), "Critic Learning Rate": ("learning_rate",)},
}
# Rows without a field, and the reason.
NO_FIELD = {
    ("vmpo", "τ (Target Smoothing)"): "the target policy is copied at the period of the last row",
    ("mpo", "Period"): "sequences may begin at every step of the replay: period 1 of flashbax",
}

# --- Fields that the tables do not give: our value, by kind of actions or for both (docs/departures.md). --------------
ENVS = {"discrete": 768, "continuous": 1024}
LEFT_OPEN: dict[str, dict[str, Any]] = {
    "spo": {
        "old_policy": "target",
        "decay_learning_rates": False,
        "correct_root_exploration": False,
        "fixed_temperature": False,
        "min_temperature": 0.0,
        "trust_region": True,
        "search.resample_last": True,
        "search.num_outcomes": 1,
        "search.readout": "last",
        "search.num_root_candidates": None,
        "search.ess_threshold": None,
        "search.resampling": "multinomial",
        "search.weighting": "advantage",
        "search.gamma": 1.0,
        "search.unroll": {"discrete": 4, "continuous": 1, "paper/ant": 4},  # fused physics compiles quickly
    },
    "ppo": {
        "num_envs": ENVS,
        "value_coefficient": {"discrete": 0.5},
        "decay_learning_rates": {"discrete": True},
        "value_clip": None,
        "normalise_observations": False,
        "reward_scale": 1.0,
    },
    "vmpo": {
        "num_envs": ENVS,
        "critic_learning_rate": {"discrete": 3e-4},
        "decay_learning_rates": False,
        "num_minibatches": 1,
    },
    "mpo": {"num_envs": ENVS, "critic_learning_rate": {"continuous": 1e-4}, "q_targets": "gae"},
    "alphazero": {
        "num_envs": ENVS,
        "dirichlet_alpha": 0.3,
        "root_exploration_weight": 0.25,
        "entropy_coefficient": 0.0,
        "tree_library": "spo",
    },
    "sampled_alphazero": {"num_envs": ENVS, "tree_library": "spo"},
    "smc_ent": {
        "num_envs": ENVS,
        "max_grad_norm": {"continuous": 0.5},
        "entropy_temperature": {"continuous": 1.0},
        "target_entropy_per_dimension": {"continuous": -1.0},
        "dual_learning_rate": {"continuous": 3e-4},
        "search.resample_period": {"continuous": 4},
        "search.resample_last": True,
        "search.unroll": {"discrete": 4, "continuous": 1},
    },
}
# Fields that only the other kind of actions uses.
OTHER_KIND = {
    "discrete": {
        "initial_mean_multiplier",
        "mean_kl_bound",
        "initial_scale_multiplier",
        "scale_kl_bound",
        # SMC-ENT: of its soft actor-critic
        "actor_learning_rate",
        "dual_learning_rate",
        "num_value_samples",
        "target_entropy_per_dimension",
    },
    "continuous": {
        "initial_multiplier",
        "kl_bound",
        "dirichlet_alpha",
        "root_exploration_weight",
        # SMC-ENT: of its Munchausen DQN
        "munchausen_coefficient",
        "munchausen_clip",
        "huber_delta",
    },
}
KIND = {
    "paper/ant": "continuous",
    "paper/halfcheetah": "continuous",
    "paper/humanoid": "continuous",
    "paper/boxoban": "discrete",
    "paper/rubiks_cube": "discrete",
}
TASKS = {
    "paper/ant": "brax/ant",
    "paper/halfcheetah": "brax/halfcheetah",
    "paper/humanoid": "brax/humanoid",
    "paper/boxoban": "boxoban/unfiltered",
    "paper/rubiks_cube": "rubiks_cube",
}
PAIRS = [(preset, algorithm) for preset in KIND for algorithm in ALGORITHMS if (algorithm, KIND[preset]) in TABLES]


def flat(config: Any) -> dict[str, Any]:
    values = dataclasses.asdict(config)
    search = values.pop("search", {})
    return values | {f"search.{name}": value for name, value in search.items()}


def fields_of(algorithm: str, row: str) -> tuple[str, ...]:
    return OTHERWISE.get(algorithm, {}).get(row) or (() if (algorithm, row) in NO_FIELD else (ROWS[row],))


def test_every_preset_and_algorithm_has_a_table():
    assert {name for name in presets.PRESETS if name.startswith("paper/")} == set(KIND)
    # The paper has no Gumbel AlphaZero.
    assert {algorithm for algorithm, _ in TABLES} == set(ALGORITHMS) - {"gumbel_alphazero"}


@pytest.mark.parametrize(("preset", "algorithm"), PAIRS)
def test_paper_presets_have_the_values_of_the_tables(preset: str, algorithm: str):
    experiment = presets.get(preset, algorithm)
    assert (experiment.task, experiment.algorithm) == (TASKS[preset], algorithm)
    config = flat(experiment.config)
    table, rows = TABLES[algorithm, KIND[preset]]
    for row, printed in rows.items():
        expected = printed[preset] if isinstance(printed, dict) else printed
        for field in fields_of(algorithm, row):
            if row == "Replay Buffer Size":
                assert config[field] == 65_536, "6.5e4 is 2^16 in two digits"
            else:
                assert config[field] == expected, f"{table}: {row}"


@pytest.mark.parametrize(("preset", "algorithm"), PAIRS)
def test_every_field_is_in_the_table_or_listed_as_open(preset: str, algorithm: str):
    kind = KIND[preset]
    config = flat(presets.get(preset, algorithm).config)
    in_table = {field for row in TABLES[algorithm, kind][1] for field in fields_of(algorithm, row)}
    open_fields = {
        field: value.get(preset, value[kind]) if isinstance(value, dict) else value
        for field, value in LEFT_OPEN[algorithm].items()
        if not isinstance(value, dict) or kind in value
    }
    unexplained = set(config) - in_table - set(open_fields) - OTHER_KIND[kind]
    assert not unexplained, "neither in the paper's table nor in LEFT_OPEN"
    assert not in_table & set(open_fields)
    for field, value in open_fields.items():
        assert config[field] == value, field


@pytest.mark.parametrize(("preset", "algorithm"), PAIRS)
def test_paper_presets_follow_its_protocol(preset: str, algorithm: str):
    """Appendix "Statistical Precipice": 20 evaluations of 128 episodes, then 1 280 with the best parameters."""
    experiment = presets.get(preset, algorithm)
    evaluation = experiment.evaluation
    assert (evaluation.num_evaluations, evaluation.episodes, evaluation.final_episodes) == (20, 128, 1280)
    assert (evaluation.use_search, evaluation.greedy) == (True, False)
    assert experiment.steps == 1e8
    depth = 3 if algorithm == "smc_ent" and KIND[preset] == "continuous" else None  # the paper's footnote
    assert experiment.network == NetworkConfig(width=None, depth=depth, channels=None, dtype="float32")
    assert experiment.task_options == {}


@pytest.mark.parametrize(
    ("preset", "algorithm"), [(p, a) for p in presets.PRESETS for a in ALGORITHMS if presets.has(p, a)]
)
def test_presets_survive_json(preset: str, algorithm: str):
    experiment = presets.get(preset, algorithm)
    assert from_json(to_json(experiment)) == experiment


def test_the_default_is_small_and_evaluates_on_four_scrambles():
    default = presets.get("default")
    assert default.task == "rubiks_cube"
    assert default.task_options == {"min_scrambles": 1, "max_scrambles": 4, "eval_scrambles": 4}
    assert not default.config.trust_region


def test_the_tuned_preset_has_the_settings_of_its_recorded_run_and_is_for_spo_alone():
    folder = pathlib.Path(__file__).parents[1] / "results" / "runs" / "h200" / "spo_rubiks_cube_tuned"
    recorded = json.loads((folder / "config.json").read_text("utf-8"))
    settings = {name: value for name, value in recorded.items() if name not in ("spo_version", "start_from")}
    # The run is of a version without kinds of networks: all were the paper's.
    tuned = presets.get("tuned/rubiks_cube")
    paper_network = dataclasses.replace(tuned.network, kind="paper")
    assert from_json(settings) == dataclasses.replace(tuned, network=paper_network)
    with pytest.raises(ValueError, match="spo alone: use paper/rubiks_cube for ppo"):
        presets.get("tuned/rubiks_cube", "ppo")


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(ValueError, match=r"no preset 'paper/rubik_cube'\. Did you mean 'paper/rubiks_cube'"):
        presets.get("paper/rubik_cube")
    with pytest.raises(ValueError, match=r"no algorithm 'pppo'\. Did you mean 'ppo'"):
        presets.get("default", "pppo")


def test_another_task_drops_the_options_and_the_sizes_of_the_preset():
    tuned = presets.get("tuned/rubiks_cube")
    other = presets.get("tuned/rubiks_cube", task="tiny/chain")
    assert (other.task, other.task_options, other.network) == ("tiny/chain", {}, NetworkConfig(dtype="bfloat16"))
    assert (other.config, other.steps, other.evaluation) == (tuned.config, tuned.steps, tuned.evaluation)
    assert presets.get("tuned/rubiks_cube", task="rubiks_cube") == tuned


@pytest.mark.parametrize("algorithm", ["spo", "smc_ent"])
def test_the_papers_presets_resample_as_the_paper_does(algorithm: str, monkeypatch: pytest.MonkeyPatch):
    """They do so whatever the library's default is. SMC-ENT has no setting for it."""
    schemes, last = [], []
    real_search, real_by_weight = search.search, search.resampling.by_weight

    def by_weight(scheme: Any) -> Any:
        schemes.append(scheme)
        return real_by_weight(scheme)

    def recorded_search(*arguments: Any, **settings: Any) -> Any:
        last.append(settings["resampling"].last)
        return real_search(*arguments, **settings)

    monkeypatch.setattr(search.resampling, "by_weight", by_weight)
    monkeypatch.setattr(search, "search", recorded_search)
    config = dataclasses.replace(presets.get("paper/rubiks_cube", algorithm).config, num_envs=4)
    experiment = Experiment("tiny/masked", algorithm=algorithm, config=config, network=NetworkConfig(width=8))
    trainer = Trainer(experiment)
    jax.eval_shape(lambda key: trainer.run_fn(trainer.init_fn(key), 1), jax.random.key(0))
    assert (set(schemes), set(last)) == ({search.resampling.multinomial}, {True})
