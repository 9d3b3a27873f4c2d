"""The public names. Removing one breaks users' code, so it must break this test first."""

import importlib
import subprocess
import sys
from importlib import resources

import pytest

import spo

PUBLIC = {
    "spo": ["__version__"],
    "spo.search": [
        "Ancestry",
        "BatchedModel",
        "Diagnostics",
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
    ],
    "spo.search.mcts": [
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
    ],
    "spo.search.resampling": [
        "by_priority",
        "by_weight",
        "multinomial",
        "residual",
        "stratified",
        "systematic",
        "tempered",
    ],
    "spo.search.proposals": ["corrected", "corrected_root", "without_replacement"],
    "spo.search.chance": ["Outcomes", "enumerated", "sampled", "shared"],
    "spo.search.readouts": ["all_depths", "last", "mean_returns"],
    "spo.search.weighting": ["advantage", "q_value", "soft_advantage"],
    "spo.distributions": [
        "Distribution",
        "Gaussian",
        "categorical",
        "gaussian",
        "masked_logits",
        "mix_log_probabilities",
        "tanh_gaussian",
    ],
}
FIELDS = {
    "Root": ("prior", "value", "state", "proposal"),
    "ModelOutput": ("state", "prior", "value", "reward", "discount", "ended"),
    "SearchOutput": (
        "action",
        "best_action",
        "root_actions",
        "weights",
        "action_weights",
        "value",
        "log_normaliser",
        "temperature_advantages",
        "root_log_weights",
        "diagnostics",
        "ancestry",
    ),
    "PolicyOutput": ("action", "action_weights", "search"),
    "Diagnostics": ("ess", "entropy", "num_live", "num_root_actions", "resampled", "log_normaliser", "valid"),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in names])
def test_name_is_there(module, name):
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("module", ["spo", "spo.search", "spo.search.mcts"])
def test_all_lists_the_names(module):
    assert set(PUBLIC[module]) <= set(importlib.import_module(module).__all__)


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_there(name):
    assert set(FIELDS[name]) <= set(getattr(importlib.import_module("spo.search"), name)._fields)


def test_version_and_type_marker():
    version = importlib.import_module("spo").__version__
    assert version.count(".") >= 1
    assert version[0].isdigit()
    assert resources.files("spo").joinpath("py.typed").is_file()


@pytest.mark.parametrize("forbidden", ["mctx, flax, optax, brax, jumanji, flashbax, scipy"])
def test_the_planner_needs_jax_alone(forbidden):
    """`spo.search` must import in an environment where nothing but JAX and jaxtyping is installed."""
    script = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {forbidden.split(", ")!r}:
            # JAX itself looks for SciPy and must find it; whoever else does, must not.
            import traceback
            if not any("/jax/" in frame.filename for frame in traceback.extract_stack()):
                raise ImportError("not installed: " + name)
sys.meta_path.insert(0, Absent())
import spo.search
assert not any(name in sys.modules for name in ("mctx", "flax", "brax", "jumanji")), "imported after all"
spo.search.search, spo.search.smc_policy
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_names_that_are_imported_at_their_first_use_are_listed():
    assert {"__version__", "check_environment", "load", "train"} <= set(dir(spo))
