"""The engine: sequential Monte Carlo over imagined trajectories (paper, Algorithm 1), for many roots at once.

N particles start at each root. At every depth each draws an action from its prior, the model steps it, and its weight
grows by exp(score / temperature); every `resample_period` depths the particles are redrawn in proportion to their
weights. The first actions of the particles, weighted, estimate the improved policy q at the root.

The target, whose root marginal the read-out meets as N grows:

    P(τ) ∝ π̃(a_0|s_0) · Π_{t≥1} π(a_t|s_t) · Π_t T(s_{t+1}|s_t,a_t) · exp(Σ_t score_t / temperature)

where each trajectory stops at its end and π̃ is what the root actions are drawn from (the prior, noise included).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from spo import distributions
from spo.distributions import Distribution
from spo.search import diagnostics, resampling, validation, weighting
from spo.search.base import (
    Ancestry,
    Diagnostics,
    ModelFn,
    Particles,
    Prior,
    ResampleFn,
    Root,
    RootFn,
    SearchOutput,
    Step,
    WeightFn,
)
from spo.search.diagnostics import WeightSummary
from spo.types import Action, Array, Bool, Float, Integer, PRNGKey


class _Loop(NamedTuple):
    """What one depth hands to the next. Particles own the first field, roots the others."""

    particles: Particles
    log_normaliser: Float[Array, " B"]  # of the resamples so far
    temperature_advantages: Float[Array, "B N"]  # per root sample, hence not moved by a resample
    resampled: Bool[Array, " B"]  # has there been any resample? It freezes the line above
    num_root_actions: Integer[Array, " B"]  # only a resample changes it
    root_weights: Float[Array, "B N"] | None  # per root sample, summed over depths: only where they are read out
    parent: Integer[Array, "B N"] | None  # only when ancestry is recorded


class _Lineage(NamedTuple):
    """One depth of an `Ancestry`."""

    parent: Integer[Array, "B N"]
    action: Action
    reward: Float[Array, "B N"]
    log_weights: Float[Array, "B N"]


class _Record(NamedTuple):
    """What one depth leaves behind for people to look at."""

    weights: WeightSummary
    num_live: Integer[Array, " B"]
    num_root_actions: Integer[Array, " B"]
    resampled: Bool[Array, " B"]
    log_normaliser: Float[Array, " B"]
    lineage: _Lineage | None


def search(
    key: PRNGKey,
    root: Root,
    model_fn: ModelFn,
    *,
    num_particles: int,
    horizon: int,
    temperature: Float[Array, "..."] | float,
    resample_period: int | None,
    distribution: Distribution = distributions.categorical,
    gamma: float = 1.0,
    weight_fn: WeightFn = weighting.advantage,
    resample_fn: ResampleFn = resampling.systematic,
    ess_threshold: float | None = None,
    resample_last: bool = False,
    readout: Literal["last", "all_depths"] = "last",
    root_proposal: Prior | None = None,
    correct_root_proposal: bool = False,
    root_fn: RootFn | None = None,
    vmap_model: bool = True,
    unroll: int = 4,
    with_ancestry: bool = False,
) -> SearchOutput:
    """Searches from B roots with N particles each and reads out the improved policy.

    Args:
      key: used once.
      root: prior, value and state of the roots, each with a leading axis B.
      model_fn: `(key, state, action) -> ModelOutput`, for one particle. A simulator and a learned model are the same to
        the search. Every particle brings its own key, so a stochastic model draws its own future for each.
      num_particles: N.
      horizon: h, how many steps each particle looks ahead. `model_fn` runs B x N x h times, and nothing else is costly.
      temperature: η > 0, a scalar or one per root. Low: greedy for the best particle; high: the prior.
      resample_period: p. Resample after every p-th step except the last; None: never.
      distribution: the family that `prior` parametrises: `spo.distributions.categorical`, `gaussian`, ...
      gamma: search discount, multiplying the discount that `model_fn` returns.
      weight_fn: how a step is scored (`spo.search.weighting`).
      resample_fn: how ancestors are drawn (`spo.search.resampling`). The paper's is multinomial; systematic has less
        variance at the same cost.
      ess_threshold: resample (at the depths that `resample_period` allows) only the roots whose effective sample size
        is below this fraction of N. None: always.
      resample_last: resample after the last step too where p divides h, as the paper does, and so read out uniform
        weights. Reading the weights without that draw has the same mean and less variance.
      readout: "last": the particles' first actions with their weights after the last step. "all_depths": the root
        samples with the mean over depths of what their descendants weighed, so that no resample erases a root action.
      root_proposal: what root actions are drawn from instead of `root.prior`, e.g. the prior with exploration noise. It
        takes the prior's place in the target, unless
      correct_root_proposal: weights root samples by prior / proposal, so that the target is that of the prior.
      root_fn: how root actions are drawn (`spo.search.roots`). None: independently, from the proposal.
      vmap_model: False if `model_fn` steps all particles itself: one key, states and actions with leading axes [B, N].
      unroll: how many depths are written out in a row in the compiled program. More is faster for small models (0.1 ms
        for a whole search on a GPU) and takes longer to compile: 1 for a model that is slow to compile.
      with_ancestry: record parents, actions, rewards and weights of every depth (memory of order N · h).

    A bad root (NaN from the model, a traced temperature that is not positive, no valid action) gets NaN weights, action
    -1 (NaN if continuous) and `diagnostics.valid` False. Other roots are not touched.
    """
    num_roots = validation.check_root(root)
    validation.check_sizes(num_particles, horizon, resample_period, ess_threshold, unroll)
    validation.check_proposal(root.prior, root_proposal, correct_root_proposal)
    validation.check_readout(readout, resample_last)
    proposal = root.prior if root_proposal is None else root_proposal
    validation.check_distribution(distribution, proposal)
    temperature = validation.check_temperature(temperature, num_roots)
    dtype = temperature.dtype
    num_actions = distribution.num_actions(root.prior)
    itself = jnp.broadcast_to(jnp.arange(num_particles), (num_roots, num_particles))
    everyone = jnp.ones(num_roots, bool)
    key_root, key_steps, key_resample, key_last, key_action = jax.random.split(key, 5)

    # --- Root: N first actions each -----------------------------------------------------------------------------------
    if root_fn is None:
        root_keys = jax.random.split(key_root, (num_roots, num_particles))
        root_actions = jax.vmap(jax.vmap(distribution.sample, in_axes=(0, None)))(root_keys, proposal)
        log_weights = jnp.zeros((num_roots, num_particles), dtype)
    else:
        draw = jax.vmap(root_fn, in_axes=(0, 0, None))
        root_actions, log_weights = draw(jax.random.split(key_root, num_roots), proposal, num_particles)
        log_weights = log_weights.astype(dtype)
    if correct_root_proposal:
        log_prob = jax.vmap(jax.vmap(distribution.log_prob, in_axes=(None, 0)))
        log_weights += (log_prob(root.prior, root_actions) - log_prob(proposal, root_actions)).astype(dtype)
    log_weights = _poison(log_weights, jax.vmap(distribution.is_valid)(proposal)[:, None])
    root_log_weights = log_weights

    def spread(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None], (num_roots, num_particles, *x.shape[1:]))

    particles = Particles(
        state=jax.tree.map(spread, root.state),
        prior=jax.tree.map(spread, root.prior),
        value=spread(root.value.astype(dtype)),
        log_weights=log_weights,
        root_index=itself,
        live=jnp.ones_like(itself, bool),
        rewards=jnp.zeros_like(log_weights),
        discount=jnp.ones_like(log_weights),
    )

    def count_root_actions(particles: Particles) -> Integer[Array, " B"]:
        """Two root actions are the same if they are equal (discrete) or one sample (continuous: equality is chance)."""
        if num_actions is None:
            return jax.vmap(diagnostics.count_distinct, in_axes=(0, None))(particles.root_index, num_particles)
        actions = _take(root_actions, particles.root_index)
        return jax.vmap(diagnostics.count_distinct, in_axes=(0, None))(actions, num_actions)

    # --- One depth: propose, step, weigh ------------------------------------------------------------------------------
    def advance(loop: _Loop, depth_and_key: tuple[Array, PRNGKey]) -> tuple[_Loop, _Record]:
        depth, key = depth_and_key
        key_action, key_model = jax.random.split(key)
        particles, live = loop.particles, loop.particles.live

        # The draw comes after the resample of the depth above, so that copies of one ancestor branch apart here
        # (departure 5).
        with jax.named_scope("propose"):
            action_keys = jax.random.split(key_action, (num_roots, num_particles))
            drawn = _over_particles(distribution.sample)(action_keys, particles.prior)
            action = jax.tree.map(lambda first, later: jnp.where(depth == 0, first, later), root_actions, drawn)
            drawable = _over_particles(distribution.is_valid)(particles.prior) | (depth == 0) | ~live

        with jax.named_scope("model"):
            if vmap_model:
                model_keys = jax.random.split(key_model, (num_roots, num_particles))
                model = _over_particles(model_fn)(model_keys, particles.state, action)
            else:
                model = model_fn(key_model, particles.state, action)
        validation.check_model_output(model, particles)

        step = Step(
            reward=model.reward.astype(dtype),
            discount=gamma * model.discount.astype(dtype),
            value=particles.value,
            next_value=model.value.astype(dtype),
            log_prob=_over_particles(distribution.log_prob)(particles.prior, action),
        )
        # An ended particle is stepped along for the sake of the batch, and every trace of that step is dropped here
        # (departure 4).
        score = jnp.where(live, _over_particles(weight_fn)(step), 0.0)
        growth = jnp.where(live, score / temperature[:, None], 0.0)

        def if_live(new: Array, old: Array) -> Array:
            return jnp.where(live.reshape(live.shape + (1,) * (new.ndim - live.ndim)), new, old)

        particles = Particles(
            state=jax.tree.map(if_live, model.state, particles.state),
            prior=jax.tree.map(if_live, model.prior, particles.prior),
            value=if_live(step.next_value, particles.value),
            log_weights=_poison(particles.log_weights + growth, drawable),
            root_index=particles.root_index,
            live=live & ~model.ended,
            rewards=if_live(particles.rewards + particles.discount * step.reward, particles.rewards),
            discount=if_live(particles.discount * step.discount, particles.discount),
        )
        frozen = loop.resampled[:, None]
        weights = jax.vmap(diagnostics.summarise_weights)(particles.log_weights)
        record = _Record(
            weights=weights,
            num_live=jnp.sum(particles.live, axis=1),
            num_root_actions=loop.num_root_actions,
            resampled=~everyone,
            log_normaliser=loop.log_normaliser + weights.log_mean,
            lineage=None
            if loop.parent is None
            else _Lineage(loop.parent, action, jnp.where(live, step.reward, 0.0), particles.log_weights),
        )
        loop = loop._replace(
            particles=particles,
            temperature_advantages=loop.temperature_advantages + jnp.where(frozen, 0.0, score),
            parent=itself if with_ancestry else None,
        )
        if loop.root_weights is not None:
            by_sample = _sum_by_root_sample(_normalise(particles.log_weights), particles.root_index)
            loop = loop._replace(root_weights=loop.root_weights + by_sample)
        return loop, record

    def to_resample(ess: Float[Array, " B"]) -> Bool[Array, " B"]:
        return everyone if ess_threshold is None else ess < ess_threshold * num_particles

    # --- p depths and a resample --------------------------------------------------------------------------------------
    def advance_and_resample(loop: _Loop, xs: tuple[Array, Array, PRNGKey]) -> tuple[_Loop, _Record]:
        depths, step_keys, key = xs
        loop, record = jax.lax.scan(advance, loop, (depths, step_keys), unroll=unroll)
        last = jax.tree.map(lambda x: x[-1], record)
        chosen = to_resample(last.weights.ess)
        particles, ancestors = _resample(key, loop.particles, chosen, resample_fn)
        loop = loop._replace(
            particles=particles,
            log_normaliser=loop.log_normaliser + jnp.where(chosen, last.weights.log_mean, 0.0),
            resampled=loop.resampled | chosen,
            num_root_actions=count_root_actions(particles),
            parent=ancestors if with_ancestry else None,
        )
        last = last._replace(resampled=chosen, num_root_actions=loop.num_root_actions)
        return loop, jax.tree.map(lambda rows, row: rows.at[-1].set(row), record, last)

    # --- h depths -----------------------------------------------------------------------------------------------------
    loop = _Loop(
        particles=particles,
        log_normaliser=jnp.zeros(num_roots, dtype),
        temperature_advantages=jnp.zeros_like(log_weights),
        resampled=~everyone,
        num_root_actions=count_root_actions(particles),
        root_weights=jnp.zeros_like(log_weights) if readout == "all_depths" else None,
        parent=itself if with_ancestry else None,
    )
    # When to resample is known beforehand, so that depths without a resample pay nothing for the others: the depths up
    # to the last resample run in blocks of p, the rest follows.
    period = horizon if resample_period is None else resample_period
    num_blocks = (horizon - 1) // period
    in_blocks = num_blocks * period
    xs = (jnp.arange(horizon), jax.random.split(key_steps, horizon))
    records = []
    if num_blocks > 0:
        blocks = jax.tree.map(lambda x: x[:in_blocks].reshape(num_blocks, period, *x.shape[1:]), xs)
        block_keys = jax.random.split(key_resample, num_blocks)
        loop, record = jax.lax.scan(advance_and_resample, loop, (*blocks, block_keys), unroll=max(unroll // period, 1))
        records.append(jax.tree.map(lambda x: x.reshape(in_blocks, *x.shape[2:]), record))
    loop, record = jax.lax.scan(advance, loop, jax.tree.map(lambda x: x[in_blocks:], xs), unroll=unroll)
    records.append(record)
    # [H, B, ...] in pieces -> [B, H, ...]
    record = jax.tree.map(lambda *pieces: jnp.moveaxis(jnp.concatenate(pieces), 0, 1), *records)

    # --- Read-out (departure 6) ---------------------------------------------------------------------------------------
    particles, survivor = loop.particles, itself
    if resample_last and resample_period is not None and horizon % resample_period == 0:
        chosen = to_resample(record.weights.ess[:, -1])
        particles, survivor = _resample(key_last, particles, chosen, resample_fn)
        record = record._replace(
            resampled=record.resampled.at[:, -1].set(chosen),
            num_root_actions=record.num_root_actions.at[:, -1].set(count_root_actions(particles)),
        )
    weights = _normalise(particles.log_weights)
    returns = particles.rewards + weighting.bootstrap(particles.discount, particles.value)
    # A particle of weight 0 has no say, even if its return is infinite.
    value = jnp.sum(jnp.where(weights == 0, 0.0, weights * returns), axis=1)
    read_actions = particles.root_index
    if loop.root_weights is not None:
        weights, read_actions = loop.root_weights / horizon, itself
    valid = jnp.all(jnp.isfinite(weights), axis=1)
    weights = _poison(weights, valid[:, None])
    read_out = _take(root_actions, read_actions)
    picked = jax.vmap(jax.random.categorical)(jax.random.split(key_action, num_roots), jnp.log(weights))
    if num_actions is None:
        action_weights = None
        best_action = _take(root_actions, jnp.argmax(_sum_by_root_sample(weights, read_actions), axis=1))
    else:
        sums = jax.vmap(diagnostics.sum_by_action, in_axes=(0, 0, None))(read_out, weights, num_actions)
        action_weights = _poison(sums, valid[:, None])
        best_action = jnp.argmax(action_weights, axis=1)
    return SearchOutput(
        action=_mark_invalid(_take(read_out, picked), valid),
        best_action=_mark_invalid(best_action, valid),
        root_actions=read_out,
        weights=weights,
        action_weights=action_weights,
        value=value,
        log_normaliser=_poison(record.log_normaliser[:, -1], valid),
        temperature_advantages=loop.temperature_advantages,
        root_log_weights=root_log_weights,
        diagnostics=Diagnostics(
            ess=record.weights.ess,
            entropy=record.weights.entropy,
            num_live=record.num_live,
            num_root_actions=record.num_root_actions,
            resampled=record.resampled,
            log_normaliser=record.log_normaliser,
            valid=valid,
        ),
        ancestry=None if record.lineage is None else Ancestry(**record.lineage._asdict(), survivor=survivor),
    )


def _resample(
    key: PRNGKey, particles: Particles, chosen: Bool[Array, " B"], resample_fn: ResampleFn
) -> tuple[Particles, Integer[Array, "B N"]]:
    """Redraws the particles of the chosen roots: one gather over everything a particle owns, weights back to 1."""
    num_roots, num_particles = particles.log_weights.shape
    weights = _normalise(particles.log_weights)
    with jax.named_scope("resample"):
        ancestors = jax.vmap(resample_fn)(jax.random.split(key, num_roots), weights)
    ancestors = jnp.where(chosen[:, None], ancestors, jnp.arange(num_particles)[None, :])
    particles = _take(particles, ancestors)
    # 0 for a sound root, NaN for a poisoned one: a resample must not launder a NaN.
    reset = jnp.zeros_like(weights) * jnp.sum(weights, axis=1, keepdims=True)
    return particles._replace(log_weights=jnp.where(chosen[:, None], reset, particles.log_weights)), ancestors


def _sum_by_root_sample(weights: Float[Array, "B N"], root_index: Integer[Array, "B N"]) -> Float[Array, "B N"]:
    """What the descendants of each root sample weigh together."""
    return jax.vmap(lambda w, index: jnp.zeros_like(w).at[index].add(w))(weights, root_index)


def _take(tree: Any, index: Integer[Array, "B *n"]) -> Any:
    """tree[b, index[b]] in every leaf."""
    return jax.tree.map(lambda x: jax.vmap(lambda rows, i: rows[i])(x, index), tree)


def _over_particles(function: Callable) -> Callable:
    return jax.vmap(jax.vmap(function))


def _normalise(log_weights: Float[Array, "B N"]) -> Float[Array, "B N"]:
    return jax.nn.softmax(log_weights, axis=1)


def _poison(values: Float[Array, "..."], sound: Bool[Array, "..."]) -> Float[Array, "..."]:
    """NaN wherever something is unsound, so that no later step can turn it into a plausible answer."""
    return jnp.where(sound, values, jnp.nan)


def _mark_invalid(action: Action, valid: Bool[Array, " B"]) -> Action:
    def mark(x: Array) -> Array:
        nothing = jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else -1
        return jnp.where(valid.reshape(valid.shape + (1,) * (x.ndim - 1)), x, jnp.asarray(nothing, x.dtype))

    return jax.tree.map(mark, action)
