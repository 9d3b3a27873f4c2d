"""Words for values, types and differences in the errors of a check."""

from typing import Any

import jax

from spo.environments.checking.tracing import canonical, is_array
from spo.types import Environment, PyTree


def named_leaves(root: str, tree: PyTree) -> dict[str, Any]:
    """Returns the leaves of a pytree by their paths, such as `observation['image']`."""
    return {f"{root}{jax.tree_util.keystr(path)}": leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def find_difference(
    root: str, expected: PyTree, found: PyTree, names: tuple[str, str] = ("reset", "step")
) -> str | None:
    """Returns the first difference between two pytrees in structure, shape or dtype, as words."""
    first, second = named_leaves(root, expected), named_leaves(root, found)
    for path in [*first, *second]:
        if path not in second:
            return f"{path} is only in {names[0]}"
        if path not in first:
            return f"{path} is only in {names[1]}"
        types = [canonical(tree[path]) for tree in (first, second)]
        if types[0].shape != types[1].shape or types[0].dtype != types[1].dtype:
            return f"{path} is {describe(types[0])} in {names[0]} and {describe(types[1])} in {names[1]}"
    structures: list[Any] = [jax.tree.structure(tree) for tree in (expected, found)]
    if structures[0] != structures[1]:
        return f"{root} has other containers in {names[0]} than in {names[1]}, such as a list and a tuple, or None"
    return None


def title(environment: Environment) -> str:
    """Returns the beginning of a sentence about an environment: its name, if it has one."""
    named = isinstance(environment.name, str) and environment.name
    return f"Environment {environment.name!r}" if named else "Environment"


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
