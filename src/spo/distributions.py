"""Families of action distributions, discrete and continuous.

A family (`Distribution`) is a tuple of functions: sample, log-probability, entropy, KL divergence and so on. Its
parameters are a plain pytree, the output of a network. Every function is written for one distribution.

Actions of `tanh_gaussian` are *raw*: samples before squashing. Search, replay and losses use raw actions, so that no
density needs an `atanh`. `to_environment` squashes an action before the environment receives it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.types import Array, Bool, Float, Integer, PRNGKey


class Distribution(NamedTuple):
    """A family of distributions over actions. `params` is a pytree, the same for every function of one family."""

    sample: Callable[[PRNGKey, Any], Any]  # (key, params) -> action
    log_prob: Callable[[Any, Any], Float[Array, ""]]  # (params, action) -> log-density of the environment's action
    mode: Callable[[Any], Any]  # params -> the greedy action
    entropy: Callable[[Any], Float[Array, ""]]  # params -> entropy in nats
    kl: Callable[[Any, Any], Float[Array, ""]]  # (p, q) -> KL(p || q) in nats
    is_valid: Callable[[Any], Bool[Array, ""]]  # params -> False for NaN, overflow or no valid action
    num_actions: Callable[[Any], int | None]  # params -> number of actions; None for continuous ones
    to_environment: Callable[[Any], Any]  # action as used here -> action as the environment takes it
    is_valid_draw: Callable[[Any, Any], Bool[Array, ""]] | None = None  # (params, a sample) -> is_valid


def sample_and_check(distribution: Distribution, key: PRNGKey, params: Any) -> tuple[Any, Bool[Array, ""]]:
    """Returns a sample and `is_valid(params)`."""
    action = distribution.sample(key, params)
    if distribution.is_valid_draw is None:
        return action, distribution.is_valid(params)
    return action, distribution.is_valid_draw(params, action)


# --- Categorical: params are logits[A]; -inf marks an invalid action ------------------------------------------------


def masked_logits(logits: Float[Array, "*batch A"], mask: Bool[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    """Returns logits with -inf for invalid actions (mask False): the categorical family never samples them."""
    return jnp.where(mask, logits, -jnp.inf)


def mix_log_probabilities(
    logits: Float[Array, "*batch A"], probabilities: Float[Array, "*batch A"], weight: float
) -> Float[Array, "*batch A"]:
    """log((1 - weight) * softmax(logits) + weight * probabilities). Exact for weights 0 and 1 and probabilities 0."""
    return jnp.log((1.0 - weight) * jax.nn.softmax(logits) + weight * probabilities)


def _categorical_sample(key: PRNGKey, logits: Float[Array, " A"]) -> Integer[Array, ""]:
    # The Gumbel trick instead of an inverse CDF: an action with a logit of -inf is then never sampled.
    # With noise of 16 bits, many actions would tie, and `argmax` would take the first of them.
    dtype = jnp.promote_types(logits.dtype, jnp.float32)
    noise = jax.random.gumbel(key, logits.shape, dtype)
    # The barrier is for GPUs: the noise of several draws is then one kernel, and each draw from its logits one more.
    return jnp.argmax(logits.astype(dtype) + jax.lax.optimization_barrier(noise))


def _categorical_log_prob(logits: Float[Array, " A"], action: Integer[Array, ""]) -> Float[Array, ""]:
    return jax.nn.log_softmax(logits)[action]


def _categorical_entropy(logits: Float[Array, " A"]) -> Float[Array, ""]:
    log_probs = jax.nn.log_softmax(logits)
    # The `where` is inside the product: outside, 0 · −inf would vanish from the value but not from the gradient.
    return -jnp.sum(jnp.exp(log_probs) * jnp.where(log_probs > -jnp.inf, log_probs, 0.0))


def _categorical_kl(p_logits: Float[Array, " A"], q_logits: Float[Array, " A"]) -> Float[Array, ""]:
    log_p, log_q = jax.nn.log_softmax(p_logits), jax.nn.log_softmax(q_logits)
    possible = log_p > -jnp.inf
    return jnp.sum(jnp.exp(log_p) * (jnp.where(possible, log_p, 0.0) - jnp.where(possible, log_q, 0.0)))


def _categorical_is_valid(logits: Float[Array, " A"]) -> Bool[Array, ""]:
    # The maximum is NaN if a logit is NaN, -inf if all actions are masked, +inf if a logit overflowed.
    return jnp.isfinite(jnp.max(logits))


def _categorical_is_valid_draw(logits: Float[Array, " A"], action: Integer[Array, ""]) -> Bool[Array, ""]:
    # A NaN or +inf is always drawn, and -inf only if all actions are masked. So the other logits need not be read.
    return jnp.isfinite(logits[action])


categorical = Distribution(
    sample=_categorical_sample,
    log_prob=_categorical_log_prob,
    mode=lambda logits: jnp.argmax(logits),
    entropy=_categorical_entropy,
    kl=_categorical_kl,
    is_valid=_categorical_is_valid,
    num_actions=lambda logits: logits.shape[-1],
    to_environment=lambda action: action,
    is_valid_draw=_categorical_is_valid_draw,
)


# --- Gaussian with diagonal covariance ------------------------------------------------------------------------------


class Gaussian(NamedTuple):
    """Parameters of a diagonal Gaussian. `scale` is the standard deviation."""

    mean: Float[Array, "*batch D"]  # one entry per action dimension
    scale: Float[Array, "*batch D"]


def _gaussian_sample(key: PRNGKey, params: Gaussian) -> Float[Array, " D"]:
    return params.mean + params.scale * jax.random.normal(key, params.mean.shape, params.mean.dtype)


def gaussian_log_prob_per_dimension(params: Gaussian, action: Float[Array, " D"]) -> Float[Array, " D"]:
    """Returns log N(a; mean, scale²) of each dimension."""
    standardised = (action - params.mean) / params.scale
    return -0.5 * (standardised**2 + jnp.log(2.0 * jnp.pi)) - jnp.log(params.scale)


def _gaussian_entropy_per_dimension(params: Gaussian) -> Float[Array, " D"]:
    return 0.5 * jnp.log(2.0 * jnp.pi * jnp.e) + jnp.log(params.scale)


def gaussian_kl_per_dimension(p: Gaussian, q: Gaussian) -> Float[Array, " D"]:
    """Returns KL(p || q) of each dimension: the trust regions of MPO and SPO bound each of them separately."""
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

# The trapezoidal rule under a standard normal. For analytic functions it converges faster than Gauss-Hermite's rule, as
# long as the function is smooth over the distance of two nodes.
_NODES = np.linspace(-4.5, 4.5, 25, dtype=np.float32)
_NODE_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()


def _as_bounds(bound: float | Sequence[float]) -> Any:
    """Returns one number as it is, and a sequence as an array."""
    return bound if np.ndim(bound) == 0 else np.asarray(bound, float)


def _spread(bound: Any, action: Float[Array, "*batch D"]) -> Any:
    """Returns one number as it is, and one for each dimension in the shape and type of the action."""
    return jnp.broadcast_to(jnp.asarray(bound, action.dtype), action.shape) if np.ndim(bound) else bound


def tanh_gaussian(low: float | Sequence[float] = -1.0, high: float | Sequence[float] = 1.0) -> Distribution:
    """Returns the family of diagonal Gaussians that are squashed by tanh and scaled to [low, high].

    A bound is one number for all dimensions, or a sequence with one for each. Actions are raw (before squashing), and
    `log_prob` is the density of the squashed action. `kl` is that of the Gaussians, which is the same number: a
    bijection does not change it. The entropy has no closed form:

        H = H(N(mean, scale²)) + E_u[log slope(u)],  u ~ N(mean, scale²)

    `entropy` integrates the second term numerically. Its error is below 2e-4 nats per dimension for scales up to 3.
    """
    lows, highs = _as_bounds(low), _as_bounds(high)
    if np.ndim(lows) and np.ndim(highs) and np.shape(lows) != np.shape(highs):
        raise ValueError(f"tanh_gaussian needs as many low as high bounds, got low={low}, high={high}.")
    if not np.all(lows < highs):
        raise ValueError(f"tanh_gaussian needs low < high, got low={low}, high={high}.")
    half_widths = 0.5 * (highs - lows)
    log_half_widths = np.log(half_widths) if isinstance(half_widths, np.ndarray) else math.log(half_widths)

    def log_slope(action: Float[Array, " D"]) -> Float[Array, " D"]:
        # log d/du tanh(u) = log(1 - tanh(u)^2), in a form that does not underflow for large |u|.
        return 2.0 * (jnp.log(2.0) - action - jax.nn.softplus(-2.0 * action)) + _spread(log_half_widths, action)

    def to_environment(action: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        # Rounding could leave the box.
        least, most = _spread(lows, action), _spread(highs, action)
        return jnp.clip(least + _spread(half_widths, action) * (jnp.tanh(action) + 1.0), least, most)

    def entropy(params: Gaussian) -> Float[Array, ""]:
        log_slopes = jax.vmap(lambda node: log_slope(params.mean + params.scale * node))(jnp.asarray(_NODES))
        expected_log_slope = jnp.tensordot(_NODE_WEIGHTS, log_slopes, axes=1)
        return jnp.sum(_gaussian_entropy_per_dimension(params) + expected_log_slope)

    return Distribution(
        sample=_gaussian_sample,
        log_prob=lambda params, action: jnp.sum(gaussian_log_prob_per_dimension(params, action) - log_slope(action)),
        mode=lambda params: params.mean,
        entropy=entropy,
        kl=gaussian.kl,
        is_valid=_gaussian_is_valid,
        num_actions=lambda _: None,
        to_environment=to_environment,
    )
