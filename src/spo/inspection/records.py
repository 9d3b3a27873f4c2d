"""A decision as plain data that JSON can hold. `spo.inspection.protocol` describes it field by field."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from spo.inspection.settings import Settings
from spo.inspection.subject import Decided, Timing
from spo.search import SearchOutput
from spo.types import ActionSpec, DiscreteActions

#: Bins of the marginal density of a continuous action.
NUM_BINS = 32
#: Significant digits of a number. The page shows three.
DIGITS = 4

#: States [...] -> names of their pictures, nested like the axes [...]; None: they are not drawn.
DrawStates = Callable[[Any, tuple[int, ...]], Any]


def describe_decision(
    decided: Decided,
    timing: Timing,
    settings: Settings,
    seed: int,
    action_spec: ActionSpec,
    draw_states: DrawStates = lambda _states, _shape: None,
) -> dict[str, Any]:
    """Returns one decision as plain data."""
    is_particles = isinstance(decided.search, SearchOutput)
    search = None
    if decided.search is not None:
        search = (_describe_particles if is_particles else _describe_tree)(decided.search, draw_states)
    return {
        "settings": dict(settings),
        "seed": seed,
        "action": plain(decided.action),
        "value": plain(decided.value),
        "temperature": plain(decided.temperature),
        "policy": _describe_policies(decided, action_spec),
        "search": search,
        "seconds": plain(timing.seconds),
        "compile_seconds": plain(timing.compile_seconds),
    }


def plain(values: Any) -> Any:
    """Returns arrays as nested lists of whole numbers, truth values or rounded floats. NaN and infinity become None."""
    if values is None:
        return None
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        return array.tolist()
    numbers = _rounded(array.astype(np.float64))
    if np.isfinite(numbers).all():
        return numbers.tolist()
    shown = numbers.astype(object)
    shown[~np.isfinite(numbers)] = None
    return shown.tolist()


def _rounded(numbers: np.ndarray) -> np.ndarray:
    """Returns numbers with `DIGITS` significant digits. All at once: a search has tens of thousands of them."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        places = DIGITS - 1 - np.floor(np.log10(np.abs(numbers)))
        # A whole number divided by, or times, a power of ten is the float that is closest to the decimal.
        scale = 10.0 ** np.clip(np.abs(places), 0.0, 22.0)
        rounded = np.where(places >= 0, np.rint(numbers * scale) / scale, np.rint(numbers / scale) * scale)
    return np.where(np.isfinite(rounded) | ~np.isfinite(numbers), rounded, numbers)


# --- Policies ---------------------------------------------------------------------------------------------------------
def _describe_policies(decided: Decided, action_spec: ActionSpec) -> dict[str, Any]:
    """Returns the policy before and after the search: probabilities, or densities and weighted actions."""
    actions, weights = _read_out(decided.search)
    if isinstance(action_spec, DiscreteActions):
        after = None if weights is None else np.bincount(actions, weights, minlength=action_spec.num_actions)
        return {"kind": "discrete", "before": plain(decided.policy), "after": plain(after)}
    weighted = None if weights is None else {"actions": plain(actions), "weights": plain(weights)}
    before = None if decided.policy is None else _densities(np.asarray(decided.policy), action_spec)
    return {"kind": "continuous", "before": before, "after": weighted}


def _read_out(search: Any) -> tuple[Any, Any]:
    """Returns actions and their weights, which together estimate the improved policy."""
    if search is None:
        return None, None
    if isinstance(search, SearchOutput):
        return np.asarray(search.root_actions), _without_nan(search.weights)
    weights = _without_nan(search.weights)
    candidates = search.candidates.actions
    return np.arange(len(weights)) if candidates is None else np.asarray(candidates), weights


def _without_nan(weights: Any) -> np.ndarray:
    return np.nan_to_num(np.asarray(weights, float), nan=0.0)


