"""Words for values, types and differences in the errors of a check."""

from typing import Any

import jax

from spo.environments.checking.tracing import canonical
from spo.environments.outputs import describe, is_array
from spo.types import Environment, PyTree

#: Names of parts that a sentence lists of a container.
MOST_PARTS = 6


def named_leaves(root: str, tree: PyTree) -> dict[str, Any]:
    """Returns the leaves of a pytree by their paths, such as `observation['image']`."""
    return {f"{root}{jax.tree_util.keystr(path)}": leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def find_difference(
    root: str, expected: PyTree, found: PyTree, names: tuple[str, str] = ("reset", "step")
) -> str | None:
    """Returns the first difference between two pytrees in structure, shape or dtype, as words."""
    first, second = named_leaves(root, expected), named_leaves(root, found)
    for path in [*first, *second]:
        if path not in first or path not in second:
            summaries = [f"{_summarise(tree)} in {name}" for name, tree in zip(names, (expected, found), strict=True)]
            return f"{path} is only in {names[path in second]} ({', '.join(summaries)})"
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


def _summarise(tree: Any) -> str:
    """Returns the outermost container of a pytree with its parts, such as "a dict with a, b"."""
    if is_array(tree):
        return f"one {describe(tree)} array"
    if isinstance(tree, dict):
        parts = list(map(str, tree))
    elif hasattr(tree, "_fields"):
        parts = list(tree._fields)
    elif isinstance(tree, tuple | list):
        parts = list(map(describe, tree))
    else:
        return describe(tree)
    shown = parts if len(parts) <= MOST_PARTS else [*parts[:MOST_PARTS], "..."]
    return f"{describe(tree)} with {', '.join(shown) or 'nothing'}"
