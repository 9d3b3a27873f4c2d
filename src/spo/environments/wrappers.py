"""What is put around a world: a time limit, a fresh start after an end, episode statistics, normalised observations.

`episode_limit`, `episode_statistics` and `normalise_observations` turn an `Environment` into an `Environment`, and so
compose; a task is wrapped in all of its roles by `Task(*map(wrapper, task))`, which keeps their states interchangeable.
`auto_reset` comes last and is not one of them: it gives the step that gathers experience, which no model may take.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from spo.types import (
    Action,
    Array,
    Bool,
    Environment,
    Float,
    Integer,
    Observation,
    PRNGKey,
    PyTree,
    Shaped,
    State,
    TimeStep,
)

# --- Time limit ------------------------------------------------------------------------------------------------------


class EpisodeLimitState(NamedTuple):
    """The wrapped world's state and the steps taken since its reset."""

    inner: State
    steps: Integer[Array, ""]


def episode_limit(env: Environment, limit: int) -> Environment:
    """Truncate episodes after `limit` steps. A step that terminates is not truncated as well."""
    if limit < 1:
        raise ValueError(f"An episode needs at least one step, got limit={limit}: give a limit of 1 or more.")

    def reset(key: PRNGKey) -> tuple[EpisodeLimitState, TimeStep]:
        inner, timestep = env.reset(key)
        return EpisodeLimitState(inner, jnp.zeros((), jnp.int32)), timestep

    def step(key: PRNGKey, state: EpisodeLimitState, action: Action) -> tuple[EpisodeLimitState, TimeStep]:
        inner, timestep = env.step(key, state.inner, action)
        steps = state.steps + 1
        truncated = (timestep.truncated | (steps >= limit)) & ~timestep.terminated
        return EpisodeLimitState(inner, steps), timestep._replace(truncated=truncated)

    def render(state: EpisodeLimitState) -> Any:
        return env.render(state.inner)

    return env._replace(reset=reset, step=step, render=render)


# --- Statistics of the episode ---------------------------------------------------------------------------------------


class EpisodeStatisticsState(NamedTuple):
    """The wrapped world's state with the reward and the steps summed up since its reset."""

    inner: State
    episode_return: Float[Array, ""]
    episode_length: Integer[Array, ""]


def episode_statistics(env: Environment) -> Environment:
    """Report `episode_return` (undiscounted) and `episode_length` in the metrics: so far, and in full once it ended."""

    def report(state: EpisodeStatisticsState, timestep: TimeStep) -> tuple[EpisodeStatisticsState, TimeStep]:
        ours = {"episode_return": state.episode_return, "episode_length": state.episode_length}
        return state, timestep._replace(metrics={**timestep.metrics, **ours})

    def reset(key: PRNGKey) -> tuple[EpisodeStatisticsState, TimeStep]:
        inner, timestep = env.reset(key)
        state = EpisodeStatisticsState(inner, jnp.zeros((), timestep.reward.dtype), jnp.zeros((), jnp.int32))
        return report(state, timestep)

    def step(key: PRNGKey, state: EpisodeStatisticsState, action: Action) -> tuple[EpisodeStatisticsState, TimeStep]:
        inner, timestep = env.step(key, state.inner, action)
        state = EpisodeStatisticsState(inner, state.episode_return + timestep.reward, state.episode_length + 1)
        return report(state, timestep)

    def render(state: EpisodeStatisticsState) -> Any:
        return env.render(state.inner)

    return env._replace(reset=reset, step=step, render=render)


# --- A fresh start after every end -----------------------------------------------------------------------------------


class AutoResetStep(NamedTuple):
    """One step of experience, seen from both sides of a possible end."""

    #: What the world said: reward, terminated, truncated, and the observation reached, which is the last one of the
    #: episode where it ended. Learn from this one.
    timestep: TimeStep
    #: Where to act next: the same again, or what the fresh start says where the episode ended. Act on this one.
    next: TimeStep


def auto_reset(env: Environment) -> Callable[[PRNGKey, State, Action], tuple[State, AutoResetStep]]:
    """The step for gathering experience: `(key, state, action) -> (state, AutoResetStep)`.

    The state returned is the one to go on from: where the episode ended, a start drawn by `env.reset` with a key of its
    own, never a start seen before. Written for one world like every other step; `env.reset` gives the first state.
    """
    restart_where_ended = _restart_where(env.reset)

    def step(key: PRNGKey, state: State, action: Action) -> tuple[State, AutoResetStep]:
        key_step, key_reset = jax.random.split(key)
        state, timestep = env.step(key_step, state, action)
        state, next_timestep = restart_where_ended(timestep.ended, key_reset, (state, timestep))
        return state, AutoResetStep(timestep, next_timestep)

    return step


