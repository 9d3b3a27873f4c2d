"""The E-step: its dual function against the theory, solved by scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from spo.losses import kl_from_prior, positive_from_raw, target_weights, temperature_loss, top_half

ADVANTAGES = np.random.default_rng(5).normal(size=(7, 16)) * np.linspace(0.2, 3.0, 7)[:, None]
N = 16
slope_of_the_dual = jax.jit(jax.grad(temperature_loss))


def kl_to_uniform(weights):
    """Returns KL(w ‖ uniform) in float64."""
    return np.sum(special.xlogy(weights, weights), axis=-1) + np.log(weights.shape[-1])


def mean_temperature_loss(temperature, advantages, kl_bound):
    return jnp.mean(jax.vmap(temperature_loss, (None, 0, None))(temperature, advantages, kl_bound))


@pytest.mark.parametrize("kl_bound", [0.05, 0.2, 0.5, 1.5])
def test_at_the_minimum_of_the_dual_the_kl_is_the_bound(kl_bound):
    # The KL divergence as a function of the temperature, by NumPy only, without the dual.
    def excess(log_temperature):
        weights = special.softmax(ADVANTAGES / np.exp(log_temperature), axis=-1)
        return kl_to_uniform(weights).mean() - kl_bound

    expected = np.exp(optimize.brentq(excess, -8, 8))
    dual = jax.jit(lambda log_temperature: mean_temperature_loss(jnp.exp(log_temperature), ADVANTAGES, kl_bound))
    found = optimize.minimize_scalar(
        lambda x: float(dual(x)), bounds=(-8, 8), method="bounded", options={"xatol": 1e-6}
    )
    # A minimum is flat: rounding of the loss, 1e-7 in float32, shifts it by about the square root of that.
    np.testing.assert_allclose(np.exp(found.x), expected, rtol=5e-3)
    # The slope is more precise: it is 0 where the KL divergence is the bound.
    slope = jax.grad(mean_temperature_loss)(jnp.asarray(expected, jnp.float32), ADVANTAGES, kl_bound)
    np.testing.assert_allclose(slope, 0.0, atol=2e-6)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-10, 10, width=32), min_size=N, max_size=N),
    st.floats(-3, 3, width=32).map(np.exp),
    st.floats(0, 3, width=32),
)
def test_the_slope_of_the_dual_is_the_bound_minus_the_kl(advantages, temperature, kl_bound):
    advantages = np.asarray(advantages, np.float32)
    slope = slope_of_the_dual(jnp.float32(temperature), advantages, kl_bound)
    weights = special.softmax(advantages.astype(np.float64) / temperature)
    np.testing.assert_allclose(slope, kl_bound - kl_to_uniform(weights), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.05, 0.7, 12.0])
def test_the_dual_and_its_slope_by_finite_differences(temperature):
    # The formula as printed, in float64.
    def printed(temperature):
        return temperature * (0.3 + np.mean(special.logsumexp(ADVANTAGES / temperature, axis=-1) - np.log(N)))

    value, slope = jax.value_and_grad(mean_temperature_loss)(jnp.asarray(temperature), ADVANTAGES, 0.3)
    np.testing.assert_allclose(value, printed(temperature), rtol=1e-5)
    step = 1e-5 * temperature
    difference = (printed(temperature + step) - printed(temperature - step)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature", [1e-8, 1e-4, 1e-2, 500.0, 1e8])
@pytest.mark.parametrize("offset", [0.0, -1e4, 1e4])
def test_the_slope_keeps_its_digits_at_any_temperature_and_offset(temperature, offset):
    # Multiples of 1/64 are exact after the offset is added: the answer is known exactly.
    advantages = np.asarray([0.0, -1.0, -2.0, -0.015625], np.float32) + np.float32(offset)
    value, slope = jax.value_and_grad(temperature_loss)(jnp.asarray(temperature), jnp.asarray(advantages), 0.5)
    weights = special.softmax((advantages.astype(np.float64) - offset) / temperature)
    np.testing.assert_allclose(slope, 0.5 - kl_to_uniform(weights), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        value,
        temperature * (0.5 + special.logsumexp((advantages.astype(np.float64) - offset) / temperature, b=0.25))
        + offset,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_the_best_action_may_be_improbable(temperature):
    """Its share of the sum, exp(-200), is below the smallest float32. An impossible action does not count."""
    log_prior, advantages = np.array([-200.0, -0.5, -1.0, -np.inf]), np.array([1.0, -3.0, -2.0, 50.0])

    def printed(temperature):
        return temperature * (0.3 + special.logsumexp(log_prior + advantages / temperature))

    arguments = (jnp.asarray(advantages, jnp.float32), 0.3, jnp.asarray(log_prior, jnp.float32))
    value, slope = jax.value_and_grad(temperature_loss)(jnp.asarray(temperature), *arguments)
    np.testing.assert_allclose(value, printed(temperature), rtol=1e-5)
    step = 1e-5 * temperature
    difference = (printed(temperature + step) - printed(temperature - step)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-4)


def test_descending_the_dual_from_its_raw_variable_reaches_the_bound():
    bound, raw = 0.5, jnp.asarray(5.0)
    slope = jax.jit(jax.grad(lambda raw: mean_temperature_loss(positive_from_raw(raw), ADVANTAGES, bound)))
    for _ in range(2000):
        raw -= 0.2 * slope(raw)
    weights = jax.vmap(target_weights, (0, None))(jnp.asarray(ADVANTAGES), positive_from_raw(raw))
    np.testing.assert_allclose(kl_to_uniform(np.asarray(weights, np.float64)).mean(), bound, rtol=1e-3)


def test_only_the_temperature_receives_a_gradient():
    advantages = jnp.asarray(ADVANTAGES[0])
    assert not np.any(jax.grad(temperature_loss, argnums=1)(0.7, advantages, 0.5))
    for argument in (0, 1):
        gradient = jax.grad(lambda *args: target_weights(*args)[0], argnums=argument)(advantages, 0.7)
        assert not np.any(gradient)


def test_weights_are_a_softmax_and_independent_of_an_offset():
    advantages = jnp.asarray(ADVANTAGES[3], jnp.float32)
    weights = target_weights(advantages, 0.4)
    np.testing.assert_allclose(weights, special.softmax(ADVANTAGES[3] / 0.4), rtol=1e-4)
    np.testing.assert_allclose(weights, target_weights(advantages + 3.0, 0.4), rtol=1e-4)
    # η → 0: only the best action. η → ∞: equal weights on samples of the prior.
    np.testing.assert_array_equal(target_weights(advantages, 1e-8), np.eye(N)[np.argmax(advantages)])
    np.testing.assert_allclose(target_weights(advantages, 1e8), 1 / N, rtol=1e-6)


def test_the_kl_from_a_prior_is_that_of_scipy():
    weights, prior = np.random.default_rng(1).dirichlet(np.full(5, 0.5), size=(2, 3, 4))
    weights[0, 0], prior[0, 0] = [0.5, 0.5, 0, 0, 0], [0.1, 0.4, 0.5, 0, 0]  # 0 · log(0 / p), with p > 0 and p = 0
    with np.errstate(divide="ignore"):
        found = kl_from_prior(jnp.asarray(weights, jnp.float32), jnp.asarray(np.log(prior), jnp.float32))
    np.testing.assert_allclose(found, special.rel_entr(weights, prior).sum(axis=-1), rtol=1e-5, atol=1e-6)


def test_the_kl_of_impossible_or_invalid_weights_shows_them():
    log_prior = jnp.log(jnp.array([0.5, 0.5, 0.0]))
    assert kl_from_prior(jnp.array([0.5, 0.0, 0.5]), log_prior) == jnp.inf
    assert jnp.isnan(kl_from_prior(jnp.array([jnp.nan, 0.5, 0.0]), log_prior))


@pytest.mark.parametrize("num_states", [2, 7, 8])
def test_top_half_holds_the_best(num_states):
    advantages = ADVANTAGES.ravel()[:num_states].astype(np.float32)
    indices = top_half(jnp.asarray(advantages))
    np.testing.assert_array_equal(indices, np.argsort(-advantages)[: num_states // 2])


def test_half_of_a_single_state_is_refused():
    with pytest.raises(ValueError, match="at least 2 advantages, got 1"):
        top_half(jnp.ones(1))
