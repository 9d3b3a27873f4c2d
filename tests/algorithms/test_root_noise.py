"""Tests of the exploration noise that a rollout draws at once."""

import jax
import numpy as np
import pytest
import scipy.stats

from spo.algorithms.planning import draw_log_gammas, draw_root_noise


@pytest.mark.parametrize("alpha", [0.03, 0.3, 1.0, 5.0])
def test_log_gammas_have_their_distribution(alpha: float):
    """A Kolmogorov-Smirnov test with 50 000 samples finds a distance of 0.01 between two distributions."""
    draw = jax.jit(draw_log_gammas, static_argnums=(1, 2))
    samples = np.asarray(draw(jax.random.key(3), alpha, (50_000,)), np.float64)
    assert np.all(np.isfinite(samples))
    result = scipy.stats.kstest(samples, lambda x: scipy.stats.gamma.cdf(np.exp(x), alpha))
    assert result.pvalue > 1e-3, result


def test_the_noise_is_drawn_without_a_loop():
    """A loop until the last one is accepted would stop the GPU in every iteration."""
    text = str(jax.make_jaxpr(lambda key: draw_log_gammas(key, 0.03, (2, 3, 4)))(jax.random.key(0)))
    assert "while" not in text


def test_noise_of_weight_zero_is_not_drawn():
    assert draw_root_noise(4, 0.0, 0.03, jax.random.key(0), 2, 3) == ()
    [noise] = draw_root_noise(4, 0.25, 0.03, jax.random.key(0), 2, 3)
    assert noise.shape == (2, 3, 4)