def _restart_where(reset: Callable[[Any], PyTree]) -> Callable[[Bool[Array, "*batch"], Any, PyTree], PyTree]:
    """`(ended, keys, current) -> reset(keys)` where ended, `current` elsewhere, for a reset of `ended.ndim` batch axes.

    Under `vmap` a `cond` becomes a select that computes both sides, and a reset may cost more than a step (a physics
    engine's warm-up, a level's generator). So the batching rule moves the batch inside: however many axes are mapped
    over, one `cond` asks whether anyone ended, and skips the resets if not. A step in which someone ended pays for
    everyone's reset: with B worlds and episodes of mean length L, at most a share B / L of the steps.
    """

    @custom_vmap
    def restart(ended: Bool[Array, "*batch"], keys: Any, current: PyTree) -> PyTree:
        def select(fresh: Shaped[Array, "..."], old: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
            return jnp.where(ended.reshape(ended.shape + (1,) * (old.ndim - ended.ndim)), fresh, old)

        # The select stands inside the branch: even a constant of `reset` then has the type of what it replaces, which
        # `shard_map` asks of a `cond`.
        return jax.lax.cond(jnp.any(ended), lambda: jax.tree.map(select, reset(keys), current), lambda: current)

    @restart.def_vmap
    def restart_batch(axis_size: int, in_batched: list, *arguments: PyTree) -> tuple[PyTree, PyTree]:
        def batch(leaf: Shaped[Array, "..."], is_batched: bool) -> Shaped[Array, "..."]:
            return leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        chosen = _restart_where(jax.vmap(reset))(*jax.tree.map(batch, arguments, tuple(in_batched)))
        return chosen, jax.tree.map(lambda _: True, chosen)

    return restart


# --- Normalised observations -----------------------------------------------------------------------------------------


class RunningStatistics(NamedTuple):
    """Number, mean and summed squared deviation from the mean of all observations seen, entry by entry.

    They belong to the learner, not to the world, and travel with its parameters: what acts, what learns and what a
    search imagines must all see the same numbers.
    """

    #: A float, so that it grows without wrapping; beyond 2^24 it is exact for batches of a fair size only.
    num_observations: Float[Array, ""]
    mean: PyTree[Float[Array, "..."]]
    sum_of_squared_deviations: PyTree[Float[Array, "..."]]


def init_statistics(observation_spec: PyTree[jax.ShapeDtypeStruct]) -> RunningStatistics:
    """Statistics of nothing: `normalise` changes nothing yet (but clips)."""
    for path, leaf in jax.tree.leaves_with_path(observation_spec):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"Only floating-point observations can be normalised, and observation{jax.tree_util.keystr(path)} is "
                f"{leaf.dtype}: leave normalisation off, or turn it into floats in the environment."
            )
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), observation_spec)
    return RunningStatistics(jnp.zeros((), jnp.float32), zeros, zeros)


def update_statistics(statistics: RunningStatistics, observations: Observation) -> RunningStatistics:
    """Take in a batch of observations, with any number of leading axes."""
    num_leading = {
        batch.ndim - mean.ndim
        for batch, mean in zip(jax.tree.leaves(observations), jax.tree.leaves(statistics.mean), strict=True)
    }
    if len(num_leading) != 1 or min(num_leading) < 0:
        raise ValueError(
            f"Every part of the observations needs the same number of leading axes, got {sorted(num_leading)} of them."
        )
    axes = tuple(range(num_leading.pop()))

    mean = jax.tree.map(lambda batch: jnp.mean(batch, axes), observations)
    squares = jax.tree.map(
        # Two passes: E[x²] - E[x]² would lose every digit where the mean is large beside the deviation.
        lambda batch, mean: jnp.sum(jnp.square(batch - jnp.expand_dims(mean, axes)), axes),
        observations,
        mean,
    )
    leading_shape = jax.tree.leaves(observations)[0].shape[: len(axes)]
    return merge_statistics(statistics, RunningStatistics(jnp.float32(math.prod(leading_shape)), mean, squares))


def merge_statistics(first: RunningStatistics, second: RunningStatistics) -> RunningStatistics:
    """Statistics of both sets of observations together (Chan, Golub & LeVeque 1979); not of two empty ones."""
    num_observations = first.num_observations + second.num_observations
    share = second.num_observations / num_observations
    difference = jax.tree.map(jnp.subtract, second.mean, first.mean)
    return RunningStatistics(
        num_observations,
        jax.tree.map(lambda mean, delta: mean + delta * share, first.mean, difference),
        jax.tree.map(
            lambda a, b, delta: a + b + jnp.square(delta) * (first.num_observations * share),
            first.sum_of_squared_deviations,
            second.sum_of_squared_deviations,
            difference,
        ),
    )


def normalise(statistics: RunningStatistics, observation: Observation, clip: float = 10.0) -> Observation:
    """(observation - mean) / standard deviation, clipped to [-clip, clip]. Any number of leading axes.

    A deviation below the rounding error of the mean is no signal: the divisor is at least 1e-6 (1 + |mean|).
    """

    def normalise_leaf(
        entry: Float[Array, "*batch_and_shape"], mean: Float[Array, "*shape"], squares: Float[Array, "*shape"]
    ) -> Float[Array, "*batch_and_shape"]:
        seen = statistics.num_observations
        variance = jnp.where(seen > 0, squares / jnp.maximum(seen, 1.0), 1.0)
        divisor = jnp.maximum(jnp.sqrt(variance), 1e-6 * (1.0 + jnp.abs(mean)))
        leading = tuple(range(entry.ndim - mean.ndim))
        return jnp.clip((entry - jnp.expand_dims(mean, leading)) / jnp.expand_dims(divisor, leading), -clip, clip)

    return jax.tree.map(normalise_leaf, observation, statistics.mean, statistics.sum_of_squared_deviations)


def normalise_observations(env: Environment, statistics: RunningStatistics, clip: float = 10.0) -> Environment:
    """Show observations normalised by the given statistics, which stay as they are: states are not affected."""

    def show(state: State, timestep: TimeStep) -> tuple[State, TimeStep]:
        return state, timestep._replace(observation=normalise(statistics, timestep.observation, clip))

    return env._replace(
        reset=lambda key: show(*env.reset(key)),
        step=lambda key, state, action: show(*env.step(key, state, action)),
    )


__all__ = [
    "AutoResetStep",
    "EpisodeLimitState",
    "EpisodeStatisticsState",
    "RunningStatistics",
    "auto_reset",
    "episode_limit",
    "episode_statistics",
    "init_statistics",
    "merge_statistics",
    "normalise",
    "normalise_observations",
    "update_statistics",
]
