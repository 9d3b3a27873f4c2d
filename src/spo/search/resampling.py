"""Which particles live on: schemes that draw N ancestors from N weights, for one root.

All of them are unbiased, E[copies of n] = N · weights[n], which is what keeps the estimate of Z unbiased; they
differ in how much the number of copies varies around that. Memory is of order N: there is no N x N table.
"""

import jax
import jax.numpy as jnp

from spo.types import Array, Float, Integer, PRNGKey

# Up to this size comparing everything with everything is one fused kernel and faster than a binary search.
_COMPARE_ALL_UP_TO = 64


def multinomial(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """N independent draws (the paper's choice)."""
    return _inverse_cdf(weights, jax.random.uniform(key, weights.shape, weights.dtype))


def stratified(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """One independent draw in each of N equal slices of [0, 1)."""
    return _inverse_cdf(weights, _comb(jax.random.uniform(key, weights.shape, weights.dtype)))


def systematic(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """One draw shifts a comb of N equally spaced teeth: copies of n are N·w rounded down or up."""
    offset = jax.random.uniform(key, (), weights.dtype)
    return _inverse_cdf(weights, _comb(jnp.broadcast_to(offset, weights.shape)))


def residual(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """floor(N·w) copies for certain, the rest drawn from what the rounding left over."""
    num_particles = weights.shape[0]
    certain = jnp.floor(num_particles * weights)
    remainder = num_particles * weights - certain
    # The first sum(certain) slots hold the certain copies: slot k goes to the first n whose running count exceeds k.
    slot = jnp.arange(num_particles)
    running_count = jnp.cumsum(certain).astype(slot.dtype)
    # With nothing left over (all N·w whole) every slot is certain and the draws below are never looked at.
    drawn = _inverse_cdf(remainder, jax.random.uniform(key, weights.shape, weights.dtype))
    return jnp.where(slot < running_count[-1], _count_not_above(running_count, slot), drawn)


def _comb(offsets: Float[Array, " N"]) -> Float[Array, " N"]:
    """(n + offset_n) / N, kept below 1: rounding may lift the last tooth to 1.0, past the end of every CDF."""
    num_particles = offsets.shape[0]
    below_one = jnp.nextafter(jnp.ones((), offsets.dtype), jnp.zeros((), offsets.dtype))
    return jnp.minimum((jnp.arange(num_particles) + offsets) / num_particles, below_one)


def _inverse_cdf(weights: Float[Array, " N"], positions: Float[Array, " N"]) -> Integer[Array, " N"]:
    """For each position u in [0, 1) the first n with cdf(n) > u. A particle of weight 0 is never chosen."""
    # A parallel cumulative sum may rise by a rounding error where the weight is 0; cummax takes that out.
    cdf = jax.lax.cummax(jnp.where(weights > 0, jnp.cumsum(weights), 0.0))
    ancestors = _count_not_above(cdf, positions * cdf[-1])
    # Only NaN weights get past the end. The caller marks such a root invalid; here it must just stay inside the array.
    return jnp.minimum(ancestors, weights.shape[0] - 1)


def _count_not_above(sorted_values: Array, queries: Array) -> Integer[Array, " N"]:
    """How many of the sorted values are <= each query."""
    method = "compare_all" if sorted_values.shape[0] <= _COMPARE_ALL_UP_TO else "scan_unrolled"
    return jnp.searchsorted(sorted_values, queries, side="right", method=method)
