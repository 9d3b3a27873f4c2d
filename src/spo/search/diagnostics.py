"""Numbers about a set of weighted particles, for one root."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.search.base import Ancestry
from spo.types import Array, Float, Integer


class WeightSummary(NamedTuple):
    """What one pass over unnormalised log-weights tells."""

    ess: Float[Array, ""]  # effective sample size 1 / Σ w̄²: N for equal weights, 1 when one particle has it all
    entropy: Float[Array, ""]  # −Σ w̄ log w̄ in nats
    log_mean: Float[Array, ""]  # log (1/N) Σ w, this stretch's factor of the normaliser


def summarise_weights(log_weights: Float[Array, " N"]) -> WeightSummary:
    """All three from the sums Σ w, Σ w² and Σ w log w, which one kernel computes together."""
    largest = jnp.max(log_weights)
    log_ratios = log_weights - largest
    ratios = jnp.exp(log_ratios)
    total = jnp.sum(ratios)
    total_of_squares = jnp.sum(ratios**2)
    total_of_logs = jnp.sum(ratios * jnp.where(ratios == 0, 0.0, log_ratios))
    return WeightSummary(
        ess=total**2 / total_of_squares,
        entropy=jnp.log(total) - total_of_logs / total,
        log_mean=largest + jnp.log(total / log_weights.shape[0]),
    )


def count_distinct(labels: Integer[Array, " N"], num_labels: int) -> Integer[Array, ""]:
    """How many different labels 0 .. num_labels - 1 there are."""
    return jnp.sum(jnp.zeros(num_labels, bool).at[labels].set(True))


def sum_by_action(actions: Integer[Array, " N"], weights: Float[Array, " N"], num_actions: int) -> Float[Array, " A"]:
    """Weights summed per discrete action; exactly 0 for an action that no particle took.

    Compare-and-sum rather than scatter-add: on a GPU the order of atomic additions, and so the last bit, is not fixed.
    """
    return jnp.sum(jnp.where(actions[:, None] == jnp.arange(num_actions)[None, :], weights[:, None], 0.0), axis=0)


def action_weights_by_depth(ancestry: Ancestry, num_actions: int) -> Float[Array, "B H A"]:
    """The estimate of q at the root as it stood after every depth, before any resample there.

    A root action that a late resample erased is still there at the depths above. The mean over depths is a read-out
    that forgets none of them; what it gives away is that shallow estimates have seen less.
    """

    def of_root(parent: Integer[Array, "H N"], first_action: Array, log_weights: Float[Array, "H N"]) -> Array:
        def descend(actions: Array, depth: tuple[Array, Array]) -> tuple[Array, Array]:
            parents, log_weights = depth
            actions = actions[parents]
            return actions, sum_by_action(actions, jax.nn.softmax(log_weights), num_actions)

        # At depth 0 a particle's "parent" is its root sample, which is the particle itself.
        return jax.lax.scan(descend, first_action, (parent, log_weights))[1]

    return jax.vmap(of_root)(ancestry.parent, ancestry.action[:, 0], ancestry.log_weights)
