"""Checks of an environment: `check_environment(environment)` runs its contract for a few steps.

Every fault is an `InvalidEnvironment` with one sentence that names the field and the remedy.

| Stage | Faults |
|---|---|
| specs | fields of the environment, `action_spec`, `observation_spec` |
| traces | types of states and time steps, side effects, keys; nothing is compiled |
| steps | values: NaN, masks without an action, results that differ for the same key, episodes without an end |

Chance is checked as far as it can be wrong. The same key must give the same result, a state holds no key, and no random
number is drawn with a constant key. A reset that ignores its key is valid: all its episodes have the same start.
"""

import math
import time
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.checks import PositiveInt, check_value, print_message
from spo.environments._tracing import (
    InvalidEnvironment,
    Trace,
    canonical,
    close_arrays,
    draws_from_constant_key,
    is_array,
    quote_errors,
    same_program,
    trace,
)
from spo.environments.wrappers import auto_reset
from spo.quoting import quote
from spo.types import (
    RESERVED_METRICS,
    Action,
    Array,
    Bool,
    ContinuousActions,
    DiscreteActions,
    Environment,
    Integer,
    PRNGKey,
    PyTree,
    State,
    Task,
    TimeStep,
)

#: Seconds after which the search for the end of an episode stops without a verdict.
SECONDS_FOR_TIME_LIMIT = 8.0
_STEPS_PER_CALL = 500


def check_environment(
    environment: Environment | Task,
    *,
    num_steps: PositiveInt = 8,
    max_steps_for_time_limit: PositiveInt = 10_000,
    message: Callable[[str], None] = print_message,
) -> None:
    """Raises `InvalidEnvironment` if an environment breaks the contract of `spo.types.Environment`.

    It returns nothing and prints nothing if there is no fault and an episode has ended.

    Args:
      environment: an environment; or a task, whose environments are checked and compared.
      num_steps: number of steps with random actions that are compared and checked in detail.
      max_steps_for_time_limit: an episode of random actions must end within this number of steps. An environment
        whose steps are slow is only played for 8 seconds.
      message: receives a sentence if no episode has ended in these 8 seconds.
    """
    check_value("num_steps", num_steps, PositiveInt)
    check_value("max_steps_for_time_limit", max_steps_for_time_limit, PositiveInt)
    if isinstance(environment, Task):
        notes = _check_task(environment, num_steps, max_steps_for_time_limit)
    else:
        notes = _check_one(environment, num_steps, max_steps_for_time_limit)
    for note in notes[:1]:
        message(note)


def _check_one(environment: Environment, num_steps: int, max_steps_for_time_limit: int) -> list[str]:
    """Checks one environment, and returns a note if no episode has ended."""
    if not isinstance(environment, Environment):
        raise InvalidEnvironment(
            f"An environment must be a spo.types.Environment, got {_describe(environment)}: build one from reset, "
            "step, observation_spec and action_spec."
        )
    try:
        _check_specs(environment)
        traces = _check_traces(environment)
        steps_without_end = _check_steps(environment, traces, num_steps, max_steps_for_time_limit)
    except InvalidEnvironment as error:
        sentence = " ".join(str(error).split())  # the text of a value may have several lines
        raise InvalidEnvironment(f"{_title(environment)}: {sentence}") from None
    except Exception as error:  # such as a dictionary whose keys can't be sorted
        raise InvalidEnvironment(
            f"{_title(environment)}: its specs, states or time steps are no valid pytrees of arrays: {quote(error)}. "
            "Use tuples, named tuples and dictionaries with text as keys."
        ) from None
    if steps_without_end is None:
        return []
    return [
        f"{_title(environment)}: no episode of random actions ended in the {steps_without_end:,} steps that the check "
        "had time for. If its episodes have no time limit, add one: "
        "spo.environments.wrappers.episode_limit(environment, 1000)."
    ]


