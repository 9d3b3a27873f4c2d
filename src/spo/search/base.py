"""Contracts of the search: its inputs, the particles, the functions that can be plugged in, and its outputs.

The paper's symbols and our names (Algorithm 1 and equations 8 to 10):

    N   num_particles          h   horizon            p   Resampling.period      η   temperature
    w   exp(log_weights)       w̄   weights            π   prior                  V   value
    Â   score (`weighting`)    γ   in `discount`      Z   normaliser; `log_normaliser` is the log of its estimate

A root sample is one of the N first actions that are drawn at the root, before any resample.

Arrays have a leading axis B, one entry per root. Particles are the second axis N. The functions that a user plugs in
are written without these axes: for one particle, or for the N particles of one root where the signature says so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from spo.types import Action, Array, Bool, Float, Integer, PRNGKey, PyTree, State

#: Parameters of an action distribution: logits, or the parameters of a Gaussian (see `spo.distributions`).
Prior: TypeAlias = PyTree[Array]


# --- Inputs -----------------------------------------------------------------------------------------------------------
class Root(NamedTuple):
    """The states to search from, evaluated by the caller.

    A belief is a root whose particles start in different states: give `value` the shape [B, N] and every leaf of
    `state` the leading axes [B, N]. `prior` stays [B, ...], because the first action can't depend on the hidden state.
    """

    prior: Prior  # [B, ...] the policy at the root
    value: Float[Array, "B *N"]  # V(s), not discounted
    state: State  # [B, ...] the input of `model_fn`
    proposal: Prior | None = None  # [B, ...] distribution of the first actions; None: the prior


class Expected(NamedTuple):
    """An estimate of E[r + γ·V(s')] over the chance of a step (`spo.search.chance`)."""

    mean: Float[Array, ""]  # over the outcomes of the step
    variance: Float[Array, ""]  # of the estimate; 0 if it is exact


class ModelOutput(NamedTuple):
    """One simulated step, as `model_fn(key, state, action)` returns it for one particle."""

    state: State  # the next state
    prior: Prior  # the policy at the next state
    value: Float[Array, ""]  # V(s'), not discounted
    reward: Float[Array, ""]  # of this step
    discount: Float[Array, ""]  # multiplies V(s'): 0 after termination, otherwise γ (1 in the paper)
    ended: Bool[Array, ""]  # terminated or truncated: this step counts, later ones do not
    expected: Expected | None = None  # None: the score counts this outcome alone, which is right without chance


#: Steps one particle: (key, state, action) -> ModelOutput.
ModelFn = Callable[[PRNGKey, State, Action], ModelOutput]


class BatchedModel(NamedTuple):
    """A model that steps all particles itself: one key, states and actions with leading axes [B, N]."""

    step: Callable[[PRNGKey, Any, Action], ModelOutput]  # (key, states, actions) -> outputs [B, N, ...]


AnyModel: TypeAlias = ModelFn | BatchedModel


# --- Particles --------------------------------------------------------------------------------------------------------
class Particles(NamedTuple):
    """Everything that a particle owns. A resample is one gather over all of it."""

    state: State  # [B, N, ...]
    prior: Prior  # [B, N, ...] the policy at `state`; without meaning once the particle has ended
    value: Float[Array, "*B N"]  # V(state)
    log_weights: Float[Array, "*B N"]  # unnormalised, counted since the last resample
    root_index: Integer[Array, "*B N"]  # index of the root sample from which the particle descends
    live: Bool[Array, "*B N"]  # False once the episode has ended: the particle keeps its weight and is not stepped
    rewards: Float[Array, "*B N"]  # sum of discounted rewards from the root to `state`
    discount: Float[Array, "*B N"]  # product of discounts from the root to `state`


# --- Functions that can be plugged in ---------------------------------------------------------------------------------
class Node(NamedTuple):
    """One particle before its step: the input of a proposal."""

    state: State  # before the step
    prior: Prior  # the policy at `state`
    value: Float[Array, ""]  # V(state)
    depth: Integer[Array, ""]  # 0 at the root
    temperature: Float[Array, ""]  # of this depth
    log_weight: Float[Array, ""]  # unnormalised, counted since the last resample


class Proposed(NamedTuple):
    """An action and the logarithm of its importance weight.

    The log-weight is log π(a|s) − log μ(a|s) for an action drawn from μ. It is 0 if μ takes the prior's place in the
    target.
    """

    action: Action  # as the model takes it
    log_weight: Float[Array, ""]  # 0: no correction


#: Draws one particle's action at any depth: (key, node) -> Proposed.
ProposeFn = Callable[[PRNGKey, Node], Proposed]


class RootSamples(NamedTuple):
    """The first actions of the particles of one root, and their initial log-weights."""

    actions: Action  # [N, ...]
    log_weights: Float[Array, " N"]  # 0: no correction


#: Draws the first actions of one root together: (key, root without the axis B, N) -> RootSamples.
RootFn = Callable[[PRNGKey, Root, int], RootSamples]


class Proposal(NamedTuple):
    """Functions that draw the actions (`spo.search.proposals`)."""

    step_fn: ProposeFn | None = None  # at every depth; None: from the prior
    root_fn: RootFn | None = None  # at the root; None: `step_fn` if there is one, else draws from `Root.proposal`


class Step(NamedTuple):
    """One particle's step: the input of a score."""

    state: State  # s
    action: Action  # a
    next_state: State  # s'
    reward: Float[Array, ""]  # of this step
    discount: Float[Array, ""]  # the model's discount
    value: Float[Array, ""]  # V(s)
    next_value: Float[Array, ""]  # V(s')
    prior: Prior  # the policy at s
    next_prior: Prior  # the policy at s'
    log_prob: Float[Array, ""]  # log π(a|s)
    ended: Bool[Array, ""]  # the episode ended with this step
    depth: Integer[Array, ""]  # 0 for the step from the root
    temperature: Float[Array, ""]  # of this depth
    log_weight: Float[Array, ""]  # before the score, unnormalised, counted since the last resample
    expected: Expected | None = None  # of the model


#: Scores a step: Step -> score. The log-weight of the particle grows by score / temperature.
ScoreFn = Callable[[Step], Float[Array, ""]]

#: Temperature of one root at a depth: (depth, effective sample size before the step) -> temperature.
TemperatureFn = Callable[[Integer[Array, ""], Float[Array, ""]], Float[Array, ""]]


class Resampled(NamedTuple):
    """The outcome of a resampling rule for one root."""

    ancestors: Integer[Array, " N"]  # particle n continues from particle ancestors[n]
    log_weights: Float[Array, " N"]  # of the particles that continue, relative to the mean weight before the resample


#: Resamples one root: (key, particles without the axis B) -> Resampled. The estimate of Z stays unbiased if the weights
#: w' that it returns have E[Σ_m w'_m 1(ancestors_m = n)] = w_n / mean(w) for every particle n.
ResampleFn = Callable[[PRNGKey, Particles], Resampled]


class ReadoutInputs(NamedTuple):
    """One root at the end of the search: the input of a read-out."""

    particles: Particles  # after the last step, and after the last resample if there is one
    root_actions: Action  # [N, ...] the root samples
    root_log_weights: Float[Array, " N"]  # their initial log-weights
    temperature: Float[Array, ""]  # of the last step
    horizon: Integer[Array, ""]  # number of steps of the search


class RootWeights(NamedTuple):
    """An estimate of the improved policy: weights on root samples."""

    root_index: Integer[Array, " N"]  # indices of root samples
    weights: Float[Array, " N"]  # sum to 1


class Readout(NamedTuple):
    """A read-out for one root, as a fold over the depths (`spo.search.readouts`)."""

    init: Callable[[Particles], Any]  # particles at the root -> carry
    update: Callable[[Any, Particles], Any]  # (carry, particles after a step, before any resample) -> carry
    finish: Callable[[Any, ReadoutInputs], RootWeights]  # (carry, inputs) -> weights on the root samples


# --- Outputs ----------------------------------------------------------------------------------------------------------
class Diagnostics(NamedTuple):
    """Numbers to look at, per root and depth. The search does not depend on them."""

    ess: Float[Array, "B H"]  # effective sample size, 1 to N, of the weights after the step, before any resample
    entropy: Float[Array, "B H"]  # of the same weights, in nats, 0 to log N
    num_live: Integer[Array, "B H"]  # particles whose episode has not ended
    num_root_actions: Integer[Array, "B H"]  # distinct root actions among the particles, after any resample
    resampled: Bool[Array, "B H"]  # True if particles were resampled after the step
    log_normaliser: Float[Array, "B H"]  # log of the estimate of Z up to that depth
    valid: Bool[Array, " B"]  # False: a NaN, a temperature that is not positive, or a state without a valid action


class Ancestry(NamedTuple):
    """Every particle at every depth. Recorded on request only: it takes the memory of N · H states."""

    parent: Integer[Array, "B H N"]  # the particle's index at the depth above; at depth 0 its root sample
    action: Action  # [B, H, N, ...] the action that led here; without meaning once the particle has ended
    reward: Float[Array, "B H N"]  # of that step; 0 once the particle has ended
    value: Float[Array, "B H N"]  # V of the state reached
    ended: Bool[Array, "B H N"]  # the episode has ended at this depth or before
    log_weights: Float[Array, "B H N"]  # after the step, before any resample
    state: State  # [B, H, N, ...] the state reached
    survivor: Integer[Array, "B N"]  # index at the last depth of each particle of the read-out


class SearchOutput(NamedTuple):
    """The estimate of the improved policy q at the root, and the quantities that learning needs."""

    action: Action  # [B, ...] one draw from q
    best_action: Action  # [B, ...] the most likely action under q
    root_actions: Action  # [B, N, ...] first actions that estimate q together with ...
    weights: Float[Array, "B N"]  # ... these weights, which sum to 1
    action_weights: Float[Array, "B A"] | None  # weights summed per action; None for continuous actions
    value: Float[Array, " B"]  # mean return of the particles' paths, with V at their ends
    log_normaliser: Float[Array, " B"]  # log Ẑ with E[Ẑ] = Z; V(s) + η log Ẑ is the soft value of the root
    temperature_advantages: Float[Array, "B N"]  # per root sample: scores summed up to the first resample ...
    root_log_weights: Float[Array, "B N"]  # ... and the initial log-weights of the samples (0 by default)
    diagnostics: Diagnostics  # per root and depth
    ancestry: Ancestry | None  # None unless `with_ancestry`


class PolicyOutput(NamedTuple):
    """The output of `smc_policy`: mctx's two fields, and ours."""

    action: Integer[Array, " B"]  # one draw from the improved policy
    action_weights: Float[Array, "B A"]  # the improved policy
    search: SearchOutput  # everything that `search` returns
