"""Statistics of a set of weighted particles, for one root."""

from typing import NamedTuple

import jax.numpy as jnp

from spo.types import Array, Float, Integer

# Up to this number of labels, comparing all pairs is one fused kernel and faster than a scatter on a GPU.
_COMPARE_ALL_UP_TO = 64


class WeightSummary(NamedTuple):
    """Statistics of unnormalised log-weights."""

    ess: Float[Array, ""]  # effective sample size 1 / Σ w̄²: N for equal weights, 1 when one particle has all the weight
    entropy: Float[Array, ""]  # −Σ w̄ log w̄ in nats
    log_mean: Float[Array, ""]  # log (1/N) Σ w, the factor of the normaliser since the last resample


def summarise_weights(log_weights: Float[Array, " N"]) -> WeightSummary:
    """Computes all three from the sums Σ w, Σ w² and Σ w log w: stacked, they are one kernel of a GPU."""
    largest = jnp.max(log_weights)
    log_ratios = log_weights - largest
    ratios = jnp.exp(log_ratios)
    terms = (ratios, ratios**2, ratios * jnp.where(ratios == 0, 0.0, log_ratios))
    total, total_of_squares, total_of_logs = jnp.sum(jnp.stack(terms), axis=1)
    return WeightSummary(
        ess=total**2 / total_of_squares,
        entropy=jnp.log(total) - total_of_logs / total,
        log_mean=largest + jnp.log(total / log_weights.shape[0]),
    )


def count_distinct(labels: Integer[Array, " N"], num_labels: int) -> Integer[Array, ""]:
    """Counts the different labels 0 .. num_labels - 1."""
    if num_labels <= _COMPARE_ALL_UP_TO:
        return jnp.sum(jnp.any(labels[:, None] == jnp.arange(num_labels)[None, :], axis=0))
    return jnp.sum(jnp.zeros(num_labels, bool).at[labels].set(True))


def sum_by_action(actions: Integer[Array, " N"], weights: Float[Array, " N"], num_actions: int) -> Float[Array, " A"]:
    """Weights summed per discrete action; exactly 0 for an action that no particle took.

    Compare-and-sum rather than scatter-add: on a GPU the order of atomic additions, and so the last bit, is not fixed.
    """
    return jnp.sum(jnp.where(actions[:, None] == jnp.arange(num_actions)[None, :], weights[:, None], 0.0), axis=0)
