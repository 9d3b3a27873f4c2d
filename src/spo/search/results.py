"""The output of a search from its last particles and its records (Algorithm 1, lines 13 and 14)."""

import jax
import jax.numpy as jnp

from spo.keys import numbered_keys
from spo.search import diagnostics, readouts, weighting
from spo.search.base import Ancestry, Diagnostics, Particles, ReadoutInputs, RootSamples, SearchOutput
from spo.search.batches import nan_unless, normalise, take
from spo.search.state import DepthRecord, Functions, Loop
from spo.trees import select
from spo.types import Action, Array, Bool, Float, PRNGKey


def read_out(
    key: PRNGKey, loop: Loop, records: DepthRecord, samples: RootSamples, functions: Functions, horizon: int
) -> SearchOutput:
    """Estimates the improved policy from the particles and draws an action from it (Algorithm 2, line 10).

    The records have axes [H, B].
    """
    particles, num_roots = loop.particles, samples.log_weights.shape[0]
    records = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), records)
    inputs = ReadoutInputs(
        particles=particles,
        root_actions=samples.actions,
        root_log_weights=samples.log_weights,
        temperature=loop.temperature,
        horizon=jnp.full(num_roots, horizon),
    )
    root_index, weights = jax.vmap(functions.readout.finish)(loop.readout, inputs)  # line 14: the weights
    # The log-normaliser keeps a NaN from before a resample. On a CPU, XLA's exponential may lose that of a log-weight.
    log_normaliser = records.log_normaliser[:, -1]
    valid = jnp.isfinite(log_normaliser) & jnp.all(jnp.isfinite(weights) & ~jnp.isnan(particles.log_weights), axis=1)
    weights = nan_unless(valid[:, None], weights)
    read_actions = take(samples.actions, root_index)  # line 13
    picked = jax.vmap(jax.random.categorical)(numbered_keys(key, (num_roots,)), jnp.log(weights))
    num_actions = functions.distribution.num_actions(particles.prior)
    if num_actions is None:
        action_weights = None
        by_sample = jax.vmap(readouts.sum_by_root_sample)(weights, root_index)
        best_action = take(samples.actions, jnp.argmax(by_sample, axis=1))
    else:
        sums = jax.vmap(diagnostics.sum_by_action, in_axes=(0, 0, None))(read_actions, weights, num_actions)
        action_weights = nan_unless(valid[:, None], sums)
        best_action = jnp.argmax(action_weights, axis=1)
    return SearchOutput(
        action=mark_invalid(take(read_actions, picked), valid),
        best_action=mark_invalid(best_action, valid),
        root_actions=read_actions,
        weights=weights,
        action_weights=action_weights,
        value=_mean_return(particles, valid),
        log_normaliser=nan_unless(valid, log_normaliser),
        temperature_advantages=loop.temperature_advantages,
        root_log_weights=samples.log_weights,
        diagnostics=_diagnostics(records, valid),
        ancestry=_ancestry(records, loop),
    )


def _mean_return(particles: Particles, valid: Bool[Array, " B"]) -> Float[Array, " B"]:
    """The mean over the particles' weights of rewards plus V at the end of each path."""
    weights = nan_unless(valid[:, None], normalise(particles.log_weights))
    returns = particles.rewards + weighting.bootstrap(particles.discount, particles.value)
    # A particle of weight 0 does not count, even if its return is infinite.
    return jnp.sum(jnp.where(weights == 0, 0.0, weights * returns), axis=1)


def _diagnostics(records: DepthRecord, valid: Bool[Array, " B"]) -> Diagnostics:
    return Diagnostics(
        ess=records.weights.ess,
        entropy=records.weights.entropy,
        num_live=records.num_live,
        num_root_actions=records.num_root_actions,
        resampled=records.resampled,
        log_normaliser=records.log_normaliser,
        valid=valid,
    )


def _ancestry(records: DepthRecord, loop: Loop) -> Ancestry | None:
    if records.lineage is None or loop.parent is None:
        return None
    return Ancestry(**records.lineage._asdict(), survivor=loop.parent)


def scale_values(output: SearchOutput, factor: Float[Array, ""] | float) -> SearchOutput:
    """Returns the output of a search `with_ancestry` with its rewards and values multiplied by a factor."""
    ancestry = output.ancestry
    assert ancestry is not None  # asked for
    ancestry = ancestry._replace(reward=ancestry.reward * factor, value=ancestry.value * factor)
    return output._replace(value=output.value * factor, ancestry=ancestry)


def mark_invalid(action: Action, valid: Bool[Array, " B"]) -> Action:
    """Replaces the actions of invalid roots by -1, or NaN if they are continuous."""

    def nothing_like(x: Array) -> Array:
        return jnp.full_like(x, jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else -1)

    return select(valid, action, jax.tree.map(nothing_like, action))
