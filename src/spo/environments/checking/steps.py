"""Checks of values: NaN, masks, results that differ for the same key, pictures, episodes without an end."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.checking.traces import Types, random_action
from spo.environments.checking.tracing import InvalidEnvironment, close_arrays, quote_errors
from spo.environments.checking.words import named_leaves
from spo.environments.outputs import describe
from spo.quoting import is_raised_by_caller, quote
from spo.types import Array, Bool, Environment, Integer, PRNGKey, PyTree, State, TimeStep

#: Seconds after which the search for the end of an episode stops without a verdict.
SECONDS_FOR_TIME_LIMIT = 8.0
_STEPS_PER_CALL = 500


class _Play(NamedTuple):
    """An episode of random actions, as far as it was played."""

    key: PRNGKey
    state: State
    timestep: TimeStep
    steps: Integer[Array, ""]
    ended: Bool[Array, ""]


def check_steps(environment: Environment, types: Types, num_steps: int, max_steps: int) -> int | None:
    """Plays an episode. Returns its steps if the time was over before it ended."""
    reset = _run("reset", jax.jit(environment.reset))
    play = _run("step", jax.jit(lambda play, limit: _play(environment, play, limit)))
    start = _as_types(types)

    def begin(number: int) -> _Play:
        key_reset, key_play = jax.random.split(jax.random.key(number))
        (state, timestep), again = start(reset(key_reset)), start(reset(key_reset))
        _check_repeats("reset", (state, timestep), again)
        _check_values("reset", timestep)
        return _Play(key_play, state, timestep, jnp.zeros((), jnp.int32), jnp.zeros((), bool))

    episode = begin(0)
    _check_picture(environment, episode.state)
    for number in range(num_steps):
        following, again = play(episode, episode.steps + 1), play(episode, episode.steps + 1)
        _check_repeats("step", following[1:], again[1:])
        _check_values("step", following.timestep)
        episode = begin(number + 1) if following.ended else following

    episode, until = begin(num_steps + 1), time.monotonic() + SECONDS_FOR_TIME_LIMIT
    while not episode.ended and time.monotonic() < until:
        steps = int(episode.steps)
        # Few steps at first: those of a slow environment can take seconds each.
        episode = play(episode, min(2 * steps + 1, steps + _STEPS_PER_CALL, max_steps))
        _check_values("step", episode.timestep)
        if not episode.ended and episode.steps >= max_steps:
            raise InvalidEnvironment(
                f"an episode of random actions did not end within {max_steps:,} steps (neither terminated nor "
                "truncated became True): add a time limit, spo.environments.wrappers.episode_limit(environment, 1000)."
            )
    return None if episode.ended else int(episode.steps)


def _as_types(types: Types) -> Callable[[Any], Any]:
    """Returns a function that casts Python numbers and weak types in a state and a time step, as a loop needs them."""

    def cast(output: Any) -> Any:
        return jax.tree.map(lambda kind, leaf: jnp.asarray(leaf, kind.dtype), tuple(types), tuple(output))

    return cast


def _run(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with quote_errors(name):
            return jax.block_until_ready(function(*arguments))

    return call


def _play(environment: Environment, play: _Play, limit: Integer[Array, ""]) -> _Play:
    """Plays until the episode ends, a value is invalid, or the episode has `limit` steps."""

    def step(play: _Play) -> _Play:
        key, key_action, key_step = jax.random.split(play.key, 3)
        action = random_action(environment, key_action, play.timestep.action_mask)
        reached = environment.step(key_step, play.state, action)
        state, timestep = jax.tree.map(
            lambda old, new: jnp.asarray(new, old.dtype), (play.state, play.timestep), tuple(reached)
        )
        return _Play(key, state, timestep, play.steps + 1, timestep.ended)

    def continues(play: _Play) -> Bool[Array, ""]:
        return ~play.ended & (play.steps < limit) & _is_valid(play.timestep)

    return jax.lax.while_loop(continues, step, play)


def _is_valid(timestep: TimeStep) -> Bool[Array, ""]:
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((timestep.observation, timestep.reward))]
    some_action = jnp.ones((), bool) if timestep.action_mask is None else jnp.any(timestep.action_mask)
    return jnp.all(jnp.stack(finite)) & some_action


def _check_values(name: str, timestep: TimeStep) -> None:
    fields = named_leaves("observation", timestep.observation) | {"reward": timestep.reward}
    for path, leaf in fields.items():
        if not np.all(np.isfinite(leaf)):
            raise InvalidEnvironment(
                f"{path} of {name} contains NaN or an infinite number: find the division, logarithm or root that "
                "produces it (jax.debug.print shows values)."
            )
    solved = timestep.metrics.get("solved", 0.0)
    if not np.all((np.asarray(solved) >= 0) & (np.asarray(solved) <= 1)):
        raise InvalidEnvironment(
            f"metrics['solved'] of {name} is {float(np.max(solved)):g}: it is 1 where the task is solved and 0 "
            "elsewhere. Give other numbers another name."
        )
    if timestep.action_mask is not None and not np.any(timestep.action_mask):
        raise InvalidEnvironment(
            f"action_mask of {name} is all False: allow at least one action in every state, in the last one too."
        )


#: Errors of a mistake in a program. Others may be those of a machine without a display.
_MISTAKES = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)


def _check_picture(environment: Environment, state: State) -> None:
    """Checks that `render` draws an image. A library that can't draw on this machine is no fault."""
    if environment.render is None:
        return
    try:
        picture = environment.render(state)
    except Exception as error:
        if isinstance(error, _MISTAKES) and is_raised_by_caller(error):
            raise InvalidEnvironment(f"render raised {quote(error)}. Mend this line, or leave render out.") from None
        return
    try:
        image = np.asarray(picture)  # an image of Pillow is one too
    except ValueError:  # rows of different lengths
        image = np.empty(())
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise InvalidEnvironment(
            f"render must return an RGB image, uint8[height, width, 3], got {describe(picture)}: correct it or "
            "leave it out."
        )


def _check_repeats(name: str, first: PyTree, second: PyTree) -> None:
    if not close_arrays(first, second):
        raise InvalidEnvironment(
            f"{name} gave two results for the same arguments: draw random numbers with jax.random from the argument "
            "key, not inside a callback."
        )
