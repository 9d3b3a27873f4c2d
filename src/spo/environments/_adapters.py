"""What the adapters share: finding the other library, checking options, holding its arrays to one layout."""

import functools
import importlib
from collections.abc import Callable, Collection, Iterable
from types import ModuleType
from typing import Any

import jax

from spo.types import PyTree


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which extra of this package brings it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the library is there and misses something itself: its own sentence says what
        raise ModuleNotFoundError(
            f'The package {package} is not installed: pip install "spo-jax[{extra}]" brings it.', name=package
        ) from error


def check_options(owner: str, given: Collection[str], allowed: Iterable[str]) -> None:
    allowed = sorted(allowed)
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
        raise ValueError(f"{owner} has no option {', '.join(map(repr, unknown))}: {takes}.")


def on_its_own_terms(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of another library, with rank promotion allowed even where the rest of the program forbids it.

    It is traced once per kind of arguments, not in every place where a world steps or starts: with physics each time
    takes seconds. `inline` leaves the compiled program as it would be without.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return function(*arguments)

    return jax.jit(wrapped, inline=True)


def specs_of(tree: PyTree[Any]) -> PyTree[jax.ShapeDtypeStruct]:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def hold_to(specs: PyTree[jax.ShapeDtypeStruct], tree: PyTree[Any]) -> PyTree[jax.Array]:
    """`tree` with the dtypes of `specs`, none of them weak.

    Other libraries now and then return a Python number, or a weakly typed one, where `reset` returned an array; a scan
    refuses a carry whose type changes.
    """
    return jax.tree.map(lambda spec, leaf: jax.lax.convert_element_type(leaf, spec.dtype), specs, tree)