def _check_task(task: Task, num_steps: int, max_steps_for_time_limit: int) -> list[str]:
    """Checks the environments of a task, and returns their notes."""
    checked: list[Environment] = []
    notes: list[str] = []
    for environment in task:
        if not any(_is_copy(environment, other) for other in checked):
            notes += _check_one(environment, num_steps, max_steps_for_time_limit)
            checked.append(environment)
    key = jax.random.key(0)
    expected = jax.eval_shape(task.train.reset, key)
    for role, environment in (("evaluation", task.evaluation), ("model", task.model)):
        if environment.action_spec != task.train.action_spec:
            raise InvalidEnvironment(
                f"{_title(environment)}: the action_spec of task.{role} is {environment.action_spec}, that "
                f"of task.train is {task.train.action_spec}: give all environments of a task the same action_spec."
            )
        difference = _difference("(state, time step)", expected, jax.eval_shape(environment.reset, key))
        if difference:
            raise InvalidEnvironment(
                f"{_title(environment)}: reset of task.train and of task.{role} differ: {difference}. "
                "All environments of a task must have the same layout of states and observations."
            )
    return notes


def _is_copy(environment: Any, other: Environment) -> bool:
    """Returns True if two environments have the same functions. Copies differ in the name at most."""
    return isinstance(environment, Environment) and environment[:2] == other[:2]


# --- Specs -----------------------------------------------------------------------------------------------------------


def _check_specs(environment: Environment) -> None:
    for name in ("reset", "step"):
        if not callable(getattr(environment, name)):
            raise InvalidEnvironment(
                f"{name} must be a function, got {_describe(getattr(environment, name))}: pass the function itself."
            )
    if not isinstance(environment.name, str):
        raise InvalidEnvironment(f"name must be text, got {_describe(environment.name)}: leave it out or name it.")
    if not isinstance(environment.hidden, str):
        raise InvalidEnvironment(
            f'hidden must be text, such as "the mines", got {_describe(environment.hidden)}: leave it out or name it.'
        )
    if environment.render is not None and not callable(environment.render):
        raise InvalidEnvironment(
            f"render must be a function from a state to an image, got {_describe(environment.render)}: leave it out."
        )
    _check_action_spec(environment.action_spec)
    leaves = _leaves("observation_spec", environment.observation_spec)
    if not leaves:
        raise InvalidEnvironment(
            "observation_spec is empty: give a jax.ShapeDtypeStruct for every array of the observation."
        )
    for path, leaf in leaves.items():
        if not is_array(leaf):
            raise InvalidEnvironment(
                f"{path} must be a jax.ShapeDtypeStruct, got {_describe(leaf)}: write for example "
                "jax.ShapeDtypeStruct((4,), jnp.float32)."
            )
        _check_number_format(path, leaf.dtype)
        if (inside := canonical(leaf).dtype) != leaf.dtype:
            raise InvalidEnvironment(f"{path} is {leaf.dtype}, which JAX makes {inside}: write jnp.{inside}.")


