"""The adapter against Jumanji itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

jumanji_package = pytest.importorskip("jumanji")

from spo.environments.jumanji import _SEVERAL_AGENTS, _registered, jumanji, names, offline_options  # noqa: E402
from spo.types import DiscreteActions  # noqa: E402

# Warnings of Jumanji: Pac-Man writes floats into integers, and Sokoban's viewer leaves its pictures open.
pytestmark = [
    pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]
LIMITED = ("maze", "pac_man", "rubiks_cube", "sliding_tile_puzzle", "snake", "sokoban", "tetris")
QUICK = ("game_2048", "rubiks_cube", "snake")  # with chance; with three choices per action; with a time limit


@functools.cache
def _raw(name, time_limit=None):
    """Jumanji's environment, with its reset and step compiled once per module."""
    limit = {} if time_limit is None else {"time_limit": time_limit}
    raw = jumanji_package.make(_registered()[name], **limit, **offline_options(name))
    return raw, jax.jit(raw.reset), jax.jit(raw.step)


def _play(env, key, num_steps):
    """Random play with valid actions: (actions, keys, start, time steps)."""
    key_reset, key_play = jax.random.split(key)
    state, start = env.reset(key_reset)

    def body(carry, key):
        state, mask = carry
        key_action, key_step = jax.random.split(key)
        action = jax.random.categorical(key_action, jnp.where(mask, 0.0, -jnp.inf))
        state, timestep = env.step(key_step, state, action)
        return (state, timestep.action_mask), (action, key_step, timestep)

    _, (actions, keys, timesteps) = jax.lax.scan(
        body, (state, start.action_mask), jax.random.split(key_play, num_steps)
    )
    return actions, keys, start, timesteps


def _check_against_jumanji(name, num_steps=12):
    """Jumanji's own `step` with the same actions and keys: equal observations, rewards, masks and ends."""
    limit = num_steps - 2 if name in LIMITED else None
    env = jumanji(name, **({} if limit is None else {"time_limit": limit}), **offline_options(name)).train
    actions, keys, start, timesteps = jax.jit(lambda key: _play(env, key, num_steps))(jax.random.key(5))

    raw, raw_reset, raw_step = _raw(name, limit)
    num_values = tuple(np.atleast_1d(raw.action_spec.num_values))
    with jax.numpy_rank_promotion("allow"):
        state, raw_timestep = raw_reset(jax.random.split(jax.random.key(5))[0])
        _check_equal(start, raw_timestep)
        for index in range(num_steps):
            action = np.unravel_index(int(actions[index]), num_values)
            action = jnp.asarray(action if len(action) > 1 else action[0], jnp.int32)
            state = state._replace(key=keys[index]) if hasattr(state, "_replace") else state.replace(key=keys[index])
            state, raw_timestep = raw_step(state, action)
            _check_equal(jax.tree.map(lambda leaf, index=index: leaf[index], timesteps), raw_timestep)
            if raw_timestep.last():
                break


def _check_equal(ours, theirs):
    theirs_observed = theirs.observation._asdict()
    mask = theirs_observed.pop("action_mask", None)
    jax.tree.map(np.testing.assert_array_equal, ours.observation, theirs_observed)
    if mask is not None and mask.any():
        np.testing.assert_array_equal(ours.action_mask, mask.reshape(-1))
    else:
        assert ours.action_mask.all()
    np.testing.assert_allclose(ours.reward, theirs.reward, rtol=1e-6)
    assert bool(ours.ended) == bool(theirs.last())
    assert not (ours.terminated and ours.truncated)


@pytest.mark.parametrize("name", QUICK)
def test_plays_like_jumanji(name):
    _check_against_jumanji(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(names()) - set(QUICK)))
def test_all_play_like_jumanji(name):
    _check_against_jumanji(name)


def test_actions_are_flattened_in_row_major_order():
    env = jumanji("rubiks_cube").train
    assert env.action_spec == DiscreteActions(18)
    _, raw_reset, raw_step = _raw("rubiks_cube", 10)
    with jax.numpy_rank_promotion("allow"):
        raw_state, _ = raw_reset(jax.random.key(0))
    state = raw_state.replace(key=None)
    step = jax.jit(env.step)
    for index, action in ((5, [1, 0, 2]), (16, [5, 0, 1])):
        with jax.numpy_rank_promotion("allow"):
            expected, _ = raw_step(raw_state, jnp.array(action))
        np.testing.assert_array_equal(step(jax.random.key(0), state, index)[0].cube, expected.cube)


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)], ids=["typed key", "raw key"])
def test_the_future_is_drawn_from_the_key_given_to_step(key):
    env = jumanji("game_2048").train
    state, _ = env.reset(key)
    assert state.key is None
    step = jax.jit(env.step)
    boards = [step(jax.random.fold_in(key, seed), state, 0)[0].board for seed in (1, 1, 2, 3, 4, 5)]
    np.testing.assert_array_equal(boards[0], boards[1])
    assert any((boards[0] != board).any() for board in boards[2:])


@pytest.mark.parametrize("name", QUICK)
def test_layout_is_the_same_after_reset_and_step_and_holds_no_key(name):
    env = jumanji(name).train
    start = jax.eval_shape(env.reset, jax.random.key(0))
    after = jax.eval_shape(env.step, jax.random.key(1), start[0], jax.ShapeDtypeStruct((), jnp.int32))
    assert jax.tree.structure(start) == jax.tree.structure(after)
    for before, then in zip(jax.tree.leaves(start), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype, before.weak_type) == (then.shape, then.dtype, then.weak_type)
        assert not before.weak_type
    assert not any(
        leaf.dtype == jnp.uint32 or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(start)
    )


