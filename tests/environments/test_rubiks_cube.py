"""The cube against Jumanji's, against group theory, and against known numbers of positions."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from spo.environments.rubiks_cube import (
    QUARTER_TURNS,
    RubiksCubeState,
    make_rubiks_cube,
    move_table,
    num_moves,
    render,
    rubiks_cube,
    solved_stickers,
    trace_back,
)

jumanji_cube = pytest.importorskip("jumanji.environments.logic.rubiks_cube")
jumanji_generator = pytest.importorskip("jumanji.environments.logic.rubiks_cube.generator")
jumanji_types = pytest.importorskip("jumanji.environments.logic.rubiks_cube.types")
jumanji_utils = pytest.importorskip("jumanji.environments.logic.rubiks_cube.utils")


def solved_state(size=3, step_count=0):
    return RubiksCubeState(jnp.asarray(solved_stickers(size)), jnp.int32(step_count))


# --- Against Jumanji -------------------------------------------------------------------------------------------------

TIME_LIMIT = 3


def play_both(size, *, num_cubes=256, num_steps=60):
    """Random play. Both cubes compute every transition from the same state. Arrays are [num_steps, num_cubes, ...]."""
    near, far, as_jumanji = (
        make_rubiks_cube(
            size=size,
            time_limit=TIME_LIMIT,
            min_scrambles=num_scrambles,
            max_scrambles=num_scrambles,
            time_limit_is_termination=time_limit_is_termination,
        )
        for num_scrambles, time_limit_is_termination in ((1, False), (30, False), (0, True))
    )
    theirs = jumanji_cube.RubiksCube(
        generator=jumanji_generator.ScramblingGenerator(cube_size=size, num_scrambles_on_reset=1), time_limit=TIME_LIMIT
    )

    def start(key):
        """A start at any step of an episode. Most are one move from the goal, so random play reaches it."""
        key_near, key_far, key_which, key_count = jax.random.split(key, 4)
        stickers = jnp.where(
            jax.random.bernoulli(key_which, 0.7), near.reset(key_near)[0].stickers, far.reset(key_far)[0].stickers
        )
        return RubiksCubeState(stickers, jax.random.randint(key_count, (), 0, TIME_LIMIT))

    def transition(state, key):
        key_action, key_step, key_start = jax.random.split(key, 3)
        action = jax.random.randint(key_action, (), 0, num_moves(size))
        next_state, timestep = near.step(key_step, state, action)
        _, timestep_as_jumanji = as_jumanji.step(key_step, state, action)
        _, their_timestep = theirs.step(
            jumanji_types.State(
                cube=state.stickers.reshape(6, size, size), step_count=state.step_count, key=jax.random.PRNGKey(0)
            ),
            jumanji_utils.unflatten_action(action, size),
        )
        carried = jax.tree.map(lambda new, old: jnp.where(timestep.ended, new, old), start(key_start), next_state)
        return carried, (action, next_state, timestep, timestep_as_jumanji, their_timestep)

    @jax.jit
    def play(key):
        key_start, key_play = jax.random.split(key)
        states = jax.vmap(start)(jax.random.split(key_start, num_cubes))
        keys = jax.random.split(key_play, (num_steps, num_cubes))
        return jax.lax.scan(jax.vmap(transition), states, keys)[1]

    return jax.tree.map(np.asarray, play(jax.random.key(size)))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_transition_equals_jumanjis(size):
    action, state, ours, ours_as_jumanji, theirs = play_both(size)
    assert action.size >= 10_000
    assert len(np.unique(action)) == num_moves(size)

    for timestep in (ours, ours_as_jumanji):
        np.testing.assert_array_equal(timestep.observation, theirs.observation.cube)
        assert timestep.observation.dtype == theirs.observation.cube.dtype
        np.testing.assert_array_equal(timestep.reward, theirs.reward)
        assert timestep.reward.dtype == theirs.reward.dtype
        np.testing.assert_array_equal(timestep.ended, theirs.last())
    np.testing.assert_array_equal(state.step_count, theirs.observation.step_count)

    solved, timed_out = ours.reward == 1.0, state.step_count == TIME_LIMIT
    # All four cases occurred: continued, solved early, out of time, solved by the last move.
    for case in (~solved & ~timed_out, solved & ~timed_out, ~solved & timed_out, solved & timed_out):
        assert case.sum() >= 20
    np.testing.assert_array_equal(ours.metrics["solved"], solved)
    np.testing.assert_array_equal(ours.terminated, solved)
    np.testing.assert_array_equal(ours.truncated, timed_out & ~solved)
    np.testing.assert_array_equal(ours_as_jumanji.discount, theirs.discount)
    assert not ours_as_jumanji.truncated.any()


@pytest.mark.parametrize("size", [3, 5])
def test_a_scramble_of_given_moves_equals_jumanjis(size):
    moves = np.random.default_rng(size).integers(0, num_moves(size), 50)
    theirs = jumanji_utils.scramble_solved_cube(jnp.asarray(moves), size)
    ours = solved_stickers(size)
    for move in moves:
        ours = ours[move_table(size)[move]]
    np.testing.assert_array_equal(ours.reshape(6, size, size), theirs)


def test_actions_are_jumanjis_in_row_major_order():
    size = 5
    num_values = jumanji_cube.RubiksCube(
        generator=jumanji_generator.ScramblingGenerator(cube_size=size, num_scrambles_on_reset=1)
    ).action_spec.num_values
    unflattened = list(itertools.product(*(range(int(count)) for count in num_values)))
    assert len(unflattened) == num_moves(size)
    for action, (face, depth, amount) in enumerate(unflattened):
        assert action == (face * (size // 2) + depth) * 3 + amount
        assert action == int(jumanji_utils.flatten_action(jnp.array([face, depth, amount]), size))


# --- Group theory ----------------------------------------------------------------------------------------------------


def compose(*moves):
    """Composition of permutations, applied from left to right."""
    result = np.arange(len(moves[0]))
    for move in moves:
        result = result[move]
    return result


def order(permutation):
    power, count = permutation, 1
    while (power != np.arange(len(permutation))).any():
        power, count = compose(power, permutation), count + 1
    return count


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_moves_are_quarter_turns_and_their_powers(size):
    table = move_table(size).reshape(6, size // 2, 3, -1)
    assert table.shape[-1] == 6 * size**2
    for face, depth in itertools.product(range(6), range(size // 2)):
        clockwise, anticlockwise, half = table[face, depth]
        assert order(clockwise) == 4
        assert order(half) == 2
        np.testing.assert_array_equal(compose(clockwise, clockwise), half)
        np.testing.assert_array_equal(compose(clockwise, clockwise, clockwise), anticlockwise)
        num_moved = (clockwise != np.arange(len(clockwise))).sum()
        on_face = size**2 - size % 2 if depth == 0 else 0  # an odd face turns about its middle sticker
        assert num_moved == 4 * size + on_face
    up, down, front = table[0, 0, 0], table[5, 0, 0], table[1, 0, 0]
    np.testing.assert_array_equal(compose(up, down), compose(down, up))
    assert (compose(up, front) != compose(front, up)).any()


def test_known_orders_of_move_sequences():
    table = move_table(3).reshape(6, 3, -1)
    (up, up_back, _), (right, right_back, _) = table[0], table[2]
    assert order(compose(right, up)) == 105
    assert order(compose(right, up, right_back, up_back)) == 6
    assert order(compose(right, up_back)) == 63


def test_known_numbers_of_positions_at_each_distance_from_solved():
    """1, 18, 243, 3240 positions need exactly 0, 1, 2, 3 moves (half turns count as one)."""
    table = move_table(3)
    frontier, seen, counts = {solved_stickers(3).tobytes()}, set(), []
    for _ in range(4):
        counts.append(len(frontier))
        seen |= frontier
        stickers = np.frombuffer(b"".join(frontier), np.int8).reshape(-1, 54)
        frontier = {position.tobytes() for position in stickers[:, table].reshape(-1, 54)} - seen
    assert counts == [1, 18, 243, 3240]


def test_amounts_are_clockwise_anticlockwise_half():
    """The up face turned clockwise brings the right face's stickers to the front."""
    env = rubiks_cube().model
    assert QUARTER_TURNS == (1, 3, 2)
    for action, came_to_front in ((0, 2), (1, 4), (2, 3)):
        _, timestep = env.step(jax.random.key(0), solved_state(), jnp.int32(action))
        np.testing.assert_array_equal(timestep.observation[1], [[came_to_front] * 3, [1] * 3, [1] * 3])


