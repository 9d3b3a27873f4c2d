"""Regression losses of values, by hand and against rlax."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.losses import clipped_squared_error, huber, squared_error

RLAX = json.loads((Path(__file__).parents[1] / "oracles" / "learning_numbers.json").read_text())


def test_squared_error_has_no_half():
    np.testing.assert_allclose(squared_error(jnp.asarray([1.0, 5.0]), jnp.asarray([4.0, 5.0])), [9.0, 0.0])


def test_huber_agrees_with_rlax():
    numbers = RLAX["huber"]
    target = jnp.linspace(-1.0, 1.0, len(numbers["errors"]))
    losses = huber(target + jnp.asarray(numbers["errors"]), target, numbers["delta"])
    np.testing.assert_allclose(losses, numbers["losses"], rtol=1e-5)


@pytest.mark.parametrize(
    ("error", "slope"), [(-1e30, -0.5), (-2.0, -0.5), (-0.3, -0.3), (0.0, 0.0), (0.4, 0.4), (7.0, 0.5)]
)
def test_the_slope_of_huber_is_the_error_clipped(error, slope):
    np.testing.assert_allclose(jax.grad(huber)(jnp.asarray(error), jnp.asarray(0.0), 0.5), slope)


@pytest.mark.parametrize(
    ("value", "target", "loss", "slope"),
    [
        (1.1, 2.0, 0.81, -1.8),  # near the old value 1: the squared error
        (1.5, 2.0, 0.64, 0.0),  # moved too far towards the target: evaluated at 1.2, no gradient
        (1.5, 0.0, 2.25, 3.0),  # moved too far away from it: gradient back
        (0.5, 0.0, 0.64, 0.0),
        (0.5, 2.0, 2.25, -3.0),
    ],
)
def test_a_clipped_value_gets_no_gradient_further_away(value, target, loss, slope):
    arguments = (jnp.asarray(value), jnp.asarray(1.0), jnp.asarray(target), 0.2)
    np.testing.assert_allclose(clipped_squared_error(*arguments), loss, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(clipped_squared_error)(*arguments), slope, rtol=1e-5)


def test_targets_and_old_values_receive_no_gradient():
    value, old_value, target = jnp.asarray(1.5), jnp.asarray(1.0), jnp.asarray(2.0)
    assert jax.grad(squared_error, argnums=1)(value, target) == 0.0
    assert jax.grad(huber, argnums=1)(value, target, 0.5) == 0.0
    # With a clip of 0.2 the clipped error counts, which contains the old value. With 2, the plain error counts.
    for clip in (0.2, 2.0):
        for argument in (1, 2):
            assert jax.grad(clipped_squared_error, argnums=argument)(value, old_value, target, clip) == 0.0
