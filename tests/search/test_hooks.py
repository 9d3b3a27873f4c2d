"""The functions that can be plugged in, each against exact enumeration.

Means are compared by two-sided z-tests at a false-alarm rate of 1e-6, as in test_exact.
"""

import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo.search
from oracles import enumeration
from search.test_exact import HORIZON, MDP, ROOT_STATES, TEMPERATURES, assert_posterior_is_right, assert_unbiased
from spo.distributions import Gaussian, gaussian
from spo.search import (
    ModelOutput,
    Proposal,
    Proposed,
    Readout,
    Resampling,
    Root,
    RootWeights,
    proposals,
    readouts,
    resampling,
    weighting,
)

GAMMA = 0.9


def search(num_roots, num_particles, *, root=None, **settings):
    """`num_roots` independent searches from each kind of root; outputs have shape [2, num_roots, ...]."""
    root = enumeration.root_of(MDP, np.repeat(ROOT_STATES, num_roots)) if root is None else root
    defaults = {
        "horizon": HORIZON,
        "unroll": 1,
        "temperature": jnp.repeat(jnp.asarray(TEMPERATURES), num_roots),
        "resampling": Resampling(1),
    }
    output = jax.jit(
        lambda key, root: spo.search.search(
            key, root, enumeration.model_fn_of(MDP, GAMMA), num_particles=num_particles, **{**defaults, **settings}
        )
    )(jax.random.key(0), root)
    return jax.tree.map(lambda x: x.reshape(len(ROOT_STATES), num_roots, *x.shape[1:]), output)


def exact(mdp=MDP, temperatures=TEMPERATURES, **settings):
    return [
        enumeration.enumerate_trajectories(
            mdp, state, horizon=HORIZON, temperature=temperature, **{"gamma": GAMMA, **settings}
        )
        for state, temperature in zip(ROOT_STATES, temperatures, strict=True)
    ]


# --- Proposals at every depth -----------------------------------------------------------------------------------------
def flattened(prior):
    """Probabilities between the prior and uniform, with the same masks. Takes NumPy or JAX arrays."""
    root = prior**0.3
    return root / root.sum(-1, keepdims=True)


def flattened_logits(node):
    return jnp.log(flattened(jnp.exp(node.prior - jax.nn.logsumexp(node.prior))))


def test_a_corrected_proposal_leaves_the_target_alone():
    output = search(128, 1024, proposal=Proposal(step_fn=proposals.corrected(flattened_logits)))
    answers = exact()
    assert_unbiased(output.log_normaliser, answers)
    assert_posterior_is_right(output, answers)


def test_a_proposal_without_a_correction_takes_the_place_of_the_prior():
    def propose(key, node):
        return Proposed(jax.random.categorical(key, flattened_logits(node)), jnp.zeros(()))

    output = search(128, 1024, proposal=Proposal(step_fn=propose))
    rows = MDP.prior.sum(1) > 0
    other_prior = np.zeros_like(MDP.prior)
    other_prior[rows] = flattened(MDP.prior[rows])
    answers = exact(MDP._replace(prior=other_prior))
    assert_unbiased(output.log_normaliser, answers)
    assert_posterior_is_right(output, answers)
    assert abs(answers[0].normaliser / exact()[0].normaliser - 1) > 0.02, "the test must be able to tell"


def test_a_proposal_sees_state_value_depth_temperature_and_weight():
    """Proposes action 0 unless all fields have the values that they must have at the second depth."""

    def propose(key, node):
        expected = (
            (node.depth == 1)
            & (node.state == 1)
            & (node.value == -0.5)
            & (node.temperature == 2.0)
            & jnp.isclose(node.log_weight, (1.0 - 0.5 - 0.25) / 2.0)
        )
        return Proposed(expected.astype(jnp.int32), jnp.zeros(()))

    def model_fn(_key, state, action):
        del action
        return ModelOutput(state + 1, jnp.zeros(2), jnp.float32(-0.5), jnp.ones(()), jnp.ones(()), jnp.zeros((), bool))

    output = spo.search.search(
        jax.random.key(0),
        Root(prior=jnp.zeros((1, 2)), value=jnp.full(1, 0.25), state=jnp.zeros(1, jnp.int32)),
        model_fn,
        num_particles=3,
        horizon=3,
        temperature=2.0,
        resampling=Resampling(None),
        proposal=Proposal(step_fn=propose),
        with_ancestry=True,
    )
    np.testing.assert_array_equal(output.ancestry.action[0], [[0] * 3, [1] * 3, [0] * 3])