# --- Episodes --------------------------------------------------------------------------------------------------------


def test_starts_follow_the_distribution_of_scrambles():
    """0, 1 or 2 uniform moves, enumerated. Chi-square at a fixed seed; false alarms one in a million."""
    size, num_resets = 2, 60_000
    env = make_rubiks_cube(size=size, time_limit=20, min_scrambles=0, max_scrambles=2, time_limit_is_termination=False)
    table = move_table(size)
    expected = Counter()
    for count in range(3):
        for moves in itertools.product(range(len(table)), repeat=count):
            stickers = solved_stickers(size)
            for move in moves:
                stickers = stickers[table[move]]
            expected[stickers.tobytes()] += 1 / 3 / len(table) ** count
    states, _ = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), num_resets))
    observed = Counter(stickers.tobytes() for stickers in np.asarray(states.stickers))
    assert observed.keys() <= expected.keys()
    positions = list(expected)
    result = stats.chisquare(
        [observed[position] for position in positions], [num_resets * expected[position] for position in positions]
    )
    assert result.pvalue > 1e-6


def test_train_and_evaluation_differ_in_scrambles_only():
    task = rubiks_cube(size=3, min_scrambles=1, max_scrambles=1, eval_scrambles=0)
    one_move_away = {solved_stickers(3)[row].tobytes() for row in move_table(3)}
    keys = jax.random.split(jax.random.key(1), 200)
    for env in (task.train, task.model):
        states, _ = jax.vmap(env.reset)(keys)
        assert {stickers.tobytes() for stickers in np.asarray(states.stickers)} == one_move_away
    states, timesteps = jax.vmap(task.evaluation.reset)(keys)
    assert (np.asarray(states.stickers) == solved_stickers(3)).all()
    # A start on the goal is not an end and has no reward.
    assert not timesteps.ended.any()
    assert not timesteps.reward.any()
    assert timesteps.metrics["solved"].all()


