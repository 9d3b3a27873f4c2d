"""Networks as single vectors: optimisers, norms and averages then take few large operations instead of many small ones.

A network is a (nested) dictionary of arrays, as flax stores it. Packing replaces each network inside a pytree by one
vector of its numbers: in parameters, in their moving averages and in the moments of an optimiser. Everything else stays
as it is. Checkpoints and exports contain networks, never vectors. Networks are packed on a GPU only. A CPU would gain
nothing and pay for the copies.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from spo.types import Array, PyTree


def uses_vectors() -> bool:
    """Returns True if updates hold networks as vectors."""
    return jax.default_backend() == "gpu"


def pack(tree: PyTree) -> PyTree:
    """Returns the tree with each network as one vector, leaves in the order of `jax.tree.leaves`, matrices by columns.

    The gradient of a matrix is computed transposed. By columns, it goes into the vector as it is. On a CPU the
    tree itself is returned.
    """
    if not uses_vectors():
        return tree

    def to_vector(node: Any) -> Any:
        if not _is_network(node):
            return node
        return jnp.concatenate([jnp.ravel(_transpose(leaf)) for leaf in jax.tree.leaves(node)])

    return jax.tree.map(to_vector, tree, is_leaf=_is_network)


def unpack(packed: PyTree, like: PyTree) -> PyTree:
    """Returns the tree of networks whose vectors `packed` holds: the inverse of `pack`. `like` gives their shapes."""

    def to_network(template: Any, node: Any) -> Any:
        is_vector = _is_network(template) and not isinstance(node, dict)
        return _split(node, template) if is_vector else node

    return jax.tree.map(to_network, like, packed, is_leaf=_is_network)


def in_one_array(tree: PyTree[Array]) -> PyTree[Array]:
    """Returns the same tree, whose numbers a GPU writes to one array before anything reads them.

    Norms and moments are computed from that array. Without the barrier, each has its own copy.
    """
    if not uses_vectors():
        return tree
    vector, unravel = ravel_pytree(tree)
    return unravel(jax.lax.optimization_barrier(vector))


def move_average(average: PyTree[Array], params: PyTree[Array], rate: float) -> PyTree[Array]:
    """(1 − rate) · average + rate · params, the moving average of target networks."""
    moved = jax.tree.map(lambda old, new: (1.0 - rate) * old + rate * new, pack(average), pack(params))
    return unpack(moved, like=average)


def _is_network(node: Any) -> bool:
    """True for dictionaries of at least two float arrays of one data type, at any depth of dictionaries."""
    if not isinstance(node, dict) or not _has_only_arrays(node):
        return False
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(node)]
    return len(dtypes) > 1 and len(set(dtypes)) == 1 and jnp.issubdtype(dtypes[0], jnp.floating)


def _has_only_arrays(node: Any) -> bool:
    return all(_has_only_arrays(child) for child in node.values()) if isinstance(node, dict) else hasattr(node, "dtype")


def _split(vector: Array, template: PyTree) -> PyTree:
    leaves, structure = jax.tree.flatten(template)
    parts, start = [], 0
    for leaf in leaves:
        size, shape = math.prod(leaf.shape), jax.eval_shape(_transpose, leaf).shape
        parts.append(_transpose(vector[start : start + size].reshape(shape)))
        start += size
    return jax.tree.unflatten(structure, parts)


def _transpose(leaf: Array) -> Array:
    """Swaps rows and columns of a matrix or of a stack of matrices; returns other arrays unchanged."""
    return jnp.swapaxes(leaf, -1, -2) if leaf.ndim in (2, 3) else leaf
