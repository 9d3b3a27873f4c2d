"""Losses: functions of arrays. Each docstring states the equation.

A loss is written for one state, with an axis of N sampled actions. Use `jax.vmap` for a batch of states and take the
mean, which is the paper's expectation over the replay buffer. V-MPO's `top_half` and PPO's `standardise` compare states
with each other: their axis is the batch.

A loss passes a gradient only to the variables that it trains. Gradients of targets, weights, advantages and the old
policy are stopped inside; so are those of the dual in a policy's loss, and of the policy in a dual's loss.

    e_step   the improved policy and its temperature         SPO, MPO, V-MPO
    m_step   likelihood of the actions, and trust region     SPO, MPO, V-MPO, AlphaZero, Sampled AlphaZero
    duals    positive temperatures and multipliers           SPO, MPO, V-MPO, SAC
    value    regression of V and Q                           all
    ppo      the clipped surrogate                           PPO
    sac      policy and entropy temperature                  SMC-ENT, continuous
"""

from spo.losses.duals import positive_from_raw, raw_from_positive
from spo.losses.e_step import kl_from_prior, target_weights, temperature_loss, top_half
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
    "kl_from_prior",
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
