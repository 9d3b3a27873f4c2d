"""PPO's policy loss. The algorithm adds the entropy bonus."""

import jax
import jax.numpy as jnp

from spo.types import Array, Float

# Largest logarithm of a ratio. At e^20 two policies have nothing in common; far beyond, exp overflows.
_MAX_LOG_RATIO = 20.0


def clipped_surrogate_loss(
    log_prob: Float[Array, ""], old_log_prob: Float[Array, ""], advantage: Float[Array, ""], clip_epsilon: float
) -> Float[Array, ""]:
    """−min(ρA, clip(ρ, 1 − ε, 1 + ε)A), ρ = π(a|s)/π_old(a|s) (arXiv:1707.06347, equation 7)."""
    advantage = jax.lax.stop_gradient(advantage)
    ratio = jnp.exp(jnp.minimum(log_prob - jax.lax.stop_gradient(old_log_prob), _MAX_LOG_RATIO))
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon) * advantage)


def standardise(advantages: Float[Array, " B"]) -> Float[Array, " B"]:
    """(A − mean)/(std + 1e-8) over a batch."""
    return (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)
