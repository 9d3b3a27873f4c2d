"""Selection and backup as one GPU kernel each: a program walks through the tree of one root.

A program has one lane per action, padded to a power of two. Lanes beyond the last action repeat it, so that every lane
reads and writes memory of its own tree.
"""

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from spo.search.mcts import threefry, walks
from spo.search.mcts.qtransforms import NodeTransform, node_form
from spo.search.mcts.rules import (
    TIE_NOISE,
    Puct,
    Rule,
    SequentialHalving,
    halving_scores,
    interior_scores,
    puct_scores,
)
from spo.search.mcts.tree import NOTHING, ROOT, Node, Tree
from spo.search.mcts.walks import Edges
from spo.types import Array, PRNGKey

#: "pallas" is the kernel, "interpret" is the same kernel interpreted on any device.
Implementation: TypeAlias = Literal["xla", "pallas", "interpret"]


class Walks(NamedTuple):
    """The two walks through all trees of one simulation."""

    select: Callable[[PRNGKey, Tree], Edges]
    backup: Callable[[Tree, Edges, Any], Tree]


def make_walks(rule: Rule, max_depth: int, tree: Tree, key: PRNGKey, implementation: Implementation | None) -> Walks:
    """Returns the kernels, or the loops of `walks` where kernels are not possible.

    Without an implementation, kernels are used on NVIDIA GPUs, in float32, with JAX's default generator of random
    numbers and with a rule whose numbers are constants.
    """

    def select_by_xla(key: PRNGKey, tree: Tree) -> Edges:
        return walks.select(key, tree, rule, max_depth)

    in_xla = Walks(select_by_xla, walks.backup)
    if implementation == "xla" or (implementation is None and not can_use_kernels(rule, tree, key)):
        return in_xla
    interpret = implementation == "interpret"

    def select_by_kernel(key: PRNGKey, tree: Tree) -> Edges:
        return select(key, tree, rule, max_depth, interpret)

    backup_by_kernel = functools.partial(backup, interpret=interpret)
    if implementation is not None:
        return Walks(select_by_kernel, backup_by_kernel)

    def select_by_platform(key: PRNGKey, tree: Tree) -> Edges:
        tree = tree._replace(embeddings=None)
        return jax.lax.platform_dependent(key, tree, cuda=select_by_kernel, default=in_xla.select)

    def backup_by_platform(tree: Tree, edges: Edges, output: Any) -> Tree:
        inputs = (tree._replace(embeddings=None), edges, output)
        changed = jax.lax.platform_dependent(*inputs, cuda=backup_by_kernel, default=in_xla.backup)
        return changed._replace(embeddings=tree.embeddings)

    return Walks(select_by_platform, backup_by_platform)


def can_use_kernels(rule: Rule, tree: Tree, key: PRNGKey) -> bool:
    constants = rule[1:]
    floats = (tree.node_values, tree.children_prior_logits, tree.root_invalid_actions)
    return (
        importlib.util.find_spec("jax.experimental.pallas.triton") is not None
        and node_form(rule.qtransform) is not None
        and all(isinstance(number, int | float) for number in constants)
        and all(array.dtype == jnp.float32 for array in floats)
        and jax.dtypes.canonicalize_dtype(float) == jnp.float32
        and threefry.key_words(key) is not None
    )


# --- Lanes ------------------------------------------------------------------------------------------------------------
class _Lanes(NamedTuple):
    """The lanes of a program: `action` is the action whose numbers a lane reads."""

    number: Array
    action: Array
    valid: Array


def _lanes(num_actions: int) -> _Lanes:
    width = max(2, 1 << (num_actions - 1).bit_length())  # a reduction needs two lanes
    number = jax.lax.iota(jnp.int32, width)
    return _Lanes(number, jnp.minimum(number, num_actions - 1), number < num_actions)


def _first_highest(lanes: _Lanes, scores: Array, allowed: Array) -> Array:
    """Returns the first action with the highest score, or with a NaN, as `jnp.argmax` does."""
    scores = jnp.where(scores != scores, jnp.inf, scores)
    scores = jnp.where(allowed, scores, -jnp.inf)
    return jnp.min(jnp.where(scores == jnp.max(scores), lanes.action, lanes.number.shape[0]))


