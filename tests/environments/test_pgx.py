"""The adapter against Pgx itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pgx_package = pytest.importorskip("pgx")

from spo.environments import make  # noqa: E402
from spo.environments.pgx import names  # noqa: E402
from spo.types import DiscreteActions  # noqa: E402


@pytest.mark.parametrize("name", ["minatar-breakout", pytest.param("2048", marks=pytest.mark.slow)])
def test_plays_like_pgx(name):
    env = make(f"pgx/{name}").train
    game = pgx_package.make(name)
    step, raw_step = jax.jit(env.step), jax.jit(game.step)
    key = jax.random.key(2)
    state, timestep = env.reset(key)
    raw = jax.jit(game.init)(key)
    for index in range(80):
        key_step = jax.random.fold_in(key, index)
        action = jax.random.choice(key_step, env.action_spec.num_actions, p=timestep.action_mask / 1.0)
        state, timestep = step(key_step, state, action)
        raw = raw_step(raw, action, key_step)
        np.testing.assert_array_equal(timestep.observation, raw.observation)
        np.testing.assert_array_equal(timestep.action_mask, raw.legal_action_mask)
        assert timestep.reward == raw.rewards[0]
        assert bool(timestep.terminated) == bool(raw.terminated)
        if timestep.terminated:
            break
    assert index >= 3
    assert not timestep.truncated


def test_a_state_has_neither_observation_nor_reward():
    state, _ = jax.eval_shape(make("pgx/2048").model.reset, jax.random.key(0))
    assert (state.inner.observation, state.inner.rewards) == (None, None)
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) < 100  # of 578


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "backgammon"])
def test_a_game_of_two_players_is_refused(game):
    with pytest.raises(ValueError, match=rf"pgx/{game} is a game of 2 players.*choose one of 2048, minatar-asterix"):
        make(f"pgx/{game}")
    assert game not in names()


def test_specs_and_names():
    assert {"2048", "minatar-breakout", "minatar-freeway"} <= set(names())
    breakout = make("pgx/minatar-breakout").train
    assert breakout.observation_spec.shape == (10, 10, 4)
    assert breakout.action_spec == DiscreteActions(3)
    assert breakout.action_names == ("nothing", "left", "right")
    with_all_buttons = make("pgx/minatar-breakout", use_minimal_action_set=False).train
    assert with_all_buttons.action_spec == DiscreteActions(6)
    assert with_all_buttons.action_names == ("nothing", "left", "up", "right", "down", "fire")


def test_actions_of_2048_have_the_names_of_their_directions():
    env = make("pgx/2048").train
    state, _ = env.reset(jax.random.key(0))
    board = jnp.zeros(16, jnp.int32).at[5].set(9)  # one large tile, in the second row and column
    state = state._replace(inner=state.inner.replace(_board=board))
    step, places = jax.jit(env.step), {"left": 4, "up": 1, "right": 7, "down": 13}
    for action, name in enumerate(env.action_names):
        after, _ = step(jax.random.key(0), state, action)
        assert after.inner._board[places[name]] == 9


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("pgx/breakout", {}, "Pgx has no environment 'breakout'. Did you mean 'pgx/minatar-breakout'"),
        ("pgx/minatar-breakout", {"sticky": 1}, "no option 'sticky': it takes sticky_action_prob, time_limit"),
        ("pgx/2048", {"time_limit": 0}, "at least one step"),
    ],
)
def test_bad_arguments(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(name, **options)
