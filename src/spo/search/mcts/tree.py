"""The search tree and the inputs and outputs of a tree search, with the names of mctx's fields.

    B  roots    S  simulations    N  nodes of a tree, S + 1    A  actions

Node 0 is the root. The node that simulation i expands has the index i + 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.types import Array, Bool, Float, Integer, Shaped

ROOT = 0
#: Index of a child that is not expanded, and of the parent of the root.
NOTHING = -1


class RootFnOutput(NamedTuple):
    """The roots of a search."""

    prior_logits: Float[Array, "B A"]  # of the policy
    value: Float[Array, " B"]  # V of the root
    embedding: Any  # [B, ...] input of `recurrent_fn`


class RecurrentFnOutput(NamedTuple):
    """The result of one step of the model: of the edge (reward, discount) and of the node that it leads to."""

    reward: Float[Array, " B"]  # of the step
    discount: Float[Array, " B"]  # factor of the value; 0 where the episode ends
    prior_logits: Float[Array, "B A"]  # of the policy at the new node
    value: Float[Array, " B"]  # V of the new node


class Node(NamedTuple):
    """One node of a tree. Arrays over actions may have more lanes than actions: `valid` marks the actions."""

    visits: Integer[Array, ""]  # of the node, its expansion included
    value: Float[Array, ""]  # mean of the values backed up to the node
    raw_value: Float[Array, ""]  # of the model
    prior_logits: Float[Array, " A"]  # -inf in lanes that are no action
    child_visits: Integer[Array, " A"]  # of the edges to the children
    child_rewards: Float[Array, " A"]  # of these edges
    child_discounts: Float[Array, " A"]  # of these edges
    child_values: Float[Array, " A"]  # mean of the values backed up to the children
    valid: Bool[Array, " A"] | None = None  # None: every lane is an action

    @property
    def qvalues(self) -> Float[Array, " A"]:
        """r + γv of every action."""
        return self.child_rewards + self.child_discounts * self.child_values

    def total(self, values: Shaped[Array, " A"]) -> Shaped[Array, ""]:
        """Returns the sum over actions."""
        return jnp.sum(values if self.valid is None else jnp.where(self.valid, values, jnp.zeros_like(values)))


class SearchSummary(NamedTuple):
    """Statistics of the root of a finished search."""

    visit_counts: Float[Array, "B A"]  # visits of first actions
    visit_probs: Float[Array, "B A"]  # their shares
    value: Float[Array, " B"]  # mean of V at the root and of all values backed up to it
    qvalues: Float[Array, "B A"]  # r + γv of first actions


class Tree(NamedTuple):
    """Trees of all roots. Without the axis B it is one tree, as a `qtransform` receives it."""

    node_visits: Any  # [B, N] int32
    raw_values: Any  # [B, N]
    node_values: Any  # [B, N]
    parents: Any  # [B, N] int32
    action_from_parent: Any  # [B, N] int32
    children_index: Any  # [B, N, A] int32
    children_prior_logits: Any  # [B, N, A]
    children_visits: Any  # [B, N, A] int32
    children_rewards: Any  # [B, N, A]
    children_discounts: Any  # [B, N, A]
    children_values: Any  # [B, N, A]
    embeddings: Any  # [B, N, ...]
    root_invalid_actions: Any  # [B, A]
    extra_data: Any  # [B, ...]

    @property
    def ROOT_INDEX(self) -> int:
        return ROOT

    @property
    def num_actions(self) -> int:
        return int(self.children_index.shape[-1])

    @property
    def num_simulations(self) -> int:
        return int(self.node_visits.shape[-1]) - 1

    def node(self, index: Any) -> Node:
        """Returns one node of one tree."""
        return Node(
            visits=self.node_visits[index],
            value=self.node_values[index],
            raw_value=self.raw_values[index],
            prior_logits=self.children_prior_logits[index],
            child_visits=self.children_visits[index],
            child_rewards=self.children_rewards[index],
            child_discounts=self.children_discounts[index],
            child_values=self.children_values[index],
        )

    def qvalues(self, indices: Any) -> Array:
        """Returns r + γv of all actions at one node of one tree, or at one node of each of B trees."""
        if jnp.ndim(indices) == 0:
            return self.node(indices).qvalues
        return jax.vmap(lambda tree, index: tree.node(index).qvalues)(self, indices)

    def summary(self) -> SearchSummary:
        """Returns visits, shares of visits and values at the roots."""
        value = self.node_values[:, ROOT]
        visits = self.children_visits[:, ROOT].astype(value.dtype)
        total = jnp.sum(visits, axis=-1, keepdims=True)
        shares = jnp.where(total > 0, visits / jnp.maximum(total, 1), 1 / self.num_actions)
        qvalues = self.qvalues(jnp.full(value.shape, ROOT))
        return SearchSummary(visit_counts=visits, visit_probs=shares, value=value, qvalues=qvalues)


class PolicyOutput(NamedTuple):
    """The result of a search."""

    action: Integer[Array, " B"]  # to take
    action_weights: Float[Array, "B A"]  # sum to 1; the target of a policy
    search_tree: Tree  # after the last simulation


def new_tree(root: Any, num_simulations: int, root_invalid_actions: Array, extra_data: Any) -> Tree:
    """Returns trees that hold their roots only."""
    batch, num_actions = root.prior_logits.shape
    nodes, edges = (batch, num_simulations + 1), (batch, num_simulations + 1, num_actions)
    dtype = root.value.dtype

    def with_root(values: Array) -> Array:
        return jnp.zeros((*nodes, *values.shape[1:]), values.dtype).at[:, ROOT].set(values)

    return Tree(
        node_visits=with_root(jnp.ones(batch, jnp.int32)),
        raw_values=with_root(root.value),
        node_values=with_root(root.value),
        parents=jnp.full(nodes, NOTHING, jnp.int32),
        action_from_parent=jnp.full(nodes, NOTHING, jnp.int32),
        children_index=jnp.full(edges, NOTHING, jnp.int32),
        children_prior_logits=with_root(root.prior_logits),
        children_visits=jnp.zeros(edges, jnp.int32),
        children_rewards=jnp.zeros(edges, dtype),
        children_discounts=jnp.zeros(edges, dtype),
        children_values=jnp.zeros(edges, dtype),
        embeddings=jax.tree.map(with_root, root.embedding),
        root_invalid_actions=root_invalid_actions,
        extra_data=extra_data,
    )
