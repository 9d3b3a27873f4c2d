"""Root actions without replacement, and the read-out over all depths, against exact enumeration.

Means are compared by two-sided z-tests at a false-alarm rate of 1e-6, as in test_exact.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo.search
from oracles import enumeration
from search.test_exact import HORIZON, MAX_Z, MDP, ROOT_STATES, TEMPERATURES, assert_unbiased, exact
from spo.search import Proposal, Resampling, Root, diagnostics, proposals, readouts

NUM_ACTIONS = MDP.prior.shape[1]


def search(num_roots: int, num_particles: int, num_candidates: int, resampling: Resampling, **settings):
    output = spo.search.search(
        jax.random.key(0),
        enumeration.root_of(MDP, np.repeat(ROOT_STATES, num_roots)),
        enumeration.model_fn_of(MDP, gamma=0.9),
        num_particles=num_particles,
        horizon=HORIZON,
        unroll=1,
        temperature=jnp.repeat(jnp.asarray(TEMPERATURES), num_roots),
        resampling=resampling,
        proposal=Proposal(root_fn=proposals.without_replacement(num_candidates)),
        **settings,
    )
    return jax.tree.map(lambda x: x.reshape(len(ROOT_STATES), num_roots, *x.shape[1:]), output)


def one_root(logits: jax.Array) -> Root:
    return Root(prior=logits, value=jnp.zeros(()), state=None)


def action_weights_by_depth(ancestry: spo.search.Ancestry) -> np.ndarray:
    """The estimate of q at the root as it stood after every depth, before any resample there: [root, depth, action]."""
    parents, actions, log_weights = (np.asarray(x) for x in (ancestry.parent, ancestry.action, ancestry.log_weights))
    by_depth = np.zeros((*log_weights.shape[:2], NUM_ACTIONS))
    for root in range(len(parents)):
        first = actions[root, 0]
        for depth in range(HORIZON):
            # At depth 0 a particle's "parent" is its root sample, which is the particle itself.
            first = first[parents[root, depth]]
            weights = np.exp(log_weights[root, depth] - log_weights[root, depth].max())
            by_depth[root, depth] = np.bincount(first, weights / weights.sum(), NUM_ACTIONS)
    return by_depth


@pytest.mark.parametrize(("num_candidates", "num_particles"), [(1, 2), (2, 5), (NUM_ACTIONS, 2 * NUM_ACTIONS), (8, 2)])
def test_the_weighted_actions_stand_for_the_proposal(num_candidates: int, num_particles: int):
    """E[mean_n w_n 1(a_n = a)] = π(a), for every action. With fewer particles than candidates, each has one."""
    logits = jnp.log(jnp.array([0.5, 0.25, 0.15, 0.1, 0.0])[:NUM_ACTIONS])
    probabilities = np.asarray(jax.nn.softmax(logits))

    def estimate(key):
        samples = proposals.without_replacement(num_candidates)(key, one_root(logits), num_particles)
        return diagnostics.sum_by_action(samples.actions, jnp.exp(samples.log_weights), NUM_ACTIONS) / num_particles

    estimates = np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(jax.random.key(0), 2**14)), np.float64)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    assert np.all(np.abs(estimates.mean(axis=0) - probabilities) <= MAX_Z * error + 1e-6)


def test_candidates_differ_and_masked_ones_weigh_nothing():
    logits = jnp.log(jnp.array([0.7, 0.0, 0.3, 0.0]))
    samples = proposals.without_replacement(4)(jax.random.key(1), one_root(logits), 8)
    assert set(np.asarray(samples.actions).tolist()) == {0, 2}, "an invalid action is never stepped"
    weighs = np.isfinite(samples.log_weights)
    assert weighs.sum() == 4
    assert sorted(np.asarray(samples.actions)[weighs].tolist()) == [0, 0, 2, 2]
    with pytest.raises(ValueError, match="at least 1"):
        proposals.without_replacement(0)


@pytest.mark.parametrize(
    ("num_candidates", "num_particles", "resampling"),
    [(2, 7, Resampling(1)), (NUM_ACTIONS, 4 * NUM_ACTIONS, Resampling(2, last=True))],
)
def test_z_stays_unbiased(num_candidates: int, num_particles: int, resampling: Resampling):
    """Also where groups differ in size."""
    output = search(2**13, num_particles, num_candidates, resampling)
    assert_unbiased(output.log_normaliser, exact(), detectable=0.05)


def test_the_read_out_meets_the_exact_posterior():
    output = search(64, 1024 * NUM_ACTIONS // 4, NUM_ACTIONS, Resampling(2))
    for weights, answer in zip(np.asarray(output.action_weights), exact(), strict=True):
        np.testing.assert_allclose(weights.mean(axis=0), answer.action_posterior, atol=0.01)


@pytest.mark.parametrize("num_candidates", [None, NUM_ACTIONS])
def test_the_read_out_over_all_depths_is_the_mean_of_them(num_candidates: int | None):
    root_fn = None if num_candidates is None else proposals.without_replacement(num_candidates)
    output = spo.search.search(
        jax.random.key(0),
        enumeration.root_of(MDP, np.repeat(ROOT_STATES, 8)),
        enumeration.model_fn_of(MDP),
        num_particles=4 * NUM_ACTIONS,
        horizon=HORIZON,
        temperature=jnp.repeat(jnp.asarray(TEMPERATURES), 8),
        resampling=Resampling(1),
        readout=readouts.all_depths,
        proposal=Proposal(root_fn=root_fn),
        with_ancestry=True,
        unroll=1,
    )
    by_depth = action_weights_by_depth(output.ancestry)
    np.testing.assert_allclose(output.action_weights, by_depth.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(output.weights.sum(axis=1), 1.0, atol=1e-5)
    assert np.array_equal(output.best_action, output.action_weights.argmax(axis=1))
    # It has not forgotten what the last depth has lost.
    assert np.any((np.asarray(output.action_weights) > 0) & (by_depth[:, -1] == 0))


def test_root_log_weights_say_what_the_samples_stand_for():
    output = search(4, 2 * NUM_ACTIONS, NUM_ACTIONS, Resampling(None))
    weights = np.exp(np.asarray(output.root_log_weights, np.float64))
    np.testing.assert_allclose(weights.mean(axis=-1), 1.0, rtol=1e-5)
    plain = spo.search.search(
        jax.random.key(0),
        enumeration.root_of(MDP, np.array(ROOT_STATES)),
        enumeration.model_fn_of(MDP),
        num_particles=4,
        horizon=1,
        temperature=1.0,
        resampling=Resampling(None),
        unroll=1,
    )
    np.testing.assert_array_equal(plain.root_log_weights, 0.0)


def test_a_read_out_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"Resampling.last must be False"):
        search(1, 2 * NUM_ACTIONS, NUM_ACTIONS, Resampling(1, last=True), readout=readouts.all_depths)


def test_weights_by_depth_are_those_of_shallower_searches():
    """After depth d they estimate the posterior of horizon d; after the last one they are the read-out."""
    num_particles = 1024
    output = spo.search.search(
        jax.random.key(0),
        enumeration.root_of(MDP, np.repeat(ROOT_STATES, 32)),
        enumeration.model_fn_of(MDP, gamma=0.9),
        num_particles=num_particles,
        horizon=HORIZON,
        temperature=jnp.repeat(jnp.asarray(TEMPERATURES), 32),
        resampling=Resampling(2),
        unroll=1,
        with_ancestry=True,
    )
    by_depth = action_weights_by_depth(output.ancestry)
    np.testing.assert_allclose(by_depth[:, -1], output.action_weights, atol=1e-5)
    for depth in range(HORIZON):
        for kind, answer in enumerate(exact(horizon=depth + 1)):
            mean = by_depth[32 * kind : 32 * (kind + 1), depth].mean(axis=0)
            np.testing.assert_allclose(mean, answer.action_posterior, atol=0.015)


@pytest.mark.parametrize("horizon", [1, 3])
def test_every_draw_is_corrected_once(horizon: int):
    """The first one at the root and not again at depth 0: with scores of 0, log Z is the sum of the corrections."""

    def propose(key, node):
        return spo.search.Proposed(jnp.zeros((), jnp.int32), jnp.full_like(node.log_weight, 0.5))

    def nothing_happens(key, state, action):
        zero = jnp.zeros(())
        return spo.search.ModelOutput(state, jnp.zeros(2), zero, reward=zero, discount=zero + 1, ended=zero > 0)

    output = spo.search.search(
        jax.random.key(0),
        Root(prior=jnp.zeros((1, 2)), value=jnp.zeros(1), state=jnp.zeros((1, 1))),
        nothing_happens,
        num_particles=8,
        horizon=horizon,
        temperature=1.0,
        resampling=Resampling(2),
        proposal=Proposal(step_fn=propose),
    )
    np.testing.assert_allclose(output.log_normaliser, 0.5 * horizon, rtol=1e-6)
