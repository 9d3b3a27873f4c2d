"""M-step: projection of the improved policy onto the network's family, inside a trust region around the old policy.

Discrete and continuous policies differ only in the `Projection`: the log-probability of an action, and the KL
divergences that are bounded. KL divergences, multipliers and bounds are dictionaries with the same keys.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.distributions import Distribution, Gaussian, gaussian_kl_per_dimension
from spo.types import Array, Float


def weighted_likelihood_loss(log_probs: Float[Array, " N"], weights: Float[Array, " N"]) -> Float[Array, ""]:
    """L_π = −Σ_n w_n log π(a_n|s) (paper, equation 11 and appendix "SPO"). Weights sum to 1.

    This is the cross-entropy from weights to policy. The actions are SPO's root actions, MPO's samples, V-MPO's better
    half of a batch, Sampled AlphaZero's candidates, or all actions, weighted by visits, in AlphaZero.
    """
    weights = jax.lax.stop_gradient(weights)
    # An action of weight 0 is left out: if its probability is 0 too, 0 · −inf would be NaN.
    return -jnp.sum(jnp.where(weights > 0, weights * log_probs, 0.0))


class Projection(NamedTuple):
    """Log-probabilities and KL divergences of one kind of policy. The old policy's parameters receive no gradient."""

    log_prob: Callable[[Any, Any, Any], Float[Array, ""]]  # (old_params, params, action) -> term of the likelihood
    kls: Callable[[Any, Any], dict[str, Array]]  # (old_params, params) -> KL divergences from the old policy, by name


def projection_loss(
    projection: Projection, old_params: Any, params: Any, actions: Any, weights: Float[Array, " N"]
) -> Float[Array, ""]:
    """`weighted_likelihood_loss` of one state's actions [N, ...], with the log-probabilities of a projection."""
    log_probs = jax.vmap(functools.partial(projection.log_prob, old_params, params))(actions)
    return weighted_likelihood_loss(log_probs, weights)


def coupled_projection(distribution: Distribution) -> Projection:
    """Returns log π(a|s) and {"policy": KL(π_old ‖ π)}, for any family (paper, equation 12)."""
    return Projection(
        log_prob=lambda _, params, action: distribution.log_prob(params, action),
        kls=lambda old_params, params: {"policy": distribution.kl(jax.lax.stop_gradient(old_params), params)},
    )


def decoupled_projection(distribution: Distribution) -> Projection:
    """Fits and bounds mean and scale of a Gaussian separately (Abdolmaleki et al., arXiv:1812.02256).

    log π becomes log N(a; μ, Σ_old) + log N(a; μ_old, Σ). The KL divergences, one per action dimension, are
    {"mean": KL(π_old ‖ N(μ, Σ_old)), "scale": KL(π_old ‖ N(μ_old, Σ))}. The mean can then move without a collapse of
    the scale. It works for families with `Gaussian` parameters, squashed or not.
    """

    def halves(old_params: Gaussian, params: Gaussian) -> tuple[Gaussian, Gaussian, Gaussian]:
        old = jax.lax.stop_gradient(old_params)
        return old, Gaussian(params.mean, old.scale), Gaussian(old.mean, params.scale)

    def log_prob(old_params: Gaussian, params: Gaussian, action: Float[Array, " D"]) -> Float[Array, ""]:
        _, new_mean, new_scale = halves(old_params, params)
        return distribution.log_prob(new_mean, action) + distribution.log_prob(new_scale, action)

    def kls(old_params: Gaussian, params: Gaussian) -> dict[str, Array]:
        old, new_mean, new_scale = halves(old_params, params)
        return {"mean": gaussian_kl_per_dimension(old, new_mean), "scale": gaussian_kl_per_dimension(old, new_scale)}

    return Projection(log_prob, kls)


class TrustRegionLosses(NamedTuple):
    """The two losses of a trust region."""

    penalty: Float[Array, ""]  # for the policy
    dual: Float[Array, ""]  # for the multipliers


def trust_region_losses(
    kls: Mapping[str, Array], multipliers: Mapping[str, Array], bounds: Mapping[str, float]
) -> TrustRegionLosses:
    """L_KL = sg[α] · KL trains the policy, L_α = α · (ε_α − sg[KL]) the multipliers (paper, appendix "SPO").

    Sums over names, and over the dimensions of each name. Each dimension has its own multiplier; all dimensions of a
    name have the same bound.
    """
    if not set(kls) == set(multipliers) == set(bounds):
        raise ValueError(
            "trust_region_losses needs one multiplier and one bound for each KL, by the same names: "
            f"got KLs {sorted(kls)}, multipliers {sorted(multipliers)}, bounds {sorted(bounds)}."
        )
    penalty, dual = jnp.zeros(()), jnp.zeros(())
    for name, kl in kls.items():
        multiplier = multipliers[name]
        if jnp.shape(multiplier) != jnp.shape(kl):
            raise ValueError(
                f"trust_region_losses needs a multiplier for each dimension of the KL {name!r}: "
                f"the KL has shape {jnp.shape(kl)}, the multiplier {jnp.shape(multiplier)}."
            )
        penalty += jnp.sum(jax.lax.stop_gradient(multiplier) * kl)
        dual += jnp.sum(multiplier * (bounds[name] - jax.lax.stop_gradient(kl)))
    return TrustRegionLosses(penalty, dual)
