"""The tiny environments with continuous actions. The state is one vector, which is also the observation."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.tiny.tabular import same_in_all_roles
from spo.types import Array, Bool, ContinuousActions, Environment, Float, PRNGKey, Task, TimeStep

#: The regulator of `lqr`: seconds per step, cost of velocity² and cost of force² (the cost of position² is 1).
LQR_SECONDS, LQR_VELOCITY_COST, LQR_FORCE_COST = 0.2, 0.1, 2.0


class VectorState(NamedTuple):
    vector: Float[Array, " n"]


class Outcome(NamedTuple):
    """Result of a step."""

    vector: Float[Array, " n"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class ContinuousEnvironment(NamedTuple):
    """Start and step of an environment. Actions are in [-1, 1]; values outside are clipped."""

    start: Callable[[PRNGKey], Float[Array, " n"]]
    advance: Callable[[PRNGKey, Float[Array, " n"], Float[Array, " D"]], Outcome]
    size: int
    num_action_dimensions: int
    time_limit: int | None = None


def continuous(definition: ContinuousEnvironment, name: str) -> Task:
    """Makes the task of a continuous environment: the same one for training, evaluation and search."""

    def enter(outcome: Outcome) -> tuple[VectorState, TimeStep]:
        timestep = TimeStep(
            observation=outcome.vector,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=jnp.zeros((), bool),
        )
        return VectorState(outcome.vector), timestep

    def reset(key: PRNGKey) -> tuple[VectorState, TimeStep]:
        return enter(Outcome(definition.start(key), jnp.zeros((), jnp.float32), jnp.zeros((), bool)))

    def step(key: PRNGKey, state: VectorState, action: Float[Array, " D"]) -> tuple[VectorState, TimeStep]:
        return enter(definition.advance(key, state.vector, jnp.clip(action, -1.0, 1.0)))

    def render(state: VectorState) -> np.ndarray:
        return _draw_dots(np.asarray(state.vector))

    env = Environment(
        name=name,
        reset=reset,
        step=step,
        observation_spec=jax.ShapeDtypeStruct((definition.size,), jnp.float32),
        action_spec=ContinuousActions(definition.num_action_dimensions),
        render=render,
    )
    return same_in_all_roles(env, definition.time_limit)


def continuous_bandit(target: float = 0.3, num_action_dimensions: int = 1) -> ContinuousEnvironment:
    """One step with reward 1 - |action - target|². The observation is 1, and 0 after the end.

    Args:
        target: Best value of each entry of the action.
        num_action_dimensions: Number of entries of the action.
    """

    def advance(_key: PRNGKey, vector: Array, action: Array) -> Outcome:
        reward = vector[0] * (1.0 - jnp.sum(jnp.square(action - target)))
        return Outcome(jnp.zeros_like(vector), reward, jnp.ones((), bool))

    return ContinuousEnvironment(lambda _key: jnp.ones(1, jnp.float32), advance, 1, num_action_dimensions)


def continuous_context() -> ContinuousEnvironment:
    """One step with reward 1 - (action - target)². The observation is (1, target), and (0, target) after the end.

    The target is drawn uniformly from [-0.8, 0.8].
    """

    def start(key: PRNGKey) -> Array:
        return jnp.stack([jnp.float32(1.0), jax.random.uniform(key, minval=-0.8, maxval=0.8)])

    def advance(_key: PRNGKey, vector: Array, action: Array) -> Outcome:
        reward = vector[0] * (1.0 - jnp.square(action[0] - vector[1]))
        return Outcome(vector.at[0].set(0.0), reward, jnp.ones((), bool))

    return ContinuousEnvironment(start, advance, 2, 1)


def continuous_credit(target: float = 0.5) -> ContinuousEnvironment:
    """Two steps. The first pays nothing, the second pays 1 - (first - target)² - (second - first)².

    The observation is (phase, first action). The phase is 0, then 1/2, then 1 after the end.

    Args:
        target: Best value of both actions.
    """

    def advance(_key: PRNGKey, vector: Array, action: Array) -> Outcome:
        phase, first = vector
        reward = 1.0 - jnp.square(first - target) - jnp.square(action[0] - first)
        vector = jnp.stack([jnp.minimum(phase + 0.5, 1.0), jnp.where(phase == 0.0, action[0], first)])
        return Outcome(vector, jnp.where(phase == 0.5, reward, 0.0), phase >= 0.5)

    return ContinuousEnvironment(lambda _key: jnp.zeros(2, jnp.float32), advance, 2, 1)


def lqr(noise: float = 0.0, time_limit: int = 50) -> ContinuousEnvironment:
    """A linear-quadratic regulator: a mass on a line, pushed to rest at 0. It never terminates.

    x' = A x + B a + noise, with reward -(x·Q x + a·R a). Starts have |x| <= 0.5 in position and velocity. From there
    the optimal action stays within its bounds, so the Riccati equation gives the optimal value. With noise this is an
    approximation, because noise may carry x further out.

    Args:
        noise: Standard deviation of the noise on position and velocity in each step.
        time_limit: Longest episode, in steps.
    """
    seconds = LQR_SECONDS

    def start(key: PRNGKey) -> Array:
        return jax.random.uniform(key, (2,), minval=-0.5, maxval=0.5)

    def advance(key: PRNGKey, vector: Array, action: Array) -> Outcome:
        # Not a matrix product, which may lose precision on an accelerator.
        (position, velocity), (force,) = vector, action
        cost = position**2 + LQR_VELOCITY_COST * velocity**2 + LQR_FORCE_COST * force**2
        vector = jnp.stack([position + seconds * velocity + 0.5 * seconds**2 * force, velocity + seconds * force])
        return Outcome(vector + noise * jax.random.normal(key, (2,)), -cost, jnp.zeros((), bool))

    return ContinuousEnvironment(start, advance, 2, 1, time_limit)


CONTINUOUS: dict[str, Callable[..., ContinuousEnvironment]] = {
    maker.__name__: maker for maker in (continuous_bandit, continuous_context, continuous_credit, lqr)
}


def _draw_dots(vector: Float[np.ndarray, " n"]) -> np.ndarray:
    """A line from -1 to 1 for each entry of the vector, with a dot at its value."""
    height, width, margin = 24, 160, 8
    image = np.full((height * len(vector), width, 3), 255, np.uint8)
    for row, value in enumerate(np.clip(vector, -1.0, 1.0)):
        middle = height * row + height // 2
        image[middle, margin:-margin] = 150
        image[middle - 4 : middle + 5, width // 2] = 150
        column = margin + round((float(value) + 1.0) / 2.0 * (width - 2 * margin - 1))
        image[middle - 3 : middle + 4, column - 3 : column + 4] = (30, 90, 200)
    return image
