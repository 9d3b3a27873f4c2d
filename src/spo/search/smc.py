"""The search: sequential Monte Carlo over simulated trajectories (paper, Algorithm 1), for many roots at once.

N particles start at each root. At every depth each particle draws an action, the model steps it, and its weight grows
by exp(score / temperature). Every `period` depths the particles are redrawn in proportion to their weights. The first
actions of the particles, weighted, estimate the improved policy q at the root.

The target distribution over trajectories, whose root marginal the read-out estimates:

    P(τ) ∝ π̃(a_0|s_0) · Π_{t≥1} π(a_t|s_t) · Π_t T(s_{t+1}|s_t,a_t) · exp(Σ_t score_t / temperature)

A trajectory stops at its end. π̃ is the distribution of the root actions: the prior, or `Root.proposal`. It is the
prior as well if the weights are corrected for the proposal (`proposals.corrected_root`).

Line numbers in comments are those of Algorithm 1. Depth 0 is step i = t + 1 of its loop, and the actions drawn there
are its first actions a_t. "Departure N" is row N of docs/departures.md.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spo import distributions
from spo.distributions import Distribution
from spo.keys import join_keys, numbered_keys, split_in_one_kernel
from spo.search import diagnostics, proposals, readouts, validation, weighting
from spo.search.base import (
    AnyModel,
    BatchedModel,
    ModelOutput,
    Node,
    Particles,
    Proposal,
    Readout,
    ResampleFn,
    Root,
    RootSamples,
    ScoreFn,
    SearchOutput,
    Step,
    TemperatureFn,
)
from spo.search.batches import (
    count_root_actions,
    identity_ancestors,
    nan_unless,
    over_particles,
    take,
)
from spo.search.resampling import Resampling
from spo.search.results import read_out
from spo.search.state import DepthRecord, Functions, Lineage, Loop, Stepped
from spo.trees import select
from spo.types import Action, Array, Bool, Float, Integer, PRNGKey, PRNGKeys


def search(
    key: PRNGKey,
    root: Root,
    model_fn: AnyModel,
    *,
    num_particles: int,
    horizon: int,
    temperature: Float[Array, "..."] | float | TemperatureFn,
    resampling: Resampling,
    distribution: Distribution = distributions.categorical,
    score_fn: ScoreFn = weighting.advantage,
    proposal: Proposal = Proposal(),  # noqa: B008 (immutable)
    readout: Readout = readouts.last,
    unroll: int = 8,
    with_ancestry: bool = False,
) -> SearchOutput:
    """Searches from B roots with N particles each and estimates the improved policy.

    Args:
      key: random key.
      root: prior, value and state of the roots, each with a leading axis B.
      model_fn: `(key, state, action) -> ModelOutput` for one particle: a simulator or a learned model. It runs
        B x N x h times, each with its own key. The discount that it returns contains γ.
      num_particles: N.
      horizon: h, the number of steps that each particle looks ahead.
      temperature: η > 0, a scalar or one per root. With a low temperature the best particle decides, with a high one
        the prior. A function `(depth, ess) -> temperature` lets it follow the depth or the effective sample size.
      resampling: when and how particles are redrawn: `Resampling(period=4)`.
      distribution: the family that `prior` parametrises: `spo.distributions.categorical`, `gaussian`, ...
      score_fn: score of a step (`spo.search.weighting`).
      proposal: how actions are drawn, if not from the prior (`spo.search.proposals`).
      readout: how the improved policy is estimated from the particles (`spo.search.readouts`).
      unroll: number of depths per iteration of the compiled loop. A larger number runs faster for small models and
        takes longer to compile. Use 1 for a model that is slow to compile.
      with_ancestry: record every particle at every depth, its state included (memory of N · h states).

    Returns:
      The estimated policy, a sampled action, diagnostics and the quantities that learning needs. An invalid root (NaN
      from the model, a traced temperature that is not positive, no valid action) gets NaN weights, action -1 (NaN if
      continuous) and `diagnostics.valid` False. Other roots are not affected.
    """
    validation.check_sizes(num_particles, horizon, unroll)
    num_roots = validation.check_root(root, num_particles)
    validation.check_type("resampling", resampling, Resampling)
    validation.check_type("distribution", distribution, Distribution)
    validation.check_type("proposal", proposal, Proposal)
    validation.check_type("readout", readout, Readout)
    validation.check_type("with_ancestry", with_ancestry, bool)
    validation.check_callable("score_fn", score_fn)
    resampling.check()
    validation.check_proposal(root, proposal)
    validation.check_distribution(distribution, proposals.proposal_of(root))
    if readout is readouts.all_depths and resampling.last:
        raise ValueError("readouts.all_depths reads the weights of every depth: Resampling.last must be False.")
    if readout is readouts.mean_returns and not resampling.never_within(horizon):
        raise ValueError(
            "readouts.mean_returns averages the returns of unweighted particles: use Resampling(period=None), or a "
            "period of at least the horizon with last=False."
        )
    functions = Functions(
        model_fn=_over_roots_and_particles(model_fn),
        distribution=distribution,
        score_fn=score_fn,
        propose_fn=proposals.step_fn_of(proposal, distribution),
        temperature_fn=_temperature_fn(temperature, num_roots),
        resampling=resampling,
        readout=readout,
    )
    key_root, key_steps, key_resample, key_last, key_action = split_in_one_kernel(key, 5)
    key_root, step_keys = join_keys(key_root, jax.random.split(key_steps, (horizon, 2)))
    samples = _draw_root_actions(key_root, root, num_particles, proposal, functions)
    loop = _start(root, samples, functions, with_ancestry)
    loop, records = _run_depths(step_keys, key_resample, loop, samples.actions, functions, horizon, unroll)
    loop, records = _resample_last(key_last, loop, records, samples.actions, functions, horizon)
    return read_out(key_action, loop, records, samples, functions, horizon)  # lines 13 and 14


# --- The root: N particles and their first actions (Algorithm 1, lines 1, 2 and 4) ------------------------------------
def _draw_root_actions(
    key: PRNGKey, root: Root, num_particles: int, proposal: Proposal, functions: Functions
) -> RootSamples:
    """Draws N first actions per root, [B, N, ...] (line 4 at depth 0), and sets their initial log-weights (line 2).

    These are 0, or the corrections that a function of `proposal` returns. They are NaN for a root without a valid
    action.
    """
    num_roots = root.value.shape[0]
    first_proposal = proposals.proposal_of(root)
    depth = jnp.zeros((), jnp.int32)
    temperature = functions.temperature_fn(depth, jnp.zeros((num_roots, num_particles)))
    # Weights have the type of the temperature: float32 or wider.
    log_weights = jnp.zeros((num_roots, num_particles), temperature.dtype)
    if proposal.root_fn is not None:
        draw = jax.vmap(proposal.root_fn, in_axes=(0, 0, None))
        actions, log_weights = draw(numbered_keys(key, (num_roots,)), root, num_particles)
        log_weights = log_weights.astype(temperature.dtype)
    elif proposal.step_fn is not None:
        actions, log_weights = _propose(key, depth, _spread_root(root, log_weights), temperature, functions)
    else:
        keys = numbered_keys(key, (num_roots, num_particles))
        actions = jax.vmap(jax.vmap(functions.distribution.sample, in_axes=(0, None)))(keys, first_proposal)
    valid = jax.vmap(functions.distribution.is_valid)(first_proposal)
    return RootSamples(actions, nan_unless(valid[:, None], log_weights))


def _spread_root(root: Root, log_weights: Float[Array, "B N"]) -> Particles:
    """Returns N particles at each root (line 1)."""
    num_roots, num_particles = log_weights.shape
    is_belief = root.value.ndim == 2

    def spread(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None], (num_roots, num_particles, *x.shape[1:]))

    value = root.value.astype(log_weights.dtype)
    root_index = identity_ancestors(num_roots, num_particles)
    return Particles(
        state=root.state if is_belief else jax.tree.map(spread, root.state),
        prior=jax.tree.map(spread, root.prior),
        value=value if is_belief else spread(value),
        log_weights=log_weights,
        root_index=root_index,
        live=jnp.ones_like(root_index, bool),
        rewards=jnp.zeros_like(log_weights),
        discount=jnp.ones_like(log_weights),
    )


def _start(root: Root, samples: RootSamples, functions: Functions, with_ancestry: bool) -> Loop:
    particles = _spread_root(root, samples.log_weights)
    num_roots, num_particles = samples.log_weights.shape
    return Loop(
        particles=particles,
        log_normaliser=jnp.zeros(num_roots, samples.log_weights.dtype),
        temperature_advantages=jnp.zeros_like(samples.log_weights),
        resampled=jnp.zeros(num_roots, bool),
        num_root_actions=count_root_actions(particles, samples.actions, functions.distribution),
        readout=jax.vmap(functions.readout.init)(particles),
        temperature=functions.temperature_fn(jnp.zeros((), jnp.int32), particles.log_weights),
        parent=identity_ancestors(num_roots, num_particles) if with_ancestry else None,
    )


# --- h depths (Algorithm 1, lines 3 to 12) ----------------------------------------------------------------------------
def _run_depths(
    step_keys: PRNGKeys,
    key_resample: PRNGKey,
    loop: Loop,
    root_actions: Action,
    functions: Functions,
    horizon: int,
    unroll: int,
) -> tuple[Loop, DepthRecord]:
    """Steps all depths, with a resample after every `period`-th depth except the last. Records have axes [H, B].

    The depths of the resamples are known when tracing. So the depths up to the last resample run in blocks of `period`
    steps and one resample, and the others run without.
    """
    # Line 8 is decided here, when tracing: every block ends with a resample. The last depth is in no block and is left
    # to `_resample_last`. Without a period there are no blocks.
    period = functions.resampling.period or horizon
    num_blocks = (horizon - 1) // period
    in_blocks = num_blocks * period

    def step(loop: Loop, depth_and_keys: tuple[Array, PRNGKeys]) -> tuple[Loop, Stepped]:
        return _step(*depth_and_keys, loop, root_actions, functions)

    def step_block(loop: Loop, inputs: tuple[Array, PRNGKeys, PRNGKey]) -> tuple[Loop, DepthRecord]:
        depths, keys, key = inputs
        loop, stepped = jax.lax.scan(step, loop, (depths, keys), unroll=unroll)
        loop, records = _resample(key, loop, _summarise(stepped, loop), root_actions, functions)
        return _keep_invalid(loop), records

    # Constants, not `jnp.arange`: if the loop is unrolled, XLA then drops the draw that depth 0 discards.
    inputs = (np.arange(horizon, dtype=np.int32), step_keys)
    pieces = []
    if num_blocks > 0:
        blocks = jax.tree.map(lambda x: x[:in_blocks].reshape(num_blocks, period, *x.shape[1:]), inputs)
        block_keys = jax.random.split(key_resample, num_blocks)
        loop, records = jax.lax.scan(step_block, loop, (*blocks, block_keys), unroll=max(unroll // period, 1))
        pieces.append(jax.tree.map(lambda x: x.reshape(in_blocks, *x.shape[2:]), records))
    loop, stepped = jax.lax.scan(step, loop, jax.tree.map(lambda x: x[in_blocks:], inputs), unroll=unroll)
    pieces.append(_summarise(stepped, loop))
    return loop, jax.tree.map(lambda *parts: jnp.concatenate(parts), *pieces)


def _step(
    depth: Integer[Array, ""], keys: PRNGKeys, loop: Loop, root_actions: Action, functions: Functions
) -> tuple[Loop, Stepped]:
    """One depth: draws actions (line 4), steps the model (lines 5 and 6), updates the weights (line 7)."""
    key_action, key_model = keys
    before = loop.particles
    temperature = functions.temperature_fn(depth, before.log_weights)
    # Drawn after the resample of the depth above, so that copies of one ancestor separate here (departure 5: the
    # reference draws before it). At depth 0 the draw is discarded: the root actions are there already.
    with jax.named_scope("propose"):
        drawn, log_weights = _propose(key_action, depth, before, temperature, functions)
        action = jax.tree.map(lambda first, later: jnp.where(depth == 0, first, later), root_actions, drawn)
        # At depth 0, `_draw_root_actions` has corrected the weights already. Ended particles keep theirs.
        log_weights = jnp.where((depth == 0) | ~before.live, before.log_weights, log_weights)
    with jax.named_scope("model"):
        model = functions.model_fn(key_model, before.state, action)
    validation.check_model_output(model, before)
    step = _as_step(depth, before._replace(log_weights=log_weights), action, model, temperature, functions)
    # An ended particle is stepped with the batch, and the result is dropped here and in `_advance` (departure 4).
    score = jnp.where(before.live, over_particles(functions.score_fn)(step), 0.0)
    # A particle of weight 0 keeps it, even if its score is infinite: soft_advantage of an action that π can't draw.
    counts = before.live & (log_weights > -jnp.inf)
    growth = jnp.where(counts, score / temperature[:, None], 0.0)  # masked again: 0 / NaN is NaN
    particles = _advance(before, step, log_weights + growth)

    stepped = Stepped(
        log_weights=particles.log_weights,
        live=particles.live,
        lineage=None
        if loop.parent is None
        else Lineage(
            parent=loop.parent,
            action=action,
            reward=jnp.where(before.live, step.reward, 0.0),
            value=particles.value,
            ended=~particles.live,
            log_weights=particles.log_weights,
            state=particles.state,
        ),
    )
    return loop._replace(
        particles=particles,
        # Up to the first resample, particle n descends from root sample n.
        temperature_advantages=loop.temperature_advantages + jnp.where(loop.resampled[:, None], 0.0, score),
        readout=jax.vmap(functions.readout.update)(loop.readout, particles),
        temperature=temperature,
        parent=None if loop.parent is None else identity_ancestors(*particles.live.shape),
    ), stepped


def _propose(
    key: PRNGKey,
    depth: Integer[Array, ""],
    particles: Particles,
    temperature: Float[Array, " B"],
    functions: Functions,
) -> tuple[Action, Float[Array, "B N"]]:
    """Draws one action per particle. Returns the actions and the log-weights, corrected for the draw.

    A particle whose prior is not a distribution (NaN, or every action masked) gets the log-weight NaN.
    """
    shape = particles.live.shape
    node = Node(
        state=particles.state,
        prior=particles.prior,
        value=particles.value,
        depth=jnp.broadcast_to(depth, shape),
        temperature=jnp.broadcast_to(temperature[:, None], shape),
        log_weight=particles.log_weights,
    )
    action, log_weight = over_particles(functions.propose_fn)(numbered_keys(key, shape), node)
    return action, particles.log_weights + log_weight.astype(particles.log_weights.dtype)


def _as_step(
    depth: Integer[Array, ""],
    particles: Particles,
    action: Action,
    model: ModelOutput,
    temperature: Float[Array, " B"],
    functions: Functions,
) -> Step:
    """Collects the inputs of the score. Fields that a score does not read are not computed."""
    shape, dtype = particles.live.shape, particles.log_weights.dtype
    return Step(
        state=particles.state,
        action=action,
        next_state=model.state,
        reward=model.reward.astype(dtype),
        discount=model.discount.astype(dtype),
        value=particles.value,
        next_value=model.value.astype(dtype),
        prior=particles.prior,
        next_prior=model.prior,
        log_prob=over_particles(functions.distribution.log_prob)(particles.prior, action),
        ended=model.ended,
        depth=jnp.broadcast_to(depth, shape),
        temperature=jnp.broadcast_to(temperature[:, None], shape),
        log_weight=particles.log_weights,
        expected=None if model.expected is None else jax.tree.map(lambda x: x.astype(dtype), model.expected),
    )


def _advance(before: Particles, step: Step, log_weights: Float[Array, "B N"]) -> Particles:
    """The particles after the step. Ended particles stay as they are."""
    live = before.live
    return Particles(
        state=select(live, step.next_state, before.state),
        prior=step.next_prior,  # not read once the particle has ended, so that no select is spent on it
        value=select(live, step.next_value, before.value),
        log_weights=log_weights,
        root_index=before.root_index,
        live=live & ~step.ended,
        rewards=select(live, before.rewards + before.discount * step.reward, before.rewards),
        discount=select(live, before.discount * step.discount, before.discount),
    )


def _summarise(stepped: Stepped, loop: Loop) -> DepthRecord:
    """Returns the diagnostics [H, B] of the depths since the last resample, in as few kernels as those of one depth."""
    weights = jax.vmap(jax.vmap(diagnostics.summarise_weights))(stepped.log_weights)
    return DepthRecord(
        weights=weights,
        num_live=jnp.sum(stepped.live, axis=2),
        num_root_actions=jnp.broadcast_to(loop.num_root_actions, weights.ess.shape),
        resampled=jnp.zeros_like(weights.ess, bool),
        log_normaliser=loop.log_normaliser[None] + weights.log_mean,
        lineage=stepped.lineage,
    )


# --- Resampling (Algorithm 1, lines 9 and 10) -------------------------------------------------------------------------
def _resample(
    key: PRNGKey, loop: Loop, records: DepthRecord, root_actions: Action, functions: Functions
) -> tuple[Loop, DepthRecord]:
    """Resamples the roots that are due (line 9) and starts their weights anew (line 10), both by `Resampling.rule`.

    Changes two diagnostics of the last depth in `records`.
    """
    resampling, ess, log_mean = functions.resampling, records.weights.ess[-1], records.weights.log_mean[-1]
    due = jnp.ones_like(loop.resampled)
    if resampling.ess_below is not None:
        due = ess < resampling.ess_below * loop.particles.live.shape[1]
    particles, ancestors = _resample_particles(key, loop.particles, due, resampling.rule)
    num_root_actions = count_root_actions(particles, root_actions, functions.distribution)
    loop = loop._replace(
        particles=particles,
        log_normaliser=loop.log_normaliser + jnp.where(due, log_mean, 0.0),
        resampled=loop.resampled | due,
        num_root_actions=num_root_actions,
        parent=None if loop.parent is None else ancestors,
    )
    return loop, records._replace(
        resampled=records.resampled.at[-1].set(due),
        num_root_actions=records.num_root_actions.at[-1].set(num_root_actions),
    )


def _keep_invalid(loop: Loop) -> Loop:
    """Makes the log-weights of an invalid root NaN again after a resample. Its log-normaliser is still NaN."""
    log_weights = loop.particles.log_weights + 0.0 * loop.log_normaliser[:, None]
    return loop._replace(particles=loop.particles._replace(log_weights=log_weights))


def _resample_particles(
    key: PRNGKey, particles: Particles, due: Bool[Array, " B"], rule: ResampleFn
) -> tuple[Particles, Integer[Array, "B N"]]:
    """Redraws the particles of the roots that are due: one gather over everything that a particle owns."""
    num_roots, num_particles = particles.log_weights.shape
    with jax.named_scope("resample"):
        ancestors, log_weights = jax.vmap(rule)(numbered_keys(key, (num_roots,)), particles)
    ancestors = jnp.where(due[:, None], ancestors, jnp.arange(num_particles)[None, :])
    log_weights = jnp.where(due[:, None], log_weights.astype(particles.log_weights.dtype), particles.log_weights)
    return take(particles, ancestors)._replace(log_weights=log_weights), ancestors


def _resample_last(
    key: PRNGKey, loop: Loop, records: DepthRecord, root_actions: Action, functions: Functions, horizon: int
) -> tuple[Loop, DepthRecord]:
    """Resamples after the last depth, if that is asked for (departure 6)."""
    resampling = functions.resampling
    if not resampling.last or resampling.period is None or horizon % resampling.period:
        return loop, records
    return _resample(key, loop, records, root_actions, functions)


# --- Temperature ------------------------------------------------------------------------------------------------------
def _temperature_fn(
    temperature: Float[Array, "..."] | float | TemperatureFn, num_roots: int
) -> Callable[[Array, Float[Array, "B N"]], Float[Array, " B"]]:
    """Returns a function (depth, log-weights) -> temperature per root. A value that is not positive becomes NaN."""
    if not callable(temperature):
        constant = validation.check_temperature(temperature, num_roots)
        return lambda _depth, _log_weights: constant

    def follow(depth: Array, log_weights: Float[Array, "B N"]) -> Float[Array, " B"]:
        ess = jax.vmap(diagnostics.summarise_weights)(log_weights).ess
        return validation.check_temperature(jax.vmap(temperature, in_axes=(None, 0))(depth, ess), num_roots)

    return follow


# --- Small tools ------------------------------------------------------------------------------------------------------
def _over_roots_and_particles(model_fn: AnyModel) -> Callable[[PRNGKey, Any, Action], ModelOutput]:
    if isinstance(model_fn, BatchedModel):
        return model_fn.step

    def step(key: PRNGKey, state: Any, action: Action) -> ModelOutput:
        shape = jax.tree.leaves(action)[0].shape[:2]
        return over_particles(model_fn)(numbered_keys(key, shape), state, action)

    return step