# --- Selection --------------------------------------------------------------------------------------------------------
def select(key: PRNGKey, tree: Tree, rule: Rule, max_depth: int, interpret: bool) -> Edges:
    """`walks.select` as one kernel."""
    batch, num_actions = tree.root_invalid_actions.shape
    words = threefry.key_words(key)
    assert words is not None
    per_root = [*_NodeRefs.of(tree), tree.root_invalid_actions]
    if isinstance(rule, SequentialHalving):
        per_root += [tree.extra_data.root_gumbel, tree.extra_data.considered_visits]
    kernel = functools.partial(_select_kernel, rule, max_depth, num_actions)
    shared = _block((2,), lambda _: (0,))
    return Edges(
        *_call(
            kernel,
            [words, *per_root],
            in_specs=[shared, *(_per_root(array) for array in per_root)],
            out_shapes=[jax.ShapeDtypeStruct((batch,), jnp.int32)] * 3,
            out_specs=[_block((1,), lambda root: (root,))] * 3,
            aliases={},
            interpret=interpret,
            name="tree_select",
        )
    )


class _NodeRefs(NamedTuple):
    """References to the arrays of one tree that a selection reads, by the names of `Tree`."""

    node_visits: Any
    node_values: Any
    raw_values: Any
    children_prior_logits: Any
    children_visits: Any
    children_rewards: Any
    children_discounts: Any
    children_values: Any
    children_index: Any

    @classmethod
    def of(cls, tree: Tree) -> "_NodeRefs":
        return cls._make(getattr(tree, name) for name in cls._fields)


class _RootRefs(NamedTuple):
    """References to the numbers of one root. Only `SequentialHalving` has the last two."""

    invalid_actions: Any
    gumbel: Any = None
    considered_visits: Any = None


class _Position(NamedTuple):
    key: threefry.Words
    node: Any
    action: Any
    child: Any
    depth: Any


def _select_kernel(rule: Rule, max_depth: int, num_actions: int, words: Any, *refs: Any) -> None:
    from jax.experimental import pallas

    per_root, outputs = refs[: -len(Edges._fields)], refs[-len(Edges._fields) :]
    nodes, root = _NodeRefs(*per_root[: len(_NodeRefs._fields)]), _RootRefs(*per_root[len(_NodeRefs._fields) :])
    lanes = _lanes(num_actions)
    transform = node_form(rule.qtransform)
    assert transform is not None

    def follow(key: threefry.Words, index: Any, depth: Any, *, at_root: bool) -> _Position:
        node, children = _node(nodes, index, lanes)
        scores = _scores(rule, transform, node, threefry.split_key(key, jnp.uint32(1)), lanes, root, at_root)
        allowed = lanes.valid
        if at_root:
            allowed = allowed & (root.invalid_actions[lanes.action] == 0)
        action = _first_highest(lanes, scores, allowed)
        child = jnp.sum(jnp.where(lanes.number == action, children, 0))
        return _Position(threefry.split_key(key, jnp.uint32(0)), index, action, child, depth + 1)

    root_key = threefry.split_key((words[0], words[1]), pallas.program_id(0).astype(jnp.uint32))
    end = jax.lax.while_loop(
        lambda position: (position.child != NOTHING) & (position.depth < max_depth),
        lambda position: follow(position.key, position.child, position.depth, at_root=False),
        follow(root_key, jnp.int32(ROOT), jnp.int32(0), at_root=True),
    )
    for reference, name in zip(outputs, Edges._fields, strict=True):
        reference[0] = getattr(end, name)


def _node(refs: _NodeRefs, index: Any, lanes: _Lanes) -> tuple[Node, Array]:
    """Returns a node and the indices of its children."""
    edges = (index, lanes.action)
    node = Node(
        visits=refs.node_visits[index],
        value=refs.node_values[index],
        raw_value=refs.raw_values[index],
        prior_logits=refs.children_prior_logits[edges],
        child_visits=refs.children_visits[edges],
        child_rewards=refs.children_rewards[edges],
        child_discounts=refs.children_discounts[edges],
        child_values=refs.children_values[edges],
        valid=lanes.valid,
    )
    children = refs.children_index[edges]
    return node._replace(prior_logits=jnp.where(lanes.valid, node.prior_logits, -jnp.inf)), children


def _scores(
    rule: Rule,
    transform: NodeTransform,
    node: Node,
    key: threefry.Words,
    lanes: _Lanes,
    root: _RootRefs,
    at_root: bool,
) -> Array:
    transformed = transform(node)
    if isinstance(rule, Puct):
        noise = TIE_NOISE * threefry.uniform(key, lanes.number.astype(jnp.uint32))
        return puct_scores(node, transformed, noise, rule)
    if not at_root:
        return interior_scores(node, transformed)
    considered = root.considered_visits[node.total(node.child_visits)]
    return halving_scores(node.child_visits, considered, node.prior_logits, root.gumbel[lanes.action], transformed)


# --- Backup -----------------------------------------------------------------------------------------------------------
class Changed(NamedTuple):
    """The arrays of a tree that a backup changes, or references to those of one root, by the names of `Tree`."""

    node_visits: Any
    raw_values: Any
    node_values: Any
    parents: Any
    action_from_parent: Any
    children_index: Any
    children_prior_logits: Any
    children_visits: Any
    children_rewards: Any
    children_discounts: Any
    children_values: Any


