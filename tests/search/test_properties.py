"""Properties that hold for any numbers (hypothesis)."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from hypothesis.extra import numpy as hnp

import spo.search
from oracles import enumeration
from spo.search import ModelOutput, Resampling, Root, diagnostics

hypothesis.settings.register_profile("search", max_examples=25, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("search")

MDP = enumeration.lopsided_mdp()
NUM_PARTICLES, HORIZON, PERIOD = 8, 4, 2


def floats(low, high):
    return st.floats(low, high, width=32, allow_nan=False, allow_subnormal=False)


@functools.partial(jax.jit, static_argnames=("period", "gamma"))
def _search(seed, reward, value, temperature, period=PERIOD, gamma=1.0):
    """The lopsided MDP with other rewards and values, both traced: one compilation for all examples."""
    model_fn = enumeration.model_fn_of(MDP, gamma)

    def with_numbers(key, state, action):
        output = model_fn(key, state, action)
        # `reward` is indexed by the state reached too, so that it can be shaped by a potential.
        return output._replace(
            reward=jnp.where(jnp.isnan(output.reward), jnp.nan, reward[state, action, output.state]),
            value=value[output.state],
        )

    root = enumeration.root_of(MDP, np.array([0, 1, 2, 3]))
    return spo.search.search(
        jax.random.key(seed),
        root._replace(value=value[root.state]),
        with_numbers,
        num_particles=NUM_PARTICLES,
        horizon=HORIZON,
        unroll=1,
        temperature=temperature,
        resampling=Resampling(period),
    )


rewards = hnp.arrays(np.float32, (6, 3, 6), elements=floats(-10, 10))
values = hnp.arrays(np.float32, 6, elements=floats(-10, 10))
seeds = st.integers(0, 2**31 - 1)


@hypothesis.given(seeds, rewards, values, floats(1 / 64, 64.0))
def test_weights_and_diagnostics_stay_in_range(seed, reward, value, temperature):
    output = _search(seed, reward, value, jnp.float32(temperature))
    assert np.all(output.diagnostics.valid)
    for weights in (output.weights, output.action_weights):
        assert np.all(np.asarray(weights) >= 0)
        np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-5)
    seen = output.diagnostics
    assert np.all((seen.ess >= 1 - 1e-5) & (seen.ess <= NUM_PARTICLES * (1 + 1e-5)))
    assert np.all((seen.entropy >= -1e-6) & (seen.entropy <= np.log(NUM_PARTICLES) + 1e-5))
    assert np.all((seen.num_live >= 0) & (seen.num_live <= NUM_PARTICLES))
    assert np.all(np.diff(seen.num_root_actions, axis=1) <= 0), "a root action never comes back"
    assert np.all((seen.num_root_actions >= 1) & (seen.num_root_actions <= 3))
    assert np.all(np.take_along_axis(np.asarray(output.action_weights), np.asarray(output.action)[:, None], 1) > 0)
    np.testing.assert_array_equal(seen.resampled, np.tile([False, True, False, False], (4, 1)))
    np.testing.assert_allclose(seen.log_normaliser[:, -1], output.log_normaliser, rtol=1e-5, atol=1e-5)


log_weights_of_12 = hnp.arrays(np.float32, 12, elements=floats(-300, 300) | st.just(-np.inf)).filter(
    lambda x: np.isfinite(x).any()
)


@hypothesis.given(log_weights_of_12, st.permutations(range(12)), st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_weighting_and_read_out_commute_with_a_permutation(log_weights, order, actions):
    order, actions = np.array(order), np.array(actions)
    one, other = (_read_out(x, y) for x, y in ((log_weights, actions), (log_weights[order], actions[order])))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), one, other)


@hypothesis.given(log_weights_of_12, st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_summaries_are_what_numpy_says(log_weights, actions):
    summary, by_action, num_distinct = jax.tree.map(np.asarray, _read_out(log_weights, np.array(actions)))
    exact = log_weights.astype(np.float64)
    weights = np.exp(exact - exact.max()) / np.exp(exact - exact.max()).sum()
    positive = weights[weights > 0]
    np.testing.assert_allclose(summary.ess, 1 / np.sum(weights**2), rtol=1e-4)
    np.testing.assert_allclose(summary.entropy, -np.sum(positive * np.log(positive)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(summary.log_mean, scipy.special.logsumexp(exact) - np.log(12), rtol=1e-5, atol=1e-4)
    assert 1 - 1e-5 <= summary.ess <= 12 * (1 + 1e-5)
    np.testing.assert_allclose(by_action, np.bincount(actions, weights, 5), rtol=1e-4, atol=1e-6)
    assert np.all(by_action[~np.isin(np.arange(5), actions)] == 0)
    assert num_distinct == len(set(actions))


@jax.jit
def _read_out(log_weights, actions):
    weights = jax.nn.softmax(log_weights)
    return (
        diagnostics.summarise_weights(log_weights),
        diagnostics.sum_by_action(actions, weights, 5),
        diagnostics.count_distinct(actions, 5),
    )


@hypothesis.given(seeds, rewards, values)
def test_infinite_temperature_is_the_prior(seed, reward, value):
    """Nothing is preferred: every particle keeps weight 1/N, and the read-out is the prior's own samples."""
    output = _search(seed, reward, value, jnp.float32(1e9), period=None)
    np.testing.assert_allclose(output.weights, 1 / NUM_PARTICLES, rtol=1e-5)
    np.testing.assert_allclose(output.log_normaliser, 0.0, atol=1e-5)


