"""Tiny environments: steps follow the tables, and acting on the known answers earns the known values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles.tiny_answers import expected_rewards, known_answer, solve, tiny_mdp
from spo.environments.tiny import TINY_NAMES, tabular, tiny
from spo.types import DiscreteActions

TABULAR = [name for name in TINY_NAMES if isinstance(tiny(name).train.action_spec, DiscreteActions)]
CONTINUOUS = [name for name in TINY_NAMES if name not in TABULAR]


def inner(state):
    """The state below a time limit, if there is one."""
    return getattr(state, "inner", state)


def with_row(state, row):
    """Moves a state to a row of the tables."""
    moved = inner(state)._replace(row=jnp.asarray(row, jnp.int32))
    return state._replace(inner=moved) if hasattr(state, "inner") else moved


# --- Tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABULAR)
def test_steps_follow_every_row_of_the_tables(name):
    """400 draws for every (state, action). A frequency 5 standard errors from its probability is an error.

    False alarms: at most 200 frequencies over all environments, 6e-7 for each, about 1e-4. The seed is fixed.
    """
    mdp, env = tiny_mdp(name), tiny(name).model
    num_states, num_actions = mdp.rewards.shape
    state, _ = env.reset(jax.random.key(0))
    rows, actions = np.meshgrid(np.arange(num_states), np.arange(num_actions), indexing="ij")
    step = jax.vmap(jax.vmap(env.step, (0, None, None)), (None, 0, 0))
    states = jax.vmap(lambda row: with_row(state, row))(jnp.asarray(rows.ravel()))
    num_draws = 400
    reached, timestep = jax.jit(step)(jax.random.split(jax.random.key(1), num_draws), states, actions.ravel())
    reached_rows = np.asarray(inner(reached).row)

    expected = mdp.transition_probabilities.reshape(-1, num_states)
    frequencies = (reached_rows[..., None] == np.arange(num_states)).mean(axis=1)
    standard_error = np.sqrt(expected * (1 - expected) / num_draws)
    # At probabilities 0 and 1 the standard error is 0, and so is the tolerance.
    assert np.all(np.abs(frequencies - expected) <= 5 * standard_error + 1e-12)
    rewards = np.repeat(mdp.rewards.ravel()[:, None], num_draws, 1)
    if mdp.entry_rewards is not None:
        rewards += np.where(mdp.terminal[rows.ravel()][:, None], 0.0, mdp.entry_rewards[reached_rows])
    np.testing.assert_allclose(timestep.reward, rewards, rtol=1e-6)
    np.testing.assert_array_equal(timestep.terminated, mdp.terminal[reached_rows])
    np.testing.assert_array_equal(timestep.action_mask, mdp.mask[reached_rows])
    np.testing.assert_array_equal(timestep.observation, np.eye(num_states)[reached_rows])


@pytest.mark.parametrize("name", TABULAR)
def test_starts_are_drawn_from_the_start_probabilities(name):
    mdp = tiny_mdp(name)
    state, timestep = jax.vmap(tiny(name).train.reset)(jax.random.split(jax.random.key(0), 500))
    frequencies = np.bincount(np.asarray(inner(state).row), minlength=len(mdp.terminal)) / 500
    expected = mdp.start_probabilities
    # 5 standard errors, as above.
    assert np.all(np.abs(frequencies - expected) <= 5 * np.sqrt(expected * (1 - expected) / 500) + 1e-12)
    assert not np.asarray(timestep.ended).any()


def enumerate_best(mdp, gamma, state, depth):
    """Optimal value over `depth` steps by enumeration of all actions."""
    if mdp.terminal[state] or depth == 0:
        return 0.0
    return max(
        expected_rewards(mdp)[state, action]
        + gamma
        * sum(
            probability * enumerate_best(mdp, gamma, following, depth - 1)
            for following, probability in enumerate(mdp.transition_probabilities[state, action])
            if probability > 0
        )
        for action in np.flatnonzero(mdp.mask[state])
    )


@pytest.mark.parametrize("gamma", [1.0, 0.7])
@pytest.mark.parametrize("name", sorted({*TABULAR} - {"cliff", "slippery"}))
def test_solving_equals_enumeration(name, gamma):
    mdp = tiny_mdp(name)
    values, q_values = solve(mdp, gamma)
    for state in range(len(values)):
        assert values[state] == pytest.approx(enumerate_best(mdp, gamma, state, 6), abs=1e-12)
    assert np.all(np.isneginf(q_values) == ~mdp.mask)


def test_known_values_by_hand():
    gamma = 0.9
    assert known_answer("constant_reward", gamma).values.tolist() == [1.0]
    assert known_answer("observation_reward", gamma).values.tolist() == [-1.0, 1.0]
    np.testing.assert_allclose(known_answer("delayed_reward", gamma, delay=4).values, gamma ** np.array([3, 2, 1, 0]))
    np.testing.assert_allclose(known_answer("chain", gamma, length=3).values, [0.81, 0.9, 1.0])
    # With a small discount factor it is better to exit at once.
    assert known_answer("chain", 0.5, length=5, exit_reward=0.1).actions[0].tolist() == [True, False]
    np.testing.assert_allclose(known_answer("credit", gamma).values, [0.9, 0.0, 1.0])
    assert known_answer("credit", 0.4).actions[0].tolist() == [True, False]
    np.testing.assert_allclose(known_answer("masked", gamma).values, [0.9, 1.0])
    assert known_answer("gamble", 1.0).values[0] == pytest.approx(0.6)
    assert known_answer("gamble", 1.0, win_probability=0.7).actions[0].tolist() == [False, True]
    assert known_answer("lottery", 1.0).actions[0].tolist() == [True, False]
    assert known_answer("lottery", 1.0, win_probability=0.6).values[0] == pytest.approx(0.2)
    assert known_answer("lottery", 1.0, win_probability=0.6, num_steps=2).values[0] == pytest.approx(0.2)
    # Up, four to the right, down. The start is the last state that is not terminal.
    assert known_answer("cliff", 1.0).values[-1] == pytest.approx(-6.0)
    assert known_answer("cliff", 1.0).actions[-1].tolist() == [True, False, False, False]


def test_a_slippery_walk_solves_its_linear_equations():
    """Right is optimal everywhere, so the values solve V = r + gamma P_right V."""
    mdp = tiny_mdp("slippery")
    right = mdp.transition_probabilities[:, 1] * ~mdp.terminal[:, None]
    expected = np.linalg.solve(np.eye(len(right)) - 0.95 * right * ~mdp.terminal, mdp.rewards[:, 1])
    np.testing.assert_allclose(known_answer("slippery", 0.95).values, expected[:-1], atol=1e-10)


def test_the_tree_ends_at_each_depth_and_its_best_path_is_a_long_one():
    mdp = tiny_mdp("tree")
    following = mdp.transition_probabilities.argmax(-1)
    frontier, ends = {0}, []
    while frontier:
        reached = [int(s) for node in frontier for s in following[node]]
        ends.append(sum(bool(mdp.terminal[s]) for s in reached))
        frontier = {s for s in reached if not mdp.terminal[s]}
    assert ends == [1, 2, 12]
    _, q_values = solve(mdp, 1.0)
    assert np.argmax(q_values[0]) != np.argmax(mdp.rewards[0])
    best, steps = 0, 0
    while not mdp.terminal[best]:
        best, steps = following[best, np.argmax(q_values[best])], steps + 1
    assert steps == 3


@pytest.mark.parametrize("name", TABULAR)
def test_acting_on_the_known_answer_earns_the_known_value(name):
    """Discounted returns of 1 000 episodes against V(start): 5 standard errors, fixed seed."""
    env = tiny(name).evaluation

    @jax.jit
    def play(best_actions, gamma):
        def episode(key):
            key_reset, key_steps = jax.random.split(key)

            def body(carry, key_step):
                state, timestep, alive = carry
                action = best_actions[jnp.argmax(timestep.observation)]
                state, timestep = env.step(key_step, state, action)
                return (state, timestep, alive & ~timestep.ended), jnp.where(alive, timestep.reward, 0.0)

            state, first = env.reset(key_reset)
            carry = (state, first, jnp.ones((), bool))
            rewards = jax.lax.scan(body, carry, jax.random.split(key_steps, 60))[1]
            return first.observation, jnp.sum(rewards * gamma ** jnp.arange(60))

        return jax.vmap(episode)(jax.random.split(jax.random.key(0), 1000))

    for gamma in (1.0, 0.9):
        answer = known_answer(name, gamma)
        # Terminal states come last, and actions there have no effect.
        best_actions = np.zeros(env.observation_spec.shape, np.int32)
        best_actions[: len(answer.actions)] = answer.actions.argmax(axis=1)
        observations, returns = play(best_actions, gamma)
        errors = np.asarray(returns) - answer.values[np.asarray(observations).argmax(axis=1)]
        assert abs(errors.mean()) <= 5 * errors.std() / np.sqrt(len(errors)) + 1e-5


# --- Continuous ------------------------------------------------------------------------------------------------------


def best_continuous_return(name, observation, gamma, num_actions=201):
    """Best discounted return over a grid of actions, one or two steps deep, by the environment's step."""
    env = tiny(name).model
    grid = jnp.linspace(-1.0, 1.0, num_actions)[:, None]
    state, _ = env.reset(jax.random.key(0))
    state = state._replace(vector=jnp.asarray(observation))
    step = jax.vmap(lambda s, a: env.step(jax.random.key(0), s, a), (None, 0))
    states, first = step(state, grid)
    if name != "continuous_credit" or observation[0] > 0:
        return first.reward
    _, second = jax.vmap(step, (0, None))(states, grid)
    return first.reward + gamma * jnp.max(second.reward, axis=1)


