"""Checks of what `reset` and `step` return: types of states and time steps, side effects, keys. Nothing is compiled."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.checking.specs import check_number_format
from spo.environments.checking.tracing import (
    InvalidEnvironment,
    Trace,
    canonical,
    draws_from_constant_key,
    quote_errors,
    same_program,
    trace,
)
from spo.environments.checking.words import find_difference, named_leaves
from spo.environments.outputs import describe, is_array, unpack_output
from spo.environments.wrappers import auto_reset
from spo.types import (
    RESERVED_METRICS,
    Action,
    Array,
    Bool,
    ContinuousActions,
    Environment,
    PRNGKey,
    PyTree,
    State,
    TimeStep,
)


class Types(NamedTuple):
    """Types of a state and a time step, as `reset` returns them."""

    state: PyTree[jax.ShapeDtypeStruct]
    timestep: PyTree[jax.ShapeDtypeStruct]


def check_traces(environment: Environment) -> Types:
    """Checks the types of `reset` and `step`, and that a second trace of each is the same program."""
    key = jax.random.key(0)
    resets = [trace("reset", environment.reset, key)]
    types = _check_output("reset", environment, resets[0].output)
    action = jax.eval_shape(lambda: random_action(environment, key, None))
    steps = []
    for _ in range(2):
        steps.append(trace("step", environment.step, key, types.state, action))
        resets.append(trace("reset", environment.reset, key))
    after_step = _check_output("step", environment, steps[0].output)
    for name, difference in (
        ("state", find_difference("state", types.state, after_step.state)),
        ("time step", find_difference("timestep", types.timestep, after_step.timestep)),
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
        actions = jax.vmap(lambda key, mask: random_action(environment, key, mask))(keys, timestep.action_mask)
        state, outcome = step(keys, state, actions)
        return (state, outcome.next), None

    keys = jax.random.split(jax.random.key(0), (2, 2))
    return jax.lax.scan(body, jax.vmap(environment.reset)(keys[0]), keys)


def random_action(environment: Environment, key: PRNGKey, mask: Bool[Array, " A"] | None) -> Action:
    """Returns a uniformly random action, one that the mask allows if there is one."""
    spec = environment.action_spec
    if isinstance(spec, ContinuousActions):
        low, high = (jnp.asarray(bound) if isinstance(bound, tuple) else bound for bound in (spec.low, spec.high))
        return jax.random.uniform(key, (spec.size,), minval=low, maxval=high)
    logits = jnp.zeros(spec.num_actions) if mask is None else jnp.where(mask, 0.0, -jnp.inf)
    return jax.random.categorical(key, logits)


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


def _check_output(name: str, environment: Environment, output: Any) -> Types:
    with quote_errors(name):
        state, timestep = unpack_output(name, getattr(environment, name), output)
    _check_state(name, state)
    _check_observation(name, environment.observation_spec, timestep.observation)
    _check_scalar(name, "reward", timestep.reward, jnp.float32, "jnp.float32(...)")
    for field in ("terminated", "truncated"):
        _check_scalar(name, field, getattr(timestep, field), jnp.bool_, "jnp.bool_(...)")
    _check_mask(name, environment.action_spec, timestep.action_mask)
    _check_metrics(name, timestep.metrics)
    return Types(*jax.tree.map(canonical, (state, timestep)))


def _check_state(name: str, state: State) -> None:
    for path, leaf in named_leaves("state", state).items():
        if not is_array(leaf):
            remedies = {bool: "write jnp.bool_(...)", int: "write jnp.int32(...)", float: "write jnp.float32(...)"}
            remedy = remedies.get(type(leaf), "keep it outside of the state")
            raise InvalidEnvironment(f"{path} of {name} is {describe(leaf)}, but a state holds arrays only: {remedy}.")
        is_raw_key = leaf.shape == (2,) and leaf.dtype == np.uint32 and any(x in path for x in ("key", "rng"))
        if is_raw_key or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise InvalidEnvironment(
                f"{path} of {name} is a random key: leave it out and use the argument key of step, because a search "
                "steps from this state and would see the future of the real environment."
            )
        if leaf.dtype == np.float64:
            check_number_format(f"{path} of {name}", leaf.dtype)


def _check_observation(name: str, spec: PyTree, observation: Any) -> None:
    for path, leaf in named_leaves("observation", observation).items():
        if not is_array(leaf):
            raise InvalidEnvironment(
                f"{path} of {name} must be an array, got {describe(leaf)}: write for example jnp.float32(...)."
            )
        check_number_format(f"{path} of {name}", leaf.dtype)
    difference = find_difference("observation", spec, observation, names=("observation_spec", name))
    if difference:
        raise InvalidEnvironment(
            f"the observation of {name} is not that of observation_spec: {difference}. Change one of the two."
        )


def _check_scalar(name: str, field: str, value: Any, dtype: Any, remedy: str) -> None:
    dtype = np.dtype(dtype)
    if not is_array(value):
        raise InvalidEnvironment(f"{field} of {name} must be a {dtype} array, got {describe(value)}: write {remedy}.")
    if value.shape != () or value.dtype != dtype:
        remedy = f"write {remedy}" if value.shape == () else "return one number"
        raise InvalidEnvironment(
            f"{field} of {name} must be a {dtype} array of shape (), got {describe(value)}: {remedy}."
        )


def _check_mask(name: str, spec: Any, mask: Any) -> None:
    if mask is None:
        return
    if isinstance(spec, ContinuousActions):
        raise InvalidEnvironment(
            f"action_mask of {name} must be None for continuous actions, got {describe(mask)}: leave it out."
        )
    if not is_array(mask) or mask.shape != (spec.num_actions,) or mask.dtype != np.bool_:
        raise InvalidEnvironment(
            f"action_mask of {name} must be a bool array of shape ({spec.num_actions},), one entry for each action of "
            f"action_spec, got {describe(mask)}: correct the mask or action_spec."
        )


def _check_metrics(name: str, metrics: Any) -> None:
    if not isinstance(metrics, dict) or not all(isinstance(key, str) for key in metrics):
        raise InvalidEnvironment(
            f"metrics of {name} must be a dictionary from names to scalars, got {describe(metrics)}: write for "
            'example {"solved": solved}.'
        )
    for key, value in metrics.items():
        if key in RESERVED_METRICS:
            raise InvalidEnvironment(
                f"the metric {key!r} of {name} has a reserved name ({', '.join(sorted(RESERVED_METRICS))}): rename it."
            )
        if not is_array(value) or value.shape != ():
            raise InvalidEnvironment(
                f"metrics[{key!r}] of {name} must be an array of shape (), got {describe(value)}: write "
                "jnp.float32(...)."
            )
        check_number_format(f"metrics[{key!r}] of {name}", value.dtype)
