"""E-step: the improved policy as weights on sampled actions, and the temperature that says how much it may improve.

SPO's search makes its own weights and needs `temperature_loss` only. MPO has N actions of one state and their Q values;
V-MPO has one action in each of N states and their advantages, of which it keeps the better half.
"""

import jax
import jax.numpy as jnp

from spo.types import Array, Float, Integer


def target_weights(advantages: Float[Array, " N"], temperature: Float[Array, ""] | float) -> Float[Array, " N"]:
    """w_n ∝ exp(A_n/η), which is q(a|s) ∝ π(a|s) exp(A/η) on actions drawn from π (paper, equation 6).

    Q values do as well as advantages: what all N share cancels.
    """
    return jax.lax.stop_gradient(jax.nn.softmax(advantages / temperature))


def temperature_loss(
    temperature: Float[Array, ""] | float, advantages: Float[Array, " N"], kl_bound: Float[Array, ""] | float
) -> Float[Array, ""]:
    """g(η) = η (ε + log mean_n exp(A_n/η)) (paper, equation 7 and appendix "E-step KL constraining temperature").

    Convex in η > 0, with slope ε − KL(target_weights ‖ uniform): the minimiser spends the KL budget exactly. If no η
    can (A_n all alike, or ε ≥ log N), it falls towards 0. Only `temperature` receives a gradient.
    """
    advantages = jax.lax.stop_gradient(advantages)
    # The best advantage is added back outside of η · (1/η): left inside, the slope would be the difference of two
    # numbers of size A/η, and at a small η rounding would decide its sign.
    best = jnp.max(advantages)
    log_mean = jax.nn.logsumexp((advantages - best) / temperature) - jnp.log(advantages.shape[0])
    return temperature * (kl_bound + log_mean) + best


def top_half(advantages: Float[Array, " B"]) -> Integer[Array, " K"]:
    """Indices of the better half of a batch, best first; an odd one is left out (V-MPO, arXiv:1909.12238)."""
    num_states = advantages.shape[0]
    if num_states < 2:
        raise ValueError(f"top_half needs a batch of at least 2 advantages, got {num_states}.")
    _, indices = jax.lax.top_k(advantages, num_states // 2)
    return indices
