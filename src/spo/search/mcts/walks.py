"""Selection and backup in plain XLA: loops over the depth, with all roots side by side."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.search.mcts.rules import (
    TIE_NOISE,
    HalvingData,
    Puct,
    Rule,
    SequentialHalving,
    halving_scores,
    interior_scores,
    puct_scores,
)
from spo.search.mcts.tree import NOTHING, ROOT, Tree
from spo.types import Array, Integer, PRNGKey


class Edges(NamedTuple):
    """One edge of every tree: from a node, by an action, to a child or to nothing yet."""

    node: Integer[Array, " *B"]
    action: Integer[Array, " *B"]
    child: Integer[Array, " *B"]


def select(key: PRNGKey, tree: Tree, rule: Rule, max_depth: int) -> Edges:
    """Walks from every root to an edge without a child, or through `max_depth` edges."""
    keys = jax.random.split(key, tree.node_visits.shape[0])
    return jax.vmap(lambda key, tree: _select_one(key, tree, rule, max_depth))(keys, tree)


class _Walk(NamedTuple):
    key: Any
    edge: Edges
    depth: Array


def _select_one(key: PRNGKey, tree: Tree, rule: Rule, max_depth: int) -> Edges:
    root_action, action_below = _choices(rule)

    def follow(key: PRNGKey, node: Array, choose: Callable[..., Array], depth: Array) -> _Walk:
        key, key_action = jax.random.split(key)
        action = choose(key_action, tree, node).astype(jnp.int32)
        return _Walk(key, Edges(node, action, tree.children_index[node, action]), depth + 1)

    def has_next(walk: _Walk) -> Array:
        return (walk.edge.child != NOTHING) & (walk.depth < max_depth)

    start = follow(key, jnp.int32(ROOT), root_action, jnp.int32(0))
    return jax.lax.while_loop(
        has_next, lambda walk: follow(walk.key, walk.edge.child, action_below, walk.depth), start
    ).edge


def _choices(rule: Rule) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Returns the choice of an action at the root and at other nodes, as functions of (key, tree, node)."""

    def by_puct(key: PRNGKey, tree: Tree, node: Array) -> Array:
        assert isinstance(rule, Puct)
        noise = TIE_NOISE * jax.random.uniform(key, (tree.num_actions,))
        return puct_scores(tree.node(node), rule.qtransform(tree, node), noise, rule)

    def by_halving(_key: PRNGKey, tree: Tree, node: Array) -> Array:
        data: HalvingData = tree.extra_data
        visits = tree.children_visits[node]
        # As many simulations have ended as the root has visits.
        considered = data.considered_visits[jnp.sum(visits)]
        logits, transformed = tree.children_prior_logits[node], rule.qtransform(tree, node)
        return halving_scores(visits, considered, logits, data.root_gumbel, transformed)

    def below(_key: PRNGKey, tree: Tree, node: Array) -> Array:
        return interior_scores(tree.node(node), rule.qtransform(tree, node))

    at_root, at_others = (by_halving, below) if isinstance(rule, SequentialHalving) else (by_puct, by_puct)

    def root_action(key: PRNGKey, tree: Tree, node: Array) -> Array:
        return masked_argmax(at_root(key, tree, node), tree.root_invalid_actions)

    return root_action, lambda key, tree, node: jnp.argmax(at_others(key, tree, node))


def masked_argmax(scores: Array, invalid_actions: Array | None) -> Array:
    """Returns the valid action with the highest score; 0 if no action is valid."""
    if invalid_actions is not None:
        scores = jnp.where(invalid_actions, -jnp.inf, scores)
    return jnp.argmax(scores, axis=-1).astype(jnp.int32)


def backup(tree: Tree, edges: Edges, output: Any) -> Tree:
    """Stores the result of the model on the edges and in their children, and updates all nodes above.

    At every node of the path the value becomes (N · value + R) / (N + 1), where R is the sum of discounted rewards
    from there to the new node plus the new node's value.
    """
    return _update_path(_expand(tree, edges, output), edges.child)


def _expand(tree: Tree, edges: Edges, output: Any) -> Tree:
    roots = jnp.arange(edges.node.shape[0])
    edge, child = (roots, edges.node, edges.action), (roots, edges.child)
    return tree._replace(
        node_visits=tree.node_visits.at[child].add(1),  # a child at `max_depth` is expanded again and again
        raw_values=tree.raw_values.at[child].set(output.value),
        node_values=tree.node_values.at[child].set(output.value),
        parents=tree.parents.at[child].set(edges.node),
        action_from_parent=tree.action_from_parent.at[child].set(edges.action),
        children_index=tree.children_index.at[edge].set(edges.child),
        children_prior_logits=tree.children_prior_logits.at[child].set(output.prior_logits),
        children_rewards=tree.children_rewards.at[edge].set(output.reward),
        children_discounts=tree.children_discounts.at[edge].set(output.discount),
    )


class _Climb(NamedTuple):
    """The arrays that a climb changes, and its place."""

    node_visits: Array
    node_values: Array
    children_visits: Array
    children_values: Array
    node: Array  # [B] index of the node that was updated last
    returns: Array  # [B] discounted sum from that node to the leaf, plus the leaf's value


def _update_path(tree: Tree, leaves: Integer[Array, " B"]) -> Tree:
    roots, num_nodes = jnp.arange(leaves.shape[0]), tree.node_visits.shape[1]

    def climb(state: _Climb) -> _Climb:
        index = state.node
        parent, action = tree.parents[roots, index], tree.action_from_parent[roots, index]
        reward, discount = tree.children_rewards[roots, parent, action], tree.children_discounts[roots, parent, action]
        returns = reward + discount * state.returns
        count = state.node_visits[roots, parent]
        value = (state.node_values[roots, parent] * count + returns) / (count + 1.0)
        # Trees that have reached their root write out of bounds, which is dropped.
        node = (roots, jnp.where(index == ROOT, num_nodes, parent))
        edge = (*node, action)
        return _Climb(
            node_visits=state.node_visits.at[node].add(1, mode="drop"),
            node_values=state.node_values.at[node].set(value, mode="drop"),
            children_visits=state.children_visits.at[edge].add(1, mode="drop"),
            children_values=state.children_values.at[edge].set(state.node_values[roots, index], mode="drop"),
            node=jnp.where(index == ROOT, ROOT, parent),
            returns=returns,
        )

    start = _Climb(
        tree.node_visits,
        tree.node_values,
        tree.children_visits,
        tree.children_values,
        leaves,
        tree.node_values[roots, leaves],
    )
    end = jax.lax.while_loop(lambda state: jnp.any(state.node != ROOT), climb, start)
    return tree._replace(
        node_visits=end.node_visits,
        node_values=end.node_values,
        children_visits=end.children_visits,
        children_values=end.children_values,
    )