# --- Scores -----------------------------------------------------------------------------------------------------------
def test_a_score_sees_states_action_depth_and_temperature():
    """One expression serves as the score of the search and of the enumeration."""

    def twist(step):
        return 0.3 * step.state * step.action - 0.2 * step.next_state * step.depth + 0.1 * step.temperature

    output = search(128, 1024, score_fn=lambda step: weighting.advantage(step) + twist(step))
    answers = exact(score=lambda step: enumeration.advantage(step) + twist(step))
    assert_unbiased(output.log_normaliser, answers)
    assert_posterior_is_right(output, answers)
    assert abs(answers[0].normaliser / exact()[0].normaliser - 1) > 0.05, "the test must be able to tell"


@pytest.mark.slow
def test_a_score_sees_priors_and_ends():
    """The score counts ended steps and the valid actions of the next state: both are known from the tables."""
    valid_actions = (MDP.prior > 0).sum(1)

    def score_fn(step):
        return 0.2 * step.ended - 0.1 * jnp.sum(step.next_prior > -jnp.inf) + 0.05 * jnp.sum(step.prior > -jnp.inf)

    def score(step):
        following, current = valid_actions[step.next_state], valid_actions[step.state]
        return 0.2 * MDP.ended[step.next_state] - 0.1 * following + 0.05 * current

    output = search(128, 1024, score_fn=score_fn)
    assert_unbiased(output.log_normaliser, exact(score=score))
    assert_posterior_is_right(output, exact(score=score))


def test_a_score_sees_the_weight():
    """A score that takes the weight away leaves equal weights, whatever the rewards were before."""
    settings = {"resampling": Resampling(None), "with_ancestry": True}
    forget = search(
        2, 16, score_fn=lambda s: jnp.where(s.depth == 3, -s.temperature * s.log_weight, s.reward), **settings
    )
    remember = search(2, 16, score_fn=lambda s: jnp.where(s.depth == 3, 0.0, s.reward), **settings)
    was_live = ~np.asarray(forget.ancestry.ended[..., 2, :])
    assert was_live.any()
    np.testing.assert_allclose(np.asarray(forget.ancestry.log_weights[..., 3, :])[was_live], 0.0, atol=1e-6)
    assert np.ptp(np.asarray(remember.ancestry.log_weights[..., 3, :])[was_live]) > 0.1


# --- Resampling rules -------------------------------------------------------------------------------------------------
RULES = {
    "tempered 0": resampling.tempered(0.0),
    "tempered 0.5": resampling.tempered(0.5, resampling.multinomial),
    "tempered 1": resampling.tempered(1.0, resampling.multinomial),
    # Auxiliary resampling: the value of a state raises its priority.
    "auxiliary": resampling.by_priority(lambda particles: particles.log_weights + 0.4 * particles.value),
}


# Compiling is what these tests cost, so the rule is chosen while running: one program serves all four.
@functools.partial(jax.jit, static_argnames=("settings",))
def _search_by_rule(index, settings):
    rule = lambda key, particles: jax.lax.switch(index, list(RULES.values()), key, particles)  # noqa: E731
    return search(2**12, 16, resampling=Resampling(1, rule, **dict(settings)))


@pytest.mark.parametrize(
    "settings",
    [pytest.param((), marks=pytest.mark.slow), (("ess_below", 0.9), ("last", True))],
    ids=["always", "ess, last"],
)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_keeps_weights_stays_unbiased(name, settings):
    output = _search_by_rule(list(RULES).index(name), settings)
    assert_unbiased(output.log_normaliser, exact(), detectable=0.03)
    assert np.all(output.diagnostics.valid)


@pytest.mark.slow
def test_read_out_with_partial_resampling_meets_the_posterior():
    output = search(128, 1024, resampling=Resampling(1, RULES["auxiliary"]))
    assert_posterior_is_right(output, exact())
    assert np.asarray(output.weights).std() > 0.1 / 1024, "weights must not all be equal after this rule"


