"""Tests that everything a particle owns moves with it, and that its next action is drawn after the move.

These are the two places where a particle search goes wrong without looking wrong: the read-out stays a distribution.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import spo.search
from oracles import enumeration
from spo.search import ModelOutput, Particles, Resampling, Root, resampling, smc


def test_copies_of_one_ancestor_branch_apart():
    """After a resample that leaves one ancestor, N next actions are independent draws from the prior *of its state*.

    Drawn before the resample and moved with the particle, they would all be equal; drawn before and left where they
    were, they would come from the priors of other states. Chi-square at a false-alarm rate of 1e-6.
    """
    num_roots, num_particles, num_actions = 64, 64, 4
    # The policy after action a: action a is unlikely, its neighbour likely.
    priors = jnp.stack([jnp.roll(jnp.log(jnp.array([0.05, 0.6, 0.25, 0.1])), a) for a in range(num_actions)])

    def model_fn(key, state, action):
        # Rewards so far apart that the best of N particles takes all the weight.
        return ModelOutput(
            state=action,
            prior=priors[action],
            value=jnp.zeros(()),
            reward=1e7 * jax.random.uniform(key),
            discount=jnp.ones(()),
            ended=jnp.zeros((), bool),
        )

    output = jax.jit(
        lambda key, root: spo.search.search(
            key,
            root,
            model_fn,
            num_particles=num_particles,
            horizon=2,
            temperature=1.0,
            resampling=Resampling(1),
            unroll=1,
            with_ancestry=True,
        )
    )(
        jax.random.key(0),
        Root(
            prior=jnp.zeros((num_roots, num_actions)), value=jnp.zeros(num_roots), state=jnp.zeros(num_roots, jnp.int32)
        ),
    )
    parents, actions = np.asarray(output.ancestry.parent[:, 1]), np.asarray(output.ancestry.action)
    assert np.all(parents == parents[:, :1]), "the set-up must leave one ancestor per root"
    state = actions[np.arange(num_roots), 0, parents[:, 0]]
    assert len(np.unique(state)) == num_actions
    np.testing.assert_array_equal(output.root_actions, np.broadcast_to(state[:, None], (num_roots, num_particles)))

    # Turned back by its state's number, every second action comes from the same four probabilities.
    turned = (actions[:, 1] - state[:, None]) % num_actions
    observed = np.bincount(turned.ravel(), minlength=num_actions)
    assert scipy.stats.chisquare(observed, np.array([0.05, 0.6, 0.25, 0.1]) * turned.size).pvalue > 1e-6
    # Independent within a root: neighbours agree as often as Σp² says.
    agree = np.mean(turned[:, 1:] == turned[:, :-1])
    chance = np.sum(np.array([0.05, 0.6, 0.25, 0.1]) ** 2)
    assert abs(agree - chance) < 4.9 * np.sqrt(chance * (1 - chance) / turned[:, 1:].size)


@pytest.mark.parametrize("field", Particles._fields)
def test_a_resample_gathers_every_leaf(field):
    """Each leaf says whose it is; after the resample all of them must say the same. New fields are covered by name."""
    num_roots, num_particles = 3, 16
    identity = jnp.arange(num_roots * num_particles).reshape(num_roots, num_particles)
    owned = {
        # Leaves of different shapes and dtypes, as a state may have.
        "state": {"vector": jnp.stack([identity, -identity], -1), "scalar": identity.astype(jnp.uint32)},
        "prior": jnp.repeat(identity[..., None].astype(jnp.float32), 5, axis=-1),
        "live": jax.random.bernoulli(jax.random.key(5), 0.5, identity.shape),
        "log_weights": jax.random.normal(jax.random.key(6), identity.shape) * 2.0,
        "root_index": identity % num_particles,
    }
    before = Particles(**{name: owned.get(name, identity.astype(jnp.float32)) for name in Particles._fields})
    chosen = jnp.array([True, False, True])
    after, ancestors = smc._resample_particles(
        jax.random.key(1), before, chosen, resampling.by_weight(resampling.multinomial)
    )
    ancestors = np.asarray(ancestors)
    np.testing.assert_array_equal(ancestors[1], np.arange(num_particles))
    assert not np.array_equal(ancestors[0], np.arange(num_particles))
    assert not np.array_equal(ancestors[0], ancestors[2])
    if field == "log_weights":
        assert np.all(after.log_weights[jnp.array([0, 2])] == 0)
        np.testing.assert_array_equal(after.log_weights[1], before.log_weights[1])
        return
    for new, old in zip(jax.tree.leaves(getattr(after, field)), jax.tree.leaves(getattr(before, field)), strict=True):
        expected = np.stack([np.asarray(old)[root][ancestors[root]] for root in range(num_roots)])
        np.testing.assert_array_equal(new, expected)


def test_the_recorded_ancestry_tells_the_same_story():
    """Walk each survivor back through parents: its root action and its weight must come out."""
    mdp = enumeration.lopsided_mdp()
    horizon, num_particles, gamma, temperature = 5, 16, 0.8, 0.7
    states = np.array([0, 1, 2, 3])
    output = jax.jit(
        lambda key: spo.search.search(
            key,
            enumeration.root_of(mdp, states),
            enumeration.model_fn_of(mdp, gamma),
            num_particles=num_particles,
            horizon=horizon,
            temperature=temperature,
            resampling=Resampling(2),
            unroll=1,
            with_ancestry=True,
        )
    )(jax.random.key(3))
    tree = jax.tree.map(np.asarray, output.ancestry)
    for root in range(len(states)):
        for particle in range(num_particles):
            index, path = tree.survivor[root, particle], []
            for depth in reversed(range(horizon)):
                path.append((depth, index))
                index = tree.parent[root, depth, index]
            depth, first = path[-1]
            assert depth == 0
            assert tree.action[root, 0, first] == output.root_actions[root, particle]
    last = tree.log_weights[:, -1]
    np.testing.assert_allclose(output.weights, np.exp(last) / np.exp(last).sum(1, keepdims=True), rtol=1e-5)


def test_the_value_belongs_to_the_survivors():
    """A world whose return can be read off the root action: after a resample, rewards and discounts must have moved.

    Root action a pays a at once and a again at every later step, discounted by 1/2: after three steps the particles'
    mean return is Σ weights · a · 1.75, whichever ancestors were drawn.
    """

    def model_fn(key, state, action):
        first = jnp.where(state < 0, action, state)
        return ModelOutput(
            state=first,
            prior=jnp.zeros(4),
            value=jnp.zeros(()),
            reward=first.astype(jnp.float32),
            discount=jnp.full((), 0.5),
            ended=jnp.zeros((), bool),
        )

    output = jax.jit(
        lambda key, root: spo.search.search(
            key, root, model_fn, num_particles=32, horizon=3, temperature=2.0, resampling=Resampling(1), unroll=1
        )
    )(
        jax.random.key(0),
        Root(prior=jnp.zeros((8, 4)), value=jnp.zeros(8), state=jnp.full(8, -1)),
    )
    expected = 1.75 * np.asarray(output.action_weights) @ np.arange(4)
    np.testing.assert_allclose(output.value, expected, rtol=1e-5)
    assert np.ptp(expected) > 0.05


@pytest.mark.parametrize("discount", [0.0, 1.0], ids=["terminated", "truncated"])
def test_an_end_counts_once(discount):
    """The step that ends an episode counts, with V(s') if truncated; whatever the model says afterwards does not."""

    def model_fn(key, state, action):
        first = state == 0
        nonsense = jnp.where(first, 0.0, jnp.nan)
        return ModelOutput(
            state=state + 1,
            prior=jnp.where(first, jnp.zeros(2), -jnp.inf),
            value=5.0 + nonsense,
            reward=action.astype(jnp.float32) + nonsense,
            discount=0.5 * discount + nonsense,
            ended=first,
        )

    output = jax.jit(
        lambda key, root: spo.search.search(
            key, root, model_fn, num_particles=64, horizon=4, temperature=1.0, resampling=Resampling(2), unroll=1
        )
    )(jax.random.key(0), Root(prior=jnp.zeros((1, 2)), value=jnp.array([1.0]), state=jnp.zeros(1, jnp.int32)))
    bootstrap = 0.5 * discount * 5.0
    assert output.diagnostics.valid[0]
    np.testing.assert_array_equal(output.diagnostics.num_live[0], 0)
    assert set(np.unique(output.temperature_advantages)) == {bootstrap - 1.0, bootstrap}
    np.testing.assert_allclose(output.value, bootstrap + output.action_weights[0, 1:], rtol=1e-5)


def test_unrolling_changes_the_program_and_not_the_search():
    mdp = enumeration.lopsided_mdp()
    outputs = [
        jax.jit(
            lambda key, unroll=unroll: spo.search.search(
                key,
                enumeration.root_of(mdp, np.array([0, 1, 2, 3])),
                enumeration.model_fn_of(mdp, gamma=0.9),
                num_particles=8,
                horizon=5,
                temperature=1.0,
                resampling=Resampling(2),
                unroll=unroll,
            )
        )(jax.random.key(0))
        for unroll in (1, 4)
    ]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), *outputs)


