"""The loop over simulations: select an edge in every tree, apply the model, back up the result."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from spo.search.mcts.kernels import Implementation, make_walks
from spo.search.mcts.rules import Rule
from spo.search.mcts.tree import NOTHING, RecurrentFnOutput, RootFnOutput, Tree, new_tree
from spo.search.mcts.walks import Edges
from spo.search.policies import RecurrentFn
from spo.types import Array, Integer, PRNGKey, PyTree


def grow_trees(
    params: PyTree,
    rng_key: PRNGKey,
    root: RootFnOutput,
    recurrent_fn: RecurrentFn,
    rule: Rule,
    *,
    num_simulations: int,
    max_depth: int | None,
    invalid_actions: Array | None,
    extra_data: Any = None,
    implementation: Implementation | None = None,
) -> Tree:
    """Returns the trees after `num_simulations` simulations. Random keys are split in mctx's order."""
    if invalid_actions is None:
        invalid_actions = jnp.zeros_like(root.prior_logits)
    # Trees are no deeper than the number of simulations.
    limited = max_depth is not None and max_depth < num_simulations
    deepest = max_depth if max_depth is not None and limited else num_simulations
    tree = new_tree(root, num_simulations, invalid_actions, extra_data)
    select, backup = make_walks(rule, deepest, tree, rng_key, implementation)

    def simulate(simulation: Integer[Array, ""], carry: tuple[PRNGKey, Tree]) -> tuple[PRNGKey, Tree]:
        key, tree = carry
        key, key_select, key_model = jax.random.split(key, 3)
        edges = select(key_select, tree)
        roots = jnp.arange(edges.node.shape[0])
        take = functools.partial(_take, roots, edges.node)
        embedding = jax.tree.map(take, tree.embeddings)
        step, embedding = recurrent_fn(params, key_model, edges.action, embedding)
        output = RecurrentFnOutput(step.reward, step.discount, step.prior_logits, step.value)
        child = jnp.full_like(edges.child, simulation + 1)
        if limited:
            child = jnp.where(edges.child == NOTHING, child, edges.child)
            stored = jax.tree.map(lambda all_, new: all_.at[roots, child].set(new), tree.embeddings, embedding)
        else:
            # Every tree gains the node with the same index: one slice, which XLA updates in place.
            put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=simulation + 1, axis=1)
            stored = jax.tree.map(put, tree.embeddings, embedding)
        tree = backup(tree._replace(embeddings=stored), Edges(edges.node, edges.action, child), output)
        return key, tree

    return jax.lax.fori_loop(0, num_simulations, simulate, (rng_key, tree))[1]


def _take(roots: Integer[Array, " B"], nodes: Integer[Array, " B"], embeddings: Array) -> Array:
    return embeddings.at[roots, nodes].get(mode="promise_in_bounds")
