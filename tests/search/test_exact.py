"""The search against exact enumeration, away from every default.

The MDP (`oracles.enumeration.lopsided_mdp`) has stochastic transitions, masked actions, terminations and truncations at
every depth, and nothing in it is symmetric. Its model returns NaN once stepped past an end.

Every comparison of a mean is a two-sided z-test at a false-alarm rate of 1e-6 (|z| < 4.9); seeds are fixed, so a test
that passes once passes always. Its power is part of the test: an error of 2 % in Z must stand out of the noise.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo.search
from oracles import enumeration
from spo.search import Proposal, Resampling, proposals, resampling, weighting
from spo.search.resampling import by_weight

HORIZON = 4
MAX_Z = 4.9  # two-sided p = 1e-6
DETECTABLE = 0.02  # relative error that the tests of Z must be able to see

MDP = enumeration.lopsided_mdp()
# Two kinds of roots in one batch, each with a temperature of its own.
ROOT_STATES = (0, 2)
TEMPERATURES = (1.5, 2.5)

SCHEMES = (resampling.multinomial, resampling.stratified, resampling.systematic, resampling.residual)
SETTINGS = {
    "always": {"period": 1},
    "ess": {"period": 1, "ess_below": 0.8},
    "never": {"period": None},
    "last": {"period": 2, "last": True},
}


# Compiling is what these tests cost, so the scheme is chosen while running: one program serves all four.
@functools.partial(
    jax.jit, static_argnames=("num_roots", "num_particles", "resampling", "gamma", "root_proposal", "settings")
)
def _search(key, scheme, num_roots, num_particles, resampling, gamma, root_proposal, settings):
    """`num_roots` independent searches from each kind of root; outputs have shape [2, num_roots, ...]."""
    root = enumeration.root_of(MDP, np.repeat(ROOT_STATES, num_roots))
    if root_proposal is not None:
        proposal = jnp.log(jnp.asarray(root_proposal))
        root = root._replace(proposal=jnp.broadcast_to(proposal, (2 * num_roots, proposal.size)))
    rule = by_weight(lambda key, weights: jax.lax.switch(scheme, SCHEMES, key, weights))
    output = spo.search.search(
        key,
        root,
        enumeration.model_fn_of(MDP, gamma),
        num_particles=num_particles,
        horizon=HORIZON,
        unroll=1,  # unrolled programs compile slowly; that they agree is tested in test_particles
        temperature=jnp.repeat(jnp.asarray(TEMPERATURES), num_roots),
        resampling=Resampling(rule=rule, **dict(resampling)),
        **dict(settings),
    )
    return jax.tree.map(lambda x: x.reshape(len(ROOT_STATES), num_roots, *x.shape[1:]), output)


def run(
    name,
    num_roots,
    num_particles,
    *,
    seed=0,
    scheme=resampling.multinomial,
    gamma=0.9,
    root_proposal=None,
    **settings,
):
    sizes = (num_roots, num_particles, tuple(SETTINGS[name].items()), gamma, root_proposal, tuple(settings.items()))
    return _search(jax.random.key(seed), SCHEMES.index(scheme), *sizes)


@functools.cache
def exact(gamma=0.9, horizon=HORIZON, score=enumeration.advantage, root_proposal=None, correct=False):
    proposal = None if root_proposal is None else np.asarray(root_proposal)
    return [
        enumeration.enumerate_trajectories(
            MDP,
            state,
            horizon=horizon,
            temperature=temperature,
            gamma=gamma,
            score=score,
            root_proposal=proposal,
            correct_root_proposal=correct,
        )
        for state, temperature in zip(ROOT_STATES, TEMPERATURES, strict=True)
    ]


def assert_unbiased(log_normaliser, answers, *, detectable=DETECTABLE):
    """E[exp(log Ẑ)] = Z for each kind of root, with a test strong enough to see an error of `detectable`."""
    assert np.all(np.isfinite(log_normaliser))
    for estimates, answer in zip(np.exp(np.asarray(log_normaliser, np.float64)), answers, strict=True):
        ratio = estimates / answer.normaliser
        standard_error = ratio.std(ddof=1) / np.sqrt(ratio.size)
        # 4.9 + 1.65 standard errors: an error of that size is caught with probability 95 %.
        assert standard_error * (MAX_Z + 1.65) < detectable, "too few searches to tell: raise num_roots"
        assert abs(ratio.mean() - 1.0) / standard_error < MAX_Z


def test_the_mdp_is_worth_testing_on():
    for answer in exact():
        assert np.all(answer.num_ends[1:] > 0), "episodes must end at every depth"
        assert answer.action_posterior.max() - answer.action_posterior.min() > 0.05
    assert np.any(exact()[1].action_posterior == 0), "one root must have a masked action"
    # Discounting, truncation and termination all matter to Z by far more than a test can miss.
    assert abs(exact()[0].normaliser / exact(gamma=1.0)[0].normaliser - 1) > 2 * DETECTABLE
    only_termination = enumeration.enumerate_trajectories(
        enumeration.lopsided_mdp(with_truncation=False), 0, horizon=HORIZON, temperature=TEMPERATURES[0], gamma=0.9
    )
    assert abs(exact()[0].normaliser / only_termination.normaliser - 1) > 2 * DETECTABLE


# Enough searches for the power that `assert_unbiased` asks for; the same shapes are used throughout, to compile once.
NUM_ROOTS = {1: 2**16, 2: 2**16, 16: 2**13, 256: 256, 1024: 128, 4096: 128}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("name", "num_particles"),
    [
        ("always", 1),
        ("always", 2),
        ("always", 16),
        pytest.param("ess", 1, marks=pytest.mark.slow),
        pytest.param("ess", 2, marks=pytest.mark.slow),
        ("ess", 16),
    ],
)
def test_normaliser_is_unbiased(name, scheme, num_particles):
    output = run(name, NUM_ROOTS[num_particles], num_particles, seed=num_particles, scheme=scheme)
    assert np.all(output.diagnostics.valid)
    if name == "ess" and num_particles == 16:
        resampled = np.asarray(output.diagnostics.resampled[:, :, :-1])
        assert 0.02 < resampled.mean() < 0.98, "the rule must say yes to some roots and no to others"
    assert_unbiased(output.log_normaliser, exact())


@pytest.mark.parametrize("num_particles", [pytest.param(2, marks=pytest.mark.slow), 16])
@pytest.mark.parametrize("name", ["never", "last"])
def test_normaliser_is_unbiased_without_resampling_and_with_a_last_one(name, num_particles):
    assert_unbiased(run(name, NUM_ROOTS[num_particles], num_particles).log_normaliser, exact())


def test_normaliser_is_unbiased_at_every_depth():
    """The estimate that diagnostics show per depth is that of a search of that horizon."""
    output = run("always", NUM_ROOTS[16], 16, seed=5)
    for depth in range(1, HORIZON + 1):
        assert_unbiased(output.diagnostics.log_normaliser[:, :, depth - 1], exact(horizon=depth))


def test_logarithm_of_the_normaliser_is_biased():
    """Jensen: E[log Ẑ] < log Z. A library that averaged logarithms would pass for unbiased otherwise."""
    output = run("always", NUM_ROOTS[2], 2)
    for logs, answer in zip(np.asarray(output.log_normaliser, np.float64), exact(), strict=True):
        assert (logs.mean() - np.log(answer.normaliser)) / (logs.std() / np.sqrt(logs.size)) < -10


def test_gamma():
    """γ = 0.5 tells V(s) from a V(s) that was stored discounted: the second would be off by tens of per cent."""
    output = run("always", NUM_ROOTS[1024], 1024, gamma=0.5)
    assert_unbiased(output.log_normaliser, exact(gamma=0.5))
    assert_posterior_is_right(output, exact(gamma=0.5))


@pytest.mark.parametrize(
    ("score_fn", "score"),
    [
        (weighting.q_value, enumeration.q_value),
        (weighting.soft_advantage(0.3), enumeration.soft_advantage(0.3)),
    ],
    ids=["q", "soft"],
)
def test_other_scores(score_fn, score):
    output = run("always", NUM_ROOTS[1024], 1024, score_fn=score_fn)
    assert_unbiased(output.log_normaliser, exact(score=score))
    assert_posterior_is_right(output, exact(score=score))


@pytest.mark.parametrize("correct", [False, True])
def test_root_proposal(correct):
    """A proposal takes the prior's place in the target, or, corrected for, leaves the target alone."""
    proposal = (0.2, 0.3, 0.5)
    root_fn = proposals.corrected_root() if correct else None
    output = run("always", NUM_ROOTS[1024], 1024, root_proposal=proposal, proposal=Proposal(root_fn=root_fn))
    answers = exact(root_proposal=proposal, correct=correct)
    assert_unbiased(output.log_normaliser, answers)
    assert_posterior_is_right(output, answers)
    same_target = np.allclose(answers[0].action_posterior, exact()[0].action_posterior)
    assert same_target == correct


