"""Functions over batches of roots and particles, with leading axes [B, N]."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from spo.distributions import Distribution
from spo.search import diagnostics
from spo.search.base import Particles
from spo.types import Action, Array, Bool, Float, Integer, PyTree


def over_particles(function: Callable) -> Callable:
    return jax.vmap(jax.vmap(function))


def equal_pairs(tree: PyTree[Array]) -> Bool[Array, "N N"]:
    """Returns True for each pair of the N entries that are equal in every leaf [N, ...]."""

    def equal(leaf: Array) -> Bool[Array, "N N"]:
        flat = leaf.reshape(leaf.shape[0], -1)
        return jnp.all(flat[:, None, :] == flat[None, :, :], axis=-1)

    return functools.reduce(jnp.logical_and, map(equal, jax.tree.leaves(tree)))


def mean_over_equal(choices: PyTree[Array], values: Float[Array, " N"]) -> Float[Array, " N"]:
    """Returns for each of N entries the mean of the values of all entries with the same choice."""
    same = equal_pairs(choices) | jnp.eye(values.shape[0], dtype=bool)  # a NaN differs from itself
    # A NaN or an infinity of one entry must not reach the others, as it would in a product with 0.
    return jnp.sum(jnp.where(same, values, 0.0), axis=1) / jnp.sum(same, axis=1)


def identity_ancestors(num_roots: int, num_particles: int) -> Integer[Array, "B N"]:
    return jnp.broadcast_to(jnp.arange(num_particles), (num_roots, num_particles))


def count_root_actions(particles: Particles, root_actions: Action, distribution: Distribution) -> Integer[Array, " B"]:
    """Counts distinct root actions: equal actions (discrete) or equal samples (continuous)."""
    count = jax.vmap(diagnostics.count_distinct, in_axes=(0, None))
    num_actions = distribution.num_actions(particles.prior)
    if num_actions is None:
        return count(particles.root_index, particles.root_index.shape[1])
    return count(take(root_actions, particles.root_index), num_actions)


def take(tree: Any, index: Integer[Array, "B *n"]) -> Any:
    """tree[b, index[b]] in every leaf."""
    return jax.tree.map(lambda x: jax.vmap(lambda rows, i: rows[i])(x, index), tree)


def normalise(log_weights: Float[Array, "B N"]) -> Float[Array, "B N"]:
    return jax.nn.softmax(log_weights, axis=1)


def nan_unless(valid: Bool[Array, "..."], values: Float[Array, "..."]) -> Float[Array, "..."]:
    """Marks invalid entries by NaN, so that no later step can turn them into a plausible result."""
    return jnp.where(valid, values, jnp.nan)
