"""Tests of the settings that are chosen for a task: sizes, steps, evaluations and network. Nothing is trained."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from spo.algorithms.registry import ALGORITHMS
from spo.environments import make
from spo.training.defaults import choose_experiment, describe_choice, fit_sizes, make_facts
from spo.training.experiment import ScalingConfig, from_json, to_json
from spo.training.schedule import make_schedule

BOARD = jax.ShapeDtypeStruct((4, 4), jnp.int32)
IMAGE = jax.ShapeDtypeStruct((10, 10, 4), jnp.bool_)
NUMBERS = jax.ShapeDtypeStruct((8,), jnp.float32)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("task", ["tiny/chain", "tiny/lqr"])
@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_a_run_has_the_steps_asked_for_and_ten_evaluations(algorithm: str, task: str, on_gpu: bool):
    for steps in (2_000, 10_000, 12_345, 54_321, 99_991, 1_000_000):
        chosen = choose_experiment(task, algorithm, steps, on_gpu=on_gpu)
        per_iteration = chosen.config.num_envs * chosen.config.rollout_length
        schedule = make_schedule(chosen, per_iteration)
        assert 0 <= schedule.num_iterations * per_iteration - steps < per_iteration, steps
        assert schedule.num_evaluations >= 10, steps
        assert schedule.num_iterations >= 20, steps


def test_sizes_stay_near_those_of_the_table():
    for steps in range(30_000, 3_000_000, 70_001):
        sizes = fit_sizes(16, 32, steps)
        assert sizes.num_envs == 16
        assert 24 <= sizes.rollout_length <= 40 or steps < 50 * 16 * 32


@pytest.mark.parametrize("steps", [..., "many", 0, float("nan"), True], ids=str)
def test_wrong_steps_get_a_sentence(steps):
    with pytest.raises(ValueError, match="steps must be a number"):
        choose_experiment("tiny/chain", steps=steps)


def test_steps_are_chosen_if_none_are_asked_for():
    assert choose_experiment("tiny/chain", "ppo").steps > choose_experiment("tiny/chain", "spo").steps
    assert choose_experiment("tiny/chain", "spo", on_gpu=True).steps > choose_experiment("tiny/chain", "spo").steps


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (NUMBERS, "mlp"),
        (BOARD, "resnet"),
        (IMAGE, "cnn"),
        ({"grid": IMAGE, "step_count": jax.ShapeDtypeStruct((), jnp.int32)}, "cnn"),
        (jax.ShapeDtypeStruct((20, 2), jnp.float32), "mlp"),
        (jax.ShapeDtypeStruct((3, 4), jnp.float32), "mlp"),
    ],
    ids=["numbers", "board", "image", "image and number", "coordinates", "table"],
)
def test_the_network_follows_from_the_observation(spec, kind: str):
    environment = make("tiny/chain").train._replace(observation_spec=spec)
    assert choose_experiment("tiny/chain", environment=environment).network.kind == kind


def test_actions_and_time_limit_are_facts():
    facts = make_facts(make("tiny/lqr").train, time_limit=7)
    assert not facts.is_discrete
    assert facts.time_limit == 7


def test_long_episodes_get_fewer_evaluation_episodes():
    short, long = (choose_experiment(name, "ppo", 1e6).evaluation for name in ("tiny/lqr", "jumanji/snake"))
    assert short.episodes > long.episodes >= 8


def test_searches_of_spo_try_different_first_actions():
    """Discrete actions only: samples of a Gaussian are different anyway."""
    search = choose_experiment("tiny/chain", "spo").config.search
    assert search.num_root_candidates == search.num_particles
    assert choose_experiment("tiny/lqr", "spo").config.search.num_root_candidates is None


def test_an_own_algorithm_keeps_its_defaults_and_is_not_scaled():
    chosen = choose_experiment("tiny/chain", "training.own_algorithms:make_reinforce", 1e4)
    assert chosen.scaling == ScalingConfig()


def test_a_choice_survives_a_file_and_is_described_by_its_values():
    chosen = choose_experiment("tiny/chain", "spo", 1e4)
    assert from_json(to_json(chosen)) == chosen
    changed = dataclasses.replace(chosen, config=dataclasses.replace(chosen.config, gamma=0.5))
    line = describe_choice(changed)
    for words in ("gamma 0.5", "network.kind mlp", "scaling.rewards True", "steps 10000"):
        assert words in line


@pytest.mark.parametrize("width", [60, 120])
def test_a_choice_is_described_in_lines_that_fit_the_terminal(width: int):
    lines = describe_choice(choose_experiment("tiny/chain", "spo", 1e4), width).splitlines()
    assert max(map(len, lines)) <= width
    begins = [line.split()[0] for line in lines[1:] if not line.startswith("    ")]
    assert [name.partition(".")[0] for name in begins] == [
        *("steps", "network", "scaling", "evaluation", "num_envs", "search")
    ]
