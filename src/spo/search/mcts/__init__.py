"""Monte-Carlo tree search for batches of roots: MuZero and Gumbel MuZero, with mctx's interface and results.

On NVIDIA GPUs, selection and backup are one kernel each per simulation. Elsewhere they are loops in XLA.
"""

from spo.search.mcts.policies import gumbel_muzero_policy, muzero_policy
from spo.search.mcts.qtransforms import (
    qtransform_by_min_max,
    qtransform_by_parent_and_siblings,
    qtransform_completed_by_mix_value,
)
from spo.search.mcts.tree import PolicyOutput, RecurrentFnOutput, RootFnOutput, SearchSummary, Tree

__all__ = [
    "PolicyOutput",
    "RecurrentFnOutput",
    "RootFnOutput",
    "SearchSummary",
    "Tree",
    "gumbel_muzero_policy",
    "muzero_policy",
    "qtransform_by_min_max",
    "qtransform_by_parent_and_siblings",
    "qtransform_completed_by_mix_value",
]
