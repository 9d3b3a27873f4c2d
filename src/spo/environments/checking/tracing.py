"""Traces of an environment's functions: their outputs, their purity, and errors as one sentence."""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from spo.environments.outputs import InvalidOutput, is_array
from spo.quoting import place_of, quote
from spo.types import PyTree

#: Errors of code that needs the value of a traced array.
_NO_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class InvalidEnvironment(ValueError):
    """An environment breaks the contract of `spo.types.Environment`. The text names the field and the remedy."""


class Trace(NamedTuple):
    """A function as JAX sees it."""

    #: the traced program
    program: ClosedJaxpr
    #: arrays as `jax.ShapeDtypeStruct`, with the dtype that the function gave them; other leaves as they are
    output: Any


def canonical(leaf: Any) -> jax.ShapeDtypeStruct:
    """Returns shape and dtype of an array or Python number inside JAX, where NumPy's int64 is int32."""
    return jax.eval_shape(lambda: leaf) if not is_array(leaf) else _canonical_array(leaf)


def _canonical_array(leaf: Any) -> jax.ShapeDtypeStruct:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


def trace(name: str, function: Callable[..., Any], *arguments: PyTree) -> Trace:
    """Traces `function`. Raises `InvalidEnvironment` if it raises, can't be traced or stores a traced array."""
    is_jitted = hasattr(function, "__wrapped__") and hasattr(function, "lower")
    untraced = inspect.unwrap(function) if is_jitted else function  # `jax.jit` would reuse an older trace
    outputs = []

    def record(*arguments: PyTree) -> list[Any]:
        output = untraced(*arguments)
        outputs.append(jax.tree.map(_type_of, output))
        return [leaf for leaf in jax.tree.leaves(output) if is_array(leaf)]

    with quote_errors(name):
        try:
            with jax.checking_leaks():
                program = jax.make_jaxpr(record)(*arguments)
        except Exception:
            if not outputs:
                raise
            # The function returned, and the search for traced arrays that are still alive failed.
            raise InvalidEnvironment(_leak_sentence(name, "")) from None
        return Trace(program, outputs[-1])


def _type_of(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_array(leaf) else leaf


def same_program(first: Trace, second: Trace) -> bool:
    """Returns True if two traces have the same operations and constants."""
    constants = zip(first.program.consts, second.program.consts, strict=False)
    return _text(first.program) == _text(second.program) and all(_same_array(a, b) for a, b in constants)


def close_arrays(first: PyTree, second: PyTree) -> bool:
    """Returns True if two pytrees of one structure have the same numbers, NaN included.

    Floats may differ a little: on a GPU, sums of one program can have another order in every call.
    """

    def close(a: Any, b: Any) -> bool:
        if not jax.dtypes.issubdtype(a.dtype, np.floating):
            return _same_array(a, b)
        return np.allclose(np.float64(a), np.float64(b), rtol=1e-3, atol=1e-5, equal_nan=True)

    return all(map(close, jax.tree.leaves(first), jax.tree.leaves(second)))


def _text(program: ClosedJaxpr) -> str:
    """Returns the program without the addresses of Python objects."""
    return re.sub(r"0x[0-9a-f]+", "", str(program))


def _same_array(first: Any, second: Any) -> bool:
    if jax.dtypes.issubdtype(getattr(first, "dtype", np.dtype(float)), jax.dtypes.prng_key):
        first, second = jax.random.key_data(first), jax.random.key_data(second)
    first, second = np.asarray(first), np.asarray(second)
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


# --- Random numbers --------------------------------------------------------------------------------------------------


def draws_from_constant_key(program: ClosedJaxpr) -> bool:
    """Returns True if random numbers are drawn with a key that does not depend on any argument."""
    return _draws_from_constant_key(program.jaxpr, [True] * len(program.jaxpr.invars))[0]


def _draws_from_constant_key(jaxpr: Any, depends: Sequence[bool]) -> tuple[bool, list[bool]]:
    """Returns the answer for a program whose arguments depend on those of the whole, and which outputs do."""
    dependent = {variable for variable, does in zip(jaxpr.invars, depends, strict=True) if does}
    for equation in jaxpr.eqns:
        inputs = [not hasattr(variable, "val") and variable in dependent for variable in equation.invars]
        if equation.primitive.name == "random_bits" and not inputs[0]:
            return True, []
        outputs = [any(inputs)] * len(equation.outvars)
        inner = equation.params.get("jaxpr")
        inner = getattr(inner, "jaxpr", inner)
        # Loops feed outputs back: their bodies are entered only as a whole, with the same answer for every argument.
        if inner is not None and len(inner.invars) == len(inputs):
            inputs = inputs if equation.primitive.name in ("jit", "pjit") else [any(inputs)] * len(inputs)
            found, inner_outputs = _draws_from_constant_key(inner, inputs)
            if found:
                return True, []
            outputs = inner_outputs if equation.primitive.name in ("jit", "pjit") else outputs
        dependent.update(variable for variable, does in zip(equation.outvars, outputs, strict=True) if does)
    return False, [not hasattr(variable, "val") and variable in dependent for variable in jaxpr.outvars]


# --- Errors ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def quote_errors(name: str) -> Iterator[None]:
    """Turns errors of the environment's function `name` into `InvalidEnvironment`, with their place and first line."""
    try:
        yield
    except InvalidEnvironment:
        raise
    except InvalidOutput as error:
        raise InvalidEnvironment(str(error)) from None
    except Exception as error:
        raise InvalidEnvironment(_sentence(name, error)) from None


def _sentence(name: str, error: Exception) -> str:
    place = place_of(error)
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return _leak_sentence(name, place)
    if isinstance(error, _NO_VALUE):
        return (
            f"{name} can't be traced by JAX{place}: it uses the value of an array in Python, where none exists yet. "
            "Replace `if` by jnp.where or jax.lax.cond, loops by jax.lax.scan, and numpy by jax.numpy."
        )
    remedy = "Mend this line of the environment" if place else f"Mend {name}"
    return f"{name} raised {quote(error)}. {remedy}."


def _leak_sentence(name: str, place: str) -> str:
    return (
        f"{name} has side effects{place}: it stores an array outside of itself. Return everything that a later call "
        "needs in the state, and write to no global, attribute or list."
    )
