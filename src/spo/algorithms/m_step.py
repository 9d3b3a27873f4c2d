"""What the M-steps of SPO, MPO and V-MPO share: a trust region, and duals that learn beside the networks.

What is bounded depends on the kind of action, and nothing else does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses
from spo.algorithms.base import DEVICE_AXIS, Metrics
from spo.distributions import Distribution
from spo.types import ActionSpec, Array, DiscreteActions, Float


class Bound(NamedTuple):
    """A bound on a KL and its multiplier at the start."""

    kl: float
    initial_multiplier: float


class TrustRegion(NamedTuple):
    projection: losses.Projection
    bounds: dict[str, float]  # of each KL of the projection
    raw_multipliers: dict[str, Array]  # at the start (see `losses.positive_from_raw`)


def make_trust_region(
    action_spec: ActionSpec, distribution: Distribution, *, policy: Bound, mean: Bound, scale: Bound
) -> TrustRegion:
    """Discrete actions: one KL, bounded by `policy`. Continuous ones: the Gaussian's mean and scale, bounded apart and
    per dimension."""
    shape: tuple[int, ...]
    if isinstance(action_spec, DiscreteActions):
        chosen, shape = {"policy": policy}, ()
        projection = losses.coupled_projection(distribution)
    else:
        chosen, shape = {"mean": mean, "scale": scale}, (action_spec.size,)
        projection = losses.decoupled_projection(distribution)
    return TrustRegion(
        projection=projection,
        bounds={name: bound.kl for name, bound in chosen.items()},
        # Departure 11: the table's initial value is the multiplier's, not the raw variable's.
        raw_multipliers={
            name: jnp.full(shape, losses.raw_from_positive(bound.initial_multiplier), jnp.float32)
            for name, bound in chosen.items()
        },
    )


def stay_inside(
    trust_region: TrustRegion, kls: dict[str, Array], raw_multipliers: dict[str, Array]
) -> tuple[losses.TrustRegionLosses, Metrics]:
    """What keeps a policy inside, from its KLs to the old one, means over a batch; and what there is to see of it."""
    multipliers = jax.tree.map(losses.positive_from_raw, raw_multipliers)
    region = losses.trust_region_losses(kls, multipliers, trust_region.bounds)
    metrics = {"loss/kl_penalty": region.penalty}
    metrics |= {f"trust_region/kl_{name}": jnp.mean(kl) for name, kl in kls.items()}
    metrics |= {f"trust_region/multiplier_{name}": jnp.mean(value) for name, value in multipliers.items()}
    return region, metrics


# --- Duals ------------------------------------------------------------------------------------------------------------
class Duals(NamedTuple):
    """Unconstrained variables behind the positive duals (see `losses.positive_from_raw`)."""

    raw_temperature: Float[Array, ""]
    raw_multipliers: dict[str, Array]


def init_duals(trust_region: TrustRegion, initial_temperature: float) -> Duals:
    """Departure 11: the tables' initial values are the duals', not the raw variables'."""
    raw_temperature = jnp.asarray(losses.raw_from_positive(initial_temperature), jnp.float32)
    return Duals(raw_temperature, trust_region.raw_multipliers)


def make_gradient_step(
    loss_fn: Callable[..., tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    dual_optimiser: optax.GradientTransformation,
) -> Callable[..., tuple[Any, Metrics]]:
    """(learner, *inputs) -> (the learner one step down `loss_fn(params, duals, *inputs)` over all devices, metrics).

    A learner is any named tuple that has `params`, `duals`, `optimiser` and `dual_optimiser` among its fields.
    """

    def gradient_step(learner: Any, *inputs: Any) -> tuple[Any, Metrics]:
        gradients, metrics = jax.grad(loss_fn, argnums=(0, 1), has_aux=True)(learner.params, learner.duals, *inputs)
        (param_gradients, dual_gradients), metrics = jax.lax.pmean((gradients, metrics), DEVICE_AXIS)
        metrics["gradient_norm"] = optax.tree.norm(param_gradients)
        changes, optimiser_state = optimiser.update(param_gradients, learner.optimiser, learner.params)
        dual_changes, dual_state = dual_optimiser.update(dual_gradients, learner.dual_optimiser, learner.duals)
        return learner._replace(
            params=optax.apply_updates(learner.params, changes),
            duals=optax.apply_updates(learner.duals, dual_changes),
            optimiser=optimiser_state,
            dual_optimiser=dual_state,
        ), metrics

    return gradient_step
