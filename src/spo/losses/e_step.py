"""E-step: the improved policy as weights on sampled actions, and the temperature that controls the improvement.

SPO's search computes its own weights and needs `temperature_loss` only. MPO has N actions of one state and their Q
values. V-MPO has one action in each of N states and their advantages, and uses the better half of them.
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

    Q values give the same weights as advantages: a constant cancels. For `log_prior`, see `temperature_loss`.
    """
    return jax.lax.stop_gradient(jax.nn.softmax(_log_prior(advantages, log_prior) + advantages / temperature))


def temperature_loss(
    temperature: Float[Array, ""] | float,
    advantages: Float[Array, " N"],
    kl_bound: Float[Array, ""] | float,
    log_prior: Float[Array, " N"] | None = None,
) -> Float[Array, ""]:
    """g(η) = η (ε + log Σ_n p_n exp(A_n/η)) (paper, equation 7 and appendix "E-step KL constraining temperature").

    p_n is 1/N for actions sampled from π. `log_prior` replaces it for actions that were sampled in another way, or for
    the set of all actions. The loss is convex in η > 0, with slope ε − KL(target_weights ‖ p): at the minimum, the KL
    divergence is ε. If no η reaches it (equal A_n, or ε ≥ log N), η falls towards 0. Only `temperature` receives a
    gradient.
    """
    is_uniform = log_prior is None
    advantages, log_prior = jax.lax.stop_gradient((advantages, _log_prior(advantages, log_prior)))
    constant = jax.lax.stop_gradient(temperature)
    # The best advantage is subtracted inside and added outside of η · (1/η). Otherwise the slope would be a difference
    # of two numbers of size A/η, and at a small η rounding would decide its sign. Impossible actions do not count.
    best = jnp.max(jnp.where(log_prior > -jnp.inf, advantages, -jnp.inf))
    scaled = (advantages - best) / constant
    exponents = log_prior + scaled
    # A uniform prior needs no shift: the largest exponent is −log N. With another, the best action may be improbable.
    shift = 0.0 if is_uniform else jnp.max(exponents)
    terms = jnp.exp(exponents - shift)
    log_mean = jnp.log(jnp.sum(terms)) + shift
    mean_scaled = jnp.sum(jnp.where(terms > 0, terms * scaled, 0.0)) / jnp.sum(terms)
    # The slope in closed form: sums beside that of the value, where autodiff would read all samples twice more.
    slope = kl_bound + log_mean - mean_scaled
    return constant * (kl_bound + log_mean) + best + slope * (temperature - constant)


def kl_from_prior(weights: Float[Array, "*batch N"], log_prior: Float[Array, "*batch N"]) -> Float[Array, "*batch"]:
    """KL(q ‖ p) = Σ_n q_n (log q_n − log p_n). A weight of 0 adds nothing, even where p_n is 0. NaN stays NaN."""
    nothing = weights == 0
    terms = weights * (jnp.log(jnp.where(nothing, 1.0, weights)) - log_prior)
    return jnp.sum(jnp.where(nothing, 0.0, terms), axis=-1)


def _log_prior(advantages: Float[Array, " N"], log_prior: Float[Array, " N"] | None) -> Float[Array, " N"]:
    return jnp.full(advantages.shape, -jnp.log(advantages.shape[0])) if log_prior is None else log_prior


def top_half(advantages: Float[Array, " B"]) -> Integer[Array, " K"]:
    """Returns the indices of the better half of a batch, best first, rounded down (V-MPO, arXiv:1909.12238)."""
    num_states = advantages.shape[0]
    if num_states < 2:
        raise ValueError(f"top_half needs a batch of at least 2 advantages, got {num_states}.")
    _, indices = jax.lax.top_k(advantages, num_states // 2)
    return indices
