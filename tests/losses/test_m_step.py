"""The M-step: likelihood, projections and trust region, for discrete and continuous policies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from spo.distributions import Gaussian, categorical, gaussian, masked_logits, tanh_gaussian
from spo.losses import coupled_projection, decoupled_projection, trust_region_losses, weighted_likelihood_loss

LOG_PROBS = jnp.asarray([-0.5, -1.0, -2.0])
OLD = Gaussian(jnp.asarray([0.3, -0.2]), jnp.asarray([0.8, 1.5]))
NEW = Gaussian(jnp.asarray([0.7, 0.1]), jnp.asarray([0.4, 2.0]))
ACTION = jnp.asarray([0.9, -0.6])


def test_weighted_likelihood_by_hand():
    loss = weighted_likelihood_loss(LOG_PROBS, jnp.asarray([0.5, 0.3, 0.2]))
    np.testing.assert_allclose(loss, 0.25 + 0.3 + 0.4)


def test_the_best_categorical_policy_is_the_weights_themselves():
    weights = np.asarray([0.6, 0.3, 0.1])

    def loss(logits):
        return weighted_likelihood_loss(jax.nn.log_softmax(logits), jnp.asarray(weights))

    best = jnp.log(jnp.asarray(weights))
    np.testing.assert_allclose(jax.grad(loss)(best), 0.0, atol=1e-7)
    np.testing.assert_allclose(loss(best), stats.entropy(weights), rtol=1e-6)
    # The gradient elsewhere is softmax(logits) − weights.
    logits = np.asarray([0.2, -1.0, 0.4])
    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(logits)), special.softmax(logits) - weights, rtol=1e-5)


def test_all_actions_with_summed_weights_equal_the_particles():
    # AlphaZero's form (a weight for every action) and SPO's (a weight for every particle) are the same loss.
    logits, actions = jnp.asarray([0.1, -0.7, 0.4]), jnp.asarray([2, 0, 2, 2])
    weights = jnp.asarray([0.1, 0.4, 0.2, 0.3])
    particles = weighted_likelihood_loss(jax.vmap(categorical.log_prob, (None, 0))(logits, actions), weights)
    summed = weighted_likelihood_loss(jax.nn.log_softmax(logits), jnp.asarray([0.4, 0.0, 0.6]))
    np.testing.assert_allclose(particles, summed, rtol=1e-6)


def test_weights_receive_no_gradient():
    assert not np.any(jax.grad(weighted_likelihood_loss, argnums=1)(LOG_PROBS, jnp.full(3, 1 / 3)))


def test_masked_actions_cause_no_nan_in_loss_or_gradient():
    mask, weights = jnp.asarray([True, False, True]), jnp.asarray([0.7, 0.0, 0.3])

    def loss(raw_logits):
        logits = masked_logits(raw_logits, mask)
        kls = coupled_projection(categorical).kls(masked_logits(jnp.asarray([1.0, 2.0, 3.0]), mask), logits)
        trust = trust_region_losses(kls, {"policy": jnp.asarray(2.0)}, {"policy": 0.1})
        return weighted_likelihood_loss(jax.nn.log_softmax(logits), weights) + trust.penalty

    value, gradient = jax.value_and_grad(loss)(jnp.asarray([0.5, 9.0, -0.5]))
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert gradient[1] == 0.0
    assert np.all(np.asarray(gradient)[[0, 2]] != 0.0)


def test_an_impossible_action_with_weight_gives_an_infinite_loss():
    assert weighted_likelihood_loss(jnp.asarray([-jnp.inf, 0.0]), jnp.asarray([0.5, 0.5])) == jnp.inf


@pytest.mark.parametrize(
    ("distribution", "old", "new", "action"),
    [
        (categorical, jnp.asarray([0.1, 0.5, -1.0]), jnp.asarray([1.0, 0.0, 0.3]), jnp.asarray(2)),
        (gaussian, OLD, NEW, ACTION),
        (tanh_gaussian(), OLD, NEW, ACTION),
    ],
)
def test_the_coupled_projection_is_the_family_itself(distribution, old, new, action):
    projection = coupled_projection(distribution)
    np.testing.assert_allclose(projection.log_prob(old, new, action), distribution.log_prob(new, action))
    kls = projection.kls(old, new)
    assert list(kls) == ["policy"]
    np.testing.assert_allclose(kls["policy"], distribution.kl(old, new))


def test_the_decoupled_projection_against_scipy():
    projection = decoupled_projection(gaussian)
    old, new, action = (jax.tree.map(np.float64, x) for x in (OLD, NEW, ACTION))
    expected = np.sum(stats.norm.logpdf(action, new.mean, old.scale) + stats.norm.logpdf(action, old.mean, new.scale))
    np.testing.assert_allclose(projection.log_prob(OLD, NEW, ACTION), expected, rtol=1e-5)

    def kl(mean, scale, other_mean, other_scale):
        integrand = stats.norm(mean, scale)
        return integrand.expect(lambda x: integrand.logpdf(x) - stats.norm.logpdf(x, other_mean, other_scale))

    kls = projection.kls(OLD, NEW)
    assert set(kls) == {"mean", "scale"}
    for d in range(2):
        mean_kl = kl(old.mean[d], old.scale[d], new.mean[d], old.scale[d])
        scale_kl = kl(old.mean[d], old.scale[d], old.mean[d], new.scale[d])
        np.testing.assert_allclose(kls["mean"][d], mean_kl, rtol=1e-4)
        np.testing.assert_allclose(kls["scale"][d], scale_kl, rtol=1e-4)


def test_squashing_changes_the_decoupled_likelihood_only_by_a_constant():
    def gradient(distribution):
        return jax.grad(decoupled_projection(distribution).log_prob, argnums=1)(OLD, NEW, ACTION)

    jax.tree.map(np.testing.assert_allclose, gradient(gaussian), gradient(tanh_gaussian(-2.0, 2.0)))


@pytest.mark.parametrize(
    ("projection", "old", "new", "action"),
    [
        (coupled_projection(categorical), jnp.asarray([0.1, 0.5]), jnp.asarray([1.0, 0.0]), jnp.asarray(1)),
        (decoupled_projection(gaussian), OLD, NEW, ACTION),
    ],
)
def test_the_old_policy_receives_no_gradient(projection, old, new, action):
    def everything(old, new):
        return projection.log_prob(old, new, action) + sum(jnp.sum(kl) for kl in projection.kls(old, new).values())

    old_gradient, new_gradient = jax.grad(everything, argnums=(0, 1))(old, new)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(old_gradient))
    assert all(np.all(leaf != 0.0) for leaf in jax.tree.leaves(new_gradient))


def test_mean_and_scale_are_learned_separately():
    gradients = jax.jacobian(decoupled_projection(gaussian).kls, argnums=1)(OLD, NEW)
    assert not np.any(gradients["mean"].scale)
    assert not np.any(gradients["scale"].mean)
    assert np.any(gradients["mean"].mean)
    assert np.any(gradients["scale"].scale)


KLS = {"mean": jnp.asarray([0.2, 0.4]), "scale": jnp.asarray([0.01, 0.03])}
MULTIPLIERS = {"mean": jnp.asarray([10.0, 20.0]), "scale": jnp.asarray([500.0, 100.0])}
BOUNDS = {"mean": 0.3, "scale": 0.02}


def test_trust_region_by_hand():
    losses = trust_region_losses(KLS, MULTIPLIERS, BOUNDS)
    np.testing.assert_allclose(losses.penalty, 2 + 8 + 5 + 3, rtol=1e-6)
    np.testing.assert_allclose(losses.dual, 10 * 0.1 - 20 * 0.1 + 500 * 0.01 - 100 * 0.01, rtol=1e-5)
    one = trust_region_losses({"policy": jnp.asarray(0.4)}, {"policy": jnp.asarray(3.0)}, {"policy": 0.1})
    np.testing.assert_allclose(one, [1.2, -0.9], rtol=1e-6)


def test_the_penalty_trains_the_policy_and_the_dual_the_multipliers():
    jacobian = jax.jacobian(trust_region_losses, argnums=(0, 1))(KLS, MULTIPLIERS, BOUNDS)
    (penalty_by_kl, penalty_by_multiplier), (dual_by_kl, dual_by_multiplier) = jacobian
    for name in KLS:
        np.testing.assert_allclose(penalty_by_kl[name], MULTIPLIERS[name])
        assert not np.any(penalty_by_multiplier[name])
        assert not np.any(dual_by_kl[name])
        # A descent on the dual raises a multiplier whose KL divergence is above the bound.
        np.testing.assert_allclose(dual_by_multiplier[name], BOUNDS[name] - KLS[name], rtol=1e-5)


def test_names_and_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="by the same names"):
        trust_region_losses(KLS, {"mean": MULTIPLIERS["mean"]}, BOUNDS)
    with pytest.raises(ValueError, match="by the same names"):
        trust_region_losses(KLS, MULTIPLIERS, BOUNDS | {"policy": 0.1})
    with pytest.raises(ValueError, match="a multiplier for each dimension"):
        trust_region_losses(KLS, MULTIPLIERS | {"scale": jnp.asarray(500.0)}, BOUNDS)