def _check_action_spec(spec: Any) -> None:
    if isinstance(spec, DiscreteActions):
        if not _is_count(spec.num_actions):
            raise InvalidEnvironment(
                f"action_spec.num_actions must be a whole number of at least 1, got {spec.num_actions!r}: write for "
                "example DiscreteActions(4)."
            )
    elif isinstance(spec, ContinuousActions):
        if not _is_count(spec.size):
            raise InvalidEnvironment(
                f"action_spec.size must be a whole number of at least 1, got {spec.size!r}: write for example "
                "ContinuousActions(2)."
            )
        bounds = (spec.low, spec.high)
        numbers = all(isinstance(bound, Real) and math.isfinite(bound) for bound in bounds)
        if not numbers or not spec.low < spec.high:
            raise InvalidEnvironment(
                f"action_spec.low and action_spec.high must be finite numbers with low < high, got {spec.low!r} and "
                f"{spec.high!r}: use one range for all dimensions and scale the action in step."
            )
    else:
        raise InvalidEnvironment(
            f"action_spec must be DiscreteActions or ContinuousActions of spo.types, got {_describe(spec)}: write for "
            "example DiscreteActions(4) or ContinuousActions(2)."
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


# --- Traces ----------------------------------------------------------------------------------------------------------


class _Types(NamedTuple):
    """Types of a state and a time step, as `reset` returns them."""

    state: PyTree[jax.ShapeDtypeStruct]
    timestep: PyTree[jax.ShapeDtypeStruct]


def _check_traces(environment: Environment) -> _Types:
    """Checks the types of `reset` and `step`, and that a second trace of each is the same program."""
    key = jax.random.key(0)
    resets = [trace("reset", environment.reset, key)]
    types = _check_output("reset", environment, resets[0].output)
    action = jax.eval_shape(lambda: _random_action(environment, key, None))
    steps = []
    for _ in range(2):
        steps.append(trace("step", environment.step, key, types.state, action))
        resets.append(trace("reset", environment.reset, key))
    after_step = _check_output("step", environment, steps[0].output)
    for name, difference in (
        ("state", _difference("state", types.state, after_step.state)),
        ("time step", _difference("timestep", types.timestep, after_step.timestep)),
    ):
        if difference:
            raise InvalidEnvironment(
                f"the {name} of reset and that of step differ: {difference}. Return the same structure, shapes and "
                "dtypes from both."
            )
    for name, traces in (("reset", resets), ("step", steps)):
        _check_purity(name, traces)
    with quote_errors("step under jax.vmap and jax.lax.scan"):
        jax.eval_shape(lambda: _batched_steps(environment))
    return types


def _batched_steps(environment: Environment) -> Any:
    """Runs steps as training does."""
    step = jax.vmap(auto_reset(environment))

    def body(carry: tuple[State, TimeStep], keys: PRNGKey) -> tuple[tuple[State, TimeStep], None]:
        state, timestep = carry
        actions = jax.vmap(lambda key, mask: _random_action(environment, key, mask))(keys, timestep.action_mask)
        state, outcome = step(keys, state, actions)
        return (state, outcome.next), None

    keys = jax.random.split(jax.random.key(0), (2, 2))
    return jax.lax.scan(body, jax.vmap(environment.reset)(keys[0]), keys)


def _check_purity(name: str, traces: Sequence[Trace]) -> None:
    if not all(same_program(traces[0], other) for other in traces[1:]):
        raise InvalidEnvironment(
            f"{name} has side effects: two calls with the same arguments are different programs. Let it read and write "
            "nothing but its arguments (no counter, no global, no attribute), and draw random numbers with "
            "jax.random from its argument key (not from numpy.random, random or time)."
        )
    if draws_from_constant_key(traces[0].program):
        raise InvalidEnvironment(
            f"{name} draws random numbers with a key of its own, which are the same in every call: use its argument "
            "key."
        )


def _check_output(name: str, environment: Environment, output: Any) -> _Types:
    if not (isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], TimeStep)):
        raise InvalidEnvironment(
            f"{name} must return (state, timestep) with a spo.types.TimeStep, got {_describe_output(output)}: end it "
            "with `return state, TimeStep(...)`."
        )
    state, timestep = output
    _check_state(name, state)
    _check_observation(name, environment.observation_spec, timestep.observation)
    _check_scalar(name, "reward", timestep.reward, jnp.float32, "jnp.float32(...)")
    for field in ("terminated", "truncated"):
        _check_scalar(name, field, getattr(timestep, field), jnp.bool_, "jnp.bool_(...)")
    _check_mask(name, environment.action_spec, timestep.action_mask)
    _check_metrics(name, timestep.metrics)
    return _Types(*jax.tree.map(canonical, (state, timestep)))


def _check_state(name: str, state: State) -> None:
    for path, leaf in _leaves("state", state).items():
        if not is_array(leaf):
            remedies = {bool: "write jnp.bool_(...)", int: "write jnp.int32(...)", float: "write jnp.float32(...)"}
            remedy = remedies.get(type(leaf), "keep it outside of the state")
            raise InvalidEnvironment(f"{path} of {name} is {_describe(leaf)}, but a state holds arrays only: {remedy}.")
        is_raw_key = leaf.shape == (2,) and leaf.dtype == np.uint32 and any(x in path for x in ("key", "rng"))
        if is_raw_key or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise InvalidEnvironment(
                f"{path} of {name} is a random key: leave it out and use the argument key of step, because a search "
                "steps from this state and would see the future of the real environment."
            )
        if leaf.dtype == np.float64:
            _check_number_format(f"{path} of {name}", leaf.dtype)


