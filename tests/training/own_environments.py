"""Environments as a user writes them, each made by a function: `training.own_environments:corridor`."""

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.wrappers import episode_limit
from spo.types import ContinuousActions, DiscreteActions, Environment, Task, TimeStep

NOT_A_FUNCTION = 3


def corridor(length: int = 4, slip: float = 0.1, time_limit: int = 6) -> Environment:
    """A corridor with chance: a step fails now and then. It has no name, no pictures and no mask.

    Args:
        length: Number of cells.
        slip: Probability that a step goes the other way.
        time_limit: Steps of an episode.
    """

    def observe(position):
        at_end = position == length - 1
        observation = jax.nn.one_hot(position, length)
        return TimeStep(observation, at_end.astype(jnp.float32), at_end, jnp.zeros((), bool))

    def reset(key):
        position = jax.random.randint(key, (), 0, length - 1)
        return position, observe(position)

    def step(key, position, action):
        direction = jnp.where(jax.random.bernoulli(key, slip), -1, 1) * (2 * action - 1)
        position = jnp.clip(position + direction, 0, length - 1)
        return position, observe(position)

    spec = jax.ShapeDtypeStruct((length,), jnp.float32)
    return episode_limit(Environment(reset, step, spec, DiscreteActions(2)), time_limit)


def room(size: tuple[int, int] = (2, 2), doors: list[int] = [1], label: str = "", time_limit: int = 6) -> Environment:  # noqa: B006
    """A corridor through a room, whose options are no single numbers.

    Args:
        size: Cells along both sides.
        doors: Cells with a door.
        label: Name of the room.
        time_limit: Steps of an episode.
    """
    assert isinstance(size, tuple)
    assert isinstance(doors, list)
    return corridor(size[0] * size[1] + len(doors), time_limit=time_limit)._replace(name=label)


def slider(time_limit: int = 6) -> Task:
    """A point on a line, pushed by a continuous action. Evaluation starts further out."""

    def make(width: float) -> Environment:
        def observe(position):
            never = jnp.zeros((), bool)
            return TimeStep(position, -jnp.sum(position**2), never, never)

        def reset(key):
            position = jax.random.uniform(key, (1,), minval=-width, maxval=width)
            return position, observe(position)

        def step(key, position, action):
            position = jnp.clip(position + 0.1 * action, -1.0, 1.0)
            return position, observe(position)

        spec = jax.ShapeDtypeStruct((1,), jnp.float32)
        environment = Environment(reset, step, spec, ContinuousActions(1), name="slider", render=draw)
        return episode_limit(environment, time_limit)

    def draw(position):
        image = np.zeros((8, 16, 3), np.uint8)
        image[:, int(7.5 * (float(position[0]) + 1))] = 255
        return image

    return Task(train=make(0.5), evaluation=make(1.0), model=make(0.5))


ARM_LOWS, ARM_HIGHS = (-2.0, 0.0, 5.0), (2.0, 0.5, 6.0)


def arm(time_limit: int = 4) -> Environment:
    """Three joints with limits of their own. The reward is best at the upper limits; others' actions are counted."""
    lows, highs = jnp.asarray(ARM_LOWS), jnp.asarray(ARM_HIGHS)

    def observe(angles, outside=0.0):
        never = jnp.zeros((), bool)
        return TimeStep(
            angles, -jnp.sum((angles - highs) ** 2), never, never, metrics={"outside": jnp.float32(outside)}
        )

    def reset(key):
        angles = jax.random.uniform(key, (3,), minval=lows, maxval=highs)
        return angles, observe(angles)

    def step(key, angles, action):
        return action, observe(action, jnp.any((action < lows) | (action > highs)))

    spec = jax.ShapeDtypeStruct((3,), jnp.float32)
    return episode_limit(
        Environment(reset, step, spec, ContinuousActions(3, list(ARM_LOWS), np.asarray(ARM_HIGHS)), name="arm"),
        time_limit,
    )


def images(size: int = 4, time_limit: int = 4) -> Environment:
    """A light that moves over an image. Some moves are forbidden by the mask."""

    def observe(state):
        image = jnp.zeros((size, size, 1), jnp.float32).at[state[0], state[1], 0].set(1.0)
        at_corner = jnp.all(state == size - 1)
        mask = jnp.stack([state[0] < size - 1, state[1] < size - 1, jnp.ones((), bool)])
        solved = {"solved": at_corner.astype(jnp.float32)}
        return TimeStep(image, at_corner.astype(jnp.float32), at_corner, jnp.zeros((), bool), mask, solved)

    def reset(key):
        state = jax.random.randint(key, (2,), 0, size - 1)
        return state, observe(state)

    def step(key, state, action):
        moves = jnp.array([[1, 0], [0, 1], [0, 0]], state.dtype)
        state = jnp.clip(state + moves[action], 0, size - 1)
        return state, observe(state)

    def draw(state):
        return np.repeat(np.asarray(observe(state).observation * 255).astype(np.uint8), 3, axis=2)

    spec = jax.ShapeDtypeStruct((size, size, 1), jnp.float32)
    environment = Environment(reset, step, spec, DiscreteActions(3), name="images", render=draw)
    return episode_limit(environment, time_limit)


def dictionary(time_limit: int = 5) -> Environment:
    """A target to guess, seen as a dictionary of a vector and a number."""

    def observe(state, reward=0.0):
        never = jnp.zeros((), bool)
        observation = {"target": jax.nn.one_hot(state["target"], 3), "count": state["count"][None].astype(jnp.float32)}
        return TimeStep(observation, jnp.asarray(reward, jnp.float32), never, never, jnp.ones(3, bool))

    def reset(key):
        state = {"target": jax.random.randint(key, (), 0, 3), "count": jnp.zeros((), jnp.int32)}
        return state, observe(state)

    def step(key, state, action):
        reward = (action == state["target"]).astype(jnp.float32)
        state = {"target": jax.random.randint(key, (), 0, 3), "count": state["count"] + 1}
        return state, observe(state, reward)

    spec = {"target": jax.ShapeDtypeStruct((3,), jnp.float32), "count": jax.ShapeDtypeStruct((1,), jnp.float32)}
    environment = Environment(reset, step, spec, DiscreteActions(3), name="guess")
    return episode_limit(environment, time_limit)


def not_an_environment() -> int:
    return 3


def broken_maker(name: str = "level") -> Environment:
    return {}[name]


def needs_a_length(length: int) -> Environment:
    return corridor(length)
