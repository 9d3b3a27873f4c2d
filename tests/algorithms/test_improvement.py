"""Proposition 1 of the paper, with exact steps on tables; and the KL divergence of the search, which ε_η sets."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from spo import distributions, environments, losses
from spo.algorithms.base import DEVICE_AXIS, Setting
from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig, make_spo
from spo.networks import cube_architecture
from spo.types import Array

GAMMA, ALPHA = 0.9, 0.2


# --- Expectation and maximisation, exactly ----------------------------------------------------------------------------
class MDP(NamedTuple):
    """A random MDP without ends.

    Its objective has a uniform initial state and the discount factor GAMMA, for rewards and KL divergences, as if an
    episode continued with that probability.
    """

    transitions: np.ndarray  # [S, A, S]
    rewards: np.ndarray  # [S, A]


def random_mdp(seed: int, num_states: int = 6, num_actions: int = 3) -> MDP:
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(num_states, 0.3), (num_states, num_actions))
    return MDP(transitions, rng.normal(size=(num_states, num_actions)))


def kl(q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns KL(q ‖ π) in each state."""
    return np.sum(scipy.special.rel_entr(q, policy), axis=1)


def values(mdp: MDP, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns V^q with a cost of α KL(q ‖ π) per step. For q = π it is the value of π."""
    per_step = np.sum(q * mdp.rewards, axis=1) - ALPHA * kl(q, policy)
    return np.linalg.solve(np.eye(len(q)) - GAMMA * np.einsum("sa,sat->st", q, mdp.transitions), per_step)


def elbo(mdp: MDP, q: np.ndarray, policy: np.ndarray) -> float:
    """Returns J(q, π) of the paper. Its term log p(θ) is a trust region around the last θ, and never lowers J."""
    return float(values(mdp, q, policy).mean())


def visits(mdp: MDP, q: np.ndarray) -> np.ndarray:
    """Returns the discounted frequency of each state under q."""
    moves = np.einsum("sa,sat->st", q, mdp.transitions)
    occupancy = np.linalg.solve(np.eye(len(q)) - GAMMA * moves.T, np.full(len(q), 1 / len(q)))
    return occupancy / occupancy.sum()


def improve(mdp: MDP, value: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns q ∝ π exp(Q/α)."""
    return scipy.special.softmax(np.log(policy) + (mdp.rewards + GAMMA * mdp.transitions @ value) / ALPHA, axis=1)


def e_step_once(mdp: MDP, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns q for the Q values of the last q: the step of the paper."""
    return improve(mdp, values(mdp, q, policy), policy)


def e_step_to_the_end(mdp: MDP, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns the q that maximises J."""
    for _ in range(50):  # converges as fast as policy iteration
        q = e_step_once(mdp, q, policy)
    return q


E_STEPS = [e_step_once, e_step_to_the_end]
SEEDS = range(5)


@pytest.mark.parametrize("e_step", E_STEPS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_policy_of_any_shape_rises_to_the_optimum(seed: int, e_step: Any):
    """With π = q, J(q, π) is the return of π, which therefore also rises monotonically."""
    mdp = random_mdp(seed)
    policy = np.full(mdp.rewards.shape, 1 / 3)
    objective = [elbo(mdp, policy, policy)]
    for _ in range(100):
        q = e_step(mdp, policy, policy)
        objective.append(elbo(mdp, q, policy))
        policy = np.maximum(q, 1e-300)  # a probability may reach 0, its logarithm must be finite
        objective.append(elbo(mdp, q, policy))
    assert np.all(np.diff(objective) > -1e-11)
    optimal = np.zeros(6)
    for _ in range(1000):
        optimal = np.max(mdp.rewards + GAMMA * mdp.transitions @ optimal, axis=1)
    # Mirror descent is within α log A / (number of steps (1 - γ)) = 0.022 of the optimum. The uniform policy is much
    # further away.
    assert objective[-1] == pytest.approx(optimal.mean(), abs=0.022)
    assert optimal.mean() - objective[0] > 1.0


@pytest.mark.parametrize("e_step", E_STEPS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_trust_region_slows_the_rise_and_does_not_break_it(seed: int, e_step: Any):
    """The maximum of E_q[log π] − λ KL(π_old ‖ π) is the mixture (q + λ π_old)/(1 + λ)."""
    mdp, held_back = random_mdp(seed), 4.0
    policy = np.full(mdp.rewards.shape, 1 / 3)
    q = policy
    objective = [elbo(mdp, q, policy)]
    for _ in range(30):
        q = e_step(mdp, q, policy)
        objective.append(elbo(mdp, q, policy))
        policy = (q + held_back * policy) / (1 + held_back)
        objective.append(elbo(mdp, q, policy))
    assert np.all(np.diff(objective) > -1e-11)
    assert objective[-1] - objective[0] > 1.0


@pytest.mark.parametrize("e_step", E_STEPS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_policy_of_limited_capacity_rises_too(seed: int, e_step: Any):
    """A softmax of two linear features can't equal q in all of six states. It is fitted by the losses of SPO."""
    mdp = random_mdp(seed)
    features = jnp.asarray(np.random.default_rng(seed).normal(size=(6, 2)), jnp.float32)
    projection = losses.coupled_projection(distributions.categorical)

    def logits(theta: Array) -> Array:
        return features @ theta.reshape(2, 3)

    @jax.jit
    @jax.value_and_grad
    def loss(theta: Array, q: Array, often: Array) -> Array:
        def in_state(logits: Array, q: Array) -> Array:
            log_probs = jax.vmap(lambda action: projection.log_prob(None, logits, action))(jnp.arange(3))
            return losses.weighted_likelihood_loss(log_probs, q)

        return often @ jax.vmap(in_state)(logits(theta), q)

    def policy_of(theta: np.ndarray) -> np.ndarray:
        return scipy.special.softmax(np.asarray(logits(jnp.asarray(theta, jnp.float32)), np.float64), axis=1)

    theta = np.zeros(6)
    policy = q = policy_of(theta)
    objective, misfit = [elbo(mdp, q, policy)], []
    for _ in range(20):
        q = e_step(mdp, q, policy)
        objective.append(elbo(mdp, q, policy))
        arguments = (jnp.asarray(q, jnp.float32), jnp.asarray(visits(mdp, q), jnp.float32))

        def loss_in_64_bit(theta: np.ndarray, arguments: Any = arguments) -> tuple[float, np.ndarray]:
            value, gradient = loss(jnp.asarray(theta, jnp.float32), *arguments)
            return float(value), np.asarray(gradient, np.float64)

        theta = scipy.optimize.minimize(loss_in_64_bit, theta, jac=True, method="BFGS").x
        policy = policy_of(theta)
        objective.append(elbo(mdp, q, policy))
        misfit.append(kl(q, policy).max())
    # The fit is in 32 bits: a step without effect may lose α/(1 - γ) times their rounding.
    assert np.all(np.diff(objective) > -1e-5)
    assert objective[-1] - objective[0] > 0.1
    assert max(misfit) > 0.1, "the policy was meant not to reach q"


# --- The temperature --------------------------------------------------------------------------------------------------
def test_the_search_improves_the_policy_by_the_kl_it_is_given():
    """After some training, the KL divergence of the search's weights is ε_η within 15 %, for three values of it."""
    bounds = jnp.array([0.1, 0.3, 0.8])
    task = environments.make("rubiks_cube", min_scrambles=1, max_scrambles=2, time_limit=4)
    architecture = cube_architecture(width=16, head_sizes=(16,))
    setting = Setting(task, architecture, total_env_steps=1.0)
    config = SPOConfig(
        num_envs=32,
        rollout_length=4,
        sequence_length=4,
        num_updates=16,
        batch_size=32,
        replay_size=32 * 8,
        dual_learning_rate=1e-2,
        search=SearchConfig(num_particles=16, horizon=2, resample_period=2, unroll=1),
    )

    @jax.jit
    def kls_while_training(bounds: Array) -> Array:
        """Returns KL divergences [bound, iteration]. All bounds are trained in one program."""

        def train(bound: Array) -> Array:
            algorithm = make_spo(setting, dataclasses.replace(config, temperature_kl_bound=bound))
            state = algorithm.init(jax.random.key(0), jax.random.key(1))
            _, metrics = jax.lax.scan(lambda state, _: algorithm.step(state), state, length=60)
            return metrics["search/kl"]

        over_one_device = jax.vmap(lambda _: jax.lax.map(train, bounds), axis_name=DEVICE_AXIS)
        return over_one_device(jnp.zeros(1))[0]

    settled = np.mean(kls_while_training(bounds)[:, -20:], axis=1)
    np.testing.assert_allclose(settled, bounds, rtol=0.15)
