"""Trust region of SPO, MPO and V-MPO: its options, its loss, and the dual variables that are learned with it.

Discrete and continuous actions differ in what the trust region bounds, and in nothing else.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo import losses
from spo.algorithms.base import vmap_over
from spo.checks import PositiveFloat, check_fields
from spo.distributions import Distribution
from spo.types import ActionSpec, Array, DiscreteActions, Float, Metrics, PyTree


@dataclass(frozen=True)
class TrustRegionConfig:
    """Options that SPO, MPO and V-MPO share: how far the policy may move, and how sharply actions are weighted.

    Each limit on a KL divergence has a multiplier, the weight of its penalty. Multipliers are learned: they grow while
    the limit is exceeded and shrink while it is not.
    """

    initial_temperature: PositiveFloat = 0.5
    """Initial temperature of the action weights (η). A low temperature concentrates the weight on the best actions."""
    temperature_kl_bound: PositiveFloat = 0.5
    """Target of the temperature: KL divergence of the weighted actions from the policy (ε_η)."""
    kl_bound: PositiveFloat = 1e-3
    """Discrete actions: how far the policy may move, as the KL divergence from the old policy to the new (ε_α)."""
    initial_multiplier: PositiveFloat = 0.5
    """Discrete actions: initial weight of the penalty for that KL divergence (α)."""
    mean_kl_bound: PositiveFloat = 5e-2
    """Continuous actions: how far the Gaussian's mean may move, as a KL divergence per action dimension (ε_αμ)."""
    initial_mean_multiplier: PositiveFloat = 10.0
    """Continuous actions: initial weight of the penalty for the mean (α_μ)."""
    scale_kl_bound: PositiveFloat = 5e-4
    """Continuous actions: how far the covariance may move, as a KL divergence per action dimension (ε_αΣ)."""
    initial_scale_multiplier: PositiveFloat = 500.0
    """Continuous actions: initial weight of the penalty for the covariance (α_Σ)."""

    def __post_init__(self) -> None:
        check_fields(self)


class Duals(NamedTuple):
    """Unconstrained variables behind the positive duals (see `losses.positive_from_raw`)."""

    raw_temperature: Float[Array, ""]
    raw_multipliers: dict[str, Array]

    @property
    def temperature(self) -> Float[Array, ""]:
        """The temperature η."""
        return losses.positive_from_raw(self.raw_temperature)


class TrustRegion(NamedTuple):
    """KL divergences that are bounded, by name: {"policy"} (discrete actions) or {"mean", "scale"} (continuous)."""

    #: likelihood and KL divergences; the likelihood is used without a trust region as well
    projection: losses.Projection
    bounds: dict[str, float]
    initial_duals: Duals  # the multipliers, and the temperature of the action weights


def make_trust_region(config: TrustRegionConfig, action_spec: ActionSpec, distribution: Distribution) -> TrustRegion:
    """Returns the trust region for a kind of action.

    A discrete policy has one KL divergence. Mean and scale of a Gaussian are bounded separately, and per dimension.
    """
    shape: tuple[int, ...]
    if isinstance(action_spec, DiscreteActions):
        projection, shape = losses.coupled_projection(distribution), ()
        bounds = {"policy": config.kl_bound}
        multipliers = {"policy": config.initial_multiplier}
    else:
        # Departure 17: one multiplier per action dimension.
        projection, shape = losses.decoupled_projection(distribution), (action_spec.size,)
        bounds = {"mean": config.mean_kl_bound, "scale": config.scale_kl_bound}
        multipliers = {"mean": config.initial_mean_multiplier, "scale": config.initial_scale_multiplier}
    # Departure 11: the tables' initial values are those of the duals, not of the raw variables.
    duals = Duals(
        raw_temperature=_initial_raw((), config.initial_temperature),
        raw_multipliers={name: _initial_raw(shape, value) for name, value in multipliers.items()},
    )
    return TrustRegion(projection, bounds, duals)


def limit_temperature(duals: Duals, lowest: float) -> Duals:
    """Returns the duals with a temperature of at least `lowest`. NaN stays NaN."""
    if lowest == 0:
        return duals
    return duals._replace(raw_temperature=jnp.maximum(duals.raw_temperature, losses.raw_from_positive(lowest)))


def _initial_raw(shape: tuple[int, ...], value: float) -> Float[Array, "*shape"]:
    """Returns the raw variables of duals with a value. It is filled by NumPy: `jnp.full` would compile a program."""
    return jax.device_put(np.full(shape, losses.raw_from_positive(value), np.float32))


def trust_region_loss(
    trust_region: TrustRegion,
    old_policy: PyTree,
    new_policy: PyTree,
    duals: Duals,
    *,
    num_axes: int,
) -> tuple[Float[Array, ""], Metrics]:
    """Returns KL penalty plus dual loss, and their metrics. KL divergences are means over `num_axes` leading axes."""
    kls = vmap_over(trust_region.projection.kls, num_axes)(old_policy, new_policy)
    kls = jax.tree.map(lambda x: jnp.mean(x, axis=tuple(range(num_axes))), kls)
    multipliers = jax.tree.map(losses.positive_from_raw, duals.raw_multipliers)
    penalty, dual = losses.trust_region_losses(kls, multipliers, trust_region.bounds)
    metrics = {"loss/kl_penalty": penalty}
    metrics |= {f"trust_region/kl_{name}": jnp.mean(kl) for name, kl in kls.items()}
    metrics |= {f"trust_region/multiplier_{name}": jnp.mean(value) for name, value in multipliers.items()}
    return penalty + dual, metrics
