"""Tests of the experiment on cold searches, and of the reason that it gives: a detour is free without a discount."""

import dataclasses

import cold_search
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo import presets
from spo.algorithms.trust_region import Duals
from spo.search import ModelOutput, Resampling, Root, search

SOLVE, STAY = 0, 1


def weight_of_the_goal(gamma: float) -> float:
    """Returns the weight of the action that reaches the goal from a state whose value is that of the goal, 1."""

    def model_fn(key, state, action):
        solves = action == SOLVE
        return ModelOutput(
            state=state,
            prior=jnp.zeros(2),
            value=jnp.ones(()),  # of the state next to the goal
            reward=1.0 * solves,
            discount=gamma * (1.0 - solves),
            ended=solves,
        )

    root = Root(prior=jnp.zeros((1, 2)), value=jnp.ones(1), state=jnp.zeros(1))
    resampling = Resampling(period=4, last=False)
    output = search(
        jax.random.key(0), root, model_fn, num_particles=4096, horizon=4, temperature=0.01, resampling=resampling
    )
    return float(output.action_weights[0, SOLVE])


def test_a_detour_is_free_without_a_discount_and_costs_weight_with_one():
    assert weight_of_the_goal(1.0) == pytest.approx(0.5, abs=0.03)
    # Of the paths through STAY, each costs at least 1 - 0.9 in advantage: exp(-0.1 / 0.01) of the weight.
    assert weight_of_the_goal(0.9) > 0.999


def test_only_the_discount_of_the_search_changes():
    experiment = presets.get("default")
    changed = cold_search.with_search_gamma(experiment, 0.5)
    assert changed.config.search.gamma == 0.5
    assert dataclasses.replace(changed, config=experiment.config) == experiment
    assert changed.config.gamma == experiment.config.gamma


def test_the_learner_gets_the_temperature():
    learner = make_learner(temperature=0.3)
    cold = cold_search.with_temperature(learner, 1e-3)
    np.testing.assert_allclose(cold.duals.temperature, [1e-3], rtol=1e-3)
    np.testing.assert_allclose(learner.duals.temperature, [0.3], rtol=1e-5)


def make_learner(temperature: float) -> "Learner":
    duals = Duals(jnp.log(jnp.expm1(jnp.full(1, temperature))), {})
    return Learner(duals)


@dataclasses.dataclass(frozen=True)
class Learner:
    """The part of a learner that the experiment changes."""

    duals: Duals

    def _replace(self, **changes: Duals) -> "Learner":
        return dataclasses.replace(self, **changes)