def _densities(samples: np.ndarray, action_spec: Any) -> list[Any]:
    """Returns the marginal density [D, NUM_BINS] between the bounds of the actions."""
    densities = []
    for column, (low, high) in zip(samples.reshape(len(samples), -1).T, action_spec.bounds, strict=True):
        edges = np.linspace(low, high, NUM_BINS + 1)
        densities.append(np.histogram(np.clip(column, low, high), edges, density=True)[0])
    return plain(np.stack(densities))


# --- Particles --------------------------------------------------------------------------------------------------------
def _describe_particles(output: SearchOutput, draw_states: DrawStates) -> dict[str, Any]:
    ancestry, depths = output.ancestry, output.diagnostics
    assert ancestry is not None
    num_depths, num_particles = ancestry.parent.shape
    return {
        "kind": "particles",
        "valid": bool(depths.valid),
        "num_particles": num_particles,
        "horizon": num_depths,
        "value": plain(output.value),
        "ess": plain(depths.ess),
        "live": plain(depths.num_live),
        "root_actions": plain(depths.num_root_actions),
        "resampled": plain(depths.resampled),
        "parent": plain(ancestry.parent),
        "action": plain(ancestry.action),
        "reward": plain(ancestry.reward),
        "particle_value": plain(ancestry.value),
        "ended": plain(ancestry.ended),
        "weight": plain(_normalised(np.asarray(ancestry.log_weights, float))),
        "survivor": plain(ancestry.survivor),
        "picture": draw_states(ancestry.state, (num_depths, num_particles)),
    }


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    """Returns weights that sum to 1 at each depth."""
    with np.errstate(invalid="ignore"):  # an invalid root has NaN
        weights = np.exp(log_weights - np.max(log_weights, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


# --- Trees ------------------------------------------------------------------------------------------------------------
def _describe_tree(output: Any, draw_states: DrawStates) -> dict[str, Any]:
    """Returns the visited nodes in the order in which they were added: a parent comes before its children."""
    tree = output.tree
    nodes = np.flatnonzero(np.asarray(tree.node_visits) > 0)
    place = np.full(len(tree.node_visits), -1)
    place[nodes] = np.arange(len(nodes))
    parents, edges = np.asarray(tree.parents)[nodes], np.asarray(tree.action_from_parent)[nodes]
    logits = np.asarray(tree.children_prior_logits, float)[parents]
    with np.errstate(invalid="ignore"):
        priors = np.exp(logits - logits.max(axis=-1, keepdims=True))
    priors /= priors.sum(axis=-1, keepdims=True)
    rows = np.arange(len(nodes))
    candidates = tree.embeddings.actions
    actions = edges if candidates is None else np.asarray(candidates)[parents, edges]
    states = jax.tree.map(lambda x: np.asarray(x)[nodes], tree.embeddings.state)
    return {
        "kind": "tree",
        "value": plain(output.value),
        "parent": [-1, *place[parents[1:]].tolist()],
        "action": [None, *plain(actions[1:])],
        "prior": [None, *plain(priors[rows, edges][1:])],
        "reward": [None, *plain(np.asarray(tree.children_rewards)[parents, edges][1:])],
        "ended": plain(np.asarray(tree.embeddings.ended)[nodes]),
        "visits": plain(np.asarray(tree.node_visits)[nodes]),
        "node_value": plain(np.asarray(tree.node_values)[nodes]),
        "picture": draw_states(states, (len(nodes),)),
    }


# --- States -----------------------------------------------------------------------------------------------------------
#: Most numbers of an observation that are shown.
MAX_OBSERVATION = 4096


def describe_observation(observation: Any) -> list[dict[str, Any]]:
    """Returns the parts of an observation with their numbers. Of a large part only the shape is returned."""
    parts = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(observation):
        array = np.asarray(leaf)
        values = plain(array.reshape(-1)) if array.size <= MAX_OBSERVATION else None
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        parts.append({"name": name, "shape": list(array.shape), "values": values})
    return parts


def describe_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the environment's metrics as plain numbers."""
    return {name: plain(value) for name, value in metrics.items()}


__all__ = ["DrawStates", "describe_decision", "describe_metrics", "describe_observation", "plain"]
