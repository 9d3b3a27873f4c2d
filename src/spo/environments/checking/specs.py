"""Checks of the fields of an environment: functions, names, `action_spec` and `observation_spec`."""

import math
from numbers import Real
from typing import Any

import jax
import numpy as np

from spo.checks import shorten
from spo.environments.checking.tracing import InvalidEnvironment, canonical
from spo.environments.checking.words import named_leaves
from spo.environments.outputs import describe, is_array
from spo.types import ContinuousActions, DiscreteActions, Environment, Starts


def check_specs(environment: Environment) -> None:
    """Checks the fields of an environment without calling its functions."""
    for name in ("reset", "step"):
        if not callable(getattr(environment, name)):
            raise InvalidEnvironment(
                f"{name} must be a function, got {describe(getattr(environment, name))}: pass the function itself."
            )
    if not isinstance(environment.name, str):
        raise InvalidEnvironment(f"name must be text, got {describe(environment.name)}: leave it out or name it.")
    if not isinstance(environment.hidden, str):
        raise InvalidEnvironment(
            f'hidden must be text, such as "the mines", got {describe(environment.hidden)}: leave it out or name it.'
        )
    if environment.render is not None and not callable(environment.render):
        raise InvalidEnvironment(
            f"render must be a function from a state to an image, got {describe(environment.render)}: leave it out."
        )
    _check_action_spec(environment.action_spec)
    _check_action_names(environment.action_names, environment.action_spec)
    _check_starts(environment.starts)
    leaves = named_leaves("observation_spec", environment.observation_spec)
    if not leaves:
        raise InvalidEnvironment(
            "observation_spec is empty: give a jax.ShapeDtypeStruct for every array of the observation."
        )
    for path, leaf in leaves.items():
        if not is_array(leaf):
            raise InvalidEnvironment(
                f"{path} must be a jax.ShapeDtypeStruct, got {describe(leaf)}: write for example "
                "jax.ShapeDtypeStruct((4,), jnp.float32)."
            )
        if 0 in leaf.shape:
            raise InvalidEnvironment(f"{path} is {describe(leaf)}, an array without a number: leave it out or fill it.")
        check_number_format(path, leaf.dtype)
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
        _check_bounds(spec)
    else:
        raise InvalidEnvironment(
            f"action_spec must be DiscreteActions or ContinuousActions of spo.types, got {describe(spec)}: write for "
            "example DiscreteActions(4) or ContinuousActions(2)."
        )


def _check_bounds(spec: ContinuousActions) -> None:
    size, given = spec.size, (spec.low, spec.high)
    for name, bound in zip(("low", "high"), given, strict=True):
        if isinstance(bound, tuple) and len(bound) != size:
            raise InvalidEnvironment(
                f"action_spec.{name} has {len(bound)} numbers for {size} dimensions, got {shorten(bound)}: give one "
                "number, or one for each dimension."
            )
    numbers = [number for bound in given for number in (bound if isinstance(bound, tuple) else (bound,))]
    valid = all(isinstance(number, Real) and math.isfinite(number) for number in numbers)
    wrong = (
        [f" in dimension {index}" for index, (low, high) in enumerate(spec.bounds) if not low < high] if valid else []
    )
    if not valid or wrong:
        place = wrong[0] if wrong and any(isinstance(bound, tuple) for bound in given) else ""
        raise InvalidEnvironment(
            f"action_spec.low and action_spec.high must be finite numbers with low < high{place}, got "
            f"{shorten(spec.low)} and {shorten(spec.high)}: give one number for all dimensions, such as "
            "ContinuousActions(2, -1.0, 1.0), or one for each, such as ContinuousActions(2, -1.0, (1.0, 0.5))."
        )


def _check_action_names(names: Any, spec: DiscreteActions | ContinuousActions) -> None:
    are_texts = isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)
    expected = (0, spec.num_actions) if isinstance(spec, DiscreteActions) else (0,)
    if not are_texts or len(names) not in expected:
        raise InvalidEnvironment(
            f"action_names must be a tuple with one text for each discrete action of action_spec, got "
            f"{shorten(names)}: correct it or leave it out."
        )


def _check_starts(starts: Any) -> None:
    if starts is None:
        return
    if not isinstance(starts, Starts) or not callable(starts.reset):
        raise InvalidEnvironment(
            f"starts must be a spo.types.Starts with a function as its reset, got {shorten(starts)}: leave it out."
        )
    bounds = (starts.low, starts.high)
    if not all(isinstance(bound, int | np.integer) for bound in bounds) or starts.low > starts.high:
        raise InvalidEnvironment(
            f"starts.low and starts.high must be whole numbers with low <= high, got {starts.low!r} and "
            f"{starts.high!r}: correct them or leave starts out."
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def check_number_format(path: str, dtype: Any) -> None:
    """Checks that numbers are whole numbers, truth values or float32."""
    number = jax.dtypes.issubdtype(dtype, np.number) or dtype == np.bool_
    is_float = jax.dtypes.issubdtype(dtype, np.floating)
    if not number or jax.dtypes.issubdtype(dtype, np.complexfloating) or (is_float and dtype != np.float32):
        raise InvalidEnvironment(f"{path} is {dtype}: use float32, for example with .astype(jnp.float32).")