@pytest.mark.parametrize("name", sorted({*CONTINUOUS} - {"lqr"}))
def test_no_action_on_a_grid_beats_the_known_one(name):
    gamma = 0.9
    answer = known_answer(name, gamma)
    for observation, value, action in zip(*answer, strict=True):
        returns = np.asarray(best_continuous_return(name, observation, gamma))
        assert returns.max() <= value + 1e-5
        assert returns.max() >= value - 1e-4  # an error of half a grid step costs at most 0.005², twice
        assert np.linspace(-1, 1, 201)[returns.argmax()] == pytest.approx(action[0], abs=0.0101)


@pytest.mark.parametrize("name", sorted({*CONTINUOUS} - {"lqr"}))
def test_rewards_after_an_end_are_zero(name):
    env = tiny(name).model
    state, timestep = env.reset(jax.random.key(0))
    while not timestep.terminated:
        state, timestep = env.step(jax.random.key(1), state, jnp.full(1, 0.2))
    _, timestep = env.step(jax.random.key(2), state, jnp.full(1, 0.2))
    assert float(timestep.reward) == 0.0
    assert bool(timestep.terminated)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_regulator_costs_the_riccati_value(gamma):
    answer = known_answer("lqr", gamma)
    env = tiny("lqr", time_limit=400).model
    # The gain follows from the answer, because actions are linear in the observation.
    gain, residual, *_ = np.linalg.lstsq(answer.observations, answer.actions, rcond=None)
    assert residual[0] < 1e-12

    def total(vector, change):
        def body(state, t):
            action = state.inner.vector @ (gain + change)
            state, timestep = env.step(jax.random.key(0), state, action)
            return state, (gamma**t * timestep.reward, jnp.abs(action))

        state, _ = env.reset(jax.random.key(0))
        state = state._replace(inner=state.inner._replace(vector=vector))
        rewards, sizes = jax.lax.scan(body, state, jnp.arange(400))[1]
        return jnp.sum(rewards), jnp.max(sizes)

    totals = jax.jit(jax.vmap(total, (0, None)))
    returns, sizes = totals(answer.observations, jnp.zeros((2, 1)))
    np.testing.assert_allclose(returns, answer.values, rtol=1e-4, atol=1e-5)
    assert np.max(sizes) < 1.0  # never clipped; otherwise the Riccati equation would not hold
    # Every other linear rule costs more, over all starts.
    for change in ([[0.1], [0.0]], [[-0.1], [0.0]], [[0.0], [0.1]], [[0.0], [-0.1]]):
        assert np.sum(totals(answer.observations, jnp.array(change))[0]) < np.sum(answer.values) - 1e-4