@hypothesis.given(seeds, rewards, values)
def test_zero_temperature_is_the_best_particle(seed, reward, value):
    output = _search(seed, reward, value, jnp.float32(1e-5), period=None)
    # Without a resample the temperature advantages are the whole sum of scores, particle by particle.
    scores = np.asarray(output.temperature_advantages)
    best, second = np.sort(scores, axis=1)[:, -1], np.sort(scores, axis=1)[:, -2]
    clear = best - second > 1e-3
    picked = np.asarray(output.weights)[np.arange(4), scores.argmax(1)]
    np.testing.assert_allclose(picked[clear], 1.0, rtol=1e-6)
    tied = scores >= best[:, None] - 1e-7
    assert np.all(np.asarray(output.weights)[scores < best[:, None] - 1e-3] == 0)
    assert np.all(np.where(tied, output.weights, 0).sum(1) > 0)


@hypothesis.given(seeds, rewards, values, hnp.arrays(np.float32, 6, elements=floats(-5, 5)))
def test_shaping_by_a_potential_changes_nothing(seed, reward, value, potential):
    """r' = r + γ·Φ(s') − Φ(s) with V' = V − Φ leaves every advantage as it was (Φ = 0 once terminated).

    The advantage r' + γV'(s') − V'(s) = r + γΦ(s') − Φ(s) + γV(s') − γΦ(s') − V(s) + Φ(s) = r + γV(s') − V(s).
    """
    potential = np.where(MDP.terminated, 0.0, potential).astype(np.float32)
    gamma = 0.7
    shaped = reward + np.float32(gamma) * potential[None, None, :] - potential[:, None, None]
    temperature = jnp.float32(20.0)
    plain = _search(seed, reward, value, temperature, gamma=gamma)
    other = _search(seed, shaped, value - potential, temperature, gamma=gamma)
    # Rounding moves scores by 1e-5 or so; a resample that falls just on the edge of two particles could go either way,
    # so what is compared is what comes before the resample, and the rest wherever the ancestors agree.
    np.testing.assert_allclose(plain.temperature_advantages, other.temperature_advantages, atol=2e-4)
    np.testing.assert_allclose(plain.diagnostics.ess[:, :2], other.diagnostics.ess[:, :2], rtol=1e-3)
    same = np.all(np.asarray(plain.root_actions) == np.asarray(other.root_actions), axis=1)
    assert same.sum() >= 3
    close = np.isclose(plain.log_normaliser, other.log_normaliser, atol=1e-3)
    assert (close | ~same).sum() >= 3


@hypothesis.given(seeds, rewards, values)
def test_temperature_advantages_stop_at_the_first_resample(seed, reward, value):
    """Searches that resample after 2 steps know of 2 steps' scores, in the order of the root samples."""
    temperature = jnp.float32(3.0)
    resampled = _search(seed, reward, value, temperature)
    # Same keys, so the same two first steps; the rule of the second search never fires, and it adds up all four.
    never = _search(seed, reward, value, temperature, period=None)
    two_steps = _two_step_scores(seed, reward, value)
    np.testing.assert_allclose(resampled.temperature_advantages, two_steps[:, :, :2].sum(-1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(never.temperature_advantages, two_steps.sum(-1), rtol=1e-4, atol=1e-4)


def _two_step_scores(seed, reward, value):
    """[B, N, H] scores per root sample of the search that never resamples, from the growth of its recorded weights."""
    log_weights = np.asarray(_recorded(seed, reward, value))
    return np.moveaxis(np.diff(log_weights, axis=1, prepend=0.0), 1, 2) * 3.0


@jax.jit
def _recorded(seed, reward, value):
    model_fn = enumeration.model_fn_of(MDP)

    def with_numbers(key, state, action):
        output = model_fn(key, state, action)
        return output._replace(
            reward=jnp.where(jnp.isnan(output.reward), jnp.nan, reward[state, action, output.state]),
            value=value[output.state],
        )

    root = enumeration.root_of(MDP, np.array([0, 1, 2, 3]))
    return spo.search.search(
        jax.random.key(seed),
        root._replace(value=value[root.state]),
        with_numbers,
        num_particles=NUM_PARTICLES,
        horizon=HORIZON,
        unroll=1,
        temperature=3.0,
        resampling=Resampling(None),
        with_ancestry=True,
    ).ancestry.log_weights


def test_ess_rule_freezes_each_root_on_its_own():
    """With an ESS rule, a root's temperature advantages freeze at its own first resample, not at a neighbour's."""

    def model_fn(key, state, action):
        # Root 0 gets unequal rewards (one particle in many takes all), root 1 equal ones: only root 0 resamples.
        lucky = jax.random.uniform(key) * 20.0
        return ModelOutput(
            state=state,
            prior=jnp.zeros(2),
            value=jnp.zeros(()),
            reward=jnp.where(state == 0, lucky, 1.0),
            discount=jnp.ones(()),
            ended=jnp.zeros((), bool),
        )

    output = jax.jit(
        lambda key, root: spo.search.search(
            key,
            root,
            model_fn,
            num_particles=16,
            horizon=3,
            temperature=1.0,
            resampling=Resampling(1, ess_below=0.5),
        )
    )(jax.random.key(0), Root(prior=jnp.zeros((2, 2)), value=jnp.zeros(2), state=jnp.arange(2)))
    np.testing.assert_array_equal(output.diagnostics.resampled[0], [True, True, False])
    np.testing.assert_array_equal(output.diagnostics.resampled[1], [False, False, False])
    assert np.all(output.temperature_advantages[0] < 20.0)
    np.testing.assert_allclose(output.temperature_advantages[1], 3.0)
