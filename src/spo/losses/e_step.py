"""E-step: the improved policy as weights on sampled actions, and the temperature that says how much it may improve.

SPO's search makes its own weights and needs `temperature_loss` only. MPO has N actions of one state and their Q values;
V-MPO has one action in each of N states and their advantages, of which it keeps the better half.
"""

import jax
import jax.numpy as jnp

from spo.types import Array, Float, Integer


def target_weights(
    advantages: Float[Array, " N"],
    temperature: Float[Array, ""] | float,
    log_prior: Float[Array, " N"] | None = None,
) -> Float[Array, " N"]:
    """w_n ∝ p_n exp(A_n/η), which is q(a|s) ∝ π(a|s) exp(A/η) on actions drawn from π (paper, equation 6).

    Q values do as well as advantages: what all N share cancels. `log_prior` as in `temperature_loss`.
    """
    return jax.lax.stop_gradient(jax.nn.softmax(_log_prior(advantages, log_prior) + advantages / temperature))


def temperature_loss(
    temperature: Float[Array, ""] | float,
    advantages: Float[Array, " N"],
    kl_bound: Float[Array, ""] | float,
    log_prior: Float[Array, " N"] | None = None,
) -> Float[Array, ""]:
    """g(η) = η (ε + log Σ_n p_n exp(A_n/η)) (paper, equation 7 and appendix "E-step KL constraining temperature").

    p_n is 1/N for actions drawn from π. `log_prior` says otherwise, for actions that were drawn in another way, or are
    all there are. Convex in η > 0, with slope ε − KL(target_weights ‖ p): the minimiser spends the KL budget exactly.
    If no η can (A_n all alike, or ε ≥ log N), it falls towards 0. Only `temperature` receives a gradient.
    """
    advantages, log_prior = jax.lax.stop_gradient((advantages, _log_prior(advantages, log_prior)))
    # The best advantage is added back outside of η · (1/η): left inside, the slope would be the difference of two
    # numbers of size A/η, and at a small η rounding would decide its sign. An impossible action has no say in it.
    best = jnp.max(jnp.where(log_prior > -jnp.inf, advantages, -jnp.inf))
    log_mean = jax.nn.logsumexp(log_prior + (advantages - best) / temperature)
    return temperature * (kl_bound + log_mean) + best


def _log_prior(advantages: Float[Array, " N"], log_prior: Float[Array, " N"] | None) -> Float[Array, " N"]:
    return jnp.full(advantages.shape, -jnp.log(advantages.shape[0])) if log_prior is None else log_prior


def top_half(advantages: Float[Array, " B"]) -> Integer[Array, " K"]:
    """Indices of the better half of a batch, best first; an odd one is left out (V-MPO, arXiv:1909.12238)."""
    num_states = advantages.shape[0]
    if num_states < 2:
        raise ValueError(f"top_half needs a batch of at least 2 advantages, got {num_states}.")
    _, indices = jax.lax.top_k(advantages, num_states // 2)
    return indices
