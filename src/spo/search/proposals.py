"""Proposals: distributions from which actions are drawn, at the root and deeper.

By default each particle draws from its prior, and at the root from `Root.proposal` if that is given. A proposal of your
own is a `ProposeFn` for every depth, or a `RootFn` that draws the N first actions of a root together. Both return the
log-weights that correct for the draw.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from spo import distributions
from spo.distributions import Distribution
from spo.search.base import Node, Prior, Proposal, Proposed, ProposeFn, Root, RootFn, RootSamples
from spo.search.batches import nan_unless
from spo.types import Array, Float, PRNGKey


# --- At every depth ---------------------------------------------------------------------------------------------------
def from_prior(distribution: Distribution) -> ProposeFn:
    """Draws from the prior: the default below the root. The log-weight is NaN if the prior is not a distribution."""

    def propose(key: PRNGKey, node: Node) -> Proposed:
        action, valid = distributions.sample_and_check(distribution, key, node.prior)
        return Proposed(action, nan_unless(valid, jnp.zeros_like(node.log_weight)))

    return propose


def corrected(
    parameters_fn: Callable[[Node], Prior], distribution: Distribution = distributions.categorical
) -> ProposeFn:
    """Draws from the distribution with parameters `parameters_fn(node)` and corrects the weights by prior / proposal.

    The target of the search stays that of the prior. The proposal must give positive probability to every action that
    the prior can draw.
    """

    def propose(key: PRNGKey, node: Node) -> Proposed:
        parameters = parameters_fn(node)
        action = distribution.sample(key, parameters)
        return Proposed(action, _log_ratio(distribution, node.prior, parameters, action))

    return propose


def step_fn_of(proposal: Proposal, distribution: Distribution) -> ProposeFn:
    """Returns the function that draws at every depth. Its log-weight is NaN where the prior is not a distribution."""
    step_fn = proposal.step_fn
    if step_fn is None:
        return from_prior(distribution)

    def propose(key: PRNGKey, node: Node) -> Proposed:
        action, log_weight = step_fn(key, node)
        return Proposed(action, nan_unless(distribution.is_valid(node.prior), log_weight))

    return propose


# --- At the root ------------------------------------------------------------------------------------------------------
def corrected_root(distribution: Distribution = distributions.categorical) -> RootFn:
    """Draws N independent actions from `Root.proposal` and corrects the weights by prior / proposal.

    The target of the search stays that of the prior. Without this function, the proposal takes the prior's place.
    """

    def root_fn(key: PRNGKey, root: Root, num_particles: int) -> RootSamples:
        proposal = proposal_of(root)
        actions = jax.vmap(distribution.sample, in_axes=(0, None))(jax.random.split(key, num_particles), proposal)
        return RootSamples(actions, _log_ratios(distribution, root.prior, proposal, actions))

    return root_fn


def without_replacement(num_candidates: int, *, corrected: bool = False) -> RootFn:
    """Draws `num_candidates` different discrete actions by Gumbel top-k, each for a group of the particles.

    The k largest logits after adding Gumbel noise are k draws without replacement (Kool et al., arXiv:1903.06059).
    Given the (k+1)-th of them, κ, action a is among the k with probability 1 − exp(−exp(log π̃(a) − κ)). The weight of
    the action is divided by that probability: E[mean_n w_n f(a_n)] = Σ_a π̃(a) f(a) for every f, and the estimate of Z
    stays unbiased. With k = A every action is drawn. With `corrected`, weights are multiplied by prior / proposal.
    """
    if num_candidates < 1:
        raise ValueError(f"num_candidates must be at least 1, got {num_candidates}.")

    def root_fn(key: PRNGKey, root: Root, num_particles: int) -> RootSamples:
        proposal = proposal_of(root)
        actions, log_weights = _gumbel_top_k(key, proposal, min(num_candidates, num_particles), num_particles)
        if corrected:
            log_weights += _log_ratios(distributions.categorical, root.prior, proposal, actions)
        return RootSamples(actions, log_weights)

    return root_fn


def proposal_of(root: Root) -> Prior:
    """Returns the distribution of the first actions: `root.proposal`, or the prior if there is none."""
    return root.prior if root.proposal is None else root.proposal


def _gumbel_top_k(key: PRNGKey, logits: Float[Array, " A"], num_candidates: int, num_particles: int) -> RootSamples:
    num_chosen = min(num_candidates, logits.shape[0])
    log_probs = jax.nn.log_softmax(logits)
    perturbed, order = jax.lax.top_k(
        log_probs + jax.random.gumbel(key, logits.shape, logits.dtype), min(num_chosen + 1, logits.shape[0])
    )
    # If all actions are chosen, there is no (k+1)-th, and each had probability 1 to be chosen.
    threshold = perturbed[num_chosen] if num_chosen < logits.shape[0] else -jnp.inf
    order = order[:num_chosen]
    chosen = log_probs[order]
    log_inclusion = jnp.log(-jnp.expm1(-jnp.exp(chosen - threshold)))
    # Index of each particle's candidate. If k does not divide N, the first groups have one particle more, each of less
    # weight.
    candidate = np.sort(np.arange(num_particles) % num_chosen)
    group_sizes = np.bincount(candidate, minlength=num_chosen)
    log_weights = chosen - log_inclusion + jnp.log(jnp.asarray(num_particles / group_sizes, chosen.dtype))
    # If fewer than k actions are valid, the surplus particles repeat the first action with weight 0.
    valid = jnp.isfinite(chosen)
    actions = jnp.where(valid, order, order[0])
    log_weights = jnp.where(valid, log_weights, -jnp.inf)
    return RootSamples(actions[candidate], log_weights[candidate])


def _log_ratios(distribution: Distribution, prior: Prior, proposal: Prior, actions: Array) -> Float[Array, " N"]:
    return jax.vmap(_log_ratio, in_axes=(None, None, None, 0))(distribution, prior, proposal, actions)


def _log_ratio(distribution: Distribution, prior: Prior, proposal: Prior, action: Array) -> Float[Array, ""]:
    return distribution.log_prob(prior, action) - distribution.log_prob(proposal, action)
