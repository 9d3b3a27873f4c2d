"""Tests of the exploration noise that a rollout draws at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from spo.algorithms.planning import PlanningConfig, SearchConfig, draw_log_gammas, draw_root_noise, make_planner
from spo.environments.tiny import tiny
from spo.networks import make_network, mlp_architecture


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


@pytest.mark.parametrize(
    ("name", "weight", "corrected", "candidates", "weighted"),
    [
        ("chain", 0.25, True, None, True),
        ("chain", 0.25, False, None, False),
        ("chain", 0.0, True, None, False),
        ("chain", 0.0, False, 2, True),
        ("continuous_credit", 0.25, True, None, False),
        ("continuous_credit", 0.25, True, 2, False),
    ],
    ids=["corrected", "not corrected", "no noise", "candidates", "continuous", "candidates of a Gaussian"],
)
def test_roots_are_weighted_where_the_weights_of_first_actions_differ(
    name: str, weight: float, corrected: bool, candidates: int | None, weighted: bool
):
    """A replay buffer stores the weights of the first actions only where they differ."""
    config = PlanningConfig(
        root_exploration_weight=weight,
        dirichlet_alpha=0.3,
        correct_root_exploration=corrected,
        search=SearchConfig(num_particles=8, horizon=1, num_root_candidates=candidates),
    )
    environment = tiny(name).train
    network = make_network(environment.observation_spec, environment.action_spec, mlp_architecture(depth=1, width=4))
    planner = make_planner(config, environment, network)
    assert planner.weighted_roots == weighted

    key, key_reset, key_noise = jax.random.split(jax.random.key(0), 3)
    env_state, timestep = jax.vmap(environment.reset)(jax.random.split(key_reset, 2))
    params = network.init(key, environment.observation_spec)
    noise = [one[0] for one in planner.draw_noise(key_noise, 1, 2)]
    _, output = planner.plan(params, jnp.float32(1.0), key, env_state, timestep, *noise)
    assert weighted == bool(np.ptp(np.asarray(output.root_log_weights), axis=1).any())
