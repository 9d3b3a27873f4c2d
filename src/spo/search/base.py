"""The contracts of the search: what goes in, what a particle owns, what comes out.

From the paper's symbols to our names (Algorithm 1 and equations 8 to 10):

    N   num_particles          h   horizon            p   resample_period        η   temperature
    w   weights (normalised)   π   prior              V   value                  Â   score (see `weighting`)
    γ   gamma                  Z   normaliser; `log_normaliser` is the logarithm of its estimate

Shapes carry a leading axis B, one entry per root, and particles sit in the second axis N. The functions that a user
plugs in (`ModelFn`, `WeightFn`, `ResampleFn`, the functions of a `Distribution`) are written without those axes.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from spo.types import Action, Array, Bool, Float, Integer, PRNGKey, PyTree, State

#: Parameters of an action distribution: logits, or the parameters of a Gaussian (see `spo.distributions`).
Prior: TypeAlias = PyTree[Array]


class Root(NamedTuple):
    """The states to search from, evaluated by the caller: the search never evaluates a root again."""

    prior: Prior  # [B, ...] the policy at the root
    value: Float[Array, " B"]  # V(s), never discounted
    state: State  # [B, ...] what `model_fn` steps


class ModelOutput(NamedTuple):
    """One imagined step, as `model_fn(key, state, action)` returns it for one particle."""

    state: State  # the next state
    prior: Prior  # the policy there
    value: Float[Array, ""]  # V there, never discounted
    reward: Float[Array, ""]
    discount: Float[Array, ""]  # multiplies V of the next state: 0 after termination, else 1 (or the model's own γ)
    ended: Bool[Array, ""]  # terminated or truncated: this step counts, nothing after it does


ModelFn = Callable[[PRNGKey, State, Action], ModelOutput]


class Step(NamedTuple):
    """What a weighting sees of one particle's step."""

    reward: Float[Array, ""]
    discount: Float[Array, ""]  # γ times the model's discount
    value: Float[Array, ""]  # V(s)
    next_value: Float[Array, ""]  # V(s')
    log_prob: Float[Array, ""]  # log π(a|s)


#: Step -> score. The log-weight of a particle grows by score / temperature.
WeightFn = Callable[[Step], Float[Array, ""]]

#: (key, weights[N] that sum to 1) -> ancestors[N], with E[number of copies of n] = N · weights[n].
ResampleFn = Callable[[PRNGKey, Float[Array, " N"]], Integer[Array, " N"]]


class RootSamples(NamedTuple):
    """The first actions of one root's particles, and the log-weights that they begin with."""

    actions: Action  # [N, ...]
    log_weights: Float[Array, " N"]


#: (key, parameters of the proposal, N) -> RootSamples, such that the weighted actions stand for the proposal.
RootFn = Callable[[PRNGKey, Prior, int], RootSamples]


class Particles(NamedTuple):
    """Everything a particle owns. A resample is one gather over all of it, so nothing can be left behind."""

    state: State  # [B, N, ...]
    prior: Prior  # [B, N, ...] the policy at `state`, from which the next action is drawn
    value: Float[Array, "B N"]  # V(state)
    log_weights: Float[Array, "B N"]  # unnormalised, counted since the last resample
    root_index: Integer[Array, "B N"]  # which of the N root samples the particle descends from
    live: Bool[Array, "B N"]  # False once the episode ended: weight and root action stay, nothing is added
    rewards: Float[Array, "B N"]  # discounted rewards from the root to `state`
    discount: Float[Array, "B N"]  # product of discounts from the root to `state`


class Diagnostics(NamedTuple):
    """What people look at, per root and depth. Nothing in the search depends on it."""

    ess: Float[Array, "B H"]  # effective sample size, 1 .. N, of the weights after the step, before any resample
    entropy: Float[Array, "B H"]  # of the same weights, in nats, 0 .. log N
    num_live: Integer[Array, "B H"]  # particles whose episode had not ended after the step
    num_root_actions: Integer[Array, "B H"]  # distinct root actions among the particles, after any resample there
    resampled: Bool[Array, "B H"]
    log_normaliser: Float[Array, "B H"]  # log of the estimate of Z up to that depth
    valid: Bool[Array, " B"]  # False: a NaN, a temperature that is not positive, or a state with no valid action


class Ancestry(NamedTuple):
    """The whole search, for drawing it: recorded on request only, since it costs memory of order N · H."""

    parent: Integer[Array, "B H N"]  # the particle's index at the depth above; at depth 0 its root sample
    action: Action  # [B, H, N, ...] the action that led here; without meaning once the particle has ended
    reward: Float[Array, "B H N"]  # 0 once it has ended
    log_weights: Float[Array, "B H N"]  # after the step, before any resample
    survivor: Integer[Array, "B N"]  # index at the last depth of each particle of the read-out


class SearchOutput(NamedTuple):
    """The search's estimate of the improved policy q at the root, and what learning needs beside it."""

    action: Action  # [B, ...] one draw from q
    best_action: Action  # [B, ...] the most likely action under q
    root_actions: Action  # [B, N, ...] the particles' first actions (read out over all depths: the root samples) ...
    weights: Float[Array, "B N"]  # ... and their weights, which sum to 1
    action_weights: Float[Array, "B A"] | None  # weights summed per action; None for continuous actions
    value: Float[Array, " B"]  # mean return of the particles' paths under q, bootstrapped with V at their ends
    log_normaliser: Float[Array, " B"]  # log Ẑ, with E[Ẑ] = Z: V(s) + η log Ẑ is the soft value of the root
    temperature_advantages: Float[Array, "B N"]  # per root sample: scores summed up to the first resample ...
    root_log_weights: Float[Array, "B N"]  # ... and what the samples stand for: 0 each, unless `root_fn` says otherwise
    diagnostics: Diagnostics
    ancestry: Ancestry | None


class PolicyOutput(NamedTuple):
    """What `smc_policy` returns: mctx's two fields, and our own output beside them."""

    action: Integer[Array, " B"]
    action_weights: Float[Array, "B A"]
    search: SearchOutput
