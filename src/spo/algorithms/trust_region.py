"""The trust region of SPO, MPO and V-MPO. What is bounded depends on the kind of action, and nothing else does."""

from typing import NamedTuple

import jax.numpy as jnp

from spo import losses
from spo.distributions import Distribution
from spo.types import ActionSpec, Array, DiscreteActions


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
