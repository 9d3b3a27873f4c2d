"""MuZero's and Gumbel MuZero's search, with the arguments and results of mctx's policies."""

from typing import Any

import jax
import jax.numpy as jnp

from spo.search.mcts.qtransforms import (
    QTransform,
    qtransform_by_parent_and_siblings,
    qtransform_completed_by_mix_value,
)
from spo.search.mcts.rules import HalvingData, Puct, SequentialHalving, halving_schedules, halving_scores
from spo.search.mcts.simulations import grow_trees
from spo.search.mcts.tree import ROOT, PolicyOutput
from spo.search.mcts.tree import RootFnOutput as Roots
from spo.search.mcts.walks import masked_argmax
from spo.search.policies import RecurrentFn, RootFnOutput
from spo.types import Array, Float, PRNGKey, PyTree


def muzero_policy(
    params: PyTree,
    rng_key: PRNGKey,
    root: RootFnOutput,
    recurrent_fn: RecurrentFn,
    num_simulations: int,
    invalid_actions: Array | None = None,
    max_depth: int | None = None,
    *,
    qtransform: QTransform = qtransform_by_parent_and_siblings,
    dirichlet_fraction: float = 0.25,
    dirichlet_alpha: float = 0.3,
    pb_c_init: float = 1.25,
    pb_c_base: float = 19652,
    temperature: float = 1.0,
) -> PolicyOutput:
    """Runs MuZero's search (Schrittwieser et al., arXiv:1911.08265, appendix B), as `mctx.muzero_policy` does.

    Args:
      params: first argument of `recurrent_fn`.
      rng_key: random key.
      root: `prior_logits` [B, A], `value` [B], `embedding` [B, ...].
      recurrent_fn: `(params, rng_key, action [B], embedding [B, ...]) -> (RecurrentFnOutput, embedding)`.
      num_simulations: number of simulations. Each of them calls `recurrent_fn` once.
      invalid_actions: [B, A], 1 where an action is invalid at the root.
      max_depth: largest number of edges from the root to a leaf; None: no limit.
      qtransform: transformation of Q-values, a function of (tree, index of a node).
      dirichlet_fraction: weight of the exploration noise at the root, from 0 to 1.
      dirichlet_alpha: concentration of that noise.
      pb_c_init: constant c₁ of PUCT.
      pb_c_base: constant c₂ of PUCT.
      temperature: actions are drawn in proportion to visits ** (1 / temperature). 0: the most visited action.

    Returns:
      `action`, `action_weights` (shares of visits) and `search_tree`.
    """
    key_action, key_noise, key_search = jax.random.split(rng_key, 3)
    prior = jax.nn.softmax(root.prior_logits)
    if not isinstance(dirichlet_fraction, int | float) or dirichlet_fraction != 0:
        batch, num_actions = prior.shape
        noise = jax.random.dirichlet(key_noise, jnp.full(num_actions, dirichlet_alpha), shape=(batch,))
        prior = (1 - dirichlet_fraction) * prior + dirichlet_fraction * noise
    tree = grow_trees(
        params,
        key_search,
        Roots(_masked(_safe_log(prior), invalid_actions), root.value, root.embedding),
        recurrent_fn,
        Puct(qtransform, pb_c_init, pb_c_base),
        num_simulations=num_simulations,
        max_depth=max_depth,
        invalid_actions=invalid_actions,
    )
    shares = tree.summary().visit_probs
    logits = _safe_log(shares)
    logits = logits - jnp.max(logits, axis=-1, keepdims=True)
    action = jax.random.categorical(key_action, logits / jnp.maximum(jnp.finfo(logits.dtype).tiny, temperature))
    return PolicyOutput(action=action, action_weights=shares, search_tree=tree)


def gumbel_muzero_policy(
    params: PyTree,
    rng_key: PRNGKey,
    root: RootFnOutput,
    recurrent_fn: RecurrentFn,
    num_simulations: int,
    invalid_actions: Array | None = None,
    max_depth: int | None = None,
    *,
    qtransform: QTransform = qtransform_completed_by_mix_value,
    max_num_considered_actions: int = 16,
    gumbel_scale: float | Float[Array, "B 1"] = 1.0,
) -> PolicyOutput:
    """Runs Gumbel MuZero's search (Danihelka et al., ICLR 2022), as `mctx.gumbel_muzero_policy` does.

    Args:
      params: first argument of `recurrent_fn`.
      rng_key: random key.
      root: `prior_logits` [B, A], `value` [B], `embedding` [B, ...].
      recurrent_fn: `(params, rng_key, action [B], embedding [B, ...]) -> (RecurrentFnOutput, embedding)`.
      num_simulations: number of simulations. Each of them calls `recurrent_fn` once.
      invalid_actions: [B, A], 1 where an action is invalid at the root.
      max_depth: largest number of edges from the root to a leaf; None: no limit.
      qtransform: transformation of Q-values, a function of (tree, index of a node).
      max_num_considered_actions: largest number of first actions that sequential halving tries.
      gumbel_scale: scale of the noise on first actions, for all roots or for each. 0: none.

    Returns:
      `action` (the winner of sequential halving), `action_weights` (softmax of logits + q) and `search_tree`.
    """
    logits = _masked(root.prior_logits, invalid_actions)
    key_search, key_gumbel = jax.random.split(rng_key)
    gumbel = gumbel_scale * jax.random.gumbel(key_gumbel, logits.shape, logits.dtype)
    invalid = jnp.zeros_like(logits) if invalid_actions is None else invalid_actions
    data = HalvingData(gumbel, halving_schedules(invalid, max_num_considered_actions, num_simulations))
    tree = grow_trees(
        params,
        key_search,
        Roots(logits, root.value, root.embedding),
        recurrent_fn,
        SequentialHalving(qtransform),
        num_simulations=num_simulations,
        max_depth=max_depth,
        invalid_actions=invalid_actions,
        extra_data=data,
    )
    visits = tree.summary().visit_counts
    most_visits = jnp.max(visits, axis=-1, keepdims=True)
    transformed = jax.vmap(lambda tree: qtransform(tree, ROOT))(tree)
    action = masked_argmax(halving_scores(visits, most_visits, logits, gumbel, transformed), invalid_actions)
    weights = jax.nn.softmax(_masked(logits + transformed, invalid_actions))
    return PolicyOutput(action=action, action_weights=weights, search_tree=tree)


def _masked(logits: Float[Array, "B A"], invalid_actions: Any) -> Float[Array, "B A"]:
    """Returns logits with the lowest number for invalid actions. It is finite: if all are invalid, none gets NaN."""
    if invalid_actions is None:
        return logits
    logits = logits - jnp.max(logits, axis=-1, keepdims=True)
    return jnp.where(invalid_actions, jnp.finfo(logits.dtype).min, logits)


def _safe_log(probabilities: Float[Array, "B A"]) -> Float[Array, "B A"]:
    return jnp.log(jnp.maximum(probabilities, jnp.finfo(probabilities.dtype).tiny))