def test_noise_costs_the_trace_and_needs_a_discount():
    noisy, still = known_answer("lqr", 0.9, noise=0.05), known_answer("lqr", 0.9)
    np.testing.assert_allclose(noisy.actions, still.actions)
    difference = still.values - noisy.values
    np.testing.assert_allclose(difference, difference[0])
    gain = np.linalg.lstsq(still.observations, still.actions, rcond=None)[0]
    env = tiny("lqr", noise=0.05, time_limit=100).model

    def total(key):
        def body(state, inputs):
            t, key = inputs
            state, timestep = env.step(key, state, state.inner.vector @ gain)
            return state, 0.9**t * timestep.reward

        state, _ = env.reset(key)
        state = state._replace(inner=state.inner._replace(vector=jnp.array([0.5, -0.5])))
        return jnp.sum(jax.lax.scan(body, state, (jnp.arange(100), jax.random.split(key, 100)))[1])

    returns = np.asarray(jax.jit(jax.vmap(total))(jax.random.split(jax.random.key(0), 4000)))
    start = int(np.flatnonzero((still.observations == [0.5, -0.5]).all(axis=1))[0])
    assert abs(returns.mean() - noisy.values[start]) <= 5 * returns.std() / np.sqrt(4000)
    assert 5 * returns.std() / np.sqrt(4000) < difference[0] / 4  # a missing noise term would be detected
    with pytest.raises(ValueError, match="gamma < 1"):
        known_answer("lqr", 1.0, noise=0.05)


