"""The losses: arrays in, one number out, and in each docstring the equation.

One convention for all of them. A loss is written for one state, whose N sampled actions are an axis; `jax.vmap` it over
states and take the mean, which is the paper's expectation over the replay buffer. Where the equation compares states
with each other (V-MPO's `top_half`, PPO's `standardise`) the axis is the batch itself, and that is said there.

A gradient flows into what the loss trains and into nothing else: targets, weights, advantages, the old policy, and the
dual in a policy's loss (or the policy in a dual's) are stopped inside, so that no caller has to remember. What a loss
trains is its first argument.

    e_step   the improved policy and its temperature        SPO, MPO, V-MPO
    m_step   fit it, without leaving the trust region       SPO, MPO, V-MPO, AlphaZero, Sampled AlphaZero
    duals    temperatures and multipliers that stay > 0     SPO, MPO, V-MPO, SAC
    value    regression of V and Q                          all
    ppo      the clipped surrogate                          PPO
    sac      policy and entropy temperature                 SMC-ENT, continuous
"""

from spo.losses.duals import positive_from_raw, raw_from_positive
from spo.losses.e_step import target_weights, temperature_loss, top_half
from spo.losses.m_step import (
    Projection,
    TrustRegionLosses,
    coupled_projection,
    decoupled_projection,
    projection_loss,
    trust_region_losses,
    weighted_likelihood_loss,
)
from spo.losses.ppo import clipped_surrogate_loss, standardise
from spo.losses.sac import entropy_temperature_loss, soft_policy_loss
from spo.losses.value import clipped_squared_error, huber, squared_error

__all__ = [
    "Projection",
    "TrustRegionLosses",
    "clipped_squared_error",
    "clipped_surrogate_loss",
    "coupled_projection",
    "decoupled_projection",
    "entropy_temperature_loss",
    "huber",
    "positive_from_raw",
    "projection_loss",
    "raw_from_positive",
    "soft_policy_loss",
    "squared_error",
    "standardise",
    "target_weights",
    "temperature_loss",
    "top_half",
    "trust_region_losses",
    "weighted_likelihood_loss",
]
