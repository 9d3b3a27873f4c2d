"""The scores, and the E-step of MPO as the search of depth 1 (figures made by rlax)."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo.search
from spo.search import ModelOutput, Resampling, Root, Step, weighting
from spo.search.base import BatchedModel

RLAX = json.loads((Path(__file__).parents[1] / "oracles" / "rlax_numbers.json").read_text())
STEP = Step(
    state=None,
    action=jnp.int32(1),
    next_state=None,
    reward=jnp.float32(2.0),
    discount=jnp.float32(0.5),
    value=jnp.float32(3.0),
    next_value=jnp.float32(10.0),
    prior=jnp.zeros(2),
    next_prior=jnp.zeros(2),
    log_prob=jnp.float32(-0.25),
    ended=jnp.bool_(False),
    depth=jnp.int32(0),
    temperature=jnp.float32(1.0),
    log_weight=jnp.float32(0.0),
)


def test_scores_by_hand():
    assert weighting.advantage(STEP) == 2.0 + 0.5 * 10.0 - 3.0
    assert weighting.q_value(STEP) == 2.0 + 0.5 * 10.0
    assert weighting.soft_advantage(4.0)(STEP) == 2.0 + 5.0 - 3.0 + 4.0 * 0.25
    assert weighting.soft_advantage(0.0)(STEP) == weighting.advantage(STEP)


@pytest.mark.parametrize("case", RLAX["cases"], ids=lambda case: f"temperature={case['temperature']}")
def test_depth_one_is_the_e_step_of_mpo(case):
    """Weights and temperature loss of rlax, from its Q-values handed to the search as r + γ·V(s') of N particles."""
    q_values = jnp.asarray(case["q_values"])
    num_particles, gamma, value = q_values.size, 0.9, 0.7
    next_value = jnp.linspace(-1.0, 1.0, num_particles)

    def step(key, state, action):  # steps all particles together, so that each gets its own Q-value
        return ModelOutput(
            state=state,
            prior=jnp.zeros((1, num_particles, 2)),
            value=next_value[None],
            reward=(q_values - gamma * next_value)[None],
            discount=jnp.full((1, num_particles), gamma),
            ended=jnp.zeros((1, num_particles), bool),
        )

    output = jax.jit(
        lambda key, root: spo.search.search(
            key,
            root,
            BatchedModel(step),
            num_particles=num_particles,
            horizon=1,
            temperature=case["temperature"],
            resampling=Resampling(None),
        )
    )(jax.random.key(0), Root(prior=jnp.zeros((1, 2)), value=jnp.array([value]), state=jnp.zeros(1)))
    np.testing.assert_allclose(output.weights[0], case["weights"], rtol=2e-4, atol=1e-7)
    # rlax feeds Q-values, we advantages: the baseline moves the loss by V(s) and the weights not at all.
    np.testing.assert_allclose(output.temperature_advantages[0] + value, case["q_values"], rtol=1e-5, atol=1e-5)
    temperature_loss = case["temperature"] * (case["epsilon"] + output.log_normaliser[0]) + value
    np.testing.assert_allclose(temperature_loss, case["temperature_loss"], rtol=1e-4)