@pytest.mark.parametrize("last", [False, True], ids=["", "last"])
@pytest.mark.parametrize("ess_below", [None, 0.6], ids=["all", "ess"])
@pytest.mark.parametrize("unroll", [1, 8])
def test_diagnostics_are_those_of_the_recorded_particles(last, ess_below, unroll):
    """Computed depth by depth from the recorded weights. Particles end, and a root is invalid from depth 3 on."""
    horizon, num_particles = 6, 16

    def model_fn(key, state, action):
        key_end, key_reward = jax.random.split(key)
        reward = action * jax.random.normal(key_reward)
        return ModelOutput(
            state=state + jnp.array([0, 1]),
            prior=jnp.zeros(5),
            value=jnp.zeros(()),
            reward=jnp.where((state[0] == 2) & (state[1] == 3), jnp.nan, reward),
            discount=jnp.ones(()),
            ended=(state[0] == 1) & jax.random.bernoulli(key_end, 0.3),
        )

    start = jnp.stack([jnp.arange(3), jnp.zeros(3, jnp.int32)], axis=1)
    output = jax.jit(
        lambda key: spo.search.search(
            key,
            Root(prior=jnp.zeros((3, 5)), value=jnp.zeros(3), state=start),
            model_fn,
            num_particles=num_particles,
            horizon=horizon,
            temperature=2.0,
            resampling=Resampling(2, ess_below=ess_below, last=last),
            unroll=unroll,
            with_ancestry=True,
        )
    )(jax.random.key(7))
    actual, ancestry = jax.tree.map(np.asarray, (output.diagnostics, output.ancestry))
    np.testing.assert_array_equal(actual.valid, [True, True, False])
    for root in range(3):
        log_normaliser, root_sample = 0.0, np.arange(num_particles)
        for depth in range(horizon):
            log_weights = ancestry.log_weights[root, depth].astype(np.float64)
            weights = scipy.special.softmax(log_weights)
            log_mean = scipy.special.logsumexp(log_weights) - np.log(num_particles)
            ess, due = 1.0 / np.sum(weights**2), depth % 2 == 1 and (depth < horizon - 1 or last)
            if ess_below is not None:
                due &= bool(ess < ess_below * num_particles)
            assert actual.resampled[root, depth] == due
            np.testing.assert_allclose(actual.ess[root, depth], ess, rtol=1e-4)
            entropy = np.sum(scipy.special.entr(weights))
            np.testing.assert_allclose(actual.entropy[root, depth], entropy, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(actual.log_normaliser[root, depth], log_normaliser + log_mean, atol=1e-4)
            assert actual.num_live[root, depth] == np.sum(~ancestry.ended[root, depth])
            after = ancestry.survivor[root] if depth == horizon - 1 else ancestry.parent[root, depth + 1]
            root_sample = root_sample[after]
            assert actual.num_root_actions[root, depth] == len(set(ancestry.action[root, 0][root_sample]))
            log_normaliser += log_mean if due else 0.0
    assert np.all(np.isnan(actual.ess[2, 3:]))
    assert np.all(np.isfinite(actual.ess[2, :3]))