# --- Errors ----------------------------------------------------------------------------------------------------------


def test_the_error_of_an_unknown_name_lists_the_known_ones():
    for ask in (tiny, tiny_mdp, lambda name: known_answer(name, 0.9)):
        with pytest.raises(ValueError, match=r"no tiny task 'bandits': choose one of .*bandit"):
            ask("bandits")
    with pytest.raises(ValueError, match="continuous actions and no tables"):
        tiny_mdp("lqr")
    with pytest.raises(ValueError, match="length=0 is too small"):
        tiny("chain", length=0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m._replace(transition_probabilities=0.5 * m.transition_probabilities), "must sum to 1"),
        (lambda m: m._replace(start_probabilities=m.start_probabilities[::-1]), "cannot start in a terminal state"),
        (lambda m: m._replace(mask=np.zeros_like(m.mask)), "at least one valid action"),
        (lambda m: m._replace(rewards=m.rewards + 1.0), "Nothing may happen after an end"),
        (lambda m: m._replace(transition_probabilities=m.transition_probabilities[:, :, ::-1]), "Nothing may happen"),
        (lambda m: m._replace(terminal=m.terminal[:-1]), r"terminal must have shape \(2,\)"),
    ],
)
def test_impossible_tables_are_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        tabular(change(tiny_mdp("bandit")), "impossible")


def test_solving_without_an_end_or_a_discount_is_refused():
    endless = tiny_mdp("bandit")._replace(transition_probabilities=np.eye(2)[[[0, 0, 0], [1, 1, 1]]])
    with pytest.raises(ValueError, match="smaller gamma"):
        solve(endless, 1.0)


def test_the_picture_marks_the_current_state():
    env = tiny("cliff").train
    state, _ = env.reset(jax.random.key(0))
    before = env.render(state)
    state, _ = env.step(jax.random.key(0), state, jnp.int32(0))
    after = env.render(state)
    changed_rows, changed_columns = np.nonzero((before != after).any(axis=-1))
    # Up from the lower left: only the first column of cells changes, in the lower two rows.
    assert changed_columns.max() < 20
    assert 20 <= changed_rows.min() < 40 <= changed_rows.max()