def assert_posterior_is_right(output, answers):
    """Mean over independent searches of the read-out and the value, at an N whose bias O(1/N) is below the noise."""
    for kind, answer in enumerate(answers):
        for estimates, truth in (
            *zip(np.asarray(output.action_weights[kind], np.float64).T, answer.action_posterior, strict=True),
            (np.asarray(output.value[kind], np.float64), answer.value),
        ):
            if truth == 0.0 and not estimates.any():
                continue  # a masked action: exactly 0, and no standard error to divide by
            standard_error = estimates.std(ddof=1) / np.sqrt(estimates.size)
            assert standard_error < 0.01
            assert abs(estimates.mean() - truth) < MAX_Z * standard_error


@pytest.mark.parametrize(
    ("name", "scheme", "sizes"),
    [("always", resampling.systematic, (16, 256, 4096))]
    + [
        pytest.param("always", scheme, (16, 256, 4096), marks=pytest.mark.slow)
        for scheme in SCHEMES
        if scheme is not resampling.systematic
    ]
    + [
        pytest.param(name, resampling.multinomial, (16, 4096), marks=pytest.mark.slow)
        for name in ("ess", "never", "last")
    ],
)
def test_read_out_converges_like_one_over_root_n(name, scheme, sizes):
    """The root-mean-square error of posterior and value over 128 searches and more falls with slope -1/2 in log N.

    A root mean square over 128 searches is known to 1/√256 of itself or better, the slope over a span of log 256 to
    0.012; the tolerance of 0.07 leaves room for more than five of that.
    """
    errors = []
    for num_particles in sizes:
        output = run(name, NUM_ROOTS[num_particles], num_particles, seed=7, scheme=scheme)
        errors.append(
            [
                np.sqrt(np.mean((np.asarray(estimate[kind]) - truth) ** 2))
                for kind, answer in enumerate(exact())
                for estimate, truth in (
                    (output.action_weights, answer.action_posterior),
                    (output.value, answer.value),
                )
            ]
        )
    slopes = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    np.testing.assert_allclose(slopes, -0.5, atol=0.07)
    assert_posterior_is_right(output, exact())


