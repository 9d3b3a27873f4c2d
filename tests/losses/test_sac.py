"""Losses of SAC's policy and entropy temperature: their minima and gradients."""

import jax
import jax.numpy as jnp
import numpy as np

from spo.distributions import Gaussian, gaussian
from spo.losses import entropy_temperature_loss, soft_policy_loss


def test_by_hand():
    np.testing.assert_allclose(soft_policy_loss(jnp.asarray(-1.5), jnp.asarray(2.0), jnp.asarray(0.2)), -2.3, rtol=1e-6)
    loss = entropy_temperature_loss(jnp.asarray(0.2), jnp.asarray(-1.5), -3.0)
    np.testing.assert_allclose(loss, 0.2 * (1.5 + 3.0), rtol=1e-6)


def test_the_best_gaussian_for_a_quadratic_q_is_the_boltzmann_policy():
    # exp(Q/τ) with Q = −(a − 1)²/2 is the Gaussian with mean 1 and variance τ.
    temperature = jnp.asarray(0.25)
    noise = np.random.default_rng(0).normal(size=(2000, 1)).astype(np.float32)
    # Samples with mean 0 and variance 1 exactly: the answer then has no sampling error.
    noise = jnp.asarray((noise - noise.mean()) / noise.std())

    def loss(params):
        def at_one_draw(noise):
            action = params.mean + params.scale * noise
            return soft_policy_loss(gaussian.log_prob(params, action), -0.5 * jnp.sum((action - 1.0) ** 2), temperature)

        return jnp.mean(jax.vmap(at_one_draw)(noise))

    best = jax.grad(loss)(Gaussian(jnp.asarray([1.0]), jnp.asarray([0.5])))
    np.testing.assert_allclose(jnp.concatenate(best), 0.0, atol=1e-5)
    wrong = jax.grad(loss)(Gaussian(jnp.asarray([0.0]), jnp.asarray([1.0])))
    # d/dμ = μ − 1, d/dσ = σ − τ/σ.
    np.testing.assert_allclose(jnp.concatenate(wrong), [-1.0, 0.75], rtol=1e-4)


def test_gradients_reach_the_trained_variables_only():
    log_prob, q_value, temperature = jnp.asarray(-1.5), jnp.asarray(2.0), jnp.asarray(0.2)
    gradients = jax.grad(soft_policy_loss, argnums=(0, 1, 2))(log_prob, q_value, temperature)
    np.testing.assert_allclose(gradients, [0.2, -1.0, 0.0], rtol=1e-6)
    gradients = jax.grad(entropy_temperature_loss, argnums=(0, 1))(temperature, log_prob, -3.0)
    # The policy is more random (1.5 nats) than its target (−3): a descent lowers the temperature.
    np.testing.assert_allclose(gradients, [4.5, 0.0], rtol=1e-6)
