"""Sequential Monte Carlo planning for JAX, for discrete and continuous actions.

`search` is the planner; `smc_policy` is the same planner with mctx's interface. Both take a model as a function.
`mcts` searches trees instead, with mctx's interface and results.
"""

from spo.search import chance, diagnostics, mcts, proposals, readouts, resampling, weighting
from spo.search.base import (
    Ancestry,
    BatchedModel,
    Diagnostics,
    Expected,
    ModelFn,
    ModelOutput,
    Node,
    Particles,
    PolicyOutput,
    Proposal,
    Proposed,
    ProposeFn,
    Readout,
    ReadoutInputs,
    Resampled,
    ResampleFn,
    Root,
    RootFn,
    RootSamples,
    RootWeights,
    ScoreFn,
    SearchOutput,
    Step,
    TemperatureFn,
)
from spo.search.drawing import draw_ancestry
from spo.search.policies import add_dirichlet_noise, checked, mix_in_dirichlet, smc_policy
from spo.search.resampling import Resampling
from spo.search.smc import search

__all__ = [
    "Ancestry",
    "BatchedModel",
    "Diagnostics",
    "Expected",
    "ModelFn",
    "ModelOutput",
    "Node",
    "Particles",
    "PolicyOutput",
    "Proposal",
    "ProposeFn",
    "Proposed",
    "Readout",
    "ReadoutInputs",
    "ResampleFn",
    "Resampled",
    "Resampling",
    "Root",
    "RootFn",
    "RootSamples",
    "RootWeights",
    "ScoreFn",
    "SearchOutput",
    "Step",
    "TemperatureFn",
    "add_dirichlet_noise",
    "chance",
    "checked",
    "diagnostics",
    "draw_ancestry",
    "mcts",
    "mix_in_dirichlet",
    "proposals",
    "readouts",
    "resampling",
    "search",
    "smc_policy",
    "weighting",
]
