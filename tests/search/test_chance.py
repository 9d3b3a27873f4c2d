"""Tests of searches with chance: the risk-neutral target by enumeration, and a lottery that a plain search prefers.

Means are compared by two-sided z-tests at a false-alarm rate of 1e-6, as in test_exact.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo.search
from oracles import enumeration
from search.test_exact import HORIZON, MDP, ROOT_STATES, TEMPERATURES, assert_posterior_is_right
from spo.environments.tiny import tiny
from spo.search import ModelOutput, Resampling, Root, chance, readouts

GAMMA = 0.9
ETA = 0.25
RISK_NEUTRAL = float(np.exp(-0.2 / ETA) / (1 + np.exp(-0.2 / ETA)))  # 0.310
GAMBLING = float((lambda w: w / (1 + w))(0.4 * np.exp(1 / ETA) + 0.6 * np.exp(-1 / ETA)))  # 0.956


def outcomes_of(mdp: enumeration.TabularMDP, gamma: float):
    """The MDP as a model that lists its outcomes, all states."""

    def outcomes_fn(state, action):
        num_states = len(mdp.value)
        outputs = ModelOutput(
            state=jnp.arange(num_states, dtype=state.dtype),
            prior=jnp.log(jnp.asarray(mdp.prior, jnp.float32)),
            # A value that no outcome of positive probability has must not count.
            value=jnp.asarray(mdp.value, jnp.float32),
            reward=jnp.full(num_states, jnp.asarray(mdp.reward, jnp.float32)[state, action]),
            discount=gamma * (1.0 - jnp.asarray(mdp.terminated, jnp.float32)),
            ended=jnp.asarray(mdp.ended),
        )
        return chance.Outcomes(jnp.asarray(mdp.transition, jnp.float32)[state, action], outputs)

    return outcomes_fn


def expected_advantage(mdp: enumeration.TabularMDP, gamma: float) -> enumeration.Score:
    """Score of a transition: its mean over the next states, less V(s)."""
    q_values = mdp.reward + gamma * mdp.transition @ np.where(mdp.terminated, 0.0, mdp.value)
    return lambda step: q_values[step.state, step.action] - step.value


@pytest.mark.parametrize("period", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_listed_outcomes_give_the_risk_neutral_target(period):
    num_roots = 512
    root = enumeration.root_of(MDP, np.repeat(ROOT_STATES, num_roots))
    output = jax.jit(
        lambda key, root: spo.search.search(
            key,
            root,
            chance.enumerated(outcomes_of(MDP, GAMMA)),
            num_particles=1024,
            horizon=HORIZON,
            temperature=jnp.repeat(jnp.asarray(TEMPERATURES), num_roots),
            resampling=Resampling(period),
            unroll=1,
        )
    )(jax.random.key(0), root)
    output = jax.tree.map(lambda x: x.reshape(len(ROOT_STATES), num_roots, *x.shape[1:]), output)
    answers = [
        enumeration.enumerate_trajectories(
            MDP,
            state,
            horizon=HORIZON,
            temperature=temperature,
            gamma=GAMMA,
            score=expected_advantage(MDP, GAMMA),
        )
        for state, temperature in zip(ROOT_STATES, TEMPERATURES, strict=True)
    ]
    assert_posterior_is_right(output, answers)
    # The target differs from the plain one by more than the test can miss.
    plain = enumeration.enumerate_trajectories(
        MDP, ROOT_STATES[0], horizon=HORIZON, temperature=TEMPERATURES[0], gamma=GAMMA
    )
    assert abs(plain.value - answers[0].value) > 0.2


def lottery_model(num_steps: int):
    """The lottery with a uniform policy and V = 0."""
    environment = tiny("lottery", num_steps=num_steps).model

    def model_fn(key, state, action):
        state, timestep = environment.step(key, state, action)
        return ModelOutput(
            state=state,
            prior=jnp.zeros(2),
            value=jnp.zeros(()),
            reward=timestep.reward,
            discount=timestep.discount,
            ended=timestep.ended,
        )

    return environment, model_fn


def weight_of_the_lottery(num_steps: int, num_outcomes: int, num_particles: int, **settings) -> np.ndarray:
    """Returns the weight on the lottery in 1 024 searches with V = 0."""
    environment, model_fn = lottery_model(num_steps)
    num_roots = 1024
    state, _ = jax.vmap(environment.reset)(jax.random.split(jax.random.key(1), num_roots))
    root = Root(prior=jnp.zeros((num_roots, 2)), value=jnp.zeros(num_roots), state=state)
    output = jax.jit(
        lambda key: spo.search.search(
            key,
            root,
            chance.sampled(model_fn, num_outcomes),
            num_particles=num_particles,
            horizon=num_steps,
            temperature=ETA,
            resampling=Resampling(None),
            unroll=1,
            **settings,
        )
    )(jax.random.key(0))
    return np.asarray(output.action_weights[:, 1])


@pytest.mark.parametrize(("num_outcomes", "expected", "tolerance"), [(1, GAMBLING, 0.02), (16, RISK_NEUTRAL, 0.02)])
def test_sixteen_outcomes_make_one_step_risk_neutral(num_outcomes, expected, tolerance):
    weights = weight_of_the_lottery(1, num_outcomes, num_particles=512)
    assert weights.mean() == pytest.approx(expected, abs=tolerance)


def test_mean_returns_are_risk_neutral_over_two_steps_with_an_untrained_value():
    plain = weight_of_the_lottery(2, 16, num_particles=64)
    assert plain.mean() > 0.9  # V = 0 prices nothing at the first step, so outcomes drawn there do not help
    weights = weight_of_the_lottery(2, 1, num_particles=64, readout=readouts.mean_returns)
    assert weights.mean() == pytest.approx(RISK_NEUTRAL, abs=0.05)


def test_mean_returns_keep_the_prior_and_the_corrections_of_first_actions():
    """With a constant return, the read-out is the distribution of the root samples, corrected by their weights."""

    def model_fn(_key, state, _action):
        return ModelOutput(state, jnp.zeros(3), jnp.zeros(()), jnp.ones(()), jnp.zeros(()), jnp.asarray(True))

    logits = jnp.log(jnp.asarray([[0.5, 0.3, 0.2]]))
    root = Root(prior=logits, value=jnp.zeros(1), state=jnp.zeros(1), proposal=jnp.zeros((1, 3)))
    proposal = spo.search.Proposal(root_fn=spo.search.proposals.corrected_root(spo.distributions.categorical))
    output = spo.search.search(
        jax.random.key(0),
        root,
        model_fn,
        num_particles=4096,
        horizon=1,
        temperature=0.1,
        resampling=Resampling(None),
        proposal=proposal,
        readout=readouts.mean_returns,
    )
    np.testing.assert_allclose(output.action_weights[0], [0.5, 0.3, 0.2], atol=0.04)


def test_mean_returns_refuse_particles_that_are_resampled():
    environment, model_fn = lottery_model(2)
    state, _ = jax.vmap(environment.reset)(jax.random.split(jax.random.key(1), 2))
    root = Root(prior=jnp.zeros((2, 2)), value=jnp.zeros(2), state=state)
    for resampling in (Resampling(1), Resampling(2, last=True)):
        with pytest.raises(ValueError, match=r"readouts.mean_returns .* use Resampling\(period=None\)"):
            spo.search.search(
                jax.random.key(0),
                root,
                model_fn,
                num_particles=4,
                horizon=2,
                temperature=1.0,
                resampling=resampling,
                readout=readouts.mean_returns,
            )


def test_one_outcome_is_the_model_itself_and_none_is_refused():
    _, model_fn = lottery_model(1)
    assert chance.sampled(model_fn, 1) is model_fn
    with pytest.raises(ValueError, match="num_outcomes must be at least 1"):
        chance.sampled(model_fn, 0)
