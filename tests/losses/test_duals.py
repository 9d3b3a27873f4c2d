"""Duals: positive, exact at their initial values, and learnable from there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.losses import positive_from_raw, raw_from_positive
from spo.losses.duals import MINIMUM


@pytest.mark.parametrize("value", [2e-8, 1e-6, 1e-3, 0.03, 0.5, 3.0, 10.0, 89.0, 500.0, 1e6])
def test_a_dual_starts_at_the_value_of_the_table(value):
    np.testing.assert_allclose(positive_from_raw(jnp.asarray(raw_from_positive(value))), value, rtol=2e-6)


@pytest.mark.parametrize("raw", [-1e30, -1e4, -100.0, -1.0, 0.0, 100.0, 1e4])
def test_a_dual_and_its_slope_are_finite_for_every_raw_variable(raw):
    value, slope = jax.value_and_grad(positive_from_raw)(jnp.asarray(raw))
    assert np.isfinite(value)
    assert value >= MINIMUM
    assert 0.0 <= slope <= 1.0


@pytest.mark.parametrize("value", [0.0, -1.0, MINIMUM, np.nan, np.inf])
def test_a_dual_that_cannot_be_reached_is_refused(value):
    with pytest.raises(ValueError, match="needs a finite value above"):
        raw_from_positive(value)
