"""Additions to an environment: a time limit, and a restart after the end of an episode.

`episode_limit` returns an `Environment`. A task is wrapped in all of its roles by `Task(*map(wrapper, task))`, which
keeps their states interchangeable. `auto_reset` returns a step function for collecting experience; a search's model
must not reset.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from spo.environments.outputs import unpack_output
from spo.trees import select
from spo.types import Action, Array, Bool, Environment, Integer, PRNGKey, PyTree, Shaped, State, TimeStep

# --- Time limit ------------------------------------------------------------------------------------------------------


class EpisodeLimitState(NamedTuple):
    """State of the wrapped environment, and the steps since its reset."""

    inner: State  # state of the wrapped environment
    steps: Integer[Array, ""]  # since the reset


def check_time_limit(limit: int) -> None:
    """Raises ValueError if episodes would have no step."""
    if limit < 1:
        raise ValueError(f"An episode needs at least one step, got time_limit={limit}: give a limit of 1 or more.")


def episode_limit(env: Environment, limit: int) -> Environment:
    """Truncates episodes after `limit` steps. A step that terminates is not also truncated."""
    check_time_limit(limit)

    def begin(inner: State, timestep: TimeStep) -> tuple[EpisodeLimitState, TimeStep]:
        return EpisodeLimitState(inner, jnp.zeros((), jnp.int32)), timestep

    def reset(key: PRNGKey) -> tuple[EpisodeLimitState, TimeStep]:
        return begin(*unpack_output("reset", env.reset, env.reset(key)))

    def step(key: PRNGKey, state: EpisodeLimitState, action: Action) -> tuple[EpisodeLimitState, TimeStep]:
        inner, timestep = unpack_output("step", env.step, env.step(key, state.inner, action))
        steps = state.steps + 1
        truncated = (timestep.truncated | (steps >= limit)) & ~timestep.terminated
        return EpisodeLimitState(inner, steps), timestep._replace(truncated=truncated)

    draw, starts = env.render, env.starts

    def render(state: EpisodeLimitState) -> Any:
        return None if draw is None else draw(state.inner)

    if starts is not None:
        start = starts.reset
        starts = starts._replace(reset=lambda key, number: begin(*start(key, number)))
    return env._replace(reset=reset, step=step, render=None if draw is None else render, starts=starts)


# --- Restart after the end of an episode -----------------------------------------------------------------------------


class AutoResetStep(NamedTuple):
    """One step of experience, before and after a possible restart."""

    #: The step's reward, ends and observation; at the end of an episode, its last observation. For learning.
    timestep: TimeStep
    #: The same, or the first time step of a new episode if this one ended. For the next decision.
    next: TimeStep


def auto_reset(env: Environment) -> Callable[[PRNGKey, State, Action], tuple[State, AutoResetStep]]:
    """Returns a step function that restarts ended episodes: `(key, state, action) -> (state, AutoResetStep)`.

    If the episode ended, the state returned is a fresh one, drawn by `env.reset` with its own key. Like every step
    function, it is written for one environment; `env.reset` gives the first state.
    """
    restart_where_ended = _restart_where(env.reset, env.cheap_reset)

    def step(key: PRNGKey, state: State, action: Action) -> tuple[State, AutoResetStep]:
        key_step, key_reset = jax.random.split(key)
        state, timestep = env.step(key_step, state, action)
        state, next_timestep = restart_where_ended(timestep.ended, key_reset, (state, timestep))
        return state, AutoResetStep(timestep, next_timestep)

    return step


def _restart_where(
    reset: Callable[[Any], PyTree], always: bool
) -> Callable[[Bool[Array, "*batch"], Any, PyTree], PyTree]:
    """Returns `(ended, keys, current) -> reset(keys)` where ended, else `current`, for `ended.ndim` batch axes.

    Under `vmap`, a `cond` becomes a select that computes both sides, and a reset may cost more than a step (a physics
    engine's warm-up, a level generator). The batching rule therefore moves the batch inside: for any number of mapped
    axes, one `cond` skips all resets if no episode ended. A step in which one ended computes every reset. With B
    environments and episodes of mean length L, this is at most a fraction B / L of the steps. With `always`, there is
    no `cond`: every step computes every reset.
    """

    @custom_vmap
    def restart(ended: Bool[Array, "*batch"], keys: Any, current: PyTree) -> PyTree:
        if always:
            return select(ended, reset(keys), current)
        # The select is inside the branch: even a constant of `reset` then has the type of the value it replaces, as
        # `shard_map` requires of a `cond`.
        return jax.lax.cond(jnp.any(ended), lambda: select(ended, reset(keys), current), lambda: current)

    @restart.def_vmap
    def restart_batch(axis_size: int, in_batched: list, *arguments: PyTree) -> tuple[PyTree, PyTree]:
        def batch(leaf: Shaped[Array, "..."], is_batched: bool) -> Shaped[Array, "..."]:
            return leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        chosen = _restart_where(jax.vmap(reset), always)(*jax.tree.map(batch, arguments, tuple(in_batched)))
        return chosen, jax.tree.map(lambda _: True, chosen)

    return restart


__all__ = ["AutoResetStep", "EpisodeLimitState", "auto_reset", "check_time_limit", "episode_limit"]
