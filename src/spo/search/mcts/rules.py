"""Rules by which a simulation chooses actions: PUCT (MuZero), and sequential halving (Gumbel MuZero).

A rule is a description. `spo.search.mcts.walks` and `spo.search.mcts.kernels` compute the same scores, below.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.search.mcts.qtransforms import QTransform
from spo.search.mcts.tree import Node
from spo.types import Array, Float, Integer

#: Largest noise that breaks ties between PUCT scores.
TIE_NOISE = 1e-7
#: Lower bound of a root's score in sequential halving: a considered action with a tiny prior stays above the others.
LOWEST_SCORE = -1e9


class Puct(NamedTuple):
    """MuZero's rule (arXiv:1911.08265, appendix B), at all nodes."""

    qtransform: QTransform
    pb_c_init: float
    pb_c_base: float


class SequentialHalving(NamedTuple):
    """Gumbel MuZero's rule (ICLR 2022): sequential halving at the root, a deterministic choice below."""

    qtransform: QTransform


class HalvingData(NamedTuple):
    """Inputs of sequential halving at the roots."""

    root_gumbel: Float[Array, "B A"]
    #: Of a simulation: only actions with this number of visits may be chosen at the root.
    considered_visits: Integer[Array, "B S"]


Rule = Puct | SequentialHalving


def puct_scores(
    node: Node, transformed: Float[Array, " A"], noise: Float[Array, " A"], rule: Puct
) -> Float[Array, " A"]:
    """Returns q̃(a) + √N · (c₁ + log((N + c₂ + 1) / c₂)) · π(a) / (1 + N(a)) + noise, where N counts the node's visits.

    `transformed` is q̃, c₁ is `pb_c_init` and c₂ is `pb_c_base`.
    """
    weight = rule.pb_c_init + jnp.log((node.visits + rule.pb_c_base + 1.0) / rule.pb_c_base)
    exploration = jnp.sqrt(node.visits) * weight * jax.nn.softmax(node.prior_logits) / (node.child_visits + 1)
    return transformed + exploration + noise


def interior_scores(node: Node, transformed: Float[Array, " A"]) -> Float[Array, " A"]:
    """Returns π'(a) − N(a) / (1 + N) with π' = softmax(logits + q̃): visits then approach π' as N grows."""
    improved = jax.nn.softmax(node.prior_logits + transformed)
    return improved - node.child_visits / (1 + node.total(node.child_visits))


def halving_scores(
    visits: Array, considered: Array, logits: Array, gumbel: Array, transformed: Array
) -> Float[Array, "*B A"]:
    """Returns gumbel + logits + q̃ for actions with the considered number of visits, and -inf for others."""
    logits = logits - jnp.max(logits, axis=-1, keepdims=True)
    scores = jnp.maximum(LOWEST_SCORE, gumbel + logits + transformed)
    return scores + jnp.where(visits == considered, 0, -jnp.inf)


def considered_visits(num_considered: int, num_simulations: int) -> list[int]:
    """Returns the visits that an action must have to be chosen at the root, for each simulation.

    The first round tries `num_considered` actions equally often. Every later round keeps half of them, at least two.
    """
    if num_considered <= 1:
        return list(range(num_simulations))
    num_rounds = math.ceil(math.log2(num_considered))
    schedule: list[int] = []
    visits_before = 0
    while len(schedule) < num_simulations:
        visits_each = max(1, num_simulations // (num_rounds * num_considered))
        for visits in range(visits_before, visits_before + visits_each):
            schedule += [visits] * num_considered
        visits_before += visits_each
        num_considered = max(2, num_considered // 2)
    return schedule[:num_simulations]


def halving_schedules(
    invalid_actions: Float[Array, "B A"], max_num_considered_actions: int, num_simulations: int
) -> Integer[Array, "B S"]:
    """Returns `considered_visits` of every root, for at most as many actions as are valid there."""
    table = np.array(
        [considered_visits(count, num_simulations) for count in range(max_num_considered_actions + 1)], np.int32
    ).reshape(-1, num_simulations)
    num_valid = jnp.sum(1 - invalid_actions, axis=-1).astype(jnp.int32)
    return jnp.asarray(table)[jnp.minimum(max_num_considered_actions, num_valid)]
