"""PPO's clipped surrogate, by hand and against rlax."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.losses import clipped_surrogate_loss, standardise

RLAX = json.loads((Path(__file__).parents[1] / "oracles" / "learning_numbers.json").read_text())


def test_the_surrogate_and_its_gradient_agree_with_rlax():
    numbers = RLAX["clipped_surrogate"]
    old_log_probs, advantages = jnp.asarray(numbers["old_log_probs"]), jnp.asarray(numbers["advantages"])

    def loss(log_probs):
        per_state = jax.vmap(clipped_surrogate_loss, (0, 0, 0, None))
        return jnp.mean(per_state(log_probs, old_log_probs, advantages, numbers["clip_epsilon"]))

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(numbers["log_probs"]))
    np.testing.assert_allclose(value, numbers["loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient, numbers["gradient"], rtol=1e-5, atol=1e-7)
    # The stored numbers contain clipped and unclipped states.
    assert 0 < np.count_nonzero(gradient) < len(advantages)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.05, 2.0, -2.1, -2.1),  # inside the clip
        (1.5, 2.0, -2.2, 0.0),  # better, and already much more likely: no gradient
        (0.5, 2.0, -1.0, -1.0),  # better, but much less likely: gradient
        (1.5, -2.0, 3.0, 3.0),  # worse, and much more likely: gradient
        (0.5, -2.0, 1.8, 0.0),  # worse, and already much less likely: no gradient
    ],
)
def test_value_and_slope_on_all_sides_of_the_clip(ratio, advantage, loss, slope):
    arguments = (jnp.asarray(np.log(ratio) - 3.0), jnp.asarray(-3.0), jnp.asarray(advantage), 0.1)
    np.testing.assert_allclose(clipped_surrogate_loss(*arguments), loss, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(clipped_surrogate_loss)(*arguments), slope, rtol=1e-5)


@pytest.mark.parametrize("log_ratio", [-1e4, -200.0, 200.0, 1e4])
@pytest.mark.parametrize("advantage", [-3.0, 0.0, 3.0])
def test_policies_far_apart_give_finite_numbers(log_ratio, advantage):
    arguments = (jnp.asarray(log_ratio), jnp.asarray(0.0), jnp.asarray(advantage), 0.1)
    value, gradient = jax.value_and_grad(clipped_surrogate_loss)(*arguments)
    assert np.isfinite(value)
    assert np.isfinite(gradient)


def test_the_rollout_receives_no_gradient():
    for argument in (1, 2):
        gradient = jax.grad(clipped_surrogate_loss, argnums=argument)(
            jnp.asarray(-1.0), jnp.asarray(-1.01), jnp.asarray(2.0), 0.1
        )
        assert gradient == 0.0


def test_standardised_advantages():
    advantages = standardise(jnp.asarray([1.0, 2.0, 3.0, 6.0]))
    np.testing.assert_allclose(advantages, np.asarray([-2, -1, 0, 3]) / np.sqrt(14 / 4), rtol=1e-6)
    # Equal advantages: all 0, and no division by zero.
    np.testing.assert_array_equal(standardise(jnp.full(4, 2.5)), np.zeros(4))
