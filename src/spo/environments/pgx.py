"""Adapter to Pgx (https://github.com/sotetsuk/pgx): "2048" and the MinAtar games, such as "minatar-breakout".

Supported are the games of one player. In a game of two players the opponent is part of the model, which a search of
this package does not have.

- Observations are Pgx's Boolean channels, [height, width, channel].
- Masks are Pgx's `legal_action_mask`. A MinAtar game allows every action. An action that the mask forbids ends the game
  with reward -1, as in Pgx.
- Chance (new tiles, sticky actions, what appears in a MinAtar game) comes from the key of `step`. States hold no keys.
- Ends. Pgx has no time limit. The adapter adds one, because a good player of MinAtar may play forever.
- States are Pgx's without observation and reward, which the next step does not read.
"""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from spo.environments._adapters import (
    cast_like,
    check_options,
    draw_channels,
    jit_foreign,
    require,
    specs_of,
    unknown_name,
)
from spo.environments._power_board import draw_powers
from spo.environments.wrappers import episode_limit
from spo.host import abstract_key
from spo.types import Array, DiscreteActions, Environment, Integer, PRNGKey, State, Task, TimeStep

_DIRECTIONS = ("left", "up", "right", "down")  # the actions of 2048
_BUTTONS = ("nothing", "left", "up", "right", "down", "fire")  # the actions of MinAtar


def names() -> list[str]:
    """Names of the games of one player."""
    return sorted(name for name in _all_names() if name == "2048" or name.startswith("minatar-"))


def pgx(name: str, *, time_limit: int = 10_000, **pgx_options: Any) -> Task:
    """A game of one player of Pgx, such as "2048" or "minatar-breakout".

    Args:
        name: Name of the game in Pgx.
        time_limit: Longest episode, in steps.
        **pgx_options: Arguments of the constructor of Pgx's game, such as `sticky_action_prob=0.0`.
    """
    game = _build(name, pgx_options)
    pgx_init, pgx_step, pgx_observe = map(jit_foreign, (game.init, game.step, game.observe))
    start = jax.eval_shape(pgx_init, abstract_key())
    observation_spec, state_spec = specs_of(start.observation), specs_of(_without_outputs(start))

    def split(pgx_state: Any) -> tuple[State, TimeStep]:
        timestep = TimeStep(
            observation=cast_like(observation_spec, pgx_state.observation),
            reward=pgx_state.rewards[0].astype(jnp.float32),
            terminated=pgx_state.terminated,
            truncated=jnp.zeros((), bool),
            action_mask=pgx_state.legal_action_mask,
        )
        return cast_like(state_spec, _without_outputs(pgx_state)), timestep

    def reset(key: PRNGKey) -> tuple[State, TimeStep]:
        return split(pgx_init(key))

    def step(key: PRNGKey, state: State, action: Integer[Array, ""]) -> tuple[State, TimeStep]:
        return split(pgx_step(state.replace(rewards=jnp.zeros(1, jnp.float32)), action, key))

    def render(state: State) -> UInt8[np.ndarray, "height width 3"]:
        if name == "2048":
            return draw_powers(np.asarray(state._board).reshape(4, 4))
        return draw_channels(np.asarray(pgx_observe(state)))

    environment = Environment(
        name=f"pgx/{name}",
        reset=reset,
        step=step,
        observation_spec=observation_spec,
        action_spec=DiscreteActions(start.legal_action_mask.shape[0]),
        render=render,
        action_names=_action_names(name, game),
    )
    environment = episode_limit(environment, time_limit)
    return Task(train=environment, evaluation=environment, model=environment)


def _all_names() -> tuple[str, ...]:
    return require("pgx", extra="pgx").available_envs()


def _build(name: str, options: dict[str, Any]) -> Any:
    if name not in _all_names():
        raise unknown_name("Pgx", "pgx", name, names())
    game = require("pgx", extra="pgx").make(name)
    if game.num_players != 1:
        raise ValueError(
            f"pgx/{name} is a game of {game.num_players} players, and the search plans for one player: choose one "
            f"of {', '.join(names())}."
        )
    constructor = type(game)
    check_options(f"pgx/{name}", options, {*inspect.signature(constructor).parameters, "time_limit"})
    return constructor(**options) if options else game


def _action_names(name: str, game: Any) -> tuple[str, ...]:
    if name == "2048":
        return _DIRECTIONS
    return tuple(_BUTTONS[action] for action in game.minimal_action_set) if game.use_minimal_action_set else _BUTTONS


def _without_outputs(pgx_state: Any) -> Any:
    """Removes observation and reward from a state of Pgx. `None` is not a leaf of the pytree."""
    return pgx_state.replace(observation=None, rewards=None)
