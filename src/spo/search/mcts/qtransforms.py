"""Transformations of Q-values for the choice of an action. Each is a function of (one tree, index of a node).

A search accepts any such function. For those of this module, `node_form` returns the same function of a `Node`, which
a GPU kernel can compute.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from spo.search.mcts.tree import Node, Tree
from spo.types import Array, Float

#: (tree of one root, index of a node) -> transformed Q-values [A]
QTransform: TypeAlias = Callable[[Any, Any], Array]
NodeTransform: TypeAlias = Callable[[Node], Array]


def qtransform_by_min_max(tree: Tree, node_index: Any, *, min_value: Any, max_value: Any) -> Float[Array, " A"]:
    """Maps [min_value, max_value] to [0, 1]. Actions without visits get 0."""
    return _by_min_max(tree.node(node_index), min_value=min_value, max_value=max_value)


def qtransform_by_parent_and_siblings(tree: Tree, node_index: Any, *, epsilon: float = 1e-8) -> Float[Array, " A"]:
    """Maps the range of the node's value and its visited Q-values to [0, 1]. Actions without visits get 0.

    `epsilon` is the smallest length of the range.
    """
    return _by_parent_and_siblings(tree.node(node_index), epsilon=epsilon)


def qtransform_completed_by_mix_value(
    tree: Tree,
    node_index: Any,
    *,
    value_scale: float = 0.1,
    maxvisit_init: float = 50.0,
    rescale_values: bool = True,
    use_mixed_value: bool = True,
    epsilon: float = 1e-8,
) -> Float[Array, " A"]:
    """Returns (maxvisit_init + max_b N(b)) · value_scale · q, with a mean value in place of Q-values without visits.

    Danihelka et al., ICLR 2022, appendix D. If `rescale_values`, the range of q is first mapped to [0, 1]. Without
    `use_mixed_value`, the model's value of the node completes the Q-values.
    """
    return _completed_by_mix_value(
        tree.node(node_index),
        value_scale=value_scale,
        maxvisit_init=maxvisit_init,
        rescale_values=rescale_values,
        use_mixed_value=use_mixed_value,
        epsilon=epsilon,
    )


def node_form(qtransform: QTransform) -> NodeTransform | None:
    """Returns the function of a `Node` for a function of this module, also with keywords bound; None for others."""
    keywords: dict[str, Any] = {}
    while isinstance(qtransform, functools.partial):
        if qtransform.args:
            return None
        keywords = qtransform.keywords | keywords
        qtransform = qtransform.func
    if qtransform not in _NODE_FORMS or not all(isinstance(value, int | float) for value in keywords.values()):
        return None
    parameters = inspect.signature(qtransform).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
    return functools.partial(_NODE_FORMS[qtransform], **(defaults | keywords))


def _by_min_max(node: Node, *, min_value: Any, max_value: Any) -> Float[Array, " A"]:
    visited = jnp.where(node.child_visits > 0, node.qvalues, min_value)
    return (visited - min_value) / (max_value - min_value)


def _by_parent_and_siblings(node: Node, *, epsilon: float) -> Float[Array, " A"]:
    qvalues, visited = node.qvalues, node.child_visits > 0
    known = jnp.where(visited, qvalues, node.value)
    # Lanes that are no action repeat one that is: they do not change a minimum or a maximum.
    lowest = jnp.minimum(node.value, jnp.min(known))
    highest = jnp.maximum(node.value, jnp.max(known))
    return (jnp.where(visited, qvalues, lowest) - lowest) / jnp.maximum(highest - lowest, epsilon)


def _completed_by_mix_value(
    node: Node,
    *,
    value_scale: float,
    maxvisit_init: float,
    rescale_values: bool,
    use_mixed_value: bool,
    epsilon: float,
) -> Float[Array, " A"]:
    qvalues = node.qvalues
    value = mixed_value(node, qvalues) if use_mixed_value else node.raw_value
    completed = jnp.where(node.child_visits > 0, qvalues, value)
    if rescale_values:
        lowest, highest = jnp.min(completed), jnp.max(completed)
        completed = (completed - lowest) / jnp.maximum(highest - lowest, epsilon)
    return (maxvisit_init + jnp.max(node.child_visits)) * value_scale * completed


def mixed_value(node: Node, qvalues: Float[Array, " A"]) -> Float[Array, ""]:
    """Returns (v + N · Σ π(a)q(a) / Σ π(a)) / (1 + N) with sums over the visited actions and N visits of children."""
    visited = node.child_visits > 0
    prior = jax.nn.softmax(node.prior_logits)
    prior = jnp.maximum(jnp.finfo(prior.dtype).tiny, prior)  # so that Σ π is not 0
    total = node.total(jnp.where(visited, prior, 0.0))
    mean = node.total(jnp.where(visited, prior * qvalues / jnp.where(visited, total, 1.0), 0.0))
    visits = node.total(node.child_visits)
    return (node.raw_value + visits * mean) / (visits + 1)


_NODE_FORMS: dict[Any, Callable[..., Array]] = {
    qtransform_by_min_max: _by_min_max,
    qtransform_by_parent_and_siblings: _by_parent_and_siblings,
    qtransform_completed_by_mix_value: _completed_by_mix_value,
}
