"""Sequential Monte Carlo planning for JAX: what mctx is to tree search, for discrete and continuous actions.

`search` is the planner; `smc_policy` is the same planner behind mctx's interface. Both take a model as a function.
"""

from spo.search import diagnostics, resampling, roots, weighting
from spo.search.base import (
    Ancestry,
    Diagnostics,
    ModelFn,
    ModelOutput,
    Particles,
    PolicyOutput,
    ResampleFn,
    Root,
    RootFn,
    RootSamples,
    SearchOutput,
    Step,
    WeightFn,
)
from spo.search.policies import add_dirichlet_noise, checked, mix_in_dirichlet, smc_policy
from spo.search.smc import search

__all__ = [
    "Ancestry",
    "Diagnostics",
    "ModelFn",
    "ModelOutput",
    "Particles",
    "PolicyOutput",
    "ResampleFn",
    "Root",
    "RootFn",
    "RootSamples",
    "SearchOutput",
    "Step",
    "WeightFn",
    "add_dirichlet_noise",
    "checked",
    "diagnostics",
    "mix_in_dirichlet",
    "resampling",
    "roots",
    "search",
    "smc_policy",
    "weighting",
]
