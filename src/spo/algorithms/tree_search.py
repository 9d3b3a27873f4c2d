"""Monte-Carlo tree search, from the same roots and with the same model as the search with particles.

A tree chooses among K indices at every node. They refer to the node's `Candidates`: all discrete actions
(AlphaZero), or a few samples of the policy there (Sampled AlphaZero). A node stores its candidates, because the edge to
expand is given by its index only.

A tree averages everything that is backed up through a node, and continues below a node for any number of visits. The
end of an episode is therefore encoded on the edge that leads to it, where later visits can't change it:

    terminated   reward r,               discount 0
    truncated    reward r + γV(s'),      discount 0
    after it     reward 0, value 0,      discount 0

`spo.search.mcts` and mctx give the same results. mctx is the slower one.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from spo import losses
from spo.algorithms.base import Greedy, select_actions
from spo.search import ModelFn, mcts
from spo.search.base import Prior
from spo.types import Action, Array, Bool, Float, Integer, Metrics, PRNGKey, State

#: Library that searches.
TreeLibrary: TypeAlias = Literal["spo", "mctx"]


class Candidates(NamedTuple):
    """The actions that a node chooses among."""

    actions: Action | None  # [K, ...]; None: all discrete actions, the index being the action
    log_prior: Float[Array, " K"]  # need not be normalised; -inf: can't be chosen


#: (key, policy at a state) -> candidates of the state
CandidatesFn = Callable[[PRNGKey, Prior], Candidates]


def every_action(key: PRNGKey, logits: Float[Array, " A"]) -> Candidates:
    """Returns all discrete actions, with the policy as the prior."""
    del key
    return Candidates(actions=None, log_prior=logits)


class TreeRoot(NamedTuple):
    """The states to search from. Exploration noise, if any, is already in the candidates."""

    candidates: Candidates  # [B, K, ...]
    value: Float[Array, " B"]  # V(s)
    state: State  # [B, ...] input of the model


class TreeSearchOutput(NamedTuple):
    """The improved policy at the root, as weights on its candidates."""

    action: Action  # [B, ...] the action to take
    candidates: Candidates  # [B, K, ...] of the root
    weights: Float[Array, "B K"]  # of these candidates, summing to 1: the target of the policy
    visits: Float[Array, "B K"]
    value: Float[Array, " B"]  # mean of V at the root and of all values backed up to it
    tree: Any  # `mcts.Tree`, or mctx's with the same fields; the state and the candidates of a node are `embeddings`


class _Edge(NamedTuple):
    """The output of the model for one root: the fields of `RecurrentFnOutput`, without the axis of roots."""

    reward: Float[Array, ""]
    discount: Float[Array, ""]
    prior_logits: Float[Array, " K"]
    value: Float[Array, ""]


class _Node(NamedTuple):
    """A state as the tree stores it."""

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
    greedy: Greedy,
    candidates_fn: CandidatesFn = every_action,
    library: TreeLibrary = "spo",
) -> TreeSearchOutput:
    """MuZero's search (Schrittwieser et al., arXiv:1911.08265, appendix B); weights are the shares of visits.

    `action` is the most visited one if `greedy`, else sampled in proportion to visits (temperature 1).
    """
    output = _policies(library).muzero_policy(
        None,
        key,
        _root(root, library),
        _recurrent_fn(model_fn, candidates_fn, gamma),
        num_simulations=num_simulations,
        invalid_actions=_invalid(root),
        dirichlet_fraction=0.0,  # the policy's noise would reach invalid actions too; ours is in the root's prior
    )
    index = select_actions(greedy, jnp.argmax(output.action_weights, axis=1).astype(output.action.dtype), output.action)
    return _read_out(root, output, index)


def gumbel_search(
    key: PRNGKey,
    root: TreeRoot,
    model_fn: ModelFn,
    *,
    num_simulations: int,
    gamma: float,
    greedy: Greedy,
    max_num_considered_actions: int,
    library: TreeLibrary = "spo",
) -> TreeSearchOutput:
    """Gumbel MuZero's search (Danihelka et al., ICLR 2022) over all actions; weights are softmax(logits + q).

    `action` is the winner of sequential halving, a sample because of the Gumbel noise. If `greedy`, there is no noise.
    """
    output = _policies(library).gumbel_muzero_policy(
        None,
        key,
        _root(root, library),
        _recurrent_fn(model_fn, every_action, gamma),
        num_simulations=num_simulations,
        invalid_actions=_invalid(root),
        max_num_considered_actions=max_num_considered_actions,
        gumbel_scale=_gumbel_scale(greedy),
    )
    return _read_out(root, output, output.action)


def _gumbel_scale(greedy: Greedy) -> Any:
    """Returns the scale of the noise on first actions: a number, or one per root [B, 1]."""
    return float(not greedy) if isinstance(greedy, bool) else jnp.where(greedy, 0.0, 1.0)[:, None]


def tree_search_metrics(root_value: Float[Array, " B"], output: TreeSearchOutput) -> Metrics:
    """KL divergence of the improved policy from the prior, its entropy, actions tried and gain in value, per root."""
    log_prior = jax.nn.log_softmax(output.candidates.log_prior)
    return {
        "search/kl": losses.kl_from_prior(output.weights, log_prior),
        "search/entropy": jnp.sum(jax.scipy.special.entr(output.weights), axis=1),
        "search/num_root_actions": jnp.sum(output.visits > 0, axis=1),
        "search/value_gain": output.value - root_value,
    }


def _policies(library: TreeLibrary) -> Any:
    if library == "spo":
        return mcts
    import mctx

    return mctx


def _root(root: TreeRoot, library: TreeLibrary) -> Any:
    return _policies(library).RootFnOutput(
        prior_logits=root.candidates.log_prior,
        value=root.value,
        embedding=_Node(root.state, root.candidates.actions, ended=jnp.zeros(root.value.shape, bool)),
    )


def _invalid(root: TreeRoot) -> Float[Array, "B K"]:
    return (root.candidates.log_prior == -jnp.inf).astype(root.candidates.log_prior.dtype)


def _recurrent_fn(model_fn: ModelFn, candidates_fn: CandidatesFn, gamma: float) -> Callable[..., Any]:
    """Returns the model as a tree search calls it: for all roots at once, with one key."""

    def expand(key: PRNGKey, index: Integer[Array, ""], node: _Node) -> tuple[_Edge, _Node]:
        key_step, key_candidates = jax.random.split(key)
        step = model_fn(key_step, node.state, _pick(node.actions, index))
        candidates = candidates_fn(key_candidates, step.prior)
        discount = gamma * step.discount
        # `where`, not a product: the value of a terminal observation, even NaN, must not count.
        bootstrap = jnp.where(step.ended & (discount > 0), discount * step.value, 0.0)
        ended = node.ended | step.ended
        output = _Edge(
            reward=jnp.where(node.ended, 0.0, step.reward + bootstrap),
            discount=jnp.where(ended, 0.0, discount),
            prior_logits=candidates.log_prior,  # after an end any prior will do: nothing is backed up from there
            value=jnp.where(ended, 0.0, step.value),
        )
        return output, _Node(step.state, candidates.actions, ended)

    def recurrent_fn(params: None, key: PRNGKey, index: Integer[Array, " B"], node: _Node) -> tuple[_Edge, _Node]:
        del params  # the model has its own parameters
        return jax.vmap(expand)(jax.random.split(key, index.shape[0]), index, node)

    return recurrent_fn


def _read_out(root: TreeRoot, output: Any, index: Integer[Array, " B"]) -> TreeSearchOutput:
    summary = output.search_tree.summary()
    return TreeSearchOutput(
        action=jax.vmap(_pick)(root.candidates.actions, index),
        candidates=root.candidates,
        weights=output.action_weights,
        visits=summary.visit_counts,
        value=summary.value,
        tree=output.search_tree,
    )


def _pick(actions: Action | None, index: Integer[Array, ""]) -> Action:
    return index if actions is None else jax.tree.map(lambda x: x[index], actions)
