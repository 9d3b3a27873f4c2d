"""Sampled AlphaZero: AlphaZero as a special case, the sampled actions, and environments with known answers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.probes import GAMMA, Probe, check
from spo import distributions, environments
from spo.algorithms.planning import environment_model, evaluate_root
from spo.algorithms.sampled_alphazero import (
    SampledAlphaZeroConfig,
    sample_candidates,
    sample_frequencies,
    widen,
)
from spo.algorithms.tree_search import Candidates, TreeRoot, puct_search
from spo.networks import make_network, mlp_architecture
from spo.types import Array


@pytest.mark.parametrize("task_name", ["tree", pytest.param("masked", marks=pytest.mark.slow)])
def test_with_every_action_sampled_once_it_is_alphazero(task_name: str):
    """The visits are the same for the same key, although the actions are in another order."""
    task = environments.make(f"tiny/{task_name}")
    env, num_actions = task.model, task.model.action_spec.num_actions
    network = make_network(env.observation_spec, env.action_spec, mlp_architecture(depth=1, width=8))
    params = network.init(jax.random.key(0), env.observation_spec)
    # The initial policy is nearly uniform. A sharper one makes the priors differ.
    params = params._replace(actor=jax.tree.map(lambda x: 10.0 * x, params.actor))

    def last_to_first(_key: Array, logits: Array) -> Candidates:
        return Candidates(jnp.arange(num_actions)[::-1], logits[::-1])

    @jax.jit
    def search(key: Array) -> Any:
        env_state, timestep = jax.vmap(env.reset)(jax.random.split(key, 16))
        root = jax.vmap(functools.partial(evaluate_root, network, params))(env_state, timestep)
        run = functools.partial(
            puct_search,
            key,
            model_fn=environment_model(env, network, params),
            num_simulations=40,
            gamma=GAMMA,
            greedy=True,
        )
        all_actions = Candidates(None, root.prior)
        drawn = jax.vmap(last_to_first)(jax.random.split(key, 16), root.prior)
        return (
            run(TreeRoot(all_actions, root.value, root.state)),
            run(TreeRoot(drawn, root.value, root.state), candidates_fn=last_to_first),
        )

    alphazero, sampled = search(jax.random.key(1))
    np.testing.assert_array_equal(sampled.visits[:, ::-1], alphazero.visits)
    np.testing.assert_array_equal(sampled.weights[:, ::-1], alphazero.weights)
    np.testing.assert_array_equal(sampled.action, alphazero.action)
    np.testing.assert_allclose(sampled.value, alphazero.value, rtol=1e-6)
    assert len(np.unique(alphazero.visits)) > 2, "the search was meant to try several actions"


def test_sample_frequencies():
    np.testing.assert_allclose(sample_frequencies(jnp.array([2, 0, 2, 1, 2, 0])), [3 / 6, 2 / 6, 0, 1 / 6, 0, 0])


def test_samples_of_discrete_actions_have_the_policy_as_their_mean_prior():
    """β̂ of samples from π is unbiased. False alarm: 1 in 4000 (four standard deviations, four actions)."""
    logits = jnp.log(jnp.array([0.5, 0.3, 0.2, 0.0]))
    samples = jax.vmap(functools.partial(sample_candidates, distributions.categorical, 6), in_axes=(0, None))(
        jax.random.split(jax.random.key(0), 5000), logits
    )
    prior = np.exp(samples.log_prior)
    np.testing.assert_allclose(prior.sum(axis=1), 1.0, rtol=1e-6)
    mean = np.array([np.mean(np.sum(np.where(samples.actions == action, prior, 0.0), axis=1)) for action in range(4)])
    probabilities = np.exp(logits)
    assert np.all(np.abs(mean - probabilities) <= 4 * np.sqrt(probabilities * (1 - probabilities) / (6 * 5000)))
    for actions, row in zip(np.asarray(samples.actions)[:50], prior[:50], strict=True):
        assert len(set(actions[row > 0])) == np.sum(row > 0) == len(set(actions)), "each action must occur once"


def test_samples_of_continuous_actions_have_equal_priors():
    policy = distributions.Gaussian(jnp.array([0.2, -1.0]), jnp.array([0.1, 2.0]))
    samples = sample_candidates(distributions.tanh_gaussian(), 4000, jax.random.key(0), policy)
    np.testing.assert_allclose(np.exp(samples.log_prior), 1 / 4000, rtol=1e-5)
    # Samples are not squashed. False alarm: 1 in 4000 (four standard deviations, two means and two deviations).
    assert np.all(np.abs(np.mean(samples.actions, axis=0) - policy.mean) < 4 * policy.scale / np.sqrt(4000))
    assert np.all(np.abs(np.std(samples.actions, axis=0) / policy.scale - 1) < 4 / np.sqrt(8000))


def test_noise_on_actions_widens_a_gaussian_and_does_not_change_logits():
    policy = distributions.Gaussian(jnp.array([0.2]), jnp.array([3.0]))
    noisy = widen(policy, 4.0)
    np.testing.assert_allclose(noisy.scale, 5.0)
    np.testing.assert_array_equal(noisy.mean, policy.mean)
    logits = jnp.array([1.0, 2.0])
    assert widen(logits, 4.0) is logits


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_samples": 0}, "num_samples must be 1 or more"),
        ({"root_action_noise": -0.1}, "root_action_noise must be 0 or more"),
        ({"num_simulations": 0}, "num_simulations must be 1 or more"),
        ({"root_exploration_weight": -0.1}, "root_exploration_weight must lie between 0 and 1"),
    ],
)
def test_bad_arguments(config: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        SampledAlphaZeroConfig(**config)


# --- Environments with known answers ----------------------------------------------------------------------------------
CONFIG = SampledAlphaZeroConfig(
    num_envs=32,
    rollout_length=8,
    sequence_length=8,
    num_updates=16,
    batch_size=32,
    replay_size=32 * 32,
    learning_rate=3e-3,
    gamma=GAMMA,
    num_simulations=16,
    num_samples=8,
)
PROBES = {
    "continuous_bandit": Probe(),
    "bandit": Probe(),
    "credit": Probe(),
    "masked": Probe(),
    "tree": Probe(value_error=0.15),  # values are those of acting with exploration noise
    "continuous_context": Probe(100),
    "continuous_credit": Probe(150),
    "lqr": Probe(200, value_error=0.8, action_error=0.2),  # actions reach 0.6, values -5.8
}


@pytest.mark.learns
@pytest.mark.parametrize("name", PROBES)
def test_learns(name: str):
    check("sampled_alphazero", CONFIG, name, PROBES[name])