def test_the_papers_setting_is_the_default():
    task = rubiks_cube()
    assert task.train.action_spec.num_actions == 18
    state, timestep = task.train.reset(jax.random.key(0))
    assert timestep.observation.shape == task.train.observation_spec.shape == (6, 3, 3)
    assert timestep.observation.dtype == task.train.observation_spec.dtype == jnp.int8
    assert timestep.action_mask.shape == (18,)
    assert timestep.action_mask.all()
    for expected_step_count in range(1, 21):
        state, timestep = task.train.step(jax.random.key(0), state, jnp.int32(0 if expected_step_count % 2 else 1))
        assert int(state.step_count) == expected_step_count
        assert bool(timestep.ended) == (expected_step_count == 20)
    assert timestep.truncated
    assert float(timestep.discount) == 1.0


def test_a_step_does_not_depend_on_the_key():
    env = rubiks_cube().model
    state, _ = env.reset(jax.random.PRNGKey(3))
    outcomes = [env.step(key, state, jnp.int32(7)) for key in (jax.random.key(0), jax.random.PRNGKey(1))]
    jax.tree.map(np.testing.assert_array_equal, *outcomes)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"size": 1}, "at least 2 cubies"),
        ({"time_limit": 0}, "at least one step"),
        ({"min_scrambles": 5, "max_scrambles": 4}, "number of scrambles"),
        ({"eval_scrambles": -1}, "number of scrambles"),
    ],
)
def test_bad_arguments_raise_with_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        rubiks_cube(**arguments)


# --- Pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4])
def test_render_draws_every_sticker_once(size):
    image = render(solved_state(size))
    assert image.dtype == np.uint8
    assert image.shape[0] * 4 == image.shape[1] * 3
    colours, counts = np.unique(image.reshape(-1, 3), axis=0, return_counts=True)
    # Six sticker colours in equal parts, the black gaps and the background.
    assert len(colours) == 8
    assert Counter(counts.tolist()).most_common(1)[0][1] == 6


def test_render_places_up_above_front_and_turns_with_the_cube():
    before = render(solved_state())
    state, _ = rubiks_cube().model.step(jax.random.key(0), solved_state(), jnp.int32(0))
    after = render(state)
    height, width = before.shape[0] // 3, before.shape[1] // 4
    up = (slice(0, height), slice(width, 2 * width))
    down = (slice(2 * height, None), slice(width, 2 * width))
    # A turn of the up face changes only the first row of the middle band.
    np.testing.assert_array_equal(after[up], before[up])
    np.testing.assert_array_equal(after[down], before[down])
    changed_rows = np.flatnonzero((after != before).any(axis=(1, 2)))
    assert changed_rows.min() >= height
    assert changed_rows.max() < height + height // 3


@pytest.mark.parametrize("length", [0, 1, 2, 15, 16, 17, 40])
def test_a_scramble_is_its_moves_in_turn(length):
    """With fewer moves than are compiled without a loop, and with more."""
    table = move_table(3)
    moves = np.random.default_rng(length).integers(len(table), size=length)
    stickers = np.arange(table.shape[1])
    for move in moves:
        stickers = stickers[table[move]]
    np.testing.assert_array_equal(trace_back(table, jnp.asarray(moves, jnp.int32)), stickers)
