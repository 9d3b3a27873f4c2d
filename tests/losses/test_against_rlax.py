"""The losses of MPO and V-MPO, composed of our functions, against rlax: every term and every gradient.

Gradients are those of the sum of all losses, which an algorithm minimises. They reveal a missing or misplaced
`stop_gradient`.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from spo.distributions import Gaussian, categorical, gaussian
from spo.losses import (
    coupled_projection,
    decoupled_projection,
    target_weights,
    temperature_loss,
    top_half,
    trust_region_losses,
    weighted_likelihood_loss,
)

RLAX = json.loads((Path(__file__).parents[1] / "oracles" / "learning_numbers.json").read_text())


def as_arrays(inputs):
    return {name: jnp.asarray(value) for name, value in inputs.items() if not name.startswith("bound")}


def assert_gradients_agree(gradients, expected):
    assert set(gradients) == set(expected)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=3e-5, atol=1e-6, err_msg=name)


def test_mpo_with_decoupled_gaussians():
    inputs, expected = RLAX["mpo_continuous"]["inputs"], RLAX["mpo_continuous"]
    x = as_arrays(inputs)
    projection = decoupled_projection(gaussian)

    def losses_of_one_state(trained, mean, scale, old_mean, old_scale, actions, q_values):
        old, new = Gaussian(old_mean, old_scale), Gaussian(mean, scale)
        weights = target_weights(q_values, trained["temperature"])
        log_probs = jax.vmap(projection.log_prob, (None, None, 0))(old, new, actions)
        multipliers = {"mean": trained["multiplier_mean"], "scale": trained["multiplier_scale"]}
        bounds = {"mean": inputs["bound_mean"], "scale": inputs["bound_scale"]}
        trust = trust_region_losses(projection.kls(old, new), multipliers, bounds)
        return weights, {
            "policy_loss": weighted_likelihood_loss(log_probs, weights),
            "temperature_loss": temperature_loss(trained["temperature"], q_values, inputs["bound_temperature"]),
            "penalty": trust.penalty,
            "dual": trust.dual,
        }

    def total(trained):
        per_state = (trained["mean"], trained["scale"], x["old_mean"], x["old_scale"], x["actions"], x["q_values"])
        weights, parts = jax.vmap(losses_of_one_state, (None, 0, 0, 0, 0, 0, 0))(trained, *per_state)
        return sum(jnp.mean(part) for part in parts.values()), (weights, parts)

    trained = {name: x[name] for name in expected["gradients"]}
    gradients, (weights, parts) = jax.jit(jax.grad(total, has_aux=True))(trained)
    np.testing.assert_allclose(weights, expected["weights"], rtol=3e-5)
    for name, part in parts.items():
        np.testing.assert_allclose(part, expected[name], rtol=3e-5, atol=1e-6, err_msg=name)
    assert_gradients_agree(gradients, expected["gradients"])


def test_vmpo_with_a_categorical_policy():
    inputs, expected = RLAX["vmpo_discrete"]["inputs"], RLAX["vmpo_discrete"]
    x = as_arrays(inputs)
    projection = coupled_projection(categorical)

    def total(trained):
        best = top_half(x["advantages"])
        weights = target_weights(x["advantages"][best], trained["temperature"])
        log_probs = jax.vmap(projection.log_prob)(x["old_logits"], trained["logits"], x["actions"])
        multipliers, bounds = {"policy": trained["multiplier"]}, {"policy": inputs["bound"]}
        kls = jax.vmap(projection.kls)(x["old_logits"], trained["logits"])
        trust = jax.vmap(trust_region_losses, (0, None, None))(kls, multipliers, bounds)
        parts = {
            "policy_loss": weighted_likelihood_loss(log_probs[best], weights),
            "temperature_loss": temperature_loss(
                trained["temperature"], x["advantages"][best], inputs["bound_temperature"]
            ),
            "penalty": jnp.mean(trust.penalty),
            "dual": jnp.mean(trust.dual),
        }
        return sum(parts.values()), (jnp.zeros_like(x["advantages"]).at[best].set(weights), parts)

    trained = {name: x[name] for name in expected["gradients"]}
    gradients, (weights, parts) = jax.jit(jax.grad(total, has_aux=True))(trained)
    np.testing.assert_allclose(weights, expected["weights"], rtol=3e-5)
    for name, part in parts.items():
        np.testing.assert_allclose(part, expected[name], rtol=3e-5, atol=1e-6, err_msg=name)
    assert_gradients_agree(gradients, expected["gradients"])
