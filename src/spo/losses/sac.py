"""Losses of SAC's actor and entropy temperature. Its critics use `squared_error` on a soft `returns.td_target`."""

import jax

from spo.types import Array, Float


def soft_policy_loss(
    log_prob: Float[Array, ""], q_value: Float[Array, ""], entropy_temperature: Float[Array, ""]
) -> Float[Array, ""]:
    """sg[τ] log π(a|s) − Q(s, a) at one reparameterised sample a (Haarnoja et al., arXiv:1812.05905, equation 9).

    The gradient reaches the policy through `log_prob` and, through the action, by `q_value`. With twin critics, this is
    the smaller of the two. The caller stops the gradients of the critics' parameters.
    """
    return jax.lax.stop_gradient(entropy_temperature) * log_prob - q_value


def entropy_temperature_loss(
    entropy_temperature: Float[Array, ""], log_prob: Float[Array, ""], target_entropy: float
) -> Float[Array, ""]:
    """τ (sg[−log π(a|s)] − H) (ibid., equation 18): τ falls while the policy is more random than H."""
    return entropy_temperature * (jax.lax.stop_gradient(-log_prob) - target_entropy)
