"""Resampling: rules that redraw the N particles of one root in proportion to their weights.

A rule is a function `(key, particles) -> Resampled` of the particles of one root. It returns the index of each
particle's ancestor and the log-weights after the resample. `Resampling` says when a rule is applied.

The schemes `multinomial`, `stratified`, `systematic` and `residual` draw ancestors from weights that sum to 1. All are
unbiased, E[copies of n] = N · weights[n], and so is the estimate of Z. They differ in the variance of the number of
copies. Memory is of order N: there is no N x N table, but a kernel may compare all pairs.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.checks import Fraction, check_value
from spo.search.base import Particles, Resampled, ResampleFn
from spo.search.validation import check_positive_int
from spo.types import Array, Float, Integer, PRNGKey

#: Draws ancestors: (key, weights [N] that sum to 1) -> indices [N], with E[copies of n] = N · weights[n].
Scheme = Callable[[PRNGKey, Float[Array, " N"]], Integer[Array, " N"]]

# Up to these sizes, N x N operations in one fused kernel are faster than few operations in several kernels.
_ALL_PAIRS_UP_TO = 64
_ALL_PAIRS_ON_GPU_UP_TO = 1024


# --- Schemes ----------------------------------------------------------------------------------------------------------
def multinomial(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """N independent draws (the paper's choice)."""
    return _inverse_cdf(weights, jax.random.uniform(key, weights.shape, weights.dtype))


def stratified(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """One independent draw in each of N equal slices of [0, 1)."""
    return _inverse_cdf(weights, _comb(jax.random.uniform(key, weights.shape, weights.dtype)))


def systematic(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """N equally spaced positions with one random offset: particle n gets N·w copies, rounded down or up."""
    offset = jax.random.uniform(key, (), weights.dtype)
    return _inverse_cdf(weights, _comb(jnp.broadcast_to(offset, weights.shape)))


def residual(key: PRNGKey, weights: Float[Array, " N"]) -> Integer[Array, " N"]:
    """floor(N·w) copies of each particle, and independent draws from the remainders for the rest."""
    num_particles = weights.shape[0]
    copies = num_particles * weights
    # A whole number of copies may be rounded down: equal weights of 41 particles are a little less than 1/41.
    certain = jnp.floor(copies * (1.0 + 4.0 * jnp.finfo(copies.dtype).eps))
    remainder = jnp.maximum(copies - certain, 0.0)
    # The first sum(certain) slots hold the certain copies: slot k belongs to the first n whose running count exceeds k.
    slot = jnp.arange(num_particles)
    running_count = _running_sums(certain).astype(slot.dtype)
    # If all N·w are whole numbers, every slot is certain and the draws below are not used.
    drawn = _inverse_cdf(remainder, jax.random.uniform(key, weights.shape, weights.dtype))
    return jnp.where(slot < running_count[-1], _count_not_above(running_count, slot), drawn)


# --- Rules ------------------------------------------------------------------------------------------------------------
def by_weight(scheme: Scheme) -> ResampleFn:
    """Draws ancestors by `scheme` in proportion to the weights; all weights are 1 afterwards."""

    def rule(key: PRNGKey, particles: Particles) -> Resampled:
        ancestors = scheme(key, jax.nn.softmax(particles.log_weights))
        return Resampled(ancestors, jnp.zeros_like(particles.log_weights))

    return rule


def tempered(exponent: float, scheme: Scheme = systematic) -> ResampleFn:
    """Draws ancestors in proportion to weights ** exponent and keeps the rest of the weight.

    An exponent of 1 is `by_weight`. With 0, ancestors are drawn without regard to the weights. The estimate of Z stays
    unbiased for any exponent.
    """
    if not 0.0 <= exponent <= 1.0:
        raise ValueError(f"exponent must lie between 0 and 1, got {exponent}.")

    def log_priorities(particles: Particles) -> Float[Array, " N"]:
        # 0 · -inf is NaN: a particle of weight 0 counts as much as the others if the exponent is 0.
        return exponent * particles.log_weights if exponent > 0.0 else jnp.zeros_like(particles.log_weights)

    return by_priority(log_priorities, scheme)


def by_priority(log_priority_fn: Callable[[Particles], Float[Array, " N"]], scheme: Scheme = systematic) -> ResampleFn:
    """Draws ancestors in proportion to priorities of your own and corrects the weights by weight / priority.

    `log_priority_fn(particles)` returns unnormalised log-priorities [N]. A priority of weight · exp(look-ahead) is
    auxiliary resampling. Particles with positive weight need a positive priority. The estimate of Z stays unbiased.
    """

    def rule(key: PRNGKey, particles: Particles) -> Resampled:
        log_priorities = jax.nn.log_softmax(log_priority_fn(particles))
        ancestors = scheme(key, jnp.exp(log_priorities))
        # Weight relative to the mean weight, over priority relative to the mean priority.
        log_weights = jax.nn.log_softmax(particles.log_weights) - log_priorities
        return Resampled(ancestors, log_weights[ancestors])

    return rule


class Resampling(NamedTuple):
    """When and how particles are resampled."""

    period: int | None  # after every so many steps, except after the last; None: never
    rule: ResampleFn = by_weight(systematic)  # departure 6: the paper's is by_weight(multinomial)
    ess_below: float | None = None  # only roots whose effective sample size is below this fraction of N; None: all
    last: bool = False  # also after the last step, if `period` divides the horizon (the paper's setting)

    def never_within(self, horizon: int) -> bool:
        """Returns True if a search of this horizon never resamples."""
        if self.period is None:
            return True
        return self.period >= horizon and not (self.last and horizon % self.period == 0)

    def check(self) -> None:
        """Raises a ValueError if a field has a value that the search can't use."""
        if self.period is not None:
            check_positive_int("Resampling.period", self.period, hint=" or None to never resample")
        if self.ess_below is not None:
            check_value("Resampling.ess_below", self.ess_below, Fraction)
            if self.period is None:
                raise ValueError("Resampling.ess_below needs a period: 1 looks at the weights after every step.")


def _comb(offsets: Float[Array, " N"]) -> Float[Array, " N"]:
    """(n + offset_n) / N, kept below 1: rounding may lift the last position to 1.0, past the end of every CDF."""
    num_particles = offsets.shape[0]
    below_one = jnp.nextafter(jnp.ones((), offsets.dtype), jnp.zeros((), offsets.dtype))
    return jnp.minimum((jnp.arange(num_particles) + offsets) / num_particles, below_one)


def _inverse_cdf(weights: Float[Array, " N"], positions: Float[Array, " N"]) -> Integer[Array, " N"]:
    """Returns for each position u in [0, 1) the first n with cdf(n) > u. A particle of weight 0 is never chosen."""
    cdf = _running_sums(weights)
    ancestors = _count_not_above(cdf, positions * cdf[-1])
    # Only NaN weights get past the end. The search marks such a root as invalid; the index must stay in range.
    return jnp.minimum(ancestors, weights.shape[0] - 1)


def _running_sums(weights: Float[Array, " N"]) -> Float[Array, " N"]:
    """Returns Σ_{m<=n} weights[m] for each n. They never fall with n, nor do they rise where the weight is 0."""

    def all_pairs(weights: Float[Array, " N"]) -> Float[Array, " N"]:
        # Every sum adds N terms in the same order, so that no sum falls by a rounding error.
        return jnp.sum(jnp.where(jnp.tri(weights.shape[0], dtype=bool), weights[None, :], 0.0), axis=1)

    def parallel(weights: Float[Array, " N"]) -> Float[Array, " N"]:
        # A parallel cumulative sum may rise by a rounding error where the weight is 0; cummax removes that.
        return jax.lax.cummax(jnp.where(weights > 0, jnp.cumsum(weights), 0.0))

    return _by_size(all_pairs, parallel, weights)


def _count_not_above(sorted_values: Array, queries: Array) -> Integer[Array, " N"]:
    """Returns how many of the sorted values are <= each query."""

    def all_pairs(sorted_values: Array, queries: Array) -> Integer[Array, " N"]:
        return jnp.sum(sorted_values[None, :] <= queries[:, None], axis=1, dtype=jnp.int32)

    def bisection(sorted_values: Array, queries: Array) -> Integer[Array, " N"]:
        return jnp.searchsorted(sorted_values, queries, side="right", method="scan_unrolled")

    return _by_size(all_pairs, bisection, sorted_values, queries)


def _by_size(all_pairs: Callable[..., Array], otherwise: Callable[..., Array], *arrays: Array) -> Array:
    """Calls `all_pairs`, one kernel of N x N operations, where that is faster than `otherwise`."""
    size = arrays[0].shape[0]
    if size <= _ALL_PAIRS_UP_TO:
        return all_pairs(*arrays)
    if size <= _ALL_PAIRS_ON_GPU_UP_TO:
        return jax.lax.platform_dependent(*arrays, cuda=all_pairs, default=otherwise)
    return otherwise(*arrays)