@pytest.mark.slow
def test_tempered_with_exponent_one_is_by_weight():
    plain = search(4, 16, resampling=Resampling(1, resampling.by_weight(resampling.systematic)))
    tempered = search(4, 16, resampling=Resampling(1, resampling.tempered(1.0, resampling.systematic)))
    np.testing.assert_allclose(plain.action_weights, tempered.action_weights, atol=1e-5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        resampling.tempered(1.5)


def test_a_rule_may_keep_particles_of_weight_0():
    """Two of three root actions are masked here, so that some of the candidates have weight 0."""
    root = enumeration.root_of(MDP, np.repeat(ROOT_STATES, 4))
    root = root._replace(prior=jnp.broadcast_to(jnp.array([0.0, -jnp.inf, -jnp.inf]), root.prior.shape))
    proposal = Proposal(root_fn=proposals.without_replacement(3))
    for exponent in (0.0, 0.5):
        rule = resampling.tempered(exponent)
        output = search(4, 8, root=root, proposal=proposal, resampling=Resampling(1, rule), with_ancestry=True)
        assert np.any(np.isneginf(output.ancestry.log_weights))
        assert np.all(output.diagnostics.valid)
        np.testing.assert_allclose(np.asarray(output.action_weights)[..., 0], 1.0, rtol=1e-5)


# --- Temperatures -----------------------------------------------------------------------------------------------------
def test_temperature_follows_the_depth():
    output = search(128, 1024, temperature=lambda depth, _ess: 1.2 + 0.5 * depth)
    answers = exact(temperatures=[lambda depth: 1.2 + 0.5 * depth] * 2)
    assert_unbiased(output.log_normaliser, answers)
    assert_posterior_is_right(output, answers)


def test_temperature_follows_the_effective_sample_size():
    """Each depth divides its scores by a temperature that is a function of the weights before the step."""
    num_particles = 16
    settings = {"resampling": Resampling(None), "with_ancestry": True, "score_fn": lambda step: step.reward}
    output = search(8, num_particles, temperature=lambda _depth, ess: 0.5 + ess / num_particles, **settings)
    ess = np.asarray(output.diagnostics.ess)
    before = np.concatenate([np.full((*ess.shape[:2], 1), num_particles), ess[..., :-1]], -1)
    growth = np.diff(np.asarray(output.ancestry.log_weights), axis=2, prepend=0.0)
    expected = np.asarray(output.ancestry.reward) / (0.5 + before / num_particles)[..., None]
    np.testing.assert_allclose(growth, expected, rtol=1e-3, atol=1e-5)
    assert np.ptp(before) > 0.5


def test_a_temperature_function_that_is_not_positive_makes_roots_invalid():
    output = search(2, 4, temperature=lambda depth, _ess: 1.0 - depth)
    assert not np.any(output.diagnostics.valid)
    assert np.all(np.isnan(output.weights))


# --- A belief at the root ---------------------------------------------------------------------------------------------
def belief(num_roots, num_particles):
    """Half of the particles of every root start in state 0, the others in state 2, with a prior that fits both."""
    states = np.broadcast_to(np.repeat(ROOT_STATES, num_particles // 2), (2 * num_roots, num_particles))
    prior = jnp.broadcast_to(jnp.log(jnp.asarray(BELIEF_PRIOR)), (2 * num_roots, 3))
    return Root(prior=prior, value=jnp.asarray(MDP.value[states], jnp.float32), state=jnp.asarray(states, jnp.int32))


BELIEF_PRIOR = (0.2, 0.5, 0.3)


@pytest.mark.parametrize(("num_roots", "num_particles", "period"), [(2**13, 8, 1), (128, 1024, 2)])
def test_a_belief_searches_from_all_its_states(num_roots, num_particles, period):
    """Z is the mean of the hypotheses' Z, and the posterior their mixture in proportion to Z."""
    output = search(num_roots, num_particles, root=belief(num_roots, num_particles), resampling=Resampling(period))
    answers = []
    for temperature in TEMPERATURES:
        # The two hypotheses of one belief share its temperature.
        parts = [
            enumeration.enumerate_trajectories(
                MDP,
                state,
                horizon=HORIZON,
                temperature=temperature,
                gamma=GAMMA,
                root_proposal=np.asarray(BELIEF_PRIOR),
            )
            for state in ROOT_STATES
        ]
        total = sum(part.normaliser for part in parts)
        answers.append(
            enumeration.Exact(
                normaliser=total / 2,
                action_posterior=sum(part.normaliser * part.action_posterior for part in parts) / total,
                value=sum(part.normaliser * part.value for part in parts) / total,
                num_ends=parts[0].num_ends,
            )
        )
    assert_unbiased(output.log_normaliser, answers, detectable=0.05)
    if num_particles > 100:
        assert_posterior_is_right(output, answers)


# --- Read-outs --------------------------------------------------------------------------------------------------------
def test_a_readout_of_your_own_is_a_fold_over_depths():
    """Reads out the mean number of live steps per root sample, to see that every part of the fold is called."""
    fold = Readout(
        init=lambda particles: jnp.zeros_like(particles.log_weights),
        update=lambda total, particles: total + particles.live,
        finish=lambda total, inputs: RootWeights(
            inputs.particles.root_index, total / jnp.sum(total) + 0 * inputs.horizon
        ),
    )
    output = search(4, 8, readout=fold, resampling=Resampling(None))
    live_steps = np.asarray(output.diagnostics.num_live).sum(-1, keepdims=True)
    np.testing.assert_allclose(output.weights.sum(-1), 1.0, rtol=1e-5)
    counts = np.asarray(output.weights) * live_steps
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
    assert np.all(np.asarray(readouts.sum_by_root_sample(jnp.ones(3), jnp.array([0, 0, 2]))) == [2, 0, 1])


def test_a_readout_sees_the_root_samples_the_horizon_and_the_temperature_of_the_last_step():
    """Reads each of them out as if it were a weight."""
    num_particles = 8

    def temperature(_depth, ess):
        return 0.5 + ess / num_particles

    def finish(_carry, inputs):
        seen = jnp.stack([inputs.temperature, inputs.horizon, *inputs.root_actions, *inputs.root_log_weights])
        return RootWeights(jnp.arange(num_particles), seen[:num_particles])

    readout = readouts.last._replace(finish=finish)
    # Resampled at the end too: neither that nor the last step may change the temperature that is read.
    output = search(
        4, num_particles, temperature=temperature, readout=readout, resampling=Resampling(HORIZON, last=True)
    )
    before_last_step = np.asarray(output.diagnostics.ess)[..., -2]
    np.testing.assert_allclose(output.weights[..., 0], temperature(None, before_last_step), rtol=1e-5)
    assert np.all(np.asarray(output.weights)[..., 1] == HORIZON)
    np.testing.assert_array_equal(output.weights[..., 2:], output.root_actions[..., : num_particles - 2])


# --- Ancestry ---------------------------------------------------------------------------------------------------------
def test_ancestry_has_values_and_ends():
    output = search(8, 16, resampling=Resampling(2), with_ancestry=True)
    tree = jax.tree.map(np.asarray, output.ancestry)
    known = MDP.value.astype(np.float32)
    assert np.all(np.isin(tree.value, known))
    np.testing.assert_array_equal(tree.ended, np.isin(tree.value, known[MDP.ended]))
    np.testing.assert_array_equal((~tree.ended).sum(-1), output.diagnostics.num_live)
    # Nothing happens after an end: value and weight of an ended parent are the particle's own.
    depth_1_parents = tree.parent[..., 1, :]
    for field in (tree.value, tree.ended):
        parents = np.take_along_axis(field[..., 0, :], depth_1_parents, -1)
        ended = np.take_along_axis(tree.ended[..., 0, :], depth_1_parents, -1)
        np.testing.assert_array_equal(field[..., 1, :][ended], parents[ended])


def test_a_search_can_be_drawn():
    output = search(1, 8, resampling=Resampling(2), with_ancestry=True)
    output = jax.tree.map(lambda x: x[0], output)
    figure = spo.search.draw_ancestry(output, action_names=["left", "stay", "right"])
    axes = figure.axes[0]
    assert len([patch for patch in axes.patches if type(patch).__name__ == "PathPatch"]) == 8 * HORIZON
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("resample") == 1
    assert any(text.endswith("right") for text in texts)
    figure.savefig(io.BytesIO(), format="svg")
    with pytest.raises(ValueError, match="with_ancestry=True"):
        spo.search.draw_ancestry(output._replace(ancestry=None))
    for root in (len(output.value), -1):
        with pytest.raises(ValueError, match=f"root must be an index from 0 to {len(output.value) - 1}, got {root}"):
            spo.search.draw_ancestry(output, root)


def test_a_search_over_continuous_actions_can_be_drawn():
    policy = Gaussian(mean=jnp.zeros(1), scale=jnp.ones(1))

    def model_fn(_key, state, action):
        return ModelOutput(state, policy, jnp.zeros(()), action[0], jnp.ones(()), jnp.zeros((), bool))

    output = spo.search.search(
        jax.random.key(0),
        Root(prior=jax.tree.map(lambda x: x[None], policy), value=jnp.zeros(1), state=jnp.zeros(1)),
        model_fn,
        num_particles=4,
        horizon=2,
        temperature=1.0,
        resampling=Resampling(1),
        distribution=gaussian,
        with_ancestry=True,
    )
    spo.search.draw_ancestry(output).savefig(io.BytesIO(), format="png")


def test_a_soft_score_of_an_action_that_the_prior_masks_leaves_its_weight_at_zero():
    """log π is -inf there: the log-weight is -inf and the score +inf, whose sum must not make the root invalid."""
    score_fn = weighting.soft_advantage(0.3)
    output = search(
        128, 1024, score_fn=score_fn, proposal=Proposal(step_fn=proposals.corrected(lambda _: jnp.zeros(3)))
    )
    assert np.all(output.diagnostics.valid)
    assert_unbiased(output.log_normaliser, exact(score=enumeration.soft_advantage(0.3)), detectable=0.05)
