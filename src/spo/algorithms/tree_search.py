"""Monte-Carlo tree search by mctx, from the same roots and over the same model as the search with particles.

A tree of mctx chooses among K numbers at every node. What the numbers stand for is the node's `Candidates`: all
discrete actions (AlphaZero), or a few draws from the policy there (Sampled AlphaZero). A node keeps them, since the
edge that is expanded next is known by its number only.

Ends. mctx averages whatever is backed up through a node, and goes on through a node for as long as it likes. So an end
is told on the edge that leads to it, where no later visit can wash it out:

    terminated   reward r,               discount 0
    truncated    reward r + γV(s'),      discount 0
    after it     reward 0, value 0,      discount 0
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mctx

from spo.search import ModelFn
from spo.search.base import Prior
from spo.types import Action, Array, Bool, Float, Integer, PRNGKey, State


class Candidates(NamedTuple):
    """The actions that a node chooses among."""

    actions: Action | None  # [K, ...]; None: all there are, each known by its number
    log_prior: Float[Array, " K"]  # need not be normalised; -inf: not to be taken


#: (key, policy at a state) -> the candidates there
CandidatesFn = Callable[[PRNGKey, Prior], Candidates]


def every_action(key: PRNGKey, logits: Float[Array, " A"]) -> Candidates:
    """All discrete actions, with the policy as the prior."""
    del key  # nothing is drawn
    return Candidates(actions=None, log_prior=logits)


class TreeRoot(NamedTuple):
    """The states to search from. Exploration noise, if any, is in the candidates already."""

    candidates: Candidates  # [B, K, ...]
    value: Float[Array, " B"]  # V(s)
    state: State  # [B, ...] what the model steps


class TreeSearchOutput(NamedTuple):
    """The improved policy at the root, as weights on its candidates."""

    action: Action  # [B, ...] the one to take
    candidates: Candidates  # [B, K, ...] of the root ...
    weights: Float[Array, "B K"]  # ... and their weights, which sum to 1: what the policy learns
    visits: Float[Array, "B K"]
    value: Float[Array, " B"]  # mean of V at the root and of all that was backed up to it


class _Node(NamedTuple):
    """What the tree keeps of a state: no more than it takes to go on from there."""

    state: State
    actions: Action | None
    ended: Bool[Array, ""]


def puct_search(
    key: PRNGKey,
    root: TreeRoot,
    model_fn: ModelFn,
    *,
    num_simulations: int,
    gamma: float,
    greedy: bool,
    candidates_fn: CandidatesFn = every_action,
) -> TreeSearchOutput:
    """MuZero's search (Schrittwieser et al., arXiv:1911.08265, appendix B); weights are the shares of visits.

    `action` is the most visited one if `greedy`, else drawn in proportion to visits (temperature 1).
    """
    output = mctx.muzero_policy(
        None,
        key,
        _root(root),
        _recurrent_fn(model_fn, candidates_fn, gamma),
        num_simulations=num_simulations,
        invalid_actions=_invalid(root),
        dirichlet_fraction=0.0,  # mctx's own noise would fall on invalid actions as well: ours is in the root's prior
    )
    index = jnp.argmax(output.action_weights, axis=1) if greedy else output.action
    return _read_out(root, output, index)


def gumbel_search(
    key: PRNGKey,
    root: TreeRoot,
    model_fn: ModelFn,
    *,
    num_simulations: int,
    gamma: float,
    greedy: bool,
    max_num_considered_actions: int,
) -> TreeSearchOutput:
    """Gumbel MuZero's search (Danihelka et al., ICLR 2022) over all actions; weights are softmax(logits + q).

    `action` is the winner of the sequential halving, which Gumbel noise makes a draw. If `greedy` there is no noise.
    """
    output = mctx.gumbel_muzero_policy(
        None,
        key,
        _root(root),
        _recurrent_fn(model_fn, every_action, gamma),
        num_simulations=num_simulations,
        invalid_actions=_invalid(root),
        max_num_considered_actions=max_num_considered_actions,
        gumbel_scale=0.0 if greedy else 1.0,
    )
    return _read_out(root, output, output.action)


def _root(root: TreeRoot) -> mctx.RootFnOutput:
    return mctx.RootFnOutput(
        prior_logits=root.candidates.log_prior,
        value=root.value,
        embedding=_Node(root.state, root.candidates.actions, ended=jnp.zeros(root.value.shape, bool)),
    )


def _invalid(root: TreeRoot) -> Float[Array, "B K"]:
    return (root.candidates.log_prior == -jnp.inf).astype(root.candidates.log_prior.dtype)


def _recurrent_fn(model_fn: ModelFn, candidates_fn: CandidatesFn, gamma: float) -> mctx.RecurrentFn:
    """The model as mctx calls it: for all roots at once, with one key."""

    def expand(key: PRNGKey, index: Integer[Array, ""], node: _Node) -> tuple[mctx.RecurrentFnOutput, _Node]:
        key_step, key_candidates = jax.random.split(key)
        step = model_fn(key_step, node.state, _pick(node.actions, index))
        candidates = candidates_fn(key_candidates, step.prior)
        discount = gamma * step.discount
        # `where` and not a product: whatever a network says of a terminal observation, NaN included, must not count.
        bootstrap = jnp.where(step.ended & (discount > 0), discount * step.value, 0.0)
        ended = node.ended | step.ended
        output = mctx.RecurrentFnOutput(
            reward=jnp.where(node.ended, 0.0, step.reward + bootstrap),
            discount=jnp.where(ended, 0.0, discount),
            prior_logits=candidates.log_prior,  # after an end any will do, NaN included: nothing comes back from there
            value=jnp.where(ended, 0.0, step.value),
        )
        return output, _Node(step.state, candidates.actions, ended)

    def recurrent_fn(
        params: None, key: PRNGKey, index: Integer[Array, " B"], node: _Node
    ) -> tuple[mctx.RecurrentFnOutput, _Node]:
        del params  # the model has its own
        return jax.vmap(expand)(jax.random.split(key, index.shape[0]), index, node)

    return recurrent_fn


def _read_out(root: TreeRoot, output: mctx.PolicyOutput, index: Integer[Array, " B"]) -> TreeSearchOutput:
    summary = output.search_tree.summary()
    return TreeSearchOutput(
        action=jax.vmap(_pick)(root.candidates.actions, index),
        candidates=root.candidates,
        weights=output.action_weights,
        visits=summary.visit_counts,
        value=summary.value,
    )


def _pick(actions: Action | None, index: Integer[Array, ""]) -> Action:
    return index if actions is None else jax.tree.map(lambda x: x[index], actions)
