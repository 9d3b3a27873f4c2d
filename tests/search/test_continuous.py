"""Continuous actions: a posterior in closed form, and a linear system with a known optimum."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo.search
from spo.distributions import Gaussian, gaussian
from spo.search import ModelOutput, Resampling, Root

MAX_Z = 4.9  # two-sided p = 1e-6


@pytest.mark.parametrize("resample_last", [False, True])
def test_gaussian_bandit_has_a_gaussian_posterior(resample_last):
    """N(m, s²) · exp(−(a − c)² / (2·d²·η)) is Gaussian: precision 1/s² + 1/(d²η), mean by precision weighting.

    Also Z itself: s'/s · exp(−(m − c)² / (2(s² + d²η))).
    """
    mean, scale, centre, width, temperature = 0.5, 1.2, 2.0, 0.8, 0.7
    num_roots, num_particles = 64, 2048

    def model_fn(key, state, action):
        return ModelOutput(
            state=state,
            prior=Gaussian(mean=jnp.zeros(1), scale=jnp.ones(1)),
            value=jnp.full((), 3.0),
            reward=-jnp.sum((action - centre) ** 2) / (2 * width**2) - 3.0 + 0.25,
            discount=jnp.ones(()),
            ended=jnp.ones((), bool),
        )

    prior = Gaussian(mean=jnp.full((num_roots, 1), mean), scale=jnp.full((num_roots, 1), scale))
    output = jax.jit(
        lambda key, root: spo.search.search(
            key,
            root,
            model_fn,
            num_particles=num_particles,
            horizon=2,
            temperature=temperature,
            resampling=Resampling(2, last=resample_last),
            distribution=gaussian,
        )
    )(jax.random.key(0), Root(prior=prior, value=jnp.full(num_roots, 0.25), state=jnp.zeros(num_roots)))
    precision = 1 / scale**2 + 1 / (width**2 * temperature)
    posterior_mean = (mean / scale**2 + centre / (width**2 * temperature)) / precision
    spread = scale**2 + width**2 * temperature
    normaliser = np.sqrt(1 / precision) / scale * np.exp(-((mean - centre) ** 2) / (2 * spread))

    actions, weights = np.asarray(output.root_actions[..., 0], np.float64), np.asarray(output.weights, np.float64)
    means = np.sum(weights * actions, axis=1)
    seconds = np.sum(weights * (actions - posterior_mean) ** 2, axis=1)
    for estimates, truth in (
        (means, posterior_mean),
        (seconds, 1 / precision),
        (np.exp(np.asarray(output.log_normaliser, np.float64)), normaliser),
    ):
        standard_error = estimates.std(ddof=1) / np.sqrt(num_roots)
        assert standard_error < 0.01 * max(1.0, abs(truth))
        assert abs(estimates.mean() - truth) < MAX_Z * standard_error
    assert output.action_weights is None
    assert output.action.shape == output.best_action.shape == (num_roots, 1)


def test_best_action_is_the_heaviest_root_sample():
    """Continuous actions have no table to sum into: weight is summed over the descendants of each root sample."""

    def model_fn(key, state, action):
        return ModelOutput(
            state=state,
            prior=Gaussian(mean=jnp.zeros(1), scale=jnp.ones(1)),
            value=jnp.zeros(()),
            reward=jax.random.uniform(key),
            discount=jnp.ones(()),
            ended=jnp.zeros((), bool),
        )

    root = Root(Gaussian(mean=jnp.zeros((4, 1)), scale=jnp.ones((4, 1))), jnp.zeros(4), jnp.zeros(4))
    output = jax.jit(
        lambda key, root: spo.search.search(
            key,
            root,
            model_fn,
            num_particles=16,
            horizon=4,
            temperature=0.2,
            unroll=1,
            resampling=Resampling(1),
            distribution=gaussian,
        )
    )(jax.random.key(1), root)
    for root_index in range(4):
        actions, weights = np.asarray(output.root_actions[root_index, :, 0]), np.asarray(output.weights[root_index])
        total = {a: weights[actions == a].sum() for a in np.unique(actions)}
        assert len(total) < 16, "some samples must have died for this to mean anything"
        assert output.best_action[root_index, 0] == max(total, key=total.get)
        assert float(output.action[root_index, 0]) in total


# --- LQR: x' = Ax + Bu, reward −(x'Qx + u'Ru); the optimum is known -------------------------------------------------

A = np.array([[1.0, 0.3], [0.0, 1.0]])
B = np.array([[0.05], [0.3]])
Q, R = np.diag([1.0, 0.2]), np.array([[0.1]])
EPISODE, NUM_EPISODES = 20, 64


def riccati():
    cost = Q
    for _ in range(500):
        gain = np.linalg.solve(R + B.T @ cost @ B, B.T @ cost @ A)
        cost = Q + A.T @ cost @ (A - B @ gain)
    return cost, gain


COST_TO_GO, GAIN = riccati()
# A poor policy: a quarter of the optimal gain, noisy; its critic is the optimal cost, wrong by half.
POOR_GAIN, SCALE, CRITIC = 0.25 * GAIN, 0.6, 0.5 * COST_TO_GO


def _quadratic(x, matrix):
    return jnp.sum(x * (jnp.asarray(matrix, jnp.float32) @ x))


def _prior(x):
    return Gaussian(mean=-jnp.asarray(POOR_GAIN, jnp.float32) @ x, scale=jnp.full(1, SCALE))


def _step(x, u):
    reward = -_quadratic(x, Q) - _quadratic(u, R)
    return jnp.asarray(A, jnp.float32) @ x + jnp.asarray(B, jnp.float32) @ u, reward


def _model_fn(key, x, u):
    x, reward = _step(x, u)
    return ModelOutput(x, _prior(x), -_quadratic(x, CRITIC), reward, jnp.ones(()), jnp.zeros((), bool))


@functools.partial(jax.jit, static_argnames=("num_particles", "horizon"))
def _closed_loop(key, num_particles, horizon):
    """Mean return of acting by the mean of the search's read-out; num_particles=0 acts by the poor policy's mean."""

    def act(key, x):
        if num_particles == 0:
            return jax.vmap(_prior)(x).mean
        root = Root(jax.vmap(_prior)(x), jax.vmap(lambda x: -_quadratic(x, CRITIC))(x), x)
        output = spo.search.search(
            key,
            root,
            _model_fn,
            num_particles=num_particles,
            horizon=horizon,
            temperature=0.1,
            unroll=1,
            resampling=Resampling(2),
            distribution=gaussian,
        )
        return jnp.sum(output.weights[..., None] * output.root_actions, axis=1)

    def step(x, key):
        return jax.vmap(_step)(x, act(key, x))

    key_start, key_steps = jax.random.split(key)
    start = jax.random.normal(key_start, (NUM_EPISODES, 2))
    _, rewards = jax.lax.scan(step, start, jax.random.split(key_steps, EPISODE))
    return jnp.mean(jnp.sum(rewards, axis=0)), start


def test_search_improves_a_poor_linear_policy():
    """More particles and more depth come closer to the Riccati optimum. Same starts for all; margins are in units of
    the gap between the poor policy and the optimum, and stand several times above the spread over seeds."""
    key = jax.random.key(0)
    poor, start = _closed_loop(key, 0, 0)
    x, best = np.asarray(start, np.float64), 0.0
    for _ in range(EPISODE):
        u = -x @ GAIN.T
        best -= np.mean(np.einsum("bi,ij,bj->b", x, Q, x) + np.einsum("bi,ij,bj->b", u, R, u))
        x = x @ A.T + u @ B.T

    def closed(num_particles, horizon):  # share of the gap that the search closes
        return float((_closed_loop(key, num_particles, horizon)[0] - poor) / (best - poor))

    few, many, shallow = closed(4, 6), closed(256, 6), closed(256, 1)
    assert best - poor > 1.0
    assert 0.1 < few < many - 0.1
    assert shallow < many - 0.1
    assert 0.8 < many < 1.02
