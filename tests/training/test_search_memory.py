"""Memory that a search needs, and the sentences at the start of a run."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from spo import presets
from spo.environments import make
from spo.training import loop, search_memory
from spo.training.search_memory import check_search_memory, describe_search, device_memory, states_per_search
from spo.types import Task


def large(megabytes: int, hidden: str = "") -> Task:
    """tiny/chain with an unused array of some megabytes in its state."""
    chain = make("tiny/chain").train

    def reset(key):
        state, timestep = chain.reset(key)
        return (state, jnp.zeros((megabytes, 1_000_000), jnp.uint8)), timestep

    def step(key, state, action):
        inner, timestep = chain.step(key, state[0], action)
        return (inner, state[1]), timestep

    return Task(*[chain._replace(name="large", reset=reset, step=step, hidden=hidden)] * 3)


def experiment(algorithm: str = "spo", **changes):
    chosen = presets.get("default", algorithm, "tiny/chain")
    config = dataclasses.replace(chosen.config, num_envs=8)
    evaluation = dataclasses.replace(chosen.evaluation, episodes=4, final_episodes=16, use_search=True)
    return dataclasses.replace(chosen, config=config, evaluation=evaluation, **changes)


@pytest.fixture
def small_device(monkeypatch):
    """A device of 10 GB."""
    monkeypatch.setattr(search_memory, "device_memory", lambda: 10_000_000_000)


def test_counts_the_states_of_each_kind_of_search():
    spo = experiment().config
    particles = spo.search.num_particles
    assert states_per_search(spo) == 2 * particles
    sampled = dataclasses.replace(spo, search=dataclasses.replace(spo.search, num_outcomes=16))
    assert states_per_search(sampled) == 17 * particles
    alphazero = experiment("alphazero").config
    assert states_per_search(alphazero) == alphazero.num_simulations + 1
    assert states_per_search(experiment("ppo").config) == 0


def test_a_search_that_exceeds_the_memory_is_refused_with_numbers(small_device):
    """8 environments, or 16 episodes, of 2 N states of 100 MB each."""
    settings = experiment(num_seeds=2)
    states = states_per_search(settings.config)
    with pytest.raises(
        ValueError,
        match=rf"^large: a state has 100\.0 MB, and a search holds {states} of them\. 8 searches at once for 2 seeds "
        rf"take {8 * 2 * states / 10:.1f} GB, and the device has 10\.0 GB: lower --num-envs, --search\.num-particles",
    ):
        check_search_memory(settings, large(100), 1)
    check_search_memory(settings, large(1), 1)
    check_search_memory(dataclasses.replace(experiment("ppo"), num_seeds=2), large(100), 1)


def test_an_evaluation_that_exceeds_the_memory_is_refused(small_device):
    settings = experiment()
    states = states_per_search(settings.config)
    size = 10_000 // (12 * states)  # 8 searches fit, 16 do not
    with pytest.raises(ValueError, match=r"16 searches at once take .*lower --evaluation\.final-episodes"):
        check_search_memory(settings, large(size), 1)
    check_search_memory(settings, large(size), 2)  # half of the searches on each device


def test_a_run_is_refused_before_its_folder_exists(small_device, tmp_path):
    with pytest.raises(ValueError, match=r"the device has 10\.0 GB"):
        loop.train(experiment(), tmp_path / "run", task=large(1000))
    assert not (tmp_path / "run").exists()


def test_a_run_says_what_the_search_sees_and_needs(small_device):
    hidden, memory = describe_search(experiment(), large(1, hidden="the mines"), 1)
    assert hidden.startswith("large hides the mines from the observation: the search plans with the true state")
    assert memory.startswith("A state has 1.0 MB, and a search holds")
    assert memory.endswith("in evaluation of 10.0 GB.")
    assert describe_search(experiment(), make("tiny/chain"), 1) == []
    assert describe_search(experiment("ppo"), large(1, hidden="the mines"), 1) == []


def test_the_memory_of_this_machine_is_known():
    memory = device_memory()
    assert memory is None or 1e8 < memory < 1e14
    assert jax.local_device_count() >= 1
