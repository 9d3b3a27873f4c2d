"""Sokoban against Jumanji's, and its rules by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles.sokoban_solver import solve
from oracles.sokoban_text import level_to_text
from spo.environments.sokoban import (
    AGENT,
    AGENT_ON_TARGET,
    BOX,
    BOX_ON_TARGET,
    NUM_CELL_CODES,
    TARGET,
    WALL,
    SokobanState,
    level_from_text,
    make_sokoban,
    render,
    sokoban,
)
from spo.environments.sokoban_generator import generate_levels

UP, RIGHT, DOWN, LEFT = range(4)

# Jumanji's viewer leaves its picture files open. This is a warning, and warnings are errors here.
NO_VIEWER = SimpleNamespace()

# One push from the goal, with every kind of cell. Random play solves them and pushes boxes off targets.
NEARLY_SOLVED = [
    [
        "##########",
        "##########",
        "###.$@####",
        "##########",
        "###* * ###",
        "###  * ###",
        "###    ###",
        "##########",
        "##########",
        "##########",
    ],
    [
        "##########",
        "##########",
        "###  *####",
        "###$*+ ###",
        "###  *####",
        "###    ###",
        "##########",
        "##########",
        "##########",
        "##########",
    ],
]

# Without outer walls: the edge of the board must block agent and boxes.
OPEN_BOARD = [
    "@$      .$",
    "$       # ",
    "          ",
    "  .       ",
    "       .  ",
    "          ",
    "          ",
    "          ",
    "#        .",
    "         $",
]


# --- Against Jumanji -------------------------------------------------------------------------------------------------


NUM_BOARDS, NUM_STEPS, TIME_LIMIT = 256, 160, 120

# Jumanji stores walls and targets in one grid, agent and boxes in another.
TO_FIXED = np.zeros(NUM_CELL_CODES, np.uint8)
TO_FIXED[[WALL, TARGET, AGENT_ON_TARGET, BOX_ON_TARGET]] = [1, 2, 2, 2]
TO_VARIABLE = np.zeros(NUM_CELL_CODES, np.uint8)
TO_VARIABLE[[AGENT, AGENT_ON_TARGET, BOX, BOX_ON_TARGET]] = [3, 3, 4, 4]


def play_both(levels):
    """Random play. Both games compute every transition from the same state. Arrays are [NUM_STEPS, NUM_BOARDS, ...]."""
    jumanji_env = pytest.importorskip("jumanji.environments.routing.sokoban.env")
    jumanji_generator = pytest.importorskip("jumanji.environments.routing.sokoban.generator")
    jumanji_types = pytest.importorskip("jumanji.environments.routing.sokoban.types")

    ours = sokoban(levels, time_limit=TIME_LIMIT).train
    ours_as_jumanji = sokoban(levels, time_limit=TIME_LIMIT, time_limit_is_termination=True).train
    theirs = jumanji_env.Sokoban(generator=jumanji_generator.ToyGenerator(), viewer=NO_VIEWER)

    def transition(state, key):
        key_action, key_step, key_reset = jax.random.split(key, 3)
        action = jax.random.randint(key_action, (), 0, 4)
        next_state, timestep = ours.step(key_step, state, action)
        _, timestep_as_jumanji = ours_as_jumanji.step(key_step, state, action)
        their_state = jumanji_types.State(
            key=jax.random.PRNGKey(0),
            fixed_grid=jnp.asarray(TO_FIXED)[state.cells],
            variable_grid=jnp.asarray(TO_VARIABLE)[state.cells],
            agent_location=jnp.stack(jnp.divmod(state.agent, 10)),
            step_count=state.step_count,
        )
        their_next_state, their_timestep = theirs.step(their_state, action)
        their_board = theirs.grid_combine(their_next_state.variable_grid, their_next_state.fixed_grid)
        fresh_state, _ = ours.reset(key_reset)
        carried = jax.tree.map(lambda new, old: jnp.where(timestep.ended, new, old), fresh_state, next_state)
        return carried, (
            state,
            next_state,
            timestep,
            timestep_as_jumanji,
            their_next_state,
            their_timestep,
            their_board,
        )

    @jax.jit
    def play(key):
        key_reset, key_play = jax.random.split(key)
        states, _ = jax.vmap(ours.reset)(jax.random.split(key_reset, NUM_BOARDS))
        keys = jax.random.split(key_play, (NUM_STEPS, NUM_BOARDS))
        return jax.lax.scan(jax.vmap(transition), states, keys)[1]

    return jax.tree.map(np.asarray, play(jax.random.key(0)))


def test_every_transition_equals_jumanjis():
    levels = np.concatenate(
        [np.stack([level_from_text(rows) for rows in (*NEARLY_SOLVED, OPEN_BOARD)]), generate_levels(0, 6)]
    )
    before, after, ours, ours_as_jumanji, their_state, theirs, their_board = play_both(levels)

    assert their_board.shape == (NUM_STEPS, NUM_BOARDS, 10, 10)
    for timestep in (ours, ours_as_jumanji):
        np.testing.assert_array_equal(timestep.observation, their_board)
        np.testing.assert_array_equal(timestep.reward, theirs.reward)
        assert timestep.reward.dtype == theirs.reward.dtype
        np.testing.assert_array_equal(timestep.ended, theirs.last())
    np.testing.assert_array_equal(
        np.stack([TO_VARIABLE[ours.observation], TO_FIXED[ours.observation]], axis=-1), theirs.observation.grid
    )
    np.testing.assert_array_equal(np.stack(np.divmod(after.agent, 10), axis=-1), their_state.agent_location)
    np.testing.assert_array_equal(after.step_count, theirs.observation.step_count)
    np.testing.assert_array_equal(ours.metrics["solved"], theirs.extras["solved"])
    np.testing.assert_array_equal(ours.metrics["fraction_of_boxes_on_targets"], theirs.extras["prop_correct_boxes"])

    solved, timed_out = ours.metrics["solved"] == 1.0, after.step_count == TIME_LIMIT
    np.testing.assert_array_equal(ours.terminated, solved)
    np.testing.assert_array_equal(ours.truncated, timed_out & ~solved)
    np.testing.assert_array_equal(ours_as_jumanji.discount, theirs.discount)
    assert not ours_as_jumanji.truncated.any()

    # All cases occurred: pushes on and off targets, solved boards, the time limit, moves that change nothing.
    pushed_on, pushed_off = np.isclose(ours.reward, 0.9), np.isclose(ours.reward, -1.1)
    idle = (before.agent == after.agent) & (before.cells == after.cells).all(axis=(-1, -2))
    row, column = np.divmod(before.agent, 10)
    at_the_edge = (row % 9 == 0) | (column % 9 == 0)
    for case in (pushed_on, pushed_off, solved, timed_out & ~solved, idle & ~at_the_edge, idle & at_the_edge):
        assert case.sum() >= 50
    assert not idle.all()


def test_solutions_end_in_both_games_alike():
    jumanji_env = pytest.importorskip("jumanji.environments.routing.sokoban.env")
    jumanji_generator = pytest.importorskip("jumanji.environments.routing.sokoban.generator")
    theirs = jumanji_env.Sokoban(generator=jumanji_generator.SimpleSolveGenerator(), viewer=NO_VIEWER)
    their_state, _ = theirs.reset(jax.random.key(0))
    level = np.asarray(theirs.grid_combine(their_state.variable_grid, their_state.fixed_grid))
    ours = sokoban(level[None]).evaluation
    state, _ = ours.reset(jax.random.key(0))

    step, their_step = jax.jit(ours.step), jax.jit(theirs.step)
    moves = solve(level_to_text(level))
    assert moves
    for count, move in enumerate(moves, start=1):
        state, timestep = step(jax.random.key(0), state, jnp.int32(move))
        their_state, their_timestep = their_step(their_state, jnp.int32(move))
        assert float(timestep.reward) == float(their_timestep.reward)
        assert bool(timestep.terminated) == bool(their_timestep.last()) == (count == len(moves))
    assert float(timestep.metrics["solved"]) == 1.0
    assert float(timestep.reward) == pytest.approx(10.9)


# --- Rules -----------------------------------------------------------------------------------------------------------


def after(rows, *moves):
    """Board after some moves, as text, and the rewards."""
    task = sokoban(level_from_text(rows)[None])
    state, timestep = task.model.reset(jax.random.key(0))
    assert level_to_text(np.asarray(timestep.observation)) == rows
    rewards = []
    for move in moves:
        state, timestep = task.model.step(jax.random.key(0), state, jnp.int32(move))
        rewards.append(float(timestep.reward))
    assert (np.asarray(state.cells).reshape(-1)[int(state.agent)]) in (AGENT, AGENT_ON_TARGET)
    return level_to_text(np.asarray(state.cells)), rewards


@pytest.mark.parametrize(
    ("before", "move", "expected", "reward"),
    [
        pytest.param([" .$", " @ ", "   "], UP, [" +$", "   ", "   "], -0.1, id="walk onto a target"),
        pytest.param([" $.", " + ", " $ "], LEFT, [" $.", "@. ", " $ "], -0.1, id="walk off a target"),
        pytest.param(["  .", "@$ ", "   "], RIGHT, ["  .", " @$", "   "], -0.1, id="push over floor"),
        pytest.param(["@$.", "  .", "  $"], RIGHT, [" @*", "  .", "  $"], 0.9, id="push onto a target"),
        pytest.param(["@* ", "  .", "  $"], RIGHT, [" +$", "  .", "  $"], -1.1, id="push off a target"),
        pytest.param(["@*.", "  $", "   "], RIGHT, [" +*", "  $", "   "], -0.1, id="push from target to target"),
        pytest.param(["$ .", "@$.", "  *"], RIGHT, ["$ .", " @*", "  *"], 0.9, id="the last but one"),
        pytest.param(["  #", "@$.", "  *"], RIGHT, ["  #", " @*", "  *"], 10.9, id="the last one"),
        pytest.param(["#$.", "#@ ", "## "], LEFT, ["#$.", "#@ ", "## "], -0.1, id="a wall holds the agent"),
        pytest.param(["@$#", ".  ", "   "], RIGHT, ["@$#", ".  ", "   "], -0.1, id="a wall holds a box"),
        pytest.param(["@$$", ". .", "   "], RIGHT, ["@$$", ". .", "   "], -0.1, id="a box holds a box"),
        pytest.param(["@$*", ". .", " $ "], RIGHT, ["@$*", ". .", " $ "], -0.1, id="a placed box holds a box"),
        pytest.param(["@$.", "   ", "   "], LEFT, ["@$.", "   ", "   "], -0.1, id="the edge holds the agent"),
        pytest.param(["  .", " @$", "   "], RIGHT, ["  .", " @$", "   "], -0.1, id="the edge holds a box"),
        pytest.param(["  $", "@ .", "   "], LEFT, ["  $", "@ .", "   "], -0.1, id="no way round to the row above"),
    ],
)
def test_rules(before, move, expected, reward):
    board, rewards = after(before, move)
    assert board == expected
    assert rewards == [pytest.approx(reward)]


def test_actions_are_up_right_down_left():
    rows = ["   ", " @ ", "$ ."]
    positions = [after(rows, move)[0] for move in (UP, RIGHT, DOWN, LEFT)]
    assert positions == [
        [" @ ", "   ", "$ ."],
        ["   ", "  @", "$ ."],
        ["   ", "   ", "$@."],
        ["   ", "@  ", "$ ."],
    ]


def test_the_time_limit_truncates_and_the_flag_makes_it_a_termination():
    level = level_from_text(["@ .", "  $", "   "])[None]
    for flag in (False, True):
        env = sokoban(level, time_limit=3, time_limit_is_termination=flag).train
        state, timestep = env.reset(jax.random.key(0))
        for count in range(1, 4):
            assert not timestep.ended
            state, timestep = env.step(jax.random.key(0), state, jnp.int32(LEFT))
            assert int(state.step_count) == count
        assert bool(timestep.terminated) == flag
        assert bool(timestep.truncated) != flag


def test_solving_in_the_last_step_is_termination():
    env = sokoban(level_from_text(["@$.", "   ", "   "])[None], time_limit=1).train
    state, _ = env.reset(jax.random.key(0))
    _, timestep = env.step(jax.random.key(0), state, jnp.int32(RIGHT))
    assert timestep.terminated
    assert not timestep.truncated


# --- Levels ----------------------------------------------------------------------------------------------------------


def test_text_and_codes_are_one_to_one():
    rows = [" #.", "@$+", "*# "]
    level = level_from_text(rows)
    np.testing.assert_array_equal(level, [[0, 1, 2], [3, 4, 5], [6, 1, 0]])
    assert level.dtype == np.uint8
    assert level_to_text(level) == rows


@pytest.mark.parametrize("rows", [[], ["##", "#"], ["###", "###"], ["#x", "##"]])
def test_bad_text_raises(rows):
    with pytest.raises(ValueError, match="A level is"):
        level_from_text(rows)


def test_starts_are_drawn_uniformly_from_the_levels_of_the_role():
    """Binomial counts within 6 standard deviations of their mean: false alarms below one in ten million."""
    levels = generate_levels(3, 14)
    task = sokoban(levels[:10], evaluation_levels=levels[10:])
    keys = jax.random.split(jax.random.key(0), 10_000)
    for env, own_levels in ((task.train, levels[:10]), (task.evaluation, levels[10:]), (task.model, levels[:10])):
        states, timesteps = jax.vmap(env.reset)(keys)
        np.testing.assert_array_equal(timesteps.observation, states.cells)
        same = (np.asarray(states.cells)[:, None] == own_levels).all(axis=(2, 3))
        assert same.any(axis=1).all()
        share = 1 / len(own_levels)
        assert abs(same.mean(axis=0) - share).max() < 6 * (share * (1 - share) / len(keys)) ** 0.5
        agent_codes = np.asarray(states.cells).reshape(len(keys), -1)[np.arange(len(keys)), np.asarray(states.agent)]
        assert np.isin(agent_codes, (AGENT, AGENT_ON_TARGET)).all()


def test_specs_and_masks():
    task = sokoban(generate_levels(0, 2))
    state, timestep = task.train.reset(jax.random.PRNGKey(0))
    assert timestep.observation.shape == task.train.observation_spec.shape == (10, 10)
    assert timestep.observation.dtype == task.train.observation_spec.dtype == jnp.uint8
    assert task.train.action_spec.num_actions == 4
    assert timestep.action_mask.tolist() == [True] * 4
    _, stepped = task.model.step(jax.random.key(0), state, jnp.int32(0))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), stepped) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), timestep
    )


GOOD = level_from_text(["@$.", "   ", "   "])


@pytest.mark.parametrize(
    ("levels", "sentence"),
    [
        (GOOD, "stack square boards"),
        (GOOD[None, :2], "stack square boards"),
        (GOOD[None][:0], "at least one level"),
        (GOOD[None].astype(np.int32), "as uint8"),
        (GOOD[None] + np.uint8(7), "Cell codes are 0 to 6"),
        (np.stack([GOOD, level_from_text([" $.", "   ", "   "])]), "Level 1 has 0 agents"),
        (level_from_text(["@$.", "@  ", "   "])[None], "Level 0 has 2 agents"),
        (level_from_text(["@$.", "$  ", "   "])[None], "Level 0 has 2 boxes and 1 targets"),
        (level_from_text(["@  ", "   ", "   "])[None], "has no boxes"),
        (level_from_text(["@* ", "   ", "   "])[None], "is solved from the start"),
    ],
)
def test_bad_levels_raise_with_a_sentence(levels, sentence):
    with pytest.raises(ValueError, match=sentence):
        sokoban(levels)


def test_other_bad_arguments_raise_with_a_sentence():
    with pytest.raises(ValueError, match="at least one step"):
        make_sokoban(GOOD[None], time_limit=0, time_limit_is_termination=False)
    with pytest.raises(ValueError, match="one board size"):
        sokoban(generate_levels(0, 1), evaluation_levels=GOOD[None])


# --- Pictures --------------------------------------------------------------------------------------------------------


def test_render_draws_each_code_as_its_own_tile():
    cells = level_from_text([" #.", "@$+", "*# "])
    image = render(SokobanState(cells=jnp.asarray(cells), agent=jnp.int32(3), step_count=jnp.int32(0)))
    assert image.dtype == np.uint8
    tile = image.shape[0] // 3
    assert image.shape == (3 * tile, 3 * tile, 3)
    tiles = image.reshape(3, tile, 3, tile, 3).transpose(0, 2, 1, 3, 4).reshape(9, -1)
    codes = cells.reshape(-1)
    for first in range(9):
        for second in range(9):
            assert (tiles[first] == tiles[second]).all() == (codes[first] == codes[second])
