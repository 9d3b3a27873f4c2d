"""Helpers of the adapters to other libraries: imports, options, and arrays of one layout."""

import functools
import importlib
from collections.abc import Callable, Collection, Iterable
from types import ModuleType
from typing import Any

import jax

from spo.installation import install_hint
from spo.types import PyTree


def require(module: str, extra: str) -> ModuleType:
    """Imports `module`. The error names the extra of this package that installs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the library is installed and lacks a dependency of its own
        raise ModuleNotFoundError(
            f"The package {package} is not installed: {install_hint(extra)}.", name=package
        ) from error


def check_options(owner: str, given: Collection[str], allowed: Iterable[str]) -> None:
    """Raises ValueError with the allowed options if `given` has another one."""
    allowed = sorted(allowed)
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
        raise ValueError(f"{owner} has no option {', '.join(map(repr, unknown))}: {takes}.")


def jit_foreign(function: Callable[..., Any]) -> Callable[..., Any]:
    """Traces a function of another library once for each kind of arguments, with rank promotion allowed.

    This package runs with rank promotion forbidden in its tests. Tracing once saves seconds with physics, because an
    environment is stepped in several places of a program. `inline` leaves the compiled program unchanged.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return function(*arguments)

    return jax.jit(wrapped, inline=True)


def specs_of(tree: PyTree[Any]) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes and dtypes of a pytree of arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def cast_like(specs: PyTree[jax.ShapeDtypeStruct], tree: PyTree[Any]) -> PyTree[jax.Array]:
    """Casts the leaves of `tree` to the dtypes of `specs`, without weak types.

    Some libraries return a Python number or a weakly typed array from `step` where `reset` returned an array. A scan
    refuses a carry whose type changes.
    """
    return jax.tree.map(lambda spec, leaf: jax.lax.convert_element_type(leaf, spec.dtype), specs, tree)