def test_reading_weights_saves_variance():
    """The draw after the last step leaves the mean and adds variance: the reason why it is not the default."""
    with_draw = run("last", NUM_ROOTS[16], 16, seed=11)
    without = run("never", NUM_ROOTS[16], 16, seed=11)
    drawn_uniform = np.asarray(with_draw.weights)
    np.testing.assert_allclose(drawn_uniform, 1 / 16, rtol=1e-6)
    for kind in range(len(ROOT_STATES)):
        assert np.var(without.action_weights[kind][:, 1]) < 0.9 * np.var(with_draw.action_weights[kind][:, 1])


def test_masked_actions_get_no_weight():
    output = run("always", NUM_ROOTS[16], 16)
    masked = MDP.prior[list(ROOT_STATES)] == 0
    assert masked.any()
    assert np.all(np.asarray(output.action_weights)[np.broadcast_to(masked[:, None], output.action_weights.shape)] == 0)
    assert not np.any(np.asarray(output.root_actions[1]) == 0)  # state 2 masks action 0
    assert not np.any(np.asarray(output.action[1]) == 0)


def test_drawn_action_follows_the_weights():
    """The one action to take is a draw from the read-out: frequencies against mean weights, z-test at 1e-6."""
    output = run("always", NUM_ROOTS[16], 16)
    for kind in range(len(ROOT_STATES)):
        taken = np.eye(3)[np.asarray(output.action[kind])] - np.asarray(output.action_weights[kind])
        deviation = taken.mean(0) / np.maximum(taken.std(0) / np.sqrt(len(taken)), 1e-12)
        assert np.all(np.abs(deviation) < MAX_Z)
        np.testing.assert_array_equal(output.best_action[kind], np.argmax(output.action_weights[kind], axis=-1))


def test_depth_one_is_exact_importance_sampling():
    """Horizon 1, nothing random after the action: the weights are softmax(Â / η) over the N samples, to rounding."""
    deterministic = MDP._replace(transition=np.eye(6)[np.argmax(MDP.transition, -1)])
    states = np.array([0, 1, 2, 3])
    temperature = jnp.array([0.3, 0.6, 1.2, 2.4])
    output = jax.jit(
        lambda key: spo.search.search(
            key,
            enumeration.root_of(deterministic, states),
            enumeration.model_fn_of(deterministic, gamma=0.9),
            num_particles=32,
            horizon=1,
            temperature=temperature,
            resampling=Resampling(1),
        )
    )(jax.random.key(0))
    for root, state in enumerate(states):
        next_states = np.argmax(deterministic.transition[state], -1)
        scores = deterministic.reward[state] + 0.9 * deterministic.value[next_states] - deterministic.value[state]
        of_samples = scores[np.asarray(output.root_actions[root])]
        unnormalised = np.exp(of_samples / temperature[root])
        np.testing.assert_allclose(output.weights[root], unnormalised / unnormalised.sum(), rtol=1e-5)
        np.testing.assert_allclose(np.exp(output.log_normaliser[root]), unnormalised.mean(), rtol=1e-5)
        np.testing.assert_allclose(output.temperature_advantages[root], of_samples, rtol=1e-5, atol=1e-6)
    assert not np.any(output.diagnostics.resampled), "the last step is never resampled unless asked"
