"""Read-outs: estimates of the improved policy at the root from the particles of one root.

A `Readout` is a fold over the depths. `init` and `update` cost nothing where they return the carry unchanged.
"""

import jax
import jax.numpy as jnp

from spo.search.base import Particles, Readout, ReadoutInputs, RootWeights
from spo.search.batches import mean_over_equal
from spo.search.weighting import bootstrap
from spo.types import Array, Float, Integer


def _last_weights(_carry: None, inputs: ReadoutInputs) -> RootWeights:
    return RootWeights(inputs.particles.root_index, jax.nn.softmax(inputs.particles.log_weights))


#: First actions of the particles with their weights after the last step (the paper's).
last = Readout(init=lambda _: None, update=lambda carry, _: carry, finish=_last_weights)


def _add_weights(total: Float[Array, " N"], particles: Particles) -> Float[Array, " N"]:
    return total + sum_by_root_sample(jax.nn.softmax(particles.log_weights), particles.root_index)


def _mean_weights(total: Float[Array, " N"], inputs: ReadoutInputs) -> RootWeights:
    return RootWeights(jnp.arange(total.shape[0]), total / inputs.horizon)


#: Root samples with the mean over depths of their descendants' weights: no resample can erase a root action.
all_depths = Readout(
    init=lambda particles: jnp.zeros_like(particles.log_weights), update=_add_weights, finish=_mean_weights
)


def _returns_by_action(_carry: None, inputs: ReadoutInputs) -> RootWeights:
    """Weights exp(Q̄(a)/η), Q̄(a) being the mean return of the particles whose first action is a.

    The mean is not corrected for its variance, as that of `chance.sampled` is. The correction makes exp(Q̄/η) right on
    average, but the weights are normalised, and with few particles per action it moves them further from the target.
    """
    particles = inputs.particles
    returns = particles.rewards + bootstrap(particles.discount, particles.value)
    means = mean_over_equal(inputs.root_actions, returns)
    weights = jax.nn.softmax(inputs.root_log_weights + means / inputs.temperature)
    return RootWeights(jnp.arange(means.shape[0]), weights)


#: Root samples weighted by the mean return of all particles with the same first action. The particles are not weighted
#: by the luck of their path, so a value that is not trusted, or an untrained one, does not make the search gamble.
#: Particles must not be resampled: `Resampling(period=None)`.
mean_returns = Readout(init=lambda _: None, update=lambda carry, _: carry, finish=_returns_by_action)


def sum_by_root_sample(weights: Float[Array, " N"], root_index: Integer[Array, " N"]) -> Float[Array, " N"]:
    """Returns the total weight of the descendants of each root sample."""
    return jnp.zeros_like(weights).at[root_index].add(weights)
