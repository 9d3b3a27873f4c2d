"""Outputs of `reset` and `step`: the pair (state, time step), and the sentence about anything else."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spo.types import State, TimeStep


class InvalidOutput(ValueError):
    """A function of an environment returned no pair (state, time step)."""


def unpack_output(name: str, function: Callable[..., Any], output: Any) -> tuple[State, TimeStep]:
    """Returns state and time step. Raises `InvalidOutput` with one sentence if the output is not this pair.

    Args:
      name: "reset" or "step".
      function: the function that returned the output; its line is named.
      output: the result of the function.
    """
    if isinstance(output, tuple | list) and len(output) == 2 and isinstance(output[1], TimeStep):
        return output[0], output[1]
    raise InvalidOutput(
        f"{name} must return (state, timestep) with a spo.types.TimeStep, got {describe_output(output)}: end it "
        f"with `return state, TimeStep(...)`{_place_of_function(function)}."
    )


def _place_of_function(function: Any) -> str:
    """Returns file and first line of a user's function, as " (in FILE, line N)", or nothing."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    module = str(getattr(function, "__module__", ""))
    if code is None or module.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    return f" (in {Path(code.co_filename).name}, line {code.co_firstlineno})"


def is_array(leaf: Any) -> bool:
    """Returns True for arrays and NumPy scalars, False for Python numbers and other objects."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def describe(value: Any) -> str:
    """Returns the type of a value, such as `float32[4]` or `a Python int`."""
    if is_array(value):
        return f"{value.dtype}{list(value.shape)}"
    return f"a Python {type(value).__name__}" if isinstance(value, bool | int | float) else f"a {type(value).__name__}"


def describe_output(output: Any) -> str:
    """Returns the type of what a function returned, with the types of the parts of a tuple."""
    if type(output) is tuple:
        return f"a tuple of {len(output)}: ({', '.join(map(describe, output))})"
    return describe(output)


__all__ = ["InvalidOutput", "describe", "describe_output", "is_array", "unpack_output"]