class _Expanded(NamedTuple):
    """The edge that a simulation expands and the result of the model, or references to those of one root."""

    node: Any
    action: Any
    child: Any
    reward: Any
    discount: Any
    value: Any
    prior_logits: Any


def backup(tree: Tree, edges: Edges, output: Any, interpret: bool) -> Tree:
    """`walks.backup` as one kernel, which changes the arrays of the tree in place."""
    arrays = Changed._make(getattr(tree, name) for name in Changed._fields)
    dtype = tree.node_values.dtype
    reward, discount, value = (number.astype(dtype) for number in (output.reward, output.discount, output.value))
    logits = output.prior_logits.astype(tree.children_prior_logits.dtype)
    expanded = _Expanded(*edges, reward, discount, value, logits)
    one_number = _block((1,), lambda root: (root,))
    specs = [_per_root(array) for array in arrays]
    changed = _call(
        functools.partial(_backup_kernel, tree.num_actions),
        [*expanded, *arrays],
        in_specs=[*[one_number] * (len(expanded) - 1), _per_root(logits), *specs],
        out_shapes=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays],
        out_specs=specs,
        aliases={len(expanded) + position: position for position in range(len(arrays))},
        interpret=interpret,
        name="tree_backup",
    )
    return tree._replace(**Changed(*changed)._asdict())


class _Climb(NamedTuple):
    """An edge of the path, the value of its child after the update, and the return from the child on."""

    node: Any
    action: Any
    child_value: Any
    returns: Any


def _backup_kernel(num_actions: int, *refs: Any) -> None:
    """Reads and writes through the outputs, which are the inputs. No number is read after it was written."""
    expanded, changed = _Expanded(*refs[: len(_Expanded._fields)]), Changed(*refs[-len(Changed._fields) :])
    node, action, child = expanded.node[0], expanded.action[0], expanded.child[0]
    reward, discount, value = expanded.reward[0], expanded.discount[0], expanded.value[0]
    lanes = _lanes(num_actions)
    changed.children_prior_logits[child, lanes.action] = expanded.prior_logits[lanes.action]
    changed.raw_values[child] = value
    changed.node_values[child] = value
    changed.node_visits[child] = changed.node_visits[child] + 1
    changed.parents[child] = node
    changed.action_from_parent[child] = action
    changed.children_index[node, action] = child
    changed.children_rewards[node, action] = reward
    changed.children_discounts[node, action] = discount

    def update(edge: _Climb, reward: Any, discount: Any) -> _Climb:
        """Updates an edge and the node where it begins; returns the edge that leads to this node."""
        node, action = edge.node, edge.action
        # Everything is read before it is used: the numbers of a level arrive together.
        above, action_above = changed.parents[node], changed.action_from_parent[node]
        count, mean = changed.node_visits[node], changed.node_values[node]
        edge_count = changed.children_visits[node, action]
        returns = reward + discount * edge.returns
        mean = (mean * count + returns) / (count + 1.0)
        changed.node_values[node] = mean
        changed.node_visits[node] = count + 1
        changed.children_values[node, action] = edge.child_value
        changed.children_visits[node, action] = edge_count + 1
        return _Climb(above, action_above, mean, returns)

    def climb(edge: _Climb) -> _Climb:
        place = (edge.node, edge.action)
        return update(edge, changed.children_rewards[place], changed.children_discounts[place])

    jax.lax.while_loop(
        lambda edge: edge.node != NOTHING, climb, update(_Climb(node, action, value, value), reward, discount)
    )


# --- Calls ------------------------------------------------------------------------------------------------------------
def _block(shape: tuple[int | None, ...], index_map: Callable[..., tuple[Any, ...]]) -> Any:
    from jax.experimental import pallas

    return pallas.BlockSpec(shape, index_map)


def _per_root(array: Array) -> Any:
    """A block is everything of one root."""
    rest = array.shape[1:]
    return _block((None, *rest), lambda root: (root, *(0 for _ in rest)))


def _call(
    kernel: Callable[..., None],
    inputs: Sequence[Array],
    *,
    in_specs: Sequence[Any],
    out_shapes: Sequence[Any],
    out_specs: Sequence[Any],
    aliases: dict[int, int],
    interpret: bool,
    name: str,
) -> Sequence[Array]:
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    return pallas.pallas_call(
        kernel,
        grid=(inputs[-1].shape[0],),
        in_specs=list(in_specs),
        out_specs=list(out_specs),
        out_shape=list(out_shapes),
        input_output_aliases=aliases,
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name=name,
    )(*inputs)