def _check_observation(name: str, spec: PyTree, observation: Any) -> None:
    for path, leaf in _leaves("observation", observation).items():
        if not is_array(leaf):
            raise InvalidEnvironment(
                f"{path} of {name} must be an array, got {_describe(leaf)}: write for example jnp.float32(...)."
            )
        _check_number_format(f"{path} of {name}", leaf.dtype)
    difference = _difference("observation", spec, observation, names=("observation_spec", name))
    if difference:
        raise InvalidEnvironment(
            f"the observation of {name} is not that of observation_spec: {difference}. Change one of the two."
        )


def _check_scalar(name: str, field: str, value: Any, dtype: Any, remedy: str) -> None:
    dtype = np.dtype(dtype)
    if not is_array(value):
        raise InvalidEnvironment(f"{field} of {name} must be a {dtype} array, got {_describe(value)}: write {remedy}.")
    if value.shape != () or value.dtype != dtype:
        remedy = f"write {remedy}" if value.shape == () else "return one number"
        raise InvalidEnvironment(
            f"{field} of {name} must be a {dtype} array of shape (), got {_describe(value)}: {remedy}."
        )


def _check_mask(name: str, spec: Any, mask: Any) -> None:
    if mask is None:
        return
    if isinstance(spec, ContinuousActions):
        raise InvalidEnvironment(
            f"action_mask of {name} must be None for continuous actions, got {_describe(mask)}: leave it out."
        )
    if not is_array(mask) or mask.shape != (spec.num_actions,) or mask.dtype != np.bool_:
        raise InvalidEnvironment(
            f"action_mask of {name} must be a bool array of shape ({spec.num_actions},), one entry for each action of "
            f"action_spec, got {_describe(mask)}: correct the mask or action_spec."
        )


def _check_metrics(name: str, metrics: Any) -> None:
    if not isinstance(metrics, dict) or not all(isinstance(key, str) for key in metrics):
        raise InvalidEnvironment(
            f"metrics of {name} must be a dictionary from names to scalars, got {_describe(metrics)}: write for "
            'example {"solved": solved}.'
        )
    for key, value in metrics.items():
        if key in RESERVED_METRICS:
            raise InvalidEnvironment(
                f"the metric {key!r} of {name} has a reserved name ({', '.join(sorted(RESERVED_METRICS))}): rename it."
            )
        if not is_array(value) or value.shape != ():
            raise InvalidEnvironment(
                f"metrics[{key!r}] of {name} must be an array of shape (), got {_describe(value)}: write "
                "jnp.float32(...)."
            )
        _check_number_format(f"metrics[{key!r}] of {name}", value.dtype)


def _check_number_format(path: str, dtype: Any) -> None:
    number = jax.dtypes.issubdtype(dtype, np.number) or dtype == np.bool_
    is_float = jax.dtypes.issubdtype(dtype, np.floating)
    if not number or jax.dtypes.issubdtype(dtype, np.complexfloating) or (is_float and dtype != np.float32):
        raise InvalidEnvironment(f"{path} is {dtype}: use float32, for example with .astype(jnp.float32).")


# --- Steps -----------------------------------------------------------------------------------------------------------


class _Play(NamedTuple):
    """An episode of random actions, as far as it was played."""

    key: PRNGKey
    state: State
    timestep: TimeStep
    steps: Integer[Array, ""]
    ended: Bool[Array, ""]


def _check_steps(environment: Environment, types: _Types, num_steps: int, max_steps: int) -> int | None:
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


