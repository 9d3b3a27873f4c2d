"""Functions of pytrees."""

import jax
import jax.numpy as jnp

from spo.types import Array, Bool, PyTree


def select(mask: Bool[Array, "*batch"], if_true: PyTree[Array], if_false: PyTree[Array]) -> PyTree[Array]:
    """Selects between two trees, entry by entry. `mask` has the leading axes of every leaf."""

    def select_leaf(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(select_leaf, if_true, if_false)
