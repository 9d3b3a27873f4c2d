"""Tests of searches with chance: the risk-neutral target by enumeration, and lotteries that a plain search prefers.

Means are compared by two-sided z-tests at a false-alarm rate of 1e-6, as in test_exact.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo.search
from oracles import enumeration
from search.test_exact import HORIZON, MAX_Z, MDP, ROOT_STATES, TEMPERATURES, assert_posterior_is_right
from spo.algorithms.planning import PlanningConfig, SearchConfig, make_over_chance, make_planner
from spo.environments.tiny import tiny
from spo.keys import numbered_keys
from spo.networks import make_network
from spo.networks.config import NetworkConfig, make_architecture
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
    assert_risk_neutral(chance.enumerated(outcomes_of(MDP, GAMMA)), period, num_roots=512, num_particles=1024)


@pytest.mark.parametrize("num_outcomes", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_shared_outcomes_give_the_risk_neutral_target(num_outcomes):
    """The model returns NaN for particles that have ended, which no other particle may see."""
    model = chance.shared(enumeration.model_fn_of(MDP, GAMMA), num_outcomes)
    assert_risk_neutral(model, 1, num_roots=64, num_particles=2048)


def assert_risk_neutral(model, period, num_roots, num_particles):
    """Compares a search of the MDP with the target whose score is the mean over chance."""
    root = enumeration.root_of(MDP, np.repeat(ROOT_STATES, num_roots))
    output = jax.jit(
        lambda key, root: spo.search.search(
            key,
            root,
            model,
            num_particles=num_particles,
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


class Lottery(NamedTuple):
    """A safe action that pays 0, and one that pays `gain` or `loss`, at once or in the second step."""

    win_probability: float
    gain: float
    loss: float
    num_steps: int = 1
    value_is_right: bool = False  # V of the states between the two steps; else V = 0

    @property
    def mean(self) -> float:
        return self.win_probability * self.gain + (1 - self.win_probability) * self.loss

    @property
    def deviation(self) -> float:
        return math.sqrt(self.win_probability * (1 - self.win_probability)) * (self.gain - self.loss)

    def risk_neutral(self, temperature: float) -> float:
        """Returns the weight of the lottery if actions are weighted by exp(mean / η)."""
        return 1 / (1 + math.exp(-self.mean / temperature))

    def mean_weight(self, temperature: float, num_outcomes: int) -> float:
        """Returns E[exp((mean of M outcomes − their variance / 2Mη) / η)], summed over all numbers of wins."""
        total = 0.0
        for wins in range(num_outcomes + 1):
            outcomes = np.repeat([self.gain, self.loss], [wins, num_outcomes - wins])
            correction = outcomes.var(ddof=1) / (2 * num_outcomes * temperature) if num_outcomes > 1 else 0.0
            chances = self.win_probability**wins * (1 - self.win_probability) ** (num_outcomes - wins)
            weight = math.exp((outcomes.mean() - correction) / temperature)
            total += math.comb(num_outcomes, wins) * chances * weight
        return total

    def model_fn(self, key, state, action):
        """The state is the payment to come."""
        drawn = jnp.where(jax.random.bernoulli(key, self.win_probability), self.gain, self.loss)
        pays_later = (self.num_steps == 2) & jnp.isnan(state) & (action == 1)
        payment = jnp.where(jnp.isnan(state), jnp.where(action == 1, drawn, 0.0), state)
        return ModelOutput(
            state=payment,
            prior=jnp.zeros(2),
            value=jnp.where(self.value_is_right, payment, 0.0),
            reward=jnp.where(pays_later, 0.0, payment),
            discount=1.0 * pays_later,
            ended=~pays_later,
        )

    def play(self, wrap, *, num_particles, temperature, num_roots=256, **settings):
        """Searches from the first state. Its payment is not known yet, and NaN would differ from itself: it is 99.

        Several temperatures share the roots.
        """
        temperature = jnp.repeat(jnp.atleast_1d(jnp.asarray(temperature)), num_roots)
        num_roots = temperature.size

        def model_fn(key, state, action):
            return self.model_fn(key, jnp.where(state == 99.0, jnp.nan, state), action)

        root = Root(prior=jnp.zeros((num_roots, 2)), value=jnp.zeros(num_roots), state=jnp.full(num_roots, 99.0))
        return jax.jit(
            lambda key: spo.search.search(
                key,
                root,
                wrap(model_fn),
                num_particles=num_particles,
                horizon=self.num_steps,
                temperature=temperature,
                resampling=Resampling(None),
                unroll=1,
                **settings,
            )
        )(jax.random.key(2))


EVEN, GOOD, RARE_GAIN, RARE_LOSS = (
    Lottery(0.4, 1.0, -1.0),
    Lottery(0.6, 1.0, -1.0),
    Lottery(0.1, 3.0, -0.6),
    Lottery(0.9, 0.2, -2.2),
)
every_lottery = pytest.mark.parametrize(
    "lottery", [EVEN, GOOD, RARE_LOSS, RARE_GAIN], ids=["even", "good", "rare loss", "rare gain"]
)


@pytest.mark.parametrize(
    ("lottery", "num_outcomes", "temperature"),
    [(EVEN, 1, 0.5), (EVEN, 4, 0.5), (EVEN, 16, 0.25), (RARE_GAIN, 16, 0.5), (RARE_LOSS, 2, 0.5), (GOOD, 3, 1.0)],
)
def test_scores_are_corrected_for_the_variance_of_the_mean(lottery, num_outcomes, temperature):
    """E[Ẑ] is exact for any number of particles, also where the correction is not."""
    output = lottery.play(
        lambda model: chance.sampled(model, num_outcomes), num_particles=64, temperature=temperature, num_roots=4096
    )
    estimates = np.exp(np.asarray(output.log_normaliser, np.float64))
    expected = 0.5 + 0.5 * lottery.mean_weight(temperature, num_outcomes)
    standard_error = estimates.std(ddof=1) / math.sqrt(estimates.size)
    assert standard_error / expected < 0.005
    assert abs(estimates.mean() - expected) < MAX_Z * standard_error


@every_lottery
def test_the_number_of_outcomes_must_grow_with_the_square_of_deviation_over_temperature(lottery):
    """With many particles: within 0.05 at M = (s/η)², within 0.01 at four times it, and wrong at a quarter of it."""

    def error(num_outcomes: int, needed: float) -> float:
        """Returns the error at a temperature where (s/η)² is `needed`."""
        temperature = lottery.deviation / math.sqrt(needed)
        weight = lottery.mean_weight(temperature, num_outcomes)
        return abs(weight / (1 + weight) - lottery.risk_neutral(temperature))

    for num_outcomes in (16, 64):
        assert error(num_outcomes, needed=num_outcomes) <= 0.05
        assert error(num_outcomes, needed=num_outcomes / 4) <= 0.01
    assert error(16, needed=64) > 0.03


FAR_APART = (1.0, 0.25, 0.1)


def assert_weights_are_risk_neutral(output, lottery, tolerance):
    """Compares the mean weight of the lottery with exp(mean / η), for each of the temperatures."""
    weights = np.asarray(output.action_weights[:, 1]).reshape(len(FAR_APART), -1)
    for of_temperature, temperature in zip(weights, FAR_APART, strict=True):
        assert of_temperature.mean() == pytest.approx(lottery.risk_neutral(temperature), abs=tolerance)


@every_lottery
def test_shared_outcomes_are_risk_neutral_at_every_temperature(lottery):
    settings = {"num_particles": 512, "temperature": FAR_APART, "num_roots": 64}
    output = lottery.play(lambda model: chance.shared(model, 16), **settings)
    assert_weights_are_risk_neutral(output, lottery, tolerance=0.02)


@pytest.mark.parametrize("lottery", [EVEN, pytest.param(RARE_LOSS, marks=pytest.mark.slow)])
def test_shared_outcomes_are_risk_neutral_over_two_steps_with_the_right_value(lottery):
    lottery = lottery._replace(num_steps=2)
    settings = {"num_particles": 512, "temperature": FAR_APART, "num_roots": 64}
    untrained = lottery.play(chance.shared, **settings)
    assert np.mean(untrained.action_weights[:, 1]) > 0.5  # V = 0 prices nothing at the first step
    output = lottery._replace(value_is_right=True).play(lambda model: chance.shared(model, 16), **settings)
    assert_weights_are_risk_neutral(output, lottery, tolerance=0.02)


@every_lottery
def test_mean_returns_are_risk_neutral_at_every_temperature(lottery):
    lottery = lottery._replace(num_steps=2)
    output = lottery.play(
        lambda model: model,
        num_particles=512,
        temperature=FAR_APART,
        num_roots=256,
        readout=readouts.mean_returns,
    )
    assert_weights_are_risk_neutral(output, lottery, tolerance=0.05)


def test_sixteen_particles_that_share_are_closer_than_four_with_four_outcomes():
    """At equal model steps, by the root mean square error over searches."""
    errors = {}
    for name, wrap, num_particles in (
        ("plain", lambda model: model, 16),
        ("4 outcomes", lambda model: chance.sampled(model, 4), 4),
        ("shared", chance.shared, 16),
    ):
        output = EVEN.play(wrap, num_particles=num_particles, temperature=ETA, num_roots=4096)
        error = np.asarray(output.action_weights[:, 1]) - RISK_NEUTRAL
        errors[name] = np.sqrt(np.mean(error**2))
    assert errors["shared"] < 0.5 * errors["plain"]
    assert errors["shared"] < errors["4 outcomes"] - 0.03


def test_particles_that_have_nothing_in_common_share_nothing():
    """Different states of a belief: every number is that of the plain search."""

    def model_fn(key, state, action):
        cell, unused = state
        reward = cell + jnp.where(action == 1, jax.random.normal(key), 0.0)
        return ModelOutput((cell + 0.5, unused), jnp.zeros(2), cell, reward, jnp.ones(()), cell > 100.0)

    zeros = jnp.zeros((3, 8))
    states = (jnp.arange(3 * 8.0).reshape(3, 8), zeros.at[0].set(jnp.nan))  # a NaN differs from itself
    root = Root(prior=jnp.zeros((3, 2)), value=jnp.zeros((3, 8)), state=states)
    settings = {"num_particles": 8, "horizon": 3, "temperature": 1.0, "resampling": Resampling(None)}
    plain = spo.search.search(jax.random.key(0), root, model_fn, **settings)
    shared = spo.search.search(jax.random.key(0), root, chance.shared(model_fn), **settings)
    jax.tree.map(np.testing.assert_array_equal, plain, shared)
    # The same states for all particles: the scores of one action are equal.
    same = spo.search.search(
        jax.random.key(0), root._replace(state=(zeros, zeros)), chance.shared(model_fn), **settings | {"horizon": 1}
    )
    for actions, scores in zip(same.root_actions, same.temperature_advantages, strict=True):
        assert len(set(np.asarray(scores)[np.asarray(actions) == 1].tolist())) == 1


def test_a_particle_alone_is_scored_by_the_mean_of_its_own_outcomes():
    state, action = jnp.full((1, 1), jnp.nan), jnp.ones((1, 1), jnp.int32)
    shared = chance.shared(EVEN.model_fn, 8).step(jax.random.key(0), state, action)
    sampled = chance.sampled(EVEN.model_fn, 8)(
        numbered_keys(jax.random.key(0), (1, 1))[0, 0], state[0, 0], action[0, 0]
    )
    assert shared.expected.mean[0, 0] == sampled.expected.mean
    assert abs(shared.expected.mean[0, 0]) < 1  # neither all won nor all lost
    assert shared.expected.variance[0, 0] == 0 < sampled.expected.variance
    assert shared.reward[0, 0] == sampled.reward


def test_training_changes_the_model_only_if_it_is_asked_for():
    def model_fn(_key, _state, _action):
        raise AssertionError

    assert make_over_chance(SearchConfig())(model_fn) is model_fn
    assert make_over_chance(SearchConfig(weighting="q_value"))(model_fn) is model_fn
    assert make_over_chance(SearchConfig(num_outcomes=2))(model_fn) is not model_fn
    shared = make_over_chance(SearchConfig(weighting="shared_advantage"))(model_fn)
    assert isinstance(shared, spo.search.BatchedModel)


def test_searches_in_training_score_by_means_over_chance():
    """The scores of a search on the lottery, of all particles that play it: drawn, averaged, or equal."""
    environment = tiny("lottery").model
    architecture = make_architecture(environment, NetworkConfig(kind="mlp", width=4, depth=1))
    network = make_network(environment.observation_spec, environment.action_spec, architecture)
    state, timestep = jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 2))

    def scores(**settings):
        config = PlanningConfig(search=SearchConfig(num_particles=32, horizon=1, **settings))
        plan = make_planner(config, environment, network).plan
        output = plan(
            network.init(jax.random.key(1), environment.observation_spec),
            jnp.float32(100.0),
            jax.random.key(2),
            state,
            timestep,
        )[1]
        return np.asarray(output.temperature_advantages[0])[np.asarray(output.root_actions[0]) == 1]

    assert len(set(scores().tolist())) == 2  # won or lost
    assert len(set(scores(num_outcomes=4).tolist())) > 2
    assert len(set(scores(weighting="shared_advantage").tolist())) == 1
    assert len(set(scores(weighting="shared_advantage", num_outcomes=4).tolist())) == 1


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


@pytest.mark.parametrize(
    ("wrap", "readout"),
    [
        (lambda model: model, readouts.last),
        (lambda model: model, readouts.mean_returns),
        (lambda model: chance.sampled(model, 4), readouts.last),
        (chance.shared, readouts.last),
    ],
    ids=["plain", "mean returns", "four outcomes", "shared"],
)
def test_a_step_that_must_not_be_taken_gets_no_weight_and_spoils_no_other(wrap, readout):
    def model_fn(key, state, action):
        reward = jnp.where(action == 1, -jnp.inf, 0.0)
        return ModelOutput(state, jnp.zeros(3), jnp.zeros(()), reward, jnp.zeros(()), ended=jnp.array(True))

    root = Root(prior=jnp.zeros((1, 3)), value=jnp.zeros(1), state=jnp.zeros(1))
    output = spo.search.search(
        jax.random.key(0),
        root,
        wrap(model_fn),
        num_particles=64,
        horizon=1,
        temperature=0.5,
        resampling=Resampling(period=None),
        readout=readout,
    )
    assert output.diagnostics.valid.all()
    assert output.action_weights[0, 1] == 0.0
    assert (output.action_weights[0, jnp.array([0, 2])] > 0.2).all()


def test_one_outcome_is_the_model_itself_and_none_is_refused():
    _, model_fn = lottery_model(1)
    assert chance.sampled(model_fn, 1) is model_fn
    for wrap in (chance.sampled, chance.shared):
        with pytest.raises(ValueError, match="num_outcomes must be at least 1"):
            wrap(model_fn, 0)
