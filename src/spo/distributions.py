"""The families of action distributions: a family is a handful of functions of its parameters.

Search, losses and networks need the same few things of a distribution over actions, whether it is discrete or
continuous: draw, score, compare. A family (`Distribution`) bundles those functions; its parameters are a plain pytree
that a network emits and that `vmap`, `scan` and a resample may move around. Every function is written for one
distribution.

Actions of `tanh_gaussian` are *raw*: the draw before squashing. A raw action is what search, replay and losses handle,
so that no density needs an `atanh`; `to_environment` squashes it at the door of the world.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.types import Array, Bool, Float, Integer, PRNGKey


class Distribution(NamedTuple):
    """A family of distributions over actions. `params` is a pytree, the same for every function of one family."""

    sample: Callable[[PRNGKey, Any], Any]  # (key, params) -> action
    log_prob: Callable[[Any, Any], Float[Array, ""]]  # (params, action) -> log-density of the environment's action
    mode: Callable[[Any], Any]  # params -> the action to take greedily
    entropy: Callable[[Any], Float[Array, ""]]  # params -> entropy in nats
    kl: Callable[[Any, Any], Float[Array, ""]]  # (p, q) -> KL(p || q) in nats
    is_valid: Callable[[Any], Bool[Array, ""]]  # params -> is this a distribution at all?
    num_actions: Callable[[Any], int | None]  # params -> how many actions there are; None when uncountable
    to_environment: Callable[[Any], Any]  # action as handled here -> action as the environment takes it


# --- Categorical: params are logits[A]; -inf marks an invalid action ------------------------------------------------


def masked_logits(logits: Float[Array, "*batch A"], mask: Bool[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    """Logits with invalid actions (mask False) at -inf, which the categorical family never draws."""
    return jnp.where(mask, logits, -jnp.inf)


def mix_log_probabilities(
    logits: Float[Array, "*batch A"], probabilities: Float[Array, "*batch A"], weight: float
) -> Float[Array, "*batch A"]:
    """log((1 - weight) * softmax(logits) + weight * probabilities), exact at the ends and where a probability is 0."""
    return jnp.log((1.0 - weight) * jax.nn.softmax(logits) + weight * probabilities)


def _categorical_sample(key: PRNGKey, logits: Float[Array, " A"]) -> Integer[Array, ""]:
    # The Gumbel trick rather than an inverse CDF: a -inf logit can then never be drawn, whatever the rounding.
    return jax.random.categorical(key, logits)


def _categorical_log_prob(logits: Float[Array, " A"], action: Integer[Array, ""]) -> Float[Array, ""]:
    return jax.nn.log_softmax(logits)[action]


def _categorical_entropy(logits: Float[Array, " A"]) -> Float[Array, ""]:
    log_probs = jax.nn.log_softmax(logits)
    # The `where` stands inside the product: outside, 0 · −inf would be hidden from the value but not from the gradient.
    return -jnp.sum(jnp.exp(log_probs) * jnp.where(log_probs > -jnp.inf, log_probs, 0.0))


def _categorical_kl(p_logits: Float[Array, " A"], q_logits: Float[Array, " A"]) -> Float[Array, ""]:
    log_p, log_q = jax.nn.log_softmax(p_logits), jax.nn.log_softmax(q_logits)
    possible = log_p > -jnp.inf
    return jnp.sum(jnp.exp(log_p) * (jnp.where(possible, log_p, 0.0) - jnp.where(possible, log_q, 0.0)))


def _categorical_is_valid(logits: Float[Array, " A"]) -> Bool[Array, ""]:
    # max is NaN if any logit is, -inf if every action is masked, +inf if a logit overflowed.
    return jnp.isfinite(jnp.max(logits))


categorical = Distribution(
    sample=_categorical_sample,
    log_prob=_categorical_log_prob,
    mode=lambda logits: jnp.argmax(logits),
    entropy=_categorical_entropy,
    kl=_categorical_kl,
    is_valid=_categorical_is_valid,
    num_actions=lambda logits: logits.shape[-1],
    to_environment=lambda action: action,
)


# --- Gaussian with diagonal covariance ------------------------------------------------------------------------------


class Gaussian(NamedTuple):
    """Parameters of a diagonal Gaussian. `scale` is the standard deviation."""

    mean: Float[Array, "*batch D"]
    scale: Float[Array, "*batch D"]


def _gaussian_sample(key: PRNGKey, params: Gaussian) -> Float[Array, " D"]:
    return params.mean + params.scale * jax.random.normal(key, params.mean.shape, params.mean.dtype)


def gaussian_log_prob_per_dimension(params: Gaussian, action: Float[Array, " D"]) -> Float[Array, " D"]:
    standardised = (action - params.mean) / params.scale
    return -0.5 * (standardised**2 + jnp.log(2.0 * jnp.pi)) - jnp.log(params.scale)


def _gaussian_entropy_per_dimension(params: Gaussian) -> Float[Array, " D"]:
    return 0.5 * jnp.log(2.0 * jnp.pi * jnp.e) + jnp.log(params.scale)


def gaussian_kl_per_dimension(p: Gaussian, q: Gaussian) -> Float[Array, " D"]:
    """KL(p || q), dimension by dimension: the trust region of MPO and SPO bounds each one apart."""
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.mean - q.mean) / q.scale) ** 2 - 1.0 - jnp.log(ratio))


def _gaussian_is_valid(params: Gaussian) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(params.mean) & jnp.isfinite(params.scale) & (params.scale > 0))


gaussian = Distribution(
    sample=_gaussian_sample,
    log_prob=lambda params, action: jnp.sum(gaussian_log_prob_per_dimension(params, action)),
    mode=lambda params: params.mean,
    entropy=lambda params: jnp.sum(_gaussian_entropy_per_dimension(params)),
    kl=lambda p, q: jnp.sum(gaussian_kl_per_dimension(p, q)),
    is_valid=_gaussian_is_valid,
    num_actions=lambda _: None,
    to_environment=lambda action: action,
)


# --- Gaussian squashed into a box -----------------------------------------------------------------------------------


def tanh_gaussian(low: float = -1.0, high: float = 1.0) -> Distribution:
    """A diagonal Gaussian pushed through tanh and scaled into [low, high].

    Actions are raw (before squashing), `log_prob` is the density of the squashed action, `kl` that of the Gaussians,
    which is the same number: KL does not change under a bijection. `entropy` has no closed form once squashed; it is
    estimated at the mean (exact as the scale goes to 0), so that it stays a function of the parameters alone.
    """
    if not low < high:
        raise ValueError(f"tanh_gaussian needs low < high, got low={low}, high={high}.")
    log_half_width = math.log(0.5 * (high - low))

    def log_slope(action: Float[Array, " D"]) -> Float[Array, " D"]:
        # log d/du tanh(u) = log(1 - tanh(u)^2), in the form that does not underflow for large |u|.
        return 2.0 * (jnp.log(2.0) - action - jax.nn.softplus(-2.0 * action)) + log_half_width

    return Distribution(
        sample=_gaussian_sample,
        log_prob=lambda params, action: jnp.sum(gaussian_log_prob_per_dimension(params, action) - log_slope(action)),
        mode=lambda params: params.mean,
        entropy=lambda params: jnp.sum(_gaussian_entropy_per_dimension(params) + log_slope(params.mean)),
        kl=gaussian.kl,
        is_valid=_gaussian_is_valid,
        num_actions=lambda _: None,
        to_environment=lambda action: low + 0.5 * (high - low) * (jnp.tanh(action) + 1.0),
    )
