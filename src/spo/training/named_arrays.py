"""Trees of arrays as flat dictionaries from names to arrays, as files store them.

A name is the path of the leaf in the tree. It does not depend on the classes of optimisers and networks, which a
reader may not have. Random keys are stored as their raw numbers. Arrays without elements are left out: Orbax refuses
them, some simulators have them, and they hold no information.
"""

from typing import Any

import jax
import jax.numpy as jnp

from spo.training import processes


def flatten(tree: Any) -> dict[str, Any]:
    """Returns name -> array."""
    raw = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)
    return {name: leaf for name, leaf in _leaves_by_name(raw).items() if leaf.size > 0}


def flatten_abstract(abstract: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns name -> shape, type and sharding of the array that `flatten` returns for a tree like `abstract`."""
    shardings = {name: leaf.sharding for name, leaf in _leaves_by_name(abstract).items()}
    return {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=shardings[name])
        for name, leaf in jax.eval_shape(flatten, abstract).items()
    }


def unflatten(abstract: Any, arrays: dict[str, Any]) -> Any:
    """Returns the tree of `flatten`, with the structure of `abstract`."""

    def leaf(name: str, like: jax.ShapeDtypeStruct) -> Any:
        if _is_key(like):
            return processes.place_keys(arrays[name], like.sharding)
        return arrays[name] if like.size > 0 else jnp.zeros(like.shape, like.dtype, device=like.sharding)

    leaves = [leaf(name, like) for name, like in _leaves_by_name(abstract).items()]
    return jax.tree.unflatten(jax.tree.structure(abstract), leaves)


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _leaves_by_name(tree: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