@pytest.mark.parametrize(
    ("options", "terminated", "truncated"),
    [({}, False, True), ({"time_limit_is_termination": True}, True, False)],
)
def test_time_limit_of_the_cube(options, terminated, truncated):
    env = jumanji("rubiks_cube", time_limit=3, **options).train
    state, timestep = env.reset(jax.random.key(0))
    step = jax.jit(env.step)
    for _ in range(3):
        assert not timestep.ended
        state, timestep = step(jax.random.key(0), state, 0)
    assert (bool(timestep.terminated), bool(timestep.truncated)) == (terminated, truncated)


@pytest.mark.parametrize("limit_is_termination", [False, True])
def test_solving_in_the_last_step_terminates(limit_is_termination):
    # A solved cube, turned clockwise and back within a limit of two steps.
    from jumanji.environments.logic.rubiks_cube.generator import ScramblingGenerator

    solved = ScramblingGenerator(cube_size=3, num_scrambles_on_reset=0)
    options = {"time_limit": 2, "generator": solved, "time_limit_is_termination": limit_is_termination}
    env = jumanji("rubiks_cube", **options).train
    step = jax.jit(env.step)
    state, _ = env.reset(jax.random.key(0))
    state, timestep = step(jax.random.key(0), state, 0)
    assert not timestep.ended
    _, timestep = step(jax.random.key(0), state, 1)
    assert timestep.terminated
    assert not timestep.truncated
    assert timestep.reward == 1.0


def test_a_loss_in_the_last_step_terminates():
    # A snake that walks up dies at the wall, in the step that is also the last one allowed.
    state, timestep = jumanji("snake").train.reset(jax.random.key(0))
    step = jax.jit(jumanji("snake", time_limit=int(state.head_position.row) + 1).train.step)
    for _ in range(int(state.head_position.row)):
        state, timestep = step(jax.random.key(1), state, 0)
        assert not timestep.ended
    assert not timestep.action_mask[0]
    _, timestep = step(jax.random.key(1), state, 0)
    assert timestep.terminated
    assert not timestep.truncated


def test_no_reset_and_a_full_mask_after_the_end():
    # A board without equal neighbours whose last gap is filled by the move: the game is over and allows no action.
    env = jumanji("game_2048").train
    state, _ = env.reset(jax.random.key(0))
    board = jnp.array([[1, 2, 1, 2], [2, 1, 2, 1], [1, 2, 1, 2], [0, 5, 6, 7]], jnp.int32)
    state = state.replace(board=board, action_mask=jnp.array([False, False, False, True]))
    after, timestep = jax.jit(env.step)(jax.random.key(0), state, 3)
    assert timestep.terminated
    assert (after.board > 0).all()
    assert timestep.action_mask.all()


def place_2048(state):
    """A board with one large tile, in the second row and column."""
    return state.replace(board=jnp.zeros((4, 4), jnp.int32).at[1, 1].set(9), action_mask=jnp.ones(4, bool))


@pytest.mark.parametrize(
    ("name", "place", "position"),
    [
        ("snake", lambda state: state, lambda state: (state.head_position.row, state.head_position.col)),
        ("maze", lambda state: state, lambda state: (state.agent_position.row, state.agent_position.col)),
        ("game_2048", place_2048, lambda state: np.argwhere(np.asarray(state.board) == 9)[0]),
    ],
)
def test_actions_have_the_names_of_their_directions(name, place, position):
    env = jumanji(name).train
    step, moved = jax.jit(env.step), set()
    for seed in range(6):
        state, timestep = env.reset(jax.random.key(seed))
        state = place(state)
        for action in np.flatnonzero(timestep.action_mask if name != "game_2048" else np.ones(4)):
            after, _ = step(jax.random.key(0), state, action)
            change = np.sign(np.subtract(position(after), position(state)).astype(int))
            assert (
                tuple(change)
                == {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}[env.action_names[action]]
            )
            moved.add(env.action_names[action])
    assert len(moved) == 4


def test_environments_with_several_agents_are_refused_and_not_listed():
    assert not _SEVERAL_AGENTS & set(names())
    assert set(_registered()) >= _SEVERAL_AGENTS
    for name, sentence in (
        ("connector", "several agents"),
        ("cleaner", "several agents"),
        ("multi_cvrp", "BoundedArray"),
    ):
        with pytest.raises(ValueError, match=sentence):
            jumanji(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_SEVERAL_AGENTS))
def test_every_unlisted_environment_is_refused(name):
    with pytest.raises(ValueError, match="Supported are"):
        jumanji(name)


def test_names():
    assert {"rubiks_cube", "rubiks_cube_partly_scrambled", "game_2048", "snake", "pac_man", "tsp"} <= set(names())


def test_picture():
    import matplotlib.pyplot as plt

    env = jumanji("snake").train
    state, _ = env.reset(jax.random.key(0))
    picture = env.render(state)
    assert picture.ndim == 3
    assert picture.shape[-1] == 3
    assert picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
    assert not plt.get_fignums()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "snak"}, "no environment 'snak'.*Did you mean 'jumanji/snake'"),
        ({"name": "snake", "rows": 3}, "no option 'rows': it takes .*num_rows"),
    ],
)
def test_bad_arguments(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        jumanji(**arguments)


def test_options_reach_jumanji():
    assert jumanji("snake", num_rows=6, num_cols=7).train.observation_spec["grid"].shape[:2] == (6, 7)
