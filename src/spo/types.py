"""The words every other module speaks: arrays and keys, one step of a world, and the contract of a world.

Shape legend, used in annotations and docstrings throughout:

    B  roots (or environments) side by side      N  particles per root
    H  search horizon                            A  discrete actions
    T  time steps of a rollout                   D  dimensions of a continuous action

This module imports nothing of ours: it is the bottom layer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
from jaxtyping import Array, Bool, Float, Integer, Key, PRNGKeyArray, PyTree, Scalar, ScalarLike, Shaped, UInt32

#: A key as `jax.random.key` makes it, or the raw `uint32[2]` that `jax.random.PRNGKey` makes: both are welcome.
PRNGKey: TypeAlias = PRNGKeyArray | UInt32[Array, "2"]

State: TypeAlias = PyTree[Array]
Observation: TypeAlias = PyTree[Array]
Action: TypeAlias = PyTree[Array]
#: Scalars by name, for people to read.
Metrics: TypeAlias = dict[str, Array]

#: Name of the mesh axis over which training is split. One device is an axis of length 1, not another code path.
DEVICE_AXIS = "devices"


class TimeStep(NamedTuple):
    """What a world says after `reset` or `step`.

    `terminated` and `truncated` are never mixed: after termination the future is worth nothing, after truncation
    (a time limit) it is worth V(observation), because the world would have gone on.
    """

    observation: Observation
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    #: True where an action may be taken; None for continuous actions.
    action_mask: Bool[Array, " A"] | None = None
    #: Numbers for people, a flat dictionary of scalars such as {"solved": ...}. Nothing learns from it.
    metrics: dict[str, Array] = {}  # noqa: RUF012 (never written to: a time step is immutable)

    @property
    def ended(self) -> Bool[Array, ""]:
        return self.terminated | self.truncated

    @property
    def discount(self) -> Float[Array, ""]:
        """0 where the episode terminated, 1 otherwise (truncation included)."""
        return 1.0 - self.terminated.astype(self.reward.dtype)


class DiscreteActions(NamedTuple):
    """Actions 0 .. num_actions - 1."""

    num_actions: int


class ContinuousActions(NamedTuple):
    """Vectors of length `size` between `low` and `high` in every dimension."""

    size: int
    low: float = -1.0
    high: float = 1.0


ActionSpec: TypeAlias = DiscreteActions | ContinuousActions


class Environment(NamedTuple):
    """A world as pure functions of pytrees, written for one copy of it: `jax.vmap` makes many.

    - `reset(key)` draws a fresh start state and returns `(state, timestep)`.
    - `step(key, state, action)` returns `(next_state, timestep)`. It never resets by itself, and a state carries no
      randomness of its own: whoever steps brings the key. That is why the same function serves as the model of a
      search: particles bring their own keys and can't see the real world's future.
    - `observation_spec` is a pytree of `jax.ShapeDtypeStruct`.
    - `render(state)` returns an RGB image, `uint8[height, width, 3]`, as a NumPy array (host side, not traced).
    """

    name: str
    reset: Callable[[PRNGKey], tuple[State, TimeStep]]
    step: Callable[[PRNGKey, State, Action], tuple[State, TimeStep]]
    observation_spec: PyTree[jax.ShapeDtypeStruct]
    action_spec: ActionSpec
    render: Callable[[State], Any]


class Task(NamedTuple):
    """A world in its three roles, which differ in where episodes start and never in what a step does.

    `train` is where experience is gathered, `evaluation` where it is judged, and `model` what a search imagines with.
    All three share the layout of `State`, so that a state met in either of the first two can be put into the third.
    """

    train: Environment
    evaluation: Environment
    model: Environment


__all__ = [
    "DEVICE_AXIS",
    "Action",
    "ActionSpec",
    "Array",
    "Bool",
    "ContinuousActions",
    "DiscreteActions",
    "Environment",
    "Float",
    "Integer",
    "Key",
    "Metrics",
    "Observation",
    "PRNGKey",
    "PyTree",
    "Scalar",
    "ScalarLike",
    "Shaped",
    "State",
    "Task",
    "TimeStep",
]
