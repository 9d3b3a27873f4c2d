"""Whole episodes, each played once from a fresh start to its end."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.types import Action, Array, Bool, Environment, Float, Integer, PRNGKey, State, TimeStep

#: (key, environment states [E], time steps [E]) -> actions [E]
ActFn = Callable[[PRNGKey, State, TimeStep], Action]


class Episodes(NamedTuple):
    """One entry per episode."""

    returns: Float[Array, " E"]  # undiscounted
    lengths: Integer[Array, " E"]
    metrics: dict[str, Float[Array, " E"]]  # what the world said with the last step, e.g. "solved"


class _Play(NamedTuple):
    key: PRNGKey
    state: State
    timestep: TimeStep
    ended: Bool[Array, " E"]
    episodes: Episodes


def run_episodes(
    environment: Environment, act: ActFn, key: PRNGKey, num_episodes: int, max_steps: int = 100_000
) -> Episodes:
    """Plays `num_episodes` side by side. One that has ended stands still and counts no more.

    Worlds with a time limit all end; `max_steps` is for those that might not.
    """
    key, key_reset = jax.random.split(key)
    state, timestep = jax.vmap(environment.reset)(jax.random.split(key_reset, num_episodes))
    start = Episodes(
        returns=jnp.zeros(num_episodes),
        lengths=jnp.zeros(num_episodes, jnp.int32),
        metrics=jax.tree.map(jnp.zeros_like, timestep.metrics),
    )

    def unfinished(play: _Play) -> Bool[Array, ""]:
        return ~jnp.all(play.ended) & (jnp.max(play.episodes.lengths) < max_steps)

    def step(play: _Play) -> _Play:
        key, key_act, key_step = jax.random.split(play.key, 3)
        action = act(key_act, play.state, play.timestep)
        state, timestep = jax.vmap(environment.step)(jax.random.split(key_step, num_episodes), play.state, action)

        def unless_ended(new: Array, old: Array) -> Array:
            return jnp.where(play.ended.reshape(play.ended.shape + (1,) * (new.ndim - 1)), old, new)

        episodes = Episodes(
            returns=play.episodes.returns + jnp.where(play.ended, 0.0, timestep.reward),
            lengths=play.episodes.lengths + ~play.ended,
            metrics=jax.tree.map(unless_ended, timestep.metrics, play.episodes.metrics),
        )
        state, timestep = jax.tree.map(unless_ended, (state, timestep), (play.state, play.timestep))
        return _Play(key, state, timestep, play.ended | timestep.ended, episodes)

    play = _Play(key, state, timestep, jnp.zeros(num_episodes, bool), start)
    return jax.lax.while_loop(unfinished, step, play).episodes