def _as_types(types: _Types) -> Callable[[Any], Any]:
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
        action = _random_action(environment, key_action, play.timestep.action_mask)
        reached = environment.step(key_step, play.state, action)
        state, timestep = jax.tree.map(
            lambda old, new: jnp.asarray(new, old.dtype), (play.state, play.timestep), tuple(reached)
        )
        return _Play(key, state, timestep, play.steps + 1, timestep.ended)

    def continues(play: _Play) -> Bool[Array, ""]:
        return ~play.ended & (play.steps < limit) & _is_valid(play.timestep)

    return jax.lax.while_loop(continues, step, play)


def _random_action(environment: Environment, key: PRNGKey, mask: Bool[Array, " A"] | None) -> Action:
    spec = environment.action_spec
    if isinstance(spec, ContinuousActions):
        return jax.random.uniform(key, (spec.size,), minval=spec.low, maxval=spec.high)
    logits = jnp.zeros(spec.num_actions) if mask is None else jnp.where(mask, 0.0, -jnp.inf)
    return jax.random.categorical(key, logits)


def _is_valid(timestep: TimeStep) -> Bool[Array, ""]:
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((timestep.observation, timestep.reward))]
    some_action = jnp.ones((), bool) if timestep.action_mask is None else jnp.any(timestep.action_mask)
    return jnp.all(jnp.stack(finite)) & some_action


def _check_values(name: str, timestep: TimeStep) -> None:
    fields = _leaves("observation", timestep.observation) | {"reward": timestep.reward}
    for path, leaf in fields.items():
        if not np.all(np.isfinite(leaf)):
            raise InvalidEnvironment(
                f"{path} of {name} contains NaN or an infinite number: find the division, logarithm or root that "
                "produces it (jax.debug.print shows values)."
            )
    if timestep.action_mask is not None and not np.any(timestep.action_mask):
        raise InvalidEnvironment(
            f"action_mask of {name} is all False: allow at least one action in every state, in the last one too."
        )


def _check_repeats(name: str, first: PyTree, second: PyTree) -> None:
    if not close_arrays(first, second):
        raise InvalidEnvironment(
            f"{name} gave two results for the same arguments: draw random numbers with jax.random from the argument "
            "key, not inside a callback."
        )


# --- Words -----------------------------------------------------------------------------------------------------------


def _leaves(root: str, tree: PyTree) -> dict[str, Any]:
    """Returns the leaves of a pytree by their paths, such as `observation['image']`."""
    return {f"{root}{jax.tree_util.keystr(path)}": leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def _difference(root: str, expected: PyTree, found: PyTree, names: tuple[str, str] = ("reset", "step")) -> str | None:
    """Returns the first difference between two pytrees in structure, shape or dtype, as words."""
    first, second = _leaves(root, expected), _leaves(root, found)
    for path in [*first, *second]:
        if path not in second:
            return f"{path} is only in {names[0]}"
        if path not in first:
            return f"{path} is only in {names[1]}"
        types = [canonical(tree[path]) for tree in (first, second)]
        if types[0].shape != types[1].shape or types[0].dtype != types[1].dtype:
            return f"{path} is {_describe(types[0])} in {names[0]} and {_describe(types[1])} in {names[1]}"
    structures: list[Any] = [jax.tree.structure(tree) for tree in (expected, found)]
    if structures[0] != structures[1]:
        return f"{root} has other containers in {names[0]} than in {names[1]}, such as a list and a tuple, or None"
    return None


def _title(environment: Environment) -> str:
    named = isinstance(environment.name, str) and environment.name
    return f"Environment {environment.name!r}" if named else "Environment"


def _describe(value: Any) -> str:
    if is_array(value):
        return f"{value.dtype}{list(value.shape)}"
    return f"a Python {type(value).__name__}" if isinstance(value, bool | int | float) else f"a {type(value).__name__}"


def _describe_output(output: Any) -> str:
    if type(output) is tuple:
        return f"a tuple of {len(output)}: ({', '.join(map(_describe, output))})"
    return _describe(output)


__all__ = ["InvalidEnvironment", "check_environment"]
