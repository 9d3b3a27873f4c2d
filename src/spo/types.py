"""Types that all modules share: arrays and keys, one step of an environment, and the environment contract.

Shape legend, used in annotations and docstrings throughout:

    B  batch: roots of a search, states          N  particles per root
    H  search horizon                            A  discrete actions
    T  time steps of a rollout                   D  dimensions of a continuous action
    E  environments of one device                M  outcomes of a step with chance

It is the bottom layer: it imports no other module of the package.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeAlias

import jax
from jaxtyping import Array, Bool, Float, Integer, Key, PRNGKeyArray, PyTree, Scalar, ScalarLike, Shaped, UInt32

#: A key made by `jax.random.key`, or the raw `uint32[2]` made by `jax.random.PRNGKey`.
PRNGKey: TypeAlias = PRNGKeyArray | UInt32[Array, "2"]
#: An array of keys.
PRNGKeys: TypeAlias = Key[Array, "*shape"] | UInt32[Array, "*shape words"]

State: TypeAlias = PyTree[Array]
Observation: TypeAlias = PyTree[Array]
Action: TypeAlias = PyTree[Array]
#: Scalars by name, for logging.
Metrics: TypeAlias = dict[str, Array]

#: Name of the mesh axis over which training is split. One device is an axis of length 1, not another code path.
DEVICE_AXIS = "devices"

#: Names that records give to the numbers of an episode. A metric of an environment can't have one of them.
RESERVED_METRICS = frozenset({"count", "length", "return", "return_deviation"})


class TimeStep(NamedTuple):
    """Result of `reset` or `step`.

    `terminated` and `truncated` are kept apart. After termination the future is worth nothing. After truncation (a time
    limit) it is worth V(observation), because the episode could have continued.
    """

    #: Observation of the new state.
    observation: Observation
    #: Reward of the step; 0 after `reset`.
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    #: True for valid actions; None: all discrete actions are valid, or the actions are continuous.
    action_mask: Bool[Array, " A"] | None = None
    #: Scalars for logging, such as {"solved": ...}. Nothing learns from them.
    metrics: dict[str, Array] = {}  # noqa: RUF012 (never written to: a time step is immutable)

    @property
    def ended(self) -> Bool[Array, ""]:
        """True where the episode ended, in either way."""
        return self.terminated | self.truncated

    @property
    def discount(self) -> Float[Array, ""]:
        """0 where the episode terminated, 1 otherwise (truncation included)."""
        return 1.0 - self.terminated.astype(self.reward.dtype)


class DiscreteActions(NamedTuple):
    """Actions 0 .. num_actions - 1."""

    #: Number of actions.
    num_actions: int


class _ContinuousActions(NamedTuple):
    size: int
    low: float | tuple[float, ...]
    high: float | tuple[float, ...]


class ContinuousActions(_ContinuousActions):
    """Vectors of length `size` between `low` and `high`.

    A bound is one number for all dimensions, or a sequence with one number for each: `ContinuousActions(2, -1.0, (1.0,
    0.5))`. Sequences are kept as tuples. `spo.check_environment` checks the numbers.
    """

    __slots__ = ()

    def __new__(cls, size: Any, low: Any = -1.0, high: Any = 1.0) -> Self:
        return super().__new__(cls, size, _number_or_tuple(low), _number_or_tuple(high))

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**(self._asdict() | changes))

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Lower and upper bound of each dimension."""
        lows, highs = ((bound if isinstance(bound, tuple) else (bound,) * self.size) for bound in (self.low, self.high))
        return tuple(zip(lows, highs, strict=True))


def _number_or_tuple(bound: Any) -> Any:
    """Returns a list or an array as a tuple, and everything else as it is."""
    if hasattr(bound, "tolist") and hasattr(bound, "__len__"):  # an array, and no number of NumPy
        bound = bound.tolist()
    return tuple(bound) if isinstance(bound, list) else bound


ActionSpec: TypeAlias = DiscreteActions | ContinuousActions


class Starts(NamedTuple):
    """Starts of an episode that can be chosen by a number, such as the level of a game."""

    #: Meaning of the number, such as "Level".
    label: str
    #: Smallest number.
    low: int
    #: Largest number.
    high: int
    #: (key, number) -> (state, timestep)
    reset: Callable[[PRNGKey, Integer[Array, ""]], tuple[State, TimeStep]]


class Environment(NamedTuple):
    """An environment as pure functions of pytrees. They are written for one environment: use `jax.vmap` for a batch.

    - `reset(key)` draws an initial state and returns `(state, timestep)`.
    - `step(key, state, action)` returns `(next_state, timestep)`. It never resets. A state holds no random key: the
      caller passes one. The same function can therefore be the model of a search: particles use their own keys, and
      the search can't see the future of the real environment.
    - `observation_spec` is a pytree of `jax.ShapeDtypeStruct`.
    - `render(state)` returns an RGB image, `uint8[height, width, 3]`, as a NumPy array (on the host, not traced).

    `name` and `render` may be left out, and so may the mask of discrete actions if all of them are always allowed.
    """

    reset: Callable[[PRNGKey], tuple[State, TimeStep]]
    step: Callable[[PRNGKey, State, Action], tuple[State, TimeStep]]
    observation_spec: PyTree[jax.ShapeDtypeStruct]
    #: Kind and size of the actions.
    action_spec: ActionSpec
    #: Name for logs and messages. An environment without one is called after the function that makes it.
    name: str = ""
    #: None: `spo render` has no pictures to show.
    render: Callable[[State], Any] | None = None
    #: True: a rollout computes a reset at every step. False: it first waits to see whether an episode ended, which
    #: takes a GPU longer than a few small operations.
    cheap_reset: bool = False
    #: Names of discrete actions, for people; empty: "action 0", "action 1", ...
    action_names: tuple[str, ...] = ()
    #: Starts that a person can choose; None: `reset` draws them.
    starts: Starts | None = None
    #: What a state holds and its observation does not show, in words, such as "the mines". "": nothing. A search steps
    #: the true state and therefore uses it. The first message of a run names it.
    hidden: str = ""


class Task(NamedTuple):
    """An environment in three roles. They differ in the initial states, never in the effect of a step.

    Experience is collected in `train` and measured in `evaluation`; a search simulates with `model`. All three have the
    same layout of `State`: a state of either of the first two can be passed to the third.
    """

    train: Environment
    evaluation: Environment
    model: Environment


__all__ = [
    "DEVICE_AXIS",
    "RESERVED_METRICS",
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
    "PRNGKeys",
    "PyTree",
    "Scalar",
    "ScalarLike",
    "Shaped",
    "Starts",
    "State",
    "Task",
    "TimeStep",
]
